"""Settings of torchtitan as a scenario: the same flat keys for both versions, each version's own beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.interop.configs._reading import MOST, TYPED, Reading
from shardmeter.interop.configs._torchtitan_models import NEW, OLD, model_of
from shardmeter.interop.configs._torchtitan_plan import RECIPES, ROTATIONS, SCHEDULES
from shardmeter.interop.configs._trees import keys
from shardmeter.interop.configs.record import Imported
from shardmeter.scenario.catalog import catalog_of

P = "parallelism."
PP = "parallelism.pipeline_parallel_"
DEFAULTS: dict[str, Any] = {
    "training.local_batch_size": 8, "training.global_batch_size": -1, "training.seq_len": 2048, "training.steps": 10000,
    "training.enable_cpu_offload": False, "training.dtype": "float32", "training.mixed_precision_param": "bfloat16",
    f"{P}data_parallel_replicate_degree": 1, f"{P}data_parallel_shard_degree": -1, f"{P}fsdp_reshard_after_forward": "default",
    f"{P}tensor_parallel_degree": 1, f"{P}context_parallel_degree": 1, f"{P}expert_parallel_degree": 1,
    f"{PP}degree": 1, f"{PP}schedule": "1F1B", f"{PP}microbatch_size": 1,
    f"{PP}first_stage_less_layers": 1, f"{PP}last_stage_less_layers": 1, "compile.enable": False,
}  # fmt: skip
"""Of both versions."""
OLD_DEFAULTS: dict[str, Any] = {
    f"{P}expert_tensor_parallel_degree": 1, f"{P}enable_async_tensor_parallel": False,
    f"{P}context_parallel_rotate_method": "allgather", "activation_checkpoint.mode": "selective",
    "activation_checkpoint.selective_ac_option": "2", "model.name": "llama3", "model.flavor": "debugmodel",
}  # fmt: skip
NEW_DEFAULTS: dict[str, Any] = {
    f"{P}enable_sequence_parallel": True, "compile.enable_async_tensor_parallel": False, "activation_checkpoint": "SelectiveAC",
    "training.disable_cuda_graphs": False,
}  # fmt: skip
WHY = {
    "job": "names and folders", "profiling": "what is measured, not how fast it runs", "profiler": "what is measured, not how fast it runs",
    "metrics": "what is logged", "lr_scheduler": "how the learning rate moves", "optimizer": "how far a step goes, not how long it takes",
    "checkpoint": "saying run.checkpoint counts it", "comm": "time-outs and traces", "validation": "saying run.evaluation counts it",
    "validator": "saying run.evaluation counts it", "debug": "for debugging", "dataloader": "where data comes from", "loss": "how the loss is cut",
    "tokenizer": "where data comes from", "experimental": "code of one's own", "memory_estimation": "an estimate, no run", "override": "code of one's own",
    "hf_assets_path": "where the tokenizer lies", "dump_folder": "where outputs go", "fault_tolerance": "says nothing of the method",
}  # fmt: skip
"""Why the settings of a section change nothing here."""


def imported(said: Mapping[str, Any], version: str) -> Imported:
    """What flat settings are as a scenario."""
    defaults = DEFAULTS | (OLD_DEFAULTS if version == OLD else NEW_DEFAULTS)
    reading = Reading("torchtitan", said, keys(f"torchtitan-{version}"), TYPED, defaults)
    model = _model(reading, version)
    _mesh(reading)
    _batch(reading)
    _pipeline(reading)
    _experts(reading, version, model)
    (_old if version == OLD else _new)(reading)
    _formats(reading, version)
    _software(reading, version)
    _synchronised(reading)
    return reading.imported(version, _why)


def _why(key: str) -> str:
    section = key.partition(".")[0]
    return WHY.get(section, "no figure here depends on it")


def _model(reading: Reading, version: str) -> str | None:
    """The catalog name of the model, where there is one."""
    keys = ("model.name", "model.flavor") if version == OLD else ("model_spec",)
    words = [str(reading.value(key)) for key in keys] if version == OLD else str(reading.value("model_spec")).split(" ")
    if not any(reading.has(key) for key in keys):
        return None
    name = model_of(words[0], words[-1])
    if name is None:
        for key in keys:
            reading.ignore(key, "no model of the catalog: say which it is with --model")
        return None
    reading.put("model", name, *keys)
    return name


def _mesh(reading: Reading) -> None:
    """Degrees, and what they shard."""
    tp, cp = (_count(reading, f"{P}{axis}_parallel_degree") for axis in ("tensor", "context"))
    replicate = _count(reading, f"{P}data_parallel_replicate_degree")
    shard = _count(reading, f"{P}data_parallel_shard_degree", also=-1)
    key_of = {"dp_replicate": f"{P}data_parallel_replicate_degree", "dp_shard": f"{P}data_parallel_shard_degree"}
    for axis, degree, key in (("tp", tp, f"{P}tensor_parallel_degree"), ("cp", cp, f"{P}context_parallel_degree")):
        if degree > 1 or reading.has(key):
            reading.put(f"plan.{axis}", degree, key)
    if shard == 1 and cp == 1:
        reading.put("plan.sharding", "ddp" if replicate > 1 else "none", *key_of.values())
        reading.put("plan.dp_shard", replicate, key_of["dp_replicate"])
        reading.means("nothing is sharded, nothing is kept gathered", *_said(reading, f"{P}fsdp_reshard_after_forward"))
        return
    reading.put("plan.sharding", "fsdp", key_of["dp_shard"])
    reading.put("plan.dp_shard", "auto" if shard < 0 else shard, key_of["dp_shard"])
    if replicate > 1 or reading.has(key_of["dp_replicate"]):
        reading.put("plan.dp_replicate", replicate, key_of["dp_replicate"])
    policy = reading.word(f"{P}fsdp_reshard_after_forward", ("default", "always", "never"))
    stages = _count(reading, f"{PP}degree")
    keep = {"always": True, "never": False}.get(policy, stages == 1)
    reading.put("plan.reshard", keep, f"{P}fsdp_reshard_after_forward")


def _count(reading: Reading, key: str, least: int = 1, also: int | None = None) -> int:
    """A whole number; the trainer's default where the file does not say one."""
    return reading.whole(key, "", 1, least=least, also=also)


def _said(reading: Reading, *keys: str) -> tuple[str, ...]:
    return tuple(key for key in keys if reading.has(key))


def _batch(reading: Reading) -> None:
    """Sequence, steps and batches; a pipeline takes its micro-batches out of the local batch."""
    reading.put("run.seq_len", _count(reading, "training.seq_len"), "training.seq_len")
    reading.put("run.steps", _count(reading, "training.steps"), "training.steps")
    local, stages = _count(reading, "training.local_batch_size"), _count(reading, f"{PP}degree")
    whole = _count(reading, "training.global_batch_size", also=-1)
    shard = _count(reading, f"{P}data_parallel_shard_degree", also=-1)
    replicas = _count(reading, f"{P}data_parallel_replicate_degree") * shard * _groups(reading) if shard > 0 else None
    if stages > 1:
        reading.put("plan.micro_batch", _count(reading, f"{PP}microbatch_size"), f"{PP}microbatch_size")
    else:
        reading.put("plan.micro_batch", local, "training.local_batch_size")
    if whole > 0:
        reading.put("run.global_batch", whole, "training.global_batch_size")
        drained = whole / (local * replicas) if stages > 1 and replicas else 1
        once = "all micro-batches of a step go through the pipeline at once"
        says = once if drained == 1 else f"the pipeline is drained {drained:g} times a step, here once"
        if stages > 1:
            reading.means(says, *_said(reading, "training.local_batch_size"))
    elif stages > 1 and replicas:
        reading.put("run.global_batch", local * replicas, "training.local_batch_size", "training.global_batch_size")
    elif stages > 1:
        reading.ignore("training.local_batch_size", f"say --global-batch: {local} sequences × the data-parallel degree")
    else:
        reading.means("run.global_batch is one pass of all replicas", "training.global_batch_size")


def _groups(reading: Reading) -> int:
    """Replica groups of torchft that share the batch."""
    groups = reading.value("fault_tolerance.group_size")
    on = reading.value("fault_tolerance.enable") is True and isinstance(groups, int) and 1 <= groups <= MOST
    return groups if on else 1


def _pipeline(reading: Reading) -> None:
    """Stages, schedule, chunks."""
    stages = _count(reading, f"{PP}degree")
    if stages == 1:
        if reading.has(f"{PP}degree"):
            reading.put("plan.pp", 1, f"{PP}degree")
        return
    reading.put("plan.pp", stages, f"{PP}degree")
    words = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()}
    schedule = str(reading.value(f"{PP}schedule"))
    if schedule.lower() not in words:
        reading.ignore(f"{PP}schedule", f"no schedule here is the same; known: {', '.join(SCHEDULES.values())}")
        return
    reading.put("plan.schedule", words[schedule.lower()], f"{PP}schedule")
    each, key = reading.value(f"{PP}layers_per_stage"), f"{PP}layers_per_stage"
    single = words[schedule.lower()] in ("gpipe", "1f1b")
    chunks = 1 if single else 2
    layers = _layers(reading)
    if isinstance(each, int) and each > 0 and layers:
        ends = [_count(reading, f"{PP}{end}_stage_less_layers", 0) for end in ("first", "last")]
        chunks = max(1, -(-(layers + plain_sum(ends)) // each) // stages)
        reading.put("plan.virtual_stages", chunks, key)
    elif single:
        reading.means("plan.virtual_stages = 1", *_said(reading, key))
    else:
        reading.put("plan.virtual_stages", chunks, *_said(reading, key))
    ends_said = _said(reading, f"{PP}first_stage_less_layers", f"{PP}last_stage_less_layers")
    reading.means("how layers are cut into stages", *ends_said)


def _layers(reading: Reading) -> int | None:
    name = reading.document.get("model")
    return round(float(catalog_of(None).model(name).layers)) if name else None


def _experts(reading: Reading, version: str, model: str | None) -> None:
    """Expert parallelism; where there is none, experts are cut by tp."""
    ep, tp = _count(reading, f"{P}expert_parallel_degree"), _count(reading, f"{P}tensor_parallel_degree")
    key = f"{P}expert_tensor_parallel_degree"
    etp = _count(reading, key) if version == OLD else 1
    if model is not None and catalog_of(None).model(model).experts == 0:
        reading.means("the model has no experts", *_said(reading, f"{P}expert_parallel_degree", key))
    elif ep > 1:
        reading.put("plan.ep", ep, f"{P}expert_parallel_degree")
        if etp > 1 or reading.has(key):
            reading.put("plan.etp", etp, key)
    elif model is not None:
        reading.put("plan.ep", 1, *_said(reading, f"{P}expert_parallel_degree"))
        reading.put("plan.etp", tp, *_said(reading, key), why="without ep experts are cut by tp")


def _old(reading: Reading) -> None:
    """What only 0.2.2 has: modes of recomputation, ways of context parallelism, converters by name."""
    mode = reading.word("activation_checkpoint.mode", ("selective", "full", "memory_budget", "none"))
    option = str(reading.value("activation_checkpoint.selective_ac_option"))
    keys = ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option")
    if mode == "memory_budget":
        reading.ignore(keys[0], "a budget that the compiler keeps: plan.recompute has no such word")
    elif mode != "selective":
        reading.put("plan.recompute", mode, keys[0])
        reading.means(f"mode {mode} has no options", *_said(reading, keys[1]))
    elif option == "op":
        reading.put("plan.recompute", "selective", *keys)
    elif re.fullmatch(r"[1-9][0-9]{0,3}", option):
        reading.put("plan.recompute", f"every-{option}", *keys)
    else:
        reading.ignore(keys[1], "neither op nor a number of layers")
    if _count(reading, f"{P}context_parallel_degree") > 1:
        words = {theirs: ours for ours, theirs in ROTATIONS.items()}
        kind = reading.word(f"{P}context_parallel_rotate_method", words)
        reading.put("plan.cp_kind", kind, f"{P}context_parallel_rotate_method")
    _overlapped(reading, f"{P}enable_async_tensor_parallel")


def _new(reading: Reading) -> None:
    """What only 0.3.0 has: policies of recomputation by class, sequence parallelism as a switch."""
    policy = reading.value("activation_checkpoint")
    words = {None: "none", "FullAC": "full", "SelectiveAC": "selective"}
    if isinstance(policy, str | None) and policy in words:
        reading.put("plan.recompute", words[policy], "activation_checkpoint")
    else:
        reading.ignore("activation_checkpoint", "plan.recompute has no such policy")
    if _count(reading, f"{P}tensor_parallel_degree") > 1:
        cut = reading.flag(f"{P}enable_sequence_parallel")
        reading.put("plan.sequence_parallel", cut, f"{P}enable_sequence_parallel")
    if _count(reading, f"{P}context_parallel_degree") > 1:
        reading.put("plan.cp_kind", "all-gather", why="0.3.0 gathers keys and values")
    _overlapped(reading, "compile.enable_async_tensor_parallel")


def _overlapped(reading: Reading, key: str) -> None:
    on = reading.flag(key) and bool(reading.value("compile.enable"))
    if on or reading.has(key):
        reading.put("plan.async_tp", on, key)


def _formats(reading: Reading, version: str) -> None:
    """Number formats, and what lies on the host."""
    words = {"float32": "fp32", "bfloat16": "bf16"}
    mixed = reading.word("training.mixed_precision_param", words)
    master = reading.word("training.dtype", words)
    narrow = (_narrow_old if version == OLD else _narrow_new)(reading)
    if version == OLD and not narrow and _is_unmixed(reading):
        mixed = master
        reading.assume(f"plan.precision = {master}: 0.2.2 mixes no precision beside tp or pp where nothing is sharded")
    reading.put("plan.precision", narrow or mixed, "training.mixed_precision_param")
    gathered = reading.value("quantize.linear.float8.enable_fsdp_float8_all_gather") is True and narrow == "fp8"
    reading.put("plan.gather_dtype", "fp8" if gathered else mixed, *_said(reading, "training.mixed_precision_param"))
    reading.put("plan.reduce_dtype", "fp32", *_said(reading, "training.mixed_precision_reduce"))
    reading.put("plan.master_dtype", master, "training.dtype")
    if reading.flag("training.enable_cpu_offload"):
        reading.put("plan.offload", ["optimizer", "parameters"], "training.enable_cpu_offload")
    else:
        reading.means("plan.offload = none", *_said(reading, "training.enable_cpu_offload"))


def _is_unmixed(reading: Reading) -> bool:
    """Whether neither FSDP nor autocast mixes precision: nothing is sharded, and tp or pp is there."""
    degrees = [
        _count(reading, f"{P}{axis}_degree", also=-1)
        for axis in ("data_parallel_shard", "context_parallel", "expert_parallel")
    ]
    cut = _count(reading, f"{P}tensor_parallel_degree") * _count(reading, f"{PP}degree")
    return degrees == [1, 1, 1] and cut > 1


def _narrow_old(reading: Reading) -> str:
    """The recipe of the converters of 0.2.2; empty where there is none."""
    named = reading.value("model.converters") or []
    names = " ".join(map(str, named)) if isinstance(named, list) else str(named)
    f8, mx = "quantize.linear.float8.", "quantize.linear.mx."
    if "mx" in names:
        reading.means(
            "plan.precision = mxfp8", "model.converters", *_said(reading, f"{mx}recipe_name", f"{mx}filter_fqns")
        )
        return "mxfp8"
    if "float8" not in names:
        for key in filter(lambda key: key.startswith((f8, mx)), reading.said):
            reading.ignore(key, "without effect: model.converters does not name it")
        return ""
    words = {theirs: ours for ours, theirs in RECIPES.items()}
    recipe = words.get(str(reading.value(f"{f8}recipe_name")), "fp8")
    keys = [f"{f8}{last}" for last in (
        "recipe_name", "filter_fqns", "enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp",
    )]  # fmt: skip
    reading.means(f"plan.precision = {recipe}", "model.converters", *_said(reading, *keys))
    return recipe


def _narrow_new(reading: Reading) -> str:
    """The recipe of the converters of 0.3.0; empty where there is none."""
    named = reading.value("converters") or []
    names = " ".join(map(str, named)) if isinstance(named, list) else str(named)
    if "MXFP8Linear" in names:
        reading.means("plan.precision = mxfp8", "converters")
        return "mxfp8"
    if "Float8Linear" in names:
        recipe = "fp8-rowwise-hp" if "rowwise_with_gw_hp" in names else "fp8-rowwise"
        reading.means(f"plan.precision = {recipe}", "converters")
        return recipe
    reading.ignore("converters", "no recipe here is the same")
    return ""


def _software(reading: Reading, version: str) -> None:
    """The stack: compiled or not, and whether whole steps are captured."""
    compiled = reading.flag("compile.enable") is True
    parts = reading.value("compile.components")
    if isinstance(parts, list) and "model" not in parts:
        compiled = False
    name = "titan-compile" if compiled else "titan-eager"
    captured = version == NEW and reading.flag("training.disable_cuda_graphs") is False
    captured = captured and _count(reading, f"{PP}degree") == 1  # refused beside a pipeline
    reading.put("stack", {"base": name, "step_graphs": True} if captured else name, "compile.enable")
    reading.means("how much is compiled", *_said(reading, "compile.components"))
    if version == NEW:
        reading.means(f"stack.step_graphs = {str(captured).lower()}", "training.disable_cuda_graphs")


def _synchronised(reading: Reading) -> None:
    """Torchft's ways of synchronisation, where they are turned on."""
    ft = "fault_tolerance."
    method = str(reading.value(f"{ft}semi_sync_method") or "").lower()
    if reading.value(f"{ft}enable") is not True:
        return
    reading.means("replica groups: islands of the fleet", *_said(reading, f"{ft}enable", f"{ft}group_size"))
    if method not in ("diloco", "local_sgd"):
        return
    fragments = reading.value(f"{ft}num_fragments")
    streams = method == "diloco" and isinstance(fragments, int) and fragments > 1
    reading.put("plan.sync.method", "streaming_diloco" if streams else method, f"{ft}semi_sync_method")
    names = {"sync_steps": "sync_every", "num_fragments": "num_fragments", "fragment_sync_delay": "fragment_sync_delay",
             "fragment_update_alpha": "fragment_update_alpha"}  # fmt: skip
    for theirs, ours in names.items():
        value = reading.value(ft + theirs)
        if isinstance(value, int | float) and not isinstance(value, bool) and (theirs == "sync_steps" or streams):
            reading.put(f"plan.sync.{ours}", value, ft + theirs)
    if method == "diloco":
        bits = 8 if reading.value(f"{ft}should_quantize") is True else 32
        reading.put("plan.sync.bits", bits, *_said(reading, f"{ft}should_quantize"))
