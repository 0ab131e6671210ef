"""Limits that a report must keep: a YAML file of `path.in.the.json: {max: NUMBER}` or `{min: NUMBER}`.

A segment with dots in it stands in quotes or brackets (`by_source['pytorch/torchtitan'].step_time.mape`); without them,
the longest key that fits is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, Violation, nearest
from shardmeter.core.record import record
from shardmeter.scenario.yaml_reader import read_yaml

SEGMENT = re.compile(r"""\.?\[\s*(?:'([^']*)'|"([^"]*)"|([^\]'"]*))\s*\]|\.?'([^']*)'|\.?"([^"]*)"|\.?([^.\[\]'"]+)""")


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
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{path}: cannot be read ({type(error).__name__})") from None
    content, _ = read_yaml(text, path.name)
    if not isinstance(content, Mapping):
        raise BadData(f"{path}: needs lines of `path.in.the.json: {{max: NUMBER}}` or `{{min: NUMBER}}`")
    bad: list[Violation] = []
    bars = [_bar(str(key), value, bad) for key, value in content.items()]
    if bad:
        raise BadData(f"{path}: the bars cannot be read", bad)
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
    """Segments of a path, each with whether it was quoted or bracketed (then it is one key as it stands)."""
    found = []
    for match in SEGMENT.finditer(path):
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
        if name.isdigit() and int(name) < len(value):
            return value[int(name)], segments[1:]
        raise KeyError(f"has no item {name!r}")
    if not isinstance(value, Mapping):
        raise KeyError(f"{segments[0][0]!r} lies below a plain value")
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
    raise KeyError(f"has no {name!r}; the nearest are: {close}")


def _bar(path: str, value: Any, bad: list[Violation]) -> Bar | None:
    numbers = isinstance(value, Mapping) and all(
        isinstance(limit, int | float) and not isinstance(limit, bool) for limit in value.values()
    )
    if not numbers or not value or set(value) - {"max", "min"}:
        bad.append(Violation(field=path, says=f"is {value!r}", way_out="write {max: NUMBER} or {min: NUMBER}"))
        return None
    least, most = value.get("min"), value.get("max")
    return Bar(path=path, least=None if least is None else float(least), most=None if most is None else float(most))


def _kept(bar: Bar, value: float | None) -> bool:
    if value is None:
        return False
    return (bar.most is None or value <= bar.most) and (bar.least is None or value >= bar.least)
