"""A scenario as settings of torchtitan: the same flat keys for both versions where they have the same, each version's own elsewhere."""

from __future__ import annotations

import math

from shardmeter.core.errors import nearest
from shardmeter.core.record import field_names
from shardmeter.interop.configs._saying import Saying, count
from shardmeter.interop.configs._torchtitan_models import NEW, OLD, flavor_of, models
from shardmeter.scenario.catalog import catalog_of
from shardmeter.schedules import traits
from shardmeter.specs import Model, Plan, Run, Scenario, Stack
from shardmeter.specs.plan import AXES

SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "interleaved-bf": "LoopedBFS", "zb-v": "ZBVZeroBubble",
}  # fmt: skip
"""Words of ours → schedules of `torch.distributed.pipelining` that are the same."""
ROTATIONS = {"ring": "alltoall", "all-gather": "allgather"}
"""Ways of context parallelism → `context_parallel_rotate_method` of 0.2.2."""
RECIPES = {"fp8-rowwise": "rowwise", "fp8-rowwise-hp": "rowwise_with_gw_hp"}
"""Recipes of ours → torchao's that both versions know."""
FREE = ("name", "aliases", "context", "parameters", "source", "retrieved", "mtp")
"""Fields of a model that are none of its shape, or are said apart."""


def said_of(scenario: Scenario, plan: Plan, version: str, groups: int = 1) -> Saying:
    """The settings of one process group that runs `plan`, one of `groups` that share the batch; refusals are noted, not raised."""
    saying = Saying(f"torchtitan {version}")
    run = scenario.run
    _model(saying, scenario.model, version)
    _length(saying, run, plan)
    _batch(saying, run, plan, groups)
    _degrees(saying, plan, version)
    _experts(saying, plan, scenario.model, version)
    _context(saying, plan, version)
    _pipeline(saying, plan, scenario)
    _recompute(saying, plan, scenario.stack, version)
    _precision(saying, plan, scenario.model, version)
    _unmixed(saying, plan, version)
    _optimizer(saying, plan)
    _software(saying, plan, scenario.stack, version)
    _left(saying, run, plan)
    return saying


def _model(saying: Saying, model: Model, version: str) -> None:
    """Module and flavor, where the model is the catalog's and torchtitan has it."""
    name = model.name.partition(",")[0]  # a row that was changed is called so
    flavor = flavor_of(name, version)
    if flavor is None:
        known = models(version)
        way_out = f"of the {len(known)} models that it has the nearest are {', '.join(nearest(name, known))}"
        saying.refuse("model", f"torchtitan {version} has no {name}", way_out)
        return
    row = catalog_of(None).model(name)
    other = [name for name in field_names(Model) if name not in FREE and getattr(row, name) != getattr(model, name)]
    if other:
        says = f"{', '.join(other)} differ from {name}, whose shape torchtitan's flavor {flavor.flavor} has"
        saying.refuse("model", says, "add a flavor to its registry by hand")
    if version == OLD:
        saying.say("model.name", flavor.module, f"model = {name}")
        saying.say("model.flavor", flavor.flavor, f"model = {name}")
        saying.say("model.hf_assets_path", f"./assets/hf/{flavor.assets}", "where the tokenizer lies")
    else:
        saying.say("model_spec", f"{flavor.module} {flavor.flavor}", f"model = {name}")
        saying.say("hf_assets_path", f"./assets/hf/{flavor.assets}", "where the tokenizer lies")
    heads = count(model.mtp)
    if heads and version == NEW and flavor.module == "deepseek_v3":
        saying.say("num_mtp_layers", heads, f"model.mtp = {heads}")
    elif heads:
        saying.refuse("model.mtp", f"{heads} prediction modules, which this flavor does not have", "say model.mtp=0")


def _length(saying: Saying, run: Run, plan: Plan) -> None:
    """Sequence length and steps."""
    saying.say("training.seq_len", count(run.seq_len), f"run.seq_len = {count(run.seq_len)}")
    parts = count(plan.tp) * (2 * count(plan.cp) if plan.cp > 1 else 1)
    if count(run.seq_len) % parts:
        says = f"seq_len = {count(run.seq_len)} is no multiple of tp·2·cp = {parts}"
        saying.refuse("run.seq_len", says, f"say {max(1, count(run.seq_len) // parts) * parts}")
    steps = steps_of(run)
    if steps is None:
        saying.leave("run.steps", "no length is said: torchtitan stops after its default of 10,000 steps")
    else:
        saying.say("training.steps", steps, f"run.steps = {steps}")


def steps_of(run: Run) -> int | None:
    """Steps of a run that says its length, in steps or in tokens."""
    if run.steps is not None:
        return count(run.steps)
    return None if run.tokens is None else math.ceil(float(run.tokens) / float(run.global_batch * run.seq_len) - 1e-9)


def _batch(saying: Saying, run: Run, plan: Plan, groups: int) -> None:
    """Batches: of one pass without a pipeline; all micro-batches of a step with one, so that it is drained once a step."""
    whole, micro, dp = count(run.global_batch), count(plan.micro_batch), count(plan.dp) * groups
    if plan.pp > 1:
        saying.say(
            "training.local_batch_size", whole // dp, f"run.global_batch / dp = {whole} / {dp}: one drain a step"
        )
        saying.say("parallelism.pipeline_parallel_microbatch_size", micro, f"plan.micro_batch = {micro}")
    else:
        saying.say("training.local_batch_size", micro, f"plan.micro_batch = {micro}")
    saying.say("training.global_batch_size", whole, f"run.global_batch = {whole}")


def _degrees(saying: Saying, plan: Plan, version: str) -> None:
    """The mesh, and the order of its axes, which is fixed."""
    replicate, shard = _sharding(saying, plan, version)
    saying.say("parallelism.data_parallel_replicate_degree", replicate, f"plan.dp_replicate = {replicate}")
    saying.say("parallelism.data_parallel_shard_degree", shard, f"plan.dp_shard = {shard}")
    if plan.sharding == "fsdp" and shard * plan.cp > 1:
        policy = "always" if plan.reshard else "never"
        saying.say("parallelism.fsdp_reshard_after_forward", policy, f"plan.reshard = {str(plan.reshard).lower()}")
    elif not plan.reshard:
        saying.leave("plan.reshard", "nothing is sharded")
    saying.say("parallelism.tensor_parallel_degree", count(plan.tp), f"plan.tp = {count(plan.tp)}")
    if plan.tp > 1 and version == NEW:
        word = str(plan.sequence_parallel).lower()
        saying.say("parallelism.enable_sequence_parallel", plan.sequence_parallel, f"plan.sequence_parallel = {word}")
    elif plan.tp > 1 and not plan.sequence_parallel:
        saying.refuse("plan.sequence_parallel", "0.2.2 always cuts the sequence beside tp", "say true, or --for 0.3.0")
    elif plan.tp == 1 and not plan.sequence_parallel:
        saying.leave("plan.sequence_parallel", "tp = 1 cuts no activations")
    if plan.rank_order != AXES:
        used = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
        if used == [axis for axis in AXES if axis in used]:
            saying.leave("plan.rank_order", "axes of degree 1 stand nowhere")
        else:
            way_out = f"leave it out: {', '.join(AXES)}"
            saying.refuse("plan.rank_order", f"{', '.join(plan.rank_order)}: torchtitan's order is fixed", way_out)


def _sharding(saying: Saying, plan: Plan, version: str) -> tuple[int, int]:
    """Degrees of replicas and of shards, after noting what torchtitan does not shard."""
    shard, replicate = count(plan.dp_shard), count(plan.dp_replicate)
    if plan.cp > 1 and plan.sharding in ("none", "ddp"):
        saying.refuse("plan.sharding", f"{plan.sharding} beside cp, over which torchtitan shards", "say fsdp")
    if plan.sharding in ("zero1", "zero2", "zero3"):
        way_out = "say fsdp, with reshard true or false"
        saying.refuse("plan.sharding", f"{plan.sharding}: torchtitan shards by FSDP2", way_out)
    elif plan.sharding == "fsdp" and shard * plan.cp == 1:
        saying.leave("plan.sharding", f"nothing is sharded over one rank: it is {'ddp' if replicate > 1 else 'none'}")
    if plan.sharding == "ddp" or (plan.sharding == "fsdp" and shard * plan.cp == 1 and replicate > 1):
        if replicate > 1:
            for axis in ("dp_shard", "dp_replicate"):
                saying.leave(f"plan.{axis}", "under ddp the two are one degree")
        if version == OLD and plan.tp * plan.pp * plan.cp > 1:
            saying.refuse("plan.sharding", "ddp beside tp, pp or cp, which 0.2.2 refuses", "say fsdp with dp_shard > 1")
        if replicate == shard == 1 and plan.sharding == "ddp":
            saying.leave("plan.sharding", "ddp of one replica is none")
        return shard * replicate, 1
    return replicate, shard


def _experts(saying: Saying, plan: Plan, model: Model, version: str) -> None:
    """Expert parallelism. Without it torchtitan cuts experts by tp."""
    if model.experts == 0:
        if plan.ep > 1 or plan.etp > 1:
            saying.leave("plan.ep", "the model has no experts")
            saying.leave("plan.etp", "the model has no experts")
        return
    ep, etp, tp = count(plan.ep), count(plan.etp), count(plan.tp)
    saying.say("parallelism.expert_parallel_degree", ep, f"plan.ep = {ep}")
    if ep == 1 and etp != tp:
        saying.refuse(
            "plan.etp", f"etp = {etp}, ep = 1: torchtitan cuts experts by tp = {tp} then", f"say etp={tp}, or ep"
        )
    elif ep > 1 and version == OLD:
        saying.say("parallelism.expert_tensor_parallel_degree", etp, f"plan.etp = {etp}")
    elif ep > 1 and etp > 1:
        saying.refuse("plan.etp", f"etp = {etp} beside ep, which 0.3.0 does not have", "say etp=1, or --for 0.2.2")
    if plan.expert_skew != 1:
        saying.leave("plan.expert_skew", f"{float(plan.expert_skew):g} is what the router does, no setting")


def _context(saying: Saying, plan: Plan, version: str) -> None:
    if plan.cp == 1:
        if plan.cp_kind != "ring":
            saying.leave("plan.cp_kind", "cp = 1 cuts no sequence")
        return
    saying.say("parallelism.context_parallel_degree", count(plan.cp), f"plan.cp = {count(plan.cp)}")
    if version == OLD and plan.cp_kind in ROTATIONS:
        method = ROTATIONS[plan.cp_kind]
        saying.say("parallelism.context_parallel_rotate_method", method, f"plan.cp_kind = {plan.cp_kind}")
    elif plan.cp_kind != "all-gather":
        known = "gathers keys and values" if version == NEW else "passes them on or gathers them"
        way_out = "say cp_kind=all-gather" + (", or --for 0.2.2" if plan.cp_kind == "ring" else "")
        saying.refuse("plan.cp_kind", f"{plan.cp_kind}: torchtitan {version} {known}", way_out)


def _pipeline(saying: Saying, plan: Plan, scenario: Scenario) -> None:
    """Stages, their schedule, and how layers are cut."""
    if plan.pp == 1:
        for field in ("schedule", "virtual_stages"):
            if getattr(plan, field) != getattr(Plan(), field):
                saying.leave(f"plan.{field}", "pp = 1 has no pipeline")
        return
    saying.say("parallelism.pipeline_parallel_degree", plan.pp, f"plan.pp = {plan.pp}")
    if plan.schedule not in SCHEDULES:
        says = f"{plan.schedule}: torchtitan has no such schedule"
        saying.refuse("plan.schedule", says, f"it has {', '.join(SCHEDULES)}")
        return
    saying.say("parallelism.pipeline_parallel_schedule", SCHEDULES[plan.schedule], f"plan.schedule = {plan.schedule}")
    cut, layers = scenario.stack.stage_cut, count(scenario.model.layers)
    if cut == "cost":
        saying.leave("stack.stage_cut", "cost: torchtitan counts layers, embedding and head as one each here")
    less = 0 if cut == "even" else 1
    for end in ("first", "last"):
        key = f"parallelism.pipeline_parallel_{end}_stage_less_layers"
        saying.say(key, less, f"layers are cut as {scenario.stack.name} cuts them: {cut}")
    stages, slots = plan.pp * plan.virtual_stages, layers + 2 * less
    usual = 1 if traits(plan.schedule).most_chunks == 1 else 2
    each = math.ceil(slots / stages)
    if math.ceil(slots / each) == stages:
        key = "parallelism.pipeline_parallel_layers_per_stage"
        saying.say(key, each, f"plan.virtual_stages = {plan.virtual_stages}: {stages} stages of {slots} layers")
    elif plan.virtual_stages != usual:
        says = f"no number of layers a stage cuts {slots} layers into pp·virtual_stages = {stages}"
        saying.refuse(
            "plan.virtual_stages", says, f"say virtual_stages={usual}, its own default, or degrees that divide"
        )


def _recompute(saying: Saying, plan: Plan, stack: Stack, version: str) -> None:
    word, means = plan.recompute, f"plan.recompute = {plan.recompute}"
    if word == "selective" and stack.selective != "alternate":
        saying.leave("stack.selective", f"{stack.selective} under {stack.name}; torchtitan keeps every second product")
    every = word.removeprefix("every-") if word.startswith("every-") else ""
    if version == NEW:
        policies = {"none": None, "full": "FullAC", "selective": "SelectiveAC", "every-1": "FullAC"}
        if word in policies:
            saying.say("activation_checkpoint", policies[word], means)
            if word == "every-1":
                saying.leave("plan.recompute", "every-1 is full")
            return
    elif word in ("none", "full", "selective") or every:
        saying.say("activation_checkpoint.mode", "selective" if every else word, means)
        if every or word == "selective":
            saying.say("activation_checkpoint.selective_ac_option", every or "op", means)
        return
    way_out = "say none, selective or full" + (", or --for 0.2.2" if every else "")
    saying.refuse("plan.recompute", f"{word}: torchtitan {version} has no such policy", way_out)


def _precision(saying: Saying, plan: Plan, model: Model, version: str) -> None:
    """Number formats of parameters, products and reductions."""
    if plan.reduce_dtype != "fp32":
        saying.refuse("plan.reduce_dtype", f"{plan.reduce_dtype}: torchtitan reduces in fp32", "say reduce_dtype=fp32")
    held = {"fp32": "float32", "bf16": "bfloat16"}
    if plan.master_dtype in held:
        saying.say("training.dtype", held[plan.master_dtype], f"plan.master_dtype = {plan.master_dtype}")
    else:
        saying.refuse("plan.master_dtype", f"{plan.master_dtype}: parameters are kept in fp32 or bf16", "say fp32")
    narrow = plan.precision not in ("bf16", "fp32")
    mixed = "fp32" if plan.precision == "fp32" else "bf16"
    saying.say("training.mixed_precision_param", held[mixed], f"plan.precision = {plan.precision}")
    eight = plan.gather_dtype == "fp8" and plan.precision == "fp8" and version == OLD
    if plan.gather_dtype != mixed and not eight and plan.sharding == "fsdp":
        says = f"{plan.gather_dtype}, and precision {plan.precision}: FSDP2 gathers what it computes in, {mixed}"
        saying.refuse("plan.gather_dtype", says, f"say gather_dtype={mixed}")
    elif plan.gather_dtype != mixed and not eight:
        saying.leave("plan.gather_dtype", "nothing is gathered")
    if narrow and model.experts > 0:
        way_out = "say precision=bf16, or add its converters of grouped products by hand"
        saying.refuse("plan.precision", f"{plan.precision} for experts, whose converters are prototypes", way_out)
    elif narrow:
        (_narrow_old if version == OLD else _narrow_new)(saying, plan, eight=eight)


def _unmixed(saying: Saying, plan: Plan, version: str) -> None:
    """0.2.2 mixes precision by FSDP, or by autocast of replicas alone: beside tp or pp without FSDP it computes in what it keeps."""
    sharded = plan.sharding == "fsdp" and plan.dp_shard * plan.cp > 1
    if (
        version == OLD
        and not sharded
        and plan.ep == 1
        and plan.tp * plan.pp > 1
        and plan.precision != plan.master_dtype
    ):
        says = f"{plan.precision} with tp or pp and nothing sharded: 0.2.2 computes in {plan.master_dtype} there, as it keeps parameters"
        way_out = f"say precision={plan.master_dtype}, dp_shard > 1 with fsdp, or --for {NEW}"
        saying.refuse("plan.precision", says, way_out)


def _narrow_old(saying: Saying, plan: Plan, *, eight: bool) -> None:
    means, filtered = f"plan.precision = {plan.precision}", "the head stays in 16 bits"
    if plan.precision in ("fp8", *RECIPES):
        saying.say("model.converters", ["quantize.linear.float8"], means)
        if plan.precision in RECIPES:
            saying.say("quantize.linear.float8.recipe_name", RECIPES[plan.precision], means)
        saying.say("quantize.linear.float8.filter_fqns", ["output"], filtered)
        if eight:
            for key in ("enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp"):
                saying.say(f"quantize.linear.float8.{key}", True, "plan.gather_dtype = fp8")
    elif plan.precision == "mxfp8":
        saying.say("model.converters", ["quantize.linear.mx"], means)
        saying.say("quantize.linear.mx.filter_fqns", ["output"], filtered)
    else:
        saying.refuse("plan.precision", f"{plan.precision}: 0.2.2 has no such recipe", "it has bf16, fp32, fp8, fp8-rowwise, "
                      "fp8-rowwise-hp, mxfp8")  # fmt: skip


def _narrow_new(saying: Saying, plan: Plan, **_: bool) -> None:
    means = f"plan.precision = {plan.precision}; the head stays in 16 bits"
    if plan.precision in RECIPES:
        text = f"Float8LinearConverter(recipe_name={RECIPES[plan.precision]!r}, filter_fqns=['lm_head'])"
    elif plan.precision == "mxfp8":
        text = "MXFP8LinearConverter(fqns=['layers'])"
    else:
        old = ", or --for 0.2.2" if plan.precision == "fp8" else ""
        way_out = f"it has bf16, fp32, {', '.join(RECIPES)}, mxfp8{old}"
        saying.refuse("plan.precision", f"{plan.precision}: 0.3.0 has no such recipe", way_out)
        return
    saying.say("converters", [text], means)


def _optimizer(saying: Saying, plan: Plan) -> None:
    if plan.optimizer != "adamw":
        saying.refuse("plan.optimizer", f"{plan.optimizer}: torchtitan's own is adamw", "say adamw")
    both = {"optimizer", "parameters"}
    if set(plan.offload) == both:
        saying.say("training.enable_cpu_offload", True, "plan.offload = [optimizer, parameters]")
    elif plan.offload:
        says = f"[{', '.join(plan.offload)}]: torchtitan puts parameters and optimizer on the host together"
        saying.refuse("plan.offload", says, "say offload=[optimizer, parameters], or none")
    if plan.trainable != "all" or plan.probes is not None:
        what = plan.trainable if plan.probes is None else "a step without a backward"
        saying.refuse("plan.trainable", f"{what}: torchtitan trains all parameters by their gradients", "say all")


def _software(saying: Saying, plan: Plan, stack: Stack, version: str) -> None:
    """What the stack says of the code: compiled or not, graphs, overlapped tensor parallelism."""
    compiled = stack.kernels == "compiled"
    saying.say("compile.enable", compiled, f"stack {stack.name}: kernels {stack.kernels}")
    if stack.framework != "torchtitan":
        says = f"{stack.name} is what was predicted; what torchtitan takes: --stack titan-{'compile' if compiled else 'eager'}"
        saying.leave("stack", says)
    if version == NEW:
        captured = stack.step_graphs and plan.pp == 1
        saying.say("training.disable_cuda_graphs", not captured, f"stack {stack.name}: step_graphs")
        if stack.step_graphs and not captured:
            saying.leave("stack.step_graphs", "torchtitan captures no step of a pipeline")
    if plan.async_tp and compiled:
        key = "parallelism.enable_async_tensor_parallel" if version == OLD else "compile.enable_async_tensor_parallel"
        saying.say(key, True, "plan.async_tp = true")
    elif plan.async_tp:
        saying.refuse(
            "plan.async_tp", f"it is made by the compiler, and {stack.name} compiles nothing", "say async_tp=false"
        )


def _left(saying: Saying, run: Run, plan: Plan) -> None:
    """Parts of a run that its settings do not tell, or not in this unit."""
    if run.phases:
        saying.refuse("run.phases", "the batch or the sequence changes under way", "export each phase alone")
    if run.reference is not None:
        saying.refuse("run.reference", "a frozen model beside the trained one", "leave it out")
    if run.document_len is not None:
        saying.leave("run.document_len", "documents are as long as the data has them; attention is within each")
    for field, told in (
        ("target_loss", "a loss is no length: say --tokens"), ("checkpoint", "turn on checkpoint.enable and its interval"),
        ("evaluation", "turn on validation, its frequency and steps"),
    ):  # fmt: skip
        if getattr(run, field) is not None:
            saying.leave(f"run.{field}", told)
    if plan.offload_layers:
        saying.leave("plan.offload_layers", "no activations are offloaded")
