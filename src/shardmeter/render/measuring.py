"""The page of a measurement: the rows it gives, how well they meet what was timed, and every kernel against the engine's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Row, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Scale

Answer = Mapping[str, Any]
SHOWN = (
    ("accelerators", "peak_", "peak"), ("accelerators", "matmul_share_", "share that products reach"),
    ("accelerators", "memory_bandwidth", "memory"), ("accelerators", "memory_share", "share of it that streams reach"),
    ("attention", "forward", "attention's share, forward"), ("attention", "backward", "attention's share, backward"),
    ("accelerators", "attention_half", "sequence at half of attention's rate"),
    ("stacks", "traffic_factor", "traffic of pointwise kernels, times"), ("stacks", "launch_overhead", "launch of a kernel"),
    ("stacks", "step_overhead", "an optimizer step of nothing"), ("accelerators", "scale_up_bandwidth", "between ranks"),
)  # fmt: skip
"""What the page shows of the rows: (table, column or its beginning, label)."""
MOST_SIZES = 40
"""Kernels of the table; the JSON and the CSV have all."""


def title(answer: Any) -> str:
    """`AMD EPYC, 1 thread · torch 2.13.0 · 2026-11-30 · 162 timings in 91 s`."""
    one = answer.measured
    threads = f", {one.threads} thread{'' if one.threads == 1 else 's'}" if one.threads else ""
    clock = " of its own time" if one.clock == "cpu" else ""
    return (
        f"{one.device}{threads} · {one.software} · {one.date} · {len(one.timings)} timings in {one.took:.0f} s{clock}"
    )


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `measure` JSON as a document. `short` leaves out single sizes and what was assumed."""
    sections: list[Section] = [_rows(answer), _errors(answer)]
    if not short:
        sections.append(_kernels(answer["kernels"]))
    sections.append(remarks(answer, short=short))
    name, stack = answer["rows"]["accelerators"]["name"], answer["rows"]["stacks"]["name"]
    error = answer["errors"]["matmul"]
    return Document(
        title=heading,
        verdict=f"Rows {name} and {stack}: products are met to {100 * error:.0f} % in the median of {_count(answer, 'matmul')} shapes.",
        sure=not answer["warnings"], sections=tuple(sections),
        data={**answer, "figures": [figure.to_dict() for figure in figures(answer)]},
        flat=tuple(_flat(one) for one in answer["kernels"]),
    )  # fmt: skip


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The rate of products by their size, and every kernel against what the rows say."""
    return (_rates(answer), _met(answer))


def _rows(answer: Answer) -> Facts:
    bounds = {**answer["intervals"]["accelerators"], **answer["intervals"]["stacks"]}
    level = answer["intervals"]["level"]
    facts = []
    for table, begins, label in SHOWN:
        for column, value in answer["rows"][table].items():
            whole = column == begins or (
                begins.endswith("_") and column.startswith(begins) and column != "matmul_share_basis"
            )
            if not (whole and value) or (begins == "scale_up_bandwidth" and not answer["rows"][table]["scale_up"]):
                continue
            of = f" ({column[len(begins) :]})" if begins.endswith("_") else ""
            span = bounds.get(column)
            size, _, unit = str(value).partition(" ")
            note = "" if span is None else f"{100 * level:.0f} %: {_cell(span[0], unit)} to {_cell(span[1], unit)}"
            facts.append(Fact(label=label + of, value=_cell(float(size), unit), note=note))
    return Facts(title="Rows for the catalog", facts=tuple(facts))


def _cell(value: float, unit: str) -> str:
    """A number of a row for people: three digits, scaled where it has a unit."""
    return cells.text(value, unit) if unit else f"{value:.3g}"


def _errors(answer: Answer) -> Table:
    columns = (
        Column(key="kind", title="kernels"), Column(key="count", title="timed"),
        Column(key="error", title="missed by (median)", unit="%"), Column(key="worst", title="worst", unit="%"),
    )  # fmt: skip
    rows: list[Row] = [
        {"kind": kind, "count": _count(answer, kind), "error": error,
         "worst": max((one["error"] for one in answer["kernels"] if one["kind"] == kind), key=abs)}
        for kind, error in answer["errors"].items()
    ]  # fmt: skip
    return Table(
        title="How well the engine's formulas meet the timings with these rows", columns=columns, rows=tuple(rows)
    )


def _kernels(kernels: Sequence[Answer]) -> Table:
    columns = (
        Column(key="kernel", title="kernel"), Column(key="sizes", title="sizes"), Column(key="dtype", title="format", drop=1),
        Column(key="seconds", title="timed", unit="s"), Column(key="spread", title="5 to 95 %", drop=2),
        Column(key="predicted", title="by the rows", unit="s"), Column(key="error", title="error", unit="%"),
    )  # fmt: skip
    order = sorted(kernels, key=lambda one: -one["seconds"])[:MOST_SIZES]
    rows: list[Row] = [
        {**{key: one[key] for key in ("dtype", "seconds", "predicted", "error")}, "kernel": _name(one), "sizes": _sizes(one),
         "spread": f"{cells.text(one['low'], 's')} to {cells.text(one['high'], 's')}"}
        for one in order
    ]  # fmt: skip
    rest = len(kernels) - len(order)
    return Table(title="Kernels, the longest first", columns=columns, rows=tuple(rows),
                 caption=f"{rest} more in the JSON." if rest else "")  # fmt: skip


def _rates(answer: Answer) -> Figure:
    lines = []
    for dtype in dict.fromkeys(one["dtype"] for one in answer["kernels"] if one["kind"] == "matmul"):
        own = sorted(
            (one for one in answer["kernels"] if one["kind"] == "matmul" and one["dtype"] == dtype), key=_flops
        )
        x = tuple(_flops(one) for one in own)

        def rate(key: str, own: Sequence[Answer] = own) -> tuple[float, ...]:
            return tuple(_flops(one) / one[key] for one in own)

        lines.append(
            Line(label=f"{dtype}, timed", x=x, y=rate("seconds"), low=rate("high"), high=rate("low"), style="points")
        )
        lines.append(Line(label=f"{dtype}, by the row", x=x, y=rate("predicted"), style="cloud"))
    best = max((y for line in lines for y in line.y if y is not None), default=0.0)
    return Figure(
        slug="products", title=f"Products reach up to {cells.text(best, 'FLOP/s')}", x=Scale(title="operations of the product", unit="FLOP", log=True),
        y=Scale(title="rate", unit="FLOP/s"), lines=tuple(lines),
        caption=("Every point is one of the three products of a linear layer, with the 5th and 95th per cent of its runs.",),
    )  # fmt: skip


def _met(answer: Answer) -> Figure:
    lines = []
    for kind in answer["errors"]:
        own = [one for one in answer["kernels"] if one["kind"] == kind]
        lines.append(
            Line(
                label=kind,
                x=tuple(one["seconds"] for one in own),
                y=tuple(one["predicted"] for one in own),
                style="points",
            )
        )
    ends = tuple(pick(one["seconds"] for one in answer["kernels"]) for pick in (min, max))
    lines.append(Line(label="as timed", x=ends, y=ends, style="dashed"))
    worst = max(answer["errors"].items(), key=lambda one: one[1])
    return Figure(
        slug="met", title=f"The rows miss products by {100 * answer['errors']['matmul']:.0f} %, {worst[0]} by {100 * worst[1]:.0f} % in the median",
        x=Scale(title="timed", unit="s", log=True), y=Scale(title="by the engine with these rows", unit="s", log=True), lines=tuple(lines),
    )  # fmt: skip


def _flops(one: Answer) -> float:
    return 2.0 * float(one["sizes"]["tokens"] * one["sizes"]["inputs"] * one["sizes"]["outputs"])


def _count(answer: Answer, kind: str) -> int:
    return sum(one["kind"] == kind for one in answer["kernels"])


def _name(one: Answer) -> str:
    return " ".join(
        filter(None, (one["kind"] if one["kind"] != "pointwise" else "", one["name"], one["phase"].replace("_", " ")))
    )


def _sizes(one: Answer) -> str:
    return " × ".join(f"{size:,}" for size in one["sizes"].values())


def _flat(one: Answer) -> Row:
    return {**{key: one[key] for key in ("kind", "name", "phase", "dtype")}, "sizes": _sizes(one),
            **{key: one[key] for key in ("seconds", "low", "high", "runs", "predicted", "error")}}  # fmt: skip
