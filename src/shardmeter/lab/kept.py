"""What the files of a folder of results hold, field by field: checked when they are read back, since anybody may have edited them.

JSON as Python writes it: a number that is not finite, as the loss of a training that diverged, becomes null, and a log says where.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from shardmeter.core.errors import Violation, shown

NUMBER, TEXT = "a number", "text"
EACH, NEEDED = "*", "!"
"""A key of a shape that stands for every key; what the key of a field that must be there ends with."""
LARGEST = 1e100
"""Of a number that can be counted with."""
NOT_FINITE = "not_finite"
"""Field of an event that lists those of its fields that were no finite number."""
Kind: TypeAlias = "str | Mapping[str, Kind] | tuple[Kind]"
"""A number or a text; a mapping by fields; a list, as the one kind of all its items. Each may be null, unless it is needed."""

MACHINE: Kind = {"cores": NUMBER, **dict.fromkeys(("cpu", "kernel", "python", "torch", "emulation", "date"), TEXT)}
_ALONE: Kind = {"islands!": (TEXT,), "low_s!": NUMBER, "high_s!": NUMBER, "timed_in": TEXT}
_SYNC: Kind = {"pace!": TEXT, "crossings!": ({"bytes!": NUMBER, "messages!": NUMBER},)}
PREDICTION: Kind = {
    **dict.fromkeys(("predicted_at", "round_s", "inner_step_s", "sync_s", "wire_bytes_round", "period_steps"), NUMBER),
    "alone": (_ALONE,), "predict": {"sync": _SYNC}, "probes": ({"bytes!": NUMBER, "seconds": NUMBER, "wire_bytes": NUMBER},),
}  # fmt: skip
OUTCOME: Kind = {
    **dict.fromkeys(("status", "says", "prediction_sha256", "emulation"), TEXT), "started_at": NUMBER, "ended_at": NUMBER,
    "survivors": (TEXT,), "exit_codes": (NUMBER,), "traffic": {EACH: {EACH: NUMBER}},
}  # fmt: skip
EVENT: Kind = {
    "event!": TEXT, "t!": NUMBER, "says": TEXT, "name": TEXT, "members": (NUMBER,),
    **dict.fromkeys(
        ("round", "step", "seconds", "waited", "bytes", "sent_bytes", "loss", "value", "expected", "error", "samples", "peak_memory"), NUMBER
    ),
}  # fmt: skip


def loaded(text: str) -> Any:
    """The value of a text of JSON, numbers that are not finite as null. Raises ValueError for what is none, or nested too deep."""
    try:
        return json.loads(text, parse_constant=lambda _: None, parse_float=_number, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deep") from None


def event(line: str) -> dict[str, Any]:
    """A line of a log; fields that were no finite number are null, and listed in `not_finite`. Raises ValueError for what is none."""
    if not any(word in line for word in ("NaN", "Infinity")):
        found = loaded(line)
    else:
        raw, found = json.loads(line), loaded(line)
        if isinstance(found, dict) and isinstance(raw, dict):
            lost = [key for key, value in raw.items() if isinstance(value, float) and not math.isfinite(value)]
            found |= {NOT_FINITE: lost} if lost else {}
    if not isinstance(found, dict):
        raise ValueError("no mapping")  # noqa: TRY004  (of a text, not of an argument)
    return found


def wrong(data: Any, kind: Kind, path: str = "") -> Iterator[Violation]:
    """Every field that is not of its kind."""
    if data is None:
        return
    if isinstance(kind, str):
        if isinstance(data, bool) or not isinstance(data, str if kind == TEXT else int | float):
            yield Violation(field=path, says=f"wanted {kind}, got {shown(data, 40)}")
    elif isinstance(kind, tuple):
        yield from _items(data, kind[0], path)
    elif not isinstance(data, Mapping):
        yield Violation(field=path, says=f"wanted a mapping, got {shown(data, 40)}")
    else:
        yield from _fields(data, kind, path)


def _items(data: Any, kind: Kind, path: str) -> Iterator[Violation]:
    if not isinstance(data, list):
        yield Violation(field=path, says=f"wanted a list, got {shown(data, 40)}")
        return
    for at, item in enumerate(data):
        if item is None:
            yield Violation(field=f"{path}.{at}", says="is nothing")
        yield from wrong(item, kind, f"{path}.{at}")


def _fields(data: Mapping[str, Any], kind: Mapping[str, Kind], path: str) -> Iterator[Violation]:
    for key, inner in kind.items():
        field = key.removesuffix(NEEDED)
        if key != field and data.get(field) is None:
            yield Violation(field=_at(path, field), says="is not said")
        for name in data if key == EACH else (field,):
            yield from wrong(data.get(name), inner, _at(path, name))


def _at(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _number(text: str) -> float | None:
    value = float(text)
    return value if abs(value) <= LARGEST else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) <= 100 else None
