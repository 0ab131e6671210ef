"""Published efficiencies of training over several sites: one row each, with what was said and what a reader has to guess."""

from __future__ import annotations

import csv
from functools import cache

from shardmeter import data
from shardmeter.core.quantity import quantity
from shardmeter.core.record import record

FILE = "cross_site.csv"
ONE_BUILDING, EACH_ALONE = "one building", "each alone"
"""What an efficiency is held against: the same GPUs under one roof; the sum of what the sites do by themselves."""


@record
class Trial:
    """One published efficiency. What is not said is spanned: of `models` … `rtts` any may have been it."""

    id: str
    who: str
    said: str
    unsaid: str
    figure: str
    """As published."""
    kind: str
    """claimed or measured."""
    low: float
    high: float
    """What the figure leaves open: its rounding, or anything where it says at least."""
    against: str
    models: tuple[str, ...]
    accelerators: tuple[str, ...]
    """Of unlike sites `A+B`."""
    gpus: tuple[int, ...]
    """Of both sites together."""
    rtts: tuple[float, ...]
    """Seconds."""
    lines: tuple[str, ...]
    """Words of `worlds.LINES`."""
    oversubscription: float | None
    step: float | None
    """Seconds of an iteration across, where they were published."""
    source: str


@cache
def trials() -> tuple[Trial, ...]:
    """The rows that ship, in the order of the file."""
    with data.open_text(FILE) as file:
        return tuple(_trial(line) for line in csv.DictReader(file))


def _trial(line: dict[str, str]) -> Trial:
    words = ("id", "who", "said", "unsaid", "figure", "kind", "against", "source")
    return Trial(
        **{name: line[name] for name in words},
        low=float(line["low"]),
        high=float(line["high"] or "inf"),
        models=tuple(line["models"].split("|")),
        accelerators=tuple(line["accelerators"].split("|")),
        lines=tuple(line["lines"].split("|")),
        gpus=tuple(int(one) for one in line["gpus"].split("|")),
        rtts=tuple(quantity(one, "time") for one in line["rtts"].split("|")),
        oversubscription=float(line["oversubscription"]) if line["oversubscription"] else None,
        step=quantity(line["step"], "time") if line["step"] else None,
    )
