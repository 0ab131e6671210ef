"""The page of what an answer hangs on: every number with its elasticity, what doubling and halving it do, pairs of them, and a tornado."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
SHOWN = 20
"""Numbers of the page; all are in the JSON."""
BARS = 12
"""Numbers of the tornado."""
MINUS = "-"
FIGURES = {
    "tokens_per_s": "throughput", "tokens_per_s_per_gpu": "throughput of a GPU", "step_time_s": "time of a step", "mfu": "MFU",
    "memory.peak_gib": "memory peak", "run.wall_clock_s": "length of the run", "run.cost_usd": "cost of the run",
    "run.energy_kwh": "electricity of the run",
}  # fmt: skip
"""Figures of the JSON that numbers are moved for → what people call them; of others the name in the JSON is said."""


def document(answer: Answer, heading: str = "", *, every: bool = False, short: bool = False) -> Document:
    """A `sensitivity` JSON as a document. `every` lists all numbers, those that do nothing too; `short` leaves out what was assumed."""
    sections: list[Section] = [_answer(answer), ranked(answer, None if every else SHOWN)]
    if answer["what_if"]:
        sections.append(_what_if(answer))
    if answer["pairs"]:
        sections.append(_pairs(answer))
    sections.append(Notes(title="What it says", lines=says(answer)))
    sections.append(Notes(title="Not listed", lines=_rest(answer, every=every)))
    sections.append(remarks(answer, short=short))
    return Document(
        title=heading,
        verdict=_verdict(answer),
        sections=tuple(sections),
        data={**answer, "says": list(says(answer)), "figures": [one.to_dict() for one in figures(answer)]},
        flat=tuple(_flat(one) for one in (*answer["levers"], *(answer["silent"] if every else ()))),
    )


def figure_of(answer: Answer) -> str:
    """The figure that numbers are moved for, in words."""
    return FIGURES.get(of := str(answer["of"]), of)


def _begun(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def _verdict(answer: Answer) -> str:
    levers, of = answer["levers"], figure_of(answer)
    if not levers:
        return f"No number of the scenario moves the {of}."
    first = levers[0]
    return f"{_begun(of)} hangs most on {first['title']}: {slope(first)} % for every %, of {len(levers)} numbers that move it."


def slope(one: Answer) -> str:
    """`+0.70`, both sides where they differ: `+0.31 below, 0 above`."""
    if one["elasticity"] is not None:
        return _signed(one["elasticity"])
    sides = ((one["elasticity_down"], "below"), (one["elasticity_up"], "above"))
    return ", ".join(f"{_signed(value)} {where}" for value, where in sides if value is not None) or cells.MISSING


def _signed(value: float) -> str:
    return "0" if abs(value) < 0.0005 else f"{value:+.3f}" if abs(value) < 0.1 else f"{value:+.2f}"


def percent(change: float | None) -> str:
    """`+11.0 %`; what rounds to nothing is 0."""
    if change is None:
        return cells.MISSING
    size = abs(100.0 * change)
    if size < 0.005:
        return "0"
    return f"{100.0 * change:+.2f} %" if size < 1.0 else f"{100.0 * change:+.1f} %"


def _answer(answer: Answer) -> Facts:
    ends, unit = answer["interval"], answer["unit"]
    note = "its interval is not known"
    if ends is not None:
        note = f"{100 * answer['level']:.0f} %: {cells.between(ends[0], ends[1], unit)}"
    facts = (
        Fact(label=figure_of(answer), value=answer["value"], unit=unit, note=note),
        Fact(label="numbers that move it", value=float(len(answer["levers"]))),
    )
    return Facts(title="The answer", facts=facts)


def ranked(answer: Answer, most: int | None) -> Table:
    """The first numbers with what they do; None = all, those that do nothing too."""
    rows = [*answer["levers"][:most], *(answer["silent"] if most is None else ())]
    columns = (
        Column(key="title", title="number"),
        Column(key="name", title="its name in a scenario", drop=4),
        Column(key="now", title="now"),
        Column(key="elasticity", title="elasticity"),
        Column(key="halved", title="half of it"),
        Column(key="doubled", title="twice it"),
        Column(key="beside", title="next legal values", drop=2),
        Column(key="costs", title="twice costs", drop=1),
        Column(key="sure", title="", drop=3),
    )
    caption = (
        f"Elasticity: % of the answer for one % of the number, over ±{100 * answer['step']:g} %; of a whole number from half to twice of it. "
        "? = inside the interval of the answer itself; ! = does not fit then."
    )
    return Table(title="What it hangs on", columns=columns, rows=tuple(_row(one) for one in rows), caption=caption)


def _row(one: Answer) -> Row:
    return {
        "title": one["title"], "name": one["name"], "now": quantity(one["value"], one), "elasticity": slope(one),
        "halved": _cell(one["halved"]), "doubled": _cell(one["doubled"]), "beside": _beside(one),
        "costs": _costs(one["doubled"]), "sure": "?" if one["beyond_interval"] is False else "",
    }  # fmt: skip


def quantity(value: float, one: Answer) -> str:
    """A value of a number; rates of fabrics and of lines between islands in bits, as they are said."""
    bits = one["unit"] == "B/s" and (".fabric." in one["name"] or one["name"].startswith("fleet.wan."))
    return cells.text(8.0 * value, "bit/s") if bits else cells.text(value, one["unit"])


def _cell(effect: Answer | None) -> str:
    if effect is None:
        return cells.MISSING
    return percent(effect["change"]) + ("" if effect["fits"] else " !")


def _beside(one: Answer) -> str:
    sides = [one[key] for key in ("next_down", "next_up") if one[key] is not None]
    return ", ".join(f"{cells.number(side['value'])}: {_cell(side)}" for side in sides)


def _costs(effect: Answer | None) -> str:
    """What moving it costs an hour; what has no price here says so."""
    if effect is None:
        return cells.MISSING
    if effect["rent_usd_per_hour"] is None:
        return "no price known"
    total = effect["rent_usd_per_hour"] + (effect["traffic_usd_per_hour"] or 0.0)
    return "nothing" if abs(total) < 0.005 else f"{MINUS if total < 0.0 else ''}${abs(total):,.2f}/h"


def _what_if(answer: Answer) -> Table:
    columns = (
        Column(key="title", title="what if"),
        Column(key="move", title="moved"),
        Column(key="change", title=figure_of(answer)),
        Column(key="range", title="if all is fast or slow", drop=1),
        Column(key="costs", title="costs", drop=2),
    )
    rows = [
        {"title": one["title"], "move": f"{quantity(one['from'], one)} → {quantity(one['value'], one)}",
         "change": _cell(one), "range": _range(one["change_range"]), "costs": _costs(one)}
        for one in answer["what_if"]
    ]  # fmt: skip
    return Table(title="What if", columns=columns, rows=tuple(rows))


def _range(ends: Sequence[float] | None) -> str:
    return cells.MISSING if ends is None else f"{percent(ends[0])} to {percent(ends[1])}"


def _pairs(answer: Answer) -> Table:
    columns = (
        Column(key="pair", title="together"),
        Column(key="one", title="first"),
        Column(key="other", title="second"),
        Column(key="product", title="multiplied"),
        Column(key="together", title="both"),
        Column(key="interaction", title="more than that"),
    )
    rows = [
        {"pair": " and ".join(f"{times(factor)} {title}" for factor, title in zip(one["factors"], one["titles"], strict=True)),
         "one": percent(one["changes"][0]), "other": percent(one["changes"][1]), "product": percent(one["product"]),
         "together": percent(one["together"]), "interaction": one["why"] or percent(one["interaction"])}
        for one in answer["pairs"]
    ]  # fmt: skip
    caption = "More than the product: the two help one another; less: they do the same thing twice."
    return Table(title="Two numbers at once", columns=columns, rows=tuple(rows), caption=caption)


def times(factor: float) -> str:
    """`twice the`, `half the`, `1.5 × the`."""
    return {2.0: "twice the", 0.5: "half the"}.get(factor, f"{factor:.3g} × the")


def says(answer: Answer) -> tuple[str, ...]:
    """The first few numbers in sentences."""
    found = []
    for one in answer["levers"][:5]:
        sides = [
            f"{'twice' if key == 'doubled' else 'half'} the {one['title']}: {percent(one[key]['change'])}"
            for key in ("doubled", "halved")
            if one[key] is not None and one[key]["change"] is not None
        ]
        if not sides:
            continue
        kink = "; above and below it differs: another term takes over there" if one["kink"] else ""
        inside = "; both are inside the interval of the answer itself" if one["beyond_interval"] is False else ""
        found.append(f"{'; '.join(sides)}{kink}{inside}.")
    return tuple(found)


def _rest(answer: Answer, *, every: bool) -> tuple[str, ...]:
    silent, stuck, more = len(answer["silent"]), answer["stuck"], len(answer["levers"]) - SHOWN
    found = []
    if more > 0 and not every:
        found.append(f"{more} numbers that do less (--all lists them)")
    if silent and not every:
        found.append(f"{silent} numbers do nothing, neither twice nor half of them (--all lists them)")
    if stuck:
        found.append(f"no other value is legal, or answered: {', '.join(stuck)}")
    return tuple(found)


def _flat(one: Answer) -> Row:
    """A row of the CSV."""
    row = {
        key: one[key]
        for key in ("name", "title", "kind", "unit", "value", "elasticity", "elasticity_up", "elasticity_down", "kink")
    }
    for key in ("halved", "doubled", "next_down", "next_up"):
        side = one[key] or {}
        row |= {f"{key}_value": side.get("value"), f"{key}_change": side.get("change"), f"{key}_fits": side.get("fits")}
    more = one["doubled"] or {}
    return row | {"doubled_rent_usd_per_hour": more.get("rent_usd_per_hour"), "beyond_interval": one["beyond_interval"]}


def figures(answer: Answer) -> tuple[Figure, ...]:
    """The tornado: what half and twice of each number do, the largest swing on top."""
    known = [one for one in answer["levers"] if _swing(one) > 0.0]
    chosen = sorted(known, key=_swing, reverse=True)[:BARS]
    if not chosen:
        return ()
    places = tuple(float(at) for at in range(len(chosen)))
    lines = []
    for key, label in (("halved", "half of it"), ("doubled", "twice it")):
        there = [
            (place, one[key])
            for place, one in zip(places, chosen, strict=True)
            if one[key] is not None and one[key]["change"] is not None
        ]
        sure = all(one["change_range"] is not None for _, one in there)
        lines.append(
            Line(
                label=label, x=tuple(one["change"] for _, one in there), y=tuple(place for place, _ in there), style="bars",
                low=tuple(one["change_range"][0] for _, one in there) if sure else (),
                high=tuple(one["change_range"][1] for _, one in there) if sure else (),
            )
        )  # fmt: skip
    first, ends = chosen[0], answer["interval"]
    marks = () if ends is None else tuple(Mark(says=says_, x=end / answer["value"] - 1.0) for says_, end in
                                          zip(("90 %: low", "90 %: high"), ends, strict=True))  # fmt: skip
    side = "doubled" if first["doubled"] is not None and first["doubled"]["change"] is not None else "halved"
    of = figure_of(answer)
    title = f"{_begun(of)} moves most with {first['title']}: {percent(first[side]['change'])} if it is {side}"
    caption = (
        f"Every bar is one number moved, all others as they are; {of} = {cells.text(answer['value'], answer['unit'])} now.",
        "Whiskers: the same change if every step and message is as fast, or as slow, as its interval leaves possible.",
        f"Dashed: both ends of the {100 * answer['level']:.0f} % interval of {of} as it is.",
    )
    return (
        Figure(
            slug="tornado", title=title, x=Scale(title=f"change of the {of}", unit="%"),
            y=Scale(title="", labels=tuple(f"{one['title']} ({quantity(one['value'], one)})" for one in chosen)),
            lines=tuple(lines), marks=marks, caption=caption,
        ),
    )  # fmt: skip


def _swing(one: Answer) -> float:
    """The larger of what half and twice of it do, in logarithms."""
    changes = [one[key]["change"] for key in ("halved", "doubled") if one[key] is not None]
    return max((abs(math.log1p(change)) for change in changes if change is not None and change > -1.0), default=0.0)
