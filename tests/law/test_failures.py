"""Laws of runs that are interrupted: seconds sum, more reliable is never slower, the interval is the best, the drawn courses agree."""

from __future__ import annotations

import heapq
import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.engine import course
from shardmeter.engine.course import Course, Member, Strikes, Writing, fold, fold_elastic
from shardmeter.engine.timeline.course import Islands, Machine, present, seconds
from shardmeter.physics import failures
from shardmeter.specs import Checkpoint, Failures
from shardmeter.study.course import hours

HOUR = 3600.0


def drawn(rng: random.Random, low: float, high: float) -> float:
    """Log-uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def machines(count: int) -> list[Machine]:
    """Machines that fail every few minutes to every few days, blocking and not, on the spot market and not."""
    rng, made = random.Random(7), []
    for at in range(count):
        losing = drawn(rng, 0.5 * HOUR, 100.0 * HOUR)
        write = drawn(rng, 1.0, 0.05 * losing)
        made.append(
            Machine(
                interval=max(drawn(rng, 0.02, 0.5) * losing, write),
                write=write,
                blocking=at % 3 != 2,
                losing=losing if at % 4 != 3 else math.inf,
                announced=drawn(rng, 0.5 * HOUR, 50.0 * HOUR) if at % 2 else math.inf,
                restart=drawn(rng, 1.0, 0.1 * losing),
                wait=drawn(rng, 1.0, HOUR) if at % 2 else 0.0,
            )
        )
    return made


def of(machine: Any, work: float, pause: float = 0.0) -> Course:
    """The fold of a machine."""
    shown = machine.write if machine.blocking else 0.0
    writing = Writing(interval=machine.interval, write=machine.write, shown=shown)
    strikes = Strikes(
        losing=1.0 / machine.losing, announced=1.0 / machine.announced, restart=machine.restart, wait=machine.wait
    )
    return fold(work, pause, writing, strikes)


@pytest.mark.parametrize("at", range(12))
def test_drawn_courses_last_as_long_as_the_fold_says(at):
    machine = machines(12)[at]
    work = 400.0 * machine.interval
    assert of(machine, work).seconds == pytest.approx(seconds(machine, work, 40, seed=at), rel=0.02)


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("at", range(4))
def test_drawn_islands_miss_what_the_fold_says(at, joins):
    rng = random.Random(at)
    cells = rng.randint(2, 5)
    weights = [rng.random() for _ in range(cells)]
    weights = [one / sum(weights) for one in weights]
    islands = Islands(
        round_=drawn(rng, 60.0, HOUR),
        weights=tuple(weights),
        mtbf=tuple(drawn(rng, 2.0 * HOUR, 50.0 * HOUR) for _ in range(cells)),
        restart=drawn(rng, 60.0, 600.0),
        wait=drawn(rng, 60.0, HOUR),
        joins=joins,
    )
    made = elastic(islands)
    assert made.productive / made.seconds == pytest.approx(present(islands, 50_000.0 * HOUR, seed=at), rel=0.02)


def elastic(islands: Islands) -> Course:
    """The fold of islands that go on without one another."""
    members = [
        Member(weight=weight, strikes=Strikes(losing=1.0 / mtbf, restart=islands.restart, wait=islands.wait))
        for weight, mtbf in zip(islands.weights, islands.mtbf, strict=True)
    ]
    work = 1000.0 * HOUR
    return fold_elastic(work, 0.0, Writing(interval=work), members, islands.round_, joins=islands.joins)


@pytest.mark.parametrize("at", range(12))
def test_seconds_sum_and_none_is_negative(at):
    made = of(machines(12)[at], 1e6, pause=1e4)
    assert made.seconds == pytest.approx(sum(seconds for _, seconds in made.terms), rel=1e-12)
    assert all(seconds >= 0.0 for _, seconds in made.terms)
    assert 0.0 < made.goodput <= 1.0


def test_without_preemptions_it_is_dalys_formula():
    mtbf, write, restart, interval, work = 20.0 * HOUR, 120.0, 900.0, 2.0 * HOUR, 500.0 * HOUR
    made = of(Machine(interval=interval, write=write, losing=mtbf, restart=restart), work)
    assert made.seconds == pytest.approx(failures.interrupted_time(work, interval, write, restart, mtbf), rel=1e-12)


def test_what_never_fails_only_writes():
    made = of(Machine(interval=HOUR, write=36.0), 100.0 * HOUR)
    assert made.seconds == pytest.approx(101.0 * HOUR, rel=1e-12)
    assert (made.lost, made.restarts, made.waits, made.strikes) == (0.0, 0.0, 0.0, 0.0)
    nearly = of(Machine(interval=HOUR, write=36.0, losing=1e13, restart=900.0), 100.0 * HOUR)
    assert nearly.seconds == pytest.approx(made.seconds, rel=1e-6)


def test_more_reliable_is_never_slower():
    mtbf = np.geomspace(HOUR, 1e4 * HOUR, 60)
    writing = course.writing_of(None, 0.0, 1.0, 1e5, 0.0)
    for one in (writing, Writing(interval=1800.0, write=60.0, shown=60.0), Writing(interval=1800.0, write=60.0)):
        whole = fold(1e5, 0.0, one, Strikes(losing=1.0 / mtbf, announced=0.3 / mtbf, restart=600.0, wait=300.0))
        assert np.all(np.diff(whole.seconds) < 0.0)
    for joins in (True, False):
        members = [Member(weight=0.5, strikes=Strikes(losing=1.0 / mtbf, restart=600.0))] * 2
        whole = fold_elastic(1e6, 0.0, writing, members, 1800.0, joins=joins)
        assert np.all(np.diff(whole.seconds) < 0.0)


def test_dalys_interval_loses_the_least():
    for write, mtbf in ((10.0, HOUR), (60.0, 3.0 * HOUR), (600.0, 24.0 * HOUR), (1800.0, 5.0 * HOUR)):
        best = float(failures.daly_interval(write, mtbf))
        around = best * np.geomspace(0.2, 5.0, 401)
        times = failures.interrupted_time(1e7, around, write, 300.0, mtbf)
        assert failures.interrupted_time(1e7, best, write, 300.0, mtbf) <= 1.002 * np.min(times)
    assert failures.daly_interval(1.0, 1e9) == pytest.approx(failures.young_interval(1.0, 1e9), rel=1e-3)
    assert failures.daly_interval(3.0, 1.0) == 1.0


PLAIN: Any = SimpleNamespace(failures=None)
"""A run that nothing but preemption interrupts."""


def drawn_fleet(
    nodes: int, stays: float, wait: float, restart: float, lasts: float, round_: float = 0.0
) -> tuple[float, float]:
    """(share of the time in which all nodes are there and started, interruptions for each second of it), drawn event by event: every node
    comes and goes on its own, whether the others are there or not. Of time in rounds only whole ones count."""
    rng = random.Random(nodes)
    events = [(rng.expovariate(1.0 / stays), at, "goes") for at in range(nodes)]
    heapq.heapify(events)
    away, good, since, now, interrupted = 0, 0.0, 0.0, 0.0, 0
    while now < lasts:
        now, at, what = heapq.heappop(events)
        if away == 0:
            begins = since + restart if round_ == 0.0 else math.ceil((since + restart) / round_) * round_
            good += max(now - begins, 0.0) if round_ == 0.0 else max((now - begins) // round_, 0.0) * round_
            interrupted += 1
        away += 1 if what == "goes" else -1
        since = now
        later = wait if what == "goes" else rng.expovariate(1.0 / stays)
        heapq.heappush(events, (now + later, at, "comes" if what == "goes" else "goes"))
    return good / now, interrupted / good


@pytest.mark.parametrize(
    ("nodes", "stays", "wait"), [(1, 3.34, 1.85), (4, 12.0, 1.85), (8, 25.8, 0.301), (16, 12.0, 1.85)]
)
def test_machines_that_are_taken_while_others_are_missed_are_waited_for_too(nodes, stays, wait):
    """A node stays for so many hours and is away for others; a fleet stops until all are back, and then restarts."""
    cause = Failures(
        name="spot", mtbf=stays * HOUR, per="node", detect=0.0, restart=300.0, wait=wait * HOUR, notice=60.0
    )
    island: Any = SimpleNamespace(preemption=cause, nodes=float(nodes), gpus=8.0 * nodes)
    made = fold(1e6, 0.0, Writing(interval=1e6), course.strikes_of(PLAIN, [island], 0.0))
    share, often = drawn_fleet(nodes, stays * HOUR, wait * HOUR, 300.0, 5e4 * HOUR)
    assert made.goodput == pytest.approx(share, rel=0.03)
    assert made.strikes / made.productive == pytest.approx(often, rel=0.03)
    upper = (1.0 + cause.wait / cause.mtbf) ** -nodes
    assert made.goodput < upper
    assert failures.complete_share(float(nodes), cause.mtbf, cause.wait) == pytest.approx(upper)


@pytest.mark.parametrize(
    ("nodes", "stays", "wait", "minutes"), [(1, 12.0, 1.85, 20.0), (4, 12.0, 1.85, 20.0), (8, 12.0, 1.85, 50.0), (4, 12.0, 0.08, 5.0)]
)  # fmt: skip
def test_an_island_of_many_nodes_that_joins_when_a_round_begins(nodes, stays, wait, minutes):
    """It fails while it waits for the round, too, and what it is away for varies: only the mean matters."""
    cause = Failures(name="spot", mtbf=stays * HOUR, per="node", detect=0.0, restart=300.0, wait=wait * HOUR)
    island: Any = SimpleNamespace(preemption=cause, nodes=float(nodes), gpus=8.0 * nodes)
    strikes, round_ = course.strikes_of(PLAIN, [island], 0.0), 60.0 * minutes
    writing = Writing(interval=1e6)
    made = fold_elastic(1e6, 0.0, writing, [Member(weight=1.0, strikes=strikes)], round_, joins=True)
    share, _ = drawn_fleet(nodes, stays * HOUR, wait * HOUR, 300.0, 1e5 * HOUR, round_)
    assert made.goodput == pytest.approx(share, rel=0.03)
    assert all(seconds >= 0.0 for _, seconds in made.terms)


def test_an_array_is_its_elements_bit_for_bit():
    made = [one for one in machines(12) if one.blocking]
    fields = ("interval", "write", "losing", "announced", "restart", "wait")
    arrays = {name: np.array([getattr(one, name) for one in made]) for name in fields}
    whole = of(SimpleNamespace(blocking=True, **arrays), 1e6)
    for at, one in enumerate(made):
        alone = of(one, 1e6)
        for name in ("checkpoints", "lost", "restarts", "waits", "strikes"):
            assert float(getattr(whole, name)[at]) == float(getattr(alone, name))


def test_islands_that_meet_lose_at_most_a_round_of_one():
    mtbf, round_ = 30.0 * HOUR, HOUR
    islands = Islands(round_=round_, weights=(0.25,) * 4, mtbf=(mtbf,) * 4, restart=0.0)
    made = elastic(islands)
    failures_of_one = made.strikes / 4.0
    assert made.lost + made.joins <= failures_of_one * round_ * 1.0001
    striking = (
        math.expm1(round_ / mtbf) / math.exp(round_ / mtbf) / (round_ / mtbf)
    )  # not while it waits for the next round
    assert made.lost + made.joins == pytest.approx(failures_of_one * round_ * striking, rel=1e-6)


def test_elastic_islands_beat_those_that_stop_together():
    mtbf, work = 10.0 * HOUR, 1000.0 * HOUR
    islands = Islands(round_=0.5 * HOUR, weights=(0.125,) * 8, mtbf=(mtbf,) * 8, restart=900.0)
    together = of(Machine(interval=0.5 * HOUR, losing=mtbf / 8.0, restart=900.0), work)
    assert elastic(islands).seconds < together.seconds


ONE = [{"name": "a", "instance": "p5.48xlarge", "nodes": 2}]
TWO = [*ONE, {"name": "b", "accelerator": "A100-SXM4-80GB", "nodes": 8, "price": "$1.80/gpu/h"}]
APART = {
    "fleet": {"islands": TWO, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "egress": "$0.02/GB"}}},
    "plan": {"sharding": "fsdp", "recompute": "full", "sync": {"method": "branch_train_merge"}},
}
TOGETHER = {"fleet": {"islands": ONE}, "plan": {"sharding": "fsdp", "recompute": "full"}}


@pytest.mark.parametrize("interrupted", [{}, {"failures": {"mtbf": "2000 h", "per": "gpu"}}], ids=["not", "failures"])
@pytest.mark.parametrize("asked", [TOGETHER, APART], ids=["together", "apart"])
def test_phases_last_as_long_as_the_run_whatever_interrupts_it(asked, interrupted):
    phases = [{"tokens": "5B", "global_batch": 128}, {"tokens": "5B", "global_batch": 1024}]
    made = {"model": "llama-3.1-8b", **asked, "run": {"seq_len": 4096, "phases": phases, **interrupted}}
    run = shardmeter.predict(made).to_dict()["run"]
    assert run["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in run["phases"]), rel=1e-12)
    if interrupted:
        assert run["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in run["hours"]), rel=1e-12)
    if asked is APART:
        priced = sum(one["usd"] for one in run["cost_terms"] if one["term"].startswith("accelerators"))
        assert priced <= run["gpu_hours"] * max(1.8, 55.04 / 8.0)
        assert run["gpu_hours"] <= run["wall_clock_s"] / 3600.0 * 80.0


def test_an_island_that_is_done_with_a_phase_does_not_wait_for_the_others():
    """The wall clock is that of the island which is done last with all phases, not that of the slowest of each phase."""
    course_ = {"a": (3.0, 1.0), "b": (1.0, 2.0)}
    legs: Any = [(at, 1.0) for at in (0, 1)]

    def courses(at: int, _: float) -> tuple[Course, ...]:
        return tuple(Course(productive=own[at]) for own in course_.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hours, "courses", courses)
        assert [one.seconds for one in hours.slowest(legs)] == [3.0, 1.0]


@pytest.mark.parametrize("write", [1.0, 14.0, 900.0, 20000.0])
def test_checkpoints_that_nobody_waits_for_leave_the_store_time(write):
    behind = Checkpoint(size=1.0, blocking=False)
    mtbf = np.geomspace(HOUR, 1e4 * HOUR, 9)
    made = course.writing_of(behind, write, 0.5, 1e9, 1.0 / mtbf)
    own = failures.daly_interval(write, mtbf)
    assert np.all(made.interval >= write)
    assert np.all(made.interval <= np.maximum(write, np.minimum(own, write / course.BUSY)) * (1.0 + 1e-9))
    rare = course.writing_of(behind, write, 0.5, 1e9, 1e-12)
    assert write / rare.interval == pytest.approx(course.BUSY)
