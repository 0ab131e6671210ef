"""A frozen model beside the trained one: the step with it is the step without it and one forward pass for every micro-batch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shardmeter.core.record import changed, stacked
from shardmeter.engine.evaluate import evaluate, priced
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Estimate, Island, Model, Plan, Run

CATALOG = load_catalog()
STACK = CATALOG.stack("titan-compile")
MODEL = CATALOG.model("llama-3.1-8b")
LABEL = "reference model"
NAMES = ("llama-3.1-8b", "mixtral-8x7b", "nemotron-h-8b", "bert-large", "vit-base-patch16-224", "clip-vit-b-32",
         "llava-1.5-7b", "t5-base", "dit-xl-2")  # fmt: skip
LAYOUTS = {
    "fsdp": Plan(dp_shard=16.0),
    "kept": Plan(dp_shard=16.0, reshard=False),
    "hybrid": Plan(dp_shard=8.0, dp_replicate=2.0),
    "whole": Plan(dp_shard=16.0, sharding="ddp"),
    "zero1, tensor": Plan(tp=2.0, dp_shard=8.0, sharding="zero1", sequence_parallel=False),
    "fsdp, tensor": Plan(tp=2.0, dp_shard=8.0, sequence_parallel=False, micro_batch=2.0),
    "eight bits": Plan(dp_shard=16.0, sharding="ddp", precision="fp8"),
    "replay": Plan(dp_shard=16.0, recompute="full"),
}


def island(gpus: float = 16.0) -> Island:
    node = min(gpus, 8.0)
    return build_island(
        accelerator=CATALOG.accelerator("H100-SXM5-80GB"), nodes=gpus / node, gpus_per_node=node,
        fabric=CATALOG.fabric("ib-ndr400"),
    )  # fmt: skip


def asked(plan: Plan, reference: Model | None, passes: float = 3.0) -> Run:
    return Run(seq_len=1024.0, global_batch=float(plan.dp * plan.micro_batch) * passes, reference=reference)


def of(estimate: Estimate, label: str = LABEL) -> float:
    return sum(float(term.seconds) for term in estimate.terms if term.label == label)


def held(estimate: Estimate, label: str = LABEL) -> float:
    return sum(float(term.size) for term in estimate.memory if term.label == label)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_it_adds_one_forward_of_the_same_model(name: str, layout: str) -> None:
    """In 16 bits a frozen copy of the trained model takes, once for every micro-batch, exactly the trained model's forward."""
    model, plan = CATALOG.model(name), LAYOUTS[layout]
    without = evaluate(model, island(), plan, asked(plan, None), STACK)
    beside = evaluate(model, island(), plan, asked(plan, model), STACK)
    work, _, _, stages = priced(model, island(), plan, asked(plan, None), STACK)
    forward = float(work.micro_batches * stages[0].slot.forward)
    assert of(beside) == pytest.approx(forward, rel=1e-12)
    assert float(beside.step_time) == pytest.approx(float(without.step_time) + forward, rel=1e-12)
    assert 0.0 < forward < float(without.step_time) / 2.0
    same = [term.label for term in without.terms]
    assert [term.label for term in beside.terms if term.label != LABEL] == same
    assert all(of(without, label) == of(beside, label) for label in same)


def test_ratios_count_the_trained_model_alone_and_busy_time_both() -> None:
    plan = LAYOUTS["fsdp"]
    without, beside = (evaluate(MODEL, island(), plan, asked(plan, one), STACK) for one in (None, MODEL))
    assert (beside.model_flops, beside.hardware_flops) == (without.model_flops, without.hardware_flops)
    assert without.compute_seconds < beside.compute_seconds < without.compute_seconds + of(beside) * (1 + 1e-12)
    assert (beside.tokens, beside.samples) == (without.tokens, without.samples)


def test_more_of_a_reference_is_never_faster_nor_smaller() -> None:
    plan = LAYOUTS["fsdp"]
    found = [
        evaluate(MODEL, island(), plan, asked(plan, changed(MODEL, layers=layers)), STACK)
        for layers in (1, 2, 8, 32, 80)
    ]
    assert all(left < right for left, right in itertools.pairwise(map(of, found)))
    assert all(left <= right for left, right in itertools.pairwise(map(held, found)))
    wide = [
        evaluate(MODEL, island(), plan, asked(plan, changed(MODEL, vocab=vocab)), STACK)
        for vocab in (32e3, 128256.0, 256e3)
    ]
    assert all(of(left) < of(right) and held(left) < held(right) for left, right in itertools.pairwise(wide))
    twice = evaluate(MODEL, island(), plan, asked(plan, MODEL, passes=6.0), STACK)
    assert of(twice) == pytest.approx(2.0 * of(found[3]), rel=1e-12)
    assert held(twice) == held(found[3])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
def test_one_rank_moves_nothing(name: str) -> None:
    plan, model = Plan(), CATALOG.model(name)
    slow = [changed(tier, bandwidth=tier.bandwidth / 1e3) for tier in island(1.0).tiers]
    found = evaluate(model, island(1.0), plan, asked(plan, model), STACK)
    slower = evaluate(model, changed(island(1.0), tiers=tuple(slow)), plan, asked(plan, model), STACK)
    assert of(found) == of(slower)
    assert all(float(term.hidden) == 0.0 for term in found.terms if term.label == LABEL)


def test_gathers_hide_or_show_and_are_all_there() -> None:
    """Whole parameters are never gathered; sharded ones are, and over a slow fabric their gathers show."""
    model, run = MODEL, asked(LAYOUTS["fsdp"], MODEL)
    whole = evaluate(model, island(), LAYOUTS["whole"], run, STACK)
    cut = evaluate(model, island(), LAYOUTS["fsdp"], run, STACK)
    slow = changed(island(), tiers=tuple(changed(t, bandwidth=t.bandwidth / 20.0) for t in island().tiers))
    slower = evaluate(model, slow, LAYOUTS["fsdp"], run, STACK)
    hidden = {id(e): sum(float(t.hidden) for t in e.terms if t.label == LABEL) for e in (whole, cut)}
    assert hidden[id(whole)] == 0.0 < hidden[id(cut)]
    assert of(whole) < of(cut) < of(slower)
    assert of(evaluate(model, slow, LAYOUTS["whole"], run, STACK)) == of(whole)


def test_it_holds_its_parameters_and_keeps_nothing_of_its_layers() -> None:
    """16 bits a parameter, divided as the trained ones are; as many activations for one layer as for all of them."""
    plan = LAYOUTS["whole"]
    sizes = [
        held(evaluate(MODEL, island(), plan, asked(plan, changed(MODEL, layers=layers)), STACK))
        for layers in (10, 20, 30)
    ]
    layer = 2.0 * (2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 3.0 * 4096 * 14336 + 2.0 * 4096)
    share = 1.0 + STACK.buffer_share
    assert sizes[1] - sizes[0] == pytest.approx(10.0 * layer * share, rel=1e-9)
    assert sizes[2] - sizes[1] == pytest.approx(10.0 * layer * share, rel=1e-9)
    sharded = [
        held(evaluate(MODEL, island(), LAYOUTS["fsdp"], asked(plan, changed(MODEL, layers=n)), STACK)) for n in (10, 30)
    ]
    stored = 20.0 * layer * (1.0 / 16.0 + STACK.buffer_share)
    assert sharded[1] - sharded[0] == pytest.approx(stored, rel=1e-9)


@pytest.mark.parametrize("change", [
    {"optimizer": "sgd"}, {"master_dtype": "bf16"}, {"reduce_dtype": "bf16"}, {"recompute": "full"},
    {"gather_dtype": "fp32"}, {"trainable": "head"}, {"reshard": False},
])  # fmt: skip
def test_what_only_training_has_does_not_touch_it(change: dict[str, Any]) -> None:
    plan = LAYOUTS["fsdp"]
    usual, other = (evaluate(MODEL, island(), one, asked(one, MODEL), STACK) for one in (plan, changed(plan, **change)))
    assert (of(usual), held(usual)) == (of(other), held(other))


def test_few_bits_are_taken_over() -> None:
    """Products in 8 bits: the same saving as in the trained model's forward, whatever the casts cost beside it."""
    found = [
        evaluate(MODEL, island(), one, asked(one, MODEL), STACK) for one in (LAYOUTS["whole"], LAYOUTS["eight bits"])
    ]
    forwards = [
        float(3.0 * priced(MODEL, island(), one, asked(one, None), STACK)[3][0].slot.forward)
        for one in (LAYOUTS["whole"], LAYOUTS["eight bits"])
    ]
    assert of(found[0]) - of(found[1]) == pytest.approx(forwards[0] - forwards[1], rel=1e-9)
    assert of(found[0]) != of(found[1])


def test_parameters_on_the_host_are_copied_once() -> None:
    plan = LAYOUTS["fsdp"]
    away = changed(plan, offload=("parameters", "activations"))
    usual, found = (evaluate(MODEL, island(), one, asked(one, MODEL), STACK) for one in (plan, away))
    assert held(found) < held(usual)
    device = changed(island().accelerator, host_link=1e9)
    slow = evaluate(MODEL, changed(island(), accelerator=device), away, asked(away, MODEL), STACK)
    copied = 32.0 * 2.0 * (8.03e9 - 2.0 * 128256 * 4096) / 32.0 / 16.0 / (0.8 * 1e9)
    assert of(slow) - of(usual) == pytest.approx(3.0 * copied, rel=0.5)
    assert of(slow) > of(found)


def test_its_ranks_wait_for_the_slowest_too() -> None:
    plan, run = LAYOUTS["fsdp"], asked(LAYOUTS["fsdp"], MODEL)
    stack = changed(STACK, jitter=0.02)
    without = evaluate(MODEL, island(), plan, changed(run, reference=None), stack)
    assert of(evaluate(MODEL, island(), plan, run, stack), "stragglers") > of(without, "stragglers") > 0.0


def test_references_of_one_shape_make_a_batch() -> None:
    """The numbers of the reference itself may be arrays."""
    plan = LAYOUTS["fsdp"]
    runs = [asked(plan, changed(MODEL, ffn=ffn, vocab=vocab)) for ffn, vocab in ((14336.0, 32e3), (8192.0, 256e3))]
    together = evaluate(MODEL, island(), plan, stacked(runs), STACK)
    for place, run in enumerate(runs):
        alone = evaluate(MODEL, island(), plan, run, STACK)
        for many, one in zip(together.terms, alone.terms, strict=True):
            assert np.broadcast_to(many.seconds, 2)[place] == one.seconds
            assert np.broadcast_to(many.hidden, 2)[place] == one.hidden
        for kept, own in zip(together.memory, alone.memory, strict=True):
            assert np.broadcast_to(kept.size, 2)[place] == own.size


def test_images_give_each_model_its_own_patches() -> None:
    """A teacher of smaller patches reads more tokens of the same images."""
    student = CATALOG.model("vit-small-patch16-224")
    plan = changed(LAYOUTS["fsdp"], micro_batch=1024.0)
    run = changed(asked(plan, None), seq_len=197.0)
    coarse, fine = (
        of(evaluate(student, island(), plan, changed(run, reference=changed(student, patch=patch)), STACK))
        for patch in (32.0, 8.0)
    )
    assert fine > 5.0 * coarse
