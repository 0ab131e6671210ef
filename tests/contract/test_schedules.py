"""Every schedule in its package: idle time and micro-batches in flight. A new file is tested without a new test."""

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
from shardmeter.schedules import MODULES, names, schedule

FOUND = tuple(
    importlib.import_module(f"{shardmeter.schedules.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shardmeter.schedules.__path__)
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
    assert inspect.getdoc(module.idle)
    assert inspect.getdoc(module.in_flight)


@every_schedule
@given(pp=stages, virtual=chunks)
def test_idle_is_a_share_and_more_chunks_never_idle_longer(module: ModuleType, pp: int, virtual: int) -> None:
    assert 0.0 <= module.idle(pp, virtual + 1) <= module.idle(pp, virtual) <= 1.0


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
