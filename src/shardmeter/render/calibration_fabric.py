"""The page of a calibration from benchmarks: numbers before and after with their intervals, rates by size, what was left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
MOST_DRAWN = 6
"""Curves that have a figure; the table has all."""
SECONDS = ("latency", "step")
"""Ends of the columns that hold seconds; the others hold shares."""
COLUMNS = ("kind", "column", "means", "before", "value", "low", "high", "told")


def title(answer: Answer) -> str:
    """What was measured, in one line."""
    between = f" and {answer['fabric']}" if answer["fabric"] else ""
    return f"links of {answer['accelerator']}{between}, from benchmarks of collectives"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """The dictionary of a `FabricFit` as a document. `short` leaves out what was assumed."""
    drawn = figures(answer)
    sections: list[Section] = [_fit(answer), _numbers(answer), _curves(answer), *drawn[:1]]
    sections.append(Notes(title="Not used", lines=tuple(f"{one['what']}: {one['why']}" for one in answer["left"])))
    if not short:
        sections.append(Notes(title="Warnings", lines=tuple(answer["warnings"])))
    sections.append(remarks(answer, short=short))
    return Document(
        title=heading or title(answer), verdict=_verdict(answer), sections=tuple(sections), columns=COLUMNS,
        data={**answer, "figures": [figure.to_dict() for figure in drawn]}, flat=tuple(answer["numbers"]),
    )  # fmt: skip


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The rate of every curve over its size: measured, with the rows of the catalog, and after calibration with its band."""
    return tuple(_rates(at, curve, answer["level"]) for at, curve in enumerate(answer["curves"][:MOST_DRAWN]))


def _verdict(answer: Answer) -> str:
    told = [one for one in answer["numbers"] if one["told"]]
    if not told:
        return f"The {answer['rows']} rows tell none of the numbers better than the catalog does."
    return (f"{answer['rows']} rows tell {len(told)} of {len(answer['numbers'])} numbers: times are off by {100 * answer['error_after']:.0f} % "
            f"in the middle, by {100 * answer['error_before']:.0f} % with the rows of the catalog.")  # fmt: skip


def _fit(answer: Answer) -> Facts:
    return Facts(
        title="Fit",
        facts=(
            Fact(label="median error before", value=answer["error_before"], unit="%", note="of times, with the catalog's rows"),
            Fact(label="median error after", value=answer["error_after"], unit="%", note="of the same rows"),
            Fact(label="scatter of the rows", value=answer["noise"], unit="%", note="about their curves"),
            Fact(label="rows worth one", value=f"{answer['rows_alike']:.1f}", note="neighbouring sizes miss the curve alike"),
        ),
    )  # fmt: skip


def _numbers(answer: Answer) -> Table:
    rows = [
        {
            "column": one["column"], "before": _size(one, "before"), "value": _size(one, "value") if one["told"] else "as before",
            "interval": f"{_size(one, 'low')} to {_size(one, 'high')}" if one["told"] else "not told by these rows",
            "means": one["means"],
        }
        for one in answer["numbers"]
    ]  # fmt: skip
    return Table(
        title="Numbers", rows=tuple(rows),
        columns=(
            Column(key="column", title="column"), Column(key="before", title="before"), Column(key="value", title="after"),
            Column(key="interval", title=f"{100 * answer['level']:.0f} % interval"), Column(key="means", title="what it is", wide=True, drop=1),
        ),
    )  # fmt: skip


def _size(one: Answer, key: str) -> str:
    is_time = any(part in one["column"] for part in SECONDS)
    return f"{one[key] * 1e6:.3g} us" if is_time else f"{one[key]:.3f}"


def _curves(answer: Answer) -> Table:
    rows = tuple(
        {
            "said": curve["said"],
            "sizes": len(curve["bytes"]),
            "before": _off(curve, "before"),
            "after": _off(curve, "after"),
        }
        for curve in answer["curves"]
    )
    return Table(
        title="Tables", rows=rows, caption="median distance of the times from the measured ones",
        columns=(
            Column(key="said", title="collective"), Column(key="sizes", title="sizes"),
            Column(key="before", title="before", unit="%"), Column(key="after", title="after", unit="%"),
        ),
    )  # fmt: skip


def _off(curve: Answer, key: str) -> float:
    return float(np.median(np.abs(np.asarray(curve[key]) / np.asarray(curve["seconds"]) - 1.0)))


def _rates(at: int, curve: Answer, level: float) -> Figure:
    sizes = tuple(curve["bytes"])

    def rate(key: str) -> tuple[float, ...]:
        return tuple(size / seconds for size, seconds in zip(sizes, curve[key], strict=True))

    largest = rate("seconds")[-1]
    return Figure(
        slug=f"collective-{at + 1}",
        title=f"{curve['said']}: off by {100 * _off(curve, 'after'):.0f} % after calibration, by {100 * _off(curve, 'before'):.0f} % before",
        x=Scale(title="size", unit="B", log=True),
        y=Scale(title="size over time", unit="B/s", log=True),
        lines=(
            Line(label="measured", x=sizes, y=rate("seconds"), style="points"),
            Line(label="the catalog's rows", x=sizes, y=rate("before"), style="dashed"),
            Line(label="calibrated", x=sizes, y=rate("after"), low=rate("high"), high=rate("low")),
        ),
        marks=(Mark(says="largest size", x=sizes[-1], y=largest),),
        caption=(f"Band: {100 * level:.0f} % of what the numbers may be; single rows scatter more.",),
    )
