"""The pictures of a report: where a step goes, what fills the memory, and days against dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
LEAST = 0.002
"""Share of a step below which a term is drawn with the others that are as small."""
WIDE = 5.0
"""Largest over smallest value of an axis from which on it is logarithmic."""


def waterfall(found: Answer) -> tuple[Figure, ...]:
    """The terms of a step, each from where the last ended, and the step with the ends of its interval."""
    terms = [(one["term"], one["seconds"], one["share"]) for one in found["ledger"] if one["seconds"]]
    if not terms:
        return ()
    large = [(name, seconds) for name, seconds, share in terms if share >= LEAST]
    small = [(name, seconds) for name, seconds, share in terms if share < LEAST]
    rest = small if len(small) < 2 else [(f"{len(small)} smaller terms", sum(seconds for _, seconds in small))]
    names, ends, begins = [], [], []
    reached = 0.0
    for name, seconds in (*large, *rest):
        names.append(f"{name} ({cells.text(seconds, 's')})")
        begins.append(reached)
        reached += seconds
        ends.append(reached)
    names.append(f"the step ({cells.text(reached, 's')})")
    places = tuple(float(place) for place in range(len(names)))
    interval = None if found["step_time_s"] is None else (found["intervals"] or {}).get("step_time_s")
    marks = (
        ()
        if not interval
        else tuple(Mark(says=says, x=end) for says, end in zip(("90 %: low", "90 %: high"), interval, strict=True))
    )
    most = max(large or rest, key=lambda one: one[1])
    caption = ["Every bar begins where the last one ended; what is hidden behind compute is not in it."]
    if interval:
        caption.append("Dashed: both ends of the 90 % interval of the step.")
    return (
        Figure(
            slug="step", title=f"Most of a step of {cells.text(reached, 's')} goes to {most[0]}: {cells.text(most[1] / reached, '%')}",
            x=Scale(title="time in the step", unit="s"), y=Scale(title="", labels=tuple(names)),
            lines=(Line(label="", x=(*ends, reached), y=places, begin=(*begins, 0.0), style="bars"),), marks=marks, caption=tuple(caption),
        ),
    )  # fmt: skip


def memory(found: Answer) -> tuple[Figure, ...]:
    """What fills the fullest accelerator, each from where the last ended, beside its limit."""
    held = found["memory"]
    terms = [(one["term"], one["gib"]) for one in held["terms"] if one["gib"]]
    if not terms:
        return ()
    names, ends, begins = [], [], []
    reached = 0.0
    for name, size in terms:
        names.append(f"{name} ({cells.text(size, 'GiB')})")
        begins.append(reached)
        reached += size
        ends.append(reached)
    names.append(f"the peak ({cells.text(held['peak_gib'], 'GiB')})")
    places = tuple(float(place) for place in range(len(names)))
    spare = held["limit_gib"] - held["peak_gib"]
    left = f"{spare:,.1f} GiB are left" if spare >= 0 else f"{-spare:,.1f} GiB are missing"
    bounds = (found["intervals"] or {}).get("memory_peak_gib")
    marks = [Mark(says=f"limit {held['limit_gib']:,.1f} GiB", x=held["limit_gib"])]
    marks += [Mark(says="90 %: high", x=bounds[1])] if bounds else []
    return (
        Figure(
            slug="memory", title=f"Of {held['limit_gib']:,.1f} GiB on the fullest GPU {left}",
            x=Scale(title="memory", unit="GiB"), y=Scale(title="", labels=tuple(names)),
            lines=(Line(label="", x=(*ends, reached), y=places, begin=(*begins, 0.0), style="bars"),), marks=tuple(marks),
            caption=("Every bar begins where the last one ended.",),
        ),
    )  # fmt: skip


def front(answer: Answer) -> tuple[Figure, ...]:
    """Days against dollars: this scenario, other plans of its machines, the same plan on other machines. Nothing without a cost."""
    own = answer["alternatives"]["own"]
    others = [one for one in answer["alternatives"]["others"] if one["fits"] and one["cost_usd"] is not None]
    plans = [one for one in answer["plans"]["plans"] if one["cost_usd"] is not None]
    if own["cost_usd"] is None or not (others or plans):
        return ()
    here = _points("as it is" if own["fits"] else "as it is (does not fit)", [own], sure=True)
    lines = [
        here,
        _points("other plans of these machines", plans),
        _points("this plan on other machines", others, sure=True),
    ]
    lines = [line for line in lines if line.x]
    marks = [Mark(says=one["says"], x=one["wall_clock_s"], y=one["cost_usd"]) for one in others]
    if plans:
        marks.append(Mark(says="the best plan found", x=plans[0]["wall_clock_s"], y=plans[0]["cost_usd"]))
    run = answer["prediction"]["run"]
    limits = (("deadline", "s"), ("budget", "usd"))
    for name, unit in limits:
        if name in run:
            said = f"{name} {cells.text(run[name][unit], 's' if unit == 's' else 'USD')}"
            marks.append(Mark(says=said, x=run[name]["s"]) if unit == "s" else Mark(says=said, y=run[name]["usd"]))
    return (
        Figure(
            slug="alternatives", title=_compared(own, [*others, *plans]), x=Scale(title="wall clock", unit="s", log=_wide(lines, "x")),
            y=Scale(title="cost of the run", unit="USD", log=_wide(lines, "y")), lines=tuple(lines), marks=tuple(marks),
            caption=("Whiskers: intervals of 90 %. They move together: what is wrong of one is mostly wrong of all.",),
        ),
    )  # fmt: skip


def _points(label: str, those: Sequence[Answer], *, sure: bool = False) -> Line:
    ends = [one["intervals"] for one in those]
    known = sure and bool(those) and all(one.get("wall_clock_s") and one.get("cost_usd") for one in ends)
    bounds = {} if not known else {
        "left": tuple(one["wall_clock_s"][0] for one in ends), "right": tuple(one["wall_clock_s"][1] for one in ends),
        "low": tuple(one["cost_usd"][0] for one in ends), "high": tuple(one["cost_usd"][1] for one in ends),
    }  # fmt: skip
    return Line(
        label=label, x=tuple(one["wall_clock_s"] for one in those), y=tuple(one["cost_usd"] for one in those), style="points", **bounds
    )  # fmt: skip


def _wide(lines: Sequence[Line], name: str) -> bool:
    values = [value for line in lines for value in getattr(line, name)]
    return bool(max(values) > WIDE * min(values) > 0.0)


def _compared(own: Answer, others: Sequence[Answer]) -> str:
    cheapest, fastest = min(others, key=lambda one: one["cost_usd"]), min(others, key=lambda one: one["wall_clock_s"])

    def told(one: Answer) -> str:
        return f"{cells.text(one['wall_clock_s'], 's')} for {cells.text(one['cost_usd'], 'USD')}"

    if cheapest is fastest:
        return f"As it is {told(own)}; the fastest and cheapest of the others {told(fastest)}"
    return f"As it is {told(own)}; the fastest of the others {told(fastest)}, the cheapest {told(cheapest)}"
