"""Every schedule in its package: makespan, turns, micro-batches in flight. A new file is tested without a new test."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import typing
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardmeter.schedules
from shardmeter.engine.timeline.pipeline import program
from shardmeter.engine.timeline.simulate import simulate
from shardmeter.scenario.schema import PlanInput
from shardmeter.schedules import MODULES, Slot, Traits, names, owed, schedule, turns_of

FOUND = tuple(
    importlib.import_module(f"{shardmeter.schedules.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shardmeter.schedules.__path__)
    if not found.name.startswith("_")
)
every_schedule = pytest.mark.parametrize("module", FOUND, ids=lambda module: module.__name__.rpartition(".")[2])
Case = tuple[int, int, int]


@st.composite
def cases(draw: st.DrawFn, traits: Traits, most: int = 16) -> Case:
    """(pp, micro-batches, virtual stages) that a schedule is made for."""
    pp = draw(st.integers(1, most // 2)) * 2 if traits.even else draw(st.integers(2, most))
    chunks = draw(st.integers(traits.least_chunks, traits.most_chunks or 4))
    passes = draw(st.integers(max(1, int(traits.rounds * pp)), 5 * pp))
    if traits.groups:
        passes = pp * max(passes // pp, 1)
    return pp, passes + passes % 2 if traits.even else passes, chunks


def alike(pp: int, weight: typing.Any = 1.0) -> list[Slot]:
    return [Slot(first=0, count=pp, forward=1.0, input_grad=1.0, weight_grad=weight)]


def test_every_file_has_a_word_and_every_word_a_file() -> None:
    files = {module.__name__.rpartition(".")[2] for module in FOUND}
    assert set(MODULES.values()) == files
    assert {schedule(word) for word in names()} == set(FOUND)


def test_a_scenario_may_say_every_word() -> None:
    said = repr(typing.get_type_hints(PlanInput, include_extras=True)["schedule"]) + repr(
        PlanInput.model_json_schema()["properties"]["schedule"]
    )
    assert all(f"'{word}'" in said for word in names())


@every_schedule
def test_it_is_documented_and_cited(module: ModuleType) -> None:
    assert re.search(r"[A-Z][a-zA-Z-]+ (19|20)\d\d", inspect.getdoc(module) or "")
    assert "Leaves out" in (inspect.getdoc(module.makespan) or "") or "Exact" in (inspect.getdoc(module.makespan) or "")
    assert inspect.getdoc(module.order)
    assert inspect.getdoc(module.in_flight)


@every_schedule
@given(data=st.data())
@settings(deadline=None)
def test_a_step_takes_all_slots_and_at_most_one_after_the_other(module: ModuleType, data: st.DataObject) -> None:
    pp, passes, chunks = data.draw(cases(module.TRAITS, 32))
    time = float(module.makespan(alike(pp), float(passes), chunks, 0.0))
    assert passes * 3.0 * (1 - 1e-12) <= time <= (passes + pp - 1) * 3.0 * (1 + 1e-12)
    assert float(module.makespan(alike(pp), float(passes), chunks, 0.5)) >= time


@every_schedule
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_every_turn_is_taken_once(module: ModuleType, data: st.DataObject) -> None:
    pp, passes, chunks = data.draw(cases(module.TRAITS))
    for turns in turns_of(module, alike(pp), passes, chunks, 0.0):
        done = [(op.micro_batch, op.chunk) for op in turns if op.kind == "forward"]
        undone = [(op.micro_batch, op.chunk) for op in turns if op.kind in ("backward", "input_grad")]
        parted = sorted((op.micro_batch, op.chunk) for op in turns if op.kind == "input_grad")
        weights = sorted((op.micro_batch, op.chunk) for op in turns if op.kind == "weight_grad")
        assert len(set(done)) == len(done)
        assert sorted(done) == sorted(undone)
        assert parted == weights
        assert bool(parted) <= module.TRAITS.split
        assert {micro_batch for micro_batch, _ in done} == set(range(passes))


@every_schedule
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_stage_holds_more_than_it_says(module: ModuleType, data: st.DataObject) -> None:
    """Counted along its own turns, in whole stages, with a weight gradient that waits as a whole micro-batch."""
    pp, passes, chunks = data.draw(cases(module.TRAITS))
    own = float(chunks)
    for position, turns in enumerate(turns_of(module, alike(pp), passes, chunks, 0.0)):
        said = module.in_flight(position, pp, float(passes), chunks) + owed(module, position, pp, float(passes), chunks)
        held = most = 0.0
        for op in turns:
            held += {"forward": 1.0, "backward": -1.0, "input_grad": 0.0, "weight_grad": -1.0}[op.kind] / own
            most = max(most, held)
        assert most <= said + 1e-9
        assert said <= passes


@every_schedule
@given(data=st.data())
def test_in_flight_falls_towards_the_end_and_grows_with_micro_batches(module: ModuleType, data: st.DataObject) -> None:
    pp, passes, chunks = data.draw(cases(module.TRAITS, 64))
    held = [float(module.in_flight(position, pp, float(passes), chunks)) for position in range(pp)]
    assert all(0.0 < one <= passes for one in held)
    assert held == sorted(held, reverse=True)
    more = [float(module.in_flight(position, pp, passes + 1.0, chunks)) for position in range(pp)]
    assert all(one <= other for one, other in zip(held, more, strict=True))


@every_schedule
def test_numbers_may_be_arrays(module: ModuleType) -> None:
    traits = module.TRAITS
    chunks = traits.least_chunks
    counts = np.array([8.0, 12.0, 64.0])
    hops, weights = np.array([0.0, 0.1, 0.3]), np.array([0.5, 1.0, 2.0])
    held = np.broadcast_to(module.in_flight(1, 4, counts, chunks), (3,))
    assert [float(one) for one in held] == [float(module.in_flight(1, 4, float(m), chunks)) for m in counts]
    together = module.makespan([*alike(3, weights), *_last(weights)], counts, chunks, hops)
    for i in range(3):
        slots = [*alike(3, float(weights[i])), *_last(float(weights[i]))]
        assert together[i] == module.makespan(slots, float(counts[i]), chunks, float(hops[i]))


def _last(weight: typing.Any) -> list[Slot]:
    return [Slot(first=3, count=1, forward=1.2, input_grad=1.3 * weight, weight_grad=weight)]


@every_schedule
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_nothing_faster_makes_a_step_slower(module: ModuleType, data: st.DataObject) -> None:
    """But for a hair in zb-v: a device that begins later may have a shorter span, which is what its step is said to take."""
    hair = 0.01 if module.TRAITS.own_clock and module.TRAITS.route == "vee" else 1e-12
    pp, passes, chunks = data.draw(cases(module.TRAITS, 8))
    times = data.draw(st.lists(st.floats(0.75, 1.25), min_size=3 * pp, max_size=3 * pp))
    at = data.draw(st.integers(0, 3 * pp - 1))

    def of(seconds: list[float]) -> float:
        slots = [
            Slot(first=i, count=1, forward=f, input_grad=b, weight_grad=w)
            for i, (f, b, w) in enumerate(zip(seconds[:pp], seconds[pp : 2 * pp], seconds[2 * pp :], strict=True))
        ]
        return float(module.makespan(slots, float(passes), chunks, 0.1))

    slower = [*times[:at], times[at] * 1.2, *times[at + 1 :]]
    assert of(slower) >= of(times) * (1 - hair)


@every_schedule
def test_runs_of_equal_stages_are_the_stages_one_by_one(module: ModuleType) -> None:
    """Only the ends of a run are looked at; between them a stage that stalls a window more or less may be a little later."""
    apart = [Slot(first=i, count=1, forward=1.0, input_grad=1.1, weight_grad=0.9) for i in range(6)]
    run = [Slot(first=0, count=6, forward=1.0, input_grad=1.1, weight_grad=0.9)]
    chunks = module.TRAITS.least_chunks
    for hop in (0.0, 0.1):
        assert float(module.makespan(apart, 24.0, chunks, hop)) == pytest.approx(
            float(module.makespan(run, 24.0, chunks, hop)), rel=5e-3
        )


def test_an_order_that_cannot_run_is_refused() -> None:
    turns = turns_of(schedule("1f1b"), alike(2), 2, 1, 0.0)
    with pytest.raises(ValueError, match="never became ready"):
        simulate(program(Traits(), alike(1) * 2, [turns[0][::-1], turns[1]], 1, 0.0))
