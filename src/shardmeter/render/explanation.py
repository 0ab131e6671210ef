"""The page of an explanation: every formula call of the run, grouped by formula, equal calls folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardmeter.core.formula import REGISTRY, Step
from shardmeter.render import cells
from shardmeter.render.document import Document, Notes, Row


def document(answer: Mapping[str, Any], steps: Iterable[Step], title: str = "", term: str = "") -> Document:
    """The trace of a run; `term` keeps the formulas whose name or arguments hold that text."""
    folded = fold(steps)
    kept = [call for call in folded if not term or matches(call, term)]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for call in kept:
        groups.setdefault(call["formula"], []).append(call)
    return Document(
        title=title,
        verdict=f"{sum(call['times'] for call in kept)} calls of {len(groups)} formulas",
        sections=tuple(
            Notes(title=_title(name), lines=tuple(_line(call) for call in calls)) for name, calls in groups.items()
        ),
        data={**answer, "steps": kept},
        flat=tuple(_flat(call) for call in kept),
    )


def fold(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Equal calls become one with a count, at the place of the first."""
    folded: dict[str, dict[str, Any]] = {}
    for step in steps:
        key = f"{step.formula}({step.arguments!r})={step.value!r}"
        if key in folded:
            folded[key]["times"] += 1
        else:
            folded[key] = {
                "formula": step.formula,
                "arguments": dict(step.arguments),
                "value": step.value,
                "units": _units(step.formula),
                "cite": step.cite,
                "times": 1,
            }
    return list(folded.values())


def matches(call: Mapping[str, Any], term: str) -> bool:
    """Whether a call has to do with a term: the text is in its name or in one of its texts."""
    wanted = term.lower()
    texts = [call["formula"], *(value for value in call["arguments"].values() if isinstance(value, str))]
    return any(wanted in text.lower().replace("_", " ") or wanted in text.lower() for text in texts)


def _units(name: str) -> dict[str, str]:
    return REGISTRY[name].units if name in REGISTRY else {}


def _title(name: str) -> str:
    """The formula's name and the first line of what it says about itself."""
    says = REGISTRY[name].doc.partition("\n")[0] if name in REGISTRY else ""
    return f"{name}: {says}" if says else name


def _line(call: Mapping[str, Any]) -> str:
    units = call["units"]
    arguments = ", ".join(f"{name}={_text(value, units.get(name, ''))}" for name, value in call["arguments"].items())
    times = f"  ×{call['times']}" if call["times"] > 1 else ""
    value = _text(call["value"], units.get("return", ""))
    return f"{call['formula']}({arguments}) = {value} [{call['cite']}]{times}"


def _text(value: Any, unit: str) -> str:
    if value is None or isinstance(value, str | bool | int | float):
        return cells.text(value, "" if unit == "1" else unit)
    if hasattr(value, "ndim") and value.ndim == 0:
        return _text(float(value), unit)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(item, unit) for item in value)}]"
    return f"<{type(value).__name__}>"


def _flat(call: Mapping[str, Any]) -> Row:
    units = call["units"]
    arguments = "; ".join(f"{name}={_text(value, units.get(name, ''))}" for name, value in call["arguments"].items())
    value = call["value"]
    return {
        "formula": call["formula"],
        "arguments": arguments,
        "value": value if isinstance(value, str | bool | int | float) else _text(value, ""),
        "unit": units.get("return", ""),
        "cite": call["cite"],
        "times": call["times"],
    }
