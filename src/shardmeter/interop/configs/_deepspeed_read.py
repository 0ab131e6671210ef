"""The settings of DeepSpeed as a plan and a run: sharding, number formats, degrees, batches, what is recomputed and offloaded."""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs._reading import TREE, Reading, by_pattern
from shardmeter.interop.configs._trees import keys
from shardmeter.interop.configs.record import Imported

STAGES = ("ddp", "zero1", "zero2", "zero3")
OPTIMIZERS = {
    "adam": "adamw", "adamw": "adamw", "fusedadam": "adamw", "onebitadam": "adamw", "zerooneadam": "adamw", "lamb": "adamw",
    "muadam": "adamw", "muadamw": "adamw", "adamw8bit": "adamw8bit", "sgd": "sgd", "musgd": "sgd", "lion": "sgd", "adagrad": "sgd",
    "adafactor": "adafactor", "muon": "muon",
}  # fmt: skip
"""Optimizers by what they keep: two moments, one, or neither."""
ZERO = "zero_optimization."
DTYPES = {"bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16",
          "torch.float16": "fp16", "fp32": "fp32", "float32": "fp32", "float": "fp32", "torch.float32": "fp32"}  # fmt: skip
STACK = "titan-eager"
REMOVED = (
    "nebula", "compression_training", "amp", "quantize_training", "sparse_gradients", "eigenvalue", "sparse_attention", "elasticity",
    "graph_harvesting", "curriculum_learning", "progressive_layer_drop",
)  # fmt: skip
"""Sections of the top that 0.19 refuses by name, saying that they were removed."""
REMOVED_ZERO = ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")
GONE = "removed from DeepSpeed: 0.19 refuses a file that has it"
IDLE = {
    "optimizer.params*": "learning rates and decay change no step time",
    "scheduler*": "a learning rate changes no step time",
    "zero_optimization.zero_quantized_weights": "weights are gathered in the plan's gather_dtype here: 8 bits of them are not expressed",
    "zero_optimization.zero_quantized_gradients": "gradients are reduced in the plan's reduce_dtype here: 4 bits of them are not expressed",
    "zero_optimization.stage3_*": "sizes of buffers and caches of stage 3 are not modelled: every layer is gathered for each pass",
    "zero_optimization.*bucket*": "the number of messages is the stack's",
    "zero_optimization.offload_*": "how the host's buffers are laid out is not modelled",
    "zero_optimization.zenflow*": "updates that run behind the next steps are not modelled",
    "fp16.*": "loss scaling changes no step time",
    "compile.*": "what DeepCompile reorders is not modelled",
    "pipeline.*": "what stages are made of is the program's",
    "tensor_parallel.*": "which matrices are cut is the program's",
    "expert_parallel.*": "how tokens are routed is the program's",
    "data_efficiency*": "which samples are drawn changes no step time",
    "activation_checkpointing*": "it says how checkpointed layers are kept, not which: that is the program's",
    "gradient_clipping": "reading the gradient for its norm is in every update already",
}  # fmt: skip
"""Why settings change no figure, by patterns, the first that matches."""


def imported(settings: dict[str, Any], version: str) -> Imported:
    """Settings by their dotted paths as a scenario. Raises BadScenario with everything that is malformed."""
    found = Reading("deepspeed", settings, keys("deepspeed-0.19.8"), TREE)
    for key in [one for one in settings if one.split(".")[0] in REMOVED or one.removeprefix(ZERO) in REMOVED_ZERO]:
        if key != f"{ZERO}mics_shard_size":
            found.ignore(key, GONE)
    plan: dict[str, Any] = {}
    run: dict[str, Any] = {}
    read_sharding(found, plan)
    read_degrees(found, plan)
    read_formats(found, plan)
    read_offload(found, plan)
    read_recompute(found, plan)
    read_optimizer(found, plan)
    read_batch(found, plan, run)
    document: dict[str, Any] = {"plan": plan, "stack": read_stack(found, plan)}
    if run:
        document["run"] = run
    found.assume(
        "model, accelerators and the length of sequences are no settings of this file: options say them (--model, --gpus, --seq)"
    )
    return found.imported(version, by_pattern(IDLE), document)


def read_sharding(found: Reading, plan: dict[str, Any]) -> None:
    """The stage of ZeRO, and groups that it shards in."""
    stage = found.whole(f"{ZERO}stage", least=0, most=3)
    older = found.flag("zero_optimization") if not isinstance(found.said.get("zero_optimization"), dict) else None
    if older and stage is None:
        stage = 1
        found.means("plan.sharding = zero1: true is an older spelling of stage 1", "zero_optimization")
    plan["sharding"] = STAGES[stage or 0]
    if stage is None:
        found.assume("plan.sharding ddp: no ZeRO stage is said, and DeepSpeed's is 0")
    found.means(f"plan.sharding = {plan['sharding']}", f"{ZERO}stage")
    shard = found.whole(f"{ZERO}mics_shard_size", least=-1)
    if shard and shard > 0 and stage == 3:
        plan |= {"sharding": "hsdp", "dp_shard": shard}
        found.means(
            f"plan.sharding = hsdp, plan.dp_shard = {shard} (MiCS; 0.19 has it no more)", f"{ZERO}mics_shard_size"
        )
    found.ignore(f"{ZERO}mics_shard_size", GONE)
    second = found.whole(f"{ZERO}zero_hpz_partition_size", least=0)
    if second and second > 1:
        found.ignore(
            f"{ZERO}zero_hpz_partition_size",
            f"a second copy of the weights in groups of {second}, from which the backward gathers, is not expressed: read as zero3, whose "
            f"backward gathers from all ranks (slower), without that copy (2 bytes · parameters / {second} of memory less)",
        )


def read_degrees(found: Reading, plan: dict[str, Any]) -> None:
    """Tensor, pipeline, sequence and expert parallelism."""
    tp = found.whole("tensor_parallel.autotp_size", least=0)
    if tp:
        plan["tp"] = tp
        found.means(f"plan.tp = {tp}", "tensor_parallel.autotp_size")
    if tp and tp > 1:
        plan["sequence_parallel"] = False
        found.assume(
            "plan.sequence_parallel false: DeepSpeed's tensor parallelism keeps activations whole between products"
        )
    stages = None if found.said.get("pipeline.stages") == "auto" else found.whole("pipeline.stages")
    if stages:
        plan |= {"pp": stages, "schedule": "1f1b"}
        found.means(
            f"plan.pp = {stages}, plan.schedule = 1f1b (the PipelineModule's num_stages has to agree)",
            "pipeline.stages",
        )
    cp = found.whole("sequence_parallel_size")
    if cp:
        plan |= {"cp": cp, "cp_kind": "ulysses"}
        found.means(f"plan.cp = {cp}, plan.cp_kind = ulysses", "sequence_parallel_size")
    ep = found.whole("expert_parallel.autoep_size")
    if found.flag("expert_parallel.enabled") and ep:
        plan["ep"] = ep
        found.means(f"plan.ep = {ep}", "expert_parallel.autoep_size")
        etp = found.whole("expert_parallel.expert_tensor_parallel_size")
        plan["etp"] = etp or 1
        found.means(f"plan.etp = {etp}", "expert_parallel.expert_tensor_parallel_size")
        found.means("experts are spread over ranks", "expert_parallel.enabled")


def read_formats(found: Reading, plan: dict[str, Any]) -> None:
    """What is multiplied, gathered, reduced and kept in which number format."""
    section = next((one for one in ("bf16", "bfloat16") if f"{one}.enabled" in found.said), "bf16")
    bf16, fp16 = found.flag(f"{section}.enabled"), found.flag("fp16.enabled")
    cast = found.flag("torch_autocast.enabled")
    automatic = found.hides(f"{section}.enabled") or found.hides("fp16.enabled")
    dtype = "fp32"
    if bf16 and fp16:
        found.refuse("bf16.enabled", "bf16 and fp16 are both enabled", "keep one", "DeepSpeed refuses both at once")
    elif bf16 or fp16:
        dtype = "bf16" if bf16 else "fp16"
    elif cast:
        dtype = found.word("torch_autocast.dtype", DTYPES, otherwise="bf16")
        found.assume(f"plan.precision {dtype}: autocast over weights in fp32, which are gathered and reduced in fp32")
    elif automatic:
        dtype = "bf16"
        found.assume("plan.precision bf16: the file leaves it to the program (`auto`); fp16 would take as long")
    else:
        found.assume("plan.precision fp32: neither bf16 nor fp16 is enabled")
    held = "fp32" if cast and not (bf16 or fp16) else dtype
    plan |= {"precision": dtype, "gather_dtype": held, "reduce_dtype": held, "master_dtype": "fp32"}
    for key in (f"{section}.enabled", "fp16.enabled", "torch_autocast.enabled", "torch_autocast.dtype"):
        found.means(f"plan.precision = {dtype}", key)
    wanted = "seq_parallel_communication_data_type" if plan.get("cp", 1) > 1 else "communication_data_type"
    reduce = found.word(wanted, ("fp32", "bf16", "fp16"), otherwise="fp32" if plan.get("cp", 1) > 1 else "")
    if reduce:
        plan["reduce_dtype"] = reduce
    if not found.has(wanted):
        found.assume(f"plan.reduce_dtype {plan['reduce_dtype']}: DeepSpeed's where {wanted} is left out")
    found.means(f"plan.reduce_dtype = {plan['reduce_dtype']}", wanted)
    master = found.flag(f"{section}.bf16_master_weights_and_grads")
    moments = found.flag(f"{section}.bf16_optimizer_states")
    if master and moments:
        plan["master_dtype"] = "bf16"
        found.means("plan.master_dtype = bf16", f"{section}.bf16_master_weights_and_grads")
        found.means("plan.master_dtype = bf16", f"{section}.bf16_optimizer_states")
    elif master:
        found.ignore(
            f"{section}.bf16_master_weights_and_grads",
            "moments in another format than the master's are not expressed: read as fp32",
        )


def read_offload(found: Reading, plan: dict[str, Any]) -> None:
    """What lies on the host."""
    away = []
    for what, section, older in (
        ("optimizer", "offload_optimizer", "cpu_offload"),
        ("parameters", "offload_param", "cpu_offload_param"),
    ):
        key = f"{ZERO}{section}.device"
        device = found.word(key, ("none", "cpu", "nvme"), otherwise="none")
        if device == "nvme":
            found.assume(f"{key} nvme: read as the host's memory, which is faster; rates of drives are not modelled")
        if found.flag(f"{ZERO}{older}"):
            device = "cpu"
        if device != "none":
            away.append(what)
        found.means(f"plan.offload {'has' if device != 'none' else 'lacks'} {what}", key)
        found.means(f"plan.offload {'has' if device != 'none' else 'lacks'} {what}", f"{ZERO}{older}")
    if found.flag("activation_checkpointing.cpu_checkpointing"):
        away.append("activations")
        found.means("plan.offload has activations, plan.recompute = full", "activation_checkpointing.cpu_checkpointing")
    plan["offload"] = away or "none"


def read_recompute(found: Reading, plan: dict[str, Any]) -> None:
    """What runs again, as far as the file tells."""
    interval = found.whole("pipeline.activation_checkpoint_interval", least=0)
    if interval or "activations" in plan["offload"]:
        plan["recompute"] = "full"
        found.means("plan.recompute = full", "pipeline.activation_checkpoint_interval")
        if interval and interval > 1:
            found.assume(f"plan.recompute full: one input is kept for every layer, not for every {interval}")
        return
    plan["recompute"] = "none"
    found.assume(
        "plan.recompute none: which layers run again is said by the program (`gradient_checkpointing` of transformers), not here; "
        "if it does, say --set plan.recompute=full"
    )


def read_optimizer(found: Reading, plan: dict[str, Any]) -> None:
    """The optimizer by what it keeps."""
    given = found.value("optimizer.type")
    name = str(given).lower() if isinstance(given, str) else ""
    plan["optimizer"] = OPTIMIZERS.get(name, "adamw")
    if name in OPTIMIZERS:
        found.means(f"plan.optimizer = {plan['optimizer']}, by the moments that it keeps", "optimizer.type")
        return
    found.ignore("optimizer.type", "what it keeps is not known: read as adamw")
    found.assume(
        "plan.optimizer adamw: the file names none"
        if given is None
        else f"plan.optimizer adamw, for {name or 'what is no name'}"
    )


def read_batch(found: Reading, plan: dict[str, Any], run: dict[str, Any]) -> None:
    """train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · data-parallel degree, as far as it is told."""
    whole, micro, steps = (
        found.whole(key)
        for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if micro:
        plan["micro_batch"] = micro
    if whole:
        run["global_batch"] = whole
    if whole and micro and steps:
        degree = whole / (micro * steps)
        if degree != round(degree):
            found.refuse(
                "train_batch_size",
                f"{whole}/({micro}·{steps}) = {degree:g} is no whole data-parallel degree",
                f"the nearest batch: {max(1, round(degree)) * micro * steps}",
                "train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · data-parallel degree",
            )
        elif plan["sharding"] == "hsdp":
            plan |= {"sharding": "zero3", "dp_replicate": max(1, round(degree) // plan["dp_shard"])}
        else:
            plan["dp_shard"] = round(degree)
    found.means(f"plan.micro_batch = {micro}", "train_micro_batch_size_per_gpu")
    found.means(f"run.global_batch = {whole}", "train_batch_size")
    if steps and not whole:
        found.adds_up("gradient_accumulation_steps", steps)
    else:
        said = f"plan.dp_shard = {plan.get('dp_shard')}" if micro else "how often micro-batches are added up"
        found.means(said, "gradient_accumulation_steps")
    if whole and not micro:
        found.accumulated, found.micro_batch_left = steps or 1, True
        found.assume(
            f"plan.micro_batch = {whole} / ({steps or 1} · replicas): the file leaves it to the number of GPUs, as DeepSpeed does"
        )


def read_stack(found: Reading, plan: dict[str, Any]) -> dict[str, Any]:
    """The software that stands in for DeepSpeed, with what the file says of it."""
    stack: dict[str, Any] = {"base": STACK}
    found.assume(f"stack {STACK}: no stack is fitted on DeepSpeed; `shardmeter calibrate` fits one on a log of yours")
    overlap = found.flag(f"{ZERO}overlap_comm", default=None)
    if overlap is None:
        overlap = plan["sharding"] in ("zero3", "hsdp")
        found.assume(f"stack.gradient_overlap {str(overlap).lower()}: DeepSpeed's overlap_comm of that stage")
    stack["gradient_overlap"] = overlap
    found.means(f"stack.gradient_overlap = {str(overlap).lower()}", f"{ZERO}overlap_comm")
    dtype = found.word("data_types.grad_accum_dtype", DTYPES)
    stack["gradient_dtype"] = dtype or plan["gather_dtype"]
    if not dtype:
        found.assume(
            f"stack.gradient_dtype {stack['gradient_dtype']}: DeepSpeed adds gradients up as it holds parameters unless told"
        )
    found.means(f"stack.gradient_dtype = {stack['gradient_dtype']}", "data_types.grad_accum_dtype")
    return stack
