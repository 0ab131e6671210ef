"""Closed forms of the schedules against the timeline that runs their orders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.engine.timeline.pipeline import pipeline
from shardmeter.engine.timeline.simulate import Program, simulate
from shardmeter.schedules import Slot, schedule

time = st.floats(0.5, 2.0)


def run(name: str, slots: list[Slot], micro_batches: int, chunks: int, hop: float) -> float:
    return simulate(pipeline(name, slots, micro_batches, chunks, hop)).makespan


def closed(name: str, slots: list[Slot], micro_batches: int, chunks: int, hop: float) -> float:
    return float(schedule(name).makespan(slots, float(micro_batches), chunks, hop))


def equal(pp: int, forward: float, backward: float) -> list[Slot]:
    return [Slot(first=0, count=pp, forward=forward, input_grad=backward / 2, weight_grad=backward / 2)]


def uneven(times: list[tuple[float, float]]) -> list[Slot]:
    return [Slot(first=i, count=1, forward=f, input_grad=b, weight_grad=b) for i, (f, b) in enumerate(times)]


@given(pp=st.integers(2, 12), micro_batches=st.integers(1, 40), forward=time, backward=time)
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_equal_stages_are_exact(name: str, pp: int, micro_batches: int, forward: float, backward: float) -> None:
    slots = equal(pp, forward, backward)
    exact = run(name, slots, micro_batches, 1, 0.0)
    assert closed(name, slots, micro_batches, 1, 0.0) == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx((micro_batches + pp - 1) * (forward + backward), rel=1e-9)


@given(times=st.lists(st.tuples(time, time), min_size=2, max_size=8), micro_batches=st.integers(1, 24))
@settings(max_examples=100, deadline=None)
def test_gpipe_is_exact_for_unlike_stages(times: list[tuple[float, float]], micro_batches: int) -> None:
    slots = uneven(times)
    assert closed("gpipe", slots, micro_batches, 1, 0.0) == pytest.approx(run("gpipe", slots, micro_batches, 1, 0.0))


@given(
    times=st.lists(st.tuples(st.floats(0.8, 1.25), st.floats(0.8, 1.25)), min_size=2, max_size=8),
    micro_batches=st.integers(1, 32),
    hop=st.sampled_from([0.0, 0.02, 0.1]),
)
@settings(max_examples=150, deadline=None)
def test_one_f_one_b_of_unlike_stages_with_hops(
    times: list[tuple[float, float]], micro_batches: int, hop: float
) -> None:
    slots = uneven(times)
    exact = run("1f1b", slots, micro_batches, 1, hop)
    found = closed("1f1b", slots, micro_batches, 1, hop)
    assert found <= exact * (1 + 1e-9)
    assert found >= exact * 0.97


@given(pp=st.integers(2, 8), groups=st.integers(1, 5), chunks=st.integers(2, 4), forward=time, backward=time)
@settings(max_examples=60, deadline=None)
def test_interleaving_fills_with_chunks(pp: int, groups: int, chunks: int, forward: float, backward: float) -> None:
    slots = equal(pp, forward, backward)
    exact = run("interleaved", slots, groups * pp, chunks, 0.0)
    assert closed("interleaved", slots, groups * pp, chunks, 0.0) == pytest.approx(exact, rel=1e-9)


def test_a_slow_first_or_last_stage_is_exact() -> None:
    for times in ([(1.3, 2.6), *[(1.0, 2.0)] * 7], [*[(1.0, 2.0)] * 7, (1.3, 2.6)]):
        for micro_batches in (1, 4, 8, 16, 64):
            slots = uneven(times)
            assert closed("1f1b", slots, micro_batches, 1, 0.0) == pytest.approx(
                run("1f1b", slots, micro_batches, 1, 0.0)
            )


def test_tasks_that_wait_in_a_circle_are_named() -> None:
    program = Program()
    stream = program.stream("compute", 0)
    first = program.add("first", stream, 1.0)
    second = program.add("second", stream, 1.0)
    program.wait(first, second)
    with pytest.raises(ValueError, match="first"):
        simulate(program)


def test_a_shared_stream_serves_what_is_ready_first() -> None:
    program = Program()
    left, right = program.stream("compute", 0), program.stream("compute", 1)
    nic = program.stream("nic", 0, shared=True)
    late = program.add("late", left, 3.0)
    early = program.add("early", right, 1.0)
    program.add("send late", nic, 1.0, [late])
    program.add("send early", nic, 4.0, [early])
    assert simulate(program).end == (3.0, 1.0, 6.0, 5.0)


def test_four_thousand_tasks_take_milliseconds() -> None:
    from time import perf_counter

    slots = equal(16, 1.0, 2.0)
    program = pipeline("1f1b", slots, 128, 1, 0.0)
    began = perf_counter()
    assert simulate(program).makespan == pytest.approx(429.0)
    assert perf_counter() - began < 0.2
