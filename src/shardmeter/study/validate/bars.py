"""Limits that a report must keep: a YAML file of `path.in.the.json: {max: NUMBER}` or `{min: NUMBER}`.

A segment with dots in it stands in quotes or brackets (`by_source['pytorch/torchtitan'].step_time.mape`); without them,
the longest key that fits is taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, Violation, cut, nearest, shown
from shardmeter.core.files import file_name, read_text
from shardmeter.core.record import record
from shardmeter.scenario.yaml_reader import read_yaml

SEGMENT = re.compile(r"""\.?\[\s*(?:'([^']*)'|"([^"]*)"|([^\]'"]*))\s*\]|\.?'([^']*)'|\.?"([^"]*)"|\.?([^.\[\]'"]+)""")


LARGEST_FILE = 1_000_000
"""Bytes of the largest file of bars."""


@record
class Bar:
    """One limit on one number of the report."""

    path: str
    least: float | None = None
    most: float | None = None
    where: str = ""


@record
class Missed:
    """A limit that is not kept; `value` is None where the report has no number there."""

    bar: Bar
    value: float | None

    def __str__(self) -> str:
        value = "no value" if self.value is None else f"{self.value:.6g}"
        limits = [f"at most {self.bar.most:g}" if self.bar.most is not None else ""]
        limits += [f"at least {self.bar.least:g}" if self.bar.least is not None else ""]
        return f"{self.bar.path}: {value}, allowed {' and '.join(limit for limit in limits if limit)}"


def read_bars(path: Path) -> tuple[Bar, ...]:
    """The limits of a file; every complaint at once."""
    text = read_text(path, "a file of bars", LARGEST_FILE, BadData, (".yaml", ".yml", ".json"))
    content, _ = read_yaml(text, file_name(path))
    if not isinstance(content, Mapping) or not content:
        raise BadData(f"{file_name(path)}: needs lines of `path.in.the.json: {{max: NUMBER}}` or `{{min: NUMBER}}`")
    bad: list[Violation] = []
    bars = [_bar(str(key), value, bad) for key, value in content.items()]
    if bad:
        raise BadData(f"{file_name(path)}: the bars cannot be read", bad)
    return tuple(bar for bar in bars if bar is not None)


def missed(report: Mapping[str, Any], bars: Sequence[Bar]) -> tuple[Missed, ...]:
    """The bars that `report` does not keep. Raises BadData for a path that the report does not have."""
    bad: list[Violation] = []
    found: list[Missed] = []
    for bar in bars:
        try:
            value = look_up(report, bar.path)
        except KeyError as error:
            bad.append(Violation(field=bar.path, says=str(error.args[0])))
            continue
        if not _kept(bar, value):
            found.append(Missed(bar=bar, value=value))
    if bad:
        raise BadData("bars name what the report does not have", bad)
    return tuple(found)


def look_up(report: Mapping[str, Any], path: str) -> float | None:
    """The number at a path, or None for null. Raises KeyError, with the nearest keys, where there is nothing."""
    segments = split(path)
    value: Any = report
    while segments:
        value, segments = _step(value, segments)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise KeyError("is no number in the report")
    return float(value)


def split(path: str) -> list[tuple[str, bool]]:
    """Segments of a path, each with whether it was quoted or bracketed (then it is one key as it stands).

    Raises KeyError for anything that is no segment."""
    if not path.strip():
        raise KeyError("is no path: it is empty")
    found = []
    at = 0
    while at < len(path):
        match = SEGMENT.match(path, at)
        if match is None or (at == 0 and path[0] == "."):
            raise KeyError(f"is no path: {shown(path[at:], 20)} at character {at + 1} names nothing")
        at = match.end()
        *quoted, plain = match.groups()
        literal = next((group for group in quoted if group is not None), None)
        found.append((plain, False) if literal is None else (literal, True))
    return found


def _step(value: Any, segments: list[tuple[str, bool]]) -> tuple[Any, list[tuple[str, bool]]]:
    """What the first segment (or as many plain ones as make up a key with dots) leads to, and the rest."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        name = segments[0][0]
        by_name = [item for item in value if isinstance(item, Mapping) and name in (item.get("id"), item.get("name"))]
        if by_name:
            return by_name[0], segments[1:]
        if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(value):
            return value[int(name)], segments[1:]
        raise KeyError(f"has no item {shown(name)}")
    if not isinstance(value, Mapping):
        raise KeyError(f"{shown(segments[0][0])} lies below a plain value")
    name, quoted = segments[0]
    if quoted:
        if name in value:
            return value[name], segments[1:]
    else:
        plain = [segment for segment, is_quoted in segments if not is_quoted]
        for length in range(len(plain), 0, -1):
            key = ".".join(plain[:length])
            if key in value:
                return value[key], segments[length:]
    close = ", ".join(nearest(name, [str(key) for key in value])) or "nothing"
    raise KeyError(f"has no {shown(name)}; the nearest are: {close}")


def _bar(path: str, value: Any, bad: list[Violation]) -> Bar | None:
    field, way_out = cut(path), "write {max: NUMBER} or {min: NUMBER}"
    try:
        split(path)
    except KeyError as error:
        bad.append(Violation(field=field, says=str(error.args[0])))
        return None
    limits = dict(value) if isinstance(value, Mapping) else {}
    if not limits or set(limits) - {"max", "min"}:
        what = ", ".join(cut(str(key)) for key in limits) or shown(value)
        bad.append(Violation(field=field, says=f"is {what}", way_out=way_out))
        return None
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
            bad.append(Violation(field=field, says=f"{name} is {shown(limit)}, no finite number", way_out=way_out))
            return None
    least, most = limits.get("min"), limits.get("max")
    if least is not None and most is not None and least > most:
        says = f"min {least:g} is above max {most:g}: no number keeps both"
        bad.append(Violation(field=field, says=says, way_out="swap them"))
        return None
    return Bar(path=path, least=None if least is None else float(least), most=None if most is None else float(most))


def _kept(bar: Bar, value: float | None) -> bool:
    if value is None:
        return False
    return (bar.most is None or value <= bar.most) and (bar.least is None or value >= bar.least)
