"""The collectives against a hand simulation of who sends what to whom, and group placement against an enumeration of ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine.price import Charge, prices
from shardmeter.physics.collectives import PHASES_IN_LINE, members_inside, shard_traffic
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Island, Plan, Tier, Transfer

CATALOG = load_catalog()
SIZE = 1 << 20


def ring_all_gather(groups: list[list[int]], held: dict[int, set[int]]) -> Counter[int]:
    """Run a ring all-gather inside every group; shards received by each rank. `held` is who has which shards, before and after."""
    received: Counter[int] = Counter()
    for group in groups:
        passing = {rank: set(held[rank]) for rank in group}
        for _ in range(len(group) - 1):
            passing = {group[(at + 1) % len(group)]: passing[rank] for at, rank in enumerate(group)}
            for rank in group:
                received[rank] += len(passing[rank])
                held[rank] = held[rank] | passing[rank]
    return received


def simulated(ranks: int, node: int) -> tuple[float, float]:
    """Bytes through the node's links and through the fabric, per rank, of gathering SIZE: first between nodes, then inside."""
    held = {rank: {rank} for rank in range(ranks)}
    across = ring_all_gather([list(range(local, ranks, node)) for local in range(node)], held)
    inside = ring_all_gather([list(range(first, first + node)) for first in range(0, ranks, node)], held)
    assert all(held[rank] == set(range(ranks)) for rank in held), "everybody has everything"
    shard = SIZE / ranks
    assert len({across[rank] for rank in held}) == len({inside[rank] for rank in held}) == 1
    return inside[0] * shard, across[0] * shard


nodes_of = st.tuples(st.integers(1, 8), st.integers(1, 8))


@given(nodes_of)
def test_a_hierarchical_gather_moves_what_the_simulation_moves(sizes: tuple[int, int]) -> None:
    node, nodes = sizes
    inside, across = simulated(node * nodes, node)
    assert shard_traffic(float(SIZE), float(node), 1.0) == pytest.approx(inside, rel=1e-12)
    assert shard_traffic(float(SIZE), float(node * nodes), float(node)) == pytest.approx(across, rel=1e-12)


@given(st.integers(1, 40))
def test_a_flat_ring_moves_all_but_the_own_shard(ranks: int) -> None:
    held = {rank: {rank} for rank in range(ranks)}
    moved = ring_all_gather([list(range(ranks))], held)
    assert shard_traffic(float(SIZE), float(ranks), 1.0) == pytest.approx(moved[0] * SIZE / ranks, rel=1e-12)
    assert sum(moved.values()) == ranks * (ranks - 1), "every rank receives every shard of the others once"


def charge(collective: str, size: float, tiers: tuple[Tier, ...], plan: Plan) -> Charge:
    """What an island of some tiers charges for one collective over the shards."""
    device = CATALOG.accelerator("H100-SXM5-80GB")
    island = Island(name="i", accelerator=device, nodes=float(plan.gpus), gpus_per_node=1.0, tiers=tiers)
    stack = changed(CATALOG.stack("titan-compile"), nic_factor=1.0, scale_up_factor=1.0)
    transfer = Transfer(
        label="x", collective=collective, size=size, axes=("dp_shard",), phase="forward", scope="layer"
    )  # fmt: skip
    return prices(island, stack, plan, 2.0).transfer(transfer)


def levels(sizes: tuple[int, ...], rates: tuple[float, ...], latency: float) -> tuple[Tier, ...]:
    return tuple(
        Tier(
            name="t", size=float(size), bandwidth=rate, share=1.0, latency=1.0, latency_step=latency, latency_start=0.0
        )
        for size, rate in zip(sizes, rates, strict=True)
    )


@given(
    node=st.sampled_from([1, 2, 4, 8]), nodes=st.sampled_from([1, 2, 8, 32]), latency=st.sampled_from([0.0, 1e-5]),
    rates=st.tuples(st.floats(1e9, 1e12), st.floats(1e9, 1e12)), size=st.floats(1e3, 1e10),
)  # fmt: skip
def test_an_all_reduce_is_a_scatter_and_a_gather_where_trees_are_slow(
    node: int, nodes: int, latency: float, rates: tuple[float, float], size: float
) -> None:
    plan = Plan(dp_shard=float(node * nodes))
    tiers = levels((node, node * nodes), rates, latency)
    whole = charge("all_reduce", size, tiers, plan)
    parts = charge("reduce_scatter", size, tiers, plan), charge("all_gather", size, tiers, plan)
    for which in ("seconds", "scale_up", "fabric"):
        together = sum(float(getattr(part, which)) for part in parts)
        assert float(getattr(whole, which)) == pytest.approx(together, rel=1e-12, abs=1e-30), which


@given(
    node=st.sampled_from([1, 2, 4, 8]), nodes=st.sampled_from([1, 2, 8]), rates=st.tuples(*[st.floats(1e9, 1e12)] * 2)
)  # fmt: skip
def test_a_gather_takes_as_long_as_the_slower_of_its_two_tiers_and_a_share_of_the_other(
    node: int, nodes: int, rates: tuple[float, float]
) -> None:
    inside, across = simulated(node * nodes, node)
    times = inside / rates[0], across / rates[1]
    found = charge(
        "all_gather", float(SIZE), levels((node, node * nodes), rates, 0.0), Plan(dp_shard=float(node * nodes))
    )
    assert float(found.seconds) == pytest.approx(max(times) + PHASES_IN_LINE * min(times), rel=1e-12, abs=1e-30)


def counts(degree: int, stride: int, unit: int, offset: int) -> list[int]:
    """Members of one group in each unit that it touches, by enumeration: ranks `offset`, `offset + stride`, …"""
    touched = Counter((offset + member * stride) // unit for member in range(degree))
    return [touched[place] for place in sorted(touched)]


@settings(max_examples=300)
@given(degree=st.integers(1, 64), stride=st.integers(1, 64), unit=st.integers(1, 128))
def test_members_inside_a_unit_by_enumeration(degree: int, stride: int, unit: int) -> None:
    found = float(members_inside(float(degree), float(stride), float(unit)))
    everywhere = [counts(degree, stride, unit, offset) for offset in range(stride)]
    whole = [one for group in everywhere for one in group[1:-1]]
    assert found == int(found)
    if whole:  # units that the group enters and leaves: the formula takes the least of them
        assert found == min(whole)
    assert 1.0 <= found <= max(max(group) for group in everywhere)
    nested = unit % stride == 0 or stride % unit == 0
    fills = degree * stride <= unit and unit % (degree * stride) == 0
    if (nested and degree * stride % unit == 0) or fills:  # powers of two: every unit holds the same number
        assert {one for group in everywhere for one in group} == {int(found)}


@settings(max_examples=100)
@given(
    degrees=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 4), unit=st.sampled_from([1, 2, 4, 8, 16, 64]),
    order=st.permutations(["tp", "cp", "dp_shard", "dp_replicate"]),
)  # fmt: skip
def test_groups_of_a_mesh_by_enumeration(degrees: tuple[int, int, int, int], unit: int, order: list[str]) -> None:
    """Lay out every rank of a mesh, take the groups of each axis, and count how many members share a unit."""
    sizes = dict(zip(("tp", "cp", "dp_shard", "dp_replicate"), degrees, strict=True))
    plan = Plan(**{name: float(n) for name, n in sizes.items()}, rank_order=(*order, "pp"))  # type: ignore[arg-type]
    ranks = np.arange(int(np.prod(degrees))).reshape([sizes[name] for name in reversed(order)])
    for place, name in enumerate(reversed(order)):
        groups = np.moveaxis(ranks, place, -1).reshape(-1, sizes[name])
        shared = {count for group in groups for count in Counter((group // unit).tolist()).values()}
        assert shared == {int(members_inside(plan.degree(name), plan.stride(name), float(unit)))}, name
