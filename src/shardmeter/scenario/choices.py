"""What a scenario leaves open: `plan: auto` with pins and ranges, several batches or sequences, several sizes of the fleet.

The open fields are taken out of the document before it is read as a scenario of single values; here they are read one value
at a time, by the same field types, so that an unknown word has its "did you mean" wherever it stands.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.families import given_sequence
from shardmeter.scenario import open_fleet
from shardmeter.scenario.between import SyncInput
from shardmeter.scenario.course import open_phases
from shardmeter.scenario.fleet import resolve_island
from shardmeter.scenario.grammar import AUTO, parse_plan
from shardmeter.scenario.layout import Parts
from shardmeter.scenario.named import rooted
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.ranges import is_range, values
from shardmeter.scenario.read import Document
from shardmeter.scenario.schema import FleetInput, PlanInput, RunInput, ScenarioInput, validate_data
from shardmeter.scenario.used import counts
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Choices, Island, Joint, Scenario

ANY = "any"
"""The word for every value of a field that can be modelled, where a planner would choose among what is usual."""
ASIDE = "the scenario's own plan is set aside"
"""How the assumption starts that a plan is not compared, because fields of it are set."""
SINGLE = ("trainable", "rank_order", "placement", "sync")
"""Fields of a plan that have one value, whatever else is open: lists are one value there, or they change what is trained."""
ARITHMETIC = ("precision", "gather_dtype", "reduce_dtype", "optimizer", "master_dtype", "expert_skew")
"""Fields that change what is computed: as the scenario has them, unless several values are given."""
WORDS = ("sharding", "schedule", "recompute", "cp_kind", "offload", *ARITHMETIC[:-1])
"""Fields of which every word can be asked for with `any`."""
BATCH_TOKENS, BATCH_SAMPLES = 4_194_304.0, 4096.0
"""Global batch where none is said, so that all plans are compared at the same one: 4 Mi tokens (as GPT-3 and Llama 2 were
trained with), or so many images."""
_SIZES = re.compile(r"\s*([0-9][^,]*?\.\.[^,]*?)\s*[xX×*]\s*([A-Za-z][^,]*)")
"""A range of sizes of one kind: `64..512:x2xH100-SXM5-80GB`."""
_FOLLOWS = ("plan fsdp", "micro_batch =", "dp_shard =", "dp_replicate =", "global_batch =", "async_tp ", "cp_kind ")
"""How assumptions start that are the planner's to make."""


@record
class Asked:
    """The open fields of a document, as they were written: for each the values it may take, not yet read."""

    plan: Mapping[str, tuple[Any, ...]]
    seq_len: tuple[Any, ...]
    global_batch: tuple[Any, ...]
    fleets: tuple[Mapping[str, Any], ...]
    """The parts of the document that say where it runs, one for each size."""
    stated: bool
    own: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    """Of several islands, item by item: the fields that are open in their own plans."""
    sync: Mapping[str, tuple[Any, ...]] | None = None
    """Of several islands: what is said of their synchronisation."""
    use: Any = None
    """Of several islands: which of them, as it was written."""
    placement: bool = False
    """Of several islands: whether it is open which of them form pipelines."""


def left_open(document: Document, *, planning: bool) -> Asked | None:
    """Take out of a document what is left to the planner, and put single values in its place; None where nothing is.

    A plan is open if it says auto. A planner (`planning`) also takes a plan that names no sharding for pins, and one that does
    for a plan of the user's own, which stays."""
    plan = _plan_of(document)
    if plan is None:
        return None
    marked = plan.pop(AUTO, False) is True
    automatic = marked or plan.get("sharding") == AUTO
    if not automatic and not planning:
        return None
    if plan.get("sharding") == AUTO:
        del plan["sharding"]
    placement = planning and open_fleet.placement_of(document, plan)
    automatic = automatic or placement
    sync = open_fleet.synchronisation(document, plan)
    stated = not automatic and "sharding" in plan and not any(_several(field, plan[field]) for field in plan)
    stated = stated and all(len(values_) == 1 for values_ in (sync or {}).values())
    pins: dict[str, tuple[Any, ...]] = {}
    own: tuple[Mapping[str, tuple[Any, ...]], ...] = ()
    if not stated:
        pins = _taken_out(document, plan, ("plan",))
        if sync is not None:
            plan.pop("sync", None)
        own = tuple(_taken_out(document, given, path) for given, path in open_fleet.plans_of_islands(document))
        _put_plan(document, plan)
    run = document.data.get("run")
    run = run if isinstance(run, dict) else {}
    given = {name: _listed(document, ("run", name), run[name]) for name in ("seq_len", "global_batch") if name in run}
    for name, values_ in given.items():
        if not stated or len(values_) > 1:
            del run[name]
        if values_ and (stated or name == "seq_len"):
            run[name] = values_[0]
    use = open_fleet.use_of(document)
    fleets = _fleets(document)
    return Asked(
        plan=pins,
        seq_len=given.get("seq_len", ()),
        global_batch=given.get("global_batch", ()),
        fleets=fleets,
        stated=stated,
        own=own,
        sync=sync,
        use=use,
        placement=placement,
    )


def _taken_out(document: Document, plan: dict[str, Any], path: Path) -> dict[str, tuple[Any, ...]]:
    """The open fields of a plan with their values; what stays in it has one value."""
    pins: dict[str, tuple[Any, ...]] = {}
    for field in [field for field in plan if field not in SINGLE]:
        pins[field] = _listed(document, (*path, field), plan[field])
        if field not in ARITHMETIC or len(pins[field]) > 1:
            del plan[field]
    return pins


def set_aside(document: Document, overrides: Iterable[str] | Mapping[str, Any]) -> None:
    """Where overrides set fields of the plan, these are pins: open it, and take a plan that the document states out of it, all but
    its arithmetic, and say so. The pins narrow what is chosen, they do not change that one. A plan with several values of a field
    is none but pins already, which stay."""
    pins = [text.partition("=")[0].strip() for text in map(str, overrides)]
    pins = [name for name in pins if name.startswith("plan.")]
    plan = _plan_of(document)
    if not pins or plan is None:
        return
    sync = plan.get("sync")
    fields = {**(sync if isinstance(sync, dict) else {}), **plan}
    if plan.get("sharding", AUTO) == AUTO or AUTO in plan or any(_several(*one) for one in fields.items()):
        _put_plan(document, {**plan, AUTO: True})
        return
    kept = {name: value for name, value in plan.items() if name in (*ARITHMETIC, *SINGLE)}
    _put_plan(document, {**kept, AUTO: True})
    for given, _ in open_fleet.plans_of_islands(document):
        for name in [name for name in given if name not in ARITHMETIC]:
            del given[name]
    narrow = "narrows" if len(pins) == 1 else "narrow"
    document.notes.append(f"{ASIDE}: {', '.join(pins)} {narrow} the plans to choose from")


def _plan_of(document: Document) -> dict[str, Any] | None:
    """The plan of a document as a mapping, that of its island on top; None where it is none, which reading it will say."""
    merged: dict[str, Any] = {}
    fleet = document.data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    alone = isinstance(islands, list) and len(islands) == 1 and isinstance(islands[0], dict)
    first = islands[0] if alone and not open_fleet.is_several(document) else {}  # type: ignore[index]
    for given in (document.data.get("plan"), first.get("plan")):
        if isinstance(given, str):
            try:
                merged |= parse_plan(given)
            except BadScenario:
                return None
        elif isinstance(given, dict):
            merged |= given
        elif given is not None:
            return None
    return copy.deepcopy(merged)


def _put_plan(document: Document, plan: dict[str, Any]) -> None:
    document.data["plan"] = plan
    if open_fleet.is_several(document):
        return
    fleet = document.data.get("fleet")
    for island in fleet.get("islands", []) if isinstance(fleet, dict) else []:
        if isinstance(island, dict):
            island.pop("plan", None)


def _several(field: str, value: Any) -> bool:
    """Whether a value of the plan stands for several."""
    if field in SINGLE:
        return False
    return (
        value == ANY or (isinstance(value, list) and field != "offload") or (isinstance(value, str) and is_range(value))
    )


def _listed(document: Document, path: Path, value: Any) -> tuple[Any, ...]:
    """The values that a field may take; none for `auto`. What is no list or range is noted as a problem of the document."""
    if value == AUTO or value is None:
        return ()
    if path[-1] == "offload":
        several = isinstance(value, list) and any(isinstance(one, list) or one == "none" for one in value)
        return tuple(value) if several else (value,)
    if isinstance(value, list):
        if not value:
            document.problems.append(_problem(document, path, "has no values", "leave it out"))
        return tuple(value)
    if isinstance(value, str) and is_range(value):
        sized = _SIZES.fullmatch(value) if path[-1] == "gpus" else None
        try:
            if sized is not None:
                return tuple(f"{one}x{sized[2]}" for one in values(sized[1], ".".join(map(str, path))))
            return values(value, ".".join(map(str, path)))
        except BadScenario as error:
            document.problems.extend(changed(one, where=document.where(path)) for one in error.violations)
            return ()
    return (value,)


def _problem(document: Document, path: Path, says: str, way_out: str) -> Violation:
    return Violation(field=".".join(map(str, path)), says=says, way_out=way_out, where=document.where(path))


def _fleets(document: Document) -> tuple[Mapping[str, Any], ...]:
    """The fleet in every size that is asked for; the first is left in the document."""
    data, fleet = document.data, document.data.get("fleet")
    if "gpus" in data:
        sizes = _listed(document, ("gpus",), data["gpus"])
        found: list[Mapping[str, Any]] = [{"gpus": one} for one in sizes]
    elif isinstance(fleet, dict) and open_fleet.is_several(document):
        found = [{"fleet": open_fleet.bare(fleet)}]
        return tuple(found)
    elif isinstance(fleet, dict) and isinstance(fleet.get("islands"), list) and len(fleet["islands"]) == 1:
        found = [{"fleet": {**fleet, "islands": [one]}} for one in _sizes(document, fleet["islands"][0])]
    else:
        found = []
    if found:
        data.update(copy.deepcopy(found[0]))
    return tuple(found)


def _sizes(document: Document, island: Any) -> list[Any]:
    """An island with every number of nodes, or every NxNAME, that its fields ask for."""
    if not isinstance(island, dict):
        return []
    for field in ("nodes", "gpus"):
        path = ("fleet", "islands", 0, field)
        given = _listed(document, path, island[field]) if field in island else ()
        if len(given) > 1 and field == "nodes" and isinstance(island.get("gpus"), str):
            name = island["gpus"].lower().partition("x")[0]
            rest = {key: value for key, value in island.items() if key not in ("gpus", "nodes")}
            return [{**rest, "accelerator": island["gpus"][len(name) + 1 :].strip(), "nodes": one} for one in given]
        if len(given) > 1:
            return [{**island, field: one} for one in given]
    return [island]


def chosen(asked: Asked, scenario: Scenario, document: Document, parts: Parts, found: Findings) -> Scenario:
    """The scenario with its choices, after noting every value that cannot be read."""
    run, rows = parts.given.run or RunInput(), parts.rows
    pins = _pins(asked.plan, ("plan",), found)
    seq_lens = _read(RunInput, ("run", "seq_len"), "seq_len", asked.seq_len, found)
    batches = _read(RunInput, ("run", "global_batch"), "global_batch", asked.global_batch, found)
    if not batches and parts.run.phases and parts.run.global_batch is not None:
        batches = (parts.run.global_batch,)  # the last phase's
    several = len(scenario.fleet.islands) > 1
    more = () if several else (_island(document, one, rows, found) for one in asked.fleets[1:])
    islands = (*scenario.fleet.islands, *more)
    assumptions = [text for text in scenario.assumptions if asked.stated or not text.startswith(_FOLLOWS)]
    if not batches:
        images = given_sequence(scenario.model) is not None
        batches = ((BATCH_SAMPLES, "sequences"),) if images else ((BATCH_TOKENS, "tokens"),)
        amount = f"{BATCH_SAMPLES:g} samples" if images else f"{BATCH_TOKENS / 2**20:g} Mi tokens"
        assumptions = [text for text in assumptions if not text.startswith("global_batch =")]
        assumptions.append(f"global_batch = {amount} for every plan (none was said)")
    own = given_sequence(scenario.model)
    choices = Choices(
        plan=pins,
        seq_len=seq_lens if seq_lens and own is None else (float(scenario.run.seq_len),),
        global_batch=batches,
        islands=tuple(one for one in islands if one is not None),
        said=_documents(document, asked, rows),
        stated=asked.stated,
        objectives=run.objective or (),
        deadline=run.deadline,
        budget=run.budget,
        joint=_joint(asked, pins, parts, found) if several else None,
    )
    gpus = max(float(one.gpus) for one in choices.islands)
    laid = changed(scenario.run, phases=open_phases(parts, scenario.run, batches[0], gpus))
    return changed(scenario, choices=choices, assumptions=tuple(assumptions), run=laid)


def _pins(raw: Mapping[str, tuple[Any, ...]], path: Path, found: Findings) -> dict[str, tuple[Any, ...]]:
    """Every value of the open fields of a plan."""
    return {name: _read(PlanInput, (*path, name), name, values_, found) for name, values_ in raw.items() if values_}


def _joint(asked: Asked, pins: Mapping[str, tuple[Any, ...]], parts: Parts, found: Findings) -> Joint:
    """What is open of several islands together."""
    own = [_pins(raw, (*one.path, "plan"), found) for raw, one in zip(asked.own, parts.everyone, strict=False)]
    of_entry = {one.path: own[at] if at < len(own) else {} for at, one in enumerate(parts.everyone)}
    sync = {
        name: _read(SyncInput, ("plan", "sync", name), name, raw, found, open_fleet.SYNC_WORDS)
        for name, raw in (asked.sync or {}).items()
        if raw
    }
    islands = sum(len(one.names) for one in parts.entries)
    use, bad = validate_data(FleetInput, {} if asked.use is None else {"use": asked.use}, found.document, ("fleet",))
    found.violations += bad
    return Joint(
        pins=tuple({**pins, **of_entry[one.path]} for one in parts.entries for _ in one.names),
        sync=sync,
        counts=(islands,) if use is None else counts(use.use, islands, found),
        items=tuple(int(one.path[2]) for one in parts.entries for _ in one.names),
        placement=asked.placement,
    )


def unasked(run: RunInput) -> tuple[str, ...]:
    """A sentence about what only a planner looks at, where none is asked."""
    return () if run.objective is None else ("objective: for `shardmeter plan` and plan: auto; not looked at here",)


def _read(
    shape: Any, path: Path, name: str, raw: tuple[Any, ...], found: Findings, words: Collection[str] = WORDS
) -> tuple[Any, ...]:
    """Every value of one field by the field's own type; `any` stays a word."""
    made: list[Any] = []
    for value in raw:
        if value == ANY and name in words:
            made.append(ANY)
            continue
        read, bad = validate_data(shape, {name: value}, found.document, path[:-1])
        found.violations += [one for one in bad if one not in found.violations]
        if read is not None:
            made.append(getattr(read, name))
    return tuple(dict.fromkeys(made))


def _island(document: Document, fleet: Mapping[str, Any], rows: Rows, found: Findings) -> Island | None:
    """The island of one more size."""
    other = Document({**document.data, **copy.deepcopy(dict(fleet))}, document.name, document.folder, document.places)
    read, bad = validate_data(ScenarioInput, other.data, other)
    inner = Findings(other)
    inner.violations = list(bad)
    island = None if read is None else resolve_island(read, rows, inner)[0]
    found.violations += [one for one in inner.violations if one not in found.violations]
    return island


def _documents(document: Document, asked: Asked, rows: Rows) -> tuple[Mapping[str, Any], ...]:
    """The document with every fleet, without what a plan adds to it; files are named from the root."""
    said = {key: value for key, value in document.data.items() if key not in ("plan", "gpus", "fleet", "name")}
    asks = ("seq_len", "global_batch", "objective", "deadline", "budget")
    if isinstance(said.get("run"), dict):
        said["run"] = {key: value for key, value in said["run"].items() if key not in asks}
    return tuple(rooted(_planless({**said, **fleet}), document.folder, rows) for fleet in asked.fleets)


def _planless(value: Any) -> Any:
    """The same data without the plans that its islands have of their own."""
    if isinstance(value, dict):
        return {key: _planless(one) for key, one in value.items() if key != "plan"}
    return [_planless(one) for one in value] if isinstance(value, list) else value
