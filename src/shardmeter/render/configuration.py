"""The page of a Hugging Face config.json: the model that was read, and what was understood, assumed and ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Section, Table

Answer = Mapping[str, Any]


def document(answer: Answer) -> Document:
    """The answer of `Reading.answer` as a document."""
    model = answer["model"]
    sections = (
        _model(model),
        _table("Understood", ("key", "value"), [(key, _brief(value)) for key, value in answer["understood"].items()]),
        _table("Assumed", ("key", "value", "why"), [
            (key, _brief(said["value"]), said["why"]) for key, said in answer["assumed"].items()
        ]),
        _table("Ignored", ("why", "keys"), [(group, ", ".join(found)) for group, found in answer["ignored"].items()]),
        _notes("Keys that nothing here knows", answer["unknown"]),
        _notes("Noted", answer["notes"]),
    )  # fmt: skip
    return Document(
        title=model["name"],
        verdict=f"{answer['source']}, read as {answer['model_type']}",
        sections=tuple(section for section in sections if section is not None),
        data=answer,
        flat=({"name": model["name"], "model_type": answer["model_type"], **dict(_flat(model["fields"])),
               "parameters": model["parameters"], "active_parameters": model["active_parameters"]},),
    )  # fmt: skip


def _model(model: Answer) -> Facts:
    counts = [Fact(label="parameters", value=f"{model['parameters']:,.0f}")]
    if model["active_parameters"] != model["parameters"]:
        counts.append(Fact(label="active parameters", value=f"{model['active_parameters']:,.0f}"))
    labels = {"vocab": "vocab (classes)"} if model["fields"].get("family") in ("vision", "diffusion") else {}
    said = [Fact(label=labels.get(key, key), value=_brief(value)) for key, value in _flat(model["fields"])]
    return Facts(title="The model (keys of a scenario's model:)", facts=(*counts, *said))


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Section | None:
    if not rows:
        return None
    shown = tuple(Column(key=key, title=key, wide=at > 0) for at, key in enumerate(columns))
    return Table(title=title, columns=shown, rows=tuple(dict(zip(columns, row, strict=True)) for row in rows))


def _notes(title: str, lines: list[str]) -> Section | None:
    return Notes(title=title, lines=tuple(lines)) if lines else None


def _brief(value: Any) -> str:
    """A value of a config.json, or of a model, in a few words."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float | int):
        return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)}"
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"


LONGEST = 60
"""Characters of a text that are shown."""


def _flat(fields: Answer, before: str = "") -> list[tuple[str, Any]]:
    """Fields with those of the image tower among them: `vision.hidden`."""
    found: list[tuple[str, Any]] = []
    for key, value in fields.items():
        found += _flat(value, f"{key}.") if isinstance(value, Mapping) else [(f"{before}{key}", value)]
    return found
