"""What must hold for any question: the ledger sums, degrees of one move nothing, better hardware is never slower, units scale."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine import demand, memory, price
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.layer import piece
from shardmeter.engine.micro_batch import micro_batch
from shardmeter.scenario.catalog import load_catalog
from shardmeter.schedules import Slot, schedule
from shardmeter.specs import Estimate, Island, Plan, Run, Tier
from shardmeter.strategies import optimizer, precision

CATALOG = load_catalog()
ROUNDING = 1e-12
COMMUNICATION = (
    "tensor parallel",
    "expert all-to-all",
    "context parallel",
    "parameter gather",
    "gradient reduction",
    "contention",
    "stage sends",
)
LATENCIES = ("latency", "latency_base", "latency_step", "latency_start")
STATES = ("parameters", "gradients", "optimizer state")
PLANS = int(os.environ.get("LAWS", "36"))
"""Plans that a law is held to; `make laws` says 10,000."""
law = settings(max_examples=PLANS, deadline=None)


def island(gpus: float, *tiers: Tier, device: str = "H100-SXM5-80GB") -> Island:
    """An island of a catalog device; one scale-up domain unless tiers are given."""
    found = CATALOG.accelerator(device)
    inner = Tier(
        name="up", size=gpus, bandwidth=found.scale_up_bandwidth, share=found.scale_up_share,
        latency=found.scale_up_latency,
    )  # fmt: skip
    return Island(name="i", accelerator=found, nodes=gpus, gpus_per_node=1.0, tiers=tiers or (inner,))


def seconds(estimate: Estimate, label: str) -> float:
    """Exposed seconds of a term; 0 for one that is not there."""
    return sum(float(term.seconds) for term in estimate.terms if term.label == label)


def hidden(estimate: Estimate, label: str) -> float:
    """Hidden seconds of a term."""
    return sum(float(term.hidden) for term in estimate.terms if term.label == label)


def held(estimate: Estimate, *labels: str) -> float:
    """Bytes of some memory terms."""
    return sum(float(term.size) for term in estimate.memory if term.label in labels)


def faster(one: Any, kind: str, by: float) -> Any:
    """The same question on better hardware."""
    old = one["island"]
    device, tiers = old.accelerator, list(old.tiers)
    if kind == "memory bandwidth":
        device = changed(device, memory_bandwidth=device.memory_bandwidth * by)
    elif kind == "peak":
        device = changed(device, peak={dtype: rate * by for dtype, rate in device.peak.items()})
    elif kind == "power limit":
        device = changed(device, power_limit=device.power_limit * by)
    elif kind == "scale-up bandwidth":
        tiers[0] = changed(tiers[0], bandwidth=tiers[0].bandwidth * by)
    elif kind == "fabric bandwidth":
        tiers = [tiers[0], *(changed(tier, bandwidth=tier.bandwidth * by) for tier in tiers[1:])]
    elif kind == "latency":
        tiers = [changed(tier, **{name: getattr(tier, name) / by for name in LATENCIES}) for tier in tiers]
    else:
        stack = changed(one["stack"], launch_overhead=one["stack"].launch_overhead / by)
        return one | {"stack": stack}
    return one | {"island": changed(old, accelerator=device, tiers=tuple(tiers))}


def straggling(one: Estimate, other: Estimate) -> float:
    """Seconds that `other` waits longer for its slowest rank than `one`. A slower rank first uses up its waits for the host, but
    none for transfers (left out), so that where transfers show, a host with less to do costs stragglers and saves nothing."""
    return max(seconds(other, "stragglers") - seconds(one, "stragglers"), 0.0)


def unpiped(one: Any) -> Any:
    """The same question with one stage, so that the critical rank is the same in every variant of it."""
    return one | {"plan": changed(one["plan"], pp=1, schedule="1f1b", virtual_stages=1)}


def whole_experts(plan: Plan) -> Plan:
    """The same plan with experts that lie as dense layers do: cut by tp, copied over the rest."""
    return changed(plan, ep=1.0, etp=plan.tp)


@law
@given(data=st.data())
def test_the_terms_are_the_totals_exactly(question: Any, data: Any) -> None:
    estimate = evaluate(**data.draw(question))
    total: Any = 0.0
    size: Any = 0.0
    for term in estimate.terms:
        total = total + term.seconds
    for resident in estimate.memory:
        size = size + resident.size
    assert estimate.step_time == total
    assert estimate.memory_peak == size
    assert estimate.memory_allocated <= estimate.memory_peak


@law
@given(data=st.data())
def test_no_term_is_negative_or_endless(question: Any, data: Any) -> None:
    estimate = evaluate(**data.draw(question))
    numbers = {term.label: (term.seconds, term.hidden) for term in estimate.terms}
    numbers |= {term.label: (term.size, 0.0) for term in estimate.memory}
    for label, (shown, behind) in numbers.items():
        assert np.isfinite(shown), label
        assert shown >= -ROUNDING * estimate.step_time, label
        assert behind >= -ROUNDING * estimate.step_time, label


@pytest.mark.parametrize(
    "kind",
    ["memory bandwidth", "peak", "power limit", "scale-up bandwidth", "fabric bandwidth", "latency", "launch overhead"],
)
@settings(max_examples=max(PLANS // 7, 36), deadline=None)
@given(data=st.data())
def test_better_hardware_is_never_slower(kind: str, question: Any, data: Any) -> None:
    one = data.draw(question)
    by = data.draw(st.floats(1.001, 50.0))
    before, after = evaluate(**one), evaluate(**faster(one, kind, by))
    more = straggling(before, after) if kind == "launch overhead" else 0.0
    assert after.step_time <= before.step_time * (1.0 + ROUNDING) + more


@pytest.mark.parametrize("kind", ["peak", "fabric bandwidth", "latency"])
@settings(max_examples=max(PLANS // 7, 36), deadline=None)
@given(data=st.data())
def test_better_hardware_is_never_slower_with_a_host_that_helps(kind: str, question: Any, data: Any) -> None:
    one = data.draw(question)
    assume(one["model"].family not in ("dual_encoder", "multimodal", "encoder_decoder"))
    kinds = ["optimizer", "activations", *["parameters"] * (one["plan"].sharding in ("fsdp", "zero3"))]
    away = data.draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
    optimizer = "adamw" if one["plan"].optimizer == "muon" else one["plan"].optimizer
    one = one | {"plan": changed(one["plan"], offload=tuple(away), optimizer=optimizer)}
    before, after = evaluate(**one), evaluate(**faster(one, kind, data.draw(st.floats(1.001, 50.0))))
    assert after.step_time <= before.step_time * (1.0 + ROUNDING)


@law
@given(data=st.data())
def test_more_micro_batches_cost_more(question: Any, data: Any) -> None:
    one = data.draw(question)
    times = float(data.draw(st.integers(2, 6)))
    more = one | {"run": changed(one["run"], global_batch=one["run"].global_batch * times)}
    few, many = evaluate(**one), evaluate(**more)
    assert many.step_time > few.step_time
    assert many.step_time <= few.step_time * times * (1.0 + ROUNDING), "what is once a step is not paid again"


@law
@given(data=st.data())
def test_cutting_the_same_batch_finer_is_never_cheaper_without_a_pipeline(question: Any, data: Any) -> None:
    one = unpiped(data.draw(question))
    finer = one | {"plan": changed(one["plan"], micro_batch=one["plan"].micro_batch / 2.0)}
    assert evaluate(**finer).step_time >= evaluate(**one).step_time * (1.0 - ROUNDING)


@law
@given(data=st.data())
def test_a_degree_of_one_moves_nothing(question: Any, data: Any) -> None:
    one = data.draw(question)
    plan = one["plan"]
    no_tensor = evaluate(**one | {"plan": changed(plan, tp=1.0, etp=1.0, ep=1.0)})
    assert seconds(no_tensor, "tensor parallel") == 0.0
    no_data = evaluate(
        **one | {"plan": changed(whole_experts(plan), tp=1.0, etp=1.0, dp_shard=1.0, dp_replicate=1.0, cp=1.0)}
    )
    for label in ("parameter gather", "gradient reduction", "contention"):
        assert seconds(no_data, label) == hidden(no_data, label) == 0.0, label
    no_context = evaluate(**one | {"plan": changed(whole_experts(plan), cp=1.0)})
    for label in ("context parallel", "expert all-to-all"):
        assert seconds(no_context, label) == hidden(no_context, label) == 0.0, label
    no_stages = evaluate(**unpiped(one))
    assert seconds(no_stages, "pipeline bubble") == seconds(no_stages, "stage sends") == 0.0
    assert hidden(no_stages, "stage sends") == 0.0


@law
@given(data=st.data())
def test_the_order_of_ranks_is_nothing_inside_one_tier(question: Any, data: Any) -> None:
    one = data.draw(question)
    tier = changed(one["island"].tiers[0], size=float(one["plan"].gpus))
    one["island"] = changed(one["island"], tiers=(tier,))
    other = changed(one["plan"], rank_order=tuple(data.draw(st.permutations(one["plan"].rank_order))))
    left, right = evaluate(**one), evaluate(**one | {"plan": other})
    assert [(t.label, t.seconds, t.hidden) for t in left.terms] == [(t.label, t.seconds, t.hidden) for t in right.terms]
    assert [t.size for t in left.memory] == [t.size for t in right.memory]


@law
@given(data=st.data())
def test_two_axes_of_equal_degree_may_change_places(question: Any, data: Any) -> None:
    one = data.draw(question)
    order = list(one["plan"].rank_order)
    one["plan"] = changed(one["plan"], cp=1.0, dp_replicate=1.0)
    at, to = order.index("cp"), order.index("dp_replicate")
    order[at], order[to] = order[to], order[at]
    other = one | {"plan": changed(one["plan"], rank_order=tuple(order))}
    assert evaluate(**one).step_time == evaluate(**other).step_time


@law
@given(data=st.data())
def test_ddp_does_not_care_what_its_replicas_are_called(question: Any, data: Any) -> None:
    one = data.draw(question)
    degree = 1.0 if one["plan"].sharding == "none" else one["plan"].dp
    plan = changed(
        whole_experts(one["plan"]), sharding="ddp", rank_order=("tp", "cp", "dp_shard", "dp_replicate", "pp")
    )
    shard = one | {"plan": changed(plan, dp_shard=degree, dp_replicate=1.0)}
    replicate = one | {"plan": changed(plan, dp_shard=1.0, dp_replicate=degree)}
    assert evaluate(**shard).step_time == evaluate(**replicate).step_time


@law
@given(data=st.data())
def test_twice_the_rates_and_half_the_latencies_halve_the_step_exactly(question: Any, data: Any) -> None:
    one = data.draw(question)
    old, stack = one["island"], one["stack"]
    device = changed(
        old.accelerator, memory_bandwidth=old.accelerator.memory_bandwidth * 2.0,
        peak={dtype: rate * 2.0 for dtype, rate in old.accelerator.peak.items()},
        host_link=old.accelerator.host_link * 2.0,
        host_memory_bandwidth=old.accelerator.host_memory_bandwidth * 2.0,
    )  # fmt: skip
    tiers = tuple(
        changed(
            tier,
            bandwidth=tier.bandwidth * 2.0,
            **{name: getattr(tier, name) / 2.0 for name in LATENCIES},
            pair_bandwidth=None if tier.pair_bandwidth is None else tier.pair_bandwidth * 2.0,
        )
        for tier in old.tiers
    )
    twice = one | {
        "island": changed(old, accelerator=device, tiers=tiers),
        "stack": changed(
            stack,
            **{
                name: getattr(stack, name) / 2.0
                for name in ("launch_overhead", "step_overhead", "collective_overhead", "dispatch_wait")
            },
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        slow = evaluate(**one)
        patch.setattr(price, "KERNEL_START", price.KERNEL_START / 2.0)
        fast = evaluate(**twice)
    assert slow.step_time == 2.0 * fast.step_time
    for before, after in zip(slow.terms, fast.terms, strict=True):
        assert (before.seconds, before.hidden) == (2.0 * after.seconds, 2.0 * after.hidden), before.label


@law
@given(data=st.data())
def test_endless_links_leave_nothing_but_latency(question: Any, data: Any) -> None:
    one = unpiped(data.draw(question))
    one["plan"] = changed(
        one["plan"], sharding="fsdp", async_tp=False
    )  # whole gradients are cut into more messages the more there is
    endless = faster(faster(one, "scale-up bandwidth", np.inf), "fabric bandwidth", np.inf)
    larger = changed(one["model"], ffn=one["model"].ffn * 4.0)
    left, right = evaluate(**endless), evaluate(**endless | {"model": larger})
    assert seconds(left, "tensor parallel") == pytest.approx(seconds(right, "tensor parallel"), rel=1e-9)
    for label in ("parameter gather", "gradient reduction"):
        whole = [seconds(e, label) + hidden(e, label) for e in (left, right)]
        assert whole[0] == pytest.approx(whole[1], rel=1e-9), label
    silent = evaluate(**faster(endless, "latency", np.inf))
    assert all(seconds(silent, label) == 0.0 for label in COMMUNICATION)
    assert silent.step_time <= left.step_time * (1.0 + ROUNDING)


def test_tensor_parallel_on_endless_links_is_its_count_of_latencies() -> None:
    model, stack = CATALOG.model("llama-3.1-8b"), CATALOG.stack("titan-compile")
    latency = 40e-6
    up = Tier(name="up", size=8.0, bandwidth=np.inf, share=1.0, latency=latency)
    run = Run(seq_len=4096.0, global_batch=6.0)
    plan = Plan(tp=8.0, sharding="none", sequence_parallel=False)
    found = evaluate(model, island(8.0, up), plan, run, stack)
    collectives = 6.0 * (model.layers * 4.0 + 2.0)
    assert seconds(found, "tensor parallel") == pytest.approx(collectives * latency, rel=1e-12)
    found = evaluate(model, island(8.0, up), changed(plan, sequence_parallel=True), run, stack)
    halves = 6.0 * (model.layers * 8.0 + 4.0)
    ring = up.latency_start + 7.0 * up.latency_step  # a gather passes seven neighbours
    assert seconds(found, "tensor parallel") == pytest.approx(halves * ring, rel=1e-12)


@law
@given(data=st.data())
def test_what_hides_is_not_lost(question: Any, data: Any) -> None:
    """Gathers and scatters, exposed and hidden together, are the same work whatever they run behind."""
    one = unpiped(data.draw(question))
    slow = one | {"stack": changed(one["stack"], launch_overhead=1.0)}  # hours to hide behind
    quick = faster(faster(one, "peak", 1e9), "memory bandwidth", 1e9)
    quick["stack"] = changed(one["stack"], launch_overhead=0.0)
    for label in ("parameter gather", "gradient reduction"):
        wide, narrow = (evaluate(**case) for case in (slow, quick))
        whole = seconds(wide, label) + hidden(wide, label)
        assert seconds(narrow, label) + hidden(narrow, label) == pytest.approx(whole, rel=1e-6), label
        assert seconds(wide, label) <= seconds(narrow, label) * (1.0 + ROUNDING)


def test_a_stage_without_layers_gathers_none() -> None:
    """Stages cut with the embedding and the head as one layer each: a short model leaves them alone on theirs."""
    model, stack = (
        changed(CATALOG.model("llama-3.1-8b"), layers=2),
        changed(CATALOG.stack("mlm-2023"), stage_cut="edges"),
    )
    plan, run = Plan(pp=4, dp_shard=8.0), Run(seq_len=2048.0, global_batch=32.0)
    work = demand.collect(model, plan, run, stack)
    charges = price.prices(island(32.0), stack, plan, 2.0)
    pieces = {name: piece(block, charges, stack) for name, block in work.blocks.items()}
    assert work.counts == (0, 1, 1, 0)
    for stage in work.stages:
        slot = micro_batch(stage, pieces, plan, stack)
        edge = pieces["embedding"] if stage.embedding else pieces["head"] if stage.head else None
        shown = slot.exposed["parameter gather"] + slot.hidden["parameter gather"]
        layer = pieces["layer"].gather.seconds + pieces["layer"].gather_again.seconds
        assert shown == pytest.approx(edge.gather.seconds if edge else layer, rel=1e-12)
        gathered = memory._gathered(work, plan, stage)
        held = work.blocks["embedding" if stage.embedding else "head" if stage.head else "layer"].held
        assert gathered == held * (2.0 + 4.0 + 2.0)  # gathered, and its gradient before and after the cast


@law
@given(data=st.data())
def test_recomputing_more_takes_longer_and_keeps_less(question: Any, data: Any) -> None:
    one = data.draw(question)
    one["plan"] = changed(one["plan"], offload=())  # what is not kept is not copied either
    found = [
        evaluate(**one | {"plan": changed(one["plan"], recompute=policy)}) for policy in ("none", "selective", "full")
    ]
    every = [
        evaluate(**one | {"plan": changed(one["plan"], recompute=policy)})
        for policy in ("none", *(f"every-{every}" for every in (4, 2) if every <= one["model"].layers), "full")
    ]
    for less, more in [*pairwise(found), *pairwise(every)]:
        again, further = seconds(less, "recompute"), seconds(more, "recompute")
        elsewhere = one["plan"].pp > 1 and again == further == 0.0  # a stage without layers may be the slowest
        assert again < further or less.hardware_flops == more.hardware_flops or elsewhere
        assert less.step_time <= more.step_time * (1.0 + ROUNDING) + straggling(more, less)
        assert held(less, "activations") >= held(more, "activations") * (1.0 - ROUNDING)
        assert less.memory_allocated >= more.memory_allocated * (1.0 - ROUNDING)
    assert seconds(found[0], "recompute") == 0.0
    assert found[0].hardware_flops == found[0].model_flops


@law
@given(data=st.data())
def test_sharding_more_holds_less(question: Any, data: Any) -> None:
    one = unpiped(data.draw(question))
    shards = data.draw(st.sampled_from([2.0, 8.0, 64.0]))
    plan = changed(whole_experts(one["plan"]), dp_shard=shards, master_dtype="fp32", offload=(), trainable="all")
    one["stack"] = changed(one["stack"], accumulate="usual")
    names = ("ddp", "zero1", "zero2", "fsdp")
    found = {n: held(evaluate(**one | {"plan": changed(plan, sharding=n)}), *STATES) for n in names}
    assert found["fsdp"] <= found["zero2"] * (1.0 + ROUNDING)
    assert found["zero2"] < found["zero1"] <= found["ddp"]
    nothing = optimizer.state(plan) == 0.0 and precision.recipe(plan.precision).width == 4.0
    assert (found["zero1"] == found["ddp"]) == nothing, "there is a master or a moment to shard"
    whole = held(evaluate(**one | {"plan": changed(plan, sharding="fsdp", dp_shard=1.0, cp=1.0)}), *STATES)
    assert found["fsdp"] == pytest.approx(whole / (plan.dp_shard * plan.cp), rel=1e-12)


@given(
    pp=st.integers(1, 32), passes=st.integers(1, 64), slot=st.floats(1e-3, 10.0), virtual=st.integers(2, 8),
    name=st.sampled_from(["gpipe", "1f1b"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_bubble_of_equal_stages(pp: int, passes: int, slot: float, virtual: int, name: str) -> None:
    slots = [Slot(first=0, count=pp, forward=slot / 3.0, input_grad=slot / 3.0, weight_grad=slot / 3.0)]
    bubble = schedule(name).makespan(slots, float(passes), 1, 0.0) - passes * slot
    assert bubble / (passes * slot) == pytest.approx((pp - 1) / passes, rel=1e-9, abs=1e-12)
    groups = float(passes * pp)  # interleaving takes micro-batches in groups of pp
    interleaved = schedule("interleaved").makespan(slots, groups, virtual, 0.0) - groups * slot
    assert interleaved == pytest.approx(bubble / virtual, rel=1e-9, abs=1e-9 * slot * groups)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_the_bubble_of_a_deep_model_is_that_of_equal_stages(pp: int) -> None:
    """With very many layers the embedding and the head weigh nothing, so that the stages of a real model are equal."""
    model = changed(CATALOG.model("llama-3.1-8b"), layers=65536)
    stack = changed(CATALOG.stack("mlm-2021"), pipeline_overlap=True, step_overhead=0.0)
    plan, passes = Plan(pp=pp, sharding="none"), 16.0

    def bubble(changes: dict[str, Any]) -> tuple[float, float]:
        found = evaluate(
            model, island(float(pp)), changed(plan, **changes), Run(seq_len=2048.0, global_batch=passes), stack
        )
        work = float(found.step_time) - seconds(found, "pipeline bubble") - seconds(found, "optimizer")
        return seconds(found, "pipeline bubble"), work

    plain, work = bubble({})
    assert plain / work == pytest.approx((pp - 1) / passes, rel=2e-3)
    for virtual in (2, 4):
        chunks, _ = bubble({"schedule": "interleaved", "virtual_stages": virtual})
        assert chunks == pytest.approx(plain / virtual, rel=1e-3)


@law
@given(data=st.data())
def test_ratios_are_ratios(question: Any, data: Any) -> None:
    one = data.draw(question)
    dtype = "bf16" if "bf16" in one["island"].accelerator.peak else "fp16"
    one["plan"] = changed(one["plan"], precision=dtype)
    found = evaluate(**one)
    mfu = found.model_flops / (found.step_time * found.peak_flops)
    hfu = found.hardware_flops / (found.step_time * found.peak_flops)
    assert 0.0 < mfu <= 1.0
    assert hfu >= mfu
    assert found.compute_seconds <= found.step_time


@pytest.mark.parametrize("sharding", ["fsdp", "zero1", "ddp"])
def test_a_tier_above_the_node_costs_nothing_at_full_rate_and_never_speeds_up(sharding: str) -> None:
    """A port carries all that leaves its unit, so that cutting the fabric into levels of full rate moves no more and no less."""
    model, stack = CATALOG.model("llama-3.1-8b"), CATALOG.stack("titan-compile")
    degrees: Any = {"dp_replicate": 64.0} if sharding == "ddp" else {"dp_shard": 64.0}
    run, plan = Run(seq_len=4096.0, global_batch=64.0), Plan(sharding=sharding, **degrees)
    inner = Tier(name="up", size=8.0, bandwidth=4.5e11, share=0.8, latency=4e-5)

    def step(*outer: tuple[float, float]) -> float:
        fabric = [
            Tier(name="f", size=n, bandwidth=rate, share=0.9, latency=8e-5, latency_base=2e-5) for n, rate in outer
        ]
        return float(evaluate(model, island(64.0, inner, *fabric), plan, run, stack).step_time)

    flat = step((64.0, 2.5e9))
    assert step((32.0, 2.5e9), (64.0, 2.5e9)) == pytest.approx(flat, rel=0.03)
    slower = [step((32.0, 2.5e9), (64.0, 2.5e9 / over)) for over in (1.0, 4.0, 16.0, 64.0)]
    assert slower == sorted(slower)
    assert slower[-1] > 1.5 * flat
