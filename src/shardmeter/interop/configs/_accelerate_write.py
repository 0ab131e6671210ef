"""A plan as accelerate's YAML, what its own checks refuse, and what TrainingArguments or the program have to say."""

from __future__ import annotations

from shardmeter.interop.configs import _deepspeed_write, _training_arguments
from shardmeter.interop.configs._saying import Saying, count
from shardmeter.interop.configs._writing import leave_the_run, refuse_islands, steps_of, tree, yaml
from shardmeter.interop.configs.record import Exported, Written
from shardmeter.specs import Scenario

FILE = "accelerate.yaml"
BACKENDS = {"fp8": "AO", "fp8-delayed": "TE"}
"""Who multiplies in 8 bits: torchao with one scale a tensor, Transformer Engine with a history of them."""
MESH = "parallelism_config.parallelism_config_"
BASE = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "tf32": "fp32", "fp8": "bf16", "fp8-delayed": "bf16"}
"""Formats in which weights are gathered, by precision."""


def exported(scenario: Scenario, version: str) -> Exported:
    """The file, TrainingArguments beside it, what is unsaid, and the command. Raises Inexpressible."""
    found = Saying(f"accelerate {version}")
    zero = scenario.plan.sharding in ("zero1", "zero2", "zero3")
    refuse(found, scenario)
    (_refuse_zero if zero else _refuse_mesh)(found, scenario)
    found.stop()
    _fleet(found, scenario)
    _formats(found, scenario)
    (_zero if zero else _sharded if scenario.plan.sharding == "fsdp" else _replicated)(found, scenario)
    _mesh(found, scenario)
    _beside(found, scenario)
    leave_the_run(found, scenario, "the program says it")
    checkpoints = "fsdp_config.fsdp_activation_checkpointing" in found.values
    beside = _training_arguments.file(scenario, checkpoints=checkpoints)
    return Exported(
        format="accelerate",
        version=version,
        files=(Written(name=FILE, text=yaml(tree(found))), beside),
        launch=f"accelerate launch --config_file {FILE} train.py {beside.name}",
        said=found.settings(),
        unsaid=tuple(found.unsaid),
        notes=(
            f"train.py is the program: it builds the model and reads {beside.name} (HfArgumentParser.parse_json_file), or says the same itself",
            "of several machines each is told --machine_rank and --main_process_ip",
        ),
    )


def refuse(found: Saying, scenario: Scenario) -> None:
    """Reasons that hold however it is distributed."""
    plan = scenario.plan
    refuse_islands(found, scenario, "accelerate")
    if plan.pp > 1:
        found.refuse("plan.pp", f"{plan.pp} stages, and accelerate's file has none", "pp: 1, or another trainer")
    if count(plan.ep) > 1:
        found.refuse(
            "plan.ep", f"{count(plan.ep)}, and accelerate's file spreads no experts", "ep: 1, or --to deepspeed"
        )
    known = plan.precision in BASE
    if not known:
        found.refuse(
            "plan.precision", f"{plan.precision} is no mixed precision of accelerate", f"one of {', '.join(BASE)}"
        )
    if plan.master_dtype != "fp32":
        found.refuse(
            "plan.master_dtype", f"{plan.master_dtype}, and accelerate keeps masters in fp32", "master_dtype: fp32"
        )
    eight = plan.precision == "fp8" and plan.gather_dtype == "fp8"
    if (
        known
        and plan.sharding in ("fsdp", "zero3", "zero1", "zero2")
        and plan.gather_dtype != BASE[plan.precision]
        and not eight
    ):
        found.refuse(
            "plan.gather_dtype",
            f"{plan.gather_dtype}, and weights are gathered in {BASE.get(plan.precision)}",
            f"gather_dtype: {BASE.get(plan.precision)}",
        )
    if count(plan.tp) > 1 and plan.sequence_parallel:
        found.refuse(
            "plan.sequence_parallel",
            f"true with tp = {count(plan.tp)}: transformers' tensor parallelism keeps activations whole between products",
            "sequence_parallel: false",
        )


def _refuse_mesh(found: Saying, scenario: Scenario) -> None:
    """What FSDP2 on a mesh, and replicas, do not do."""
    plan = scenario.plan
    tp, cp, shard, replicas = (count(degree) for degree in (plan.tp, plan.cp, plan.dp_shard, plan.dp_replicate))
    if cp > 1 and plan.cp_kind == "ulysses":
        found.refuse(
            "plan.cp_kind",
            f"ulysses with cp = {cp}: accelerate has it with DeepSpeed alone",
            "cp_kind: ring or all-gather, or sharding: zero3",
        )
    if plan.sharding == "fsdp" and shard == 1 and cp == 1:
        found.refuse(
            "plan.sharding",
            "fsdp with dp_shard = 1 and cp = 1: accelerate refuses a mesh with nothing to shard over",
            "sharding: ddp, or none on one replica",
        )
    if plan.sharding != "fsdp" and (cp > 1 or (tp > 1 and shard * replicas > 1)):
        found.refuse(
            "plan.sharding",
            f"{plan.sharding} with tp = {tp} and cp = {cp}: accelerate's mesh goes with FSDP2",
            "sharding: fsdp",
        )
    away = set(plan.offload)
    if len(away & {"optimizer", "parameters"}) == 1:
        found.refuse(
            "plan.offload",
            f"{', '.join(plan.offload)}: fsdp_offload_params keeps parameters and optimizer on the host together",
            "both of them, or neither",
        )
    if "activations" in away and (
        plan.recompute != "full" or plan.sharding != "fsdp" or count(plan.offload_layers) > 0
    ):
        found.refuse(
            "plan.offload",
            "FSDP2 offloads the inputs of all checkpointed layers, and nothing else of activations",
            "recompute: full, without offload_layers; or no activations in offload",
        )


def _refuse_zero(found: Saying, scenario: Scenario) -> None:
    """What DeepSpeed refuses by itself, and what accelerate's file does not hand to it."""
    plan = scenario.plan
    already = {reason.field for reason in found.reasons}
    own = Saying("DeepSpeed")
    _deepspeed_write.refuse(own, scenario)
    found.reasons += [one for one in own.reasons if one.field not in already]
    if count(plan.tp) > 1:
        found.refuse("plan.tp", f"{count(plan.tp)} with {plan.sharding}", "tp: 1, or --to deepspeed")
    if "activations" in plan.offload:
        found.refuse("plan.offload", "activations with ZeRO are said in DeepSpeed's own file", "--to deepspeed")


def _fleet(found: Saying, scenario: Scenario) -> None:
    island, plan = scenario.fleet.islands[0], scenario.plan
    gpus, nodes = count(island.gpus), count(island.nodes)
    kind = {"fsdp": "FSDP", "zero1": "DEEPSPEED", "zero2": "DEEPSPEED", "zero3": "DEEPSPEED"}.get(plan.sharding)
    found.say("compute_environment", "LOCAL_MACHINE", "no SageMaker")
    found.say("distributed_type", kind or ("MULTI_GPU" if gpus > 1 else "NO"), f"plan.sharding = {plan.sharding}")
    found.say("num_machines", nodes, f"{nodes} nodes of {island.name}")
    found.say("num_processes", gpus, f"{gpus} GPUs")
    found.say("machine_rank", 0, "of the first machine; the launcher says the others'")
    found.say("main_training_function", "main", "usual")


def _formats(found: Saying, scenario: Scenario) -> None:
    plan = scenario.plan
    word = "fp8" if plan.precision in BACKENDS else "no" if BASE[plan.precision] == "fp32" else plan.precision
    found.say("mixed_precision", word, f"plan.precision = {plan.precision}")
    if plan.precision in BACKENDS:
        found.say("fp8_config.fp8_backend", BACKENDS[plan.precision], f"plan.precision = {plan.precision}")
    if plan.gather_dtype == "fp8":
        found.say("fp8_config.fp8_enable_fsdp_float8_all_gather", True, "plan.gather_dtype = fp8")
    if plan.precision == "tf32":
        found.leave("plan.precision", "tf32: TrainingArguments say it (tf32), this file says fp32")
    sharded = plan.sharding not in ("none", "ddp")
    usual = BASE[plan.precision] if sharded else "fp32"
    if plan.reduce_dtype != usual:
        found.leave(
            "plan.reduce_dtype",
            f"{plan.reduce_dtype}: accelerate reduces in {usual} unless the program hands over a policy "
            "(FullyShardedDataParallelPlugin(mixed_precision_policy=…), or communication_data_type of DeepSpeed)",
        )
    if not sharded and plan.gather_dtype != BASE[plan.precision]:
        found.leave("plan.gather_dtype", f"{plan.gather_dtype}: nothing is gathered")


def _sharded(found: Saying, scenario: Scenario) -> None:
    """FSDP2."""
    plan = scenario.plan
    section = "fsdp_config.fsdp_"
    found.say(f"{section}version", 2, "plan.sharding = fsdp")
    found.say(f"{section}reshard_after_forward", plan.reshard, f"plan.reshard = {str(plan.reshard).lower()}")
    found.say(f"{section}auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "every layer is gathered by itself")
    found.say(f"{section}state_dict_type", "SHARDED_STATE_DICT", "no figure depends on it")
    found.say(f"{section}cpu_ram_efficient_loading", False, "no figure depends on it")
    away = "parameters" in plan.offload
    found.say(f"{section}offload_params", away, f"plan.offload {'has' if away else 'lacks'} optimizer and parameters")
    if plan.recompute == "full":
        found.say(f"{section}activation_checkpointing", True, "plan.recompute = full")
    if "activations" in plan.offload:
        found.say(f"{section}activation_checkpointing_offload", True, "plan.offload has activations")


def _zero(found: Saying, scenario: Scenario) -> None:
    """DeepSpeed, as far as accelerate's file hands settings to it."""
    plan = scenario.plan
    section = "deepspeed_config."
    found.say(f"{section}zero_stage", int(plan.sharding[-1]), f"plan.sharding = {plan.sharding}")
    found.say(
        f"{section}gradient_accumulation_steps", steps_of(scenario), "run.global_batch over micro-batches and replicas"
    )
    for what, key in (("optimizer", "offload_optimizer_device"), ("parameters", "offload_param_device")):
        away = what in plan.offload
        found.say(f"{section}{key}", "cpu" if away else "none", f"plan.offload {'has' if away else 'lacks'} {what}")
    if count(scenario.fleet.islands[0].nodes) > 1:
        found.say(f"{section}deepspeed_multinode_launcher", "standard", "every machine starts its own processes")
    if plan.sharding == "zero3":
        found.say(f"{section}zero3_init_flag", True, "weights are made in shards")
    if not plan.reshard:
        found.leave("plan.reshard", f"false changes nothing under {plan.sharding}")
    if scenario.stack.gradient_dtype != BASE[plan.precision]:
        says = f"DeepSpeed adds gradients up in {BASE[plan.precision]} unless its own file says otherwise (data_types.grad_accum_dtype)"
        found.leave("stack.gradient_dtype", f"{scenario.stack.gradient_dtype}: {says}")


def _replicated(found: Saying, scenario: Scenario) -> None:
    """Replicas, or one of them."""
    plan = scenario.plan
    if plan.sharding == "ddp" and count(plan.dp) == 1:
        found.leave("plan.sharding", "ddp of one replica is written as it runs, without groups")
    if plan.sharding == "none" and count(plan.gpus) > 1:
        found.leave("plan.sharding", "none is written as replicas, of which there is one")
    if plan.sharding == "ddp" and count(plan.dp_replicate) > 1:
        found.leave("plan.dp_replicate", "all replicas of ddp are one degree")
        found.leave("plan.dp_shard", "all replicas of ddp are one degree")
    if not plan.reshard:
        found.leave("plan.reshard", f"false changes nothing under {plan.sharding}")


def _mesh(found: Saying, scenario: Scenario) -> None:
    """The mesh, where there is more than one axis of it."""
    plan = scenario.plan
    tp, cp = count(plan.tp), count(plan.cp)
    if plan.sharding == "fsdp":
        for name in ("dp_replicate", "dp_shard"):
            degree = count(getattr(plan, name))
            found.say(f"{MESH}{name}_size", degree, f"plan.{name} = {degree}")
    if tp > 1:
        found.say(f"{MESH}tp_size", tp, f"plan.tp = {tp}")
    elif not plan.sequence_parallel:
        found.leave("plan.sequence_parallel", "false changes nothing without tensor parallelism")
    if plan.async_tp:
        found.leave("plan.async_tp", "true needs sequence_parallel, which is not there")
    if cp > 1 and plan.cp_kind == "ulysses":
        found.say(f"{MESH}sp_size", cp, f"plan.cp = {cp}, plan.cp_kind = ulysses")
        found.say(f"{MESH}sp_backend", "deepspeed", "plan.cp_kind = ulysses")
    elif cp > 1:
        found.say(f"{MESH}cp_size", cp, f"plan.cp = {cp}")
        found.say(f"{MESH}cp_backend", "torch", f"plan.cp_kind = {plan.cp_kind}")
        passed = "alltoall" if plan.cp_kind == "ring" else "allgather"
        found.say(f"{MESH}cp_comm_strategy", passed, f"plan.cp_kind = {plan.cp_kind}")
    elif plan.cp_kind != "ring":
        found.leave("plan.cp_kind", f"{plan.cp_kind} changes nothing without context parallelism")
    if scenario.stack.kernels == "compiled":
        found.say("dynamo_config.dynamo_backend", "INDUCTOR", f"stack {scenario.stack.name} compiles")


def _beside(found: Saying, scenario: Scenario) -> None:
    """What TrainingArguments say, or the program."""
    plan, there = scenario.plan, _training_arguments.FILE
    found.leave("plan.micro_batch", f"{count(plan.micro_batch)}: {there} says it (per_device_train_batch_size)")
    found.leave(
        "run.global_batch", f"{count(scenario.run.global_batch)}: {there} says it (gradient_accumulation_steps)"
    )
    if plan.recompute == "full" and "fsdp_config.fsdp_activation_checkpointing" not in found.values:
        found.leave("plan.recompute", f"full: {there} says it (gradient_checkpointing)")
    elif plan.recompute not in ("none", "full"):
        found.leave("plan.recompute", f"{plan.recompute}: the program says which operations run again")
    if plan.optimizer != "adamw":
        where = (
            f"{there} says it (optim)" if plan.optimizer in _training_arguments.OPTIMIZERS else "the program says it"
        )
        found.leave("plan.optimizer", f"{plan.optimizer}: {where}")
    if plan.schedule != "1f1b":
        found.leave("plan.schedule", f"{plan.schedule} changes nothing without stages")
    if count(plan.etp) > 1:
        found.leave("plan.etp", f"{count(plan.etp)}: experts are cut as the program cuts them")
