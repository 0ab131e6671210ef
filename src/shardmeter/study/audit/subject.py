"""What a claim is set against: the parts of a scenario that were named, a whole one or only a model or only machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shardmeter.core.errors import BadScenario, ShardMeterError, cut
from shardmeter.core.record import changed, record
from shardmeter.families import active_parameters, parameters
from shardmeter.scenario import load, opened
from shardmeter.specs import Accelerator, Island, Model, Scenario
from shardmeter.strategies.optimizer import optimizer
from shardmeter.strategies.precision import WIDTH, recipe
from shardmeter.study.audit.reading import NONE, READERS, Claim

Settle = Callable[[Scenario], Scenario]
STAND_IN: Mapping[str, Any] = {"model": "gpt2", "gpus": "1xH100-SXM5-80GB"}
"""What takes the place of a part that was not named, so that the others can be read; nothing of it is used."""
OF_CLAIMS = {
    "seq_len": "run.seq_len", "global_batch": "run.global_batch", "micro_batch": "plan.micro_batch", "tokens": "run.tokens",
    "tp": "plan.tp", "pp": "plan.pp", "cp": "plan.cp", "precision": "plan.precision", "optimizer": "plan.optimizer",
    "sharding": "plan.sharding",
}  # fmt: skip
"""Claims that are inputs, and the field of a scenario that each is."""
MACHINES = ("gpus", "fleet", "instance")
DEGREES = ("tp", "pp", "cp")


@record
class Subject:
    """What was named of the run."""

    model: Model | None = None
    island: Island | None = None
    accelerator: Accelerator | None = None
    """That of the island, or the claimed one."""
    scenario: Scenario | None = None
    """The whole run, where it can be predicted."""
    gpus: float | None = None
    facts: tuple[tuple[str, float, str], ...] = ()
    """(quantity, number, origin) that the scenario states."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def subject(
    source: Any, overrides: Any, rows: Any, options: Mapping[str, Any], claims: Sequence[Claim], settle: Settle
) -> Subject:
    """Read what is there of a scenario. Raises what a scenario raises."""
    if isinstance(source, Scenario):
        return _whole(source, {}, ())
    data: Mapping[str, Any] = {}
    catalog = rows
    if source is not None or options or tuple(overrides):
        document, catalog = opened(source, overrides=overrides, catalog=rows, options=options)
        data = document.data
    has_model, has_machines = "model" in data, any(name in data for name in MACHINES)
    if has_model and has_machines:
        return _claimed_too(source, overrides, catalog, options, claims, data, settle)
    accelerator = next((one.word for one in claims if one.quantity == "accelerator"), None)
    found = Subject(accelerator=catalog.accelerator(accelerator) if accelerator else None)
    if has_model or has_machines:
        part = {key: value for key, value in data.items() if key in ("model", *MACHINES, "prices")}
        made = load({**STAND_IN, **part} if has_model else {"model": STAND_IN["model"], **part}, catalog=catalog)
        found = _machines(made) if has_machines else Subject(model=made.model, accelerator=found.accelerator)
    return changed(_stated(found, data), warnings=_unread(data))


STATED = ("seq_len", "tokens", "steps", "global_batch")
"""Fields of a run that are read without the rest of a scenario."""


def _unread(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said of a scenario and not looked at, as nothing is predicted without a model and machines."""
    run = data.get("run")
    names = [key for key in data if key not in ("name", "model", *MACHINES, "prices", "run")]
    names += [f"run.{key}" for key in run if key not in STATED] if isinstance(run, Mapping) else []
    if not names:
        return ()
    return (
        f"not looked at, as a run is predicted only where its model and its machines are named: {', '.join(map(cut, names))}",
    )


def _stated(found: Subject, data: Mapping[str, Any]) -> Subject:
    """With what a scenario of some parts says of its run."""
    given = data.get("run")
    run = given if isinstance(given, Mapping) else {}
    said = [key for key in STATED if key in run]
    facts = [
        (key, READERS["count"](run[key]), "scenario") for key in said if not str(run[key]).strip().endswith("tokens")
    ]
    return changed(found, facts=(*found.facts, *facts))


def _machines(made: Scenario) -> Subject:
    island = made.fleet.islands[0]
    gpus = float(made.fleet.gpus)
    facts = [("gpus", gpus, "scenario"), ("gpus_per_node", float(island.gpus_per_node), "scenario")]
    if island.price is not None:
        facts.append(("price", float(island.price), "scenario"))
    return Subject(island=island, accelerator=island.accelerator, gpus=gpus, facts=tuple(facts))


def _claimed_too(
    source: Any, overrides: Any, rows: Any, options: Mapping[str, Any], claims: Sequence[Claim], data: Mapping[str, Any],
    settle: Settle,
) -> Subject:  # fmt: skip
    """The scenario with claims in the place of what it leaves open, where that is legal."""
    fields = {OF_CLAIMS[one.quantity]: one.word or one.value for one in claims if one.quantity in OF_CLAIMS}
    open_fields = {field: value for field, value in fields.items() if not _says(data, field)}
    warnings: tuple[str, ...] = ()
    made = None
    given = _paths(overrides)
    if open_fields:
        try:
            made = settle(load(source, overrides={**open_fields, **given}, catalog=rows, options=options))
        except ShardMeterError as error:
            says = error.violations[0].says if isinstance(error, BadScenario) and error.violations else error.message
            warnings = (f"the prediction is of the scenario without the claims, which describe no legal run: {says}",)
    if made is None:
        made, open_fields = settle(load(source, overrides=given, catalog=rows, options=options)), {}
    return _whole(made, {**data, **_nested(open_fields)}, warnings)


def _paths(overrides: Any) -> dict[str, Any]:
    if isinstance(overrides, Mapping):
        return dict(overrides)
    return dict(text.partition("=")[::2] for text in ([overrides] if isinstance(overrides, str) else overrides))


def _says(data: Mapping[str, Any], path: str) -> bool:
    """Whether a document says a field; a plan in one line says all that it names."""
    part, _, key = path.partition(".")
    own = data.get(part)
    if isinstance(own, str):
        return f"{key}=" in own or key in DEGREES
    return isinstance(own, Mapping) and key in own


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in fields.items():
        part, _, key = path.partition(".")
        found.setdefault(part, {})[key] = value
    return found


def _whole(made: Scenario, data: Mapping[str, Any], warnings: Iterable[str]) -> Subject:
    """A whole scenario: what it states, and what may be predicted of it."""
    machines = _machines(made)
    plan, run = made.plan, made.run
    facts = list(machines.facts)
    stated = {
        "seq_len": run.seq_len, "global_batch": run.global_batch, "tokens": run.tokens, "micro_batch": plan.micro_batch,
        **{name: getattr(plan, name) for name in DEGREES},
    }  # fmt: skip
    for key, value in stated.items():
        if value is not None and (key == "seq_len" or key in DEGREES or _says(data, OF_CLAIMS[key])):
            origin = "scenario" if _says(data, OF_CLAIMS[key]) else "assumed"
            facts.append((key, float(value), origin))
    return Subject(
        model=made.assembled or made.model, island=machines.island, accelerator=machines.accelerator, scenario=made,
        gpus=machines.gpus, facts=tuple(facts), warnings=tuple(warnings),
    )  # fmt: skip


def statements(found: Subject, claims: Sequence[Claim]) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
    """Claims, then what the scenario, the model and the device state, then what has to be taken for granted; and that in words.

    What is claimed too is not taken for granted; what the scenario states stands beside the claim."""
    known = {one.quantity for one in claims}
    every = list(claims)

    def state(quantity: str, value: float, origin: str) -> None:
        every.append(Claim(id=len(every), quantity=quantity, value=value, text="", origin=origin))
        known.add(quantity)

    for quantity, value, origin in found.facts:
        if origin != "assumed":
            state(quantity, value, origin)
    said = _assumed(found, known, {one.quantity: one.word for one in claims if one.word}, state)
    if found.accelerator is not None:
        peak = peak_of(found.accelerator)
        if peak is not None:
            state("peak", peak, "accelerator")
    return tuple(every), said


def peak_of(accelerator: Accelerator) -> float | None:
    """The dense peak that utilisations are of: bf16, or fp16 where there is none."""
    found = accelerator.peak.get("bf16", accelerator.peak.get("fp16"))
    return None if found is None else float(found)


def _assumed(
    found: Subject, known: set[str], words: Mapping[str, str], state: Callable[[str, float, str], None]
) -> tuple[str, ...]:
    """Degrees of one where nothing is said, one node or accelerator where only a rent is, and what the model implies at a length."""
    said = []
    alone = [name for name in DEGREES if name not in known]
    for name in alone:
        value = next((value for key, value, _ in found.facts if key == name), 1.0)
        state(name, value, "assumed")
    if alone and {"gpus", "dp"} & known:
        said.append(f"{', '.join(alone)} = 1 where nothing is said of {'them' if len(alone) > 1 else 'it'}")
    if "price_per_node" in known and not {"nodes", "gpus"} & known:
        state("nodes", 1.0, "assumed")
        said.append("one node (none are counted)")
    if "price" in known and not {"gpus", "gpu_hours", "nodes"} & known:
        state("gpus", 1.0, "assumed")
        said.append("one accelerator (none are counted)")
    if {"energy", "carbon"} & known and "pue" not in known:
        state("pue", 1.0, "assumed")
        said.append("PUE 1 (none is said)")
    if found.model is not None and "parameters" not in known:
        state("parameters", float(parameters(found.model)), "model")
        state("active_parameters", float(active_parameters(found.model)), "model")
    return (*said, *_memory(known, words, state))


def _memory(known: set[str], words: Mapping[str, str], state: Callable[[str, float, str], None]) -> tuple[str, ...]:
    """Bytes of a weight, a gradient and optimizer states, where memory or parameters are claimed."""
    if not any(name.startswith("memory") for name in known) or "parameters" not in known:
        return ()
    sizes = bytes_of(words.get("optimizer", "adamw"), words.get("precision", "bf16"))
    for name, value in zip(("parameter_bytes", "gradient_bytes", "optimizer_bytes"), sizes, strict=True):
        if value:
            state(name, value, "assumed")
    if "copies" not in known:
        state("copies", 1.0, "assumed")
    left = [name for name, usual in (("optimizer", "adamw"), ("precision", "bf16")) if name not in words]
    alone = "sharding" not in words and not {"gpus", "dp", "nodes"} & known
    if alone:
        for name in ("memory_shards", "gradient_shards", "optimizer_shards"):
            state(name, 1.0, "assumed")
    text = f"{sizes[0]:g} bytes a weight, {sizes[1]:g} a gradient, {sizes[2]:g} of optimizer states a parameter"
    return (f"{text} ({' and '.join(left)} left out: adamw, bf16)" if left else text,)


def bytes_of(name: str, precision: str) -> tuple[float, float, float]:
    """Bytes per parameter of (weight, gradient, optimizer states without a master copy)."""
    width = float(recipe(precision).width)
    if name == NONE:
        return width, width, 0.0
    chosen = optimizer(name)
    moment = WIDTH["fp32"] if chosen.moment_width is None else chosen.moment_width
    return width, width, float(chosen.moments * moment)
