"""A plan written as Megatron-LM's options."""

from __future__ import annotations

from shardmeter.interop.configs._saying import Saying
from shardmeter.interop.configs._writing import leave_idle
from shardmeter.interop.configs.megatron_plan import (
    CP_KINDS,
    FP8,
    OF_NO_SHARD,
    OPTIMIZERS,
    OWN_FORMATS,
    PIPELINES_INSIDE,
    SHARDINGS,
)
from shardmeter.specs import Model, Plan, Scenario
from shardmeter.specs.plan import AXES
from shardmeter.strategies import pipeline, recompute

WHOLE = ("zero3", "fsdp")
"""Shardings of the parameters themselves."""


def write_plan(scenario: Scenario, plan: Plan, copies: float, version: str, out: Saying) -> None:
    """Say a plan. `copies`: groups of replicas that shard together, over all islands."""
    out.begin("parallelism")
    degrees = {"tensor-model": plan.tp, "pipeline-model": plan.pp, "context": plan.cp}
    for name, field in zip(degrees, ("tp", "pp", "cp"), strict=True):
        out.say(f"--{name}-parallel-size", degrees[name], f"plan.{field}")
    if plan.sequence_parallel:
        out.say("--sequence-parallel", True, "plan.sequence_parallel")
    if plan.async_tp and plan.tp > 1:
        out.say("--tp-comm-overlap", True, "plan.async_tp")
    if plan.cp > 1:
        out.say("--cp-comm-type", _theirs(CP_KINDS, plan.cp_kind), f"plan.cp_kind = {plan.cp_kind}")
    if scenario.model.experts:
        out.say("--expert-model-parallel-size", plan.ep, "plan.ep")
        out.say("--expert-tensor-parallel-size", plan.etp, "plan.etp")
    _rank_order(plan, out)
    _sharding(plan, scenario, copies, out)
    if plan.pp > 1:
        _stages(plan, scenario, out)
    _recompute(plan, scenario.model, out)
    _numbers(plan, out)
    _sums(plan, version, out)
    _optimizer(plan, version, out)
    _offload(plan, scenario.model, out)
    _beyond(plan, out)
    leave_idle(out, plan)


def _rank_order(plan: Plan, out: Saying) -> None:
    order = tuple(axis for axis in plan.rank_order if plan.degree(axis) > 1)
    if order == tuple(axis for axis in AXES if axis in order):
        if plan.rank_order != AXES:
            out.leave("plan.rank_order", "axes of degree 1 lie where they like")
    elif order == tuple(axis for axis in PIPELINES_INSIDE if axis in order):
        out.say("--use-tp-pp-dp-mapping", True, "plan.rank_order: pp inside dp")
        if plan.rank_order != PIPELINES_INSIDE:
            out.leave("plan.rank_order", "axes of degree 1 lie where they like")
    else:
        out.refuse(
            "plan.rank_order",
            f"{', '.join(order)}: ranks lie in the order tp, cp, dp, pp, or tp, cp, pp, dp",
            "one of these",
        )


def _sharding(plan: Plan, scenario: Scenario, copies: float, out: Saying) -> None:
    kind, stack = plan.sharding, scenario.stack
    _copies(plan, copies, out)
    whole = kind in WHOLE
    if kind == "fsdp" and not plan.reshard:
        _torch_fsdp(plan, scenario, copies, out)
        return
    if kind != "none" and stack.gradient_overlap:
        out.say("--overlap-grad-reduce", True, "stack.gradient_overlap")
    if kind == "zero1":
        out.say("--use-distributed-optimizer", True, "plan.sharding = zero1")
    if kind in ("zero2", "zero3", "fsdp"):
        out.say("--use-megatron-fsdp", True, f"plan.sharding = {kind}")
        out.say(
            "--data-parallel-sharding-strategy",
            "optim_grads" if kind == "zero2" else _theirs(SHARDINGS, "fsdp"),
            f"plan.sharding = {kind}",
        )
        out.say("--ckpt-format", "fsdp_dtensor", "the one format of checkpoints that Megatron-FSDP has")
        out.say("--no-gradient-accumulation-fusion", True, "gradients are sharded")
        if plan.optimizer not in ("adamw", "sgd"):
            out.refuse(
                "plan.optimizer", f"{plan.optimizer} with {kind}: Megatron-FSDP has adam and sgd", "sharding: zero1"
            )
    overlap = whole or stack.gather_overlap
    if kind in ("zero1", "zero2", "zero3", "fsdp") and overlap and stack.gradient_overlap:
        out.say("--overlap-param-gather", True, "gathers of parameters run behind compute")


def _copies(plan: Plan, copies: float, out: Saying) -> None:
    """Which replicas shard together."""
    kind = plan.sharding
    if kind == "zero3":
        out.leave("plan.sharding", "zero3 is what Megatron-FSDP does with optim_grads_params, read again as fsdp")
    if kind == "none":
        out.leave("plan.sharding", "none is what one replica has without any option, read again as ddp")
    if kind in ("zero1", "zero2", "zero3", "fsdp") and copies > 1:
        out.say("--num-distributed-optimizer-instances", copies, "plan.dp_replicate")
    elif copies > 1:
        out.leave("plan.dp_replicate", "of ddp only the product with dp_shard counts")
        out.leave("plan.dp_shard", "of ddp only the product with dp_replicate counts")


def _torch_fsdp(plan: Plan, scenario: Scenario, copies: float, out: Saying) -> None:
    """Gathered parameters kept until the backward: PyTorch's FSDP2 alone has it."""
    way_out = "reshard: true, or sharding: zero2"
    for field, is_there in {
        f"plan.pp = {plan.pp}": plan.pp > 1,
        f"plan.ep = {plan.ep:g}": plan.ep > 1,
        f"plan.dp_replicate = {copies:g}": copies > 1,
        f"a head tied to the embedding ({scenario.model.name})": scenario.model.tied,
        f"plan.precision = {plan.precision}": plan.precision == "fp16",
    }.items():
        if is_there:
            out.refuse("plan.reshard", f"false with {field}: PyTorch's FSDP2 in Megatron-LM does not do both", way_out)
    out.say("--use-torch-fsdp2", True, "plan.sharding = fsdp")
    out.say("--torch-fsdp2-no-reshard-after-forward", True, "plan.reshard = false")
    out.say("--no-gradient-accumulation-fusion", True, "gradients are sharded")
    out.say("--ckpt-format", "torch_dist", "one of the formats that FSDP2 has")


def _stages(plan: Plan, scenario: Scenario, out: Saying) -> None:
    """The schedule, and how layers are cut into stages."""
    if plan.schedule not in ("1f1b", "interleaved"):
        out.refuse(
            "plan.schedule",
            f"{plan.schedule}: pretrain_gpt.py has 1f1b and interleaved",
            "schedule: 1f1b or interleaved",
        )
        return
    chunks = plan.virtual_stages if plan.schedule == "interleaved" else 1
    stages, model, rule = plan.pp * chunks, scenario.model, scenario.stack.stage_cut
    slots = model.layers + (2 if rule == "edges" else 0)
    if slots % stages == 0 and rule != "cost" and not model.mtp:
        if chunks > 1:
            out.say("--num-virtual-stages-per-pipeline-rank", chunks, "plan.virtual_stages")
        if rule == "edges":
            out.say("--account-for-embedding-in-pipeline-split", True, "stack.stage_cut = edges")
            out.say("--account-for-loss-in-pipeline-split", True, "stack.stage_cut = edges")
        return
    counts = pipeline.cut(model.layers + model.mtp, stages, "edges" if rule == "edges" else "even", 1.0, 0.0)
    if min(counts) < 0 or counts[-1] < model.mtp:
        out.refuse("plan.pp", f"{model.layers + model.mtp} layers over {stages} stages", "pp that divides the layers")
        return
    if rule == "cost":
        out.leave("stack.stage_cut", f"cost: layers are dealt out evenly, {', '.join(map(str, counts))}")
    held = ["t" * count for count in counts]
    held[-1] = held[-1][model.mtp :] + "m" * model.mtp + "L"
    held[0] = "E" + held[0]
    out.say("--pipeline-model-parallel-layout", "|".join(held), "plan.pp, plan.virtual_stages: layers of every stage")


def _recompute(plan: Plan, model: Model, out: Saying) -> None:
    policy = plan.recompute
    if policy == "none":
        return
    if policy == "selective" or recompute.listed(policy):
        out.say("--recompute-granularity", "selective", f"plan.recompute = {policy}")
        if policy != "selective":
            out.say("--recompute-modules", " ".join(recompute.listed(policy)), f"plan.recompute = {policy}")
        return
    out.say("--recompute-granularity", "full", f"plan.recompute = {policy}")
    stage = model.layers / (plan.pp * (plan.virtual_stages if plan.pp > 1 else 1))
    layers = float(recompute.share(policy)) * stage
    if policy == "full":
        out.say("--recompute-method", "uniform", "plan.recompute = full")
        out.say("--recompute-num-layers", 1, "each layer keeps its own input")
    elif layers.is_integer() and stage.is_integer():
        out.say("--recompute-method", "block", f"plan.recompute = {policy}")
        out.say(
            "--recompute-num-layers", layers, f"plan.recompute = {policy}: {layers:g} of {stage:g} layers of a stage"
        )
        if policy != f"{layers:g}-of-{stage:g}":
            out.leave(
                "plan.recompute",
                f"{policy} is said as {layers:g}-of-{stage:g}: the first layers of a stage, not every so many",
            )
    else:
        way_out = "a share of whole layers of a stage, or full"
        out.refuse("plan.recompute", f"{policy} is {layers:g} layers of a stage of {stage:g}", way_out)


def _numbers(plan: Plan, out: Saying) -> None:
    out.begin("numbers")
    precision, means = plan.precision, f"plan.precision = {plan.precision}"
    held = _held(plan)
    if held != "fp32":
        out.say(f"--{held}", True, means)
    if precision in ("nvfp4", "fp4"):
        out.say("--fp4-format", "e2m1", means)
        out.say("--fp4-recipe", "nvfp4", means)
        if precision == "fp4":
            out.leave("plan.precision", "fp4 is nvfp4")
    elif precision in FP8.values():
        out.say("--fp8-format", "hybrid", means)
        out.say("--fp8-recipe", _theirs(FP8, precision), means)
    elif precision != held:
        out.refuse(
            "plan.precision",
            f"{precision}: there is no recipe for it",
            f"one of {', '.join(FP8.values())}, nvfp4, bf16, fp16, fp32",
        )
    if plan.gather_dtype == "fp8" and plan.sharding not in ("none", "ddp"):
        out.say("--fp8-param-gather", True, "plan.gather_dtype = fp8")
    elif plan.gather_dtype != held:
        out.leave("plan.gather_dtype", f"parameters are gathered as they are held, in {held}")


def _sums(plan: Plan, version: str, out: Saying) -> None:
    """The format in which gradients are reduced: fp32 of parameters in bf16 unless told otherwise, that of the parameters else."""
    held, reduced, fsdp = _held(plan), plan.reduce_dtype, _of_megatron_fsdp(plan)
    if plan.sharding == "fsdp" and not fsdp:
        if reduced != held:
            out.leave("plan.reduce_dtype", f"PyTorch's FSDP2 reduces gradients as parameters are held, in {held}")
    elif fsdp and version == OWN_FORMATS:
        for part in ("main-grads", "grad-comm"):
            out.say(f"--megatron-fsdp-{part}-dtype", reduced, f"plan.reduce_dtype = {reduced}")
    elif reduced == held == "bf16":
        out.say("--grad-reduce-in-bf16", True, "plan.reduce_dtype = bf16")
    elif reduced == "fp32" and held == "fp16":
        out.say("--accumulate-allreduce-grads-in-fp32", True, "plan.reduce_dtype = fp32")
    elif reduced not in (held, "fp32"):
        usual = "fp32" if held == "bf16" else held
        out.leave(
            "plan.reduce_dtype", f"gradients of parameters in {held} are reduced in {usual} here, not in {reduced}"
        )


def _of_megatron_fsdp(plan: Plan) -> bool:
    """Whether Megatron's own FSDP shards it, not PyTorch's, nor the distributed optimizer."""
    return plan.sharding in ("zero2", "zero3") or (plan.sharding == "fsdp" and plan.reshard)


def _held(plan: Plan) -> str:
    """The format in which parameters are held and gathered."""
    return plan.precision if plan.precision in ("fp16", "fp32") else "bf16"


def _optimizer(plan: Plan, version: str, out: Saying) -> None:
    optimizer, alone = plan.optimizer, plan.sharding in ("none", "ddp")
    if optimizer == "adamw8bit":
        out.say("--optimizer", "adam", "plan.optimizer = adamw8bit")
        out.say("--exp-avg-dtype", "fp8", "plan.optimizer = adamw8bit")
        out.say("--exp-avg-sq-dtype", "fp8", "plan.optimizer = adamw8bit")
    elif optimizer in OPTIMIZERS.values():
        out.say("--optimizer", _theirs(OPTIMIZERS, optimizer), f"plan.optimizer = {optimizer}")
    else:
        out.refuse("plan.optimizer", f"{optimizer} is none of adam, sgd, muon", "optimizer: adamw")
    own = _of_megatron_fsdp(plan) and version != OF_NO_SHARD
    if own and plan.master_dtype != "fp32":
        out.say("--megatron-fsdp-main-params-dtype", plan.master_dtype, "plan.master_dtype")
    elif plan.master_dtype == "fp16":
        out.say("--main-params-dtype", "fp16", "plan.master_dtype")
    elif plan.master_dtype != "fp32":
        out.leave("plan.master_dtype", f"master parameters are fp32 or fp16, not {plan.master_dtype}")
    if optimizer == "adamw8bit" or (plan.master_dtype == "fp16" and not own) or "optimizer" in plan.offload:
        out.say("--use-precision-aware-optimizer", True, "formats of its states, or their place, are chosen")
        if alone:
            out.refuse(
                "plan.sharding",
                f"{plan.sharding}: states in few bits or on the host need the distributed optimizer",
                "sharding: zero1",
            )


def _offload(plan: Plan, model: Model, out: Saying) -> None:
    if "optimizer" in plan.offload:
        out.say("--optimizer-cpu-offload", True, "plan.offload: optimizer")
    if "parameters" in plan.offload:
        out.refuse("plan.offload", "parameters stay on the device", "offload: [optimizer]")
    if "activations" not in plan.offload:
        return
    layers = plan.offload_layers or model.layers
    if plan.pp > 1 or plan.recompute != "none" or layers >= model.layers:
        says = f"activations of {layers:g} of {model.layers} layers with pp = {plan.pp}, recompute {plan.recompute}"
        out.refuse("plan.offload", says, f"pp: 1, recompute: none, offload_layers: {model.layers - 1} at most")
    out.say("--cpu-offloading-num-layers", layers, "plan.offload_layers")


def _beyond(plan: Plan, out: Saying) -> None:
    """What a plan may hold that no option says."""
    if plan.trainable != "all":
        out.refuse(
            "plan.trainable", f"{plan.trainable or 'without a backward'}: every parameter is trained", "trainable: all"
        )
    if plan.ahead or plan.stagger:
        out.refuse("plan.ahead", "micro-batches ahead of a boundary between islands", "ahead: 0, stagger: false")
    if plan.expert_skew != 1.0:
        out.leave("plan.expert_skew", "how unequal experts are loaded comes of the run, not of an option")


def _theirs(words: dict[str, str], ours: str) -> str:
    """The trainer's word for one of ours, the first of several."""
    return next(theirs for theirs, word in words.items() if word == ours)
