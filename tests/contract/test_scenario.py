"""Scenarios: what is left out becomes a default and is said; names, islands, tiers and prices resolve as the contract says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.scenario import json_schema, load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.grammar import parse_plan
from shardmeter.scenario.islands import TierInput, build_island
from shardmeter.specs import Scenario

CATALOG = load_catalog()
H100, GB200 = CATALOG.accelerator("H100-SXM5-80GB"), CATALOG.accelerator("GB200")
NDR = CATALOG.fabric("ib-ndr400")


def small(plan: Any = None, gpus: str = "64xH100-SXM5-80GB", **more: Any) -> Scenario:
    return load({"model": "llama-3.1-8b", "gpus": gpus} | ({} if plan is None else {"plan": plan}) | more)


def test_every_default_is_said() -> None:
    scenario = small()
    assert scenario.stack.name == "titan-compile"
    assert (scenario.plan.sharding, scenario.plan.dp_shard, scenario.plan.micro_batch) == ("fsdp", 64.0, 1.0)
    assert (scenario.run.seq_len, scenario.run.global_batch, scenario.run.tokens) == (8192.0, 64.0, None)
    text = "\n".join(scenario.assumptions)
    for word in ("titan-compile", "plan fsdp", "micro_batch", "seq_len", "global_batch", "ib-ndr400", "no tokens"):
        assert word in text
    assert "no price" in scenario.warnings[0]


def test_what_is_said_is_not_assumed() -> None:
    run = {"seq_len": 4096, "global_batch": 128, "tokens": "1.5T"}
    scenario = small("fsdp,micro_batch=2,dp_shard=64,gather_dtype=bf16,reduce_dtype=fp32", stack="titan-eager", run=run)
    assert scenario.run.tokens == 1.5e12
    assert [text for text in scenario.assumptions if not text.startswith("fabric")] == []


def test_dtypes_left_out_are_the_stacks() -> None:
    stack = {"base": "titan-compile", "reduce_dtype": "bf16"}
    assert small(stack=stack).plan.reduce_dtype == "bf16"
    assert small("fsdp,reduce_dtype=fp32", stack=stack).plan.reduce_dtype == "fp32"


@pytest.mark.parametrize(
    ("plan", "shard", "replicate"),
    [
        ("fsdp", 64, 1),
        ("fsdp,tp=8", 8, 1),
        ("fsdp,dp_replicate=4", 16, 4),
        ("fsdp,pp=2,tp=4", 8, 1),
        ("hsdp", 8, 8),
        ("hsdp,tp=2", 4, 8),
        ("fsdp,cp=4", 16, 1),
        ("hsdp,tp=2,cp=2", 2, 8),
        ("hsdp,tp=2,pp=4", 4, 2),
        ("hsdp,dp_shard=16", 16, 4),
        ("ddp", 64, 1),
        ({"sharding": "ddp", "dp_shard": 1, "dp_replicate": 64}, 1, 64),
        ({"dp_shard": "auto", "tp": "2"}, 32, 1),
    ],
)
def test_degrees_left_out(plan: Any, shard: float, replicate: float) -> None:
    made = small(plan).plan
    assert (made.dp_shard, made.dp_replicate) == (shard, replicate)
    assert made.sharding in ("fsdp", "ddp")


def test_experts_and_context_are_read_and_their_defaults_said() -> None:
    scenario = small("fsdp,tp=2,cp=2,ep=8,etp=2", model="mixtral-8x7b")
    plan = scenario.plan
    assert (plan.tp, plan.cp, plan.ep, plan.etp, plan.dp_shard) == (2.0, 2.0, 8.0, 2.0, 16.0)
    assert (plan.cp_kind, plan.expert_skew) == ("ring", 1.0)
    text = "\n".join(scenario.assumptions)
    assert "cp_kind ring" in text
    assert "expert_skew = 1" in text
    said = small("fsdp,cp=2,cp_kind=ulysses,ep=8,expert_skew=1.3", model="mixtral-8x7b")
    assert (said.plan.cp_kind, said.plan.expert_skew) == ("ulysses", 1.3)
    assert "expert_skew" not in "\n".join(said.assumptions)


@pytest.mark.parametrize(
    ("plan", "model", "says"),
    [
        ("fsdp,ep=8", "llama-3.1-8b", "has no experts (ep divides the experts); ep: 1"),
        ("fsdp,ep=16", "mixtral-8x7b", "the nearest legal ep: 8"),
        ("fsdp,tp=2,sequence_parallel=false", "mixtral-8x7b", "sequence_parallel: true, or etp: 2"),
        ("fsdp,tp=4,etp=2", "mixtral-8x7b", "etp: 1 or etp: 4"),
        ("fsdp,cp=64,cp_kind=ulysses", "llama-3.1-8b", "the nearest legal cp: 32; or cp_kind: ring"),
        ("fsdp,expert_skew=0.5", "mixtral-8x7b", "too small"),
    ],
)
def test_every_refusal_of_an_expert_mesh_has_a_way_out(plan: str, model: str, says: str) -> None:
    with pytest.raises(BadScenario) as caught:
        small(plan, model=model)
    assert says in str(caught.value)


def test_a_mixture_of_ones_own() -> None:
    shape: dict[str, Any] = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1000, "experts": 16, "top_k": 2}
    made = small("fsdp,ep=8", gpus="8xH100-SXM5-80GB", model=shape | {"moe_ffn": 256}).model
    assert (made.experts, made.top_k, made.moe_ffn, made.ffn) == (16.0, 2.0, 256.0, 256.0)
    with pytest.raises(BadScenario, match="moe_ffn: must be above zero"):
        small(model=shape | {"ffn": 256})
    with pytest.raises(BadScenario, match="17 experts for a token, but there are 16"):
        small(model=shape | {"moe_ffn": 256, "top_k": 17})
    with pytest.raises(BadScenario, match="leaves no layer with experts"):
        small(model={"base": "mixtral-8x7b", "dense_first": 32})


def test_hsdp_needs_a_whole_share_of_the_domain() -> None:
    with pytest.raises(BadScenario, match="no whole number"):
        small("hsdp,tp=16")


def test_a_batch_in_tokens_is_rounded_and_said() -> None:
    scenario = small(run={"global_batch": "8M tokens"})
    assert scenario.run.global_batch == 960.0
    assert any("8M tokens are 976.6" in text for text in scenario.assumptions)
    assert small(run={"global_batch": "1_048_576 tokens"}).run.global_batch == 128.0


def test_a_gpu_without_bf16_computes_in_fp16() -> None:
    scenario = small(gpus="8xV100-SXM2-32GB")
    assert scenario.plan.precision == "fp16"
    assert any("no bf16" in text for text in scenario.assumptions)


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node"),
    [("1xH100-SXM5-80GB", 1, 1), ("6xH100-SXM5-80GB", 1, 6), ("16 x H100-SXM5-80GB", 2, 8), ("72xGB200", 18, 4),
     ("1kxH100-SXM5-80GB", 125, 8)],
)  # fmt: skip
def test_short_form(gpus: str, nodes: float, per_node: float) -> None:
    island = small("ddp", gpus).fleet.islands[0]
    assert (island.nodes, island.gpus_per_node) == (nodes, per_node)


def test_numbers_are_plain_python_numbers() -> None:
    scenario = small("hsdp,tp=2", run={"tokens": np.float64(1e12), "seq_len": np.int64(4096)})

    def walk(value: Any) -> None:
        if is_dataclass(value):
            for field in fields(value):
                walk(getattr(value, field.name))
        elif isinstance(value, (tuple, list)):
            for item in value:
                walk(item)
        else:
            assert not isinstance(value, (np.generic, np.ndarray))

    walk(scenario)
    assert type(scenario.plan.pp) is int
    assert type(scenario.plan.tp) is float
    assert type(scenario.run.seq_len) is float


def test_overrides_win_over_options_and_those_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nplan: fsdp,tp=2\nrun: {seq_len: 4096, steps: 10}\n")
    options = {"gpus": "16xH100-SXM5-80GB", "micro_batch": "4", "tokens": "1T", "seq": "2048"}
    scenario = load(file, options=options, overrides=["plan.micro_batch=2", "stack.launch_overhead=6 us"])
    assert scenario.fleet.gpus == 16
    assert (scenario.plan.tp, scenario.plan.micro_batch) == (2, 2)
    assert (scenario.run.tokens, scenario.run.steps, scenario.run.seq_len) == (1e12, None, 2048)
    assert (scenario.stack.name, scenario.stack.launch_overhead) == ("titan-compile", 6e-6)


def test_list_items_by_index_or_name() -> None:
    islands = [{"name": "oregon", "accelerator": "H100-SXM5-80GB", "nodes": 1}]
    data = {"model": "llama-3.1-8b", "fleet": {"islands": islands}}
    assert load(data, overrides=["fleet.islands.oregon.nodes=4"]).fleet.gpus == 32
    assert load(data, overrides=["fleet.islands.0.nodes=2"]).fleet.gpus == 16
    assert islands[0]["nodes"] == 1
    priced = load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"}, overrides=["fleet.islands.0.price=$16/node/h"])
    assert priced.fleet.islands[0].price == pytest.approx(2 / 3600)


def test_json_toml_and_yaml_mean_the_same(tmp_path: Path) -> None:
    texts = {
        "s.yaml": "model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nplan: {tp: 2}\nrun: {tokens: 1T}\n",
        "s.json": '{"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": {"tp": 2}, "run": {"tokens": "1T"}}',
        "s.toml": 'model = "llama-3.1-8b"\ngpus = "8xH100-SXM5-80GB"\nplan = {tp = 2}\n[run]\ntokens = "1T"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    first, *others = [load(tmp_path / name) for name in texts]
    assert all(other == first for other in others)
    assert load(texts["s.yaml"]) == first
    assert load(texts["s.json"]) == first


def test_an_accelerator_with_some_fields_changed() -> None:
    own = {
        "base": "H100-SXM5-80GB",
        "memory_bandwidth": "2400 GB/s",
        "power_limit": "500 W",
        "peak": {"bf16": "800 TFLOP/s"},
    }
    island = load({"model": "llama-3.1-8b", "fleet": {"islands": [{"accelerator": own, "nodes": 1}]}}).fleet.islands[0]
    made = island.accelerator
    assert (made.memory_bandwidth, made.power_limit, made.peak["bf16"]) == (2.4e12, 500.0, 800e12)
    assert made.peak["fp8"] == H100.peak["fp8"]
    assert made.name == H100.name


def test_a_changed_model_loses_its_published_count() -> None:
    assert small(model={"base": "llama-3.1-8b", "layers": 4}).model.parameters is None
    own = {"layers": 2, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": "32k"}
    model = small("ddp", model=own).model
    assert (model.layers, model.kv_heads, model.head_dim, model.vocab) == (2, 8, 64, 32000)


def test_an_instance_fills_gpu_fabric_and_price() -> None:
    data = {"model": "llama-3.1-8b", "fleet": {"islands": [{"instance": "p5.48xlarge", "nodes": 2}]}}
    island = load(data).fleet.islands[0]
    row = CATALOG.instance("p5.48xlarge")
    assert island.accelerator.name == row.accelerator
    assert island.gpus == 16
    assert row.price is not None
    assert row.scale_out is not None
    assert island.price == pytest.approx(row.price / 8)
    assert island.tiers[1].bandwidth == pytest.approx(row.scale_out / 8)
    spot = load(data, overrides=["fleet.islands.0.spot=true"]).fleet.islands[0]
    assert spot.price == pytest.approx(row.spot / 8 if row.spot else None)


def test_an_island_may_override_the_plan() -> None:
    islands = [{"accelerator": "H100-SXM5-80GB", "nodes": 1, "plan": {"tp": 4}}]
    scenario = load({"model": "llama-3.1-8b", "fleet": {"islands": islands}, "plan": "fsdp,tp=2,recompute=full"})
    assert (scenario.plan.tp, scenario.plan.recompute) == (4, "full")


# islands


def test_one_domain_has_no_fabric() -> None:
    island = build_island(accelerator=H100, nodes=1, gpus_per_node=4, fabric=None)
    assert [tier.size for tier in island.tiers] == [4]
    assert build_island(accelerator=GB200, nodes=18, gpus_per_node=4, fabric=None).tiers[0].size == 72


def test_the_domain_comes_from_the_row_and_never_from_the_node() -> None:
    island = build_island(accelerator=GB200, nodes=36, gpus_per_node=4, fabric=NDR)
    assert [tier.size for tier in island.tiers] == [72, 144]
    assert island.tiers[0].bandwidth == GB200.scale_up_bandwidth


def test_rates_are_per_accelerator_unless_nics_are_counted() -> None:
    def rate(**more: Any) -> float:
        return float(build_island(accelerator=H100, nodes=2, gpus_per_node=8, **more).tiers[1].bandwidth)

    assert rate(fabric=NDR) == 50e9
    assert rate(fabric=NDR, nics=4) == 25e9
    efa = CATALOG.fabric("efa-v2")
    assert rate(fabric=efa) == pytest.approx(efa.bandwidth * (efa.nics_per_node or 0) / 8)


def test_oversubscription_divides_what_leaves_a_unit() -> None:
    tiers = (TierInput(name="pod", nodes=4, oversubscription=3), TierInput(name="hall", nodes=16, oversubscription=2))
    island = build_island(accelerator=H100, nodes=64, gpus_per_node=8, fabric=NDR, tiers=tiers)
    assert [tier.size for tier in island.tiers] == [8, 32, 128, 512]
    assert [tier.bandwidth for tier in island.tiers[1:]] == pytest.approx([50e9, 50e9 / 3, 50e9 / 6])
    inside = build_island(accelerator=H100, nodes=4, gpus_per_node=8, fabric=NDR, tiers=tiers)
    assert [tier.size for tier in inside.tiers] == [8, 32]


def test_a_tier_that_changes_nothing_is_none() -> None:
    def island(tiers: list[dict[str, Any]] | None) -> Any:
        data = {"accelerator": "H100-SXM5-80GB", "nodes": 8, "gpus_per_node": 8, "tiers": tiers}
        return load({"model": "llama-3.1-8b", "fleet": {"islands": [data]}})

    plain = island(None).fleet
    assert island([{"nodes": 4, "oversubscription": 1}]).fleet == plain
    assert island([{"nodes": 4}, {"nodes": 8, "oversubscription": 2}]).fleet == plain
    assert len(island([{"nodes": 4, "oversubscription": 2}]).fleet.islands[0].tiers) == 3
    for nodes in (8, 100):
        scenario = island([{"nodes": nodes, "oversubscription": 2}])
        assert scenario.fleet == plain
        assert any("it has no effect" in warning for warning in scenario.warnings)
    with pytest.raises(BadScenario, match="8 nodes are no whole number of tier 1 of 3"):
        island([{"nodes": 3, "oversubscription": 2}])


def test_tiers_that_do_not_nest_and_a_missing_fabric() -> None:
    tiers = (TierInput(name="pod", nodes=4), TierInput(name="hall", nodes=6))
    with pytest.raises(BadScenario, match="whole number of the one inside"):
        build_island(accelerator=H100, nodes=64, gpus_per_node=8, fabric=NDR, tiers=tiers)
    with pytest.raises(BadScenario, match="no fabric"):
        build_island(accelerator=H100, nodes=2, gpus_per_node=8, fabric=None)


# grammar and schema


def test_the_plan_grammar() -> None:
    line = "fsdp, tp=8 ,recompute=full,reshard=false,rank_order=[tp,pp],trainable=lora(r=16,a=2),H=100,sync.bits=8"
    assert parse_plan(line) == {
        "sharding": "fsdp",
        "tp": 8,
        "recompute": "full",
        "reshard": False,
        "rank_order": ["tp", "pp"],
        "trainable": "lora(r=16,a=2)",
        "sync": {"sync_every": 100, "bits": 8},
    }


def test_every_field_of_the_schema_is_described() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    for name, shape in [("Scenario", schema), *schema["$defs"].items()]:
        for field, entry in shape["properties"].items():
            assert entry.get("description"), f"{name}.{field}"


@pytest.mark.parametrize(
    ("trainable", "said"),
    [("lora(r=8)", True), ("embedding", True), ("[layer:0-7]", True), ("[layer:16-31]", False), ("[layer,head]", False),
     ("head", False), ("all", False)],
)  # fmt: skip
def test_frozen_layers_with_a_backward_are_an_upper_bound(trainable: str, said: bool) -> None:
    scenario = small(f"fsdp,trainable={trainable}")
    assert any("frozen layers" in text for text in scenario.assumptions) == said


@pytest.mark.parametrize("machines", [{"gpus": "16xH100-SXM5-80GB"}, {"instance": "2xp5.48xlarge"}])
def test_a_number_of_a_fabric_that_is_not_named_moves_the_usual_one(machines):
    usual, moved = (
        load(None, options={"model": "llama-3.1-8b", **machines}, overrides=said).fleet.islands[0].outside
        for said in ([], ["fleet.islands.0.fabric.bandwidth=100 Gbps"])
    )
    assert usual is not None
    assert moved == changed(usual, bandwidth=12.5e9)
