"""Megatron-LM's options as a plan, a run, and facts of its software."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import nearest, shown
from shardmeter.core.sums import plain_sum
from shardmeter.interop.configs._reading import Reading
from shardmeter.strategies.recompute import OPERATIONS

SHARDINGS = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "fsdp"}
CP_KINDS = {"p2p": "ring", "allgather": "all-gather", "a2a": "ulysses"}
FP8 = {"tensorwise": "fp8", "delayed": "fp8-delayed", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
OPTIMIZERS = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
FORMATS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
PIPELINES_INSIDE = ("tp", "cp", "pp", "dp_shard", "dp_replicate")
"""The order of ranks of --use-tp-pp-dp-mapping."""
STACK = "megatron-core"
OF_NO_SHARD = "core_r0.16"
"""The version whose Megatron-FSDP shards nothing unless it is told to."""
OWN_FORMATS = "2026-08"
"""The version whose Megatron-FSDP sums gradients in formats of its own options; before it --bf16 alone made that fp32, as without it."""


def read_plan(reading: Reading, launcher: Mapping[str, str], model: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Every field of the plan that the options tell or that the trainer's defaults decide."""
    degrees = {
        "tp": reading.whole("--tensor-model-parallel-size", "plan.tp", 1),
        "pp": reading.whole("--pipeline-model-parallel-size", "plan.pp", 1),
        "cp": reading.whole("--context-parallel-size", "plan.cp", 1),
    }
    plan: dict[str, Any] = {**degrees, **_sharding(reading, version)}
    plan |= _numbers(reading, _summed(reading, version))
    plan |= _data_parallel(reading, launcher, plan)
    if model.get("experts") or "--expert-model-parallel-size" in reading.said:
        plan["ep"] = reading.whole("--expert-model-parallel-size", "plan.ep", 1)
        plan["etp"] = reading.whole("--expert-tensor-parallel-size", "plan.etp", plan["tp"])
    sequence = reading.given("--sequence-parallel", "plan.sequence_parallel = true")
    if plan["tp"] > 1 or sequence:
        plan["sequence_parallel"] = sequence
    chunks = reading.given("--tp-comm-overlap", "plan.async_tp = true")
    plan["async_tp"] = chunks if plan["tp"] > 1 else None
    kind = reading.word("--cp-comm-type", CP_KINDS, "plan.cp_kind", "ring")
    plan["cp_kind"] = kind if plan["cp"] > 1 else None
    if reading.given("--use-tp-pp-dp-mapping", f"plan.rank_order = {', '.join(PIPELINES_INSIDE)}"):
        plan["rank_order"] = list(PIPELINES_INSIDE)
    plan |= _schedule(reading, plan["pp"], model.get("layers"))
    plan["recompute"] = _recompute(reading, plan, model.get("layers"))
    plan |= _offload(reading)
    plan["micro_batch"] = reading.whole("--micro-batch-size", "plan.micro_batch")
    return {name: value for name, value in plan.items() if value is not None}


def _sharding(reading: Reading, version: str) -> dict[str, Any]:
    distributed = reading.given("--use-distributed-optimizer", "plan.sharding = zero1, unless FSDP is used")
    fully = reading.given("--use-megatron-fsdp", "plan.sharding = fsdp") or reading.given(
        "--use-custom-fsdp", "plan.sharding = fsdp"
    )
    if fully:
        usual = "ddp" if version == OF_NO_SHARD else "fsdp"
        sharding = reading.word("--data-parallel-sharding-strategy", SHARDINGS, "plan.sharding", usual)
        if not reading.has("--data-parallel-sharding-strategy"):
            reading.assume(
                f"plan.sharding = {usual}: --data-parallel-sharding-strategy is no_shard in {OF_NO_SHARD}, optim_grads_params since core_r0.18"
            )
        return {"sharding": sharding, "reshard": True if sharding == "fsdp" else None}
    reading.ignore("--data-parallel-sharding-strategy", "read by Megatron-FSDP alone (--use-megatron-fsdp)")
    if reading.given("--use-torch-fsdp2", "plan.sharding = fsdp"):
        kept = reading.given("--torch-fsdp2-no-reshard-after-forward", "plan.reshard = false")
        return {"sharding": "fsdp", "reshard": not kept}
    return {"sharding": "zero1" if distributed else "ddp"}


def _data_parallel(reading: Reading, launcher: Mapping[str, str], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees of data parallelism: dp_shard is told where the launcher's nodes and processes are."""
    copies = reading.whole("--num-distributed-optimizer-instances", "plan.dp_replicate", 1)
    counts = [_count(reading, launcher, name) for name in ("nnodes", "nproc-per-node")]
    found: dict[str, Any] = {"dp_replicate": copies, "dp_shard": "auto"}
    for name in launcher:
        if name.replace("_", "-") not in ("--nnodes", "--nproc-per-node"):
            reading.ignore(name, "how processes start")
    gpus, product = counts[0] * counts[1], plan["tp"] * plan["pp"] * plan["cp"] * copies
    if gpus and gpus % product == 0:
        found["dp_shard"] = gpus // product
        reading.assume(f"plan.dp_shard = {gpus // product}: {gpus} GPUs of the launcher over the other degrees")
    elif gpus:
        degrees = f"tp·pp·cp·dp_replicate = {plan['tp']}·{plan['pp']}·{plan['cp']}·{copies}"
        reading.assume(
            f"plan.dp_shard = auto: the launcher's {counts[0]}·{counts[1]} GPUs are no multiple of {degrees}"
        )
    return found


def _count(reading: Reading, launcher: Mapping[str, str], name: str) -> int:
    key = next((key for key in launcher if key.replace("_", "-") == f"--{name}"), "")
    value = launcher.get(key, "")
    known = value.isascii() and value.isdecimal() and len(value) < 7
    if known:
        reading.means("GPUs, for plan.dp_shard", key)
    else:
        reading.ignore(key, "GPUs, for plan.dp_shard")
    return int(value) if known else 0


def _summed(reading: Reading, version: str) -> dict[str, str]:
    """Formats in which gradients are reduced, and added up over micro-batches, by where they are (`stack.gradient_dtype`)."""
    held = "fp16" if "--fp16" in reading.said else "bf16" if "--bf16" in reading.said else "fp32"
    narrow = reading.given("--grad-reduce-in-bf16", "plan.reduce_dtype = bf16, of parameters in bf16")
    wide = reading.given("--accumulate-allreduce-grads-in-fp32", "plan.reduce_dtype = fp32")
    kept = reading.word("--main-grads-dtype", FORMATS, "plan.reduce_dtype, of parameters in bf16", "fp32")
    usual = "fp32" if wide or (held == "bf16" and not narrow and kept == "fp32") else held
    if "--use-torch-fsdp2" in reading.said:
        usual = held
        reading.assume(
            f"plan.reduce_dtype = {held}: PyTorch's FSDP2 in Megatron-LM reduces gradients as parameters are held"
        )
    main, sent = (f"--megatron-fsdp-{one}-dtype" for one in ("main-grads", "grad-comm"))
    if not ({"--use-megatron-fsdp", "--use-custom-fsdp"} & reading.said.keys()):
        for key in (main, sent):
            reading.ignore(key, "read by Megatron-FSDP alone (--use-megatron-fsdp)")
        return {"reduce_dtype": usual, "summed": usual}
    automatic = held if version == OWN_FORMATS else usual
    words = {**FORMATS, "auto": automatic}
    summed = reading.word(main, words, "stack.gradient_dtype", automatic)
    reduced = reading.word(sent, {**words, "auto": summed}, "plan.reduce_dtype", summed)
    if version != OWN_FORMATS and usual == "fp32":
        summed = reduced = "fp32"
    if not reading.has(sent):
        reading.assume(f"plan.reduce_dtype = {reduced}: Megatron-FSDP's of {version} where {sent} is left out")
    return {"reduce_dtype": reduced, "summed": summed}


def _numbers(reading: Reading, sums: Mapping[str, str]) -> dict[str, Any]:
    """Formats of numbers, and the optimizer."""
    precision = "bf16" if reading.given("--bf16", "plan.precision = bf16") else "fp32"
    precision = "fp16" if reading.given("--fp16", "plan.precision = fp16") else precision
    held = precision
    if precision == "fp32":
        reading.assume("plan.precision = fp32: the trainer's default without --bf16 and --fp16")
    if reading.text("--fp8-format", "fp8 by the recipe") is not None:
        precision = reading.word("--fp8-recipe", FP8, "plan.precision", "fp8-delayed")
    reading.ignore("--fp8-recipe", "read with --fp8-format alone")
    if reading.text("--fp4-format", "plan.precision = nvfp4") is not None:
        precision = reading.word("--fp4-recipe", {"nvfp4": "nvfp4"}, "plan.precision", "nvfp4")
    narrow = reading.given("--fp8-param-gather", "plan.gather_dtype = fp8")
    optimizer = reading.word("--optimizer", OPTIMIZERS, "plan.optimizer", "adamw")
    moments = [reading.said.get(f"--exp-avg{part}-dtype") for part in ("", "-sq")]
    if optimizer == "adamw" and moments == ["fp8", "fp8"]:
        reading.text("--exp-avg-dtype", "plan.optimizer = adamw8bit")
        reading.text("--exp-avg-sq-dtype", "plan.optimizer = adamw8bit")
        optimizer = "adamw8bit"
    for key in ("--exp-avg-dtype", "--exp-avg-sq-dtype"):
        reading.ignore(key, "moments have the format of the master parameters here, or 8 bits both")
    return {
        "precision": precision,
        "gather_dtype": "fp8" if narrow else held,
        **sums,
        "optimizer": optimizer,
        "master_dtype": _master(reading, held),
    }


def _master(reading: Reading, held: str) -> str:
    """The format of what the optimizer updates: Megatron-FSDP has an option of its own for it."""
    own = "--megatron-fsdp-main-params-dtype"
    if {"--use-megatron-fsdp", "--use-custom-fsdp"} & reading.said.keys() and own in reading.said:
        reading.ignore("--main-params-dtype", f"{own} is there")
        return reading.word(own, {**FORMATS, "auto": held}, "plan.master_dtype", "fp32")
    reading.ignore(own, "read by Megatron-FSDP alone (--use-megatron-fsdp)")
    return reading.word("--main-params-dtype", FORMATS, "plan.master_dtype", "fp32")


def _stages(layout: str) -> int:
    """Stages of a layout: one more than it has bars, `(tt|)*29` and `|*3` written out."""
    text = layout.replace(",", "")
    groups = re.findall(r"\(([^()]+)\)\*(\d{1,4})", text)
    return (
        1
        + _bars(re.sub(r"\([^()]+\)\*\d{1,4}", "", text))
        + plain_sum(_bars(body) * int(times) for body, times in groups)
    )


def _bars(text: str) -> int:
    return text.count("|") + plain_sum(int(times) - 1 for times in re.findall(r"\|\*(\d{1,4})", text))


def _schedule(reading: Reading, pp: int, layers: int | None) -> dict[str, Any]:
    chunks = reading.whole("--num-virtual-stages-per-pipeline-rank", "plan.virtual_stages", 1)
    each = reading.whole("--num-layers-per-virtual-pipeline-stage", "plan.virtual_stages: layers of one")
    if each and layers:
        ends = sum(f"--account-for-{end}-in-pipeline-split" in reading.said for end in ("embedding", "loss"))
        chunks = max((layers + ends) // pp // each, 1)
    layout = reading.text("--pipeline-model-parallel-layout", "plan.virtual_stages, by the stages it counts")
    if layout is not None:
        chunks = max(_stages(layout) // pp, 1)
        reading.assume("plan.pp: stages are cut by the stack's rule; the layout is read for how many there are")
    for key in ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"):
        reading.ignore(key, "stages are cut by the stack's rule: even, or with embedding and head as a layer each")
    if chunks > 1:
        return {"schedule": "interleaved", "virtual_stages": chunks}
    return {"schedule": "1f1b"}


def _recompute(reading: Reading, plan: Mapping[str, Any], layers: int | None) -> str:
    if reading.given("--recompute-activations", "plan.recompute = selective"):
        reading.ignore("--recompute-granularity", "--recompute-activations is selective")
        return "selective"
    words = {"selective": "selective", "full": "full"}
    policy = reading.word("--recompute-granularity", words, "plan.recompute", "none")
    modules = (reading.text("--recompute-modules", "plan.recompute, if selective") or "").split()
    if policy == "selective" and modules and modules != ["core_attn"]:
        for module in [module for module in modules if module not in OPERATIONS]:
            close = ", ".join(nearest(module, OPERATIONS))
            reading.refuse("--recompute-modules", f"{shown(module)} is none of the modules", f"the nearest are {close}")
        return "+".join(sorted(set(modules) & set(OPERATIONS))) or "none"
    method = reading.text("--recompute-method", "plan.recompute: uniform all layers, block the first of a stage")
    several = reading.whole("--recompute-num-layers", "plan.recompute: layers of a stage", 1)
    if policy == "full" and method == "block" and layers:
        stage = max(layers // (plan["pp"] * plan.get("virtual_stages", 1)), 1)
        return "full" if several >= stage else f"{several}-of-{stage}"
    if policy == "full" and several > 1:
        reading.assume(
            f"plan.recompute = full: {several} layers are kept together as one input; here each layer keeps its own"
        )
    return policy


def _offload(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {"offload": []}
    if reading.given("--optimizer-cpu-offload", "plan.offload = optimizer"):
        found["offload"].append("optimizer")
    layers = reading.whole("--cpu-offloading-num-layers", "plan.offload_layers")
    if layers:
        found |= {"offload": [*found["offload"], "activations"], "offload_layers": layers}
    return found if found["offload"] else {"offload": "none"}


def read_run(reading: Reading) -> dict[str, Any]:
    """Sequence length, batch, length of the run."""
    run: dict[str, Any] = {"seq_len": reading.whole("--seq-length", "run.seq_len")}
    run["global_batch"] = reading.whole("--global-batch-size", "run.global_batch")
    run["steps"] = reading.whole("--train-iters", "run.steps")
    samples = reading.whole("--train-samples", "run.tokens, by the sequence length")
    if samples and run["seq_len"] and run["steps"] is None:
        run["tokens"] = samples * run["seq_len"]
    if run["global_batch"] is None:
        reading.assume("run.global_batch: micro-batch times data-parallel degree, the trainer's default")
    reading.ignore("--rampup-batch-size", "the batch is taken as it is after the ramp; say run.phases for the ramp")
    return {name: value for name, value in run.items() if value is not None}


def read_stack(reading: Reading, summed: str) -> str | dict[str, Any]:
    """Facts of the software that the options decide, over the row of Megatron-Core."""
    facts: dict[str, Any] = {
        "gradient_overlap": reading.given("--overlap-grad-reduce", "stack.gradient_overlap = true")
    }
    facts["gather_overlap"] = reading.given("--overlap-param-gather", "stack.gather_overlap = true")
    ends = [
        reading.given(f"--account-for-{one}-in-pipeline-split", "stack.stage_cut = edges")
        for one in ("embedding", "loss")
    ]
    facts["stage_cut"] = "edges" if all(ends) else "even"
    facts["gradient_dtype"] = summed
    if reading.given("--overlap-moe-expert-parallel-comm", "stack.batch_overlap = true"):
        facts["batch_overlap"] = True
    if reading.given("--moe-shared-expert-overlap", "stack.expert_overlap = true"):
        facts["expert_overlap"] = True
    reading.assume(f"stack {STACK}: its fitted numbers; reductions, gathers and stages as the options say")
    return {"base": STACK, **facts}
