"""The page of a front: what keeps the limits, every fleet of the front with what the next step buys, the user's own fleet, the figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Row, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale
from shardmeter.render.heading import islands_of
from shardmeter.specs import Scenario

Answer = Mapping[str, Any]
DAY = 86_400.0
GIVEN = "given"
"""How an island is paid whose price the scenario says: no word is lost on it."""
PERIOD = "sync_every"
WIDE = 5.0
"""Largest over smallest value of an axis from which on it is logarithmic."""
MARKS = {"deadline": "cheapest for the deadline", "budget": "fastest for the budget", "knee": "knee"}


def title(scenario: Scenario) -> str:
    """The question in one line."""
    return f"days against dollars for {scenario.model.name} on parts of {islands_of(scenario.fleet.islands)} · {scenario.stack.name}"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `front` JSON as a document. `short` leaves out what was assumed."""
    drawn = figures(answer)
    sections: list[Section | None] = [
        _table(answer) if answer["points"] else None,
        _own(answer),
        *drawn,
        _rejected(answer["space"]),
        remarks(answer, short=short),
    ]
    return Document(
        title=heading, verdict=_verdict(answer), good=bool(answer["met"]), sure=bool(answer["space"]["optimal"]),
        sections=tuple(section for section in sections if section is not None),
        data={**answer, "figures": [one.to_dict() for one in drawn]}, flat=tuple(_flat(answer)), columns=COLUMNS,
    )  # fmt: skip


def fleet(point: Answer) -> str:
    """Who takes part, islands that are alike together: `iowa 4 nodes spot + oregon 1 node on demand`."""
    told = []
    for group in kinds(
        point["islands"], lambda one: (one["accelerator"], one["nodes"], one["paid"], one["usd_per_gpu_hour"])
    ):
        nodes, names = group[0]["nodes"], span([one["name"] for one in group])
        paid = "" if group[0]["paid"] == GIVEN else f" {group[0]['paid']}"
        if len(group) > 1 and nodes == 1:
            told.append(f"{len(group)} islands, {names}{paid}")
        else:
            told.append(f"{names} {'each ' if len(group) > 1 else ''}{nodes:g} node{'s' if nodes != 1 else ''}{paid}")
    return " + ".join(told)


def _verdict(answer: Answer) -> str:
    points, space = answer["points"], answer["space"]
    if not points:
        return f"No fleet fits and has a price: {space['fleets']:,} were tried."
    said = [_kept(answer, name) for name in ("deadline", "budget") if answer[name] is not None]
    if answer["keeps_both"] == [] and answer["met"]:
        said.append("None keeps both.")
    if not said:
        first, last = points[0], points[-1]
        said.append(f"From {_both(first)} ({fleet(first)}) to {_both(last)} ({fleet(last)}).")
        if answer["knee"] is not None:
            knee = points[answer["knee"]]
            said.append(f"The knee: {_both(knee)} ({fleet(knee)}).")
    return " ".join(said)


def _kept(answer: Answer, name: str) -> str:
    """How one limit is kept, or by how much it is missed."""
    limit, unit = answer[name], "s" if name == "deadline" else "USD"
    point = answer["points"][limit["point"]]
    most, best = cells.text(limit["most"], unit), "cheapest" if name == "deadline" else "fastest"
    if limit["met"]:
        return f"The {best} fleet within {most}: {fleet(point)}, {_both(point)}."
    nearest = "fastest" if name == "deadline" else "cheapest"
    over = cells.text(limit["over"], unit)
    return f"No fleet keeps {most}: the {nearest}, {fleet(point)}, takes {_both(point)}, {over} too {'long' if name == 'deadline' else 'much'}."


def _both(point: Answer) -> str:
    return f"{cells.text(point['wall_clock_s'], 's')} for {cells.text(point['cost_usd'], 'USD')}"


def _table(answer: Answer) -> Table:
    points = answer["points"]
    columns = (
        Column(key="number", title=""),
        Column(key="fleet", title="fleet", wide=True),
        *([Column(key="sync", title="kept together", wide=True)] if answer["space"]["ways"] > 1 else []),
        Column(key="gpus", title="GPUs", drop=1),
        Column(key="wall_clock_s", title="takes", unit="s"),
        Column(key="cost_usd", title="costs", unit="USD"),
        Column(key="between", title="90 % between", drop=2),
        Column(key="buys", title="the next faster: a day saved", unit="USD"),
        Column(key="chosen", title=""),
    )
    rows: list[Row] = [
        {
            "number": at, "fleet": fleet(one), "sync": synchronised(one), "gpus": one["gpus"], "wall_clock_s": one["wall_clock_s"],
            "cost_usd": one["cost_usd"], "between": _between(one["intervals"]),
            "buys": None if one["next"] is None else one["next"]["usd_per_day_saved"],
            "chosen": ", ".join(MARKS[name] for name in one["chosen"]),
        }
        for at, one in enumerate(points, 1)
    ]  # fmt: skip
    space = answer["space"]
    caption = f"{space['fleets']:,} fleets of {space['offers']:,} sizes and prices, {space['evaluated']:,} evaluated."
    return Table(
        title=f"Which no other fleet beats in both: {len(points)}", columns=columns, rows=tuple(rows), caption=caption
    )


def synchronised(point: Answer) -> str:
    """How the islands are kept together, in a few words."""
    sync = point["sync"]
    if sync is None:
        return "alone"
    period = [f"H {sync[PERIOD]:,}"] if PERIOD in sync else []
    bits = [f"{sync['bits']:g} bits"] if "bits" in sync else []
    return ", ".join([sync["method"], *period, *bits])


def _between(intervals: Answer) -> str:
    ends = [
        (intervals[name], unit)
        for name, unit in (("wall_clock_s", "s"), ("cost_usd", "USD"))
        if intervals[name] is not None
    ]
    return ", ".join(f"{cells.text(low, unit)} and {cells.text(high, unit)}" for (low, high), unit in ends)


def _own(answer: Answer) -> Facts | None:
    """All islands whole beside the front."""
    own, points = answer["yours"], answer["points"]
    if own is None or not points:
        return None
    facts = [Fact(label="all islands whole", value=f"{_both(own)}{'' if own['fits'] else ', does not fit'}")]
    faster, cheaper = own["fastest_for_its_cost"], own["cheapest_for_its_time"]
    better = [at for at in (faster, cheaper) if at is not None and _both(points[at]) != _both(own)]
    if own["fits"] and not better:
        facts.append(Fact(label="beside the others", value="none is as fast for less, or faster for no more"))
    for label, at in (("the fastest at no more cost", faster), ("the cheapest in no more time", cheaper)):
        if at in better:
            facts.append(Fact(label=label, value=f"{_both(points[at])}, {fleet(points[at])}"))
    return Facts(title="Your fleet", facts=tuple(facts))


def _rejected(space: Answer) -> Table | None:
    if not space["rejected"]:
        return None
    rows: tuple[Row, ...] = tuple({"rule": reason, "count": count} for reason, count in space["rejected"].items())
    return Table(
        title="Why others are out",
        columns=(Column(key="count", title="choices"), Column(key="rule", title="rule that they break")),
        rows=rows,
    )


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Cost against wall clock: the front, fleets behind it, limits, what was chosen with its intervals."""
    points = answer["points"]
    if not points:
        return ()
    chosen = [one for one in points if one["chosen"]]
    behind = answer["dominated"]
    far = 1.15 * max(one["wall_clock_s"] for one in points)
    shown = [(x, y) for x, y in behind if x <= far]
    lines = [
        Line(label="the front", x=_of(points, "wall_clock_s"), y=_of(points, "cost_usd"), style="steps"),
        Line(label="other fleets", x=tuple(x for x, _ in shown), y=tuple(y for _, y in shown), style="cloud"),
    ]
    known = [one for one in chosen if None not in one["intervals"].values()]
    if known:
        (left, right), (low, high) = (
            zip(*(one["intervals"][name] for one in known), strict=True) for name in ("wall_clock_s", "cost_usd")
        )
        lines.append(
            Line(label="chosen, with intervals of 90 %", x=_of(known, "wall_clock_s"), y=_of(known, "cost_usd"), style="points",
                 low=low, high=high, left=left, right=right)
        )  # fmt: skip
    return (
        Figure(
            slug="front", title=_found(answer), x=Scale(title="wall clock", unit="s", log=_wide(lines, "x")),
            y=Scale(title="cost of the run", unit="USD", log=_wide(lines, "y")),
            lines=tuple(line for line in lines if line.x), marks=tuple(_marks(answer)), caption=tuple(_caption(answer, len(behind) - len(shown))),
        ),
    )  # fmt: skip


def _wide(lines: Sequence[Line], name: str) -> bool:
    """Whether values are so far apart that an axis should be logarithmic."""
    values = [value for line in lines for value in getattr(line, name)]
    return bool(max(values) > WIDE * min(values) > 0.0)


def _found(answer: Answer) -> str:
    """What the picture shows, in a line or two."""
    points = answer["points"]
    said = []
    for name, key, unit in (("deadline", "cost_usd", "USD"), ("budget", "wall_clock_s", "s")):
        limit = answer[name]
        if limit is not None:
            most = cells.text(limit["most"], "s" if name == "deadline" else "USD")
            at = points[limit["point"]]
            near = f"the {'fastest takes' if name == 'deadline' else 'cheapest costs'} {_figure(at, name)}"
            kept = f"within {most}: {cells.text(at[key], unit)} with {_short(at)}"
            said.append(kept if limit["met"] else f"no fleet keeps {most}: {near}")
    if not said and answer["knee"] is not None:
        said.append(f"the knee is at {_both(points[answer['knee']])}: {_short(points[answer['knee']])}")
    told = "; ".join(said) or f"from {_both(points[0])} to {_both(points[-1])}"
    return told[0].upper() + told[1:]


def _figure(point: Answer, name: str) -> str:
    """The figure of a point that a limit is of."""
    return cells.text(point["wall_clock_s"], "s") if name == "deadline" else cells.text(point["cost_usd"], "USD")


def _of(points: Sequence[Answer], key: str) -> tuple[float, ...]:
    return tuple(one[key] for one in points)


def _marks(answer: Answer) -> list[Mark]:
    """The limits, the points that were chosen, the user's own fleet."""
    found = []
    for name, unit in (("deadline", "s"), ("budget", "USD")):
        limit = answer[name]
        if limit is not None:
            says = f"{name} {cells.text(limit['most'], unit)}"
            found.append(Mark(says=says, x=limit["most"]) if unit == "s" else Mark(says=says, y=limit["most"]))
    own = answer["yours"]
    for one in answer["points"]:
        if one["chosen"]:
            says = ", ".join(MARKS[name] for name in one["chosen"])
            found.append(Mark(says=f"{says}: {_short(one)}", x=one["wall_clock_s"], y=one["cost_usd"]))
    if own is not None and all(
        abs(own["wall_clock_s"] - one["wall_clock_s"]) > 1e-6 * own["wall_clock_s"]
        for one in answer["points"]
        if one["chosen"]
    ):
        found.append(Mark(says="all islands whole", x=own["wall_clock_s"], y=own["cost_usd"]))
    return found


def _short(point: Answer) -> str:
    """Who takes part, short enough for a picture."""
    told = fleet(point)
    return told if len(told) <= 60 else f"{len(point['islands'])} islands, {point['gpus']:,.0f} GPUs"


def _caption(answer: Answer, beyond: int) -> list[str]:
    space = answer["space"]
    said = [
        f"{space['feasible']:,} of {space['evaluated']:,} fleets and ways to keep them together fit; {len(answer['points'])} are on the front."
    ]
    if beyond:
        said.append(f"Not drawn, as they take far longer: {beyond}.")
    return said


COLUMNS = (
    "point", "fleet", "sync", "gpus", "wall_clock_s", "cost_usd", "next_saves_s", "next_costs_usd", "next_usd_per_day_saved", "chosen",
)  # fmt: skip
"""Of CSV."""


def _flat(answer: Answer) -> list[Row]:
    """CSV: a row a point."""
    rows: list[Row] = []
    for at, one in enumerate(answer["points"], 1):
        then = one["next"] or dict.fromkeys(("saves_s", "costs_usd", "usd_per_day_saved"))
        rows.append(
            {
                "point": at, "fleet": fleet(one), "sync": synchronised(one), "gpus": one["gpus"], "wall_clock_s": one["wall_clock_s"],
                "cost_usd": one["cost_usd"], **{f"next_{name}": value for name, value in then.items()}, "chosen": " ".join(one["chosen"]),
            }
        )  # fmt: skip
    return rows
