"""Options and `--set a.b=VALUE`: change fields of a document; list items by index or by their `name`, `a.0.b` or `a[0].b`.

What is said on the command line wins over the file: a plan field set here also falls out of an island's own plan. What is
lost on the way is said, in the notes and warnings of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NoReturn

from shardmeter.core.errors import BadData, BadScenario, UnknownName, Violation, cut, kind_of, nearest, shown
from shardmeter.core.files import are_closed, at_home
from shardmeter.scenario.grammar import SYNC_ALIASES, parse_plan
from shardmeter.scenario.hugging_face.files import named_like_a_path
from shardmeter.scenario.ranges import value as read_value
from shardmeter.scenario.read import SUFFIXES, Document, plain
from shardmeter.scenario.yaml_reader import NESTING, Path

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows
    from shardmeter.specs import Instance

Overrides = Iterable[str] | Mapping[str, Any]
"""`a.b=VALUE` texts, or values by their path."""
_NAMED = ("model", "stack", "accelerator", "fabric", "reference")
"""Parts that may be a catalog name: setting a field inside turns the name into `{base: name}`."""
_BRACKETS = re.compile(r"(?<=[^.\s])\[([^\[\].=]+)\]")
"""An item of a list by its index or name, as Python writes it."""
_COUNTED = re.compile(r"\s*(?:([0-9]{1,9})\s*[xX×*]\s*)?(\S.*?)\s*")
OPTIONS = {
    "model": ("model",),
    "stack": ("stack",),
    "gpus": ("gpus",),
    "instance": ("fleet",),
    "fabric": ("fleet", "islands", "0", "fabric"),
    "price": ("fleet", "islands", "0", "price"),
    "prices": ("fleet", "prices"),
    "plan": ("plan",),
    "seq": ("run", "seq_len"),
    "seq_len": ("run", "seq_len"),
    "micro_batch": ("plan", "micro_batch"),
    "global_batch": ("run", "global_batch"),
    "tokens": ("run", "tokens"),
}
"""Shortcuts of the command line → the field they set."""
COUNTED = ("seq", "seq_len", "micro_batch", "global_batch", "tokens")
"""Those that say how many."""
PRICES = OPTIONS["prices"]
"""Where the file of prices is named."""


def apply_options(document: Document, options: Mapping[str, Any], rows: Rows) -> None:
    """Set the command line's shortcuts, in the order of `OPTIONS`; None is not said. What does not apply is a problem of the
    document. `rows` tells how many accelerators an instance has."""
    for name in options:
        if name not in OPTIONS:
            close = ", ".join(nearest(str(name), OPTIONS))
            says = f"unknown option {shown(name)}"
            document.problems.append(Violation(field="", says=says, way_out=f"the nearest are {close}"))
    if options.get("seq") is not None and options.get("seq_len") is not None:
        document.problems.append(
            Violation(field="", says="both seq and seq_len are given", way_out="keep one of the two")
        )
    for name, path in OPTIONS.items():
        value = options.get(name)
        if value is None or (name == "gpus" and options.get("instance") is not None):
            continue
        flag = f"--{name.replace('_', '-')}"
        _say_what_is_lost(document, name, value, flag)
        try:
            if name in ("fabric", "price", "prices") and not {"fleet", "gpus"} & set(document.data):
                continue  # that no GPUs are named is said anyway
            if name == "price":
                _check_currency(value)
            if name == "instance":
                value = {"islands": [_rented(value, options.get("gpus"), rows)]}
            _set(document, path, plain(_counted(value) if name in COUNTED else value, flag), flag)
        except (BadScenario, UnknownName) as error:
            _keep(document, error, ".".join(path) if name != "instance" else "fleet.islands.0.instance", flag)
            document.gone.append(path)
            document.unknown += [error] if isinstance(error, UnknownName) else []


def _counted(value: Any) -> Any:
    """A whole number that is said as text, as a number: files that are written say it so. Anything else as it is."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,14}", value) else value


def _check_currency(value: Any) -> None:
    if not isinstance(value, str) or not re.search(r"\$|usd", value, re.IGNORECASE):
        raise BadScenario(f"{shown(value)} has no currency; in a shell, $ needs single quotes: --price '$2.10/gpu/h'")


def _rented(value: Any, gpus: Any, rows: Rows) -> dict[str, Any]:
    """The island of `N x INSTANCE`, or of INSTANCE with as many as the GPUs asked for need."""
    found = _COUNTED.fullmatch(value) if isinstance(value, str) and len(value) < 200 else None
    if found is None:
        raise BadScenario(f"{shown(value)} is no [Nx]NAME; as in 8xp5.48xlarge")
    row = rows.instance(found[2])
    asked = _COUNTED.fullmatch(gpus) if isinstance(gpus, str) and len(gpus) < 200 else None
    if gpus is not None and (asked is None or asked[1] is None):
        raise BadScenario(f"gpus: {shown(gpus)} is no NxNAME; as in 64xH100-SXM5-80GB")
    nodes = float(found[1] or 1)
    if asked is not None:
        _check_same(row, asked[2], rows)
        each, wanted = float(row.accelerators), float(asked[1])
        if (found[1] is not None and nodes * each != wanted) or wanted % each:
            raise BadScenario(f"{wanted:g} GPUs are no whole number of {row.name}, which has {each:g}"
                              if found[1] is None else f"{nodes:g} of {row.name} are {nodes * each:g} GPUs, not {wanted:g}")  # fmt: skip
        nodes = wanted / each
    return {"instance": row.name, "nodes": nodes}


def _check_same(row: Instance, accelerator: str, rows: Rows) -> None:
    """Refuse GPUs that the instance does not have."""
    named = rows.accelerator(accelerator).name
    if named != rows.accelerator(row.accelerator).name:
        raise BadScenario(f"{row.name} has {row.accelerator}, but gpus says {named}: keep one of the two")


def _say_what_is_lost(document: Document, name: str, value: Any, flag: str) -> None:
    """Drop what an option replaces in the file, and say so."""
    data = document.data
    if name == "instance":
        data.pop("gpus", None)
    if name in ("gpus", "instance") and "fleet" in data:
        del data["fleet"]
        document.warnings.append(
            f"{flag} replaces the fleet of the file: its nodes, fabric, tiers and price do not count"
        )
    run = data.get("run")
    if name == "tokens" and isinstance(run, dict) and run.pop("steps", None) is not None:
        document.notes.append(f"{flag} replaces the steps of the file")
    if name == "plan" and data.get("plan") not in (None, value):
        lost = [key for key in _said(data["plan"]) if key not in _said(value)]
        if lost:
            document.notes.append(f"{flag} replaces the plan of the file: its {', '.join(lost)} do not count")


def _said(plan: Any) -> dict[str, Any]:
    """The fields that a plan names; none for what is no plan."""
    if isinstance(plan, str):
        try:
            return parse_plan(plan)
        except BadScenario:
            return {}
    return plan if isinstance(plan, dict) else {}


def apply_overrides(document: Document, overrides: Overrides, option: str = "--set", rows: Rows | None = None) -> None:
    """Apply overrides in order; the VALUE of a text is read as YAML. Those that do not apply are problems of the document,
    with the option that they came by. `rows` say how many GPUs a node of an island has that is said as `NxNAME`, so that its
    nodes can be set too."""
    seen: dict[tuple[str, ...], str] = {}
    pairs = overrides.items() if isinstance(overrides, Mapping) else ((text, None) for text in overrides)
    for text, given in pairs:
        if not isinstance(text, str):
            says = f"{kind_of(text)} is no override"
            document.problems.append(Violation(field="", says=says, way_out="as in plan.tp=8, or {'plan.tp': 8}"))
            continue
        line = text if not isinstance(overrides, Mapping) else f"{text}={shown(given)}"
        where = f"{option} {cut(line, 80)}"
        key, equals, value = (text, "=", "given") if isinstance(overrides, Mapping) else line.partition("=")
        steps = steps_of(key)
        if not equals or not all(steps) or len(steps) > NESTING:
            document.problems.append(
                Violation(field="", says="is no a.b=VALUE", way_out="as in plan.tp=8", where=where)
            )
        elif not value.strip():
            way_out = f"write {cut(key)}=null to leave it out"
            document.problems.append(Violation(field=cut(key), says="has no value", way_out=way_out, where=where))
        else:
            if steps in seen:
                document.warnings.append(f"{seen[steps]} and then {where}: the last one counts")
            seen[steps] = where
            try:
                made = read_value(value.strip(), where) if not isinstance(overrides, Mapping) else given
                if rows is not None:
                    _say_machines(document, steps, rows, where)
                _set(document, steps, plain(made, cut(key)), where)
            except BadScenario as error:
                _keep(document, error, cut(key), where)


def steps_of(key: str) -> tuple[str, ...]:
    """The steps of a path: `a.0.b`, or `a[0].b`."""
    return tuple(step.strip() for step in _BRACKETS.sub(r".\1", key).split("."))


def _keep(document: Document, error: BadScenario | UnknownName, field: str, where: str) -> None:
    """Note the violations of one option or override, so that they are reported with everything else."""
    inner = error.violations or (Violation(field=field, says=error.message, where=where),)
    document.problems.extend(inner)


def _set(document: Document, path: tuple[str, ...], value: Any, where: str) -> None:
    """Set one field, creating mappings on the way."""
    path = _of_one(document, path)
    if path[:1] == ("plan",):
        _win_over_islands(document, path, where)
    value = placed(document, path, value)
    inner: Any = document.data
    reached: list[str | int] = []
    for position, step in enumerate(path):
        last = position == len(path) - 1
        if isinstance(inner, list):
            index = _index(inner, step, path, where)
            reached.append(index)
            if last:
                inner[index] = value
            else:
                inner = inner[index]
        elif isinstance(inner, dict):
            name = SYNC_ALIASES.get(step, step) if reached[-1:] == ["sync"] else step
            reached.append(name)
            if last:
                _drop_rivals(document, inner, reached, where)
                inner[name] = value
            else:
                if inner.get(name) is None and path[position + 1].isdecimal():
                    _no_item(path, position, where)
                inner[name] = inner = _opened(inner.get(name), name)
        else:
            field, parent = ".".join(path), ".".join(path[:position])
            says = f"{parent} is {shown(inner, 40)}, which has no fields"
            raise BadScenario("an override does not apply", [Violation(field=field, says=says, where=where)])
    done: Path = tuple(reached)
    for known in [p for p in document.places if p[: len(done)] == done]:
        del document.places[known]
    document.places[done] = where


def _say_machines(document: Document, path: tuple[str, ...], rows: Rows, where: str) -> None:
    """Write `NxNAME` of an island as accelerator, nodes and GPUs of a node, where one of the latter two is about to be set. Left as it
    is where the island says both, its name is unknown or it is no whole number of nodes: reading it tells."""
    if len(path) != 4 or path[:2] != ("fleet", "islands") or path[3] not in ("nodes", "gpus_per_node"):
        return
    if "gpus" in document.data and "fleet" not in document.data:
        document.data["fleet"] = {"islands": [{"gpus": document.data.pop("gpus")}]}
    fleet = document.data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    if not isinstance(islands, list):
        return
    island = islands[_index(islands, path[2], path, where)]
    said = island.get("gpus") if isinstance(island, dict) else None
    found = _COUNTED.fullmatch(said) if isinstance(said, str) and len(said) < 200 else None
    if found is None or found[1] is None or {"accelerator", "nodes", "gpus_per_node"} & island.keys():
        return
    try:
        size = int(rows.accelerator(found[2]).node_size)
    except (UnknownName, BadData):
        return
    each = min(int(found[1]), size)
    if each and int(found[1]) % each == 0:
        del island["gpus"]
        island |= {"accelerator": found[2], "nodes": int(found[1]) // each, "gpus_per_node": each}
        document.notes.append(f"{where} wins over gpus = {shown(said, 40)}: {each} to a node")


def _no_item(path: tuple[str, ...], position: int, where: str) -> NoReturn:
    """Refuse the item of a list that the document does not have."""
    parent, item = ".".join(path[: position + 1]), path[position + 1]
    found = Violation(
        field=".".join(path),
        says=f"there is no item {item}: no {parent} is said",
        where=where,
        way_out=f"say all of it, as in --set '{parent}=[{{…}}]'",
    )
    raise BadScenario("an override does not apply", [found])


RIVALS = {"rtt": "distance", "distance": "rtt", "bits": "should_quantize", "should_quantize": "bits"}
"""Fields of a line or of `sync` that say the same thing in two ways."""


def _of_one(document: Document, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path in a fleet of one island that is said as `NxNAME`: `gpus` of the scenario becomes its first island's where a price or a
    network is added, and is found there afterwards."""
    data = document.data
    if path[:1] == ("fleet",) and "gpus" in data and "fleet" not in data:
        data["fleet"] = {"islands": [{"gpus": data.pop("gpus")}]}
    fleet = data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) and "gpus" not in data else None
    short = isinstance(islands, list) and len(islands) == 1 and isinstance(islands[0], dict) and "gpus" in islands[0]
    return ("fleet", "islands", "0", "gpus") if path == ("gpus",) and short else path


def _drop_rivals(document: Document, inner: dict[str, Any], reached: Sequence[str | int], where: str) -> None:
    """Take out what says the field that is set in another way or spelling, and say so where it is another field."""
    if reached[:2] not in (["plan", "sync"], ["fleet", "wan"]):
        return
    name = str(reached[-1])
    for spelling in [key for key, field in SYNC_ALIASES.items() if field == name]:
        inner.pop(spelling, None)
    rival = RIVALS.get(name, "")
    if inner.get(rival) is not None:
        document.notes.append(f"{where} wins over {rival} = {shown(inner.pop(rival), 20)}")


def placed(document: Document, path: tuple[str, ...], value: Any) -> Any:
    """A value of an override as the document takes it: names of files are found from where the command runs."""
    is_name = path[-1] in (*_NAMED, "base") and isinstance(value, str) and _is_file(value)
    return _from_here(document, value) if is_name or (path == PRICES and isinstance(value, str)) else value


def _is_file(value: str) -> bool:
    """Whether a value names a file or a folder: by its ending, by how it is written, or because such a folder is here."""
    if value.lower().endswith(SUFFIXES) or named_like_a_path(value):
        return True
    try:
        return "/" in value and not are_closed() and FilePath(value).is_dir()
    except (OSError, ValueError):
        return False


def _from_here(document: Document, name: str) -> str:
    """A file named on the command line lies where the command runs, not beside the scenario."""
    if are_closed():
        return name
    here = FilePath.cwd()
    return name if at_home(FilePath(name)).is_absolute() or document.folder.resolve() == here else str(here / name)


def _win_over_islands(document: Document, path: tuple[str, ...], where: str) -> None:
    """Take what is set out of the plans that islands have of their own, and say so."""
    fleet = document.data.get("fleet")
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    for island in islands if isinstance(islands, list) else ():
        own = _said(island.get("plan")) if isinstance(island, dict) else {}
        lost = {key: own[key] for key in own if len(path) == 1 or key == path[1]}
        if lost:
            island["plan"] = {key: value for key, value in own.items() if key not in lost}
            what = ", ".join(f"{key} = {shown(value, 20)}" for key, value in lost.items())
            name = f"island {island['name']}" if island.get("name") else "the island"
            document.notes.append(f"{where} wins over the plan of {name}: its {what} does not count")


def _opened(value: Any, name: str) -> Any:
    """What a path steps into: a missing part is a new mapping, a name becomes `{base: name}`, a plan line its mapping."""
    if value is None:
        return {}
    if isinstance(value, str) and name == "plan":
        return parse_plan(value)
    if isinstance(value, str) and name in _NAMED:
        return {"base": value}
    return value


def _index(items: list[Any], step: str, path: tuple[str, ...], where: str) -> int:
    """Position of a list item by index or name."""
    names = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    if path[:2] == ("fleet", "islands") and len(items) > 1:
        names = [name or f"island-{position + 1}" for position, name in enumerate(names)]
    if step in names:
        return names.index(step)
    if step.isascii() and step.isdigit() and len(step) < 6 and int(step) < len(items):
        return int(step)
    known = [name for name in names if name] + [str(i) for i in range(min(len(items), 10))]
    way_out = f"there are {', '.join(nearest(step, known, 5))}" if known else "the list is empty"
    says = f"no item {shown(step, 40)}"
    raise BadScenario(
        "an override does not apply", [Violation(field=".".join(path), says=says, way_out=way_out, where=where)]
    )
