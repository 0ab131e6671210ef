"""Whole rows: from cells to a scenario, or to the reason why there is none."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.validate import map_rows
from shardmeter.study.validate.mapping import read_layout, read_row, read_rows
from shardmeter.study.validate.regimes import FLOOR, NORMAL, SLOW, SweepRun, regimes
from shardmeter.study.validate.resolve import FABRICS
from shardmeter.study.validate.rows import Row, Unclear
from shardmeter.study.validate.stack import FACTS, IDS, LINEAGES, StackReading, choose_stack, stand_in

CELLS = {
    "id": "x-1", "source_key": "a source", "model": "Llama-3-8B", "n_layers": "32.0", "hidden": "4096.0",
    "ffn_hidden": "14336.0", "n_heads": "32.0", "n_kv_heads": "8.0", "head_dim": "128.0", "vocab": "128256.0",
    "seq_len": "8192.0", "accelerator": "H100-80GB (SXM)", "n_accelerators": "64.0", "accelerators_per_node": "8.0",
    "precision": "bf16", "parallel_tp": "2.0", "pp": "2.0", "cp": "1.0", "dp": "16.0", "sharding": "zero1",
    "recompute": "none", "micro_batch": "1.0", "global_batch": "128.0", "kernel_notes": "torch.compile",
    "framework": "torchtitan", "year": "2025", "step_time_s": "4.0", "peak_memory_gib": "60", "task": "pretrain",
}  # fmt: skip


def row(line=2, **cells):
    return Row(line=line, cells={**CELLS, **cells})


def mapped(**cells):
    (found,) = map_rows([row(**cells)], load_catalog())
    return found


def test_a_whole_row():
    found = mapped()
    scenario = found.scenario
    assert (found.skip, found.exclude, found.identity) == ("", "", False)
    assert (found.step_time, found.memory_gib, found.memory_reading) == (4.0, 60.0, "reserved")
    assert (found.stack, found.stand_in, found.task, found.regime) == ("titan-compile", "", "pretrain", NORMAL)
    assert scenario.stack.name == "titan-compile"
    plan = scenario.plan
    assert (plan.tp, plan.pp, plan.cp, plan.dp_shard, plan.dp_replicate) == (2, 2, 1, 16, 1)
    assert (plan.sharding, plan.schedule, plan.recompute, plan.sequence_parallel) == ("zero1", "1f1b", "none", True)
    assert (scenario.run.seq_len, scenario.run.global_batch) == (8192, 128)
    island = scenario.fleet.islands[0]
    assert (island.accelerator.name, island.gpus, island.gpus_per_node) == ("H100-SXM5-80GB", 64, 8)
    assert (scenario.model.mlp, scenario.model.tied, scenario.model.kv_heads) == ("gated", False, 8)


def test_preferences_are_learned_beside_a_frozen_copy():
    found = mapped(task="DPO", pp="1", dp="32")
    assert found.task == "finetune"
    assert found.scenario.run.reference == found.scenario.model
    assert any("two a pair" in said for said in found.scenario.assumptions)
    assert mapped(task="LoRA DPO", pp="1", dp="32").scenario.plan.trainable.startswith("lora")
    assert mapped(task="sft", pp="1", dp="32").scenario.run.reference is None
    assert mapped(task="DPO").skip == "a reference model beside pipeline stages is not modelled yet"
    assert mapped(task="GRPO").skip == "rollouts of reinforcement learning are out of scope"


def test_public_sizes_fill_what_a_row_leaves_out():
    blank = dict.fromkeys(("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "head_dim", "vocab"), "")
    model = mapped(**blank).scenario.model
    assert (model.layers, model.hidden, model.ffn, model.vocab) == (32, 4096, 14336, 128256)
    assert mapped(**blank, model="Llama-3.1-405B proxy (21 layers)", step_time_s="60").scenario.model.layers == 21
    assert "size is not stated" in mapped(**blank, model="Llama-like-7B").exclude


def test_time_comes_from_rates_where_it_is_not_stated():
    tokens = mapped(step_time_s="", tokens_per_s_per_gpu="4096")
    assert tokens.step_time == pytest.approx(128 * 8192 / 4096 / 64)
    samples = mapped(step_time_s="", samples_per_s_per_gpu="0.5")
    assert samples.step_time == pytest.approx(128 / 0.5 / 64)
    assert "disagree" in mapped(tokens_per_s_per_gpu="2000").exclude
    assert mapped(step_time_s="", peak_memory_gib="60").step_time is None


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"precision": "nvfp4"}, "no known fp4 peak"),
        ({"task": "qlora"}, "adapters on a quantised base"),
        ({"model": "DeepSeek-V4-Flash"}, "sparse attention"),
        ({"sharding": "zero1, optimizer offload"}, "host_memory_bandwidth of H100-SXM5-80GB, not known"),
        ({"kernel_notes": "PP schedule V-Half"}, "zero-bubble"),
        ({"accelerator": "Trainium1 (trn1.32xlarge)"}, "Trainium1"),
        ({"recompute": "op: mlp+moe_act"}, "moe_act, but no layer of Llama-3-8B has such an operation"),
        ({"framework": "a framework of our own"}, "framework not known"),
        ({"n_heads": "33", "n_kv_heads": "33"}, "not legal here"),
        ({"accelerator": "V100-SXM2-32GB", "peak_memory_gib": "20"}, "no known bf16 peak"),
    ],
)
def test_what_cannot_be_expressed_is_skipped_by_name(cells, reason):
    from shardmeter.study.validate.predictions import legal

    found = legal(mapped(**cells))
    assert found.scenario is None
    assert found.exclude == ""
    assert reason in found.skip


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"seq_len": ""}, "not stated: sequence length"),
        ({"micro_batch": "", "global_batch": "", "pp": "1", "dp": "32"}, "micro-batch, batch"),
        ({"parallel_tp": "", "pp": ""}, "layout is not stated"),
        ({"dp": "8"}, "accelerators = 64"),
        ({"ep": "64"}, "does not divide"),
        ({"ep": "8"}, "the model has no experts"),
        ({"n_experts": "8"}, "experts are not stated: top_k"),
        ({"model": "Quux-8x9B"}, "experts are not stated: n_experts, top_k, moe_ffn_hidden"),
        ({"model": "Mixtral-8x7B", "framework": "NeMo 24.07"}, "not stated: ep"),
        ({"step_time_s": "", "peak_memory_gib": ""}, "no step time"),
        ({"accelerator": "B200 (power limited)"}, "power limit"),
        ({"framework": ""}, "framework is not stated"),
        ({"step_time_s": "fast"}, "not a number"),
        ({"micro_batch": "3"}, "no multiple"),
        ({"hidden": "1e30"}, "beyond reason"),
        ({"peak_memory_gib": "146.5"}, "on a device of less"),
        ({"source_key": "vTrain single-node"}, "composed"),
        ({"id": "mb-0022"}, "one release earlier"),
    ],
)
def test_what_does_not_count_is_excluded_with_a_reason(cells, reason):
    found = mapped(**cells)
    assert found.scenario is None
    assert found.skip == ""
    assert reason in found.exclude


def test_a_missing_stage_count_is_never_taken_for_one():
    with pytest.raises(Unclear):
        read_layout(row(pp="", dp=""))
    assert read_layout(row(pp="", parallel_pp="2")).pp == 2
    assert read_layout(row(cp="")).cp == 1
    assert read_layout(row(dp="", cp="")).dp == 16
    assert read_layout(row(n_accelerators="1", parallel_tp="", pp="", cp="", dp="")).pp == 1


def test_the_low_power_h100_is_priced_as_such():
    device = mapped(accelerator="H100-SXM 94-96GB HBM2e lower TDP").scenario.fleet.islands[0].accelerator
    assert (device.memory_bandwidth, device.memory, device.power_limit) == (2.4e12, 96 * 2**30, 500.0)


@pytest.mark.parametrize(
    ("text", "accelerator", "rate"),
    [
        ("RoCE 1600 Gbps node-node", "A100-80GB", 25e9),
        ("8x200Gb/s HDR IB", "A100-80GB", 25e9),
        ("4x200 Gbps RDMA", "A100-80GB", 12.5e9),
        ("RDMA 400 Gb/s per GPU", "H100-80GB", 50e9),
        ("EFA", "H100-80GB", 50e9),
        ("", "H100-80GB", 50e9),
        ("", "A100-80GB", 25e9),
        ("Slingshot (Alps)", "A100-80GB", 12.5e9),
    ],
)
def test_fabrics_are_rated_per_accelerator(text, accelerator, rate):
    island = mapped(inter_node_link=text, accelerator=accelerator).scenario.fleet.islands[0]
    assert island.tiers[-1].bandwidth == pytest.approx(rate)


def test_every_fabric_of_the_rules_is_in_the_catalog():
    names = load_catalog().names("fabrics")
    assert {row for rates in FABRICS.values() for row in rates.values()} <= set(names)


def test_every_stack_has_itself_or_a_stand_in():
    catalog = load_catalog()
    stacks = {name: catalog.stack(name) for name in catalog.names("stacks")}
    for lineage in LINEAGES:
        reading = StackReading(id="nobody", lineage=lineage, year=2024)
        assert stand_in(reading, stacks) in stacks.values()
    assert set(FACTS) <= set(IDS)


def test_a_stand_in_lends_numbers_and_keeps_documented_facts():
    catalog = load_catalog()
    stacks = {name: catalog.stack(name) for name in catalog.names("stacks") if name in ("mlm-2021", "nanotron-2025")}
    reading = StackReading(id="mcore-2024", lineage="megatron", year=2024, attention="fa3")
    stack, stood_in = choose_stack(reading, stacks)
    assert stood_in == "mlm-2021"
    assert (stack.attention, stack.gradient_overlap, stack.gemm_factor) == ("fa3", True, stacks["mlm-2021"].gemm_factor)


def test_attention_and_norm_kernels_are_fields_of_a_row():
    stack = mapped(framework="Aleph Alpha Scaling (internal)", kernel_notes="flash_attentionv1.0.8 ").scenario.stack
    assert (stack.name, stack.attention) == ("aa-2023", "fa1")
    stack = mapped(
        framework="Aleph Alpha Scaling (internal)", kernel_notes="flash_attention2 + RMS kernel"
    ).scenario.stack
    assert (stack.attention, stack.kernels) == ("fa2", "fused_norm")


def test_what_runs_again_and_what_lies_on_the_host():
    plan = mapped(recompute="full block, 3 layers", kernel_notes="cpu_offloading_num_layers=20").scenario.plan
    assert (plan.recompute, plan.offload, plan.offload_layers) == ("3-of-16", ("activations",), 20.0)
    assert mapped(recompute="op: mlp+layernorm").scenario.plan.recompute == "layernorm+mlp"
    assert "what is offloaded to the host is not stated" in mapped(sharding="zero3 offload").exclude


def test_graphs_of_whole_iterations_launch_nothing():
    found = [mapped(kernel_notes=notes).scenario.stack for notes in ("", "cuda_graph_impl=full")]
    assert [stack.step_graphs for stack in found] == [False, True]
    assert found[0].launch_time > 0.0 == found[1].launch_time


def test_selective_means_what_the_row_says():
    assert mapped(recompute="selective (op)").scenario.stack.selective == "alternate"
    assert mapped(recompute="selective (attention core)").scenario.stack.selective == "attention"


RUN = SweepRun(
    id="a", model="m", layers=16.0, tp=2.0, pp=2.0, dp=4.0, micro_batch=1.0, global_batch=256.0, nodes=2.0, step_time=10.0
)  # fmt: skip


def test_the_slow_mode_is_told_by_measured_neighbours():
    slower = changed(RUN, id="b", dp=8.0, step_time=40.0)
    assert regimes([RUN, slower])["b"] == SLOW
    assert regimes([RUN, slower])["a"] == NORMAL
    assert regimes([slower])["b"] == NORMAL, "nothing to compare with"
    assert regimes([changed(RUN, tp=1.0), slower])["b"] == NORMAL, "less tensor parallelism is no bound"


def test_the_floor_needs_stages_nodes_and_tensor_parallelism():
    at = changed(RUN, step_time=65 * 16 / 2 * 9.9e-3)
    assert regimes([at])["a"] == FLOOR
    assert regimes([changed(at, nodes=1.0)])["a"] == NORMAL
    assert regimes([changed(at, tp=1.0)])["a"] == NORMAL
    assert regimes([changed(at, step_time=at.step_time * 1.5)])["a"] == NORMAL


def test_regimes_belong_to_one_sweep():
    cells = {"framework": "nanotron v0.5", "dp": "16", "step_time_s": "100", "kernel_notes": ""}
    slow = {"id": "x-2", "micro_batch": "2", "step_time_s": "1000"}
    for source, excluded in (("nanotron/ultrascale-playbook", True), ("another sweep", False)):
        rows = [row(2, **cells, source_key=source), row(3, **(cells | slow), source_key=source)]
        verdicts = read_rows(rows)
        assert [bool(v.exclude) for v in verdicts] == [False, excluded]


COLUMN = st.sampled_from(sorted(CELLS))
TEXT = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "0", "-1", "1e308", "1e-308", "nan", "inf", "8.0", "none", "1e9", "9" * 40, "?", "+", "(", "x" * 200]
    ),
)


@settings(max_examples=300, deadline=None)
@given(changes=st.dictionaries(COLUMN, TEXT, max_size=4))
def test_any_cells_get_exactly_one_verdict(changes):
    verdict = read_row(row(**changes))
    assert sum((verdict.reading is not None, bool(verdict.skip), bool(verdict.exclude))) == 1
    found = mapped(**changes)
    assert sum((found.scenario is not None, bool(found.skip), bool(found.exclude))) == 1


def is_slow_by_every_neighbour(run, pool):
    """The rule as it is written down, every run against every other."""
    bounds = [
        other.slot_time
        * max(1.0, run.micro_batch / other.micro_batch)
        * max(1.0, other.pp / run.pp)
        * max(1.0, other.tp / run.tp)
        for other in pool
        if other is not run
        and other.model == run.model
        and (other.pp > 1.0) == (run.pp > 1.0)
        and (other.nodes > 1.0) == (run.nodes > 1.0)
        and other.tp >= run.tp
    ]
    excess = run.slot_time - min(bounds, default=float("inf"))
    return excess > 0.35 and excess * run.slots > 2.0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            *(st.sampled_from(sizes) for sizes in ([1.0, 2.0, 8.0], [1.0, 2.0, 4.0], [1.0, 4.0], [1.0, 2.0], [1.0, 4.0])),
            st.floats(0.5, 60.0),
        ),
        max_size=25,
    )
)  # fmt: skip
def test_the_quick_rule_for_the_slow_mode_is_the_slow_one(drawn):
    names = ("tp", "pp", "dp", "micro_batch", "nodes", "step_time")
    pool = [changed(RUN, id=str(i), **dict(zip(names, one, strict=True))) for i, one in enumerate(drawn)]
    found = regimes(pool)
    assert [found[run.id] == SLOW for run in pool] == [is_slow_by_every_neighbour(run, pool) for run in pool]


def test_many_runs_of_a_sweep_take_no_square_of_time():
    pool = [changed(RUN, id=str(i), tp=float(2 ** (i % 4)), step_time=5.0 + i * 1e-4) for i in range(60_000)]
    begun = time.process_time()
    assert len(regimes(pool)) == 60_000
    assert time.process_time() - begun < 10.0
