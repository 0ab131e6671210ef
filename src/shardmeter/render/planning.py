"""The page of a search: the best plans, the front, why the others are out, what would make one fit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.csv_text import flatten
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, filled, remarks
from shardmeter.render.prediction import SURE, doubtful, options
from shardmeter.specs import Scenario

Answer = Mapping[str, Any]
FRONT = 20
"""Members of the front that the page shows; JSON and CSV have all."""
REASONS = 12


def title(scenario: Scenario) -> str:
    """The question in one line: what is trained, where, with which software."""
    choices = scenario.choices
    islands = scenario.fleet.islands if choices is None else choices.islands
    named: dict[str, list[str]] = {}
    for island in islands:
        named.setdefault(island.accelerator.name, []).append(f"{float(island.gpus):,.0f}")
    fleet = " or ".join(f"{' | '.join(sizes)} × {name}" for name, sizes in named.items())
    return f"plans for {scenario.model.name} on {fleet} · {scenario.stack.name}"


def document(answer: Answer, heading: str = "", *, command: str = "", short: bool = False) -> Document:
    """A `plan` JSON as a document; `command` predicts the scenario, to which a plan is added. `short` leaves out what was assumed."""
    plans = answer["plans"]
    shown: list[Section | None] = [
        *sections(answer),
        Notes(title="To predict the first", lines=(_again(answer, command),)) if plans and command else None,
        remarks(answer, short=short),
    ]
    return Document(
        title=heading,
        verdict=_verdict(answer),
        good=bool(plans),
        sure=bool(answer["space"]["optimal"]) and not (plans and doubtful(plans[0])),
        sections=tuple(section for section in shown if section is not None),
        data={**answer, "command": _again(answer, command) if plans and command else ""},
        flat=tuple(_flat(answer)),
    )


def sections(answer: Answer) -> tuple[Section, ...]:
    """The tables of a `plan` JSON: the best plans, the front, the user's own, why others are out."""
    plans, front = answer["plans"], answer["pareto"]
    found: list[Section | None] = [
        _plans(answer) if plans else None,
        _front(answer) if len(front) > 1 else _alone(answer) if front and len(answer["objective"]) > 1 else None,
        _yours(answer),
        _miss(answer["nearest_miss"]),
        _ways(answer["way_out"]) if answer["nearest_miss"] else None,
        rejected(answer["space"], answer["space"]["evaluated"]),
    ]
    return tuple(section for section in found if section is not None)


def _verdict(answer: Answer) -> str:
    space = answer["space"]
    counted = f"{space['evaluated']:,} plans"
    if not space["optimal"]:
        counted = f"interrupted after {counted}"
    if not answer["plans"]:
        return f"No plan is feasible: {counted}, all of them out."
    first = answer["plans"][0]
    ties = sum(1 for one in answer["plans"] if one["tie"])
    how = "optimal in this space" if space["optimal"] else "the best so far"
    alike = (
        f", {ties} of the {len(answer['plans'])} listed within what measured runs can tell apart" if ties > 1 else ""
    )
    best = f"Best: {first['line']} ({how}: {counted}, {space['feasible']:,} feasible{alike})."
    return " ".join(filter(None, (best, _without(space), _doubt(answer["plans"]))))


def _without(space: Answer) -> str:
    """The sizes that have no plan: the warnings say why."""
    sizes = [f"{one['gpus']:,.0f}" for one in space["shut_out"]]
    if not sizes:
        return ""
    listed = f"{', '.join(sizes[:-1])} and {sizes[-1]}" if len(sizes) > 1 else sizes[0]
    return f"Of {listed} GPUs no plan is legal."


def _doubt(plans: Sequence[Answer]) -> str:
    """Whether the best, or others that are listed, may not fit after all."""
    open_ones = sum(1 for one in plans if doubtful(one))
    if plans and doubtful(plans[0]):
        verb = "is" if open_ones == 2 < len(plans) else "are"
        how_many = "the" if open_ones == len(plans) else f"{open_ones - 1} of the {len(plans) - 1}"
        others = f"; so {verb} {how_many} others" if open_ones > 1 else ""
        return f"It is borderline, with a chance of {_percent(plans[0]['fits_probability'])} to fit{others}."
    if not open_ones:
        return ""
    verb = "is" if open_ones == 1 else "are"
    return f"{open_ones} of the {len(plans)} listed {verb} borderline (a chance below {_percent(SURE)} to fit)."


def _percent(chance: float) -> str:
    return "> 99 %" if chance > 0.99 else "< 1 %" if chance < 0.01 else f"{math.floor(100 * chance)} %"


def _columns(answer: Answer) -> tuple[Column, ...]:
    """The columns of plans: what was asked for, and what always counts; what one does not decide on makes room first."""
    asked = answer["objective"]
    lasts = any(one["wall_clock_s"] is not None for one in answer["plans"])
    doubt = any(doubtful(one) for one in (*answer["plans"], *answer["pareto"]))
    energy = ("energy_kwh", "energy", "kWh") if lasts else ("energy_j_per_token", "energy/token", "W*s")
    return (
        Column(key="rank", title=""),
        Column(key="line", title="plan", wide=True, wrap=","),
        *(Column(key=name, title=text) for name, text in _varying(answer)),
        Column(key="step_time_s", title="step", unit="s", drop=4 if lasts else 0),
        Column(key="tokens_per_s", title="tokens/s", drop=0 if "throughput" in asked else 3),
        Column(key="behind", title="behind", unit="%", drop=2),
        Column(key="wall_clock_s", title="run", unit="s"),
        Column(key="cost_usd", title="cost", unit="USD"),
        *((Column(key="cost_per_m", title="cost/M tokens", unit="USD"),) if "cost" in asked and not lasts else ()),
        *((Column(key=energy[0], title=energy[1], unit=energy[2]),) if "energy" in asked else ()),
        Column(key="mfu", title="MFU", unit="%", drop=5),
        Column(key="memory_peak_gib", title="peak", unit="GiB", drop=6),
        *((Column(key="fit", title="fit"),) if doubt else ()),
        Column(key="mark", title=""),
    )


def _varying(answer: Answer) -> Sequence[tuple[str, str]]:
    """Sizes that are open beside the plan: GPUs, sequence, batch."""
    rows = [*answer["plans"], *answer["pareto"]]
    named = (("gpus", "GPUs"), ("seq_len", "seq"), ("global_batch", "batch"))
    return [(name, text) for name, text in named if len({one[name] for one in rows}) > 1]


def _row(one: Answer, rank: int) -> Row:
    keys = (
        "line", "gpus", "seq_len", "global_batch", "step_time_s", "tokens_per_s", "wall_clock_s", "cost_usd", "energy_kwh",
        "energy_j_per_token", "mfu", "memory_peak_gib", "behind",
    )  # fmt: skip
    each, chance = one["cost_usd_per_token"], one["fits_probability"]
    return {
        "rank": str(rank), **{key: one[key] for key in keys}, "cost_per_m": None if each is None else 1e6 * each,
        "fit": None if chance is None else _percent(chance), "mark": "tie" if one["tie"] and rank > 1 else "",
    }  # fmt: skip


def _plans(answer: Answer) -> Table:
    rows = [_row(one, rank) for rank, one in enumerate(answer["plans"], start=1)]
    limit = answer["plans"][0]["memory_limit_gib"]
    columns = filled(_columns(answer), rows)
    fit = "; fit: the chance to fit" if any(column.key == "fit" for column in columns) else ""
    return Table(
        title=f"The best plans, by {answer['objective'][0]} (within 1 % the simpler one first)",
        columns=columns,
        rows=tuple(rows),
        caption=f"of {limit:.1f} GiB{fit}; tie: measured runs leave open which of it and the best is ahead",
    )


def _alone(answer: Answer) -> Notes:
    """A front of one."""
    words = " and ".join(answer["objective"])
    return Notes(
        title=f"Which no other one beats in {words}: 1",
        lines=(f"one plan is best in all: {answer['pareto'][0]['line']}",),
    )


def _front(answer: Answer) -> Table:
    """Every compromise between the objectives, as bars of what each takes of the most."""
    front = answer["pareto"]
    step = max(1, -(-len(front) // FRONT))
    picked = front[::step]
    rows = [_row(one, rank) for rank, one in enumerate(picked, start=1)]
    bars = []
    for word in answer["objective"]:
        figures = [_figure(one, word) for one in picked]
        most = max(figures) or 1.0
        rows = [{**row, f"bar {word}": figure / most} for row, figure in zip(rows, figures, strict=True)]
        bars.append(Column(key=f"bar {word}", title=word, bar=True, drop=1))
    left = f"{len(picked)} of {len(front)} (all in --format json)" if step > 1 else f"{len(front)}"
    return Table(
        title=f"Which no other one beats in {' and '.join(answer['objective'])}: {left}",
        columns=(*filled(_columns(answer), rows), *bars),
        rows=tuple(rows),
    )


def _figure(one: Answer, word: str) -> float:
    """What a plan takes, or does, for each token: as it does for all tokens of a run."""
    rate = float(one["tokens_per_s"])
    if word in ("time", "throughput"):
        return rate if word == "throughput" else 1.0 / rate
    return float(one["cost_usd_per_token" if word == "cost" else "energy_j_per_token"] or 0.0)


def _yours(answer: Answer) -> Facts | None:
    yours = answer["yours"]
    if yours is None:
        return None
    space = answer["space"]
    place = f"{yours['rank']:,} of {space['feasible']:,} feasible" if yours["rank"] else "not feasible"
    if not yours["fits"]:
        place = f"does not fit: {yours['memory_peak_gib']:.1f} of {yours['memory_limit_gib']:.1f} GiB"
    behind = yours["behind"]
    side = "ahead of" if behind < 0.0 else "behind"
    said = f"{100 * abs(behind):.1f} % {side} the best{' (a tie)' if yours['tie'] else ''}"
    best = answer["plans"][0]["scenario"]["plan"] if answer["plans"] else {}
    differs = ", ".join(
        f"{name} {_said(value)} (best: {_said(best.get(name, '–'))})" for name, value in yours["differs"].items()
    )
    facts = [
        Fact(label="plan", value=yours["line"]),
        Fact(label="rank", value=place),
        Fact(label="step", value=cells.text(yours["step_time_s"], "s"), note=said if answer["plans"] else ""),
        Fact(label="differs in", value=differs or "nothing"),
    ]
    return Facts(title="Your plan", facts=tuple(facts))


def _said(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _miss(miss: Answer | None) -> Facts | None:
    if miss is None:
        return None
    facts = [
        Fact(label="plan", value=miss["line"]),
        Fact(label="memory", value=f"{miss['memory_peak_gib']:.1f} of {miss['memory_limit_gib']:.1f} GiB"),
        Fact(label="step", value=cells.text(miss["step_time_s"], "s")),
    ]
    if miss["wall_clock_s"] is not None:
        facts.append(Fact(label="run", value=cells.text(miss["wall_clock_s"], "s")))
    if miss["cost_usd"] is not None:
        facts.append(Fact(label="cost", value=cells.text(miss["cost_usd"], "USD")))
    return Facts(title="What comes nearest", facts=tuple(facts))


def _ways(ways: Sequence[Answer]) -> Section:
    if not ways:
        return Notes(title="What would do", lines=("none of the changes tried, alone or together",))
    rows: list[Row] = [
        {
            "change": one["change"],
            "step": one.get("step_time_s"),
            "peak": one.get("memory_peak_gib"),
            "run": one.get("wall_clock_s"),
            "cost": one.get("cost_usd"),
            "set": options(one["set"]),
        }
        for one in ways
    ]
    columns = (
        Column(key="change", title="change", wide=True),
        Column(key="step", title="step", unit="s"),
        Column(key="peak", title="peak", unit="GiB"),
        Column(key="run", title="run", unit="s"),
        Column(key="cost", title="cost", unit="USD"),
        Column(key="set", title="option", wide=True),
    )
    return Table(
        title="What would do (evaluated for the plan that comes nearest)",
        columns=filled(columns, rows),
        rows=tuple(rows),
    )


def rejected(space: Answer, evaluated: int) -> Table | None:
    """Why plans are out, of so many; None where none is."""
    reasons = list(space["rejected"].items())
    if not reasons:
        return None
    rows: list[Row] = [
        {"count": count, "share": count / evaluated, "bar": count / evaluated, "reason": reason}
        for reason, count in reasons[:REASONS]
    ]
    return Table(
        title=f"Why {plain_sum(space['rejected'].values()):,} of {evaluated:,} are out (each counted once)",
        columns=(
            Column(key="count", title="plans"),
            Column(key="share", title="share", unit="%"),
            Column(key="bar", title="", bar=True, drop=1),
            Column(key="reason", title="rule that it breaks", wide=True),
        ),
        rows=tuple(rows),
    )


def _again(answer: Answer, command: str) -> str:
    """The command that predicts the first plan, at the batch that all were compared at."""
    first = answer["plans"][0]
    words = [
        "--plan",
        first["line"],
        "--seq",
        f"{first['seq_len']:.0f}",
        "--global-batch",
        f"{first['global_batch']:.0f}",
    ]
    return f"{command} {shlex.join(words)}"


def _flat(answer: Answer) -> list[Row]:
    """A row for every plan of the list, then of the front."""
    made: list[Row] = []
    for kind in ("plans", "pareto"):
        for rank, one in enumerate(answer[kind], start=1):
            figures = {key: value for key, value in one.items() if not isinstance(value, dict | list)}
            made.append({"list": kind, "rank": rank, **figures, **flatten({"plan": one["plan"]})})
    return made
