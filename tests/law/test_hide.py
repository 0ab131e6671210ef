"""The closed forms of *hide* against its scan, and the scan against a walk of the compute clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine.hide import Fold, chain, periodic, scan, slowed, tail, train_stall
from shardmeter.engine.price import Charge
from shardmeter.engine.whole import Released, behind
from shardmeter.scenario.catalog import load_catalog

STACK = load_catalog().stack("titan-compile")

seconds = st.floats(0.0, 10.0)


@given(work=seconds, period=st.floats(0.01, 10.0), pieces=st.integers(1, 12))
def test_tail_is_the_scan_of_equal_transfers_due_at_the_end(work: float, period: float, pieces: int) -> None:
    end = pieces * period
    release = [period * (j + 1) for j in range(pieces)]
    exposed = sum(scan(release, [end] * pieces, [work / pieces] * pieces, ["nic"] * pieces))
    assert tail(work, [(0.0, end, float(pieces), 1.0, 0.0)]) == pytest.approx(exposed, abs=1e-9)


@given(gather=seconds, scatter=seconds, period=st.floats(0.01, 10.0))
def test_train_stall_is_the_scan_per_period(gather: float, scatter: float, period: float) -> None:
    layers = 12
    release = [period * j for j in range(layers) for _ in range(2)]
    deadline = [period * (j + 1) for j in range(layers) for _ in range(2)]
    exposed = scan(release, deadline, [gather, scatter] * layers, ["nic"] * 2 * layers)
    assert train_stall(period, (gather + scatter,)) * layers == pytest.approx(sum(exposed), rel=1e-9, abs=1e-9)


def stalled(works: list[float], spacing: float, window: float) -> list[float]:
    """What a train of messages has stalled after each: one released per spacing, each due a window later."""
    release = [spacing * k for k in range(len(works))]
    exposed = scan(release, [opens + window for opens in release], works, ["wan"] * len(works))
    return [float(total) for total in np.cumsum(np.array(exposed))]


@given(work=seconds, spacing=st.floats(0.05, 5.0), window=st.floats(0.0, 20.0))
@example(work=3.0, spacing=1.0, window=7.5)
@example(work=2.0, spacing=1.0, window=1.0)
@example(work=1.0, spacing=1.0, window=4.0)
def test_periodic_is_the_scan_of_a_long_train(work: float, spacing: float, window: float) -> None:
    count = 40
    total = stalled([work] * count, spacing, window)
    each, ahead = periodic(work, spacing, window), max(window - spacing, 0.0)
    assert total[-1] == pytest.approx(max(count * each - ahead, 0.0), rel=1e-9, abs=1e-9)
    if count // 2 * each > ahead:  # steady by half of it
        assert total[-1] - total[count // 2 - 1] == pytest.approx(count / 2 * each, rel=1e-9, abs=1e-9)


@given(works=st.lists(seconds, min_size=2, max_size=5), spacing=st.floats(0.5, 5.0), windows=st.floats(0.0, 8.0))
@example(works=[4.0, 0.0, 0.0], spacing=1.0, windows=1.0)
@example(works=[4.0, 0.0, 0.0], spacing=1.0, windows=4.0)
def test_unlike_messages_stall_between_their_mean_and_their_sum(
    works: list[float], spacing: float, windows: float
) -> None:
    parts, rounds = len(works), 12
    window = windows * spacing
    total = stalled(works * rounds, spacing, window)[-1]
    mean, most = sum(works) / parts, sum(periodic(work, spacing, window) for work in works)
    ahead = max(window - spacing, 0.0)
    assert rounds * parts * periodic(mean, spacing, window) - ahead - 1e-9 <= total <= rounds * most + 1e-9
    if window <= spacing:
        assert total == pytest.approx(rounds * most, rel=1e-9, abs=1e-9)


@given(
    st.lists(
        st.tuples(seconds, st.floats(0.0, 3.0), st.floats(0.0, 3.0), st.sampled_from(["nic", "scale-up", "wan"])),
        min_size=1,
        max_size=8,
    )
)
def test_scan_agrees_with_a_walk_of_the_clock(cases: list[tuple[float, float, float, str]]) -> None:
    release = sorted(case[0] for case in cases)
    deadline: list[float] = []
    for opens, (_, window, _, _) in zip(release, cases, strict=True):
        deadline.append(max([*deadline[-1:], opens + window]))
    work = [case[2] for case in cases]
    channel = [case[3] for case in cases]
    assert sum(scan(release, deadline, work, channel)) == pytest.approx(
        walk(release, deadline, work, channel), abs=1e-9
    )


def walk(release: list[float], deadline: list[float], work: list[float], channel: list[str]) -> float:
    """Total stall by simulation: advance the compute clock from event to event, serve each channel first come, first served."""
    queues = {name: [k for k in range(len(work)) if channel[k] == name] for name in channel}
    # where a deadline and a later release fall together, compute waits first: what is released there starts after the stall
    events = sorted([(r, k, 0) for k, r in enumerate(release)] + [(d, k, 1) for k, d in enumerate(deadline)])
    clock = position = 0.0
    ready: dict[int, float] = {}
    done: dict[int, float] = {}
    free = dict.fromkeys(queues, 0.0)
    for where, k, kind in events:
        clock, position = clock + where - position, where
        if kind == 0:
            ready[k] = clock
        for name, queue in queues.items():
            while queue and queue[0] in ready:
                head = queue.pop(0)
                free[name] = done[head] = max(ready[head], free[name]) + work[head]
        if kind == 1:
            clock = max(clock, done[k])
    return clock - position


def test_scan_broadcasts() -> None:
    work = np.array([0.5, 2.0, 4.0])
    together = scan([0.0, 1.0], [1.0, 2.0], [work, work], ["nic", "nic"])
    for i, one in enumerate(work):
        alone = scan([0.0, 1.0], [1.0, 2.0], [float(one)] * 2, ["nic", "nic"])
        assert [float(np.asarray(e)[i]) for e in together] == [float(e) for e in alone]


@given(work=seconds, period=st.floats(0.01, 10.0), contention=st.floats(0.0, 1.0))
def test_slowed_compute_beside_communication_lasts_as_long_as_the_longer(
    work: float, period: float, contention: float
) -> None:
    stall = float(train_stall(period, (work,)))
    total = period + stall + float(slowed(contention, work - stall, stall))
    assert total == pytest.approx(max(work, period + contention * work))


def test_a_fold_pays_its_ends_once() -> None:
    assert Fold(prologue=1.0, steady=2.0, epilogue=3.0, idle={}).repeated(5.0) == 14.0


@given(
    groups=st.lists(st.tuples(seconds, st.floats(0.0, 10.0), st.integers(0, 5)), min_size=1, max_size=5),
)
def test_a_chain_is_the_scan_of_unlike_transfers_due_at_the_end(groups: list[tuple[float, float, int]]) -> None:
    release, work, now = [], [], 0.0
    for each, window, count in groups:
        for _ in range(count):
            release.append(now)
            work.append(each)
            now += window
    exposed = sum(scan(release, [now] * len(work), work, ["nic"] * len(work)))
    assert float(chain(groups)) == pytest.approx(exposed, abs=1e-9)


def drawn(sizes: np.random.Generator, scale: float, cases: int) -> Charge:
    """What collectives occupy in many cases: both channels, one or none, one after the other or partly at a time."""
    up, out = (sizes.exponential(scale, cases) * (sizes.random(cases) < 0.7) for _ in range(2))
    return Charge(np.maximum(up, out) + sizes.random(cases) * np.minimum(up, out), up, out)


@pytest.mark.parametrize("idle", [0.0, 1.0])
def test_shorter_computes_never_make_a_train_of_reductions_longer(idle: float) -> None:
    """Whatever the computes occupy of either channel themselves: what slows a compute ends with it."""
    sizes, cases = np.random.default_rng(7), 50_000
    contention, left = sizes.uniform(0.0, 0.6, cases), sizes.random(cases)
    long: list[Released] = []
    short: list[Released] = []
    for count in (2, 1, 3):
        moved, serial = drawn(sizes, 1.0, cases), drawn(sizes, 0.4, cases)
        compute, still = sizes.exponential(1.0, cases), idle * sizes.exponential(1.0, cases)
        for train, window in ((long, compute), (short, compute * left)):
            own = window + serial.seconds + still
            train.append(Released(moved=moved, window=own, serial=serial, count=count, idle=still))
    lasts = []
    for train in (long, short):
        shown = behind(train, changed(STACK, contention=contention), overlap=True)
        lasts.append(shown.cost + sum(group.count * group.window for group in train))
    assert np.all(lasts[1] <= lasts[0] * (1.0 + 1e-12))
