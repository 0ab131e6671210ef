"""Every collective on every kind of tier: switch, switch that sums, mesh, torus closed and open, tiers one in another."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine.price import Charge, prices
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island, torus
from shardmeter.specs import Island, Plan, Tier, TorusAxis, Transfer

CATALOG = load_catalog()
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
LINK = 50e9
LATENCIES = ("latency", "latency_base", "latency_step", "latency_start")
EVERYTHING = ("ring", "tree", "nvls", "direct")


def axes(*lengths: float, closed: bool) -> tuple[TorusAxis, ...]:
    return tuple(TorusAxis(length=float(length), closed=closed) for length in lengths)


def tier(size: float, **changes: object) -> Tier:
    base = Tier(
        name="t", size=size, bandwidth=400e9, share=0.8, latency=40e-6, latency_base=5e-6, latency_step=2e-6,
        latency_start=10e-6,
    )  # fmt: skip
    return changed(base, **changes)


OUTER = tier(1024.0, bandwidth=25e9, latency=80e-6, latency_base=25e-6, latency_step=4e-6)
KINDS: dict[str, tuple[Tier, ...]] = {
    "switch": (tier(1024.0),),
    "summing switch": (tier(1024.0, reduce_share=1.05),),
    "mesh": (tier(1024.0, pair_bandwidth=64e9),),
    "closed torus": (tier(1024.0, pair_bandwidth=LINK, torus=axes(8, 8, 16, closed=True)),),
    "open torus": (tier(1024.0, pair_bandwidth=LINK, torus=axes(4, 16, 16, closed=False)),),
    "nodes": (tier(8.0), OUTER),
    "meshes": (tier(8.0, pair_bandwidth=64e9), OUTER),
    "slices": (tier(16.0, pair_bandwidth=LINK, torus=axes(4, 4, closed=True)), OUTER),
}
kinds = pytest.mark.parametrize("kind", KINDS)
collectives = pytest.mark.parametrize("collective", COLLECTIVES)
few = settings(max_examples=20, deadline=None)
degrees = st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0])
sizes = st.floats(1e2, 1e10)
choices = st.sampled_from([("ring",), ("ring", "tree", "nvls"), EVERYTHING])


def priced(
    tiers: tuple[Tier, ...], collective: str, size: float, plan: Plan, axis: str = "dp_shard",
    among: tuple[str, ...] = EVERYTHING,
) -> Charge:  # fmt: skip
    device = CATALOG.accelerator("H100-SXM5-80GB")
    island = Island(name="i", accelerator=device, nodes=128.0, gpus_per_node=8.0, tiers=tiers)
    stack = changed(CATALOG.stack("titan-compile"), nic_factor=1.0, scale_up_factor=1.0, collectives=among)
    asked = Transfer(label="x", collective=collective, size=size, axes=(axis,), phase="forward", scope="layer")
    return prices(island, stack, plan, 2.0).transfer(asked)


@kinds
@collectives
@few
@given(inner=degrees, size=sizes, among=choices)
def test_a_group_of_one_moves_nothing(
    kind: str, collective: str, inner: float, size: float, among: tuple[str, ...]
) -> None:
    plan = Plan(tp=inner, dp_shard=1.0)
    found = priced(KINDS[kind], collective, size, plan, among=among)
    assert (found.seconds, found.scale_up, found.fabric) == (0.0, 0.0, 0.0)


@kinds
@collectives
@few
@given(inner=degrees, degree=degrees, size=sizes, among=choices, faster=st.floats(1.0, 10.0))
def test_more_bandwidth_is_never_slower_and_less_latency_neither(
    kind: str, collective: str, inner: float, degree: float, size: float, among: tuple[str, ...], faster: float
) -> None:
    plan = Plan(tp=inner, dp_shard=degree)
    old = priced(KINDS[kind], collective, size, plan, among=among).seconds
    for at, one in enumerate(KINDS[kind]):
        pair = None if one.pair_bandwidth is None else one.pair_bandwidth * faster
        better = [changed(one, bandwidth=one.bandwidth * faster), changed(one, pair_bandwidth=pair)]
        better += [changed(one, **{name: getattr(one, name) / faster}) for name in LATENCIES]
        for new in better:
            tiers = (*KINDS[kind][:at], new, *KINDS[kind][at + 1 :])
            assert priced(tiers, collective, size, plan, among=among).seconds <= old * (1 + 1e-12)


@kinds
@collectives
@few
@given(inner=degrees, degree=degrees, size=sizes)
def test_a_longer_list_of_algorithms_is_never_slower(
    kind: str, collective: str, inner: float, degree: float, size: float
) -> None:
    plan, lists = Plan(tp=inner, dp_shard=degree), (("ring",), ("ring", "tree"), ("ring", "tree", "nvls"), EVERYTHING)
    times = [float(priced(KINDS[kind], collective, size, plan, among=among).seconds) for among in lists]
    assert times == sorted(times, reverse=True)


@kinds
@collectives
@few
@given(degree=degrees, other=degrees, size=sizes, swapped=st.booleans())
def test_what_an_axis_is_called_changes_nothing(
    kind: str, collective: str, degree: float, other: float, size: float, swapped: bool
) -> None:
    order = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
    if swapped:
        order = ("cp", "tp", "dp_replicate", "dp_shard", "pp")
    inner, outer = order[0], order[2]
    plan = Plan(**{inner: other, outer: degree}, rank_order=order)  # type: ignore[arg-type]
    usual = Plan(tp=other, dp_shard=degree)
    assert priced(KINDS[kind], collective, size, plan, outer) == priced(KINDS[kind], collective, size, usual)


@kinds
@few
@given(inner=degrees, degree=degrees, size=st.floats(1e6, 1e10))
def test_nobody_receives_faster_than_its_links_bring_it(kind: str, inner: float, degree: float, size: float) -> None:
    """What a rank must receive, over all it has: bytes that a formula loses on the way would show here."""
    plan, rate = Plan(tp=inner, dp_shard=degree), max(one.bandwidth for one in KINDS[kind])
    for collective, times in (("all_gather", 1.0), ("reduce_scatter", 1.0), ("all_to_all", 1.0), ("all_reduce", 2.0)):
        least = times * size * (1.0 - 1.0 / degree) / rate
        if collective == "all_reduce" and degree > 2.0:
            least /= 2.0  # a switch that sums sends every byte once
        assert priced(KINDS[kind], collective, size, plan).seconds >= least


@kinds
@collectives
@few
@given(inner=st.integers(1, 12), degree=st.integers(2, 12), size=sizes)
def test_groups_that_do_not_tile_a_node(kind: str, collective: str, inner: int, degree: int, size: float) -> None:
    plan = Plan(tp=float(inner), dp_shard=float(degree))
    found = priced(KINDS[kind], collective, size, plan)
    assert math.isfinite(found.seconds)
    assert found.seconds > 0.0
    assert found.seconds <= 2.0 * priced(KINDS[kind], collective, 2.0 * size, plan).seconds
    assert max(found.scale_up, found.fabric) <= found.seconds * (1 + 1e-12)


def busiest(lengths: tuple[int, ...], rings: list[bool], groups: list[list[int]]) -> float:
    """Bytes over the busiest directed link of a torus in an all-to-all of all groups at once, one byte for every pair: along
    one axis after the other, round a ring the shorter way and half each way where both are equal."""
    used: Counter[tuple[object, ...]] = Counter()
    for source, goal in (pair for group in groups for pair in itertools.permutations(group, 2)):
        at, to = coordinates(source, lengths), coordinates(goal, lengths)
        for k, n in enumerate(lengths):
            ahead = (to[k] - at[k]) % n
            ways = {+1: ahead, -1: n - ahead} if rings[k] else {+1 if to[k] > at[k] else -1: abs(to[k] - at[k])}
            ways = {sign: steps for sign, steps in ways.items() if steps == min(ways.values())} if ahead else {}
            for sign, steps in ways.items():
                for step in range(steps):
                    link = (k, *at[:k], (at[k] + sign * step) % n, *at[k + 1 :], sign)
                    used[link] += 1.0 / len(ways)  # type: ignore[assignment]
            at[k] = to[k]
    return max(used.values())


def coordinates(rank: int, lengths: tuple[int, ...]) -> list[int]:
    return [rank // math.prod(lengths[:k]) % n for k, n in enumerate(lengths)]


def closes(places: list[int], length: int) -> bool:
    """Whether members at these places of a closed axis go all round it."""
    return len(places) > 1 and places[-1] - places[0] + (places[1] - places[0]) == length > 2


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("lengths", "inner", "degree"), [
    ((4, 4), 1, 4), ((4, 4), 1, 16), ((4, 4), 4, 4), ((8, 4), 1, 8), ((8, 4), 2, 4), ((4, 8), 1, 32), ((4, 4, 4), 4, 16),
    ((8, 2), 1, 4), ((8, 8), 4, 2),
])  # fmt: skip
def test_an_all_to_all_over_a_torus_takes_as_long_as_its_busiest_link(
    lengths: tuple[int, ...], inner: int, degree: int, closed: bool
) -> None:
    total = math.prod(lengths)
    shape = tuple(TorusAxis(length=float(n), closed=closed and n > 2) for n in lengths)
    only = tier(float(total), bandwidth=1e15, pair_bandwidth=LINK, share=1.0, latency_start=0.0, torus=shape)
    only = changed(only, **dict.fromkeys(LATENCIES, 0.0))
    blocks = [range(first, first + inner * degree) for first in range(0, total, inner * degree)]
    groups = [list(block[offset::inner]) for block in blocks for offset in range(inner)]
    places = [sorted({coordinates(rank, lengths)[k] for rank in groups[0]}) for k in range(len(lengths))]
    rings = [closed and closes(own, n) for own, n in zip(places, lengths, strict=True)]
    most = busiest(lengths, rings, groups)
    size = 1e9
    found = priced((only,), "all_to_all", size, Plan(tp=float(inner), dp_shard=float(degree)))
    assert float(found.seconds) == pytest.approx(most * size / degree / LINK, rel=1e-9)


@pytest.mark.parametrize(("lengths", "closed", "inner", "degree", "links"), [
    ((4, 4), True, 1, 4, 2), ((4, 4), True, 1, 16, 4), ((4, 4, 4), True, 1, 64, 6), ((4, 4), False, 1, 4, 1),
    ((4, 4), False, 1, 16, 2), ((16, 16), True, 1, 4, 1), ((16, 16), True, 4, 4, 0.5), ((16, 16), True, 16, 16, 2),
    ((2, 4), True, 1, 2, 1), ((4, 4), True, 2, 8, 3),
])  # fmt: skip
def test_a_gather_has_the_links_of_the_axes_it_spans(
    lengths: tuple[int, ...], closed: bool, inner: int, degree: int, links: float
) -> None:
    """Both ways round a ring, one way from a line's end; groups that lie between one another share (2 of 4, both ways: one)."""
    shape = tuple(TorusAxis(length=float(n), closed=closed and n > 2) for n in lengths)
    only = tier(float(math.prod(lengths)), bandwidth=1e15, pair_bandwidth=LINK, share=1.0, torus=shape)
    only = changed(only, **dict.fromkeys(LATENCIES, 0.0))
    found = priced((only,), "all_gather", 1e9, Plan(tp=float(inner), dp_shard=float(degree)))
    assert float(found.seconds) == pytest.approx(1e9 * (1.0 - 1.0 / degree) / (links * LINK), rel=1e-9)


def test_a_slice_is_as_even_as_it_can_be_and_closes_where_the_machine_does() -> None:
    def shape(name: str, chips: float) -> list[tuple[float, bool]]:
        return [(float(one.length), one.closed) for one in torus(CATALOG.accelerator(name), chips)]

    assert shape("TPU v5e", 32.0) == [(4.0, False), (8.0, False)]
    assert shape("TPU v5e", 128.0) == [(8.0, False), (16.0, True)]
    assert shape("TPU v4", 16.0) == [(2.0, False), (2.0, False), (4.0, False)]
    assert shape("TPU v5p", 64.0) == [(4.0, True)] * 3
    assert shape("TPU v5p", 8960.0) == [(16.0, True), (20.0, True), (28.0, True)]
    assert shape("Trainium2", 16.0) == [(4.0, True)] * 2
    assert shape("H100-SXM5-80GB", 8.0) == []


@few
@given(ranks=st.integers(2, 8), size=st.floats(1e2, 1e9))
def test_reading_all_others_at_once(ranks: int, size: float) -> None:
    """One step instead of one a rank; whole buffers while that is shorter than a scatter and a gather of parts."""
    plan, only, rate = Plan(dp_shard=float(ranks)), KINDS["switch"], 400e9 * 0.8
    whole = (ranks - 1) * size / rate + 2e-6
    parts = size * (1 - 1 / ranks) / rate + 2e-6
    assert float(priced(only, "all_gather", size, plan).seconds) == pytest.approx(10e-6 + parts)
    assert float(priced(only, "reduce_scatter", size, plan).seconds) == pytest.approx(10e-6 + parts)
    assert float(priced(only, "all_reduce", size, plan).seconds) == pytest.approx(10e-6 + min(whole, 2 * parts))


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_two_groups_that_share_an_adapter_take_as_long_as_one_after_the_other(collective: str) -> None:
    device = changed(CATALOG.accelerator("H100-SXM5-80GB"), scale_up_domain=2.0, node_size=2.0)
    fabric = changed(CATALOG.fabric("ib-ndr400"), latency=0.0, latency_base=0.0, latency_step=0.0)
    stack = CATALOG.stack("titan-compile")
    asked = Transfer(label="x", collective=collective, size=1e9, axes=("dp_shard",), phase="forward", scope="layer")
    seconds = []
    for gpus, plan in ((1.0, Plan(dp_shard=4.0)), (2.0, Plan(tp=2.0, dp_shard=4.0))):
        unit = changed(device, scale_up_domain=gpus)
        island = build_island(accelerator=unit, nodes=4.0, gpus_per_node=gpus, fabric=fabric, nics=1.0)
        island = changed(island, tiers=tuple(changed(one, **dict.fromkeys(LATENCIES, 0.0)) for one in island.tiers))
        seconds.append(float(prices(island, stack, plan, 2.0).transfer(asked).fabric))
    alone, beside_another = seconds
    assert beside_another == pytest.approx(2.0 * alone, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_full_mesh_gives_a_group_the_links_between_its_members(ranks: int) -> None:
    """MI300X: seven links of 64 GB/s. A pair has one, eight have all; an all-to-all sends one part over each."""
    device = CATALOG.accelerator("MI300X")
    island = build_island(accelerator=device, nodes=1.0, gpus_per_node=8.0, fabric=None)
    island = changed(island, tiers=(changed(island.tiers[0], share=1.0, **dict.fromkeys(LATENCIES, 0.0)),))
    charges = {}
    for collective in ("all_gather", "all_to_all"):
        asked = Transfer(label="x", collective=collective, size=8e9, axes=("dp_shard",), phase="forward", scope="layer")
        plan = Plan(dp_shard=float(ranks), dp_replicate=8.0 / ranks)
        charges[collective] = float(prices(island, CATALOG.stack("titan-compile"), plan, 2.0).transfer(asked).seconds)
    part = 8e9 / ranks
    assert charges["all_gather"] == pytest.approx(part / 64e9)
    assert charges["all_to_all"] == pytest.approx(part / 64e9 / 0.87)


@few
@given(ranks=st.sampled_from([2.0, 4.0, 8.0]), size=st.floats(1e6, 1e9))
def test_an_all_to_all_over_both_sockets_of_a_pcie_box_is_slow(ranks: float, size: float) -> None:
    """PCIe joins a node without a switch: four exchange at the rate of their slots, eight through what joins the sockets."""
    device = CATALOG.accelerator("H100-PCIe-80GB")
    island = build_island(accelerator=device, nodes=1.0, gpus_per_node=8.0, fabric=None)
    island = changed(island, tiers=(changed(island.tiers[0], **dict.fromkeys(LATENCIES, 0.0)),))
    plan, stack = (
        Plan(dp_shard=ranks, dp_replicate=8.0 / ranks),
        changed(CATALOG.stack("titan-compile"), scale_up_factor=1.0),
    )
    asked = Transfer(label="x", collective="all_to_all", size=size, axes=("dp_shard",), phase="forward", scope="layer")
    rate = 12e9 if ranks == 8.0 else 63e9 * 0.76 * 0.87
    found = float(prices(island, stack, plan, 2.0).transfer(asked).seconds)
    assert found == pytest.approx(size * (1.0 - 1.0 / ranks) / rate)
