"""A plan and a run laid over several islands: each has its own degrees, all have one batch, one synchronisation, one placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.errors import Violation
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.engine.constraints import CONSTRAINTS, violations
from shardmeter.scenario import layout
from shardmeter.scenario.fleet import Entry, overridden
from shardmeter.scenario.layout import LOOKS_AT, NO_MODEL, NO_STACK, Parts
from shardmeter.scenario.parts import ISLANDS, Findings
from shardmeter.scenario.placement import Cells, Placed, resolve_placement
from shardmeter.scenario.schema import RunInput
from shardmeter.scenario.sync import resolve_sync
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Island, Plan, Run, Sync

OF_ALL = ("sync", "placement")
"""Fields of a plan that are of the fleet and not of an island."""
_OF_BATCH = ("global_batch", "interleaved_rounds")
"""Rules about the global batch, which islands share out."""
_OF_STAGES = ("stages", "virtual_stages", "even_stages", "one_stack", "reference_stages")
"""Rules about the whole pipeline, wherever its stages are."""


@record
class _Laid:
    """The plan of one entry, for islands that take so many steps of a placed axis."""

    entry: Entry
    island: Island
    steps: int | None
    """None where the islands are in no cell of a placed axis."""
    said: dict[str, Any]
    plan: Plan
    """Its degrees multiply to the GPUs of the island."""
    whole: bool
    """Whether they left a whole number."""
    found: Findings


def laid_over_all(parts: Parts) -> tuple[Plan, tuple[Plan, ...], Run]:
    """The shared plan, that of every island in order, and the run, after noting every rule that they break.

    The shared plan is the first island's with the whole degree of an axis that crosses islands; an island's own has its own
    steps of that axis, so that its degrees multiply to its GPUs."""
    found, entries = parts.found, [entry for entry in parts.entries if entry.island is not None]
    placed = resolve_placement(overridden(parts.given.plan, None), _meant(parts.entries), found)
    layers = None if parts.model is None else float(parts.model.layers)
    sync = resolve_sync(parts.given.plan.sync if parts.given.plan else None, ("plan", "sync"), layers, found)
    steps = placed.steps() if placed is not None else {}
    laid: dict[tuple[int, int | None], _Laid] = {}
    of_island: list[tuple[str, _Laid]] = []
    for number, entry in enumerate(entries):
        for name in entry.names:
            key = (number, steps.get(name))
            if key not in laid:
                laid[key] = _laid(entry, steps.get(name), placed, parts)
            of_island.append((name, laid[key]))
    _warn_of_one_cell(len(of_island), placed, sync, found)
    plans = tuple(changed(one.plan, sync=sync, placement=_recorded(placed)) for _, one in of_island)
    whole = plans[0] if placed is None else changed(plans[0], **{placed.axis: _degree(placed)})
    run = _run(parts, _units(of_island, placed))
    _check(list(laid.values()), placed, parts, run)
    found.add_all([(one.entry.name, one.found) for one in laid.values()])
    layout.note_the_rest(of_island[0][1].said, parts.run, whole, parts.model or NO_MODEL, run, found)
    return whole, plans, run


def _meant(entries: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    """The islands that each name means."""
    return {name: (name,) for entry in entries for name in entry.names} | {one.name: one.names for one in entries}


def _recorded(placed: Placed | None) -> tuple[tuple[str, Cells], ...]:
    return () if placed is None else ((placed.axis, placed.cells),)


def _degree(placed: Placed, steps: int | None = None) -> float | int:
    """Of the placed axis: the whole, or so many steps."""
    degree = placed.degree if steps is None else steps
    return degree if placed.axis == "pp" else float(degree)


def _warn_of_one_cell(islands: int, placed: Placed | None, sync: Sync, found: Findings) -> None:
    """Say that nothing is left to synchronise where one axis joins all islands."""
    listed = {} if placed is None else placed.steps()
    if placed is not None and len(placed.cells) == 1 and len(listed) == islands and sync.method != "every_step":
        found.warnings.append(f"plan.sync changes nothing: placement joins all islands by {placed.axis}")


def _laid(entry: Entry, steps: int | None, placed: Placed | None, parts: Parts) -> _Laid:
    """The plan of one entry's islands; `steps` of the placed axis are theirs."""
    if entry.island is None:
        raise ValueError("an island that could not be built has no plan")
    found, own, model = parts.found.apart(), entry.asked.plan, parts.model or NO_MODEL
    for name in OF_ALL:
        if own is not None and getattr(own, name) is not None:
            found.refuse((*entry.path, "plan", name), "is of the fleet, not of one island", f"say plan.{name}")
    said = overridden(parts.given.plan, own)
    if placed is not None and steps is not None:
        if own is not None and getattr(own, placed.axis) is not None:
            says = f"{placed.axis} crosses islands: the placement says how many steps this one takes"
            found.refuse((*entry.path, "plan", placed.axis), says, "leave it out")
        said |= {placed.axis: _degree(placed, steps)}
    plan, left_over = layout.laid(said, parts.stack or NO_STACK, entry.island, found)
    if own is not None and (own.recompute is not None or own.schedule is not None):
        whole = plan if placed is None or steps is None else changed(plan, **{placed.axis: _degree(placed)})
        layout.check_layers(said, whole, model, found)
    return _Laid(
        entry=entry, island=entry.island, steps=steps, said=said, plan=plan, whole=not left_over, found=found
    )  # fmt: skip


# ---- rules -----------------------------------------------------------------------------------------------------------------------


def _check(laid: Sequence[_Laid], placed: Placed | None, parts: Parts, run: Run) -> None:
    """Every structural rule, island by island; what all break alike is said once."""
    broken: dict[tuple[str, str], list[tuple[_Laid, Violation]]] = {}
    for one in laid:
        bad, one.found.violations = one.found.violations, []
        for violation in (*bad, *_violations(one, placed, parts, run)):
            broken.setdefault((violation.field, violation.says), []).append((one, violation))
    for cases in broken.values():
        parts.found.violations += _told(cases, len(laid), parts.found)


def _violations(one: _Laid, placed: Placed | None, parts: Parts, run: Run) -> list[Violation]:
    """The rules that one island breaks: those of its own mesh, then those of the whole pipeline where it crosses islands."""
    model, stack = parts.model or NO_MODEL, parts.stack or NO_STACK
    of_whole = set(_OF_STAGES) if placed is not None and placed.axis == "pp" and one.steps is not None else set()
    skip = _not_asked(one, parts.found) | set(_OF_BATCH)
    bad = violations(model, one.island, one.plan, run, stack, skip=skip | of_whole)
    if placed is not None and of_whole:
        whole = changed(one.plan, **{placed.axis: _degree(placed)})
        skip |= {constraint.name for constraint in CONSTRAINTS if constraint.name not in of_whole}
        bad += violations(model, one.island, whole, run, stack, skip=skip)
    return bad


def _told(cases: Sequence[tuple[_Laid, Violation]], islands: int, found: Findings) -> Iterator[Violation]:
    """One fault, once where all islands have it from the shared plan, else with the names of those that do."""
    path: Path = tuple(cases[0][1].field.split(".")) if "," not in cases[0][1].field else ()
    if path[:1] != ("plan",) or (len(cases) == islands and not any(_says_itself(one, path) for one, _ in cases)):
        first = cases[0][1]
        yield first if first.where else changed(first, where=found.document.where(path))
        return
    for one, violation in {one.entry.name: (one, violation) for one, violation in cases}.values():
        place = (*one.entry.path, *path) if _says_itself(one, path) else path
        field = ".".join(("fleet", "islands", one.entry.name, *map(str, path)))
        yield changed(violation, field=field, where=found.document.where(place))


def _says_itself(one: _Laid, path: Path) -> bool:
    """Whether an island's own plan says a field."""
    own = one.entry.asked.plan
    return own is not None and len(path) > 1 and getattr(own, str(path[1]), None) is not None


def _not_asked(one: _Laid, found: Findings) -> set[str]:
    """Rules that look at something malformed, or that have nothing to look at."""
    skip = {
        name
        for name, paths in LOOKS_AT.items()
        if paths and found.touched(*(one.entry.path if path == ISLANDS else path for path in paths))
    }
    skip |= {constraint.name for constraint in CONSTRAINTS if constraint.name not in LOOKS_AT and found.gone}
    return skip | (set() if one.whole else set(layout.LEFT_OVER)) | found.document.begins


# ---- batch and run ---------------------------------------------------------------------------------------------------------------


def _units(of_island: Sequence[tuple[str, _Laid]], placed: Placed | None) -> list[float]:
    """Sequences that one pass of every cell takes: those of its first island, with the whole of an axis of replicas that crosses
    islands."""
    cell_of = {} if placed is None else {name: at for at, cell in enumerate(placed.cells) for name in cell}
    units: list[float] = []
    seen: set[int] = set()
    for name, one in of_island:
        cell = cell_of.get(name)
        if cell is not None and cell in seen:
            continue
        seen |= set() if cell is None else {cell}
        crosses = cell is not None and placed is not None and placed.axis in ("dp_shard", "dp_replicate")
        whole = changed(one.plan, **{placed.axis: _degree(placed)}) if crosses and placed is not None else one.plan
        units.append(float(whole.dp * whole.micro_batch))
    return units


def _run(parts: Parts, units: Sequence[float]) -> Run:
    asked, model, found = parts.run, parts.model or NO_MODEL, parts.found
    run = layout.laid_lengths(asked, model, found, lambda seq_len: _global_batch(asked, seq_len, units, found))
    return changed(run, reference=parts.reference)


def _global_batch(given: RunInput, seq_len: float, units: Sequence[float], found: Findings) -> float:
    """Sequences of an inner step over all islands; of tokens, the nearest number that whole micro-batches make up."""
    least = sum(units)
    if given.global_batch is None:
        found.assumptions.append(f"global_batch = {least:g}: one micro-batch for every data-parallel rank (left out)")
        return least
    amount, word = given.global_batch
    if word == "sequences":
        return amount
    step = units[0] if len(set(units)) == 1 else least
    made = max(least, float(layout.whole_batch(amount, seq_len, step)))
    if made != amount / seq_len:
        found.assumptions.append(
            f"global_batch = {made:g} sequences: {show(amount, 'tokens')} are {amount / seq_len:.1f} of {seq_len:g}, rounded to "
            f"what whole micro-batches of {len(units)} cells make up"
        )
    return made


def laid_open(parts: Parts) -> tuple[Plan, tuple[Plan, ...], Run]:
    """As `laid_over_all` where the plans are left to a planner: placeholders that hold what is said of their arithmetic."""
    found, entries = parts.found, [entry for entry in parts.entries if entry.island is not None]
    plans: list[Plan] = []
    for entry in entries:
        own = found.apart()
        plan, _ = layout.laid(
            overridden(parts.given.plan, entry.asked.plan), parts.stack or NO_STACK, parts.island, own
        )
        found.violations += [one for one in own.violations if one not in found.violations]
        plans += [plan] * len(entry.names)
    return plans[0], tuple(plans), _run(parts, [1.0])
