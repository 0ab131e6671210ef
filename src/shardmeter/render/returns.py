"""The page of a curve: the knee, what was held fixed, the points, the regimes of returns, what is next; and its figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import changed
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Notes, Row, Section, Table, filled, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale
from shardmeter.study.returns.says import size

Answer = Mapping[str, Any]
HERE = "the scenario"
"""What marks the scenario's own point in a figure, and YOURS its row."""
YOURS = "yours"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `returns` JSON as a document. `short` leaves out what was assumed."""
    sections: list[Section] = [
        Notes(title="Held fixed", lines=tuple(answer["held"])),
        _points(answer),
        _illegal(answer),
        *(changed(one, caption=()) for one in figures(answer)[:1]),
        _regimes(answer),
        Notes(title="Found", lines=tuple(answer["says"][1:])),
        _next(answer["next"]),
        remarks(answer, short=short),
    ]
    return Document(
        title=heading, verdict=answer["says"][0], good=bool(answer["fits"]), sections=tuple(sections),
        data={**answer, "figures": [one.to_dict() for one in figures(answer)]},
        flat=tuple(_flat(point) for point in answer["points"]),
    )  # fmt: skip


def _points(answer: Answer) -> Table:
    axis, own = answer["axis"], answer["own"]
    points = [point for point in answer["points"] if not point["why"]]
    if own["x"] not in [point["x"] for point in points]:
        points = sorted([*points, own], key=lambda point: float(point["x"]))
    plans = {point["plan"] for point in points if point["plan"]}
    columns = (
        Column(key="at", title=_short(axis)),
        Column(key="tokens_per_s", title="tokens/s"),
        Column(key="between", title=f"{100 * answer['level']:.0f} % between", drop=3),
        Column(key="tokens_per_s_per_gpu", title="a GPU", drop=4),
        Column(key="mfu", title="MFU", unit="%"),
        Column(key="step_time_s", title="step", unit="s", drop=5),
        Column(key="wall_clock_s", title="the run", unit="s"),
        Column(key="cost_usd", title="cost", unit="USD", drop=6),
        Column(key="usd_per_1e9_tokens", title="per 10^9 tokens", unit="USD"),
        Column(key="efficiency", title="of linear", unit="%", drop=2)
        if axis["is_size"]
        else Column(key="gpus", title="GPUs", drop=1),
        Column(key="rules", title="rules the step"),
        *((Column(key="plan", title="plan", wide=True, wrap=","),) if len(plans) > 1 else ()),
        Column(key="said", title=""),
    )
    rows = tuple(_row(point, answer) for point in points)
    idle = _idle(answer, points)
    told = filled((column for column in columns if column.key not in idle), rows)
    return Table(title=f"Along {axis['title']}", columns=told, rows=rows)


def _idle(answer: Answer, points: Sequence[Answer]) -> set[str]:
    """Columns that say what another one says: rates of a GPU where the fleet is one, dollars a token where the run is one."""
    found = set()
    if len({point["gpus"] for point in points}) == 1 and not answer["axis"]["is_size"]:
        found |= {"gpus", "tokens_per_s_per_gpu"}
    lengths = {f"{point['cost_usd'] / point['usd_per_token']:.9g}" for point in points if point["usd_per_token"]}
    return found | ({"usd_per_1e9_tokens"} if len(lengths) == 1 else set())


def _short(axis: Answer) -> str:
    """What the axis is, without what qualifies it: that stands in the heading."""
    return re.split(r", | \(", str(axis["title"]), maxsplit=1)[0]


def _illegal(answer: Answer) -> Notes:
    """Points that no plan is legal at, those of one rule together: what stands before the first number tells rules apart."""
    found: dict[str, list[Answer]] = {}
    for point in answer["points"]:
        if point["why"]:
            found.setdefault(re.split(r"\d", point["why"], maxsplit=1)[0], []).append(point)
    lines = []
    for points in found.values():
        first, *others = (size(point["x"], answer["axis"]) for point in points)
        like = f"; {', '.join(others)} for the same reason" if others else ""
        lines.append(f"{first}: {points[0]['why']}{like}")
    return Notes(title="Illegal, and left out", lines=tuple(lines))


def _row(point: Answer, answer: Answer) -> Row:
    marks = [YOURS] if point["x"] == answer["own"]["x"] else []
    marks += (
        ["knee"]
        if answer["knee"] is not None and not answer["knee"]["at_start"] and point["x"] == answer["knee"]["x"]
        else []
    )
    marks += [] if point["fits"] else ["does not fit"]
    ends = None if point["intervals"] is None else point["intervals"]["tokens_per_s"]
    between = (
        None if ends is None else " … ".join(f"{end / 1e3:.3g}k" if end < 1e6 else f"{end / 1e6:.3g}M" for end in ends)
    )
    rules = None if point["regime"] is None else f"{point['regime']} {100 * point['regime_share']:.0f} %"
    return {
        **_flat(point),
        "at": size(point["x"], answer["axis"]),
        "between": between,
        "rules": rules,
        "said": "; ".join(marks),
    }


def _regimes(answer: Answer) -> Table:
    axis = answer["axis"]
    rows: tuple[Row, ...] = tuple(
        {**one, "from": size(one["from"], axis), "to": size(one["to"], axis), "exponent": f"{one['exponent']:.2f}"}
        for one in answer["regimes"]
    )
    columns = (
        Column(key="from", title="from"),
        Column(key="to", title="to"),
        Column(key="returns", title="returns"),
        Column(key="exponent", title="exponent"),
        *((Column(key="efficiency_to", title="of linear at its end", unit="%", drop=1),) if axis["is_size"] else ()),
        Column(
            key="rules",
            title="takes most of what is lost" if axis["is_size"] else "most of the time that it does not shorten",
        ),
        Column(key="rules_share", title="its share", unit="%"),
    )
    words = [
        f"{one['returns']} from {one['least_exponent']:g}"
        for one in answer["thresholds"]
        if one["least_exponent"] is not None
    ]
    caption = f"Exponent: d ln rate / d ln x. {', '.join(words)}, below that {answer['thresholds'][-1]['returns']}."
    return Table(title="Regimes of returns", columns=columns, rows=rows, caption=caption)


def _next(entries: Sequence[Answer]) -> Table:
    rows: tuple[Row, ...] = tuple(
        {**one, "to": _to(one), "tokens_per_s": cells.signed(_rounded(one["tokens_per_s"])), "wall_clock_s": cells.signed(one["wall_clock_s"], "s"),
         "cost_usd": cells.signed(one["cost_usd"], "USD"), "usd_per_day_saved": cells.signed(one["usd_per_day_saved"], "USD"),
         "said": one["why"] or (f"{one['skipped']} sizes before it are illegal" if one["skipped"] else "")}
        for one in entries
    )  # fmt: skip
    columns = (
        Column(key="axis", title="along"),
        Column(key="next", title="one unit", drop=1),
        Column(key="to", title="goes to"),
        Column(key="tokens_per_s", title="tokens/s"),
        Column(key="of_average", title="of the average", unit="%"),
        Column(key="wall_clock_s", title="the run"),
        Column(key="cost_usd", title="cost"),
        Column(key="usd_per_1e9_tokens_marginal", title="per 10^9 tokens more", unit="USD", drop=2),
        Column(key="usd_per_day_saved", title="per day saved", drop=3),
        Column(key="said", title="", wide=True),
    )
    caption = "The scenario beside itself with one unit more. A bandwidth has no price here: only what a shorter run saves is counted."
    return Table(title="What is next", columns=columns, rows=rows, caption=caption)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(round(value))


def _to(one: Answer) -> str:
    if one["unit"] == "B/s":
        return cells.text(8.0 * one["to"], "bit/s")
    return cells.text(one["to"], one["unit"])


def _flat(point: Answer) -> dict[str, Any]:
    """A point on one line: intervals as two columns each."""
    made = {key: value for key, value in point.items() if key not in ("intervals", "set")}
    for name, ends in (point["intervals"] or {}).items():
        made |= {f"{name}_low": None if ends is None else ends[0], f"{name}_high": None if ends is None else ends[1]}
    return made


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The curve of tokens a second with the line that is linear in x, dollars for 10^9 tokens where they are known, MFU."""
    drawn = {
        point["x"]: point
        for point in (*answer["points"], answer["own"], answer["knee"] or answer["own"])
        if point["fits"]
    }
    good = [drawn[x] for x in sorted(drawn)]
    if len(good) < 2:
        return ()
    made = [_rate(answer, good)]
    if all(point["usd_per_1e9_tokens"] is not None for point in good):
        made.append(_one(answer, good, "usd_per_1e9_tokens", "cost", "dollars for 10^9 tokens", "USD"))
    return (*made, _one(answer, good, "mfu", "mfu", "MFU", "%"))


def _rate(answer: Answer, good: Sequence[Answer]) -> Figure:
    x = tuple(_x(point["x"], answer) for point in good)
    low, high = _band(good, "tokens_per_s")
    lines = [Line(label="predicted", x=x, y=tuple(point["tokens_per_s"] for point in good), low=low, high=high)]
    if answer["axis"]["is_size"]:
        lines.append(Line(label="linear", x=x, y=tuple(point["ideal_tokens_per_s"] for point in good), style="dashed"))
    return Figure(
        slug="rate", title=answer["says"][0].partition(":")[0].rstrip("."), x=_scale(answer),
        y=Scale(title="tokens/s", log=answer["axis"]["is_size"]),
        lines=tuple(lines), marks=_marks(answer, "tokens_per_s"), caption=(_said_of(answer), *answer["held"]),
    )  # fmt: skip


def _one(answer: Answer, good: Sequence[Answer], key: str, slug: str, title: str, unit: str) -> Figure:
    """One figure of the points along the axis, its title the ends of it."""
    low, high = _band(good, key)
    first, last = (cells.text(point[key], unit) for point in (good[0], good[-1]))
    ends = f"{title}: {first} at {size(good[0]['x'], answer['axis'])}, {last} at {size(good[-1]['x'], answer['axis'])}"
    line = Line(
        label=title,
        x=tuple(_x(point["x"], answer) for point in good),
        y=tuple(point[key] for point in good),
        low=low,
        high=high,
    )
    return Figure(
        slug=slug, title=ends[0].upper() + ends[1:], x=_scale(answer), y=Scale(title=title, unit=unit), lines=(line,), marks=_marks(answer, key),
        caption=(_said_of(answer),),
    )  # fmt: skip


def _band(good: Sequence[Answer], key: str) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Both ends of every interval; empty where none is known."""
    ends = [point["intervals"][key] for point in good]
    if all(one is None for one in ends):
        return (), ()
    return tuple(None if one is None else one[0] for one in ends), tuple(
        None if one is None else one[1] for one in ends
    )


def _said_of(answer: Answer) -> str:
    return f"The band is the {100 * answer['level']:.0f} % interval of every point."


def _x(x: float, answer: Answer) -> float:
    return 8.0 * x if answer["axis"]["unit"] == "B/s" else x


def _scale(answer: Answer) -> Scale:
    unit = answer["axis"]["unit"]
    return Scale(title=_short(answer["axis"]), unit="bit/s" if unit == "B/s" else unit, log=True)


def _marks(answer: Answer, key: str) -> tuple[Mark, ...]:
    """The scenario itself as a point, the knee as a line."""
    own, knee, axis = answer["own"], answer["knee"], answer["axis"]
    made = []
    if own["fits"]:
        made.append(Mark(says=f"{HERE}: {size(own['x'], axis)}", x=_x(own["x"], answer), y=own[key]))
    if knee is not None and not knee["at_start"]:
        made.append(Mark(says=f"knee: {size(knee['x'], axis)}", x=_x(knee["x"], answer)))
    return tuple(made)
