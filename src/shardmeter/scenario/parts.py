"""Names, files and inline mappings to catalog records: a part starts from its `base` row and any field overrides it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path as FilePath
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from shardmeter.core.errors import BadData, BadScenario, UnknownName, Violation
from shardmeter.core.record import changed
from shardmeter.scenario import bounds
from shardmeter.scenario.inline import inline
from shardmeter.scenario.read import SUFFIXES, Document, read_file
from shardmeter.scenario.schema import validate
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Accelerator, Fabric, Instance, Model, Stack

R = TypeVar("R", Accelerator, Fabric, Model, Stack)
KINDS: dict[type[Any], str] = {
    Accelerator: "accelerator", Fabric: "fabric", Model: "model", Stack: "stack", Instance: "instance",
}  # fmt: skip
_SHAPE = (
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "mlp", "tied", "experts", "moe_ffn", "shared_ffn",
    "dense_first",
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

    def names(self, kind: str) -> tuple[str, ...]:
        """All names of a kind, in the plural."""


class Findings:
    """Violations and assumptions gathered on the way to a scenario."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.violations: list[Violation] = []
        self.unknown: list[UnknownName] = []
        self.assumptions: list[str] = []
        self.warnings: list[str] = []

    def refuse(self, path: Path, says: str, way_out: str = "", rule: str = "") -> None:
        """Note one violation at a path of the scenario."""
        self.violations.append(
            Violation(
                field=".".join(map(str, path)), says=says, rule=rule, way_out=way_out, where=self.document.where(path)
            )
        )

    def unknown_name(self, path: Path, error: UnknownName) -> None:
        """Note a name that no catalog has."""
        self.unknown.append(error)
        self.refuse(path, error.message)

    def stop(self) -> None:
        """Raise what was found so far, all of it: UnknownName for a single unknown name, else BadScenario."""
        if len(self.violations) == 1 and self.unknown:
            raise self.unknown[0]
        if self.violations:
            count = len(self.violations)
            problems = "1 problem" if count == 1 else f"{count} problems"
            raise BadScenario(f"{self.document.name}: {problems}", self.violations)


def part(record: type[R], given: str | BaseModel, rows: Rows, path: Path, found: Findings) -> R | None:
    """The record of a name, a file or an inline mapping; None after noting why there is none."""
    if isinstance(given, str) and given.lower().endswith(SUFFIXES):
        return _from_file(record, given, rows, path, found)
    if isinstance(given, str):
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
    file = FilePath(name)
    try:
        document = read_file(file if file.is_absolute() else found.document.folder / file)
    except BadScenario as error:
        for violation in error.violations or (Violation(field="", says=error.message),):
            found.violations.append(changed(violation, field=violation.field or ".".join(map(str, path))))
        return None
    if "model_type" in document.data or "architectures" in document.data:
        way_out = "write its numbers as a model file: layers, hidden, ffn, heads, kv_heads, vocab"
        found.refuse(path, f"{name}: reading a Hugging Face config.json is not modelled yet", way_out)
        return None
    given, bad = validate(inline(record), document)
    found.violations += bad
    if given is None:
        return None
    inner = Findings(document)
    made = _from_mapping(record, given, rows, (), inner, name=file.stem)
    found.violations += inner.violations
    found.unknown += inner.unknown
    found.assumptions += inner.assumptions
    return made


def _from_mapping(
    record: type[R], given: BaseModel, rows: Rows, path: Path, found: Findings, name: str = "inline"
) -> R | None:
    own = {field: value for field, value in given.model_dump(exclude_unset=True).items() if value is not None}
    base = own.pop("base", None)
    if base is not None:
        row = lookup(record, base, rows, (*path, "base"), found)
        return None if row is None else _checked(changed(row, **_merged(row, own)), path, found)
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
    return _checked(record(**own), path, found)


def _checked(made: R, path: Path, found: Findings) -> R:
    """The part itself, after noting what no model of its kind can be."""
    if isinstance(made, Model):
        for field, says, way_out in bounds.experts({f.name: getattr(made, f.name) for f in fields(made)}):
            found.refuse(
                (*path, field), f"{field} {says}" if says.startswith(("is", "must", "leaves")) else says, way_out
            )
    return made


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
    if "heads" in own and "kv_heads" not in own:
        made["kv_heads"] = own["heads"]
        found.assumptions.append(f"model kv_heads = heads = {own['heads']:g} (left out)")
    if "heads" in own and "hidden" in own and "head_dim" not in own:
        made["head_dim"] = own["hidden"] / own["heads"]
        if made["head_dim"] != round(made["head_dim"]):
            found.refuse((*path, "heads"), f"hidden/heads = {made['head_dim']:g} is no whole number", "say head_dim")
        found.assumptions.append(f"model head_dim = hidden/heads = {made['head_dim']:g} (left out)")
    return made
