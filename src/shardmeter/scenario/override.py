"""`--set a.b=VALUE`: change one field of a document; list items by index or by their `name`."""

from __future__ import annotations

from typing import Any

from shardmeter.core.errors import BadScenario, Violation, nearest
from shardmeter.scenario.grammar import SYNC_ALIASES, parse_plan
from shardmeter.scenario.read import Document
from shardmeter.scenario.yaml_reader import NESTING, Path, read_yaml

_NAMED = ("model", "stack", "accelerator", "fabric")
"""Parts that may be a catalog name: setting a field inside turns the name into `{base: name}`."""
OPTIONS = {
    "model": ("model",),
    "stack": ("stack",),
    "gpus": ("gpus",),
    "plan": ("plan",),
    "seq": ("run", "seq_len"),
    "seq_len": ("run", "seq_len"),
    "micro_batch": ("plan", "micro_batch"),
    "global_batch": ("run", "global_batch"),
    "tokens": ("run", "tokens"),
}
"""Shortcuts of the command line → the field they set."""


def apply_options(document: Document, options: dict[str, Any]) -> None:
    """Set the command line's shortcuts, in the order of `OPTIONS`; None is not said. Raises BadScenario."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise BadScenario(f"unknown option {unknown[0]!r}; known: {', '.join(OPTIONS)}")
    for name, path in OPTIONS.items():
        value = options.get(name)
        if value is None:
            continue
        if name == "gpus":
            document.data.pop("fleet", None)
        if name == "tokens" and isinstance(document.data.get("run"), dict):
            document.data["run"].pop("steps", None)
        _set(document, path, value, f"--{name.replace('_', '-')}")


def apply_overrides(document: Document, overrides: tuple[str, ...]) -> None:
    """Apply `a.b=VALUE` texts in order; VALUE is read as YAML. Raises BadScenario with every one that does not apply."""
    found: list[Violation] = []
    for text in overrides:
        key, equals, value = str(text).partition("=")
        where = f"--set {str(text)[:80]}"
        steps = tuple(step.strip() for step in key.split("."))
        if not equals or not all(steps) or len(steps) > NESTING:
            found.append(Violation(field="", says="is no a.b=VALUE", way_out="as in plan.tp=8", where=where))
            continue
        try:
            _set(document, steps, _read(value.strip(), where), where)
        except BadScenario as error:
            inner = error.violations or (Violation(field=key, says=error.message, where=where),)
            found.extend(inner)
    if found:
        raise BadScenario("an override does not apply", found)


def _read(value: str, where: str) -> Any:
    """A value of an override: YAML where it is one, else the text as it stands (`$2.10/gpu/h`, `aws:us-west-2`)."""
    if value[:1] in ("{", "["):
        return read_yaml(value, where)[0]
    if value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1:
        return value[1:-1]
    from shardmeter.scenario.yaml_reader import scalar

    return scalar(value)


def _set(document: Document, path: tuple[str, ...], value: Any, where: str) -> None:
    """Set one field, creating mappings on the way."""
    if path[:1] == ("fleet",) and "gpus" in document.data and "fleet" not in document.data:
        document.data["fleet"] = {"islands": [{"gpus": document.data.pop("gpus")}]}
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
                inner[name] = value
            else:
                inner[name] = inner = _opened(inner.get(name), name)
        else:
            field, parent = ".".join(path), ".".join(path[:position])
            says = f"{parent} is {inner!r:.40}, which has no fields"
            raise BadScenario("an override does not apply", [Violation(field=field, says=says, where=where)])
    done: Path = tuple(reached)
    for known in [p for p in document.places if p[: len(done)] == done]:
        del document.places[known]
    document.places[done] = where


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
    if step in names:
        return names.index(step)
    if step.isascii() and step.isdigit() and len(step) < 6 and int(step) < len(items):
        return int(step)
    known = [name for name in names if name] + [str(i) for i in range(min(len(items), 10))]
    way_out = f"there are {', '.join(nearest(step, known, 5))}" if known else "the list is empty"
    says = f"no item {step[:40]!r}"
    raise BadScenario(
        "an override does not apply", [Violation(field=".".join(path), says=says, way_out=way_out, where=where)]
    )
