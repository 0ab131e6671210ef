"""The settings of accelerate as a plan: what is distributed and how, number formats, what is recomputed and offloaded."""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs._reading import TREE, Reading, by_pattern
from shardmeter.interop.configs._trees import keys
from shardmeter.interop.configs.record import Imported

KINDS = (
    "no", "multi_gpu", "fsdp", "deepspeed", "megatron_lm", "tp", "multi_cpu", "multi_xpu", "multi_npu", "multi_mlu", "multi_sdaa",
    "multi_musa", "multi_hpu", "multi_neuron", "xla",
)  # fmt: skip
STRATEGIES = {
    "full_shard": ("fsdp", True), "1": ("fsdp", True), "shard_grad_op": ("fsdp", False), "2": ("fsdp", False),
    "no_shard": ("ddp", True), "3": ("ddp", True), "hybrid_shard": ("hsdp", True), "4": ("hsdp", True),
    "hybrid_shard_zero2": ("hsdp", False), "5": ("hsdp", False),
}  # fmt: skip
"""Of FSDP1: (sharding, reshard)."""
FLAGS = ("true", "false", "yes", "no", "1", "0")
FP8 = {"te": "fp8-delayed", "transformer_engine": "fp8-delayed", "ao": "fp8", "torchao": "fp8", "msamp": "fp8-delayed"}
SIZE = "parallelism_config.parallelism_config_{}_size"
IDLE = {
    "fsdp_config.*prefetch": "gathers run ahead as the stack's do",
    "fsdp_config.*wrap*": "every layer is one unit here",
    "fsdp_config.*min_num_params": "every layer is one unit here",
    "fsdp_config*": "it is about how weights are loaded and saved",
    "fp8_config.*": "how scales are kept changes no figure here",
    "deepspeed_config.*nvme_path": "rates of drives are not modelled",
    "dynamo_config.*": "how the compiler is called changes no figure here",
    "parallelism_config.*": "how sequences are handed over changes no figure here",
    "megatron_lm_config.*": "of Megatron-LM inside accelerate only its degrees are read",
    "tpu_*": "of TPU pods nothing is read",
    "num_machines": "--gpus says on how many nodes",
}  # fmt: skip


def imported(settings: dict[str, Any], version: str) -> Imported:
    """Settings by their dotted paths as a scenario. Raises BadScenario with everything that is malformed."""
    found = Reading("accelerate", settings, keys("accelerate-1.15.0"), TREE)
    kind = found.word("distributed_type", KINDS, otherwise="no")
    plan: dict[str, Any] = {}
    world = processes(found)
    read_degrees(found, plan)
    reader = {"fsdp": read_fsdp, "deepspeed": read_deepspeed, "megatron_lm": read_megatron}.get(kind, read_replicas)
    reader(found, plan)
    read_formats(found, plan, kind)
    if world and not found.violations:
        _fill(found, plan, world)
    found.means(f"plan.sharding = {plan['sharding']}", "distributed_type")
    found.means(f"{world} GPUs, over which the degrees are laid" if world else "left to the launcher", "num_processes")
    compiled = (
        str(
            found.value(_first(found, "dynamo_config.dynamo_backend", "dynamo_config.backend", "dynamo_backend"))
        ).lower()
        == "inductor"
    )
    name = "titan-compile" if compiled else "titan-eager"
    for key in ("dynamo_config.dynamo_backend", "dynamo_config.backend", "dynamo_backend"):
        found.means(f"stack = {name}", key)
    found.assume(f"stack {name}: none is fitted on accelerate; `shardmeter calibrate` fits one on a log of yours")
    plan["optimizer"] = "adamw"
    found.assume("plan.optimizer adamw: the program says it")
    say = f"--gpus {world}xNAME" if world else "--gpus"
    found.assume(
        f"model, accelerators, batches and the length of sequences are no settings of this file: options say them (--model, {say}, "
        "--micro-batch, --global-batch, --seq)"
    )
    document: dict[str, Any] = {"plan": plan, "stack": name}
    if kind == "deepspeed":
        document["stack"] = {"base": name, "gradient_dtype": plan["reduce_dtype"]}
        found.assume(
            f"stack.gradient_dtype {plan['reduce_dtype']}: DeepSpeed adds gradients up as it holds parameters unless told"
        )
    return found.imported(version, by_pattern(IDLE), document)


def processes(found: Reading) -> int | None:
    """GPUs of the run; None where they are left to the launcher (-1)."""
    world = found.whole("num_processes", least=-1)
    return world if world and world > 0 else None


def read_degrees(found: Reading, plan: dict[str, Any]) -> None:
    """The mesh of `parallelism_config`."""
    degrees = {name: found.whole(SIZE.format(name)) or 1 for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")}
    for name, degree in degrees.items():
        found.means(f"plan.{'cp' if name == 'sp' else name} = {degree}", SIZE.format(name))
        if name in ("dp_replicate", "dp_shard", "tp") and degree > 1:
            plan[name] = degree
    if degrees["cp"] > 1 and degrees["sp"] > 1:
        found.refuse(
            SIZE.format("sp"),
            f"cp and sp are both more than 1 ({degrees['cp']} and {degrees['sp']})",
            "keep one of the two",
        )
    if degrees["tp"] > 1:
        plan["sequence_parallel"] = False
        found.assume(
            "plan.sequence_parallel false: transformers' tensor parallelism keeps activations whole between products"
        )
    strategy = "parallelism_config.parallelism_config_cp_comm_strategy"
    if degrees["sp"] > 1:
        plan |= {"cp": degrees["sp"], "cp_kind": "ulysses"}
    elif degrees["cp"] > 1:
        passed = found.word(strategy, ("allgather", "alltoall"), otherwise="allgather")
        plan |= {"cp": degrees["cp"], "cp_kind": "ring" if passed == "alltoall" else "all-gather"}
        if not found.has(strategy):
            found.assume("plan.cp_kind all-gather: accelerate's cp_comm_strategy where it is left out")
        found.means(f"plan.cp_kind = {plan['cp_kind']}", strategy)


def read_fsdp(found: Reading, plan: dict[str, Any], named: str = "") -> None:
    """FSDP of either version. `named`: the strategy, where another setting says it."""
    own = {name: _first(found, f"fsdp_config.fsdp_{name}", f"fsdp_config.{name}") for name in _OF_FSDP}
    second = found.whole(own["version"], least=1, most=2) or 1
    if not found.has(own["version"]):
        found.assume("FSDP1: the file does not say fsdp_version, and accelerate's is 1")
    found.means(f"FSDP{second}", own["version"])
    plan |= {"sharding": "fsdp", "reshard": True}
    key = own["reshard_after_forward"]
    if second == 2:
        plan["reshard"] = found.flag(key, default=True)
        found.means(f"plan.reshard = {str(plan['reshard']).lower()}", key)
        found.ignore(own["sharding_strategy"], "FSDP2 has fsdp_reshard_after_forward instead")
    else:
        key = own["sharding_strategy"] if named or own["sharding_strategy"] in found.said else key
        word = named or found.word(key, (*STRATEGIES, *FLAGS), otherwise="full_shard")
        plan["sharding"], plan["reshard"] = STRATEGIES.get(word, ("fsdp", word in ("true", "yes")))
        found.means(f"plan.sharding = {plan['sharding']}, plan.reshard = {str(plan['reshard']).lower()}", key)
    if plan["sharding"] == "hsdp":
        machines, world = found.whole("num_machines") or 1, processes(found)
        found.means(
            f"plan.dp_replicate = {machines}: every machine shards, and they replicate one another", "num_machines"
        )
        if world and world % machines == 0:
            plan |= {"sharding": "fsdp", "dp_replicate": machines, "dp_shard": world // machines}
    away = ["optimizer", "parameters"] if found.flag(own["offload_params"]) else []
    found.means(f"plan.offload {'has' if away else 'lacks'} optimizer and parameters", own["offload_params"])
    again = found.flag(own["activation_checkpointing"])
    plan["recompute"] = "full" if again else "none"
    if not found.has(own["activation_checkpointing"]):
        found.assume(
            "plan.recompute none: fsdp_activation_checkpointing is left out; if the program checkpoints, say --set plan.recompute=full"
        )
    found.means(f"plan.recompute = {plan['recompute']}", own["activation_checkpointing"])
    if found.flag(own["activation_checkpointing_offload"]) and again:
        away.append("activations")
    found.means(
        f"plan.offload {'has' if 'activations' in away else 'lacks'} activations",
        own["activation_checkpointing_offload"],
    )
    plan["offload"] = away or "none"


_OF_FSDP = (
    "version", "reshard_after_forward", "sharding_strategy", "offload_params", "activation_checkpointing", "activation_checkpointing_offload",
)  # fmt: skip


def read_deepspeed(found: Reading, plan: dict[str, Any]) -> None:
    """DeepSpeed as accelerate's file says it."""
    section = "deepspeed_config."
    stage = found.whole(f"{section}zero_stage", least=0, most=3)
    elsewhere = found.said.get(f"{section}deepspeed_config_file")
    if stage is None:
        stage = 2
        found.assume(
            f"plan.sharding zero2: the stage is said in {elsewhere}; read that file itself" if elsewhere
            else "plan.sharding zero2: the file does not say zero_stage, and accelerate's is 2"
        )  # fmt: skip
    plan["sharding"] = ("ddp", "zero1", "zero2", "zero3")[stage]
    found.means(f"plan.sharding = {plan['sharding']}", f"{section}zero_stage")
    away = []
    for what, name in (("optimizer", "offload_optimizer_device"), ("parameters", "offload_param_device")):
        device = found.word(f"{section}{name}", ("none", "cpu", "nvme"), otherwise="none")
        if device == "nvme":
            found.assume(f"{name} nvme: read as the host's memory, which is faster; rates of drives are not modelled")
        if device != "none":
            away.append(what)
        found.means(f"plan.offload {'lacks' if device == 'none' else 'has'} {what}", f"{section}{name}")
    plan |= {"offload": away or "none", "recompute": "none"}
    found.assume(
        "plan.recompute none: the program says it (gradient_checkpointing); if it does, say --set plan.recompute=full"
    )
    steps = found.whole(f"{section}gradient_accumulation_steps")
    if steps:
        found.adds_up(f"{section}gradient_accumulation_steps", steps)
    found.ignore(
        f"{section}deepspeed_config_file", "its settings are in that file: read it by itself, and lay both together"
    )


def read_megatron(found: Reading, plan: dict[str, Any]) -> None:
    """Megatron-LM as accelerate's file says it: degrees, sharding, what is recomputed."""
    section = "megatron_lm_config.megatron_lm_"
    for name, field in (
        ("tp_degree", "tp"), ("pp_degree", "pp"), ("context_parallel_size", "cp"), ("expert_model_parallel_size", "ep"),
        ("expert_tensor_parallel_size", "etp"),
    ):  # fmt: skip
        degree = found.whole(f"{section}{name}")
        if degree:
            plan[field] = degree
        found.means(f"plan.{field} = {degree}", f"{section}{name}")
    if plan.get("pp", 1) > 1:
        plan["schedule"] = "1f1b"
    plan["sequence_parallel"] = found.flag(f"{section}sequence_parallelism") or plan.get("tp", 1) == 1
    found.means(f"plan.sequence_parallel = {str(plan['sequence_parallel']).lower()}", f"{section}sequence_parallelism")
    zero = found.flag(f"{section}use_distributed_optimizer")
    plan["sharding"] = "zero1" if zero else "ddp"
    found.means(f"plan.sharding = {plan['sharding']}", f"{section}use_distributed_optimizer")
    again = found.flag(f"{section}recompute_activations")
    plan |= {"recompute": "selective" if again else "none", "offload": "none"}
    found.means(f"plan.recompute = {plan['recompute']}", f"{section}recompute_activations")
    found.ignore(
        f"{section}num_micro_batches", "the micro-batch is the program's: say --micro-batch and --global-batch"
    )


def read_replicas(found: Reading, plan: dict[str, Any]) -> None:
    """Copies of the model, or one."""
    plan |= {"sharding": "none" if processes(found) == 1 else "ddp", "recompute": "none", "offload": "none"}
    found.assume(
        "plan.recompute none: the program says it (gradient_checkpointing); if it does, say --set plan.recompute=full"
    )


def read_formats(found: Reading, plan: dict[str, Any], kind: str) -> None:
    """What is multiplied, gathered, reduced and kept in which number format: accelerate's policies of mixed precision."""
    word = found.word(
        "mixed_precision", ("no", "false", "fp16", "bf16", "fp8"), otherwise="fp16" if found.flag("fp16") else "no"
    )
    found.means("plan.precision = fp16", "fp16")
    base = "fp32" if word in ("no", "false") else "bf16" if word == "fp8" else word
    plan["precision"] = base
    if word == "fp8":
        key = _first(found, "fp8_config.fp8_backend", "fp8_config.backend")
        plan["precision"] = found.word(key, FP8, otherwise=FP8["te"])
        found.means(f"plan.precision = {plan['precision']}", key)
    found.means(f"plan.precision = {plan['precision']}", "mixed_precision")
    policy(found, plan, base, kind in ("fsdp", "deepspeed", "megatron_lm"))
    every = _first(found, "fp8_config.fp8_enable_fsdp_float8_all_gather", "fp8_config.enable_fsdp_float8_all_gather")
    if found.flag(every) and word == "fp8":
        plan["gather_dtype"] = "fp8"
        found.means("plan.gather_dtype = fp8", every)


def policy(found: Reading, plan: dict[str, Any], base: str, cast: bool) -> None:
    """What is gathered, reduced and kept under mixed precision in `base`: weights `cast` as a whole by FSDP or ZeRO, or by autocast."""
    plan |= {"gather_dtype": base, "reduce_dtype": base if cast else "fp32", "master_dtype": "fp32"}
    if base == "fp32":
        found.assume(
            "plan.precision fp32: no mixed precision; a model that the program loads in bf16 trains in bf16, without fp32 masters"
        )
    elif cast:
        found.assume(
            f"plan.reduce_dtype {base}: of the policy that mixed precision makes, unless the program hands over one of its own"
        )
    else:
        found.assume("plan.reduce_dtype fp32: weights and gradients are fp32 under autocast")


def _fill(found: Reading, plan: dict[str, Any], world: int) -> None:
    """The data-parallel degree that the number of processes leaves."""
    shards = plan["sharding"] not in ("ddp", "none")
    inside = plan.get("tp", 1) * plan.get("cp", 1) * plan.get("pp", 1) * plan.get("dp_replicate", 1)
    left = world / (inside * plan.get("dp_shard", 1))
    if left == 1:
        plan.setdefault("dp_shard", 1)
        return
    if left != round(left) or ("dp_shard" in plan and shards):
        found.refuse(
            "num_processes",
            f"{world}, but the degrees multiply to {inside * plan.get('dp_shard', 1)}",
            "as many processes as the degrees multiply to",
            "tp·cp·dp_shard·dp_replicate = processes",
        )
    elif plan["sharding"] != "hsdp":
        plan["dp_shard"] = plan.get("dp_shard", 1) * round(left)


def _first(found: Reading, *names: str) -> str:
    """The first of several spellings that the file has; the first where it has none."""
    return next((name for name in names if name in found.said), names[0])
