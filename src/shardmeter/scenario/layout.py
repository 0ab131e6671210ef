"""A plan and a run laid over a model and an island: degrees, batches and lengths that were left out, and every rule they break."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from shardmeter.core.errors import quoted
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count
from shardmeter.engine.constraints import CONSTRAINTS, violations
from shardmeter.engine.rules import listed, near
from shardmeter.families import assumed, family, given_sequence
from shardmeter.families.operations import is_layer
from shardmeter.scenario.fleet import Entry
from shardmeter.scenario.parts import ISLANDS, Findings, Rows
from shardmeter.scenario.schema import RunInput, ScenarioInput
from shardmeter.scenario.yaml_reader import Path
from shardmeter.schedules import holds_all
from shardmeter.specs import Island, Model, Plan, Run, Stack, Sync
from shardmeter.specs.plan import AXES
from shardmeter.strategies import adapters
from shardmeter.strategies.pipeline import side_by_side
from shardmeter.strategies.precision import recipe
from shardmeter.sync import laid as under_method
from shardmeter.sync import optimizer_of

ALONE = Sync()
"""Nothing said of synchronisation."""
LONGEST_DEFAULT = 8192.0
"""Sequence length where none is given, unless the model's context is shorter."""


@record
class Parts:
    """Everything of a document that is read before the plan is laid out: what does not depend on its degrees and batches."""

    given: ScenarioInput
    model: Model | None
    stack: Stack | None
    island: Island
    """The first."""
    reference: Model | None
    said: dict[str, Any]
    """Fields of the plan that were said, the (first) island's own winning."""
    run: RunInput
    found: Findings
    rows: Rows
    entries: tuple[Entry, ...] = ()
    """What the scenario says of islands that take part, item by item."""
    everyone: tuple[Entry, ...] = ()
    """The same with those that do not."""
    sync: Sync = ALONE
    of_sync: Findings | None = None
    """What was found of `sync`, to be told where it matters."""
    assembled: Model | None = None
    """The whole model, where `model` is one of the blocks that the synchronisation cuts it into."""

    @property
    def is_one(self) -> bool:
        """Whether the scenario has a single island."""
        return sum(len(entry.names) for entry in self.entries) == 1


NO_MODEL = Model(name="", layers=1, hidden=1.0, ffn=1.0, heads=1.0, kv_heads=1.0, head_dim=1.0, vocab=1.0)
NO_STACK = Stack(name="")
"""Stand in for what could not be read, so that the rest of the scenario is still checked."""
_DEGREES: tuple[Path, ...] = (*(("plan", axis) for axis in (*AXES, "sharding")), ISLANDS)
BATCH: tuple[Path, ...] = (*_DEGREES, ("plan", "micro_batch"), ("run", "global_batch"), ("run", "seq_len"))
LOOKS_AT: dict[str, tuple[Path, ...]] = {
    "whole": (),
    "degrees": _DEGREES,
    "heads": (("plan", "tp"), ("model",)),
    "kv_heads": (("plan", "tp"), ("model",)),
    "ffn": (("plan", "tp"), ("model",)),
    "stages": (("plan", "pp"), ("plan", "virtual_stages"), ("model",), ("stack",)),
    "virtual_stages": (("plan", "schedule"), ("plan", "virtual_stages")),
    "ahead": (("plan", "schedule"), ("plan", "ahead")),
    "global_batch": BATCH,
    "interleaved_rounds": (*BATCH, ("plan", "schedule")),
    "sequence": (
        ("run", "seq_len"),
        ("plan", "tp"),
        ("plan", "cp"),
        ("plan", "cp_kind"),
        ("plan", "sequence_parallel"),
    ),
    "context": (("run", "seq_len"), ("model",)),
    "unsharded": _DEGREES,
    "etp": (("plan", "etp"), ("plan", "tp")),
    "experts": (*_DEGREES, ("plan", "ep"), ("plan", "etp")),
    "expert_count": (("plan", "ep"), ("model",)),
    "expert_width": (("plan", "etp"), ("model",)),
    "expert_tokens": (("plan", "etp"), ("plan", "tp"), ("plan", "sequence_parallel"), ("model",)),
    "context_heads": (("plan", "cp"), ("plan", "tp"), ("plan", "cp_kind"), ("model",)),
    "expert_skew": (("plan", "expert_skew"), ("plan", "ep"), ("model",)),
    "precision": (("plan", "precision"), ISLANDS),
    "one_stack": (("plan", "pp"), ("model",)),
    "cut_sequence": (("plan", "cp"), ("model",)),
    "image_heads": (("plan", "tp"), ("model",)),
    "image_sequence": (("plan", "tp"), ("plan", "sequence_parallel"), ("model",)),
    "images": (("run", "seq_len"), ("model",)),
    "reference_stages": (("plan", "pp"), ("run", "reference")),
    "reference_family": (("run", "reference"), ("model",)),
    "probed_sharding": (("plan", "sharding"), ("plan", "sync")),
    "probed_offload": (("plan", "offload"), ("plan", "sync")),
    "probed_schedule": (("plan", "schedule"), ("plan", "pp"), ("plan", "sync")),
    "members": (*BATCH, ("plan", "sync")),
}
"""What each structural rule looks at: it is not asked where a part of that was malformed."""
LEFT_OVER = ("degrees", "global_batch", "interleaved_rounds", "unsharded", "experts")
"""Rules that cannot be asked where the degrees leave no whole number."""


def laid_plan(parts: Parts, said: dict[str, Any]) -> tuple[Plan, bool, Findings]:
    """The plan of some parts with other things said: the plan, whether its degrees leave a whole number, and what was found."""
    found = Findings(parts.found.document)
    plan, left_over = laid(said, parts.stack or NO_STACK, parts.island, found, parts.sync)
    return plan, not left_over, found


def laid_run(parts: Parts, said: dict[str, Any], plan: Plan) -> tuple[Run, Findings, Findings]:
    """The run of some parts with a plan, and what is found before and after the rules that `engine.constraints` checks."""
    before, after = Findings(parts.found.document), Findings(parts.found.document)
    model = parts.model or NO_MODEL
    run = laid_lengths(parts.run, model, before, lambda seq_len: _global_batch(parts.run, seq_len, plan, before))
    run = changed(run, reference=parts.reference)
    check_layers(said, plan, model, after)
    _check_context(parts.run, run, model, after)
    return run, before, after


def laid_out(
    said: dict[str, Any],
    asked: RunInput,
    model: Model,
    stack: Stack,
    island: Island,
    reference: Model | None,
    found: Findings,
    sync: Sync = ALONE,
    *,
    is_open: bool = False,
) -> tuple[Plan, Run]:
    """The plan and the run, after noting every structural rule that they break; of an open plan there is nothing to ask yet."""
    plan, left_over = laid(said, stack, island, found, sync)
    run = laid_lengths(asked, model, found, lambda seq_len: _global_batch(asked, seq_len, plan, found))
    run = changed(run, reference=reference)
    if is_open:
        found.assumptions += assumed(model) if model is not NO_MODEL else ()
        _check_context(asked, run, model, found)
        return plan, run
    skip = {name for name, paths in LOOKS_AT.items() if paths and found.touched(*paths)}
    skip |= {c.name for c in CONSTRAINTS if c.name not in LOOKS_AT and found.gone}
    skip |= (set(LEFT_OVER) if left_over else set()) | found.document.begins
    for violation in violations(model, island, plan, run, stack, skip=skip):
        path: Path = tuple(violation.field.split(".")) if "," not in violation.field else ()
        found.violations.append(changed(violation, where=found.document.where(path)))
    note_the_rest(said, asked, plan, model, run, found)
    return plan, run


def note_the_rest(said: dict[str, Any], asked: RunInput, plan: Plan, model: Model, run: Run, found: Findings) -> None:
    """What no structural rule asks, and what is taken for granted of a plan and a run."""
    if model is not NO_MODEL:
        found.assumptions += assumed(model)
    check_layers(said, plan, model, found)
    _check_context(asked, run, model, found)
    _say_what_is_frozen(plan, model, found)
    _say_the_reference(plan, model, run, found)
    _say_what_is_ignored(said, plan, found)


def check_layers(said: dict[str, Any], plan: Plan, model: Model, found: Findings) -> None:
    """Recomputation and schedule against the layers and stages that there are."""
    some = re.fullmatch(r"(?:every-|\d+-of-)(\d+)", plan.recompute)
    if some and int(some.group(1)) > model.layers and not found.touched(("model",)):
        says = f"recompute {plan.recompute} for {model.layers} layers"
        found.refuse(("plan", "recompute"), says, f"{model.layers} or less, or none", "K and M are at most the layers")
    if plan.pp == 1 and plan.schedule == "interleaved" and plan.virtual_stages > 1:
        says = f"schedule interleaved with virtual_stages = {plan.virtual_stages} and pp = 1"
        if "pp" not in said or not found.touched(("plan", "pp")):
            found.refuse(("plan", "pp"), says, "pp: 2 or more, or leave schedule and virtual_stages out")


def _check_context(asked: RunInput, run: Run, model: Model, found: Findings) -> None:
    """Sequences longer than the model was made for."""
    context = float(model.context)
    if found.touched(("model",), ("run", "seq_len")) or model is NO_MODEL or given_sequence(model) is not None:
        return
    if model.positions == "learned" and context == 0.0:
        what = "given" if asked.seq_len is not None else "the default"
        says = f"seq_len = {run.seq_len:g} ({what}), but {model.name} has no learned positions: its context is 0"
        found.refuse(("run", "seq_len"), says, f"say model.context: {run.seq_len:g}, or positions: rope")
    elif model.positions != "learned" and 0.0 < context < run.seq_len:
        found.warnings.append(
            f"seq_len = {run.seq_len:g} is beyond the context of {model.name}, {context:g}: speed and memory are "
            f"predicted, what it learns is not"
        )


def _say_what_is_frozen(plan: Plan, model: Model, found: Findings) -> None:
    """What is taken for granted of frozen layers with something trained in them or before them."""
    if plan.trainable == "all" or model is NO_MODEL or found.touched(("model",)):
        return
    layers = [block for block in family(model.family).blocks(model) if is_layer(block.name)]
    if any(adapters.input_share(plan.trainable, one) > adapters.weight_share(plan.trainable, one) for one in layers):
        found.assumptions.append(
            "frozen layers that hand a gradient back keep the activations of trained ones (upper bound)"
        )


def _say_the_reference(plan: Plan, model: Model, run: Run, found: Findings) -> None:
    """What is taken for granted of a reference model."""
    other = run.reference
    if other is None or model is NO_MODEL:
        return
    found.assumptions.append(
        f"reference {other.name}: frozen, forward once for every micro-batch, a copy of its own"
        + (" (adapters switched off would need none: an upper bound of memory)" if adapters.trained(plan.trainable).rank else "")
    )  # fmt: skip
    found.assumptions.append("global_batch counts sequences: a pair of a preference loss is two")
    if other.vocab != model.vocab:
        found.warnings.append(
            f"the vocabulary of reference {other.name} has {other.vocab:g} entries, that of {model.name} {model.vocab:g}: "
            f"what they say of a token can be compared only if they share a tokenizer"
        )


def _say_what_is_ignored(said: dict[str, Any], plan: Plan, found: Findings) -> None:
    """Fields that were given and that change nothing in this plan."""
    sharded = plan.sharding in ("fsdp", "zero3")
    idle = {
        "reshard": "" if sharded else f"sharding {plan.sharding} gathers no parameters",
        "gather_dtype": ""
        if sharded or plan.sharding in ("zero1", "zero2")
        else f"sharding {plan.sharding} gathers none",
        "schedule": "" if plan.pp > 1 else "pp = 1 has no pipeline",
        **_idle_inside(plan),
        "cp_kind": "cp = 1 cuts no sequence" if plan.cp == 1 else "",
        "sequence_parallel": "tp = 1 cuts no activations" if plan.tp == 1 else "",
        "offload_layers": "" if "activations" in plan.offload else "no activations are offloaded",
        **_idle_without_backward(plan),
    }
    usual = {"schedule": "1f1b", "recompute": "none", "ahead": 0.0, "stagger": False}
    for name, why in idle.items():
        if why and name in said and said[name] != usual.get(name):
            found.warnings.append(f"plan.{name} changes nothing: {why}")


def _idle_inside(plan: Plan) -> dict[str, str]:
    """Fields of pipelines that cross islands, where none does or where they add nothing."""
    if all(axis != "pp" for axis, _ in plan.placement):
        return dict.fromkeys(("ahead", "stagger"), "no pipeline crosses islands")
    alone = "" if side_by_side(plan) > 1.0 else "pipelines that meet in every micro-batch cannot send in turn"
    held = f"{plan.schedule} holds every micro-batch" if holds_all(plan.schedule) else ""
    return {"ahead": held, "stagger": alone if plan.dp > 1.0 else "there is one pipeline"}


def _idle_without_backward(plan: Plan) -> dict[str, str]:
    """Fields that say something of a backward or of an optimizer, where there is neither."""
    if plan.probes is None:
        return {}
    method = plan.sync.method
    return {
        "recompute": f"{method} keeps nothing for a backward",
        "reduce_dtype": f"{method} reduces no gradients",
        "optimizer": f"{method} brings its own step",
        "master_dtype": f"{method} steps the weights themselves",
        "reshard": "there is no backward to gather for",
    }


def _formats(own: dict[str, Any], stack: Stack, island: Island, found: Findings) -> None:
    """Number formats that a plan leaves out, added in place: of the accelerator, of the precision, of the stack."""
    peak = island.accelerator.peak
    if "precision" not in own and "bf16" not in peak and "fp16" in peak:
        own["precision"] = "fp16"
        found.assumptions.append(f"precision fp16 ({island.accelerator.name} has no bf16)")
    if "gather_dtype" not in own and recipe(own.get("precision", "bf16")).held == "fp32":
        own["gather_dtype"] = "fp32"
        found.assumptions.append(f"gather_dtype fp32 (of precision {own['precision']})")
    for dtype in ("gather_dtype", "reduce_dtype"):
        if dtype not in own:
            own[dtype] = getattr(stack, dtype)
            found.assumptions.append(f"{dtype} {own[dtype]} (of stack {stack.name})")


def laid(said: dict[str, Any], stack: Stack, island: Island, found: Findings, sync: Sync = ALONE) -> tuple[Plan, bool]:
    """The plan of one island with its defaults, under a way of synchronisation, and whether the degrees leave no whole dp_shard (noted
    as a violation)."""
    own = {name: value for name, value in said.items() if name not in ("sync", "placement")}
    if "sharding" not in own:
        found.assumptions.append("plan fsdp (no sharding named)")
    if "micro_batch" not in own:
        found.assumptions.append("micro_batch = 1 (left out)")
    _formats(own, stack, island, found)
    brought = optimizer_of(sync)
    if brought and "optimizer" not in own:
        own["optimizer"] = brought
        found.assumptions.append(f"optimizer {brought} (of {sync.method}, which replaces Adam's; left out)")
    if stack.async_tp and "async_tp" not in own and own.get("sequence_parallel", True) and own.get("tp", 1.0) != 1.0:
        own["async_tp"] = True
        found.assumptions.append(f"async_tp true (of stack {stack.name})")
    order = own.get("rank_order")
    if order is not None and sorted(order) != sorted(AXES):
        found.refuse(("plan", "rank_order"), f"{list(order)} is no order of the axes", f"each once: {', '.join(AXES)}")
        del own["rank_order"]
    left_over = _degrees(own, island, found)
    if own.get("cp", 1.0) > 1.0 and "cp_kind" not in own:
        found.assumptions.append("cp_kind ring (left out)")
    if own.get("ep", 1.0) > 1.0 and "expert_skew" not in own:
        found.assumptions.append("expert_skew = 1: every expert gets as many tokens (left out)")
    return _under(Plan(**own), sync, found), left_over


def _under(plan: Plan, sync: Sync, found: Findings) -> Plan:
    """The plan under a way of synchronisation, after noting what it cannot train."""
    if sync == ALONE:
        return plan
    made = under_method(plan, sync)
    if made.probes is not None and (adapters.trained(plan.trainable).rank or adapters.trained(plan.trainable).spans):
        says = f"trainable {plan.trainable}, but {sync.method} perturbs all parameters of a block, or none"
        found.refuse(("plan", "trainable"), says, "leave it out, or blocks: layer+head")
    return made


def _degrees(own: dict[str, Any], island: Island, found: Findings) -> bool:
    """Fill dp_shard and dp_replicate; True after noting that they come out as no whole number."""
    gpus, tp, pp, cp = float(island.gpus), own.get("tp", 1.0), own.get("pp", 1), own.get("cp", 1.0)
    shard = own.get("dp_shard", "auto")
    if own.get("sharding") == "hsdp":
        own["sharding"] = "fsdp"
        return _hybrid(own, island, shard, found)
    if shard == "auto":
        replicas = own.get("dp_replicate", 1.0)
        shard = gpus / (tp * pp * cp * replicas)
        says = f"GPUs/(tp·pp·cp·dp_replicate) = {gpus:g}/({tp:g}·{pp}·{cp:g}·{replicas:g}) = {shard:g}"
        if not _whole(shard, ("plan",), says, _nearest_degrees(own, gpus), found):
            own["dp_shard"] = 1.0
            return True
        found.assumptions.append(f"dp_shard = {shard:g} (what is left of {gpus:g} GPUs)")
    own["dp_shard"] = shard
    return False


def _hybrid(own: dict[str, Any], island: Island, shard: float | str, found: Findings) -> bool:
    """The degrees of hsdp: dp_shard fills the scale-up domain, dp_replicate is what is left."""
    gpus, domain = float(island.gpus), float(island.tiers[0].size)
    tp, pp, cp = own.get("tp", 1.0), own.get("pp", 1), own.get("cp", 1.0)
    over = f"tp = {tp:g}" if cp == 1.0 else f"tp·cp = {tp * cp:g}"
    inside = domain / (tp * cp) if isinstance(shard, str) else shard
    given = own.get("dp_replicate")
    own |= {"dp_shard": 1.0, "dp_replicate": given or 1.0}
    if shard == "auto":
        says = (
            f"hsdp shards inside the scale-up domain: dp_shard = domain/(tp·cp) = {domain:g}/{tp * cp:g} = {inside:g}"
        )
        way_out = f"the nearest tp: {listed(near(divisors(domain / cp if domain % cp == 0 else domain), tp))}; or fsdp with dp_replicate"
        if not _whole(inside, ("plan", "tp"), says, way_out, found):
            return True
        found.assumptions.append(f"dp_shard = {inside:g} (hsdp: scale-up domain of {domain:g} over {over})")
    left = gpus / (tp * pp * cp * inside)
    says = f"GPUs/(tp·pp·cp·dp_shard) = {gpus:g}/({tp:g}·{pp}·{cp:g}·{inside:g}) = {left:g}"
    if given is None and not _whole(left, ("plan",), says, _nearest_degrees(own, gpus / inside), found):
        return True
    if given is not None and given != left and not found.touched(*_DEGREES):
        found.refuse(
            ("plan", "dp_replicate"),
            f"hsdp with dp_replicate = {given:g}, but {says}",
            f"leave dp_replicate out, or say fsdp,dp_replicate={given:g}: its dp_shard is what is left",
            "hsdp shards inside the scale-up domain",
        )
        return True
    if given is None:
        found.assumptions.append(f"dp_replicate = {left:g} (what is left)")
    own |= {"dp_shard": inside, "dp_replicate": left}
    return False


def divisors(value: float) -> list[float]:
    """The divisors of a whole number, ascending."""
    whole = int(value)
    small = [d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0]
    return [float(d) for d in sorted({*small, *(whole // d for d in small)})]


def _nearest_degrees(own: dict[str, Any], gpus: float) -> str:
    """Legal numbers near the degree that does not divide `gpus`."""
    axes = ("tp", "pp", "cp", "dp_replicate")
    given = {axis: float(own[axis]) for axis in axes if own.get(axis, 1) != 1}
    inside = math.prod(given.values())
    for axis, degree in given.items():
        rest = gpus * degree / inside
        if len(given) == 1 or (rest == round(rest) and rest >= 1.0):
            legal = divisors(rest) if rest >= 1.0 and rest == round(rest) else divisors(gpus)
            return f"the nearest {axis} that divides: {listed(near(legal, degree))}"
    return f"choose degrees whose product divides {gpus:g}"


def _whole(value: float, path: Path, says: str, way_out: str, found: Findings) -> bool:
    if value >= 1.0 and value == round(value):
        return True
    if not found.touched(*_DEGREES):
        rule = "the degrees multiply to the GPUs of the island"
        found.refuse(path, f"{says} is no whole number of 1 or more", way_out, rule)
    return False


def laid_lengths(given: RunInput, model: Model, found: Findings, batch: Callable[[float], float]) -> Run:
    """The run with its lengths; `batch` tells the global batch at a sequence length."""
    seq_len, own = given.seq_len, given_sequence(model) if model is not NO_MODEL else None
    if own is not None:
        seq_len = _own_sequence(seq_len, float(own), model, found)
    elif seq_len is None:
        context = float(model.context)
        seq_len = min(context, LONGEST_DEFAULT) if context > 0 else LONGEST_DEFAULT
        found.assumptions.append(f"seq_len = {seq_len:g} (left out: the model's context, at most {LONGEST_DEFAULT:g})")
    document = given.document_len
    if document is not None and document > seq_len:
        says = f"document_len = {document:g} is more than seq_len = {seq_len:g}"
        found.refuse(
            ("run", "document_len"), says, "documents are packed into sequences: say fewer tokens, or leave it out"
        )
    global_batch = batch(float(seq_len))
    if given.tokens is not None and given.steps is not None:
        found.refuse(("run", "steps"), "both tokens and steps are given", "keep one of the two")
    if given.tokens is None and given.steps is None and given.target_loss is None:
        found.assumptions.append("no tokens and no steps are given: no duration, cost or energy of the run")
    return Run(
        seq_len=float(seq_len),
        global_batch=global_batch,
        document_len=None if document is None else float(document),
        tokens=given.tokens[0] if given.tokens else None,
        steps=given.steps[0] if given.steps else None,
    )


def _own_sequence(asked: float | None, own: float, model: Model, found: Findings) -> float:
    """The sequence of a model that its images give; a number that is their size in pixels is taken for that."""
    size, patch = float(model.image_size), float(model.patch)
    found.assumptions.append(f"seq_len = {own:g} (the model's: an image of {size:g} in patches of {patch:g})")
    if asked is not None and asked not in (own, size) and not found.touched(("run", "seq_len"), ("model",)):
        says = f"seq_len = {asked:g}, but an image of {model.name} is {own:g} tokens ({size:g} in patches of {patch:g})"
        way_out = f"leave seq_len out, or say another size: model: {{base: {quoted(model.name)}, image_size: N}}"
        found.refuse(("run", "seq_len"), says, way_out, "images give the sequence, not the run")
    return own


def whole_batch(tokens: Count, seq_len: Count, unit: Count) -> Count:
    """Sequences of a batch given in tokens: the multiple of `unit` = dp·micro_batch that is nearest, at least one."""
    return np.maximum(1.0, np.floor(tokens / seq_len / unit + 0.5)) * unit


def _global_batch(given: RunInput, seq_len: float, plan: Plan, found: Findings) -> float:
    unit = float(plan.dp * plan.micro_batch)
    if given.global_batch is None:
        found.assumptions.append(f"global_batch = micro_batch · data-parallel degree = {unit:g} (left out)")
        return unit
    amount, word = given.global_batch
    if word == "sequences":
        return amount
    sequences = amount / seq_len
    rounded = float(whole_batch(amount, seq_len, unit))
    if rounded == sequences:
        return sequences
    if sequences < unit / 2 and not found.touched(*BATCH):
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
