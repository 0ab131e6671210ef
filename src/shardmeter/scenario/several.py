"""A plan and a run laid over several islands: each has its own degrees, all have one batch, one synchronisation, one placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shardmeter.core.errors import Violation
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.engine import split
from shardmeter.engine.cells import cells_of
from shardmeter.engine.constraints import CONSTRAINTS, violations_of_island
from shardmeter.engine.sharing import units_of, unshared
from shardmeter.scenario import layout
from shardmeter.scenario.fleet import Entry, overridden
from shardmeter.scenario.layout import LOOKS_AT, NO_MODEL, NO_STACK, Parts
from shardmeter.scenario.parts import ISLANDS, Findings, listed_names
from shardmeter.scenario.placement import PLACEMENT, Cells, Placed, check_degree, filled, resolve_placement
from shardmeter.scenario.schema import RunInput
from shardmeter.scenario.sync import check_cells
from shardmeter.scenario.yaml_reader import Path
from shardmeter.schedules import traits
from shardmeter.specs import Island, Plan, Run, Sync

OF_ALL = ("sync", "placement")
"""Fields of a plan that are of the fleet and not of an island."""
OF_SHARES: tuple[Path, ...] = (*layout.BATCH, ("plan", "sync"), ("plan", "placement"))
"""What the parts of a batch depend on."""


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
    sync = parts.sync
    if parts.of_sync is not None:
        found.merge(parts.of_sync)
    islands = {name: entry for entry in entries for name in entry.names}
    if (
        placed is not None and not islands.keys() >= placed.steps().keys()
    ):  # an island with a fault of its own, noted already
        found.gone.append(PLACEMENT)
        placed = None
    if placed is not None:
        gpus = {name: float(one.island.gpus) for name, one in islands.items() if one.island is not None}
        placed = filled(
            placed, gpus, {name: overridden(parts.given.plan, one.asked.plan) for name, one in islands.items()}
        )
        check_degree(placed, overridden(parts.given.plan, None).get(placed.axis), found)
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
    _check_cells(of_island, placed, found)
    check_cells(sync, parts.assembled or parts.model, len(of_island), placed is not None, found)
    _check_met({name: one.plan for name, one in of_island}, sync, found)
    plans = tuple(changed(one.plan, sync=sync, placement=_recorded(placed)) for _, one in of_island)
    whole = plans[0] if placed is None else changed(plans[0], **{placed.axis: _degree(placed)})
    named = [changed(one.island, name=name) for name, one in of_island]
    units = units_of(named, cells_of(plans[0], named), plans)
    run = _run(parts, _passes(of_island, placed), units, sync.split)
    _check(list(laid.values()), placed, parts, run)
    if all(one.whole for _, one in of_island) and not found.touched(*OF_SHARES):
        bad = unshared(named, plans[0], plans, float(run.global_batch))
        found.violations += [] if bad is None else [changed(bad, where=found.document.where(("run", "global_batch")))]
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
    found.gone = [gone for gone in found.gone if gone[:2] != ISLANDS or gone[2:3] in ((), entry.path[2:3])]
    for name in OF_ALL:
        if own is not None and getattr(own, name) is not None:
            found.refuse((*entry.path, "plan", name), "is of the fleet, not of one island", f"say plan.{name}")
    said = overridden(parts.given.plan, own)
    if placed is not None and steps is not None:
        if own is not None and getattr(own, placed.axis) is not None:
            says = f"{placed.axis} crosses islands: the placement says how many steps this one takes"
            found.refuse((*entry.path, "plan", placed.axis), says, "leave it out")
        said |= {placed.axis: _degree(placed, steps)}
    plan, left_over = layout.laid(said, parts.stack or NO_STACK, entry.island, found, parts.sync)
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
    crosses = placed is not None and placed.axis == "pp" and one.steps is not None
    whole = changed(one.plan, pp=_degree(placed)) if crosses and placed is not None else None
    skip = _not_asked(one)
    model, stack = parts.model or NO_MODEL, parts.stack or NO_STACK
    return violations_of_island(model, one.island, one.plan, run, stack, whole=whole, skip=skip)


def _check_cells(of_island: Sequence[tuple[str, _Laid]], placed: Placed | None, found: Findings) -> None:
    """Islands that an axis joins hand each other whole micro-batches: what shapes these is alike on all of them."""
    plans = {name: one.plan for name, one in of_island}
    if placed is not None and placed.axis == "pp":
        _check_copies({name: one for name, one in of_island if name in placed.steps()}, found)
    for cell in () if placed is None else placed.cells:
        names = list(dict.fromkeys(cell))
        for field in SHAPES:
            values = {name: getattr(plans[name], field) for name in names if name in plans}
            if placed is not None and field != placed.axis and len(set(values.values())) > 1:
                says = f"{field} = {_listed(values)}, which {placed.axis} joins"
                found.refuse(
                    (*PLACEMENT, placed.axis), says, f"one {field} on all of them", "stages pass micro-batches on"
                )


def _check_copies(laid: Mapping[str, _Laid], found: Findings) -> None:
    """Two copies of the model on one pipeline lie on devices of one kind: each holds a stage of either."""
    kinds = {one.island.accelerator.name for one in laid.values()}
    for schedule in dict.fromkeys(one.plan.schedule for one in laid.values()):
        if traits(schedule).copies != 1.0 and len(kinds) > 1:
            says = f"{schedule} over islands of {' and '.join(sorted(kinds))}"
            rule = "a device holds a stage of each copy of the model, one of them from the other end"
            found.refuse(("plan", "schedule"), says, "islands of one kind, or schedule: 1f1b", rule)


def _listed(values: Mapping[str, Any]) -> str:
    """A value for each of some islands: once for all that have it."""
    having: dict[Any, list[str]] = {}
    for name, value in values.items():
        having.setdefault(value, []).append(name)
    texts = [(f"{value:g}" if isinstance(value, float) else str(value), where) for value, where in having.items()]
    return ", ".join(f"{text} on {listed_names(where)}" for text, where in texts)


def _check_met(plans: Mapping[str, Plan], sync: Sync, found: Findings) -> None:
    """What meets across islands is of the same parameters; copies that are to stay alike are stepped alike."""
    trainable = {name: plan.trainable if plan.probes is None else plan.probes.of for name, plan in plans.items()}
    if len(set(trainable.values())) > 1:
        says, rule = f"trainable = {_listed(trainable)}", "islands send each other what they train"
        found.refuse(("plan", "trainable"), says, "one trainable for all islands: say plan.trainable", rule)
    optimizer = {name: plan.optimizer for name, plan in plans.items()}
    if sync.method == "every_step" and len(set(optimizer.values())) > 1:
        says = f"optimizer = {_listed(optimizer)}: copies of the model that gradients keep alike drift apart"
        found.warnings.append(f"{says} (one optimizer for all, or a sync.method that averages parameters)")


SHAPES = (
    "tp", "cp", "dp_shard", "dp_replicate", "pp", "micro_batch", "sharding", "schedule", "virtual_stages", "ahead", "stagger",
    "sequence_parallel",
)  # fmt: skip
"""What the islands of a cell have alike."""


def _told(cases: Sequence[tuple[_Laid, Violation]], islands: int, found: Findings) -> Iterator[Violation]:
    """One fault, once where all islands have it from the shared plan, else with the names of those that do."""
    first = cases[0][1]
    path: Path = tuple(first.field.split(".")) if "," not in first.field else ()
    entries = list(dict.fromkeys(one.entry.name for one, _ in cases))
    if path[:1] != ("plan",) or (len(cases) == islands and not any(_says_itself(one, path) for one, _ in cases)):
        whose = "" if len(cases) == islands or path[:1] == ("fleet",) else f" (on {listed_names(entries)})"
        where = first.where or found.document.where(path)
        yield changed(first, says=first.says + whose, where=where)
        return
    for one, violation in {one.entry.name: (one, violation) for one, violation in cases}.values():
        place = (*one.entry.path, *path) if _says_itself(one, path) else path
        field = ".".join(("fleet", "islands", one.entry.name, *map(str, path)))
        yield changed(violation, field=field, where=found.document.where(place))


def _says_itself(one: _Laid, path: Path) -> bool:
    """Whether an island's own plan says a field."""
    own = one.entry.asked.plan
    return own is not None and len(path) > 1 and getattr(own, str(path[1]), None) is not None


def _not_asked(one: _Laid) -> set[str]:
    """Rules that look at something malformed, or that have nothing to look at."""
    found = one.found
    skip = {name for name, paths in LOOKS_AT.items() if paths and found.touched(*paths)}
    skip |= {constraint.name for constraint in CONSTRAINTS if constraint.name not in LOOKS_AT and found.gone}
    return skip | (set() if one.whole else set(layout.LEFT_OVER)) | found.document.begins


# ---- batch and run ---------------------------------------------------------------------------------------------------------------


def _passes(of_island: Sequence[tuple[str, _Laid]], placed: Placed | None) -> list[float]:
    """Sequences that one pass of every cell takes: those of its first island, with the whole of a dp_shard that crosses islands.
    Copies across islands (dp_replicate) are cells of their own."""
    joined = placed is not None and placed.axis != "dp_replicate"
    cell_of = (
        {name: at for at, cell in enumerate(placed.cells) for name in cell} if placed is not None and joined else {}
    )
    units: list[float] = []
    seen: set[int] = set()
    for name, one in of_island:
        cell = cell_of.get(name)
        if cell in seen:
            continue
        whole = one.plan
        if placed is not None and cell is not None:
            seen.add(cell)
            whole = changed(whole, dp_shard=_degree(placed)) if placed.axis == "dp_shard" else whole
        units.append(float(whole.dp * whole.micro_batch))
    return units


def _run(parts: Parts, passes: Sequence[float], units: Sequence[split.Units], rule: str) -> Run:
    asked, model, found = parts.run, parts.model or NO_MODEL, parts.found

    def batch(seq_len: float) -> float:
        return _global_batch(asked, seq_len, passes, lambda near: split.nearest(near, units, rule), found)

    run = layout.laid_lengths(asked, model, found, batch)
    return changed(run, reference=parts.reference)


def _global_batch(
    given: RunInput,
    seq_len: float,
    passes: Sequence[float],
    nearest: Callable[[float], Sequence[float]],
    found: Findings,
) -> float:
    """Sequences of an inner step over all islands; of tokens, the nearest number that whole micro-batches make up."""
    if given.global_batch is None:
        least = plain_sum(passes)
        found.assumptions.append(f"global_batch = {least:g}: one micro-batch for every data-parallel rank (left out)")
        return least
    amount, word = given.global_batch
    if word == "sequences":
        return amount
    made = min(nearest(amount / seq_len), key=lambda one: abs(one - amount / seq_len))
    if amount / seq_len < made / 2.0 and not found.touched(*OF_SHARES):
        says = f"{show(amount, 'tokens')} are {amount / seq_len:.4g} sequences of {seq_len:g}, fewer than the islands take at least"
        found.refuse(
            ("run", "global_batch"), says, f"at least {made * seq_len:g} tokens: one micro-batch for every replica"
        )
    if made != amount / seq_len:
        found.assumptions.append(
            f"global_batch = {made:g} sequences: {show(amount, 'tokens')} are {amount / seq_len:.1f} of {seq_len:g}, rounded to "
            f"what whole micro-batches of the islands make up"
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
    names = (name for entry in entries for name in entry.names)
    _check_met(dict(zip(names, plans, strict=True)), plans[0].sync, found)
    return plans[0], tuple(plans), _run(parts, [1.0], [(1.0, 1.0)], "speed")
