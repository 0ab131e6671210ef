"""DeepSpeed's JSON, accelerate's YAML and TrainingArguments: what each setting becomes, and every way to be refused."""

import json
from typing import Any

import pytest

from shardmeter import BadScenario, import_config, load
from shardmeter.interop.configs import formats, recognised
from shardmeter.interop.configs.record import Inexpressible

ZERO = {
    "train_batch_size": 512, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
    "zero_optimization": {"stage": 3, "overlap_comm": True, "offload_optimizer": {"device": "cpu", "pin_memory": True},
                          "zero_hpz_partition_size": 8, "stage3_max_live_parameters": 1e9},
    "bf16": {"enabled": True}, "fp16": {"enabled": False}, "communication_data_type": "fp32",
    "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "activation_checkpointing": {"partition_activations": False},
    "steps_per_print": 10,
}  # fmt: skip
FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 4
num_processes: 32
fsdp_config:
  {fsdp}
parallelism_config: {mesh}
"""


def plan_of(text: str) -> Any:
    """The plan that a file says, by the format that takes it for its own; every setting stands in one list, once."""
    module = recognised(text, "a file")
    found = module.read(text)
    listed = [one.key for one in (*found.understood, *found.ignored, *found.unknown)]
    assert sorted(listed) == sorted(module.settings(text)) or module.NAME == "transformers"
    assert not found.unknown
    return found.document["plan"]


def test_deepspeed_tells_sharding_formats_batches_and_what_lies_on_the_host():
    plan = plan_of(json.dumps(ZERO, indent=2))
    assert plan["sharding"] == "zero3"
    assert plan["offload"] == ["optimizer"]
    assert (plan["precision"], plan["gather_dtype"], plan["reduce_dtype"]) == ("bf16", "bf16", "fp32")
    assert plan["micro_batch"] == 2
    assert plan["dp_shard"] == 512 / (2 * 8)
    assert plan["optimizer"] == "sgd"  # one moment, as Lion


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"zero_optimization": {"stage": 3, "mics_shard_size": 8}}, {"sharding": "zero3", "dp_shard": 8, "dp_replicate": 4}),
        ({"zero_optimization": {"stage": 0}, "bf16": {"enabled": "auto"}}, {"sharding": "ddp", "precision": "bf16"}),
        ({"zero_optimization": True, "bf16": {}, "communication_data_type": None}, {"sharding": "zero1", "precision": "fp32", "reduce_dtype": "fp32"}),
        ({"zero_optimization": {"stage": 1}, "pipeline": {"stages": 4, "activation_checkpoint_interval": 1}}, {"pp": 4, "recompute": "full"}),
        ({"tensor_parallel": {"autotp_size": 4}}, {"tp": 4, "sequence_parallel": False}),
        ({"sequence_parallel_size": 4, "communication_data_type": "bf16"}, {"cp": 4, "cp_kind": "ulysses", "reduce_dtype": "fp32"}),
        ({"expert_parallel": {"enabled": True, "autoep_size": 8}}, {"ep": 8, "etp": 1}),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, {"recompute": "full", "offload": ["optimizer", "activations"]}),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}, {"master_dtype": "bf16"}),
    ],
)  # fmt: skip
def test_deepspeed_axes(change, expected):
    plan = plan_of(json.dumps(ZERO | change))
    assert {key: plan[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("fsdp", "mesh", "expected"),
    [
        ("fsdp_sharding_strategy: HYBRID_SHARD", "{}", {"sharding": "fsdp", "reshard": True, "dp_shard": 8, "dp_replicate": 4}),
        ("fsdp_sharding_strategy: 2", "{}", {"sharding": "fsdp", "reshard": False, "dp_shard": 32}),
        ("fsdp_sharding_strategy: NO_SHARD", "{}", {"sharding": "ddp", "dp_shard": 32}),
        ("{fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_offload_params: true}", "{}", {"reshard": False, "offload": ["optimizer", "parameters"]}),
        ("{version: 2, activation_checkpointing: true}", "{parallelism_config_cp_size: 2, parallelism_config_tp_size: 4, parallelism_config_dp_shard_size: 4}",
         {"recompute": "full", "cp": 2, "cp_kind": "all-gather", "tp": 4, "dp_shard": 4, "sequence_parallel": False, "reduce_dtype": "bf16"}),
    ],
)  # fmt: skip
def test_accelerate_shards_by_either_version_of_fsdp_and_on_a_mesh(fsdp, mesh, expected):
    plan = plan_of(FSDP.format(fsdp=fsdp, mesh=mesh))
    assert {key: plan[key] for key in expected} == expected


def test_accelerate_hands_over_to_deepspeed_and_to_megatron():
    zero = plan_of(
        "distributed_type: DEEPSPEED\nmixed_precision: 'no'\nnum_processes: 8\ndeepspeed_config: {offload_param_device: cpu, zero_stage: 3}\n"
    )
    assert (zero["sharding"], zero["dp_shard"], zero["precision"], zero["offload"]) == (
        "zero3",
        8,
        "fp32",
        ["parameters"],
    )
    degrees = "{megatron_lm_tp_degree: 2, megatron_lm_pp_degree: 4, megatron_lm_use_distributed_optimizer: true}"
    cut = plan_of(f"distributed_type: MEGATRON_LM\nnum_processes: 16\nmegatron_lm_config: {degrees}\n")
    assert (cut["tp"], cut["pp"], cut["dp_shard"], cut["sharding"]) == (2, 4, 2, "zero1")


def test_training_arguments_fill_in_what_an_inline_deepspeed_leaves_to_them():
    text = """model_name_or_path: some/model
finetuning_type: lora
lora_rank: 16
cutoff_len: 4096
per_device_train_batch_size: 2
gradient_checkpointing: true
bf16: true
optim: paged_adamw_8bit
max_steps: 100
deepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: auto}, train_micro_batch_size_per_gpu: auto, train_batch_size: auto}
"""
    plan = plan_of(text)
    expected = {
        "sharding": "zero2",
        "precision": "bf16",
        "micro_batch": 2,
        "recompute": "full",
        "optimizer": "adamw8bit",
        "trainable": "lora(r=16)",
    }
    assert {key: plan[key] for key in expected} == expected
    assert formats()["transformers"].read(text).document["run"] == {"seq_len": 4096, "steps": 100}
    hybrid = plan_of(
        "per_device_train_batch_size: 1\nfsdp: hybrid_shard auto_wrap offload\nfsdp_config: {fsdp_activation_checkpointing: true}\n"
    )
    assert (hybrid["sharding"], hybrid["offload"], hybrid["recompute"]) == ("hsdp", ["optimizer", "parameters"], "full")


def test_a_batch_that_counts_with_the_replicas_is_filled_in_once_they_are_known():
    text = json.dumps(
        {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}},
        indent=1,
    )
    made = import_config(text, model="llama-3.1-8b", gpus="64xH100-SXM5-80GB")
    assert made.scenario is not None
    assert made.scenario.run.global_batch == 2 * 4 * 64
    assert made.document["run"]["global_batch"] == 512
    said = import_config(text, model="llama-3.1-8b", gpus="64xH100-SXM5-80GB", global_batch="128")
    assert said.scenario is not None
    assert said.scenario.run.global_batch == 128


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ('{"train_batch_size": 8, "zero_optimisation": {"stage": 3}}', "zero_optimisation.stage", "zero_optimization.stage"),
        (FSDP.format(fsdp="fsdp_reshard_after_foward: false", mesh="{}"), "fsdp_config.fsdp_reshard_after_foward", "fsdp_config.fsdp_reshard_after_forward"),
        ("per_device_train_batch_size: 1\ngradient_checkpoint: true\nown: 1\n", "gradient_checkpoint", "gradient_checkpointing"),
    ],
)  # fmt: skip
def test_names_that_the_trainers_pass_over_in_silence_are_told(text, key, near):
    unknown = recognised(text, "a file").read(text).unknown
    assert [one.key for one in unknown] == [key]
    assert unknown[0].means.startswith(f"the nearest are {near}")


def test_all_that_is_malformed_is_told_at_once():
    wrong = ZERO | {"train_batch_size": 500, "bf16": {"enabled": "maybe"}, "zero_optimization": {"stage": 4}}
    with pytest.raises(BadScenario) as refused:
        formats()["deepspeed"].read(json.dumps(wrong))
    assert {one.field for one in refused.value.violations} == {
        "train_batch_size",
        "bf16.enabled",
        "zero_optimization.stage",
    }
    with pytest.raises(BadScenario, match="32, but the degrees multiply to 3"):
        formats()["accelerate"].read(FSDP.format(fsdp="fsdp_version: 2", mesh="{parallelism_config_dp_shard_size: 3}"))


def test_what_would_be_another_run_is_refused_with_every_reason():
    scenario = load(
        {
            "model": "llama-3.1-8b",
            "gpus": "64xH100-SXM5-80GB",
            "plan": "hsdp,tp=4,precision=fp8-rowwise,cp=2,cp_kind=ulysses",
        }
    )
    for name, fields in (
        ("deepspeed", {"plan.dp_replicate", "plan.sequence_parallel", "plan.precision"}),
        ("accelerate", {"plan.cp_kind", "plan.sequence_parallel", "plan.precision"}),
    ):
        with pytest.raises(Inexpressible) as refused:
            formats()[name].write(scenario)
        assert {one.field for one in refused.value.violations} == fields
        assert all(one.way_out for one in refused.value.violations)


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"train_batch_size": 256}, (16, 256)),
        ({"train_batch_size": 256, "gradient_accumulation_steps": 4}, (4, 256)),
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2}, (2, 256)),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, (2, 128)),
        ({"train_micro_batch_size_per_gpu": 2}, (2, 32)),
    ],
)
def test_two_of_deepspeeds_three_batches_make_the_third_as_it_does(batch, found):
    text = json.dumps({**batch, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}, indent=1)
    scenario = import_config(text, model="llama-3.2-1b", gpus="16xH100-SXM5-80GB", seq="2048").scenario
    assert scenario is not None
    assert (scenario.plan.micro_batch, scenario.run.global_batch) == found
    assert scenario.stack.gradient_dtype == "bf16", "as parameters are held, not the fp32 of the stack that stands in"


def test_the_format_that_gradients_are_added_up_in_is_written_where_it_is_not_deepspeeds_own():
    scenario = load({"model": "llama-3.2-1b", "gpus": "8xH100-SXM5-80GB", "stack": "titan-eager", "plan": "zero2"})
    made = formats()["deepspeed"].write(scenario)
    assert scenario.stack.gradient_dtype == "fp32"
    assert json.loads(made.files[0].text)["data_types"] == {"grad_accum_dtype": "fp32"}
    replicas = load({"model": "llama-3.2-1b", "gpus": "8xH100-SXM5-80GB", "stack": "titan-eager", "plan": "ddp"})
    assert any(one.startswith("stack.gradient_dtype") for one in formats()["deepspeed"].write(replicas).unsaid)
