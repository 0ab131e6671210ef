"""When gradients are whole and what shows of them on a network: the closed forms against a step run turn by turn, and
their laws."""

from __future__ import annotations

import copy
import itertools
import random
import statistics
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import lines_of
from shardmeter.engine.round import Pace, released
from shardmeter.engine.timeline.gradients import Step, run
from shardmeter.schedules import Boundary, Hop, Slot, leaving, names, schedule, traits
from shardmeter.specs import Leaving
from shardmeter.specs.estimate import Ends

PLANS = 16
BARS = {
    # schedule: (mean, largest) of |closed/timeline − 1|
    "gpipe": (1e-9, 1e-9),
    "1f1b": (1e-9, 1e-9),
    "interleaved": (0.002, 0.02),
    "interleaved-bf": (1e-9, 1e-9),
    "zb-h1": (1e-9, 1e-9),
    "zb-h2": (1e-9, 1e-9),
    "zb-2p": (1e-9, 1e-9),
    "zb-v": (0.005, 0.03),
}
"""Held by class, over stages that differ by up to a tenth and lines of any length. Of interleaved and zb-v with short sends the closed form
leaves out waits."""
LONG = {
    "1f1b": 1e-9,
    "interleaved": 0.02,
    "interleaved-bf": 1e-9,
    "zb-h1": 1e-9,
    "zb-h2": 1e-9,
    "zb-2p": 1e-9,
    "zb-v": 0.02,
}
"""Largest error where every boundary is another, one way of up to three forwards (gpipe: above): what is not nothing is that pieces
leave in another order than over like ones."""


def draw(r: random.Random, name: str) -> Step:
    """A step of random stages, chunks, sends and layers."""
    kind = traits(name)
    pp = r.choice([2, 3, 4, 8])
    chunks = 1 if kind.most_chunks == 1 else 2 if kind.route == "vee" else r.choice([2, 3, 4])
    passes = r.choice([1, 2, 3, 5]) * pp if kind.groups else r.randint(max(2, int(kind.rounds * pp)), 5 * pp)
    forward = r.uniform(0.5, 1.5)
    parts = forward, forward * r.uniform(0.8, 1.2), forward * r.uniform(0.8, 1.2)
    ending = r.choice([0.0, 0.5 * forward]) if kind.ending else 0.0
    unlike = r.choice([0.0, 0.1])
    slots = []
    for at in range(pp):
        own = [one * r.uniform(1.0 - unlike, 1.0 + unlike) for one in parts]
        slots.append(Slot(first=at, count=1, forward=own[0], input_grad=own[1], weight_grad=own[2], ending=ending))
    hop: Hop = r.choice([0.0, 0.05, 0.3]) * forward / chunks
    if name in ("gpipe", "1f1b") and r.random() < 0.5:
        hop = tuple(Boundary(wire=r.choice([0.0, 0.3]), delay=r.choice([0.0, 3.0])) for _ in range(pp))
    if name == "interleaved-bf" and r.random() < 0.5:
        hop = (Boundary(wire=r.choice([0.0, 0.1]), delay=r.choice([1.0, 3.0])),) * pp
    return Step(
        schedule=name, slots=tuple(slots), micro_batches=passes, virtual_stages=chunks, hop=hop,
        layers=r.choice([1, 2, 8]),
    )  # fmt: skip


def ends(step: Step) -> Ends:
    """How a step ends, as the engine has it."""
    module = schedule(step.schedule)
    lasts = leaving(
        module, step.slots, float(step.micro_batches), step.virtual_stages, step.hop, blocking=module.TRAITS.blocking
    )
    share = 1.0 / len(lasts)
    trains = tuple(
        Leaving(
            left=one.left, window=one.window, due=one.due, pieces=float(step.layers), share=share, stage=one.position
        )
        for one in lasts
    )
    return Ends(leaving=trains, stages=sum(one.count for one in step.slots))


def shown(step: Step, seconds: float, lines: int) -> float:
    """What shows of gradients that take so many seconds."""
    return float(released(seconds, Pace(step=1.0, tokens=1.0, leaving=tuple(lines_of(ends(step), lines)))))


def work(step: Step) -> float:
    """Seconds of the turns of the first stage."""
    return step.micro_batches * float(step.slots[0].whole)


@pytest.mark.parametrize("name", BARS)
def test_what_shows_is_what_the_timeline_takes(name: str) -> None:
    r, errors = random.Random(name), []
    for _ in range(PLANS):
        step = draw(r, name)
        seconds, lines = r.uniform(0.02, 1.0) * work(step) * r.choice([0.1, 0.3, 1.0]), r.choice([1, 1, 2, 8])
        drawn, alone = run([step], seconds, min(lines, len(step.slots)))
        errors.append(abs((alone + shown(step, seconds, lines)) / drawn - 1.0))
    mean, largest = BARS[name]
    assert statistics.mean(errors) <= mean
    assert max(errors) <= largest


@pytest.mark.parametrize("name", LONG)
def test_over_long_boundaries_too(name: str) -> None:
    """Also those that lead back to the first stage, of two stages another one than that between them."""
    r = random.Random(name)
    for pp in (2, 2, 3, 4, 8):
        step = draw(r, name)
        hop = tuple(Boundary(wire=r.choice([0.0, 0.3]), delay=r.choice([0.0, 3.0])) for _ in range(pp))
        slots = tuple(changed(step.slots[at % len(step.slots)], first=at) for at in range(pp))
        passes = max(step.micro_batches // pp, 2) * pp
        step = changed(step, hop=hop, slots=slots, micro_batches=passes)
        seconds = 0.3 * work(step)
        drawn, alone = run([step], seconds, min(2, pp))
        assert alone + shown(step, seconds, 2) == pytest.approx(drawn, rel=LONG[name])


def test_every_schedule_of_one_model_is_held_to_the_timeline() -> None:
    assert {name for name in names() if traits(name).copies == 1.0} == set(BARS)


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "interleaved-bf"])
def test_gradients_wait_for_the_slower_of_two_cells(name: str) -> None:
    r = random.Random(name)
    for _ in range(6):
        slow = changed(draw(r, name), layers=4)
        fast = changed(slow, slots=tuple(changed(one, forward=0.7 * one.forward) for one in slow.slots))
        seconds = r.uniform(0.1, 0.5) * work(slow)
        drawn, _ = run([fast, slow], seconds, 1)
        _, alone = run([slow], 0.0, 1)
        assert alone + shown(slow, seconds, 1) == pytest.approx(drawn, rel=0.03)


@pytest.mark.parametrize("name", BARS)
def test_a_faster_network_never_shows_more_and_layers_never_more_than_the_end(name: str) -> None:
    r = random.Random(name)
    for _ in range(10):
        step = draw(r, name)
        for lines in (1, len(step.slots)):
            rows = [shown(step, part * work(step), lines) for part in (0.0, 0.01, 0.1, 0.5, 2.0)]
            assert rows == sorted(rows)
            assert rows[0] == 0.0 or traits(name).own_clock
        if not traits(name).own_clock:
            assert all(shown(step, part * work(step), 1) <= part * work(step) for part in (0.1, 1.0))


def test_more_chunks_breadth_first_never_show_more() -> None:
    """Of equal stages: (v − 1)/v of the backwards lie between the last one of the first stage's last chunk and the
    end."""
    slots, module = (Slot(first=0, count=4, forward=1.0, input_grad=1.0, weight_grad=1.0),), schedule("interleaved-bf")
    for seconds in (4.0, 16.0, 60.0, 200.0):
        rows = []
        for chunks in (2, 3, 4, 6, 12):
            step = Step(
                schedule="interleaved-bf", slots=slots, micro_batches=32, virtual_stages=chunks, hop=0.0,
                layers=12 // chunks,
            )  # fmt: skip
            first = leaving(module, slots, 32.0, chunks, 0.0, blocking=False)[3]
            assert (first.position, first.chunk) == (0, chunks - 1)
            assert first.left == pytest.approx((chunks - 1.0) / chunks * 64.0)
            rows.append(shown(step, seconds, 1))
        assert all(after <= before * (1.0 + 1e-9) for before, after in itertools.pairwise(rows))


def test_numbers_broadcast() -> None:
    """Over seconds, micro-batches (few and many) and sends, for every schedule."""
    forward, passes = np.array([0.8, 1.0, 1.3, 1.1]), np.array([8.0, 32.0, 16.0, 8.0])
    wires = np.array([0.0, 0.1, 0.3, 0.05])
    for name in BARS:
        kind = traits(name)
        chunks = kind.least_chunks

        def of(f, m, w, name=name, chunks=chunks, kind=kind):
            slots = [
                Slot(first=0, count=2, forward=f, input_grad=0.9 * f, weight_grad=1.2 * f),
                Slot(first=2, count=2, forward=1.1 * f, input_grad=f, weight_grad=f),
            ]
            hop = tuple(Boundary(wire=w, delay=2.0 * w) for _ in range(4)) if kind.route == "ring" else w
            return leaving(schedule(name), slots, m, chunks, hop, blocking=kind.blocking)

        together = of(forward, passes, wires)
        for at, three in enumerate(zip(forward, passes, wires, strict=True)):
            for one, many in zip(of(*map(float, three)), together, strict=True):
                assert (one.position, one.chunk) == (many.position, many.chunk)
                for field in ("left", "window", "due"):
                    assert getattr(one, field) == np.broadcast_to(getattr(many, field), 4)[at]


TWO: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {
        "islands": [{"name": name, "gpus": "8xH100-SXM5-80GB"} for name in "abcd"],
        "wan": {"default": {"bandwidth": "50 Gbps", "rtt": "1 ms", "transport": "lossless"}},
    },
    "plan": {"sharding": "zero1", "pp": 4, "reduce_dtype": "bf16", "micro_batch": 1},
    "run": {"seq_len": 2048, "global_batch": 256},
}


def asked(**plan):
    """Four islands, by a plan."""
    made = copy.deepcopy(TWO)
    made["plan"] |= plan
    return made


def exposed(**plan) -> float:
    """What shows of the gradients between them."""
    return float(shardmeter.predict(asked(**plan)).to_dict()["sync"]["exposed_s"])


def test_breadth_first_hides_what_the_last_backward_does_not() -> None:
    plain = exposed(schedule="1f1b")
    more = [exposed(schedule="interleaved-bf", virtual_stages=chunks) for chunks in (2, 4)]
    assert more[1] < more[0] < plain


def test_gradients_that_leave_at_the_end_show_whole() -> None:
    for plan in ({}, {"schedule": "interleaved", "virtual_stages": 2}, {"pp": 1}):
        answer = shardmeter.predict(asked(**plan, sync={"release": "end"})).to_dict()["sync"]
        assert answer["exposed_s"] == pytest.approx(answer["crossings"][0]["seconds"])
        assert exposed(**plan) < answer["exposed_s"]


def test_only_a_method_with_gradients_reads_when_they_leave() -> None:
    with pytest.raises(BadScenario, match="release = end, but diloco does not read it"):
        shardmeter.predict(asked(sync={"method": "diloco", "release": "end"}))
    with pytest.raises(BadScenario, match=r"plan\.sync\.release.*one of layers, end"):
        shardmeter.predict(asked(sync={"release": "late"}))


def test_one_stage_leaves_as_ever_and_two_copies_at_the_end() -> None:
    """A stage's own last backward hides all but its last layer; copies of a model add their gradients up first."""
    scenario = shardmeter.load(asked(pp=1))
    own = scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack
    one = evaluate(*own, meets=True).ends
    train = one.leaving[0]
    assert (train.left, train.pieces, train.share, train.due) == (0.0, 16.0, 1.0, 0.0)
    for seconds in (0.001, 0.1, 3.0):
        pace = Pace(step=1.0, tokens=1.0, leaving=(one.leaving,))
        assert released(seconds, pace) == max(seconds / 16.0, seconds - 15.0 * (train.window / 16.0))
    answer = shardmeter.predict(asked(schedule="dualpipe")).to_dict()["sync"]
    assert answer["exposed_s"] == pytest.approx(answer["crossings"][0]["seconds"])


def test_how_a_step_ends_is_not_asked_of_an_island_alone() -> None:
    """It costs a tenth of an evaluation, and changes nothing else."""
    scenario = shardmeter.load(asked(pp=4))
    own = scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack
    asked_for = evaluate(*own, meets=True)
    assert evaluate(*own).ends.leaving == ()
    assert changed(asked_for, ends=changed(asked_for.ends, leaving=())) == evaluate(*own)
    with pytest.raises(ValueError, match="meets=True"):
        lines_of(evaluate(*own).ends, 1.0)


def test_every_island_of_a_pipeline_sends_its_own_stages() -> None:
    made = asked(pp=1, placement={"pp": [["a", "a", "b"], ["c", "c", "d"]]})
    del made["plan"]["pp"]
    for at in (0, 2):
        made["fleet"]["islands"][at]["gpus"] = "16xH100-SXM5-80GB"
    made["run"]["global_batch"] = 240
    found = shardmeter.predict(made).whole
    own = [part.estimate.ends for part in found.parts]
    assert [one.stages for one in own] == [2, 1, 2, 1]
    assert [sum(float(train.share) for train in one.leaving) for one in own] == pytest.approx([1.0] * 4)
    first, second = (min(float(train.left) for train in one.leaving) for one in own[:2])
    assert first == 0.0 < second
    caused = [float(np.sum(np.asarray(found.priced[0].caused)[..., island])) for island in range(4)]
    assert caused[0] == caused[2] == pytest.approx(2.0 * caused[1])
