"""Experts and context parallelism against hand simulations: who sends what to whom, who computes what, and published figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine.price import Charge, prices
from shardmeter.families import family
from shardmeter.physics.collectives import copies_share, exchange_traffic
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Island, Plan, Transfer
from shardmeter.strategies import context, expert

CATALOG = load_catalog()
DENSE, MIXTURE = CATALOG.model("llama-3.1-8b"), CATALOG.model("mixtral-8x7b")
LAYER, ROUTED = (family("decoder").blocks(model)[1] for model in (DENSE, MIXTURE))
TOKENS, WIDTH = 4096.0, 2.0


def zigzag(ranks: int) -> list[tuple[int, int]]:
    """The two halves of the sequence that each rank holds."""
    return [(rank, 2 * ranks - 1 - rank) for rank in range(ranks)]


@given(st.integers(1, 12))
def test_a_ring_shows_every_query_its_keys_once_and_every_step_is_equal_work(ranks: int) -> None:
    """Pass keys and values round the ring; count half-by-half products (a diagonal one is half) and what is sent."""
    held = zigzag(ranks)
    passing, seen, sent = list(held), Counter[tuple[int, int]](), [0] * ranks
    for step in range(ranks):
        work = []
        for rank in range(ranks):
            pairs = [(query, key) for query in held[rank] for key in passing[rank] if key <= query]
            seen.update(pairs)
            work.append(sum(0.5 if query == key else 1.0 for query, key in pairs))
        assert work == [2.0] * ranks, "two half-by-half products each, in every step"
        if step < ranks - 1:
            passing = [passing[rank - 1] for rank in range(ranks)]
            sent = [one + 2 for one in sent]
    wanted = {(query, key) for query in range(2 * ranks) for key in range(query + 1)}
    assert seen == Counter(wanted), "every causal pair once"
    plan = Plan(cp=float(ranks))
    forward = [t for t in context.transfers(DENSE, LAYER, TOKENS, plan, WIDTH, False) if t.phase == "forward"]
    per_half = TOKENS / 2.0 * 2.0 * DENSE.kv_heads * DENSE.head_dim * WIDTH
    assert sum(t.messages * t.size for t in forward) == pytest.approx(sent[0] * per_half, rel=1e-12)
    assert all(t.window == 1.0 / ranks for t in forward), "each pass behind the work of one step"


@given(st.integers(1, 12))
def test_gradients_of_keys_go_round_the_ring_and_come_home(ranks: int) -> None:
    """In the backward the gradients travel with their keys and end where they began: one hop more."""
    at, hops = list(range(ranks)), 0
    for _ in range(ranks - 1):
        at = [(place + 1) % ranks for place in at]
        hops += 1
    home = [(place + 1) % ranks for place in at]
    hops += 1 if ranks > 1 else 0
    assert home == list(range(ranks))
    plan = Plan(cp=float(ranks))
    part = TOKENS * 2.0 * DENSE.kv_heads * DENSE.head_dim * WIDTH
    back = [t for t in context.transfers(DENSE, LAYER, TOKENS, plan, WIDTH, False) if t.phase != "forward"]
    moved = sum(t.messages * t.size for t in back if ranks > 1)
    assert moved == pytest.approx(((ranks - 1) + hops) * part, rel=1e-12)


def exchanged(node: int, nodes: int) -> tuple[set[int], set[int]]:
    """Run an all-to-all of one part for everybody; parts that each rank sends to others on its node, and off it."""
    ranks = node * nodes
    received: list[list[int]] = [[] for _ in range(ranks)]
    near, far = [0] * ranks, [0] * ranks
    for source in range(ranks):
        for target in range(ranks):
            received[target].append(source)
            if source != target:
                (near if source // node == target // node else far)[source] += 1
    assert all(sorted(parts) == list(range(ranks)) for parts in received), "everybody has a part of everybody"
    return set(near), set(far)


@given(st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_an_all_to_all_moves_what_the_simulation_moves(sizes: tuple[int, int]) -> None:
    node, nodes = sizes
    ranks, size = float(node * nodes), 1e6
    near, far = exchanged(node, nodes)
    assert near == {exchange_traffic(ranks, ranks, 1.0, float(node))}
    assert far == {exchange_traffic(ranks, ranks, float(node), ranks)}
    both = exchange_traffic(size, ranks, 1.0, float(node)) + exchange_traffic(size, ranks, float(node), ranks)
    assert both == pytest.approx(size * (ranks - 1.0) / ranks, rel=1e-12), "all but the own part leaves"


@pytest.mark.parametrize(("units", "copies"), [(2, 8), (8, 8), (8, 2), (32, 6), (4, 1)])
def test_a_node_is_sent_a_token_once_as_often_as_drawing_says(units: int, copies: int) -> None:
    """Draw the receivers of many tokens and count the unlike nodes among them."""
    drawn = np.random.default_rng(units * 100 + copies).integers(units, size=(40_000, copies))
    unlike = np.mean([len(set(nodes)) for nodes in drawn.tolist()])
    assert copies_share(float(units), float(copies)) == pytest.approx(unlike / copies, rel=5e-3)


@pytest.mark.parametrize("nodes", [1.0, 2.0, 8.0])
def test_one_copy_for_a_node_is_never_slower_where_nodes_are_the_bottleneck(nodes: float) -> None:
    where, plan = island("H100-SXM5-80GB", nodes), Plan(dp_shard=8.0 * nodes, ep=8.0 * nodes)
    one = Transfer(label="x", collective="all_to_all", size=1e9, axes=("ep",), phase="forward", scope="layer")
    each, once = charge(where, plan, one), charge(where, plan, changed(one, copies=8.0))
    assert copies_share(nodes, 8.0) < once.seconds / each.seconds < 1.0, "its latency stays as it is"
    passed_on = copies_share(8.0 * nodes, 8.0) * nodes
    assert once.scale_up / each.scale_up == pytest.approx(passed_on, rel=0.02 if nodes == 1.0 else 1e-9), (
        "what comes to a node too"
    )


def island(device: str, nodes: float) -> Island:
    found = CATALOG.accelerator(device)
    return build_island(accelerator=found, nodes=nodes, gpus_per_node=8.0, fabric=CATALOG.fabric(found.fabric))


def charge(where: Island, plan: Plan, transfer: Transfer) -> Charge:
    stack = changed(CATALOG.stack("titan-compile"), nic_factor=1.0, scale_up_factor=1.0)
    return prices(where, stack, plan, WIDTH).transfer(transfer)


@pytest.mark.parametrize(
    ("device", "nodes", "published"),
    [("A100-SXM4-80GB", 1.0, 210e9), ("H100-SXM5-80GB", 1.0, 320e9), ("B200-SXM", 1.0, 640e9),
     ("H100-SXM5-80GB", 4.0, 48e9)],
)  # fmt: skip
def test_an_all_to_all_reaches_the_published_bus_bandwidth(device: str, nodes: float, published: float) -> None:
    """NCCL bus bandwidth at large sizes (GTC 2025 S72583): bytes that leave a rank over time; between nodes, of one adapter."""
    size, ranks = 4e9, 8.0 * nodes
    found = charge(
        island(device, nodes), Plan(ep=ranks, dp_shard=ranks),
        Transfer(label="x", collective="all_to_all", size=size, axes=("ep",), phase="forward", scope="layer"),
    )  # fmt: skip
    leaving = size * (ranks - (8.0 if nodes > 1.0 else 1.0)) / ranks
    assert leaving / float(found.seconds) == pytest.approx(published, rel=0.12)


def dispatch(plan: Plan, tokens: float = TOKENS) -> float:
    """Bytes that one rank holds for the other expert ranks."""
    found = [t for t in expert.transfers(MIXTURE, ROUTED, tokens, plan, WIDTH, False) if t.label == "expert dispatch"]
    return float(found[0].size)


def test_routed_tokens_are_divided_by_tp_under_sequence_parallelism() -> None:
    whole = dispatch(Plan(ep=8.0, dp_shard=8.0))
    assert whole == TOKENS * MIXTURE.top_k * MIXTURE.hidden * WIDTH
    assert dispatch(Plan(tp=4.0, ep=8.0, dp_shard=8.0)) == whole / 4.0
    assert dispatch(Plan(tp=4.0, etp=4.0, ep=8.0, dp_shard=8.0)) == whole / 4.0
    assert dispatch(Plan(tp=4.0, etp=4.0, ep=8.0, dp_shard=8.0, sequence_parallel=False)) == whole
    assert dispatch(Plan(ep=8.0, dp_shard=8.0, expert_skew=1.5)) == 1.5 * whole


def test_two_exchanges_forward_and_two_backward_for_a_layer_with_experts() -> None:
    found = expert.transfers(MIXTURE, ROUTED, TOKENS, Plan(ep=8.0, dp_shard=8.0), WIDTH, False)
    exchanges = Counter(t.phase for t in found if t.collective == "all_to_all")
    assert exchanges == {"forward": 2, "input_grad": 2}
    assert expert.transfers(MIXTURE, LAYER, TOKENS, Plan(ep=8.0, dp_shard=8.0), WIDTH, False) == ()


def ranks_of(plan: Plan, axis: str) -> set[tuple[int, ...]]:
    """The groups of an axis, by enumerating the rank of every place of the mesh."""
    rows = [(int(degree), int(stride)) for degree, stride in plan.spans(axis)]
    total = int(plan.tp * plan.cp * plan.dp_shard)
    group = [0]
    for degree, stride in rows:
        group = [rank + place * stride for rank in group for place in range(degree)]
    groups, left = set(), set(range(total))
    while left:
        first = min(left)
        members = tuple(sorted(first + rank for rank in group))
        assert set(members) <= left, "groups of an axis do not overlap"
        groups.add(members)
        left -= set(members)
    return groups


@given(st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 3), st.sampled_from([1, 2, 4, 8, 16]), st.booleans())
def test_the_expert_mesh_lies_over_the_same_ranks(degrees: tuple[int, int, int], ep: int, cut: bool) -> None:
    """Groups of ep are neighbours (etp apart), those of edp have one rank of each, and every rank is in one of both."""
    tp, cp, dp = degrees
    etp = tp if cut else 1
    if (tp * cp * dp) % (etp * ep):
        return
    plan = Plan(tp=float(tp), cp=float(cp), dp_shard=float(dp), etp=float(etp), ep=float(ep))
    inner, outer = ranks_of(plan, "ep"), ranks_of(plan, "edp")
    assert min(inner) == tuple(etp * place for place in range(ep))
    assert min(outer) == tuple(etp * ep * place for place in range(tp * cp * dp // (etp * ep)))
    assert all(len(set(one) & set(other)) <= 1 for one in inner for other in outer)


@pytest.mark.parametrize("kind", ["ring", "all-gather", "ulysses"])
def test_what_context_parallelism_moves(kind: str) -> None:
    """Forward bytes that leave a rank: all others' keys and values for a ring or a gather; its share of q, k, v, o for ulysses."""
    cp = 4.0
    plan = Plan(cp=cp, cp_kind=kind)
    part = TOKENS * 2.0 * DENSE.kv_heads * DENSE.head_dim * WIDTH
    query = TOKENS * DENSE.heads * DENSE.head_dim * WIDTH
    leaves: dict[str, Any] = {
        "send": lambda t: t.size * t.messages, "all_gather": lambda t: t.size * (cp - 1.0) / cp,
        "all_to_all": lambda t: t.size * (cp - 1.0) / cp,
    }  # fmt: skip
    found = [t for t in context.transfers(DENSE, LAYER, TOKENS, plan, WIDTH, False) if t.phase == "forward"]
    moved = sum(leaves[t.collective](t) for t in found)
    wanted = {"ring": (cp - 1.0) * part, "all-gather": (cp - 1.0) * part,
              "ulysses": (2.0 * query + part) * (cp - 1.0) / cp}  # fmt: skip
    assert moved == pytest.approx(wanted[kind], rel=1e-12)
    few = context.transfers(DENSE, LAYER, TOKENS, Plan(cp=4.0, tp=8.0, cp_kind="ulysses"), WIDTH, False)
    shared = next(t for t in few if t.label.endswith("values"))
    assert shared.size == pytest.approx(part / 8.0 * 4.0), "one key-value head for each of four ranks"
