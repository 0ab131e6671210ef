"""What workers logged, read back: `rank-K.jsonl`, one event a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from shardmeter.core.errors import BadData
from shardmeter.core.files import file_name, read_text
from shardmeter.lab import kept

Event: TypeAlias = Mapping[str, Any]
Logs: TypeAlias = Mapping[int, tuple[Event, ...]]
"""Events by rank, in the order in which they were written."""
LARGEST_LOG = 256_000_000
NAME = re.compile(r"rank-(\d{1,6})\.jsonl")


def logs(folder: Path) -> Logs:
    """The logs of all workers of a run; none where the folder has none. Raises BadData for a line that is no event.

    A last line without an end is that of a worker which was killed while it wrote, and is left out."""
    found: dict[int, tuple[Event, ...]] = {}
    try:
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise BadData(f"{file_name(folder)}: cannot be read ({error.strerror})") from None
    for name in names:
        match = NAME.fullmatch(name)
        if match is not None:
            found[int(match[1])] = _events(folder / name)
    return dict(sorted(found.items()))


def _events(path: Path) -> tuple[Event, ...]:
    text = read_text(path, "the log of a worker", LARGEST_LOG, BadData)
    *lines, _ = text.split("\n")
    made = []
    for number, line in enumerate(lines, 1):
        try:
            event = kept.event(line)
        except ValueError:
            event = {}
        bad = tuple(kept.wrong(event, kept.EVENT))
        if bad:
            raise BadData(f"{file_name(path)}:{number}: no event of a worker", bad)
        made.append(event)
    return tuple(made)


def of(events: tuple[Event, ...], kind: str) -> list[Event]:
    """The events of one kind."""
    return [one for one in events if one["event"] == kind]


def numbers(events: list[Event], name: str) -> list[float]:
    """The numbers of one field, where there are any."""
    return [float(one[name]) for one in events if _is_number(one.get(name))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
