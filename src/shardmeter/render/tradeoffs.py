"""The page of trade-offs: a table for every knob, what its values say in sentences, throughput against loss and memory as figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardmeter.core.errors import cut
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale
from shardmeter.scenario.ranges import typed

Answer = Mapping[str, Any]
WORDS = 60
"""Letters of a reason."""
FRONT = 20
"""Points of the front on the page."""


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `tradeoffs` JSON as a document; `short` leaves out what was assumed."""
    sections: list[Section] = [_base(answer), *(_table(knob) for knob in answer["knobs"])]
    if answer["joint"] is not None:
        sections.append(_front(answer))
    sections.append(Notes(title="What it says", lines=tuple(text for knob in answer["knobs"] for text in knob["says"])))
    sections.append(remarks(answer, short=short))
    return Document(
        title=heading,
        verdict=_verdict(answer),
        sections=tuple(sections),
        data={**answer, "figures": [one.to_dict() for one in figures(answer)]},
        flat=tuple(
            {"knob": knob["field"], **point, "value": shown(point["value"])} for knob in answer["knobs"] for point in knob["points"]
        ),
    )  # fmt: skip


def shown(value: Any) -> str:
    """A value of a knob as people write it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return cells.number(float(value)) if number else typed(value)


def _verdict(answer: Answer) -> str:
    """The best single turn: at the same loss where that is known, else the fastest that fits."""
    key = "speed_to_loss" if answer["base"]["loss"] is not None else "speed"
    known = [
        (point[key], knob, point)
        for knob in answer["knobs"]
        for point in knob["points"]
        if point["status"] == "ok" and point[key]
    ]
    best = max(known, key=lambda one: one[0], default=None)
    if best is None or best[0] <= 1.0:
        faster = (
            "is sooner at the same loss"
            if key == "speed_to_loss"
            else "has more tokens/s and fits (of the loss nothing is known)"
        )
        return f"No single knob that is turned {faster}."
    to = "to the same loss" if key == "speed_to_loss" else "tokens/s, whatever it does to the loss"
    return f"The best single turn: {best[1]['title']} {shown(best[1]['now'])} → {shown(best[2]['value'])}, {100.0 * (best[0] - 1.0):+.1f} % {to}."


def _base(answer: Answer) -> Facts:
    base = answer["base"]
    loss = (
        f"not known: {base['why_no_loss']}"
        if base["loss"] is None
        else f"{base['loss']:.4f} {base['unit']} ({base['law']})"
    )
    facts = (
        Fact(label="throughput", value=base["tokens_per_s"], unit="tokens/s"),
        Fact(
            label="memory peak",
            value=base["memory_peak_gib"],
            unit="GiB",
            note=f"of {cells.text(base['memory_limit_gib'], 'GiB')}",
        ),
        Fact(label="loss of the run", value=loss),
    )
    return Facts(title="As it is", facts=facts)


_COLUMNS: tuple[tuple[str, str, Callable[[Answer], Any], str, int], ...] = (
    ("tokens_per_s", "tokens/s", lambda p: p["tokens_per_s"], "", 0),
    ("speed", "to now", lambda p: None if p["speed"] is None else p["speed"] - 1.0, "±%", 0),
    ("memory", "peak", lambda p: p["memory_peak_gib"], "GiB", 0),
    ("loss", "loss", lambda p: p["loss"] and f"{p['loss']:.4f}", "", 2),
    ("change", "loss to now", lambda p: None if p["loss_change"] is None else f"{p['loss_change']:+.4f}", "", 0),
    ("factor", "loss × (method)", lambda p: p["loss_factor"] and f"{p['loss_factor']:.4f}", "", 1),
    ("tokens", "tokens to the same loss", lambda p: None if p["tokens_ratio"] is None else p["tokens_ratio"] - 1.0, "±%", 0),
    ("net", "speed to the same loss", lambda p: None if p["speed_to_loss"] is None else p["speed_to_loss"] - 1.0, "±%", 0),
    ("sent", "sent a day", lambda p: p["sent_bytes_per_day"], "B", 1),
    ("egress", "traffic a day", lambda p: p["egress_usd_per_day"], "USD", 2),
    ("wall", "wall clock", lambda p: p["wall_clock_s"], "s", 1),
    ("cost", "cost", lambda p: p["cost_usd"], "USD", 1),
    ("bottleneck", "bottleneck", lambda p: p["bottleneck"], "", 3),
)  # fmt: skip
"""(key, head, value of a point, unit, how early it goes where the line is short)."""


def _table(knob: Answer) -> Table:
    rows = [
        {"value": f"{shown(point['value'])}{' (now)' if point['now'] else ''}", **{key: of(point) for key, _, of, _, _ in _COLUMNS},
         "verdict": "" if point["status"] == "ok" else cut(point["status"], WORDS)}
        for point in knob["points"]
    ]  # fmt: skip
    kept = [one for one in _COLUMNS if _tells(one[0], [row[one[0]] for row in rows])]
    columns = (
        Column(key="value", title=knob["title"]),
        *(Column(key=key, title=head, unit=unit, drop=drop) for key, head, _, unit, drop in kept),
        Column(key="verdict", title="", wide=True),
    )
    return Table(title=f"{knob['title']}: {knob['field']}", columns=columns, rows=tuple(rows))


def _tells(key: str, values: Sequence[Any]) -> bool:
    """Whether a column says anything: of the loss only where its values differ."""
    known = {value for value in values if value is not None}
    return len(known) > 1 or (bool(known) and key not in _OF_LOSS)


_OF_LOSS = ("loss", "change", "factor", "tokens", "net")


def _front(answer: Answer) -> Table:
    joint, names = answer["joint"], {knob["field"]: knob["title"] for knob in answer["knobs"]}
    rows = [
        {
            **{field: shown(value) for field, value in point["values"].items()},
            **{key: of(point) for key, _, of, _, _ in _COLUMNS},
        }
        for point in joint["front"][:FRONT]
    ]
    kept = [one for one in _COLUMNS if _tells(one[0], [row[one[0]] for row in rows])]
    columns = (
        *(Column(key=field, title=title) for field, title in names.items()),
        *(Column(key=key, title=head, unit=unit, drop=drop) for key, head, _, unit, drop in kept),
    )
    caption = (
        f"{joint['fitting']:,} of {joint['points']:,} points fit; none of these {len(joint['front']):,} is beaten in both throughput and "
        f"{AGAINST[joint['against']][0]}."
    )
    return Table(title="Together: what nothing beats", columns=columns, rows=tuple(rows), caption=caption)


AGAINST = {
    "tokens_ratio": ("tokens to the same loss, over those now", "×"), "loss": ("loss", ""), "loss_change": ("loss beside now", ""), "loss_factor": ("loss over synchronous training", "×"),
    "loss_nats": ("loss above synchronous training", "nats"), "memory_peak_gib": ("memory peak", "GiB"),
}  # fmt: skip
"""Key of a point that throughput is set against: what it is, its unit."""


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Of every knob throughput against what it costs in loss and in memory, where these differ; the front of several."""
    found = []
    for knob in answer["knobs"]:
        for key in (_loss_of(knob), "memory_peak_gib"):
            figure = None if key is None else _against(knob, key, answer)
            found += [] if figure is None else [figure]
    if answer["joint"] is not None and answer["joint"]["front"]:
        found.append(_of_joint(answer))
    return tuple(found)


LEAST_GIB = 1.0
"""Difference of memory that is worth a figure."""


def _loss_of(knob: Answer) -> str | None:
    """What tells the loss of its values; None where none does, or all are alike."""
    for key in ("loss_change", "tokens_ratio", "loss_factor", "loss_nats"):
        values = [point[key] for point in knob["points"] if point["tokens_per_s"] is not None]
        if values and None not in values and math.isfinite(plain_sum(values)) and max(values) - min(values) > 1e-6:
            return key
    return None


def _against(knob: Answer, key: str, answer: Answer) -> Figure | None:
    """Throughput over one price, a point a value, named by it."""
    there = [point for point in knob["points"] if point["tokens_per_s"] is not None and point[key] is not None]
    least = LEAST_GIB if key == "memory_peak_gib" else 0.0
    if len(there) < 2 or max(point[key] for point in there) - min(point[key] for point in there) <= least:
        return None
    lines = []
    for label, status in (("fits", "ok"), ("does not fit", "does not fit")):
        some = [point for point in there if point["status"] == status]
        if some:
            lines.append(
                Line(
                    label=label,
                    x=tuple(one[key] for one in some),
                    y=tuple(one["tokens_per_s"] for one in some),
                    style="points",
                )
            )
    marks = [
        Mark(says=f"{shown(point['value'])}{' (now)' if point['now'] else ''}", x=point[key], y=point["tokens_per_s"])
        for point in there
    ]
    if key == "memory_peak_gib" and any(point["status"] != "ok" for point in there):
        marks.append(Mark(says="limit", x=answer["base"]["memory_limit_gib"]))
    title, unit = AGAINST[key]
    first, last = there[0], there[-1]
    gains = f"{100.0 * (last['tokens_per_s'] / first['tokens_per_s'] - 1.0):+.1f} % tokens/s"
    slug = f"{knob['field'].replace('.', '-').replace('_', '-')}-{'memory' if key == 'memory_peak_gib' else 'loss'}"
    return Figure(
        slug=slug, title=f"{knob['title']} from {shown(first['value'])} to {shown(last['value'])}: {gains}, {_price(key, first, last, answer)}",
        x=Scale(title=title, unit=answer["base"]["unit"] or "nats" if key == "loss_change" else unit), y=Scale(title="throughput", unit="tokens/s"),
        lines=tuple(lines), marks=tuple(marks),
        caption=(f"Every point is one value of {knob['field']}, all else as it is.", *knob["says"]),
    )  # fmt: skip


def _price(key: str, first: Answer, last: Answer, answer: Answer) -> str:
    if key == "loss_change":
        return f"{last[key] - first[key]:+.4f} {answer['base']['unit']}"
    if key == "memory_peak_gib":
        return f"{last[key] - first[key]:+.1f} GiB"
    if key == "tokens_ratio":
        return f"{100.0 * (last[key] / first[key] - 1.0):+.1f} % tokens to the same loss"
    return f"the loss × {last[key] / first[key]:.4f}" if key == "loss_factor" else f"{last[key] - first[key]:+.4f} nats"


def _of_joint(answer: Answer) -> Figure:
    joint: Answer = answer["joint"]
    key = joint["against"]
    title, unit = AGAINST[key]
    front: Sequence[Answer] = sorted(joint["front"], key=lambda point: point[key])
    cloud = Line(
        label="fits", x=tuple(one for one, _ in joint["cloud"]), y=tuple(other for _, other in joint["cloud"]), style="cloud"
    )  # fmt: skip
    best = Line(
        label="nothing beats these",
        x=tuple(one[key] for one in front),
        y=tuple(one["tokens_per_s"] for one in front),
        style="line",
    )
    ends = (front[0], front[-1]) if len(front) > 1 else (front[0],)
    names = {knob["field"]: knob["title"] for knob in answer["knobs"]}
    marks = tuple(
        Mark(
            says=", ".join(f"{names[field]} {shown(value)}" for field, value in one["values"].items()),
            x=one[key],
            y=one["tokens_per_s"],
        )
        for one in ends
    )
    base = answer["base"]
    found = (
        f"{len(joint['front']):,} of {joint['fitting']:,} points that fit are beaten by none in throughput and {title}"
    )
    return Figure(
        slug="front", title=found, x=Scale(title=title, unit=(base["unit"] or "nats") if key == "loss" else unit),
        y=Scale(title="throughput", unit="tokens/s"), lines=(cloud, best), marks=marks,
        caption=(f"{joint['points']:,} points: the product of {', '.join(names.values())}.",),
    )  # fmt: skip
