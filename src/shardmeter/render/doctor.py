"""The page of a diagnosis: what was measured beside its prediction, what would explain it, what it leaves, what to measure next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale
from shardmeter.study.doctor.findings import LIKELY, POSSIBLE

Answer = Mapping[str, Any]
MOST_CAUSES, MOST_UNLIKELY, MOST_SHORT, MOST_DRAWN = 10, 3, 5, 8
"""Causes that a page shows: those that suffice, unlikely ones among them, those that do not; and those in a picture."""
WORDS = {
    "slower": "times as slow as predicted", "faster": "times as fast as predicted", "fuller": "times as much as predicted",
    "emptier": "times less than predicted",
}  # fmt: skip
AS_SAID = "as-said"
LEAST_CHANCE = 0.01
"""Chance to fit below which it is told as less than that."""
NETWORKS = ("fabric-bandwidth", "wan-bandwidth", "site-bandwidth")
"""Causes whose rates are told in bits."""
MEANING = (
    f"Plausible: how usual such a thing is, times how well it fits; likely from {LIKELY:g}, possible from {POSSIBLE:g}. "
    "A rule of thumb that orders causes, no probability."
)
"""What the number beside a cause is."""


def document(answer: Answer, title: str = "", *, short: bool = False) -> Document:
    """A `doctor` JSON as a document. `short` leaves out what was assumed."""
    sections: list[Section] = [_readings(answer)]
    if answer["against"] is not None:
        sections.append(_against(answer["against"]))
    if answer["contradictions"]:
        sections.append(
            Notes(
                title="Numbers that contradict each other",
                lines=tuple(_contradiction(one) for one in answer["contradictions"]),
            )
        )
    if answer["causes"]:
        plausible = [one for one in answer["causes"] if one["plausible"] != "unlikely"][:MOST_CAUSES]
        shown = answer["causes"][: max(len(plausible), min(len(plausible) + MOST_UNLIKELY, MOST_CAUSES))]
        sections += [_causes(shown, len(answer["causes"])), _meanings(answer["causes"])]
    if answer["insufficient"]:
        sections.append(_insufficient(answer["insufficient"]))
    if answer["pairs"]:
        sections.append(_pairs(answer["pairs"], alone=bool(answer["causes"])))
    if answer["next"]:
        sections.append(_next(answer))
    sections.append(remarks(answer, short=short))
    data = {**answer, "figures": [figure.to_dict() for figure in figures(answer)]}
    return Document(
        title=title, verdict=verdict(answer), good=answer["verdict"] == "inside", sure=answer["verdict"] == "inside" or bool(answer["causes"]),
        sections=tuple(sections), data=data, flat=tuple(_flat(answer)),
    )  # fmt: skip


# ---- in one sentence -------------------------------------------------------------------------------------------------------------


def verdict(answer: Answer) -> str:
    """What was found, in a sentence or three."""
    if answer["primary"] is None:
        one = answer["readings"][0]
        rules = answer["rules"]
        where = "" if one["percentile"] is None else f", above {100 * one['percentile']:.0f} % of what is expected"
        gathers = f"; parameters are gathered {rules['gathers']:g} times a step" if rules["gathers"] > 2.0 else ""
        return (
            f"Nothing needs explaining: {_value(one['measured'], one['unit'])} lies inside the 90 % interval, {_span(one)}{where}. "
            f"What such a step takes: {rules['cause']}, {100 * rules['share']:.0f} %{gathers}.{_room(answer['memory'])}"
        )
    return f"{_pace(_primary(answer))}{_room(answer['memory'])} {_first(answer)}"


def _pace(one: Answer) -> str:
    """By how much a number is off."""
    times = max(one["times_slower"], 1.0 / one["times_slower"])
    says = f"{one['title'][:1].upper()}{one['title'][1:]}: {times:.3g} {_word(one)}."
    return f"{says} Not possible: {one['impossible']}." if one["impossible"] else says


def _room(memory: Answer) -> str:
    """That what was said does not fit, so that something else ran, and what most likely."""
    if memory["fits"]:
        return ""
    size, chance = f"{memory['peak_gib']:.1f} of {memory['limit_gib']:.1f} GiB", memory["fits_probability"]
    doubt = "" if chance is None else f", a chance of {_percent(chance)} to fit"
    says = f" As it was said the run does not fit by the estimate ({size}{doubt}): look first whether it is said as it ran."
    other = memory["otherwise"]
    if other is None or not other["set"]:
        return says
    options = " ".join(f"--set {shlex.quote(text)}" for text in other["set"])
    rate = cells.text(other["tokens_per_s"] / other["gpus"], "tokens/s")
    return f"{says} With {other['change']} ({options}) it does, and {rate} a GPU are predicted."


def _percent(chance: float) -> str:
    return "below 1 %" if chance < LEAST_CHANCE else f"{100 * chance:.0f} %"


def _word(one: Answer) -> str:
    kind = one["verdict"] if one["verdict"] in WORDS else "slower"
    return WORDS[kind]


def _first(answer: Answer) -> str:
    causes = answer["causes"]
    if not causes:
        return "No single cause explains it" + (
            "; pairs that do are below." if answer["pairs"] else ", nor any pair that was tried."
        )
    first = causes[0]
    if first["plausible"] == "unlikely":
        return f"No single cause is plausible; the least unlikely is: {_said(first)}."
    if first["plausible"] == "possible":
        alone = "The only single cause, and no more than possible"
        told = "No single cause stands out; the likeliest of the possible ones" if len(causes) > 1 else alone
        return f"{told}: {_said(first)}."
    return f"The {'most plausible' if len(causes) > 1 else 'only'} single cause: {_said(first)}."


def _said(cause: Answer) -> str:
    """A cause with its value: `network between nodes at 109 Gbit/s a node (97 to 125) for the 3.2 Tbit/s that were said`."""
    if cause["kind"] == "setting":
        return f"{cause['title']} ({cause['field']}: {cause['value']})"
    if cause["kind"] == "reading":
        return f"{cause['title']} (a factor of {_factor(cause['factor'])})"
    said = (
        f" where {_quantity(cause['said'], cause)} was {'assumed' if cause['assumed'] else 'said'}"
        if cause["said"]
        else ""
    )
    return f"{cause['title']} at {_quantity(cause['implied'], cause)} ({_interval(cause)}){said}"


def _factor(factor: float) -> str:
    return cells.number(factor) if factor >= 1.0 else f"1/{cells.number(1.0 / factor)}"


def _primary(answer: Answer) -> Answer:
    return next(one for one in answer["readings"] if one["quantity"] == answer["primary"])


def _quantity(value: float | None, cause: Answer) -> str:
    """A value of a cause; rates of networks in bits, those of a node say so."""
    if cause["name"].partition(":")[0] in NETWORKS and value is not None:
        return cells.text(8.0 * value, "bit/s") + (" a node" if cause["of"] == "node" else "")
    return _value(value, cause["unit"])


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return cells.MISSING
    return f"{value:.3g}" if unit == "" and 1e-3 <= abs(value) < 1e3 else cells.coarse(value, unit)


def _span(one: Answer) -> str:
    return _to(_value(one["low"], one["unit"]), _value(one["high"], one["unit"]))


def _to(low: str, high: str) -> str:
    """`110 to 143 Gbit/s`: a unit that both have is said once."""
    (first, _, unit), (_, _, other) = low.partition(" "), high.partition(" ")
    return f"{first} to {high}" if unit == other else f"{low} to {high}"


# ---- sections --------------------------------------------------------------------------------------------------------------------


def _readings(answer: Answer) -> Table:
    rows: list[Row] = [
        {
            "title": one["title"], "measured": _value(one["measured"], one["unit"]), "predicted": _value(one["predicted"], one["unit"]),
            "span": _span(one), "ratio": f"{one['ratio']:.3g} ×", "says": one["impossible"] or one["verdict"],
        }
        for one in answer["readings"]
    ]  # fmt: skip
    columns = (
        Column(key="title", title=""),
        Column(key="measured", title="measured"),
        Column(key="predicted", title="predicted"),
        Column(key="span", title="90 %"),
        Column(key="ratio", title="of it"),
        Column(key="says", title="", wide=True),
    )
    return Table(title="Measured and predicted", columns=columns, rows=tuple(rows))


def _against(one: Answer) -> Facts:
    fact = Fact(
        label="the other scenario", value=_value(one["measured"], one["unit"]), note=f"predicted as said: {_value(one['predicted'], one['unit'])}"
    )  # fmt: skip
    return Facts(title="Compared with", facts=(fact,), caption=(f"Fixed by it: {one['says']}.",))


def _contradiction(one: Answer) -> str:
    steps = " and ".join(
        f"{name} says {cells.text(step, 's')}" for name, step in zip(one["quantities"], one["steps_s"], strict=True)
    )
    known = f", {one['is']}" if one["is"] else ""
    return f"{steps} a step: a factor of {one['ratio']:.3g}{known}"


def _causes(some: Sequence[Answer], count: int) -> Table:
    rows: list[Row] = [
        {
            "title": one["title"], "implied": _would(one), "span": _interval(one), "said": _was(one),
            "plausible": f"{one['plausible']} {_chance(one['plausibility'])}", "why": "; ".join(one["why"]),
        }
        for one in some
    ]  # fmt: skip
    columns = (
        Column(key="title", title="cause"),
        Column(key="implied", title="would be"),
        Column(key="span", title="90 %", drop=2),
        Column(key="said", title="was said", drop=1),
        Column(key="plausible", title="plausible"),
        Column(key="why", title="why", wide=True, below=True),
    )
    more = f"And {count - len(some)} more, which --format json has. " if count > len(some) else ""
    return Table(title="What alone would explain it", columns=columns, rows=tuple(rows), caption=more + MEANING)


def _was(one: Answer) -> str:
    """What was said of a cause, or is a default."""
    return f"{_quantity(one['said'], one)}{' (assumed)' if one['assumed'] else ''}" if one["said"] else cells.MISSING


def _chance(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-3 else "< 0.001"


def _would(one: Answer) -> str:
    if one["kind"] == "setting":
        return str(one["value"])
    return f"× {_factor(one['factor'])}" if one["kind"] == "reading" else _quantity(one["implied"], one)


def _interval(one: Answer) -> str:
    return cells.MISSING if one["low"] is None else _to(_quantity(one["low"], one), _quantity(one["high"], one))


def _meanings(causes: Sequence[Answer]) -> Facts:
    shown = [one for one in causes if one["plausible"] != "unlikely"] or causes[:1]
    return Facts(
        title="What that would mean",
        facts=tuple(Fact(label=one["title"], value=one["means"]) for one in shown[:MOST_SHORT]),
    )


def _insufficient(some: Sequence[Answer]) -> Table:
    rows: list[Row] = [
        {
            "title": one["title"],
            "limit": _would(one),
            "left": f"{max(one['unexplained'], 1.0 / one['unexplained']):.3g} ×",
        }
        for one in sorted(some, key=lambda one: max(one["unexplained"], 1.0 / one["unexplained"]))[:MOST_SHORT]
    ]
    columns = (
        Column(key="title", title="cause"),
        Column(key="limit", title="at its limit"),
        Column(key="left", title="leaves unexplained"),
    )
    return Table(title="What would not suffice alone", columns=columns, rows=tuple(rows))


def _pairs(pairs: Sequence[Answer], *, alone: bool) -> Table:
    """`alone`: whether a table of single causes stands above, which says what the number means."""
    rows: list[Row] = [
        {"first": _said(first), "second": _said(second), "plausible": _chance(pair["plausibility"])}
        for pair in pairs for first, second in (pair["causes"],)
    ]  # fmt: skip
    columns = (
        Column(key="first", title="one cause", wide=True),
        Column(key="second", title="and another", wide=True),
        Column(key="plausible", title="plausible"),
    )
    caption = "" if alone else MEANING
    return Table(title="Two causes together", columns=columns, rows=tuple(rows), caption=caption)


def _next(answer: Answer) -> Table:
    titles = {one["name"]: one["title"] for one in answer["causes"]} | {AS_SAID: "as said"}
    names = [one["cause"] for one in answer["next"][0]["expected"]]
    rows: list[Row] = [
        {"title": one["title"], **{each["cause"]: _value(each["value"], one["unit"]) for each in one["expected"]}}
        for one in answer["next"]
    ]
    columns = (
        Column(key="title", title="measure", wide=True),
        *(Column(key=name, title=titles[name]) for name in names),
    )
    return Table(title="What to measure next, and what each cause predicts of it", columns=columns, rows=tuple(rows))


def _flat(answer: Answer) -> list[Row]:
    """CSV: a row a cause; of a number that needs no explaining, a row a number."""
    if answer["primary"] is None:
        return [dict(one) for one in answer["readings"]]
    keys = (
        "name", "title", "kind", "field", "unit", "of", "said", "implied", "low", "high", "value", "factor", "explains", "plausible",
        "plausibility", "unexplained",
    )  # fmt: skip
    return [{key: one[key] for key in keys} for one in (*answer["causes"], *answer["insufficient"])]


# ---- pictures --------------------------------------------------------------------------------------------------------------------


def figures(answer: Answer) -> tuple[Figure, ...]:
    """What each cause predicts beside what was measured, and by how much each number would have to move."""
    if answer["primary"] is None:
        return (_reach(answer, answer["readings"][0], ()),)
    one = _primary(answer)
    told = [*answer["causes"][:MOST_DRAWN], *answer["insufficient"][: MOST_DRAWN // 2]]
    made = [_reach(answer, one, told)]
    moved = [cause for cause in answer["causes"][:MOST_DRAWN] if cause["ratio"] is not None]
    return (*made, _moved(moved)) if moved else tuple(made)


def _reach(answer: Answer, one: Answer, told: Sequence[Answer]) -> Figure:
    names = ("as said", *(cause["title"] for cause in told))
    spans = [(one["predicted"], one["low"], one["high"]), *(cause["predicted"] for cause in told)]
    middles, lows, highs = (tuple(float(span[at]) for span in spans) for at in range(3))
    line = Line(
        label="predicted, with 90 %", x=middles, y=tuple(float(at) for at in range(len(names))), low=lows, high=highs, style="bars"
    )  # fmt: skip
    return Figure(
        slug="reach", title=verdict(answer) if answer["primary"] is None else _pace(one), x=Scale(title=one["title"], unit=one["unit"]), y=Scale(title="", labels=names),
        lines=(line,), marks=(Mark(says=f"measured: {_value(one['measured'], one['unit'])}", x=one["measured"]),),
        caption=("Each bar is the prediction if that alone were so; the first is the scenario as it was said.",),
    )  # fmt: skip


def _moved(moved: Sequence[Answer]) -> Figure:
    moved = tuple(reversed(moved))  # points stand from below to above
    names = tuple(f"{one['title']}: {_quantity(one['implied'], one)}" for one in moved)
    x = tuple(float(one["ratio"]) for one in moved)
    ends = tuple(tuple(float(one[key] / one["said"]) for one in moved) for key in ("low", "high"))
    line = Line(
        label="would have to be, over what was said", x=x, y=tuple(float(at) for at in range(len(names))), left=ends[0], right=ends[1],
        style="points",
    )  # fmt: skip
    return Figure(
        slug="implied", title=f"To explain it alone: {_said(moved[-1])}", x=Scale(title="times what was said", unit="×", log=True),
        y=Scale(title="", labels=names), lines=(line,), marks=(Mark(says="as said", x=1.0),),
        caption=("The most plausible on top. Intervals: both ends of the 90 % interval of the prediction.",),
    )  # fmt: skip
