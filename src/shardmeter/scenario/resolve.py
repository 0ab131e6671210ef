"""A document to a `specs.Scenario`: names looked up, defaults filled and said, every violation at once."""

from __future__ import annotations

import math
from typing import Any

from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.engine.constraints import violations
from shardmeter.scenario.fleet import overridden, resolve_island
from shardmeter.scenario.parts import Findings, Rows, lookup, part
from shardmeter.scenario.read import SUFFIXES, Document
from shardmeter.scenario.schema import RunInput, ScenarioInput, validate
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Accelerator, Fabric, Fleet, Instance, Island, Model, Plan, Run, Scenario, Stack
from shardmeter.specs.plan import AXES

DEFAULT_STACK = "titan-compile"
"""The software where none is named."""
LONGEST_DEFAULT = 8192.0
"""Sequence length where none is given, unless the model's context is shorter."""


def resolve(document: Document, rows: Rows) -> Scenario:
    """The scenario that a document describes.

    Raises UnknownName for one unknown name and nothing else wrong, BadScenario with every violation otherwise.
    """
    found = Findings(document)
    if "model_type" in document.data or "architectures" in document.data:
        found.refuse(
            (), "this is a Hugging Face config.json, which is not read yet", "write the model's numbers inline"
        )
        found.stop()
    given, bad = validate(ScenarioInput, document)
    if given is None:
        found.violations += bad
        _check_names(document.data, rows, found)
        found.stop()
        raise AssertionError  # pragma: no cover  (a failed validation has violations)
    model = _model(given, rows, found)
    stack = _stack(given, rows, found)
    island, asked = resolve_island(given, rows, found)
    said = overridden(given.plan, asked.plan)
    found.stop()
    if model is None or stack is None or island is None:
        raise AssertionError  # pragma: no cover  (each None has a violation)
    plan, left_over = _plan(said, stack, island, found)
    run = _run(given.run or RunInput(), model, plan, found)
    skip = ("degrees", "global_batch", "interleaved_rounds", "unsharded", "experts") if left_over else ()
    for violation in violations(model, island, plan, run, stack, skip=skip):
        path: Path = tuple(violation.field.split(".")) if "," not in violation.field else ()
        found.violations.append(changed(violation, where=document.where(path)))
    found.stop()
    return Scenario(
        name=given.name or "scenario",
        model=model,
        stack=stack,
        fleet=Fleet(islands=(island,)),
        plan=plan,
        run=run,
        assumptions=tuple(found.assumptions),
        warnings=tuple(found.warnings),
    )


def _model(given: ScenarioInput, rows: Rows, found: Findings) -> Model | None:
    if given.model is None:
        found.refuse(("model",), "no model is named", "say model: llama-3.1-8b, a file, or its numbers")
        return None
    return part(Model, given.model, rows, ("model",), found)


def _stack(given: ScenarioInput, rows: Rows, found: Findings) -> Stack | None:
    """The software; fields without a base change the default stack."""
    asked = given.stack
    if asked is None:
        found.assumptions.append(f"stack {DEFAULT_STACK} (none named)")
        asked = DEFAULT_STACK
    elif not isinstance(asked, str) and getattr(asked, "base", None) is None:
        found.assumptions.append(f"stack {DEFAULT_STACK} with the fields given (no base named)")
        asked = asked.model_copy(update={"base": DEFAULT_STACK})
    return part(Stack, asked, rows, ("stack",), found)


def _plan(said: dict[str, Any], stack: Stack, island: Island, found: Findings) -> tuple[Plan, bool]:
    """The plan with its defaults, and whether the degrees leave no whole dp_shard (noted as a violation)."""
    own = {name: value for name, value in said.items() if name not in ("sync", "placement")}
    if "sharding" not in own:
        found.assumptions.append("plan fsdp (no sharding named)")
    if "micro_batch" not in own:
        found.assumptions.append("micro_batch = 1 (left out)")
    peak = island.accelerator.peak
    if "precision" not in own and "bf16" not in peak and "fp16" in peak:
        own["precision"] = "fp16"
        found.assumptions.append(f"precision fp16 ({island.accelerator.name} has no bf16)")
    for dtype in ("gather_dtype", "reduce_dtype"):
        if dtype not in own:
            own[dtype] = getattr(stack, dtype)
            found.assumptions.append(f"{dtype} {own[dtype]} (of stack {stack.name})")
    if stack.async_tp and "async_tp" not in own and own.get("sequence_parallel", True) and own.get("tp", 1.0) != 1.0:
        own["async_tp"] = True
        found.assumptions.append(f"async_tp true (of stack {stack.name})")
    order = own.get("rank_order")
    if order is not None and sorted(order) != sorted(AXES):
        found.refuse(("plan", "rank_order"), f"{list(order)} is no order of the axes", f"each once: {', '.join(AXES)}")
        del own["rank_order"]
    for axis in ("cp", "ep", "etp"):
        own.pop(axis, None)
    left_over = _degrees(own, island, found)
    return Plan(**own), left_over


def _degrees(own: dict[str, Any], island: Island, found: Findings) -> bool:
    """Fill dp_shard and dp_replicate; True after noting that they come out as no whole number."""
    gpus, tp, pp = float(island.gpus), own.get("tp", 1.0), own.get("pp", 1)
    shard = own.get("dp_shard", "auto")
    if own.get("sharding") == "hsdp":
        own["sharding"] = "fsdp"
        domain = float(island.tiers[0].size)
        if shard == "auto":
            shard = domain / tp
            rule = "hsdp shards inside the scale-up domain: dp_shard = domain/(tp·cp)"
            if not _whole(shard, ("plan", "tp"), f"domain/(tp·cp) = {domain:g}/{tp:g} = {shard:g}", rule, found):
                return True
            found.assumptions.append(f"dp_shard = {shard:g} (hsdp: scale-up domain of {domain:g} over tp = {tp:g})")
        if "dp_replicate" not in own:
            own["dp_replicate"] = gpus / (tp * pp * shard)
            says = f"GPUs/(tp·pp·cp·dp_shard) = {gpus:g}/({tp:g}·{pp}·1·{shard:g}) = {own['dp_replicate']:g}"
            if not _whole(
                own["dp_replicate"], ("plan",), says, "the degrees multiply to the GPUs of the island", found
            ):
                own["dp_replicate"], own["dp_shard"] = 1.0, 1.0
                return True
            found.assumptions.append(f"dp_replicate = {own['dp_replicate']:g} (what is left)")
    elif shard == "auto":
        inside = tp * pp * own.get("dp_replicate", 1.0)
        shard = gpus / inside
        says = f"GPUs/(tp·pp·cp·dp_replicate) = {gpus:g}/({tp:g}·{pp}·1·{own.get('dp_replicate', 1.0):g}) = {shard:g}"
        if not _whole(shard, ("plan",), says, "the degrees multiply to the GPUs of the island", found):
            own["dp_shard"] = 1.0
            return True
        found.assumptions.append(f"dp_shard = {shard:g} (what is left of {gpus:g} GPUs)")
    own["dp_shard"] = shard
    return False


def _whole(value: float, path: Path, says: str, rule: str, found: Findings) -> bool:
    if value >= 1.0 and value == round(value):
        return True
    found.refuse(path, f"{says} is no whole number of 1 or more", "choose degrees that divide it", rule)
    return False


def _run(given: RunInput, model: Model, plan: Plan, found: Findings) -> Run:
    seq_len = given.seq_len
    if seq_len is None:
        context = float(model.context)
        seq_len = min(context, LONGEST_DEFAULT) if context > 0 else LONGEST_DEFAULT
        found.assumptions.append(f"seq_len = {seq_len:g} (left out: the model's context, at most {LONGEST_DEFAULT:g})")
    global_batch = _global_batch(given, float(seq_len), plan, found)
    if given.tokens is not None and given.steps is not None:
        found.refuse(("run", "steps"), "both tokens and steps are given", "keep one of the two")
    if given.tokens is None and given.steps is None:
        found.assumptions.append("no tokens and no steps are given: the run is null")
    return Run(
        seq_len=float(seq_len),
        global_batch=global_batch,
        tokens=given.tokens[0] if given.tokens else None,
        steps=given.steps[0] if given.steps else None,
    )


def _global_batch(given: RunInput, seq_len: float, plan: Plan, found: Findings) -> float:
    unit = float(plan.dp * plan.micro_batch)
    if given.global_batch is None:
        found.assumptions.append(f"global_batch = micro_batch · data-parallel degree = {unit:g} (left out)")
        return unit
    amount, word = given.global_batch
    if word == "sequences":
        return amount
    sequences = amount / seq_len
    if sequences == math.floor(sequences) and sequences % unit == 0.0 and sequences > 0:
        return sequences
    rounded = max(1.0, math.floor(sequences / unit + 0.5)) * unit
    if sequences < unit / 2:
        found.refuse(
            ("run", "global_batch"),
            f"{show(amount, 'tokens')} are {sequences:.4g} sequences of {seq_len:g}, fewer than dp·micro_batch = {unit:g}",
            f"at least {unit * seq_len:g} tokens, or fewer data-parallel replicas",
        )
    found.assumptions.append(
        f"global_batch = {rounded:g} sequences: {show(amount, 'tokens')} are {sequences:.1f} of {seq_len:g}, rounded to a "
        f"multiple of dp·micro_batch = {unit:g}"
    )
    return rounded


def _check_names(data: dict[str, Any], rows: Rows, found: Findings) -> None:
    """Unknown names of a document whose shape is wrong, so that they are listed with the rest."""
    places: list[tuple[type[Any], Any, Path]] = [
        (Model, data.get("model"), ("model",)),
        (Stack, data.get("stack"), ("stack",)),
    ]
    fleet = data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    for position, island in enumerate(islands if isinstance(islands, list) else ()):
        if isinstance(island, dict):
            kinds: tuple[tuple[type[Any], str], ...] = (
                (Accelerator, "accelerator"),
                (Instance, "instance"),
                (Fabric, "fabric"),
            )
            places += [(kind, island.get(key), ("fleet", "islands", position, key)) for kind, key in kinds]
    for kind, name, path in places:
        base = name.get("base") if isinstance(name, dict) else name
        if isinstance(base, str) and not base.lower().endswith(SUFFIXES):
            lookup(kind, base, rows, path, found)
