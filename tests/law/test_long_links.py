"""Pipelines over unlike, long links: the closed form and the recurrence against the timeline, and what must hold for any."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.engine.timeline.pipeline import duration
from shardmeter.schedules import Boundary, Slot, _long, schedule

PLANS = 240
SCHEDULES = ("gpipe", "1f1b")


def drawn(r: random.Random) -> tuple[list[Slot], int, tuple[Boundary, ...]]:
    """Stages like or unlike, micro-batches fewer or more than stages, wires and delays from nothing to ten forwards."""
    pp = r.randint(2, 9)
    like = r.random() < 0.5
    slots = [
        Slot(
            first=at, count=1, forward=1.0 if like else r.uniform(0.5, 2.0), input_grad=1.0 if like else r.uniform(0.5, 3.0),
            weight_grad=1.0, ending=r.choice([0.0, r.uniform(0.0, 5.0)]),
        )
        for at in range(pp)
    ]  # fmt: skip
    hop = tuple(
        Boundary(wire=r.choice([0.0, r.uniform(0.0, 10.0)]), delay=r.choice([0.0, r.uniform(0.0, 10.0)]))
        for _ in range(pp - 1)
    )
    return slots, r.randint(1, 30), hop


@pytest.mark.parametrize("name", SCHEDULES)
def test_long_links_agree_with_the_timeline(name: str) -> None:
    r = random.Random(name)
    for _ in range(PLANS):
        slots, micro_batches, hop = drawn(r)
        found = schedule(name).makespan(slots, micro_batches, 1, hop)
        assert found == pytest.approx(duration(name, slots, micro_batches, 1, hop), rel=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("wire", [0.0, 0.3, 4.0])
def test_equal_boundaries_are_one_hop(name: str, wire: float) -> None:
    slot = Slot(first=0, count=5, forward=1.0, input_grad=1.5, weight_grad=0.5)
    for micro_batches in (1, 3, 5, 24):
        long = schedule(name).makespan([slot], micro_batches, 1, (Boundary(wire=wire),) * 4)
        assert long == pytest.approx(schedule(name).makespan([slot], micro_batches, 1, wire), rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_gpipe_pays_a_delay_once_each_way_and_1f1b_every_round_trip(name: str) -> None:
    slot = Slot(first=0, count=4, forward=1.0, input_grad=1.0, weight_grad=1.0)
    near = schedule(name).makespan([slot], 41, 1, (Boundary(wire=0.5),) * 3)
    far = schedule(name).makespan([slot], 41, 1, (Boundary(wire=0.5, delay=7.0),) * 3)
    assert far - near >= 3 * 2 * 7.0 * (1.0 - 1e-12)
    if name == "gpipe":
        assert far - near == pytest.approx(3 * 2 * 7.0)
    else:  # four stages hold four micro-batches: a round trip through three boundaries for every four
        assert (far - near) / 41 == pytest.approx(3 * 2 * 7.0 / 4, rel=0.1)


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("buffered", [0.0, 1.0, math.inf])
def test_a_faster_or_nearer_link_is_never_slower(serial: bool, buffered: float) -> None:
    r = random.Random(7)
    for _ in range(40):
        slots, micro_batches, hop = drawn(r)
        at = r.randrange(len(hop))
        hop = tuple(changed(one, buffered=buffered) for one in hop)
        better = list(hop)
        better[at] = changed(hop[at], wire=hop[at].wire * r.random(), delay=hop[at].delay * r.random())
        before = _long.one_f_one_b(slots, micro_batches, hop, serial=serial)
        assert _long.one_f_one_b(slots, micro_batches, tuple(better), serial=serial) <= before * (1 + 1e-12)
        assert _long.gpipe(slots, micro_batches, tuple(better)) <= _long.gpipe(slots, micro_batches, hop) * (1 + 1e-12)


def test_waiting_to_send_is_never_faster() -> None:
    r = random.Random(6)
    for _ in range(40):
        slots, micro_batches, hop = drawn(r)
        beside = _long.one_f_one_b(slots, micro_batches, hop)
        assert _long.one_f_one_b(slots, micro_batches, hop, serial=True) >= beside * (1 - 1e-12)
        some, none = (tuple(changed(one, buffered=left) for one in hop) for left in (1.0, 0.0))
        held_up = _long.one_f_one_b(slots, micro_batches, some)
        assert held_up >= beside * (1 - 1e-12)
        assert _long.one_f_one_b(slots, micro_batches, none) >= held_up * (1 - 1e-12)


def test_serial_exchange_costs_a_round_trip_each_micro_batch() -> None:
    slot = Slot(first=0, count=6, forward=1.0, input_grad=1.0, weight_grad=1.0)
    hop = (Boundary(wire=2.0, delay=1.5),) * 5
    steady = _long.one_f_one_b([slot], 36, hop, serial=True) - _long.one_f_one_b([slot], 35, hop, serial=True)
    assert steady == pytest.approx(slot.whole + 2 * 3.5)


def test_no_wire_and_no_delay_is_no_hop() -> None:
    r = random.Random(4)
    for name in SCHEDULES:
        slots, micro_batches, hop = drawn(r)
        slots = [changed(slots[0], first=0, count=len(slots))]
        none = schedule(name).makespan(slots, micro_batches, 1, (Boundary(wire=0.0),) * len(hop))
        assert none == pytest.approx(schedule(name).makespan(slots, micro_batches, 1, 0.0), rel=1e-12)


def test_boundaries_of_equal_stages_may_change_places_under_gpipe() -> None:
    r = random.Random(3)
    slots, micro_batches, hop = drawn(r)
    slots = [changed(slots[0], first=0, count=len(slots), ending=0.0)]
    mixed = list(hop)
    r.shuffle(mixed)
    assert _long.gpipe(slots, micro_batches, tuple(mixed)) == pytest.approx(_long.gpipe(slots, micro_batches, hop))


@pytest.mark.parametrize("name", SCHEDULES)
def test_scalar_equals_vector(name: str) -> None:
    r = random.Random(2)
    slots, _, hop = drawn(r)
    counts, wires = np.array([1.0, 4.0, 9.0, 9.0]), np.array([0.0, 0.5, 3.0, 12.0])
    vector = schedule(name).makespan(slots, counts, 1, tuple(changed(one, wire=wires) for one in hop))
    for at in range(4):
        alone = schedule(name).makespan(
            slots, float(counts[at]), 1, tuple(changed(one, wire=float(wires[at])) for one in hop)
        )
        assert vector[at] == alone


def test_a_boundary_too_few_is_refused() -> None:
    slot = Slot(first=0, count=4, forward=1.0, input_grad=1.0, weight_grad=1.0)
    for name in SCHEDULES:
        with pytest.raises(ValueError, match="4 stages have 3 boundaries, not 2"):
            schedule(name).makespan([slot], 8, 1, (Boundary(wire=1.0),) * 2)


@pytest.mark.parametrize("serial", [False, True])
def test_many_micro_batches_go_on_as_the_first_did(serial: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(9)
    asked = [drawn(r) for _ in range(20)]
    short = [_long.one_f_one_b(slots, 150, hop, serial=serial) for slots, _, hop in asked]
    monkeypatch.setattr(_long, "SETTLED", 200)
    for found, (slots, _, hop) in zip(short, asked, strict=True):
        assert found == pytest.approx(_long.one_f_one_b(slots, 150, hop, serial=serial), rel=5e-3)
