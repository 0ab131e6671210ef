"""Every schedule over long links: runs against the timeline, micro-batches ahead of a boundary, turns on a shared line."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.engine.timeline.pipeline import duration
from shardmeter.schedules import Boundary, Slot, _replay, flying, long_makespan, names, owed, schedule, traits, turns_of

PLANS, IN_TURN = 28, 8
"""Random plans of each schedule, and of those whose pipelines send in turn."""
HOLDERS = tuple(name for name in names() if traits(name).ahead)
every_schedule = pytest.mark.parametrize("name", names())
Case = tuple[list[Slot], int, int, tuple[Boundary, ...]]


def drawn(r: random.Random, name: str, pipelines: int = 1, rounds: int = 4) -> Case:
    """Stages like or unlike; micro-batches fewer and more than stages as far as the schedule takes them; some boundaries long, with
    delays up to ten forwards, 0 to 4 micro-batches ahead; (slots, micro-batches, virtual stages, links)."""
    kind = traits(name)
    pp = r.choice([2, 4, 6]) if kind.even else r.randint(2, 7)
    chunks = r.randint(2, 4) if kind.most_chunks is None else kind.least_chunks
    passes = max(int(kind.rounds * pp), 1) + r.randint(0, rounds * pp)
    passes = max(passes // pp, 1) * pp if kind.groups else passes + passes % 2 if kind.even else passes
    like, ahead = r.random() < 0.5, r.choice([0, 0, 1, 2, 3, 4]) if kind.ahead else 0
    slots = [
        Slot(first=at, count=1, forward=1.0 if like else r.uniform(0.5, 2.0), input_grad=1.0 if like else r.uniform(0.5, 2.0),
             weight_grad=1.0)
        for at in range(pp)
    ]  # fmt: skip
    far = {r.randrange(pp - 1), pp - 1, *(at for at in range(pp) if r.random() < 0.3)}
    links = []
    for at in range(pp):
        wire = r.uniform(0.02, 1.0) / pipelines if pipelines > 1 else r.choice([0.0, r.uniform(0.0, 3.0)])
        delay = r.choice([0.0, r.uniform(0.0, 10.0)])
        long = Boundary(wire=wire, delay=delay, ahead=float(ahead), others=(pipelines - 1) * wire)
        links.append(long if at in far else Boundary(wire=r.choice([0.0, 0.05])))
    return slots, passes, chunks, tuple(links)


def run(name: str, case: Case, *, beside: bool = True) -> float:
    slots, passes, chunks, links = case
    return float(long_makespan(name, slots, passes, chunks, links, beside=beside))


def errors(name: str, cases: Iterator[Case]) -> list[float]:
    """How far from the timeline, each a part of it."""
    found = []
    for number, (slots, passes, chunks, links) in enumerate(cases):
        beside = number % 2 == 0 or any(link.others for link in links)
        own = run(name, (slots, passes, chunks, links), beside=beside)
        found.append(own / duration(name, slots, passes, chunks, links, beside=beside) - 1.0)
    return found


@every_schedule
def test_random_plans_agree_with_the_timeline(name: str) -> None:
    """Exact turn by turn; within 3 % where the steady state of the first micro-batches stands for all."""
    r = random.Random(name)
    found = errors(name, (drawn(r, name) for _ in range(PLANS)))
    assert max(map(abs, found)) <= 0.03
    assert np.mean(np.abs(found)) <= 0.003


@every_schedule
def test_pipelines_in_turn_agree_with_a_timeline_of_all_of_them(name: str) -> None:
    r = random.Random(name)
    found = errors(name, (drawn(r, name, pipelines=r.randint(2, 4), rounds=2) for _ in range(IN_TURN)))
    assert max(map(abs, found)) <= 0.03


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"])
def test_long_steps_go_on_as_their_first_micro_batches_did(name: str) -> None:
    r = random.Random(name)
    found = []
    for _ in range(3):
        slots, _, chunks, links = drawn(r, name)
        passes = 20 * len(slots)
        found.append(
            run(name, (slots, passes, chunks, links)) / duration(name, slots, passes, chunks, links, beside=True)
        )
    assert found == pytest.approx([1.0] * 3, rel=0.03)


@every_schedule
def test_nearer_or_wider_is_never_slower_and_nothing_beats_a_stage_or_a_wire(name: str) -> None:
    r = random.Random(5)
    for _ in range(12):
        slots, passes, chunks, links = drawn(r, name, rounds=1)
        before = run(name, (slots, passes, chunks, links))
        nearer = tuple(changed(link, delay=link.delay * r.random()) for link in links)
        wider = tuple(changed(link, wire=link.wire * r.random()) for link in links)
        if name != "zb-2p":  # its rules find another order
            assert run(name, (slots, passes, chunks, nearer)) <= before * (1 + 1e-12)
            assert run(name, (slots, passes, chunks, wider)) <= before * (1 + 1e-12)
        both = slots if traits(name).copies == 1.0 else slots[::-1]
        stage = max((own.whole + other.whole) / 2.0 for own, other in zip(slots, both, strict=True))
        wire = max(chunks * link.wire for link in links[:-1])
        assert before >= passes * max(stage, wire) * (1 - 1e-12)


@every_schedule
def test_many_networks_are_each_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level by level, and node by node as for so many that each is worth a call."""
    r = random.Random(2)
    slots, passes, chunks, links = drawn(r, name, rounds=8)
    delays, wires = np.array([0.0, 0.5, 3.0, 9.0]), np.array([0.1, 0.0, 1.0, 3.0])
    far = tuple(changed(link, wire=link.wire * wires, delay=delays) for link in links)
    together = long_makespan(name, slots, passes, chunks, far, beside=True)
    for at in range(4):
        alone = tuple(changed(one, wire=one.wire * float(wires[at]), delay=float(delays[at])) for one in links)
        assert np.asarray(together)[at] == run(name, (slots, passes, chunks, alone))
    monkeypatch.setattr(_replay, "WIDE", 1)
    monkeypatch.setattr(_replay, "BLOCK", 3)
    assert np.array_equal(together, long_makespan(name, slots, passes, chunks, far, beside=True))


@every_schedule
def test_equal_neighbours_are_as_many_stages_of_one(name: str) -> None:
    """On one network and on several, of which each is as if it were alone."""
    r = random.Random(7)
    pp, chunks = 6, 2 if traits(name).most_chunks is None else traits(name).least_chunks
    run_of = [
        Slot(first=first, count=3, forward=seconds, input_grad=1.0, weight_grad=0.5)
        for first, seconds in ((0, 1.0), (3, 1.2))
    ]
    each = [changed(slot, first=slot.first + at, count=1) for slot in run_of for at in range(3)]
    delays = np.array([0.0, 0.3, 4.0])
    links = tuple(Boundary(wire=r.random() / 5.0, delay=delays if at in (2, pp - 1) else 0.0) for at in range(pp))
    long = [tuple(changed(link, delay=np.asarray(link.delay) + [0.0] * 3) for link in links), links]
    found = [long_makespan(name, slots, 4 * pp, chunks, one, beside=True) for slots in (run_of, each) for one in long]
    assert all(np.array_equal(one, found[0]) for one in found)
    for at in range(3):
        alone = tuple(changed(link, delay=float(np.broadcast_to(link.delay, 3)[at])) for link in links)
        assert run(name, (run_of, 4 * pp, chunks, alone)) == np.asarray(found[0])[at]


# ---- ahead -----------------------------------------------------------------------------------------------------------------------


def test_a_round_trip_is_hidden_by_as_many_ahead_as_it_lasts() -> None:
    """Two stages that hold 2 + e micro-batches take (compute + 2·(wire + delay)) / (2 + e) each, until a stage is slower."""
    slot = Slot(first=0, count=2, forward=1.0, input_grad=1.0, weight_grad=1.0)
    for ahead in range(8):
        far = Boundary(wire=0.5, delay=7.0, ahead=float(ahead))
        each = (run("1f1b", ([slot], 480, 1, (far, far))) - run("1f1b", ([slot], 240, 1, (far, far)))) / 240
        assert each == pytest.approx(max((2 * 3.0 + 2 * 7.5) / (2 + ahead), 3.0), rel=5e-3)
    assert math.ceil(2 * 7.5 / 3.0) == 5  # from here on nothing is left to hide


def test_more_ahead_never_slows_the_steady_state_of_1f1b() -> None:
    """A short step may end a little later: forwards that run ahead come before backwards that others wait for."""
    r = random.Random(8)
    for _ in range(12):
        slots, _, chunks, links = drawn(r, "1f1b")
        more = tuple(changed(link, ahead=link.ahead + r.randint(0, 2)) for link in links)
        steady = [
            run("1f1b", (slots, 360, chunks, some)) - run("1f1b", (slots, 240, chunks, some)) for some in (links, more)
        ]
        assert steady[1] <= steady[0] * (1 + 5e-3)


@pytest.mark.parametrize("name", HOLDERS)
def test_no_stage_holds_more_than_it_says_with_micro_batches_ahead(name: str) -> None:
    r, module = random.Random(3), schedule(name)
    for _ in range(12):
        slots, passes, chunks, links = drawn(r, name, rounds=3)
        pp, ahead = len(slots), tuple(link.ahead for link in links)
        for at, turns in enumerate(turns_of(module, slots, passes, chunks, links)):
            said = flying(module, at, pp, float(passes), chunks, ahead) + owed(module, at, pp, float(passes), chunks)
            step = {"forward": 1.0, "backward": -1.0, "input_grad": 0.0, "weight_grad": -1.0}
            held = max(itertools.accumulate(step[op.kind] / chunks for op in turns))
            assert held <= said + 1e-9
            assert flying(module, at, pp, float(passes), chunks, (0.0,) * pp) <= said


# ---- turns -----------------------------------------------------------------------------------------------------------------------


@every_schedule
def test_in_turn_is_later_than_alone_and_no_later_than_together(name: str) -> None:
    """Together every message takes as long as all; alone nobody else is there."""
    r = random.Random(4)
    for _ in range(6):
        slots, passes, chunks, links = drawn(r, name, pipelines=3, rounds=2)
        alone = tuple(changed(link, others=0.0) for link in links)
        together = tuple(changed(link, wire=link.wire + link.others, others=0.0) for link in links)
        least, own, most = (run(name, (slots, passes, chunks, some)) for some in (alone, links, together))
        assert least * (1 - 1e-12) <= own <= most * (1 + 0.03)


def test_time_of_interleaved_groups_of_unlike_size_does_not_grow_with_the_step() -> None:
    slots = [Slot(first=at, count=1, forward=1.0, input_grad=1.0, weight_grad=1.0) for at in range(4)]
    links = tuple(Boundary(wire=0.1, delay=4.0, ahead=2.0) for _ in range(4))
    begun = time.process_time()
    whole, longer = (long_makespan("interleaved", slots, count, 2, links, beside=True) for count in (4_001, 4_000_001))
    assert time.process_time() - begun < 5.0
    assert longer / 4_000_001 == pytest.approx(whole / 4_001, rel=1e-2)
