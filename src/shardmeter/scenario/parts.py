"""Names, files and inline mappings to catalog records: a part starts from its `base` row and any field overrides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path as FilePath
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from shardmeter.core.errors import BadData, BadScenario, UnknownName, Violation, printable
from shardmeter.core.files import are_closed, at_home, refuse_closed
from shardmeter.core.record import changed
from shardmeter.scenario.bounds import model_faults
from shardmeter.scenario.hugging_face.files import WEIGHTS, is_config, named_like_a_path
from shardmeter.scenario.inline import inline
from shardmeter.scenario.read import SUFFIXES, Document, read_file
from shardmeter.scenario.schema import validate
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import (
    Accelerator,
    CriticalBatch,
    Egress,
    Fabric,
    Failures,
    Grid,
    Instance,
    Line,
    LossLaw,
    Model,
    Pair,
    Region,
    Stack,
    Storage,
)

INLINE = "inline"
"""Name of a part that has none."""
R = TypeVar("R", Accelerator, Fabric, Failures, Model, Stack)
KINDS: dict[type[Any], str] = {
    Accelerator: "accelerator", Fabric: "fabric", Model: "model", Stack: "stack", Instance: "instance",
    Region: "region", Line: "link", LossLaw: "law", CriticalBatch: "critical_batch",
    Failures: "failures",
}  # fmt: skip
_SHAPE = (
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "mlp", "tied", "experts", "moe_ffn", "shared_ffn",
    "dense_first", "vision", "image_size", "patch", "channels", "class_tokens", "segments", "head", "projection", "projector",
    "merge", "encoder_layers", "context", "positions",
)  # fmt: skip


class Rows(Protocol):
    """What a scenario needs of a catalog; every lookup raises UnknownName."""

    def accelerator(self, name: str) -> Accelerator:
        """A row by name or alias."""

    def fabric(self, name: str) -> Fabric:
        """A row by name or alias."""

    def instance(self, name: str) -> Instance:
        """A row by name or alias."""

    def model(self, name: str) -> Model:
        """A row by name or alias."""

    def stack(self, name: str) -> Stack:
        """A row by name or alias."""

    def region(self, name: str) -> Region:
        """A row by name or alias."""

    def link(self, name: str) -> Line:
        """A row by name or alias."""

    def pair(self, name: str) -> Pair:
        """A row by name."""

    def egress(self, name: str) -> Egress:
        """A row by name."""

    def grid(self, name: str) -> Grid:
        """A row by name."""

    def storage(self, name: str) -> Storage:
        """A row by name."""

    def law(self, name: str) -> LossLaw:
        """A row by name or alias."""

    def critical_batch(self, name: str) -> CriticalBatch:
        """A row by name or alias."""

    def failures(self, name: str) -> Failures:
        """A row by name or alias."""

    def knows(self, kind: str, name: str) -> bool:
        """Whether a kind, in the plural, has a row of that name or alias."""

    def names(self, kind: str) -> tuple[str, ...]:
        """All names of a kind, in the plural."""

    def aliases(self, kind: str, name: str) -> tuple[str, ...]:
        """Other names of a row."""


_PARTS = ("model", "stack")
"""Parts of which a fault anywhere makes everything else said about them doubtful."""


MOST_NAMES = 3
"""Islands that a sentence names one by one."""
ISLANDS: Path = ("fleet", "islands")
"""Where islands are said."""


def _of_islands(path: Path) -> Path:
    """A path of the fleet as far as a fault there makes the rest doubtful: one island, or the very field of the network between."""
    if path[:1] == ("gpus",):
        return ISLANDS
    if path[:2] != ISLANDS:
        return path
    return (*ISLANDS, *(int(step) if str(step).isdigit() else step for step in path[2:3]))


def listed_names(names: Sequence[str], count: int | None = None) -> str:
    """The first few of some names, and how many more there are: of `count`, where only the first of them are given."""
    shown, all_ = ", ".join(names[:MOST_NAMES]), len(names) if count is None else count
    return shown if all_ <= MOST_NAMES else f"{shown} and {all_ - MOST_NAMES} more"


class Findings:
    """Violations and assumptions gathered on the way to a scenario."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.violations: list[Violation] = list(document.problems)
        self.unknown: list[UnknownName] = list(document.unknown)
        self.assumptions: list[str] = list(document.notes)
        self.warnings: list[str] = list(document.warnings)
        self.gone: list[Path] = list(document.gone)
        """Places that were malformed and taken out, so that the rest can be checked: what follows from them is no fault."""
        self.said: list[tuple[Path, str]] = []
        """Fields of models that whoever asks has set: (path of the model, field). What a catalog row says is not among them."""
        self.malformed = 0
        """How many of the violations are of the document's shape: unknown fields, malformed values, overrides that do not apply."""

    def touched(self, *paths: Path) -> bool:
        """Whether one of the paths, or a part of it, was taken out. Islands are what their GPUs are."""
        return any(
            gone[:1] == path[:1] if path[0] in _PARTS else gone[: len(path)] == path or path[: len(gone)] == gone
            for gone in map(_of_islands, self.gone)
            for path in map(_of_islands, paths)
        )

    def apart(self) -> Findings:
        """Findings of one part of the scenario, to be told apart before they are added to these (`add`)."""
        other = Findings(self.document)
        other.violations, other.unknown, other.assumptions, other.warnings = [], [], [], []
        other.gone = self.gone
        return other

    def merge(self, other: Findings) -> None:
        """Add what was found of one part."""
        for kind in ("violations", "unknown", "assumptions", "warnings"):
            getattr(self, kind).extend(getattr(other, kind))

    def add_all(self, parts: Sequence[tuple[str, Findings]]) -> None:
        """Add what was found of several islands (name, `apart`): what holds for all is said once, the rest with their names."""
        self.violations += [one for _, found in parts for one in found.violations]
        self.unknown += [one for _, found in parts for one in found.unknown]
        self.said += [one for _, found in parts for one in found.said]
        for kind in ("assumptions", "warnings"):
            said: dict[str, list[str]] = {}
            for name, found in parts:
                for text in dict.fromkeys(getattr(found, kind)):
                    said.setdefault(text, []).append(name)
            getattr(self, kind).extend(
                text if len(names) == len(parts) else f"{listed_names(names)}: {text}" for text, names in said.items()
            )

    def refuse(self, path: Path, says: str, way_out: str = "", rule: str = "") -> None:
        """Note one violation at a path of the scenario, unless it may only follow from what was taken out."""
        if path and self.touched(path):
            return
        self.note(path, says, way_out, rule)

    def note(self, path: Path, says: str, way_out: str = "", rule: str = "") -> None:
        """Note one violation, whatever was taken out."""
        self.violations.append(
            Violation(
                field=".".join(map(str, path)), says=says, rule=rule, way_out=way_out, where=self.document.where(path)
            )
        )

    def unknown_name(self, path: Path, error: UnknownName) -> None:
        """Note a name that no catalog has."""
        self.unknown.append(error)
        self.note(path, error.message)

    def stop(self) -> None:
        """Raise what was found so far, all of it: UnknownName for a single unknown name, else BadScenario."""
        if len(self.violations) == 1 and self.unknown:
            raise self.unknown[0]
        if self.violations:
            count = len(self.violations)
            problems = "1 problem" if count == 1 else f"{count} problems"
            raise BadScenario(f"{self.document.name}: {problems}", self.violations)


def part(record: type[R], given: str | BaseModel, rows: Rows, path: Path, found: Findings) -> R | None:
    """The record of a name, a file, a checkpoint's folder or an inline mapping; None after noting why there is none."""
    if isinstance(given, str) and given.lower().endswith(SUFFIXES):
        return _from_file(record, given, rows, path, found)
    if isinstance(given, str):
        if record is Model and is_checkpoint_name(given, found.document.folder, rows):
            return _from_checkpoint(given, found, path)
        looked_up = lookup(record, given, rows, path, found)
        return looked_up if isinstance(looked_up, record) else None
    return _from_mapping(record, given, rows, path, found)


def lookup(record: type[Any], name: str, rows: Rows, path: Path, found: Findings) -> Any:
    """A catalog row by name; None after noting that there is none."""
    try:
        return getattr(rows, KINDS[record])(name)
    except UnknownName as error:
        found.unknown_name(path, error)
    except BadData as error:
        found.refuse(path, str(error))
    return None


def _from_file(record: type[R], name: str, rows: Rows, path: Path, found: Findings) -> R | None:
    file = at_home(FilePath(name))
    field = ".".join(map(str, path))
    try:
        refuse_closed(name, BadScenario)
        document = read_file(file if file.is_absolute() else found.document.folder / file)
    except BadScenario as error:
        for violation in error.violations or (
            Violation(field=field, says=error.message, where=found.document.where(path)),
        ):
            found.violations.append(changed(violation, field=violation.field or field))
        return None
    if record is Model and is_config(document.data):
        return _from_checkpoint(name, found, path)
    given, bad = validate(inline(record), document)
    found.violations += bad
    if given is None:
        return None
    inner = Findings(document)
    made = _from_mapping(record, given, rows, (), inner, name=printable(file.stem))
    found.violations += inner.violations
    found.unknown += inner.unknown
    found.assumptions += inner.assumptions
    found.said += [(path + below, key) for below, key in inner.said]
    return made


def is_checkpoint_name(given: str, folder: FilePath, rows: Rows) -> bool:
    """Whether the name of a model, in a scenario of this folder, is a path: written like one, or a folder (or a file of weights)
    that no row is called."""
    if named_like_a_path(given) or given.lower().endswith(WEIGHTS):
        return True
    if are_closed():
        return False
    try:
        is_folder = (folder / given).is_dir()
    except (OSError, ValueError):
        return False
    if not is_folder:
        return False
    try:
        rows.model(given)
    except UnknownName:
        return True
    return False


def _from_checkpoint(given: str, found: Findings, path: Path) -> Model | None:
    """The model of a Hugging Face config.json, or of a folder that holds one, with what it leaves out among the assumptions."""
    from shardmeter.scenario.hugging_face.reading import open_model

    file = at_home(FilePath(given))
    try:
        refuse_closed(given, BadScenario)
        read = open_model(file if file.is_absolute() else found.document.folder / file)
    except BadScenario as error:
        field = ".".join(map(str, path))
        plain = Violation(field=field, says=error.message, where=found.document.where(path))
        found.violations += error.violations or (plain,)
        return None
    report = read.report
    found.assumptions += [f"the model is {report.source}, read as {report.kind}: `shardmeter show FILE` tells how"]
    found.assumptions += [line for line in (report.sentence(), *report.notes) if line]
    found.warnings += read.report.warnings
    return read.model


def _from_mapping(
    record: type[R], given: BaseModel, rows: Rows, path: Path, found: Findings, name: str = INLINE
) -> R | None:
    own = {field: value for field, value in given.model_dump(exclude_unset=True).items() if value is not None}
    if record is Model:
        found.said += [(path, field) for field in own if field != "base"]
    if record is Model and "vision" in own:
        tower = _tower(own.pop("vision"), own.get("base"), rows, path, found)
        if tower is None:
            return None
        own["vision"] = tower
    base = own.pop("base", None)
    if base is not None:
        row = part(record, base, rows, (*path, "base"), found)
        return None if row is None else _overridden(row, own, name, path, found)
    if record is Model:
        own = _model_defaults(own, path, found)
    own.setdefault("name", name)
    required = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    missing = [field for field in required if field not in own]
    if missing:
        kind = KINDS[record]
        way_out = f"add {', '.join(missing)}, or start from a catalog {kind} with `base:`"
        found.refuse(path, f"an inline {kind} without base lacks {', '.join(missing)}", way_out)
        return None
    if record is Model:
        _check_model(own, path, found)
    return record(**own)


def _tower(given: Any, base: Any, rows: Rows, path: Path, found: Findings) -> Model | None:
    """The image tower of an inline model: a catalog name, a file, or its own numbers (with `base`, all of them, or those in which
    it is not the tower of the model's own `base`)."""
    where = (*path, "vision")
    if isinstance(given, str):
        return part(Model, given, rows, where, found)
    document = Document(given, found.document.name, found.document.folder)
    made, bad = validate(inline(Model), document, where)
    found.violations += bad
    if made is None:
        return None
    said = made.model_dump(exclude_unset=True)
    if "base" not in said and "family" not in said:
        row = lookup(Model, base, rows, (*path, "base"), Findings(document)) if isinstance(base, str) else None
        own = None if {"layers", "hidden"} <= said.keys() or row is None else row.vision
        made = made.model_copy(update={"family": "vision"} if own is None else {"base": own.name})
    return _from_mapping(Model, made, rows, where, found)


def _overridden(row: R, own: dict[str, Any], name: str, path: Path, found: Findings) -> R:
    """A row with some fields changed; a changed model is no longer the one of that name."""
    made = changed(row, **_merged(row, own))
    if isinstance(made, Model):
        _check_model({field.name: getattr(made, field.name) for field in fields(made)}, path, found)
        if own and "name" not in own:
            return changed(made, name=f"{row.name}, changed" if name == INLINE else name)
    return made


def _check_model(own: dict[str, Any], path: Path, found: Findings) -> None:
    """What no model can be, and families that are not built."""
    for field, says, way_out in model_faults(own):
        if says:
            found.refuse((*path, field), says, way_out)


def _merged(row: Any, own: dict[str, Any]) -> dict[str, Any]:
    """The overrides of a row: mappings are merged key by key, and a published count falls with the shape it belongs to."""
    merged = {
        field: {**getattr(row, field), **value} if isinstance(value, dict) else value for field, value in own.items()
    }
    if isinstance(row, Model) and "parameters" not in own and any(field in own for field in _SHAPE):
        merged["parameters"] = None
    return merged


def _model_defaults(own: dict[str, Any], path: Path, found: Findings) -> dict[str, Any]:
    """What follows from the other numbers of an inline model, each said."""
    made = dict(own)
    if own.get("moe_ffn") and "ffn" not in own and not own.get("dense_first"):
        made["ffn"] = own["moe_ffn"]  # no layer uses it
    if own.get("family") == "recurrent":  # whose state is one, without heads
        made = {"heads": 1.0, "kv_heads": 1.0, "head_dim": own.get("hidden", 1.0)} | made
        if set(own.get("mlps") or "d") == {"-"}:
            made.setdefault("ffn", 1.0)  # no layer uses it
        return made
    if "heads" in own and "kv_heads" not in own:
        made["kv_heads"] = own["heads"]
        found.assumptions.append(f"model kv_heads = heads = {own['heads']:g} (left out)")
    if "heads" in own and "hidden" in own and "head_dim" not in own:
        made["head_dim"] = own["hidden"] / own["heads"]
        if made["head_dim"] != round(made["head_dim"]):
            found.refuse((*path, "heads"), f"hidden/heads = {made['head_dim']:g} is no whole number", "say head_dim")
        found.assumptions.append(f"model head_dim = hidden/heads = {made['head_dim']:g} (left out)")
    return made


SAME = "same"
"""The word for a reference model with the trained model's own numbers."""


def check_names(data: dict[str, Any], rows: Rows, found: Findings) -> None:
    """Unknown names of a document whose shape is wrong, so that they are listed with the rest."""
    places: list[tuple[type[Any], Any, Path]] = [
        (Model, data.get("model"), ("model",)),
        (Stack, data.get("stack"), ("stack",)),
    ]
    run = data.get("run")
    if isinstance(run, dict) and run.get("reference") != SAME:
        places.append((Model, run.get("reference"), ("run", "reference")))
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
