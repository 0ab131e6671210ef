"""Rounds of several cells: closed form against the event run, limits, and what never gets slower."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter import sync
from shardmeter.core.record import changed
from shardmeter.engine.round import Pace, beside, exposure, fold, released
from shardmeter.engine.timeline.islands import gaps, run
from shardmeter.specs import Crossing, Leaving, Replica, Round

STEP = st.floats(0.1, 30.0)


def paces(step: tuple[float, ...], backward: float = 0.0, pieces: float = 1.0) -> list[Pace]:
    return [Pace(step=one, tokens=1.0, leaving=((Leaving(window=backward * one, pieces=pieces),),)) for one in step]


def together(rows: list[Pace]) -> Pace:
    fields = ("step", "tokens", "late", "update")
    numbers = {name: np.array([float(getattr(one, name)) for one in rows]) for name in fields}
    return Pace(leaving=beside([one.leaving for one in rows]), **numbers)


@settings(max_examples=80)
@given(
    st.lists(STEP, min_size=2, max_size=4),
    st.floats(0.0, 40.0),
    st.sampled_from([(1, 1), (4, 1), (6, 2), (12, 4), (12, 12), (30, 5)]),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.3, 0.55]),
)
def test_a_steady_round_is_what_the_timeline_takes(steps, seconds, shape, window, lead):
    period, parts = shape
    crossing = Crossing(label="m", collective="all_reduce", size=1.0, messages=parts, window=window, lead=lead)
    asked = Round(steps=float(period), crossings=(crossing,))
    rows = paces(tuple(steps))
    closed = fold(asked, together(rows), [seconds])
    drawn = run(asked, rows, [seconds], rounds=24)
    assert float(closed.seconds) == pytest.approx(drawn.seconds, rel=1e-6)


@settings(max_examples=60)
@given(STEP, st.floats(0.0, 60.0), st.floats(0.2, 0.7), st.integers(1, 40))
def test_gradients_behind_a_backward_take_what_the_timeline_takes(step, seconds, backward, pieces):
    crossing = Crossing(label="g", collective="all_reduce", size=1.0, behind="backward")
    asked = Round(steps=1.0, crossings=(crossing,))
    rows = paces((step, step / 2), backward, float(pieces))
    closed = fold(asked, together(rows), [seconds])
    assert float(closed.seconds) == pytest.approx(run(asked, rows, [seconds], rounds=4).seconds, rel=1e-9)


def test_the_published_form_of_gradients_behind_a_backward():
    """max(T + C/L, T/3 + 2T/(3L) + C), with a backward of two thirds of the step (Douillard 2025, simulator)."""
    for work in (0.0, 0.01, 0.4, 0.9, 5.0):
        pace = Pace(step=1.0, tokens=1.0, leaving=((Leaving(window=2.0 / 3.0, pieces=24.0),),))
        longer = max(1.0 + work / 24, 1 / 3 + 2 / 3 / 24 + work)
        assert 1.0 + float(released(work, pace)) == pytest.approx(longer)


@given(st.lists(STEP, min_size=2, max_size=5), st.floats(0.1, 20.0))
def test_a_long_period_costs_nothing(steps, seconds):
    crossing = Crossing(label="m", collective="all_reduce", size=1.0)
    pace = together(paces(tuple(steps)))
    costs = [
        float(fold(Round(steps=h, crossings=(crossing,)), pace, [seconds]).seconds) / h - max(steps)
        for h in (1.0, 1e2, 1e4, 1e6)
    ]
    assert all(after < before for before, after in itertools.pairwise(costs))
    assert costs[-1] < 1e-4 * seconds


@given(st.lists(STEP, min_size=1, max_size=5), STEP, st.floats(0.0, 1.0), st.floats(0.01, 10.0))
def test_a_cell_that_meets_the_deadline_never_lowers_the_total(steps, added, tokens, seconds):
    crossing = Crossing(label="f", collective="star", size=1.0, messages=4.0, window=2.0)
    asked = Round(steps=8.0, crossings=(crossing,), pace="deadline")

    def rate(rows: list[float], weights: list[float]) -> tuple[float, np.ndarray]:
        pace = Pace(step=np.array(rows), tokens=np.array(weights))
        found = fold(asked, pace, [np.full(len(rows), seconds)])
        return float(found.tokens / found.seconds), np.asarray(found.counted)

    before, counted = rate(steps, [1.0] * len(steps))
    after, now = rate([*steps, added], [1.0] * len(steps) + [tokens])
    if now.all() and counted.all():
        assert after >= before * (1 - 1e-12)


@given(st.lists(STEP, min_size=4, max_size=9), st.integers(1, 4), st.sampled_from(["barrier", "deadline", "own"]))
def test_a_model_in_parts_has_seen_what_its_last_part_has(steps, parts, pace):
    """Neither a mean over parts nor more than any of them; alike cells in parts of as many copies lose nothing."""
    asked = Round(steps=8.0, pace=pace, parts=float(parts))
    found = fold(asked, together(paces(tuple(steps))), [])
    each = np.asarray(found.steps)
    assert float(found.tokens) == pytest.approx(min(each[part::parts].sum() for part in range(parts)))
    even = fold(asked, together(paces((steps[0],) * (2 * parts))), [])
    assert float(even.tokens) == pytest.approx(16.0)


@given(st.lists(STEP, min_size=2, max_size=5), st.randoms(use_true_random=False), st.floats(0.0, 50.0))
def test_relabelling_cells_changes_nothing(steps, random, seconds):
    crossing = Crossing(label="m", collective="all_reduce", size=1.0, messages=2.0, window=1.0)
    mixed = list(steps)
    random.shuffle(mixed)
    for pace in ("barrier", "deadline", "own"):
        asked = Round(steps=10.0, crossings=(crossing,), pace=pace)
        first, second = (fold(asked, together(paces(tuple(one))), [seconds]) for one in (steps, mixed))
        assert float(first.seconds) == pytest.approx(float(second.seconds), rel=1e-12)
        assert float(first.tokens) == pytest.approx(float(second.tokens), rel=1e-12)


def test_numbers_of_the_plan_broadcast_against_cells():
    periods, seconds = np.array([1.0, 10.0, 100.0]), np.array([[5.0], [1.0]])
    crossing = Crossing(label="m", collective="all_reduce", size=1.0, messages=2.0, window=np.array([0.0, 1.0, 2.0]))
    pace = together(paces((1.0, 2.5)))
    for word in ("barrier", "own", "deadline"):
        asked = Round(steps=periods, crossings=(crossing,), pace=word)
        across = [seconds] if word == "barrier" else [seconds[..., None] * np.ones(2)]
        found = fold(asked, pace, across)
        for row, column in np.ndindex(2, 3):
            alone = changed(crossing, window=float(np.asarray(crossing.window)[column]))
            one = Round(steps=float(periods[column]), crossings=(alone,), pace=word)
            each = float(seconds[row, 0])
            scalar = fold(one, pace, [each] if word == "barrier" else [np.full(2, each)])
            assert float(scalar.seconds) == np.broadcast_to(found.seconds, (2, 3))[row, column]
            assert float(scalar.tokens) == np.broadcast_to(found.tokens, (2, 3))[row, column]


def test_windows_that_overlap_are_counted_once():
    """Four messages a round whose windows span three spacings hide no more than the round has."""
    pace = Pace(step=1.0, tokens=1.0)
    crossing = Crossing(label="m", collective="all_reduce", size=1.0, messages=4.0, window=6.0)
    assert float(exposure(crossing, 8.0, pace, 2.5)) == pytest.approx(4 * 0.5)
    assert math.isclose(float(exposure(crossing, 8.0, pace, 2.0)), 0.0, abs_tol=1e-12)


@pytest.mark.parametrize("pace", ["barrier", "deadline", "own"])
def test_the_outer_update_is_in_the_round(pace):
    """However cells meet, a device that updates takes no step meanwhile."""
    asked = Round(steps=4.0, pace=pace)
    rows = [Pace(step=step, tokens=1.0, update=0.5) for step in (1.0, 1.0, 2.0)]
    found, bare = (fold(asked, together(cells), []) for cells in (rows, [changed(one, update=0.0) for one in rows]))
    assert float(found.seconds) == pytest.approx(float(bare.seconds) + 0.5)
    assert float(found.update) == 0.5
    assert np.all(found.inner + 0.5 * found.exchanges <= found.seconds * (1.0 + 1e-12))


def test_cells_that_wait_for_nobody_exchange_at_their_own_pace():
    """A cell of ten times the step takes at least one between two exchanges, and sends so much less often."""
    message = Crossing(label="m", collective="star", size=1.0)
    rows = [Pace(step=step, tokens=1.0) for step in (1.0, 10.0)]
    found = fold(Round(steps=2.0, crossings=(message,), pace="own"), together(rows), [np.array([5.0, 5.0])])
    assert found.exchanges == pytest.approx([1.0, 7.0 / 15.0])
    assert found.steps == pytest.approx([2.0, 7.0 / 15.0])
    for pace in ("barrier", "deadline"):
        seconds = 5.0 if pace == "barrier" else np.array([5.0, 5.0])
        met = fold(Round(steps=2.0, crossings=(message,), pace=pace), together(rows), [seconds])
        assert np.all(np.equal(met.exchanges, 1.0))


# the methods themselves, task by task

BILLION = Replica(
    parameters=1e9,
    gradient_bytes=2.0,
    layers=24.0,
    cells=4.0,
    matrices=((2048.0, 8192.0, 32.0), (2048.0, 2048.0, 64.0)),
)


def demanded(name: str, cells: float, **fields: float) -> Round:
    """A round of a method, with the seconds of its messages left open."""
    return sync.round_of(changed(BILLION, cells=cells), changed(sync.defaults(name), **fields))


@settings(max_examples=40)
@given(
    st.sampled_from([
        ("powersgd", {}), ("powersgd", {"sync_every": 6.0, "lead": 0.3}), ("dilocox", {"sync_every": 5.0}), ("demo", {}),
        ("demo", {"fragment_sync_delay": 1.0}), ("noloco", {"sync_every": 7.0}), ("dipaco", {"sync_every": 4.0}),
    ]),
    st.lists(STEP, min_size=4, max_size=4),
    st.floats(0.0, 40.0),
    st.floats(0.0, 3.0),
)  # fmt: skip
def test_a_steady_round_of_a_method_is_what_the_timeline_takes(method, steps, seconds, update):
    """Four cells; every group of a crossing takes as long. DiPaCo's levels pass one after the other, each in groups at once. What is
    under way during an outer update hides behind it too, which the closed form leaves out."""
    name, fields = method
    asked = demanded(name, 4.0, **fields)
    rows = [changed(one, update=update) for one in paces(tuple(steps))]
    across = [seconds] * len(asked.crossings)
    closed, drawn = float(fold(asked, together(rows), across).seconds), run(asked, rows, across, rounds=16).seconds
    beyond = update if any(one.window > 0.0 for one in asked.crossings) else 0.0
    assert drawn * (1.0 - 1e-6) <= closed <= (drawn + beyond) * (1.0 + 1e-6)


@settings(max_examples=40)
@given(st.lists(st.floats(0.0, 20.0), min_size=4, max_size=4), STEP)
def test_groups_of_unlike_messages_take_no_longer_than_the_slowest_of_every_level(each, step):
    """2 × 2 paths, level 1 of cells (0, 2) and (1, 3), level 2 of (0, 1) and (2, 3): the closed form adds the slowest group of both
    levels; the timeline has the longest way through one group of each, which meets it where the two share a cell, as here."""
    asked = demanded("dipaco", 4.0, sync_every=3.0)
    first, second = (each[0], each[1], each[0], each[1]), (each[2], each[2], each[3], each[3])
    rows = paces((step,) * 4)
    drawn = run(asked, rows, [first, second], rounds=12)
    closed = fold(asked, together(rows), [max(first), max(second)])
    assert drawn.seconds == pytest.approx(float(closed.seconds), rel=1e-6)


def test_levels_of_paths_share_the_step_that_hides_them():
    """One after the other behind `lead` of one step: no more than that of it is hidden, however many levels there are."""
    told = Replica(parameters=1e9, gradient_bytes=2.0, layers=32.0, cells=16.0)
    for levels in (1, 2, 4):
        asked = sync.round_of(told, changed(sync.defaults("dipaco"), levels=levels, lead=0.5))
        found = fold(asked, together(paces((4.0,) * 16)), [3.0] * levels)
        assert sum(float(one) for one in found.hidden) == pytest.approx(2.0)
        assert sum(float(one) for one in found.exposed) == pytest.approx(3.0 * levels - 2.0)


def test_one_level_of_paths_is_a_model_a_cell():
    """Branch-Train-Merge: nothing crosses, and alike cells see as many tokens in the same time, the outer update apart."""
    told = Replica(parameters=1e9, gradient_bytes=2.0, layers=32.0, cells=4.0)
    path, branch = (
        sync.round_of(told, changed(sync.defaults(name), levels=1)) for name in ("dipaco", "branch_train_merge")
    )
    assert all(len(group) == 1 for one in path.crossings for group in one.groups)
    assert branch.crossings == ()
    rates = [fold(one, together(paces((4.0,) * 4)), [0.0] * len(one.crossings)) for one in (path, branch)]
    assert rates[0].tokens / rates[0].seconds == pytest.approx(rates[1].tokens / rates[1].seconds)


def test_a_cell_waits_for_the_messages_of_its_own_groups():
    """Levels of 2 × 2 paths: cell 3 hears two of the four streams of the network, and its gaps are theirs."""
    asked = demanded("dipaco", 4.0, sync_every=2.0)
    drawn = run(asked, paces((1.0,) * 4), [(5.0, 1.0, 5.0, 1.0), (2.0, 2.0, 3.0, 3.0)], rounds=2)
    found = gaps(drawn.timeline, 3)
    assert found[0].term == asked.crossings[0].label
    assert (found[0].begin, found[0].end) == (2.0, 3.0)
    assert {one.term for one in found} <= {"wait", *(one.label for one in asked.crossings)}
    assert len([one for one in drawn.timeline.program.streams if one.name == "network"]) == 4
