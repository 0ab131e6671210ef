"""The page of a calibration: how far predictions were off and are, what became of the numbers, which runs do not fit in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Scale

Answer = Mapping[str, Any]
UNITS = ("overhead", "wait")
"""Ends of the numbers that are seconds; the others are ratios."""


def title(answer: Answer) -> str:
    """What was calibrated, in one line."""
    runs = len(answer["runs"])
    return f"{answer['from']} calibrated on {runs} run{'s' * (runs > 1)} → {answer['stack']}"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `calibrate` JSON as a document. `short` leaves out what was assumed."""
    drawn = figures(answer)
    sections: list[Section] = [_facts(answer), _runs(answer), _numbers(answer), remarks(answer, short=short)]
    return Document(
        title=heading or title(answer), verdict=_verdict(answer), sections=tuple(sections),
        data={**answer, "figures": [figure.to_dict() for figure in drawn]}, flat=tuple(_flat(answer)),
    )  # fmt: skip


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Every run measured and predicted; every number before and after, over what it was."""
    runs = answer["runs"]
    places = tuple(float(at) for at in range(len(runs)))
    before, after = (tuple(run[f"error_{when}"] for run in runs) for when in ("before", "after"))
    errors = Figure(
        slug="runs",
        title=f"{answer['stack']}: runs are off by {100 * _mean(after):.1f} % on average, by {100 * _mean(before):.1f} % before",
        x=Scale(title="run", labels=tuple(run["run"] for run in runs)), y=Scale(title="predicted over measured, less one", unit="%"),
        lines=(
            Line(label="before", x=_aside(places, 0), y=before, style="points"),
            Line(label="after", x=_aside(places, 1), y=after, style="points"),
        ),
    )  # fmt: skip
    numbers = [one for one in answer["numbers"] if one["before"] > 0.0]
    at = tuple(float(place) for place in range(len(numbers)))
    moved = Figure(
        slug="numbers", title=_moved_most(answer["stack"], numbers),
        x=Scale(title="number", labels=tuple(one["number"] for one in numbers)),
        y=Scale(title="over the value before", log=True),
        lines=tuple(
            Line(
                label=when, x=_aside(at, side), y=tuple(one[when] / one["before"] for one in numbers), style="points",
                low=tuple(one[f"{when}_interval"][0] / one["before"] for one in numbers),
                high=tuple(one[f"{when}_interval"][1] / one["before"] for one in numbers),
            )
            for side, when in enumerate(("before", "after"))
        ),
        caption=(f"Bars hold {100 * answer['level']:.0f} %.",),
    )  # fmt: skip
    return errors, moved


def _aside(places: tuple[float, ...], side: int) -> tuple[float, ...]:
    """Places of one of two lines that stand side by side."""
    return tuple(place + (0.12 if side else -0.12) for place in places)


def _moved_most(stack: str, numbers: Sequence[Answer]) -> str:
    """The number that is furthest from where it was, and by how much."""
    if not numbers:
        return f"{stack}: no number is other than it was"
    most = max(numbers, key=lambda one: abs(math.log(max(one["after"], 1e-9) / one["before"])))
    return f"{stack}: {most['number']} moves most, to {most['after'] / most['before']:.2f} times what it was"


def _mean(errors: tuple[float, ...]) -> float:
    return plain_sum(map(abs, errors)) / len(errors)


def _verdict(answer: Answer) -> str:
    before, after = (_mean(tuple(run[f"error_{when}"] for run in answer["runs"])) for when in ("before", "after"))
    low, high = answer["step_time_factors_after"]
    return (
        f"The runs are off by {100 * after:.1f} % after calibration, by {100 * before:.1f} % before; "
        f"{100 * answer['level']:.0f} % of runs like them take {low:.2f} to {high:.2f} of what is predicted."
    )


def _facts(answer: Answer) -> Facts:
    was, now = answer["step_time_factors_before"], answer["step_time_factors_after"]
    facts = [
        Fact(label="step time over predicted", value=f"{now[0]:.2f} to {now[1]:.2f}", note="" if was is None else f"before: {was[0]:.2f} to {was[1]:.2f}"),
        Fact(label="what all runs share", value=answer["offset"], unit="%", note="longer than the numbers alone explain; folded into them"),
    ]  # fmt: skip
    return Facts(title="Calibration", facts=tuple(facts))


def _runs(answer: Answer) -> Table:
    columns = (
        Column(key="run", title="run"), Column(key="measured_s", title="measured", unit="s"),
        Column(key="error_before", title="off before", unit="%"), Column(key="error_after", title="off after", unit="%"),
        Column(key="bad_probability", title="bad row", unit="%", drop=1),
    )  # fmt: skip
    return Table(title="Runs", columns=columns, rows=tuple(answer["runs"]))


def _numbers(answer: Answer) -> Table:
    columns = tuple(Column(key=key, title=key) for key in ("number", "before", "after"))
    columns += (
        Column(key="between", title=f"{100 * answer['level']:.0f} % after"),
        Column(key="was", title="before that", drop=1),
    )
    return Table(title="Numbers of the stack", columns=columns, rows=tuple(map(_told, answer["numbers"])))


def _told(one: Mapping[str, Any]) -> dict[str, str]:
    unit = "s" if one["number"].endswith(UNITS) else ""

    def span(ends: list[float]) -> str:
        return " to ".join(cells.text(end, unit) for end in ends)

    return {
        "number": one["number"], "before": cells.text(one["before"], unit), "after": cells.text(one["after"], unit),
        "between": span(one["after_interval"]), "was": span(one["before_interval"]),
    }  # fmt: skip


def _flat(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"number": one["number"], "before": one["before"], "after": one["after"], "low": one["after_interval"][0], "high": one["after_interval"][1]}
        for one in answer["numbers"]
    ]  # fmt: skip
