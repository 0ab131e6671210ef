"""Questions drawn at random: one structure (names, ints, lengths of axes), and any number of settings of its numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Accelerator, Island, Plan, Run, Tier
from shardmeter.specs.plan import AXES, SHARDINGS
from shardmeter.strategies.offload import KINDS
from shardmeter.strategies.optimizer import OPTIMIZERS
from shardmeter.strategies.precision import RECIPES

CATALOG = load_catalog()
MODELS = tuple(CATALOG.model(name) for name in CATALOG.names("models"))
MIXTURES = tuple(model for model in MODELS if model.experts)
DEVICES = tuple(
    device for device in map(CATALOG.accelerator, CATALOG.names("accelerators")) if {"bf16", "fp16"} & set(device.peak)
)
STACKS = tuple(CATALOG.stack(name) for name in CATALOG.names("stacks"))
RECOMPUTE = ("none", "selective", "full", "every-2", "2-of-3")
LISTED = "core_attn+layernorm"
"""A list of operations: of decoders only."""
PARTED = ("dual_encoder", "multimodal", "encoder_decoder")
"""Families with layers of several parts, which the rules keep from pipelines, muon, offloading and ranges of layers."""
Question = dict[str, Any]
"""The five records that `evaluate` takes, by name."""


def share(low: float, high: float = 1.0) -> st.SearchStrategy[float]:
    """A float between two bounds; nothing so small that halving it rounds."""
    return st.floats(low, high) if low else st.just(0.0) | st.floats(high * 1e-6, high)


@st.composite
def structures(draw: st.DrawFn) -> Question:
    """Model, plan, stack, accelerator and number of tiers: what must be equal inside one batch. Its numbers are not drawn yet."""
    model = draw(st.sampled_from(MODELS) | st.sampled_from(MIXTURES))
    device = draw(st.sampled_from(DEVICES))
    stack = draw(st.sampled_from(STACKS))
    stacked_once = model.family not in PARTED
    fewest = int(model.layers) if stacked_once else 1
    pp = draw(st.sampled_from([n for n in (1, 1, 2, 3, 4, 8) if n <= fewest]))
    rounds = [v for v in (2, 3, 4) if v * pp <= fewest]
    schedule = draw(st.sampled_from(["gpipe", "1f1b", *(["interleaved"] if pp > 1 and rounds else [])]))
    sharding = draw(st.sampled_from(SHARDINGS))
    plan = Plan(
        pp=pp,
        schedule=schedule,
        virtual_stages=draw(st.sampled_from(rounds)) if schedule == "interleaved" else 1,
        sharding=sharding,
        reshard=draw(st.booleans()),
        recompute=draw(st.sampled_from([*RECOMPUTE, *[LISTED] * (model.family == "decoder")])),
        precision=draw(st.sampled_from([word for word, one in RECIPES.items() if set(one.needs) <= set(device.peak)])),
        gather_dtype=draw(st.sampled_from(["bf16", "fp32"])),
        reduce_dtype=draw(st.sampled_from(["bf16", "fp32"])),
        optimizer=draw(st.sampled_from([name for name in OPTIMIZERS if stacked_once or name != "muon"])),
        trainable=draw(
            st.sampled_from(
                ["all", "all", "lora(r=8)", "lora(r=16,on=qkv)", "head", *["layer:1-2+embedding"] * stacked_once]
            )
        ),
        offload=tuple(
            kind
            for kind in KINDS
            if draw(st.integers(0, 7)) == 0 and stacked_once and (kind != "parameters" or sharding in ("fsdp", "zero3"))
        ),
        master_dtype=draw(st.sampled_from(["fp32", "bf16"])),
        sequence_parallel=draw(st.booleans()),
        cp_kind=draw(st.sampled_from(["ring", "all-gather", "ulysses"])),
        async_tp=draw(st.booleans()),
        rank_order=tuple(draw(st.permutations(AXES))) if draw(st.booleans()) else AXES,
    )
    changes = {
        "gradient_overlap": draw(st.booleans()),
        "gather_overlap": draw(st.booleans()),
        "pipeline_overlap": draw(st.booleans()),
        "expert_overlap": draw(st.booleans()),
        "context_overlap": draw(st.booleans()),
        "gradient_copy": draw(st.booleans()),
        "selective": draw(st.sampled_from(["attention", "alternate"])),
        "accumulate": draw(st.sampled_from(["usual", "usual", "last", "every"])),
        "stage_cut": draw(st.sampled_from(["even", "even", "cost"])),
    }
    others = [None, None, None, model, draw(st.sampled_from([one for one in MODELS if one.family == model.family]))]
    return {
        "model": model, "device": device, "plan": plan, "stack": changed(stack, **changes),
        "tiers": draw(st.integers(1, 3)), "reference": draw(st.sampled_from(others)) if pp == 1 else None,
    }  # fmt: skip


@st.composite
def settings_of(draw: st.DrawFn, structure: Question) -> Question:
    """One question of a structure: every number drawn, those of the stack and of the hardware too."""
    plan, model = structure["plan"], structure["model"]
    alone = plan.sharding == "none"
    plan = changed(
        plan,
        tp=draw(st.sampled_from([1.0, 1.0, 2.0, 4.0, 8.0])),
        cp=draw(st.sampled_from([1.0, 1.0, 2.0, 4.0] if model.family in ("decoder", "encoder") else [1.0])),
        dp_shard=1.0 if alone else draw(st.sampled_from([1.0, 2.0, 3.0, 8.0, 64.0])),
        dp_replicate=1.0 if alone else draw(st.sampled_from([1.0, 1.0, 2.0, 5.0, 16.0])),
        micro_batch=draw(st.sampled_from([1.0, 2.0, 3.0, 8.0])),
    )
    if model.experts:
        whole = plan.tp if not plan.sequence_parallel else draw(st.sampled_from([1.0, plan.tp]))
        ranks = plan.tp * plan.cp * plan.dp_shard / whole
        legal = [ep for ep in (1.0, 1.0, 2.0, 4.0, 8.0, 64.0) if model.experts % ep == ranks % ep == 0.0]
        skew = draw(st.sampled_from([1.0, 1.0, 1.25, 2.0]))
        plan = changed(plan, etp=whole, ep=draw(st.sampled_from(legal)), expert_skew=skew)
    passes = float(draw(st.integers(1, 8)) * plan.pp)
    run = Run(
        seq_len=draw(st.sampled_from([256.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0])),
        global_batch=plan.dp * plan.micro_batch * passes,
        reference=structure["reference"],
    )
    stack = changed(
        structure["stack"],
        gemm_factor=draw(share(0.45, 1.05)), traffic_factor=draw(share(0.4, 8.0)),
        launch_overhead=draw(share(2e-6, 1e-4)), nic_factor=draw(share(0.05, 1.1)),
        attention_factor=draw(share(0.5)), scale_up_factor=draw(share(0.3)), contention=draw(share(0.0)),
        step_overhead=draw(share(0.0, 0.1)), jitter=draw(share(0.0, 0.1)), fragmentation=draw(share(0.0, 0.2)), context=draw(share(0.5e9, 4e9)),
        launches_forward=draw(share(5.0, 60.0)), launches_backward=draw(share(5.0, 90.0)),
    )  # fmt: skip
    island = draw(islands(structure["device"], structure["tiers"], float(plan.gpus)))
    return {"model": model, "island": island, "plan": plan, "run": run, "stack": stack}


@st.composite
def islands(draw: st.DrawFn, device: Accelerator, tiers: int, gpus: float) -> Island:
    """An island of `gpus` devices whose rates, latencies and power are drawn around those of the device."""
    power = device.power or 500.0
    drawn = changed(
        device,
        memory_bandwidth=device.memory_bandwidth * draw(share(0.5, 2.0)),
        memory=device.memory * draw(share(0.5, 2.0)),
        processors=draw(share(0.0, 160.0)),
        host_link=draw(share(1e10, 5e11)),
        host_memory_bandwidth=draw(share(1e10, 2e11)),
        power=power,
        power_limit=power * draw(share(0.4, 1.2)),
    )
    levels = [
        Tier(
            name=f"tier {level}",
            size=gpus if level == tiers - 1 else float(draw(st.sampled_from([1, 2, 4, 8])) * 8**level),
            bandwidth=device.scale_up_bandwidth / 6.0**level * draw(share(0.3, 3.0)),
            share=draw(share(0.3)),
            latency=draw(share(1e-6, 1e-4)),
            latency_base=draw(share(0.0, 1e-4)),
        )
        for level in range(tiers)
    ]
    ordered: list[Tier] = []
    for level in levels:
        inner = ordered[-1].size if ordered else 1.0
        ordered.append(changed(level, size=max(level.size, inner)))
    return Island(name="drawn", accelerator=drawn, nodes=gpus, gpus_per_node=1.0, tiers=tuple(ordered))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """One question."""
    return draw(settings_of(draw(structures())))


@st.composite
def batches(draw: st.DrawFn) -> list[Question]:
    """Two to five questions of one structure."""
    structure = draw(structures())
    return [draw(settings_of(structure)) for _ in range(draw(st.integers(2, 5)))]


@pytest.fixture(scope="session")
def question() -> st.SearchStrategy[Question]:
    """Draws one question."""
    return questions()


@pytest.fixture(scope="session")
def batch() -> st.SearchStrategy[list[Question]]:
    """Draws several questions of one structure."""
    return batches()
