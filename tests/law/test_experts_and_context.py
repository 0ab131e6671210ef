"""Laws of experts and context parallelism over whole steps: what hides, what skew costs, what relabelling leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine import demand
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import decoder
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Estimate, Island, Plan, Run
from shardmeter.specs.plan import AXES

CATALOG = load_catalog()
DENSE, SHARED = CATALOG.model("llama-3.1-8b"), CATALOG.model("qwen1.5-moe-a2.7b")
MIXTURE, MIXED = CATALOG.model("mixtral-8x7b"), CATALOG.model("glm-4.5-air")
STACK = CATALOG.stack("titan-compile")
law = settings(max_examples=60, deadline=None)


def island(nodes: float, fabric: str = "ib-ndr400") -> Island:
    device = CATALOG.accelerator("H100-SXM5-80GB")
    return build_island(accelerator=device, nodes=nodes, gpus_per_node=8.0, fabric=CATALOG.fabric(fabric))


def term(estimate: Estimate, label: str) -> tuple[float, float]:
    """(exposed, hidden) seconds."""
    return next((float(t.seconds), float(t.hidden)) for t in estimate.terms if t.label == label)


def size(estimate: Estimate, *labels: str) -> float:
    return sum(float(t.size) for t in estimate.memory if t.label in labels)


@pytest.mark.parametrize(("seq", "exposes"), [(131072.0, False), (1024.0, True)])
def test_a_ring_hides_its_passes_where_the_attention_between_them_is_long(seq: float, exposes: bool) -> None:
    """A pass is as long as the part, the attention behind it as long as its square (Liu 2023 §3): 8 ranks over 400G adapters.

    What stays is the last hop of the gradients, which has no attention to run behind: one of 2·8 − 1 passes."""
    plan, run = Plan(dp_replicate=8.0, cp=8.0, rank_order=("tp", "dp_replicate", "cp", "dp_shard", "pp")), Run(
        seq_len=seq, global_batch=8.0
    )  # fmt: skip
    shown, hidden = term(evaluate(DENSE, island(8.0), plan, run, STACK), "context parallel")
    passes = 7.0 + 2.0 * 7.0 + 1.0
    assert (shown > 0.5 * (shown + hidden)) == exposes
    if not exposes:
        assert shown == pytest.approx((shown + hidden) / passes, rel=0.05)


@pytest.mark.parametrize("kind", ["all-gather", "ulysses"])
def test_other_kinds_are_exposed_unless_the_stack_overlaps(kind: str) -> None:
    plan, run = Plan(dp_shard=8.0, cp=8.0, cp_kind=kind), Run(seq_len=131072.0, global_batch=8.0)
    plain = evaluate(DENSE, island(8.0), plan, run, STACK)
    overlapped = evaluate(DENSE, island(8.0), plan, run, changed(STACK, context_overlap=True))
    shown, hidden = term(plain, "context parallel")
    assert hidden == 0.0 < shown
    less, behind = term(overlapped, "context parallel")
    assert less + behind == pytest.approx(shown, rel=1e-12)
    assert (behind > 0.0) == (kind == "all-gather")


@pytest.mark.parametrize("model", [SHARED, MIXED])
def test_exchanges_hide_behind_shared_experts_and_are_not_lost(model: Any) -> None:
    plan, run = Plan(dp_shard=64.0, ep=4.0), Run(seq_len=4096.0, global_batch=64.0)
    plain = evaluate(model, island(8.0), plan, run, STACK)
    overlapped = evaluate(model, island(8.0), plan, run, changed(STACK, expert_overlap=True))
    shown, hidden = term(overlapped, "expert all-to-all")
    assert hidden > 0.0
    assert shown + hidden == pytest.approx(term(plain, "expert all-to-all")[0], rel=1e-12)
    alone = evaluate(MIXTURE, island(8.0), plan, run, changed(STACK, expert_overlap=True))
    assert term(alone, "expert all-to-all")[1] == 0.0, "no shared experts to run behind"


def test_what_the_busiest_expert_rank_has_more_it_sends_computes_and_keeps_more() -> None:
    plan, run = Plan(tp=2.0, dp_shard=32.0, ep=8.0), Run(seq_len=4096.0, global_batch=32.0)
    even, skewed = (
        evaluate(MIXTURE, island(8.0), changed(plan, expert_skew=s), run, STACK) for s in (1.0, 1.5)
    )  # fmt: skip
    assert size(skewed, "routed tokens") == pytest.approx(1.5 * size(even, "routed tokens"), rel=1e-12)
    for label in ("matrix products", "expert all-to-all"):
        assert 1.2 * term(even, label)[0] < term(skewed, label)[0] <= 1.5 * term(even, label)[0]
    assert skewed.model_flops == even.model_flops, "mfu counts what the model needs"
    assert skewed.step_time > even.step_time


def test_dispatched_tokens_lie_in_memory_once_for_every_expert_they_are_sent_to() -> None:
    plan, run = Plan(dp_shard=64.0, ep=8.0), Run(seq_len=4096.0, global_batch=64.0)
    found = evaluate(MIXTURE, island(8.0), plan, run, STACK)
    rows = run.seq_len * MIXTURE.top_k  # one sequence per rank
    wide, inner = 2.0 * rows * MIXTURE.hidden, 2.0 * rows * MIXTURE.moe_ffn
    assert size(found, "routed tokens") == pytest.approx(MIXTURE.layers * (2.0 * wide + 3.0 * inner), rel=1e-12)
    again = evaluate(MIXTURE, island(8.0), changed(plan, recompute="full"), run, STACK)
    assert size(again, "routed tokens") == 0.0
    none = evaluate(DENSE, island(8.0), Plan(dp_shard=64.0), run, STACK)
    assert "routed tokens" not in {t.label for t in none.memory}


@law
@given(tp=st.sampled_from([1.0, 2.0, 8.0]), cp=st.sampled_from([1.0, 2.0, 8.0]), ep=st.sampled_from([1.0, 2.0, 8.0]),
       sharding=st.sampled_from(["ddp", "zero1", "zero2", "fsdp"]))  # fmt: skip
def test_experts_lie_over_tp_cp_and_shards_together(tp: float, cp: float, ep: float, sharding: str) -> None:
    """What is divided among tp · cp · dp_shard ranks does not depend on what these are called (etp = 1)."""
    ranks, run = 64.0, Run(seq_len=4096.0, global_batch=64.0)
    experts_only = changed(MIXTURE, vocab=1.0, heads=1.0, kv_heads=1.0, head_dim=1.0)  # what tp cuts weighs nothing

    def held(plan: Plan) -> float:
        found = evaluate(experts_only, island(8.0), plan, run, STACK)
        return size(found, "parameters", "gradients", "optimizer state")

    one = held(Plan(dp_shard=ranks, ep=ep, sharding=sharding))
    other = held(Plan(tp=tp, cp=cp, dp_shard=ranks / (tp * cp), ep=ep, sharding=sharding))
    assert other == pytest.approx(one, rel=1e-3)
    shards = ep if sharding == "ddp" else ranks if sharding == "fsdp" else None
    if shards:
        per_parameter = {"ddp": 2.0 + 4.0 + 12.0, "fsdp": 16.0}[sharding]
        matrices = 3.0 * MIXTURE.hidden * MIXTURE.moe_ffn * MIXTURE.experts * MIXTURE.layers
        assert one == pytest.approx(per_parameter * matrices / shards, rel=2e-2)


@law
@given(tp=st.sampled_from([1.0, 2.0, 8.0]), cp=st.sampled_from([1.0, 2.0, 8.0]), ep=st.sampled_from([2.0, 4.0, 8.0]),
       order=st.permutations(AXES))  # fmt: skip
def test_ep_inside_one_tier_does_not_care_which_axis_it_takes(
    tp: float, cp: float, ep: float, order: list[str]
) -> None:
    one = changed(island(8.0), tiers=(changed(island(8.0).tiers[0], size=64.0),))
    plan, run = Plan(tp=tp, cp=cp, dp_shard=64.0 / (tp * cp), ep=ep), Run(seq_len=4096.0, global_batch=64.0)
    left, right = (evaluate(MIXTURE, one, changed(plan, rank_order=tuple(o)), run, STACK) for o in (order, order[::-1]))
    assert left.step_time == right.step_time


@law
@given(data=st.data())
def test_a_dense_model_with_experts_of_its_own_width_does_the_same_work(question: Any, data: Any) -> None:
    """One expert that every token is sent to is a dense MLP, but for the router."""
    one = data.draw(question)
    assume(one["model"].family == "decoder")
    dense = changed(
        one["model"], experts=0.0, top_k=0.0, moe_ffn=0.0, shared_ffn=0.0, shared_gate=False, dense_first=0, moe_latent=0.0,
        mlps=one["model"].mlps.replace("e", "d"),
    )  # fmt: skip
    routed = changed(dense, experts=1.0, top_k=1.0, moe_ffn=dense.ffn, mlps=dense.mlps.replace("d", "e"))
    plan = changed(
        one["plan"],
        etp=one["plan"].tp,
        ep=1.0,
        expert_skew=1.0,
        trainable="all",
        offload=(),
        pp=1,
        schedule="1f1b",
        virtual_stages=1,
    )  # fmt: skip  (with stages, the fullest may be another one)
    left, right = (evaluate(**one | {"model": model, "plan": plan}) for model in (dense, routed))
    router = 6.0 * sum(block.count for block in decoder.layers(routed) if block.routed) * dense.hidden * left.tokens
    assert right.model_flops == pytest.approx(left.model_flops + router, rel=1e-12)
    states = ("parameters", "gradients", "optimizer state")
    plan = changed(plan, pp=1, schedule="1f1b", virtual_stages=1)  # else the fullest stage may be another one
    left, right = (evaluate(**one | {"model": model, "plan": plan}) for model in (dense, routed))
    assert size(right, *states) == pytest.approx(size(left, *states), rel=0.02)


@pytest.mark.parametrize("pp", [1, 2, 4, 46])
@pytest.mark.parametrize("ep", [1.0, 4.0])
def test_the_stages_of_a_mixed_model_hold_it_once(pp: int, ep: float) -> None:
    """However the list of blocks is cut, the ranks of all stages hold every parameter of the model once."""
    plan, run = Plan(pp=pp, dp_shard=4.0, ep=ep), Run(seq_len=4096.0, global_batch=4.0)
    work = demand.collect(MIXED, plan, run, STACK)
    held = [(stage.count, demand.gradient_parameters(work, stage)) for stage in work.stages]
    assert sum(n * (own.dense + ep * own.experts) for n, own in held) == decoder.parameters(MIXED)
    assert [name for name, _ in work.stages[0].contents] == ["layer", "moe layer"][: 1 if pp == 46 else 2]
    assert all(name == "moe layer" for stage in work.stages[1:] for name, _ in stage.contents)


@pytest.mark.parametrize("sharding", ["fsdp", "zero1", "zero2", "ddp"])
@pytest.mark.parametrize("pp", [1, 4])
def test_layers_of_two_kinds_take_as_long_as_their_parts(pp: int, sharding: str) -> None:
    """A step of a mixed model lies between those of the same model with no and with only dense layers."""
    plan = Plan(pp=pp, dp_shard=64.0 / pp, ep=8.0 if sharding != "ddp" else 1.0, sharding=sharding)
    run = Run(seq_len=4096.0, global_batch=64.0 * pp)
    found = [
        float(evaluate(changed(MIXED, dense_first=n), island(8.0), plan, run, STACK).step_time) for n in (0, 1, 20, 45)
    ]
    assert found == sorted(found) or found == sorted(found, reverse=True)


@pytest.mark.parametrize("slow", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("kind", ["experts", "context"])
def test_exchanges_and_gathers_share_the_fabric(kind: str, slow: float) -> None:
    """What goes through one adapter, exposed and hidden together, takes no longer than the step."""
    one = island(8.0)
    tiers = (one.tiers[0], changed(one.tiers[1], bandwidth=one.tiers[1].bandwidth / slow))
    model, plan = (MIXTURE, Plan(dp_shard=64.0, ep=8.0)) if kind == "experts" else (DENSE, Plan(dp_shard=8.0, cp=8.0))
    plan = changed(plan, rank_order=("tp", "dp_shard", "cp", "dp_replicate", "pp"))
    plan = changed(plan, ep=64.0) if kind == "experts" else plan
    found = evaluate(
        changed(model, experts=64.0) if kind == "experts" else model,
        changed(one, tiers=tiers), plan, Run(seq_len=16384.0, global_batch=64.0), STACK,
    )  # fmt: skip
    labels = (
        "expert all-to-all" if kind == "experts" else "context parallel",
        "parameter gather",
        "gradient reduction",
    )
    assert sum(sum(term(found, label)) for label in labels) <= found.step_time * (1.0 + 1e-9)
