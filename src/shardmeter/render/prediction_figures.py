"""The pictures of a prediction: where a step goes, and what fills the memory of the fullest GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Of a `predict` JSON: the ledger, memory."""
    return tuple(made for made in (_ledger(answer), memory(answer)) if made is not None)


def _ledger(answer: Answer) -> Figure | None:
    """Exposed seconds by term, those hidden behind compute beside them."""
    rows = [one for one in answer["ledger"] if one["seconds"] or one["hidden_seconds"]]
    if not rows:
        return None
    lines = [_bars("exposed: they add to the step", [one["seconds"] for one in rows])]
    if any(one["hidden_seconds"] for one in rows):
        lines.append(_bars("hidden behind compute", [one["hidden_seconds"] for one in rows]))
    bottleneck = answer["bottleneck"]
    return Figure(
        slug="ledger",
        title=f"Where a step goes: {bottleneck['cause']} takes {100 * bottleneck['cause_share']:.0f} %",
        x=Scale(title="seconds of a step", unit="s"),
        y=Scale(title="", labels=tuple(one["term"] for one in rows)),
        lines=tuple(lines),
    )


def memory(answer: Answer) -> Figure | None:
    """GiB by term; the peak that they add to stands beside the limit in the title."""
    held = answer["memory"]
    rows = [one for one in held["terms"] if one["gib"]]
    if not rows:
        return None
    verdict = "fits" if answer["fits"] else "does not fit"
    return Figure(
        slug="memory",
        title=f"Memory of the fullest GPU at its peak: {held['peak_gib']:.1f} of {held['limit_gib']:.1f} GiB, {verdict}",
        x=Scale(title="size", unit="GiB"),
        y=Scale(title="", labels=(*(one["term"] for one in rows), "peak: all of them")),
        lines=(_bars("at the peak", [*(one["gib"] for one in rows), held["peak_gib"]]),),
        marks=(Mark(says=f"limit: {held['limit_gib']:.1f} GiB", x=held["limit_gib"]),),
    )


def _bars(label: str, values: Sequence[float | None]) -> Line:
    return Line(
        label=label,
        x=tuple(value or 0.0 for value in values),
        y=tuple(float(place) for place in range(len(values))),
        style="bars",
    )
