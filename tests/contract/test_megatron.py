"""Megatron-LM's options and nanotron's YAML: what is understood of files as people write them, and that plans come back."""

from __future__ import annotations

import itertools
import random

import pytest

import shardmeter
from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.record import changed
from shardmeter.interop.configs import megatron, nanotron
from shardmeter.interop.configs.megatron_arguments import keys
from shardmeter.interop.configs.megatron_words import commands
from shardmeter.interop.configs.record import Inexpressible
from shardmeter.specs import Plan

SCRIPT = """#!/bin/bash
# --num-layers 3 is no option here
GPUS=8
NODES=${NNODES:-16}
LAUNCH=( --nproc_per_node $GPUS --nnodes $NODES --master_addr $(scontrol show hostnames | head -n 1) )
MODEL="--num-layers 61 --hidden-size 7168 \\
  --num-attention-heads 128 --ffn-hidden-size 18432 --swiglu --normalization RMSNorm"
MODEL="$MODEL --position-embedding-type rope --disable-bias-linear"
EXPERTS=(
  "--num-experts 256"  # quoted with its value
  --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048
  --moe-layer-freq "([0]*3+[1]*58)"
)
torchrun ${LAUNCH[@]} pretrain_gpt.py $MODEL "${EXPERTS[@]}" --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 \\
  --seq-length=4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size $((NODES*64)) --train-samples 2000000 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 8 --expert-model-parallel-size 8 --sequence-parallel \\
  --num-layers-per-virtual-pipeline-stage 4 --use-distributed-optimizer --overlap-grad-reduce --bf16 --fp8-format hybrid \\
  --fp8-recipe blockwise --recompute-granularity selective --recompute-modules mla_up_proj moe_act --data-path $DATA \\
  --vocab-size 129280 --make-vocab-size-divisible-by 64 --lr 2e-4 --tensor-model-paralel-size 4 | tee log
"""


def test_a_script_is_read_whole():
    found = megatron.read(SCRIPT, "train.sh")
    model, plan, run = (found.document[part] for part in ("model", "plan", "run"))
    assert (model["layers"], model["dense_first"], model["experts"], model["top_k"]) == (61, 3, 256, 8)
    assert (model["head_dim"], model["kv_lora_rank"], model["vocab"], model["tied"]) == (192, 512, 129280, True)
    assert (plan["tp"], plan["pp"], plan["ep"], plan["etp"], plan["dp_shard"]) == (2, 8, 8, 2, 8)
    assert (plan["sharding"], plan["precision"], plan["recompute"]) == ("zero1", "fp8-block", "mla_up_proj+moe_act")
    assert run == {"seq_len": 4096, "global_batch": 1024, "tokens": 2000000 * 4096}
    assert found.document["stack"]["gradient_overlap"] is True
    assert [one.key for one in found.unknown] == ["--tensor-model-paralel-size"]
    assert "--tensor-model-parallel-size" in found.unknown[0].means
    assert {"--lr", "--data-path"} <= {one.key for one in found.ignored}


def test_every_option_is_told_once():
    found = megatron.read(SCRIPT, "train.sh")
    told = [one.key for one in (*found.understood, *found.ignored, *found.unknown)]
    assert sorted(told) == sorted({*megatron.settings(SCRIPT), "--nproc_per_node", "--nnodes", "--master_addr"})


def test_defaults_of_the_trainer_are_not_ours():
    line = "python pretrain_gpt.py --num-layers 2 --hidden-size 1536 --num-attention-heads 16 --seq-length 1024 --micro-batch-size 4 --swiglu"
    found = megatron.read(line, "line").document
    assert found["model"]["ffn"] == 4096  # 8/3 of the width in steps of 64
    assert (found["model"]["norm"], found["model"]["positions"], found["model"]["mlp_bias"]) == (
        "layer",
        "learned",
        True,
    )
    assert (found["plan"]["precision"], found["plan"]["sharding"]) == ("fp32", "ddp")
    assert "vocab" not in found["model"]


def test_wrong_values_are_told_together():
    line = "pretrain_gpt.py --num-layers two --fp8-format hybrid --fp8-recipe blockwize --moe-layer-freq __import__('os') --num-experts 8 --hidden-size 8 --num-attention-heads 1"
    with pytest.raises(BadScenario) as raised:
        megatron.read(line.replace("two", "0"), "line")
    fields = {one.field for one in raised.value.violations}
    assert fields == {"--num-layers", "--fp8-recipe"}
    assert "blockwise" in str(raised.value)


def test_words_of_a_shell():
    found, variables = commands('A=(x \'y z\')\nA+=(w)\nB="1 2"\nrun ${A[@]} $B "$B $C" ${D:-d} $((4*2)) a#b # c\n')
    assert found == [["run", "x", "y z", "w", "1", "2", "1 2 $C", "d", "8", "a#b"]]
    assert variables["A"] == ["x", "y z", "w"]


PLANS = {
    "uneven stages": ("llama-3.1-70b", "96xH100-SXM5-80GB", {"sharding": "zero1", "tp": 8, "pp": 6, "recompute": "selective"}, "layout"),
    "edges": ("llama-3.1-405b", "1024xH100-SXM5-80GB", {"sharding": "zero1", "tp": 8, "pp": 16, "schedule": "interleaved", "virtual_stages": 8}, "account-for-loss"),
    "some layers": ("llama-3.1-70b", "64xH100-SXM5-80GB", {"sharding": "zero1", "tp": 8, "pp": 4, "recompute": "5-of-20"}, "block"),
    "latent": ("deepseek-v3", "512xH100-SXM5-80GB", {"sharding": "zero1", "tp": 2, "pp": 8, "ep": 32, "precision": "fp8-block", "gather_dtype": "fp8"}, "m"),
    "windows": ("gpt-oss-20b", "32xH100-SXM5-80GB", {"sharding": "fsdp", "ep": 8, "dp_replicate": 2}, "(127,0)"),
    "kept": ("qwen2.5-7b", "32xH100-SXM5-80GB", {"sharding": "fsdp", "reshard": False, "tp": 4, "cp": 2, "cp_kind": "all-gather"}, "torch-fsdp2"),
    "order": ("gpt3-175b", "512xA100-SXM4-80GB", {"sharding": "zero1", "tp": 8, "pp": 8, "rank_order": ["tp", "cp", "pp", "dp_shard", "dp_replicate"], "precision": "fp16", "sequence_parallel": False}, "use-tp-pp-dp"),
}  # fmt: skip
KEPT = ("parameters", "name", "source", "retrieved", "router_bias", "vocab")


@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_is_read_again(name):
    model, gpus, plan, telling = PLANS[name]
    stack = {"base": "megatron-core", "stage_cut": "edges" if name == "edges" else "even"}
    scenario = shardmeter.load(
        {
            "model": model,
            "gpus": gpus,
            "stack": stack,
            "plan": {**plan, "micro_batch": 1},
            "run": {"seq_len": 2048, "global_batch": 512, "steps": 10},
        }
    )
    made = megatron.write(scenario)
    text = made.files[0].text
    assert telling in text or any(telling in one.key for one in made.said)
    assert {one.key for one in made.said} <= keys(made.version)
    again = shardmeter.load({**megatron.read(text, "again").document, "gpus": gpus})
    left = {one.partition(":")[0] for one in made.unsaid}
    fields = [name for name in scenario.plan.__dataclass_fields__ if f"plan.{name}" not in left]
    assert {name: getattr(again.plan, name) for name in fields} == {
        name: getattr(scenario.plan, name) for name in fields
    }
    assert again.run == scenario.run
    assert again.stack.stage_cut == stack["stage_cut"]
    same = [field for field in scenario.model.__dataclass_fields__ if field not in KEPT]
    assert [field for field in same if getattr(again.model, field) != getattr(scenario.model, field)] == []


def test_all_that_cannot_be_said_is_told_at_once():
    plan = {
        "sharding": "fsdp",
        "pp": 2,
        "reshard": False,
        "schedule": "zb-v",
        "virtual_stages": 2,
        "precision": "fp8-rowwise",
        "optimizer": "adafactor",
    }
    scenario = shardmeter.load(
        {"model": "gemma-2-9b", "gpus": "16xH100-SXM5-80GB", "plan": plan, "run": {"global_batch": 64}}
    )
    with pytest.raises(Inexpressible) as raised:
        megatron.write(scenario)
    fields = {one.field for one in raised.value.violations}
    assert fields == {"model.norms_per_layer", "plan.reshard", "plan.schedule", "plan.precision", "plan.optimizer"}


def test_an_older_version_lacks_options():
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "zero1,optimizer=muon"})
    assert megatron.write(scenario).said
    with pytest.raises(Inexpressible, match=r"core_r0\.16"):
        megatron.write(scenario, "core_r0.16")


def test_nanotron_comes_back_and_refuses_what_it_has_not():
    plan = {"sharding": "zero1", "tp": 4, "pp": 2, "micro_batch": 2, "recompute": "full", "schedule": "gpipe"}
    asked = {
        "model": "llama-3.1-8b",
        "gpus": "32xH100-SXM5-80GB",
        "stack": "nanotron",
        "plan": plan,
        "run": {"seq_len": 4096, "global_batch": 256, "steps": 10},
    }
    scenario = shardmeter.load(asked)
    made = nanotron.write(scenario)
    read = nanotron.read(made.files[0].text, "nanotron.yaml")
    assert read.unknown == ()
    again = shardmeter.load({**read.document, "gpus": asked["gpus"]})
    assert (again.plan, again.run) == (scenario.plan, scenario.run)
    assert {one.key for one in made.said} <= nanotron.keys("2026-04")
    with pytest.raises(Inexpressible, match="zero_stage"):
        nanotron.write(shardmeter.load({**asked, "plan": {**plan, "sharding": "fsdp", "schedule": "1f1b"}}))


def test_each_knows_its_own():
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "zero1"})
    texts = {module: module.write(scenario).files[0].text for module in (megatron, nanotron)}
    for module in texts:
        assert [other for other in texts if module.recognises(texts[other], "file")] == [module]


def test_no_text_breaks_a_reader():
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "zero1"})
    chance = random.Random(11)
    for module, text in ((megatron, SCRIPT), (nanotron, nanotron.write(scenario).files[0].text)):
        for _ in range(30):
            letters = list(text)
            for _ in range(chance.randint(1, 40)):
                letters[chance.randrange(len(letters))] = chance.choice("'\"$(){}\\\n #=-[]x9é٣\x00:")
            try:
                module.read("".join(letters)[: chance.randint(1, len(letters))], "fuzz")
            except ShardMeterError:
                continue


LINE = (
    "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 62 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--micro-batch-size 1 --global-batch-size 256 --vocab-size 32000 --pipeline-model-parallel-size 4 "
)
ENDS = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "


@pytest.mark.parametrize(
    ("more", "chunks"),
    [
        (f"{ENDS}--num-layers-per-virtual-pipeline-stage 8", 2),
        ("--pipeline-model-parallel-layout 'Et*3|(tt|)*29,m|L'", 8),
        ("--pipeline-model-parallel-layout 'E(t|t)*3|*4tL'", 2),
    ],
)
def test_stages_are_counted_as_the_trainer_counts_them(more, chunks):
    assert megatron.read(LINE + more, "line").document["plan"]["virtual_stages"] == chunks


@pytest.mark.parametrize(
    ("more", "version", "reduced", "summed"),
    [
        ("--bf16", "", "fp32", "fp32"),
        ("--bf16 --grad-reduce-in-bf16", "", "bf16", "bf16"),
        ("--bf16 --main-grads-dtype bf16", "", "bf16", "bf16"),
        ("--grad-reduce-in-bf16", "", "fp32", "fp32"),
        ("--fp16", "", "fp16", "fp16"),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", "", "fp32", "fp32"),
        ("--bf16 --use-torch-fsdp2", "", "bf16", "bf16"),
        ("--bf16 --use-megatron-fsdp", "2026-08", "bf16", "bf16"),
        ("--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32", "2026-08", "fp32", "fp32"),
        ("--bf16 --use-megatron-fsdp --megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16", "2026-08", "bf16", "fp32"),
        ("--bf16 --use-megatron-fsdp", "core_r0.18", "fp32", "fp32"),
    ],
)  # fmt: skip
def test_gradients_have_the_format_that_the_version_makes_of_the_options(more, version, reduced, summed):
    document = megatron.read(LINE + more, "line", version).document
    assert (document["plan"]["reduce_dtype"], document["stack"]["gradient_dtype"]) == (reduced, summed)


def test_what_megatron_fsdp_shards_by_itself_depends_on_the_version():
    read = {version: megatron.read(LINE + "--use-megatron-fsdp", "line", version) for version in megatron.VERSIONS}
    assert [one.document["plan"]["sharding"] for one in read.values()] == ["fsdp", "fsdp", "ddp"]


def test_formats_of_gradients_and_idle_fields_come_back():
    scenario = shardmeter.load({"model": "qwen3-8b", "gpus": "8xH100-SXM5-80GB", "plan": "fsdp"})
    shardings = (("fsdp", True), ("fsdp", False), ("zero2", False), ("zero3", False), ("zero1", True))
    formats = ("fp32", "bf16", "fp16")
    asked = itertools.product(megatron.VERSIONS, shardings, formats, formats)
    for version, (sharding, reshard), held, reduced in asked:
        plan = changed(scenario.plan, sharding=sharding, reshard=reshard, precision=held, gather_dtype=held, reduce_dtype=reduced,
                       cp_kind="ulysses", sequence_parallel=False)  # fmt: skip
        if (sharding, reshard, held) == ("fsdp", False, "fp16"):
            continue  # refused
        made = megatron.write(changed(scenario, plan=plan), version)
        again = megatron.read(made.files[0].text, "again", version).document["plan"]
        left = {one.partition(":")[0].removeprefix("plan.") for one in made.unsaid}
        for field in {"reduce_dtype", "cp_kind", "sequence_parallel", "sharding", "reshard"} - left:
            assert again.get(field, getattr(Plan(), field)) == getattr(plan, field), (
                version,
                sharding,
                held,
                reduced,
                field,
            )
