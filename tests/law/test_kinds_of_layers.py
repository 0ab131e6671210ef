"""Layers of several kinds: windows, latents, recurrences, prediction modules, patterns over stages — against counts written out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardmeter.core.record import changed
from shardmeter.engine import demand
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import _attention, _kinds, decoder
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Model, Plan, Run
from shardmeter.specs.demands import FORWARD
from shardmeter.strategies import adapters, context, tensor

CATALOG = load_catalog()
STACK = CATALOG.stack("titan-compile")
ISLAND = build_island(
    accelerator=CATALOG.accelerator("H100-SXM5-80GB"), nodes=8.0, gpus_per_node=8.0, fabric=CATALOG.fabric("ib-ndr400")
)
PATTERNED = (
    "gemma-3-4b",
    "gpt-oss-20b",
    "llama-4-maverick",
    "qwen3-next-80b-a3b",
    "nemotron-3-nano-30b-a3b",
    "deepseek-v3",
)


def step(model: Model, plan: Plan, seq: float = 4096.0, batch: float = 64.0, **stack: Any) -> Any:
    return evaluate(model, ISLAND, plan, Run(seq_len=seq, global_batch=batch), changed(STACK, **stack))


@pytest.mark.parametrize(("seq", "window"), [(64, 1), (64, 16), (64, 63), (64, 64), (64, 100), (1000, 128)])
def test_a_window_does_the_pairs_that_its_queries_see(seq: int, window: int) -> None:
    """The first queries see themselves and all before them; a diagonal pair counts half until the window is full."""
    model = changed(CATALOG.model("gemma-2-2b"), window=float(window))
    pairs = sum(min(query + 1, window) for query in range(seq))
    seen, share = _attention.keys_seen(model, "w", float(seq))
    assert seq * seen * share == pytest.approx(pairs - min(window, seq) / 2.0, rel=1e-12)


@pytest.mark.parametrize(("seq", "chunk"), [(64, 8), (64, 64), (64, 128), (4096, 1024)])
def test_a_chunk_does_the_pairs_inside_it(seq: int, chunk: int) -> None:
    model = changed(CATALOG.model("llama-4-scout"), window=float(chunk))
    pairs = sum(query % chunk + 1 for query in range(seq))
    seen, share = _attention.keys_seen(model, "c", float(seq))
    assert seq * seen * share == pytest.approx(pairs - seq / 2.0, rel=1e-12)


@pytest.mark.parametrize("mixer", ["w", "c"])
def test_a_window_as_long_as_the_sequence_is_full_attention(mixer: str) -> None:
    model = CATALOG.model("llama-3.1-8b")
    plan = Plan(dp_shard=64.0)
    full, seen = (step(one, plan) for one in (model, changed(model, mixers=mixer, window=4096.0)))
    assert full.step_time == seen.step_time
    assert full.model_flops == seen.model_flops
    assert step(changed(model, mixers=mixer, window=1024.0), plan).step_time < full.step_time


def test_a_latent_layer_holds_what_the_paper_writes_down() -> None:
    """DeepSeek-V3's attention (h 7168, 128 heads, 1536 and 512 latents, 128 + 64 and 128 wide heads), written out."""
    block = decoder.blocks(CATALOG.model("deepseek-v3"))[1]
    down = 7168 * 1536 + 7168 * (512 + 64)
    up = 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168
    assert block.matrices == up + 3 * 7168 * 18432
    assert block.vectors == down + 1536 + 512 + 2 * 7168
    held = tensor.held(block, Plan(tp=4.0))
    assert held == (up + 3 * 7168 * 18432) / 4 + down + 1536 + 512 + 2 * 7168, "the way down is whole on every rank"


def test_scores_of_unequal_heads_take_both_widths() -> None:
    model = CATALOG.model("deepseek-v2-lite")
    ops = decoder.operations(model, "layer", 4096.0, 2048.0, "compiled")
    (core,) = [op for op in ops if op.kind == "attention" and op.phase == FORWARD]
    assert core.flops == 2 * 4096 * 2048 * 16 * (192 + 128)


def test_a_mamba_layer_holds_and_does_what_the_paper_writes_down() -> None:
    """Nemotron-H 8B: h 4096, 128 heads of 64, state 128, 8 groups, convolution over 4, chunks of 128; per token and layer."""
    model = CATALOG.model("nemotron-h-8b")
    block = decoder.blocks(model)[1]
    inner, keys, heads = 128 * 64, 8 * 128, 128
    assert block.name == "mamba layer"
    assert block.matrices == 4096 * (2 * inner + 2 * keys + heads) + inner * 4096
    assert block.vectors == (inner + 2 * keys) * (4 + 1) + 3 * heads + inner + 4096
    tokens, chunk = 4096, 128
    macs = 0
    for _ in range(tokens // chunk):
        macs += 8 * chunk * chunk * 128  # queries with keys, each group
        macs += heads * chunk * chunk * 64  # their scores with values, each head
        macs += heads * 128 * chunk * 64  # the state that the chunk adds
        macs += heads * chunk * 128 * 64  # what the state before it gives out
    ops = decoder.operations(model, block.name, float(tokens), 4096.0, "compiled")
    assert sum(op.flops for op in ops if op.split == "batch" and op.phase == FORWARD) == 2 * macs
    longer = decoder.operations(model, block.name, float(tokens), 65536.0, "compiled")
    assert sum(op.flops for op in longer) == sum(op.flops for op in ops), (
        "a token's work does not grow with the sequence"
    )


@pytest.mark.parametrize("name", PATTERNED)
@pytest.mark.parametrize("pp", [1, 2, 4, 6])
def test_stages_of_a_pattern_hold_the_layers_that_stand_there(name: str, pp: int) -> None:
    model = CATALOG.model(name)
    plan, run = Plan(pp=pp, dp_shard=4.0, ep=4.0 if model.experts else 1.0), Run(seq_len=4096.0, global_batch=8.0)
    work = demand.collect(model, plan, run, STACK)
    kinds = [kind.name for kind in _kinds.kinds(model)]
    line = [work.stages[kind] for kind, _, count in work.runs for _ in range(count)]
    start = 0
    for stage in line:
        assert Counter(dict(stage.contents)) == Counter(kinds[start : start + stage.layers])
        start += stage.layers
    assert start == len(kinds) == model.layers + model.mtp
    held = [(stage.count, demand.gradient_parameters(work, stage)) for stage in work.stages]
    tied = model.vocab * model.hidden if model.tied and pp > 1 else 0.0
    assert sum(n * (own.dense + plan.ep * own.experts) for n, own in held) == decoder.parameters(model) + tied
    assert all(len(stage.contents) == len(dict(stage.contents)) for stage in line), "each kind once"


def test_a_prediction_module_is_a_layer_a_projection_and_the_head_again() -> None:
    model = CATALOG.model("deepseek-v3")
    without = changed(model, mtp=0)
    more = decoder.active_matrices(model) - decoder.active_matrices(without)
    routed = decoder.blocks(without)[2]
    layer = routed.matrices + 7168 * (1536 + 512 + 64) + 7168 * 256 + 8 * 3 * 7168 * 2048
    assert more == layer + 2 * 7168 * 7168 + 129280 * 7168


@pytest.mark.parametrize(
    ("recompute", "directions"),
    [("none", 2.0), ("selective", 2.0), ("full", 3.0), ("every-2", 2.5), ("moe", 3.0), ("moe_act+layernorm", 2.0)],
)
def test_waiting_for_the_host_is_paid_by_every_layer_with_experts(recompute: str, directions: float) -> None:
    """Once a layer, micro-batch and direction; again where a layer runs again. Nothing without experts."""
    model, wait = CATALOG.model("llama-4-maverick"), 1e-3
    plan = Plan(dp_shard=64.0, ep=8.0, sharding="zero1", recompute=recompute)
    alone = {"gradient_overlap": False, "gather_overlap": False}  # else what waits hides reductions
    without, waiting = (step(model, plan, batch=256.0, dispatch_wait=seconds, **alone) for seconds in (0.0, wait))
    expected = 24.0 * 4.0 * directions * wait
    assert waiting.step_time - without.step_time == pytest.approx(expected, rel=1e-9)
    assert {term.label: term.seconds for term in waiting.terms}["dispatch wait"] == pytest.approx(expected)
    dense, plan = CATALOG.model("llama-3.1-8b"), changed(plan, ep=1.0)
    assert step(dense, plan, dispatch_wait=wait).step_time == step(dense, plan).step_time


def test_a_recurrence_exchanges_tokens_for_heads_and_an_mlp_alone_nothing() -> None:
    model, plan = CATALOG.model("nemotron-h-8b"), Plan(cp=4.0, tp=2.0)
    blocks = {block.name: block for block in decoder.blocks(model)}
    found = context.transfers(model, blocks["mamba layer"], 1024.0, plan, 2.0, False)
    moved = 2 * 8192 + 2 * 1024 + 128 + 8192
    assert [(t.collective, t.size) for t in found] == [("all_to_all", 1024 * moved / 2 * 2.0)] * 2
    assert context.transfers(model, blocks["mlp layer"], 1024.0, plan, 2.0, False) == ()
    assert len(context.transfers(model, blocks["attention layer"], 1024.0, plan, 2.0, False)) == 3


def test_frozen_layers_of_a_pattern_are_those_that_stand_before() -> None:
    """Gemma 2 alternates: of layers 0 to 25, the last four are two of each kind."""
    blocks = {block.name: block for block in decoder.blocks(CATALOG.model("gemma-2-2b"))}
    for name in ("window layer", "layer"):
        assert adapters.weight_share("layer:22-25", blocks[name]) == 2.0 / 13.0
        assert adapters.input_share("layer:22-25", blocks[name]) == 2.0 / 13.0
    assert adapters.weight_share("layer:0", blocks["window layer"]) == 1.0 / 13.0
    assert adapters.weight_share("layer:0", blocks["layer"]) == 0.0
    assert adapters.input_share("layer:0", blocks["layer"]) == 1.0


@pytest.mark.parametrize("name", PATTERNED)
def test_every_kind_keeps_and_moves_something(name: str) -> None:
    """A step has time and memory, with tp, cp, and recomputation; less is kept where more runs again."""
    model = CATALOG.model(name)
    plan = Plan(tp=2.0, cp=2.0, dp_shard=16.0, ep=4.0 if model.experts else 1.0, sharding="zero1")
    none, full = (step(model, changed(plan, recompute=word)) for word in ("none", "full"))
    assert none.step_time < full.step_time
    assert none.memory_peak > full.memory_peak
