"""The page of transitions: what rules, every crossing with what lies on either side of it, and figures of regimes along and over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.quantity import show
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks
from shardmeter.render.figure import Field, Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
LEAST_DRAWN = 0.03
"""Share of the step that a regime reaches somewhere, or it is not drawn."""
BITS = 8.0
FITS_NOT, FITS = "does not fit", "ok"
MOST_MARKED = 5
"""Crossings marked in one figure, the nearest to the scenario's own value first."""


def document(answer: Answer, title: str = "", *, short: bool = False) -> Document:
    """A `transitions` JSON as a document. `short` leaves out what was assumed."""
    drawn = figures(answer)
    sections: list[Section] = [_own(answer)]
    sections += [_crossings(line) for line in answer["lines"]]
    if answer["map"] is not None or len(answer["lines"]) == 1:
        sections += drawn[:1]
    sections.append(Notes(title="Regimes", lines=tuple(f"{name}: {text}" for name, text in answer["regimes"].items())))
    sections.append(remarks(answer, short=short))
    return Document(
        title=title, verdict=_verdict(answer), sections=tuple(sections),
        data={**answer, "figures": [figure.to_dict() for figure in drawn]}, flat=_flat(answer),
        columns=COLUMNS,
    )  # fmt: skip


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The map, where two axes were asked for, and a figure of every axis of numbers."""
    made = [] if answer["map"] is None else [_map(answer)]
    made += [
        _along(line)
        for line in answer["lines"]
        if line["values"] and not isinstance(line["values"][0], str) and _legal(line)
    ]
    return tuple(made)


def _verdict(answer: Answer) -> str:
    own = answer["own"]
    found = [line["says"] for line in answer["lines"] if line["crossings"]]
    ends = f"; {found[0]}" if found else "; nothing changes that along the axes"
    return f"{own['regime']} rules the step ({100 * own['share']:.0f} %){ends}."


def _own(answer: Answer) -> Facts:
    own = answer["own"]
    ratio = own["communication_s"] / own["compute_s"] if own["compute_s"] else None
    shares = ", ".join(
        f"{name} {100 * share:.1f} %" for name, share in sorted(own["shares"].items(), key=lambda one: -one[1]) if share >= 0.001
    )  # fmt: skip
    return Facts(
        title="The scenario",
        facts=(
            Fact(label="step", value=own["step_time_s"], unit="s", note=shares),
            Fact(
                label="communication ÷ compute", value=None if ratio is None else f"{ratio:.2f}",
                note="hidden and exposed; above 1 it cannot be hidden",
            ),
            Fact(label="exposed communication", value=own["exposed_share"], unit="%", note="of the step"),
            Fact(label="tokens/s", value=own["tokens_per_s"]),
        ),
    )  # fmt: skip


def _crossings(line: Answer) -> Section:
    own = "" if line["own"] is None else f" (yours: {_value(line, line['own'])})"
    title = f"Along {line['title']}{own}"
    illegal = [text for text in line["status"] if text not in (FITS, FITS_NOT)]
    skipped = f"{len(illegal)} of {len(line['status'])} values are illegal: {illegal[0]}" if illegal else ""
    if not line["crossings"]:
        return Notes(title=title, lines=tuple(filter(None, (line["says"], skipped))))
    rows: list[Row] = [
        {
            "says": one["says"], "away": None if one["away"] is None else f"{one['away']:.2f} ×",
            "below": f"{one['below']['regime']} {100 * one['below']['share']:.0f} %",
            "above": f"{one['above']['regime']} {100 * one['above']['share']:.0f} %",
            "between": _between(line, one),
        }
        for one in line["crossings"]
    ]  # fmt: skip
    columns = (
        Column(key="says", title="what changes", wide=True),
        Column(key="away", title="from yours"),
        Column(key="below", title="below it", drop=1),
        Column(key="above", title="above it", drop=1),
        Column(key="between", title="evaluated at", drop=2),
    )
    return Table(title=title, columns=columns, rows=tuple(rows), caption=skipped)


def _between(axis: Answer, one: Answer) -> str:
    """The two values that hold a crossing; where they read the same, how far from it they are."""
    low, high = one["below"]["value"], one["above"]["value"]
    texts = _value(axis, low), _value(axis, high)
    return " … ".join(texts) if texts[0] != texts[1] else f"{texts[0]} ± {1e6 * (high - low) / (high + low):.1g} ppm"


def _value(axis: Answer, value: Any) -> str:
    """A value of an axis with its unit."""
    if isinstance(value, str):
        return value
    if axis["unit"]:
        return show(value * (BITS if axis["unit"] == "bit/s" else 1.0), axis["unit"])
    return f"{value:,.0f}" if axis["whole"] else cells.number(value)


COLUMNS = ("field", "kind", "value", "says", "away", "below", "above", "regime_below", "regime_above")
"""Of CSV."""


def _flat(answer: Answer) -> tuple[Row, ...]:
    """A row a crossing."""
    return tuple(
        {
            "field": one["field"], "kind": one["kind"], "value": one["value"], "says": one["says"], "away": one["away"],
            "below": one["below"]["value"], "above": one["above"]["value"], "regime_below": one["below"]["regime"],
            "regime_above": one["above"]["regime"],
        }
        for line in answer["lines"] for one in line["crossings"]
    )  # fmt: skip


# ---- figures ---------------------------------------------------------------------------------------------------------------------


LONG = {"H": "H, inner steps of a round", "P": "P, fragments of the parameters", "tau": "tau, steps that a fragment may be late",
        "bits": "bits of a value on the wire"}  # fmt: skip
"""Letters of methods as titles of an axis."""


def _scale(axis: Answer) -> Scale:
    if axis["values"] and isinstance(axis["values"][0], str):
        return Scale(title=axis["title"], labels=tuple(axis["values"]))
    return Scale(title=LONG.get(axis["title"]) or str(axis["title"]), unit=axis["unit"], log=axis["log"])


def _at(axis: Answer, value: Any) -> float | None:
    """Where a value lies on the figure's axis."""
    if isinstance(value, str):
        return float(axis["values"].index(value)) if value in axis["values"] else None
    return None if value is None else value * (BITS if axis["unit"] == "bit/s" else 1.0)


def _places(axis: Answer) -> tuple[float, ...]:
    return tuple(place for value in axis["values"] if (place := _at(axis, value)) is not None)


def _map(answer: Answer) -> Figure:
    """Which regime rules at every point; what does not fit is a region of its own."""
    found = answer["map"]
    names = [name for name in answer["regimes"] if any(name in row for row in found["regime"])]
    labels = (*names, FITS_NOT) if any(FITS_NOT in row for row in found["status"]) else tuple(names)
    order = [sorted(range(len(found[axis]["values"])), key=lambda at: _places(found[axis])[at]) for axis in ("x", "y")]
    rows = []
    for row in order[1]:
        texts = [(found["regime"][row][at], found["status"][row][at]) for at in order[0]]
        rows.append(tuple(
            None if regime is None else float(labels.index(FITS_NOT if status == FITS_NOT else regime)) for regime, status in texts
        ))  # fmt: skip
    x, y = (tuple(_places(found[axis])[at] for at in places) for axis, places in zip(("x", "y"), order, strict=True))
    own = _at(found["x"], found["x"]["own"]), _at(found["y"], found["y"]["own"])
    inside = all(
        place is not None and min(places) <= place <= max(places) for place, places in zip(own, (x, y), strict=True)
    )
    away = () if inside or None in own else ("Your scenario lies outside of this map.",)
    says = [line["says"] for line in answer["lines"] if line["crossings"]]
    return Figure(
        slug="regimes", title=says[0][:1].upper() + says[0][1:] if says else f"{answer['own']['regime']} rules",
        x=_scale(found["x"]), y=_scale(found["y"]),
        field=Field(x=x, y=y, values=tuple(rows), scale=Scale(title="what takes most of the step", labels=labels)),
        marks=(Mark(says="yours", x=own[0], y=own[1]),) if inside else (),
        caption=("Colours: the regime that takes most of a step; hatched without colour: no legal scenario.", *away),
    )  # fmt: skip


def _legal(line: Answer) -> int:
    return sum(value is not None for value in line["step_time_s"])


def _along(line: Answer) -> Figure:
    """Shares of the step by regime along one axis, with its crossings."""
    order = sorted(
        (at for at in range(len(line["values"])) if line["step_time_s"][at] is not None),
        key=lambda at: line["values"][at],
    )
    x = tuple(_places(line)[at] for at in order)
    lines = []
    for name, seconds in line["seconds"].items():
        shares = tuple(seconds[at] / line["step_time_s"][at] for at in order)
        if max(shares) >= LEAST_DRAWN:
            lines.append(Line(label=name, x=x, y=shares))
    return Figure(
        slug=f"along-{line['title'].replace(' ', '-').lower()}", title=line["says"][:1].upper() + line["says"][1:],
        x=_scale(line), y=Scale(title="share of the step", unit="%"), lines=tuple(lines), marks=_marks(line),
        caption=(f"All else as in the scenario; regimes that stay below {100 * LEAST_DRAWN:.0f} % of the step are not drawn.",),
    )  # fmt: skip


def _marks(line: Answer) -> tuple[Mark, ...]:
    """The scenario's own value and the nearest crossings."""
    nearest: Sequence[Answer] = sorted(line["crossings"], key=lambda one: one["away"] or 1.0)[:MOST_MARKED]
    low, high = min(line["values"]), max(line["values"])
    own = (
        [Mark(says=f"yours: {_value(line, line['own'])}", x=_at(line, line["own"]))]
        if line["own"] is not None and low <= line["own"] <= high
        else []
    )
    return (*own, *(Mark(says=_marked(line, one), x=_at(line, one["value"])) for one in nearest))


def _marked(line: Answer, one: Answer) -> str:
    """A crossing in few words, with its value."""
    says = f"{one['below']['regime']} → {one['above']['regime']}" if one["kind"] == "regime" else SAID[one["kind"]]
    return f"{says}: {_value(line, one['value'])}"


SAID = {
    "balance": "communication = compute", "tenth": "10 % exposed", "fits": "end of memory",
    "peak": "fastest",
}  # fmt: skip
"""Kinds of crossings as marks."""
