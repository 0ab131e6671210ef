"""A document to a `specs.Scenario`: names looked up, defaults filled and said, every violation at once."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.errors import quoted
from shardmeter.core.record import changed
from shardmeter.families import block_of, names
from shardmeter.scenario.choices import Asked, chosen, unasked
from shardmeter.scenario.course import resolve_course, with_phases
from shardmeter.scenario.fleet import overridden, resolve_fleet
from shardmeter.scenario.hugging_face.files import is_config
from shardmeter.scenario.ignored import ignored
from shardmeter.scenario.interrupted import resolve_interruptions, with_kept
from shardmeter.scenario.layout import NO_MODEL, NO_STACK, Parts, laid_out
from shardmeter.scenario.limits import resolve_limits
from shardmeter.scenario.parts import SAME, Findings, Rows, check_names, part
from shardmeter.scenario.read import Document
from shardmeter.scenario.schema import RunInput, ScenarioInput, validate, what_is_left
from shardmeter.scenario.several import laid_open, laid_over_all
from shardmeter.scenario.stores import brought, kept
from shardmeter.scenario.sync import check_cells, resolve_sync
from shardmeter.scenario.used import USE, among, is_open, used
from shardmeter.scenario.wan import resolve_wan
from shardmeter.specs import Fleet, Island, Model, Plan, Run, Scenario, Stack, Sync
from shardmeter.sync import defaults, inner_of

DEFAULT_STACK = "titan-compile"
"""The software where none is named."""


SEVERAL = "; several are listed in fleet.islands: [{gpus: …}, {gpus: …}]"
"""What to do where one island has no use for what is said."""


def resolve(document: Document, rows: Rows, left_open: Asked | None = None) -> Scenario:
    """The scenario that a document describes, with the choices that were taken out of it, if any.

    Raises UnknownName for one unknown name and nothing else wrong, BadScenario with every violation otherwise.
    """
    parts = read_parts(Findings(document), rows)
    found, model, stack = parts.found, parts.model, parts.stack
    if not parts.is_one:
        return _over_all(parts, left_open)
    is_open = left_open is not None and not left_open.stated
    _warn_of_one_island(parts)
    plan, run = laid_out(
        parts.said,
        parts.run,
        model or NO_MODEL,
        stack or NO_STACK,
        parts.island,
        parts.reference,
        found,
        parts.sync if changes_steps(parts) else Sync(),
        is_open=is_open,
    )
    islands = (changed(parts.island, name=parts.entries[0].names[0]),)
    run = whole_run(parts, islands, plan, (), run, planned=left_open is not None)
    made = Scenario(
        name=parts.given.name or "scenario",
        model=model or NO_MODEL,
        assembled=parts.assembled,
        stack=stack or NO_STACK,
        fleet=Fleet(islands=islands),
        plan=plan,
        run=run,
        assumptions=tuple(found.assumptions),
    )
    if left_open is not None:
        made = changed(chosen(left_open, made, document, parts, found), warnings=tuple(found.warnings))
        found.stop()
        return made
    found.stop()
    made = changed(made, assumptions=(*made.assumptions, *unasked(parts.run)))
    return changed(made, warnings=(*found.warnings, *ignored(made, found.said)))


def _over_all(parts: Parts, left_open: Asked | None) -> Scenario:
    """The scenario of several islands."""
    found = parts.found
    wan = resolve_wan(parts.given.fleet.wan if parts.given.fleet else None, parts.everyone, parts.rows, found)
    lay = laid_over_all if left_open is None or left_open.stated else laid_open
    plan, plans, run = lay(parts)
    islands = [changed(one.island, name=name) for one in parts.entries if one.island is not None for name in one.names]
    found.stop()
    wan = among(wan, [island.name for island in islands])
    run = whole_run(parts, islands, plan, plans, run, planned=left_open is not None)
    found.stop()
    made = Scenario(
        name=parts.given.name or "scenario",
        model=parts.model or NO_MODEL,
        assembled=parts.assembled,
        stack=parts.stack or NO_STACK,
        fleet=Fleet(islands=tuple(islands), wan=wan),
        plan=plan,
        plans=plans,
        run=run,
        assumptions=tuple(found.assumptions),
    )
    if left_open is not None:
        made = chosen(left_open, made, found.document, parts, found)
        found.stop()
        return changed(made, warnings=tuple(found.warnings))
    made = changed(made, assumptions=(*made.assumptions, *unasked(parts.run)))
    return changed(made, warnings=(*found.warnings, *ignored(made, found.said)))


def whole_run(
    parts: Parts, islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], run: Run, *, planned: bool = False
) -> Run:
    """The run of some parts with all that is asked from its first to its last step, after noting what is wrong with that."""
    kept_ = _with_stores(run, parts, islands)
    course = resolve_course(parts, islands, plan, plans, kept_, planned=planned)
    return resolve_limits(parts, islands, resolve_interruptions(parts, islands, course), planned=planned)


def _with_stores(run: Run, parts: Parts, islands: Sequence[Island]) -> Run:
    """The run with what it keeps and what is brought to its islands."""
    model = parts.assembled or parts.model
    if model is None or (parts.run.storage is None and parts.run.dataset is None):
        return run
    given = parts.run, model, islands, parts.rows, parts.found
    return changed(run, stocks=kept(*given), hauls=brought(*given))


def _warn_of_one_island(parts: Parts) -> None:
    """Say that nothing is joined or synchronised where there is one island; what is said must be right all the same."""
    found, fleet = parts.found, parts.given.fleet
    if fleet is not None and fleet.wan is not None and fleet.wan.model_fields_set and len(parts.everyone) == 1:
        found.warnings.append(f"fleet.wan changes nothing: there is one island{SEVERAL}")
    check_method(parts)
    if changes_steps(parts) and parts.of_sync is not None:
        found.assumptions += parts.of_sync.assumptions
        usual = defaults(parts.sync.method)
        for field in ("topology", "hierarchical", "release", "split"):
            if getattr(parts.sync, field) != getattr(usual, field):
                found.warnings.append(f"plan.sync.{field} changes nothing: there is one island")
    if parts.sync != Sync() and not changes_steps(parts):
        found.warnings.append(f"plan.sync changes nothing: there is one island{SEVERAL}")
    if () in (parts.said.get("placement") or {}).values():
        found.refuse(("plan", "placement"), "pp: auto, and there is one island", "leave it out")
    elif parts.said.get("placement"):
        found.warnings.append("plan.placement changes nothing: there is one island")


def check_method(parts: Parts) -> None:
    """Note what is wrong with the way of synchronisation of a single island."""
    if parts.of_sync is not None:
        parts.found.violations += parts.of_sync.violations
        parts.found.unknown += parts.of_sync.unknown
    check_cells(parts.sync, parts.assembled or parts.model, 1, False, parts.found)


def changes_steps(parts: Parts) -> bool:
    """Whether the method changes how a single island trains."""
    return inner_of(parts.sync).probes is not None


def read_parts(found: Findings, rows: Rows) -> Parts:
    """The parts of the document of `found`, which notes what is wrong with them.

    Raises as `resolve` does where the rest cannot be asked: no shape that can be read, no island."""
    given = _given(found, rows)
    noted = len(found.violations)
    model = _model(given, rows, found)
    faulty = len(found.violations) > noted
    stack = _stack(given, rows, found)
    everyone = resolve_fleet(given, rows, found)
    use = None if given.fleet is None else given.fleet.use
    if is_open(use):
        found.refuse(USE, "leaves open which islands take part", "name them, or ask shardmeter plan")
    entries = used(use, everyone, found)
    island = next((entry.island for entry in entries if entry.island is not None), None)
    if island is None:
        found.stop()
        raise AssertionError  # pragma: no cover  (no island has a violation)
    said = overridden(given.plan, entries[0].asked.plan)
    if model is not None and (
        model.family not in names() or (model.family != "decoder" and faulty)
    ):  # noted already: parts that do not fit together have no sequence to ask about
        model = None
    if model is None:
        found.gone += [("model",), *([("run", "seq_len")] if given.run is None or given.run.seq_len is None else [])]
    if stack is None:
        found.gone.append(("stack",))
    of_sync = found.apart()
    layers = None if model is None else float(model.layers)
    cells = sum(len(entry.names) for entry in entries)
    sync = resolve_sync(given.plan.sync if given.plan else None, ("plan", "sync"), layers, of_sync, cells)
    cut = None if model is None else block_of(model, inner_of(sync).blocks)
    return Parts(
        given=given,
        model=cut,
        assembled=None if cut is model else model,
        sync=sync,
        of_sync=of_sync,
        stack=stack,
        island=island,
        reference=_reference(given, model, rows, found),
        said=said,
        run=with_kept(with_phases(given.run or RunInput())),
        found=found,
        entries=entries,
        everyone=everyone,
        rows=rows,
    )


def _given(found: Findings, rows: Rows) -> ScenarioInput:
    """What the document says, as far as it can be read. Raises as `read_parts` does where that is nothing."""
    document = found.document
    if is_config(document.data):
        found.refuse((), "this is a Hugging Face config.json without its file", "name the file: model: ./config.json")
        found.stop()
    given, bad = validate(ScenarioInput, document)
    if given is None:
        found.violations += bad
        given, gone = what_is_left(ScenarioInput, document.data)
        found.gone += gone
    found.malformed = len(found.violations)
    if given is None:
        check_names(document.data, rows, found)
        found.stop()
        raise AssertionError  # pragma: no cover  (a failed validation has violations)
    return given


def _model(given: ScenarioInput, rows: Rows, found: Findings) -> Model | None:
    if given.model is None:
        found.refuse(("model",), "no model is named", "say model: llama-3.1-8b (--model), a file, or its numbers")
        return None
    return part(Model, given.model, rows, ("model",), found)


def _reference(given: ScenarioInput, model: Model | None, rows: Rows, found: Findings) -> Model | None:
    """The frozen model beside the trained one; None where none is asked, or after noting why it cannot be read."""
    asked, path = None if given.run is None else given.run.reference, ("run", "reference")
    if asked is None:
        return None
    if asked == SAME:
        return model
    if not isinstance(asked, str) and getattr(asked, "base", None) == SAME:
        named = "a catalog name" if model is None else quoted(model.name)
        found.refuse((*path, "base"), "same stands alone and takes no other numbers", f"base: {named}")
        return None
    other = part(Model, asked, rows, path, found)
    return other if other is not None and other.family in names() else None


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
