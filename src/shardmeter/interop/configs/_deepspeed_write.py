"""A plan and a run as DeepSpeed's JSON, what its engine refuses (by its own checks of 0.19.8), and what programs have to say."""

from __future__ import annotations

import json
from typing import Any

from shardmeter.interop.configs._saying import Saying, count
from shardmeter.interop.configs._writing import leave_the_run, refuse_islands, steps_of, tree
from shardmeter.interop.configs.record import Exported, Written
from shardmeter.specs import Scenario

NAMES = {"adamw": "AdamW", "sgd": "SGD", "adafactor": "Adafactor", "muon": "Muon"}
"""Optimizers by the word of `optimizer.type`; others come from the program."""
OF_TORCH = ("sgd", "adafactor")
"""Those that DeepSpeed takes from torch.optim, and calls untested under ZeRO."""
STAGE = {"none": 0, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
FILE = "deepspeed.json"


def exported(scenario: Scenario, version: str) -> Exported:
    """The file, what is unsaid in it, and the command. Raises Inexpressible."""
    found = Saying(f"DeepSpeed {version}")
    refuse(found, scenario)
    found.stop()
    _batch(found, scenario)
    _sharding(found, scenario)
    _degrees(found, scenario)
    _formats(found, scenario)
    _rest(found, scenario)
    leave_the_run(found, scenario, "the program says it")
    text = json.dumps(tree(found), indent=2) + "\n"
    return Exported(
        format="deepspeed",
        version=version,
        files=(Written(name=FILE, text=text),),
        launch=f"torchrun train.py --deepspeed --deepspeed_config {FILE}",
        said=found.settings(),
        unsaid=tuple(found.unsaid),
        notes=(
            "train.py is the program: it builds the model, hands it to deepspeed.initialize(config=…) and reads the data",
            "the learning rate and its schedule are added to the file (optimizer.params, scheduler), or said by the program",
        ),
    )


def refuse(found: Saying, scenario: Scenario) -> None:
    """Every reason why DeepSpeed would make another run of a plan."""
    plan = scenario.plan
    stage = STAGE[plan.sharding]
    refuse_islands(found, scenario, "DeepSpeed")
    _refuse_sharding(found, scenario, stage)
    _refuse_degrees(found, scenario, stage)
    if plan.precision not in ("bf16", "fp16", "fp32", "tf32"):
        found.refuse(
            "plan.precision", f"{plan.precision} is no number format of DeepSpeed's file", "bf16, fp16, fp32 or tf32"
        )
    base = "fp32" if plan.precision == "tf32" else plan.precision
    if stage > 0 and plan.gather_dtype != base and plan.precision in ("bf16", "fp16", "fp32", "tf32"):
        found.refuse(
            "plan.gather_dtype",
            f"{plan.gather_dtype}, and DeepSpeed gathers weights as they are held, in {base}",
            f"gather_dtype: {base}",
        )
    if plan.master_dtype != "fp32" and (
        plan.master_dtype != plan.precision or plan.master_dtype != "bf16" or stage == 0
    ):
        found.refuse(
            "plan.master_dtype",
            f"{plan.master_dtype} with precision {plan.precision} and stage {stage}: bf16 masters go with bf16 and a stage of ZeRO",
            "master_dtype: fp32",
        )
    away = plan.offload
    if "optimizer" in away and stage == 0:
        found.refuse(
            "plan.offload",
            f"the optimizer lies on the host, and sharding {plan.sharding} has none of ZeRO's stages",
            "sharding: zero1, zero2 or zero3",
        )
    if "activations" in away and (plan.recompute != "full" or count(plan.offload_layers) > 0):
        found.refuse(
            "plan.offload",
            "DeepSpeed offloads the inputs of all checkpointed layers (cpu_checkpointing), and nothing else of activations",
            "recompute: full, without offload_layers; or no activations in offload",
        )


def _refuse_sharding(found: Saying, scenario: Scenario, stage: int) -> None:
    plan = scenario.plan
    replicas = count(plan.dp_replicate)
    if stage > 0 and replicas > 1:
        found.refuse(
            "plan.dp_replicate",
            f"{plan.sharding} in {replicas} groups: ZeRO shards over all ranks since MiCS was removed, and zero_hpz_partition_size gathers "
            "the forward pass from all of them and shards optimizer states over all",
            "dp_replicate: 1, or another trainer",
        )
    if plan.sharding == "fsdp" and not plan.reshard:
        found.refuse(
            "plan.reshard",
            "false: stage 3 gathers parameters again for the backward",
            "reshard: true, or sharding: zero2",
        )


def _refuse_degrees(found: Saying, scenario: Scenario, stage: int) -> None:
    plan = scenario.plan
    tp, pp, cp, ep = (count(degree) for degree in (plan.tp, plan.pp, plan.cp, plan.ep))
    if tp > 1 and plan.sequence_parallel:
        found.refuse(
            "plan.sequence_parallel",
            f"true with tp = {tp}: DeepSpeed's tensor parallelism keeps activations whole between products",
            "sequence_parallel: false",
        )
    if cp > 1 and plan.cp_kind != "ulysses":
        found.refuse(
            "plan.cp_kind",
            f"{plan.cp_kind} with cp = {cp}: DeepSpeed cuts sequences by heads (Ulysses)",
            "cp_kind: ulysses",
        )
    if pp > 1 and stage > 1:
        found.refuse(
            "plan.sharding",
            f"{plan.sharding} with pp = {pp}: its pipelines go with stages 0 and 1",
            "sharding: zero1 or ddp",
        )
    if pp > 1 and (plan.schedule != "1f1b" or plan.virtual_stages > 1):
        found.refuse(
            "plan.schedule",
            f"{plan.schedule} with {plan.virtual_stages} virtual stages: its pipelines run 1f1b",
            "schedule: 1f1b",
        )
    if ep > 1 and count(plan.etp) > 1:
        found.refuse("plan.etp", f"{count(plan.etp)}: experts are not cut by tensor parallelism", "etp: 1")
    if ep > 1 and tp > 1 and {"optimizer", "parameters"} & set(plan.offload):
        found.refuse(
            "plan.offload",
            f"{', '.join(plan.offload)} with tp = {tp} and ep = {ep} is refused by AutoEP",
            "offload: none, or tp: 1",
        )
    if ep > 1 and cp > 1 and (stage == 3 or tp > 1):
        found.refuse(
            "plan.cp",
            f"{cp} with ep = {ep}: AutoEP refuses sequence parallelism with stage 3 and with tensor parallelism",
            "cp: 1",
        )


def _batch(found: Saying, scenario: Scenario) -> None:
    plan, run = scenario.plan, scenario.run
    batch, steps = count(run.global_batch), steps_of(scenario)
    found.say("train_batch_size", batch, f"run.global_batch = {batch}")
    found.say(
        "train_micro_batch_size_per_gpu", count(plan.micro_batch), f"plan.micro_batch = {count(plan.micro_batch)}"
    )
    found.say(
        "gradient_accumulation_steps", steps, f"run.global_batch over micro-batches and {count(plan.dp)} replicas"
    )


def _sharding(found: Saying, scenario: Scenario) -> None:
    plan = scenario.plan
    stage = STAGE[plan.sharding]
    found.say("zero_optimization.stage", stage, f"plan.sharding = {plan.sharding}")
    overlap = scenario.stack.gradient_overlap
    found.say("zero_optimization.overlap_comm", overlap, f"stack.gradient_overlap = {str(overlap).lower()}")
    if "optimizer" in plan.offload:
        found.say("zero_optimization.offload_optimizer.device", "cpu", "plan.offload has optimizer")
    if "parameters" in plan.offload:
        found.say("zero_optimization.offload_param.device", "cpu", "plan.offload has parameters")
    if plan.sharding == "fsdp":
        found.leave("plan.sharding", "fsdp is written as ZeRO stage 3, which shards, gathers and reduces as much")
    if plan.sharding == "none":
        found.leave("plan.sharding", "none is written as stage 0 of one replica, which reads as ddp")
    if plan.sharding == "ddp" and count(plan.dp_replicate) > 1:
        found.leave("plan.dp_replicate", "all replicas of ddp are one degree")
        found.leave("plan.dp_shard", "all replicas of ddp are one degree")
    if not plan.reshard and plan.sharding != "fsdp":
        found.leave("plan.reshard", f"false changes nothing under {plan.sharding}")


def _degrees(found: Saying, scenario: Scenario) -> None:
    plan = scenario.plan
    tp, cp, ep = (count(degree) for degree in (plan.tp, plan.cp, plan.ep))
    if tp > 1:
        found.say("tensor_parallel.autotp_size", tp, f"plan.tp = {tp}")
        if plan.async_tp:
            found.leave("plan.async_tp", "true needs sequence_parallel, which is not there")
    elif not plan.sequence_parallel:
        found.leave("plan.sequence_parallel", "false changes nothing without tensor parallelism")
    if plan.pp > 1:
        found.say(
            "pipeline.stages", plan.pp, f"plan.pp = {plan.pp} (the PipelineModule's num_stages has to say it too)"
        )
    elif plan.schedule != "1f1b":
        found.leave("plan.schedule", f"{plan.schedule} changes nothing without stages")
    if cp > 1:
        found.say("sequence_parallel_size", cp, f"plan.cp = {cp}, plan.cp_kind = ulysses")
    elif plan.cp_kind != "ring":
        found.leave("plan.cp_kind", f"{plan.cp_kind} changes nothing without context parallelism")
    if ep > 1:
        found.say("expert_parallel.enabled", True, "experts are spread over ranks")
        found.say("expert_parallel.autoep_size", ep, f"plan.ep = {ep}")
    elif count(plan.etp) > 1:
        found.leave("plan.etp", f"{count(plan.etp)}: experts are cut as the program cuts them")


def _formats(found: Saying, scenario: Scenario) -> None:
    plan = scenario.plan
    for dtype in ("bf16", "fp16"):
        if plan.precision == dtype:
            found.say(f"{dtype}.enabled", True, f"plan.precision = {dtype}")
    if plan.precision == "tf32":
        found.leave(
            "plan.precision", "tf32: the program allows it (torch.backends.cuda.matmul.allow_tf32), the file says fp32"
        )
    if plan.master_dtype == "bf16":
        found.say("bf16.bf16_master_weights_and_grads", True, "plan.master_dtype = bf16")
        found.say("bf16.bf16_optimizer_states", True, "plan.master_dtype = bf16")
    _sums(found, scenario)
    key = "seq_parallel_communication_data_type" if count(plan.cp) > 1 else "communication_data_type"
    found.say(key, plan.reduce_dtype, f"plan.reduce_dtype = {plan.reduce_dtype}")
    base = "fp32" if plan.precision == "tf32" else plan.precision
    if STAGE[plan.sharding] == 0 and plan.gather_dtype != base:
        found.leave("plan.gather_dtype", f"{plan.gather_dtype}: nothing is gathered")


def _sums(found: Saying, scenario: Scenario) -> None:
    """The format in which gradients are added up: that of the parameters, unless a stage of ZeRO is told otherwise."""
    plan, added = scenario.plan, scenario.stack.gradient_dtype
    held = plan.precision if plan.precision in ("bf16", "fp16") else "fp32"
    if added == held:
        return
    if STAGE[plan.sharding] and held != "fp32":
        found.say("data_types.grad_accum_dtype", added, f"stack.gradient_dtype = {added}")
    else:
        found.leave("stack.gradient_dtype", f"{added}: gradients are added up in {held} here")


def _rest(found: Saying, scenario: Scenario) -> None:
    plan = scenario.plan
    name: Any = NAMES.get(plan.optimizer)
    if name:
        found.say("optimizer.type", name, f"plan.optimizer = {plan.optimizer}")
    else:
        found.leave("plan.optimizer", f"{plan.optimizer}: the program hands it to deepspeed.initialize")
    if STAGE[plan.sharding] and (plan.optimizer in OF_TORCH or not name):
        found.say("zero_allow_untested_optimizer", True, f"plan.optimizer = {plan.optimizer} under ZeRO")
    if plan.recompute == "full" and plan.pp > 1:
        found.say("pipeline.activation_checkpoint_interval", 1, "plan.recompute = full")
    elif plan.recompute != "none" and "activations" not in plan.offload:
        found.leave(
            "plan.recompute",
            f"{plan.recompute}: the program says which layers run again (gradient_checkpointing_enable())",
        )
    if "activations" in plan.offload:
        found.say(
            "activation_checkpointing.cpu_checkpointing", True, "plan.offload has activations, plan.recompute = full"
        )
