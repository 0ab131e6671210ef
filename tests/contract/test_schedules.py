"""Every schedule in its package: makespan, turns, micro-batches in flight. A new file is tested without a new test."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardmeter.schedules
from shardmeter.schedules import MODULES, Slot, names, schedule

FOUND = tuple(
    importlib.import_module(f"{shardmeter.schedules.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shardmeter.schedules.__path__)
    if not found.name.startswith("_")
)
every_schedule = pytest.mark.parametrize("module", FOUND, ids=lambda module: module.__name__.rpartition(".")[2])
stages, chunks, passes = st.integers(1, 64), st.integers(1, 8), st.integers(1, 256)


def test_every_file_has_a_word_and_every_word_a_file() -> None:
    files = {module.__name__.rpartition(".")[2] for module in FOUND}
    assert set(MODULES.values()) == files
    assert {schedule(word) for word in names()} == set(FOUND)


@every_schedule
def test_it_is_documented_and_cited(module: ModuleType) -> None:
    assert re.search(r"[A-Z][a-z]+ (19|20)\d\d", inspect.getdoc(module) or "")
    assert "Leaves out" in (inspect.getdoc(module.makespan) or "") or "Exact" in (inspect.getdoc(module.makespan) or "")
    assert inspect.getdoc(module.order)
    assert inspect.getdoc(module.in_flight)


@every_schedule
@given(pp=stages, virtual=chunks, micro_batches=passes)
def test_a_step_takes_all_slots_and_at_most_one_after_the_other(
    module: ModuleType, pp: int, virtual: int, micro_batches: int
) -> None:
    slots = [Slot(first=0, count=pp, forward=1.0, input_grad=1.0, weight_grad=1.0)]
    time = float(module.makespan(slots, float(micro_batches), virtual, 0.0))
    assert micro_batches * 3.0 * (1 - 1e-12) <= time <= (micro_batches + pp - 1) * 3.0 * (1 + 1e-12)
    assert float(module.makespan(slots, float(micro_batches), virtual, 0.5)) >= time


@every_schedule
@given(pp=st.integers(1, 8), groups=st.integers(1, 3), virtual=st.integers(1, 3))
def test_every_stage_does_every_micro_batch_once_each_way(
    module: ModuleType, pp: int, groups: int, virtual: int
) -> None:
    for position in range(pp):
        turns = module.order(position, pp, groups * pp, virtual)
        done = [(op.micro_batch, op.chunk) for op in turns if op.kind == "forward"]
        undone = [(op.micro_batch, op.chunk) for op in turns if op.kind in ("backward", "input_grad")]
        assert len(set(done)) == len(done)
        assert sorted(done) == sorted(undone)
        assert {micro_batch for micro_batch, _ in done} == set(range(groups * pp))


@every_schedule
@given(pp=stages, virtual=chunks, micro_batches=passes)
def test_in_flight_is_at_most_all_and_falls_towards_the_end(
    module: ModuleType, pp: int, virtual: int, micro_batches: int
) -> None:
    held = [float(module.in_flight(position, pp, float(micro_batches), virtual)) for position in range(pp)]
    assert all(0.0 < one <= micro_batches for one in held)
    assert held == sorted(held, reverse=True)
    more = [float(module.in_flight(position, pp, micro_batches + 1.0, virtual)) for position in range(pp)]
    assert all(one <= other for one, other in zip(held, more, strict=True))


@every_schedule
def test_micro_batches_may_be_an_array(module: ModuleType) -> None:
    counts = np.array([1.0, 3.0, 64.0])
    together = np.broadcast_to(module.in_flight(1, 4, counts, 2), (3,))
    assert [float(one) for one in together] == [float(module.in_flight(1, 4, float(m), 2)) for m in counts]
