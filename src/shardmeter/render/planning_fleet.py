"""The page of a search over several islands: who trains, how they are kept together, and with which plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import planning
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, filled, remarks
from shardmeter.render.heading import islands_of
from shardmeter.render.islands import loss_text
from shardmeter.render.prediction import doubtful
from shardmeter.specs import Scenario

PLACED = 8
"""Islands up to which pipelines name theirs."""
Answer = Mapping[str, Any]
NAMED = 3
"""Islands that a cell names; more are counted."""


def title(scenario: Scenario) -> str:
    """The question in one line."""
    return f"plans for {scenario.model.name} on {islands_of(scenario.fleet.islands)} · {scenario.stack.name}"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """A `plan` JSON of several islands as a document. `short` leaves out what was assumed."""
    plans = answer["plans"]
    shown: list[Section] = [
        *sections(answer),
        *([Notes(title="To predict the first", lines=_again())] if plans and not short else []),
        remarks(answer, short=short),
    ]
    return Document(
        title=heading,
        verdict=_verdict(answer),
        good=bool(plans),
        sure=bool(answer["space"]["optimal"]) and not (plans and doubtful(plans[0])),
        sections=tuple(shown),
        data=dict(answer),
        flat=tuple(_flat(answer)),
    )


def sections(answer: Answer) -> tuple[Section, ...]:
    """The tables of a `plan` JSON of several islands: the best plans, the front, the user's own, what was searched."""
    plans, front = answer["plans"], answer["pareto"]
    found: list[Section | None] = [
        _table(plans, answer, f"The best plans, by {answer['objective'][0]}") if plans else None,
        _islands(plans[0]) if plans else None,
        _table(front, answer, f"Which no other one beats in {' and '.join(answer['objective'])}: {len(front)}")
        if len(front) > 1
        else None,
        _without(answer["without"]),
        _yours(answer),
        _miss(answer["nearest_miss"]),
        _kinds(answer["space"]),
        planning.rejected(answer["space"], answer["space"]["joint"]),
    ]
    return tuple(section for section in found if section is not None)


def _verdict(answer: Answer) -> str:
    space = answer["space"]
    counted = f"{space['evaluated'] - space['joint']:,} plans of islands, {space['joint']:,} of all together"
    if not answer["plans"]:
        return f"No plan is feasible: {counted}."
    first = answer["plans"][0]
    gap = space.get("gap")
    how = "optimal in this space"
    if not space["optimal"]:
        how = "the best so far" if gap is None else f"at most {100 * gap:.1f} % behind the best of this space"
    method = "alone" if first["method"] is None else first["method"]
    return f"Best: {_members(first)}, {method} ({how}: {counted}, {space['feasible']:,} feasible)."


def _members(one: Answer) -> str:
    """The islands of a plan, those of a pipeline in order."""
    names = [island["name"] for island in one["islands"]]
    cells = [list(dict.fromkeys(cell)) for cell in (one["plan"].get("placement") or {}).get("pp", ())]
    if cells:
        alone = [name for name in names if not any(name in cell for cell in cells)]
        if len(names) <= PLACED:
            return " | ".join([*(" → ".join(cell) for cell in cells), *alone])
        pipelines = f"{len(cells)} pipeline{'s' if len(cells) > 1 else ''} of {len(cells[0])} islands"
        return f"{pipelines}, {len(alone)} alone" if alone else pipelines
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} islands"


def _columns(answer: Answer, rows: Sequence[Row]) -> tuple[Column, ...]:
    """What varies, and what always counts."""
    asked = answer["objective"]
    lasts = any(row["wall_clock_s"] is not None for row in rows)
    columns = (
        Column(key="rank", title=""),
        Column(key="members", title="islands", wide=True, wrap=","),
        Column(key="plans", title="plan of an island", wide=True, wrap=","),
        Column(key="method", title="method"),
        Column(key="sync_every", title="every"),
        Column(key="bits", title="bits", drop=4),
        Column(key="fragments", title="fragments", drop=5),
        Column(key="delay", title="delay", drop=5),
        Column(key="more", title="with", drop=5, wrap=","),
        Column(key="sent", title="sent a step", unit="B", drop=3),
        Column(key="step_time_s", title="step", unit="s", drop=0 if not lasts else 2),
        Column(key="tokens_per_s", title="tokens/s"),
        Column(key="behind", title="behind", unit="%", drop=1),
        Column(key="wall_clock_s", title="run", unit="s"),
        Column(key="cost_usd", title="cost", unit="USD"),
        *((Column(key="cost_per_m", title="cost/M tokens", unit="USD"),) if "cost" in asked and not lasts else ()),
        *((Column(key="energy_kwh", title="energy", unit="kWh"),) if "energy" in asked and lasts else ()),
        Column(key="loss", title="loss"),
        Column(key="pace", title="sets the pace", drop=3),
        Column(key="waits_s", title="most wait", unit="s", drop=4),
        Column(key="mark", title=""),
    )
    return filled(columns, rows)


TOLD_APART = ("members", "method", "sync_every", "bits", "fragments", "delay", "more")
"""What a row says of a plan. Rows that are alike in it say the plans of the islands too."""
MORE = ("top_k", "blocks", "levels", "rank", "perturbations", "together")
"""Numbers of a synchronisation that few methods read: one column for all."""
LEGEND = (
    ("sync_every", "every: inner steps of a round"),
    ("waits_s", "most wait: of any island, in a round"),
    ("mark", "tie: measured runs leave open which is ahead"),
)


def _row(one: Answer, rank: int) -> Row:
    each = one["cost_usd_per_token"]
    keys = (
        "method", "sync_every", "bits", "step_time_s", "tokens_per_s", "behind", "wall_clock_s", "cost_usd", "energy_kwh",
    )  # fmt: skip
    more = ",".join(f"{name}={one[name]:g}" for name in MORE if one[name] is not None)
    return {
        "more": more, "rank": str(rank), "members": _members(one), **{key: one[key] for key in keys},
        "fragments": one["num_fragments"], "delay": one["fragment_sync_delay"], "sent": one["sent_bytes_per_step"] or None,
        "loss": loss_text(one["loss_effect"]) or "", "cost_per_m": None if each is None else 1e6 * each, "pace": one["sets_the_pace"] if len(one["islands"]) > 1 else "",
        "waits_s": one["waits_s"] or None, "mark": "tie" if one["tie"] and rank > 1 else "",
    }  # fmt: skip


def _table(plans: Sequence[Answer], answer: Answer, heading: str) -> Table:
    rows = [_row(one, rank) for rank, one in enumerate(plans, start=1)]
    if len({row["members"] for row in rows}) == 1:  # the headline says them
        rows = [{**row, "members": ""} for row in rows]
    if len({tuple(row[key] for key in TOLD_APART) for row in rows}) < len(rows):
        rows = [{**row, "plans": _plans(one)} for row, one in zip(rows, plans, strict=True)]
    return Table(
        title=heading,
        columns=_columns(answer, rows),
        rows=tuple(rows),
        caption="; ".join(says for key, says in LEGEND if any(row[key] not in (None, "") for row in rows)),
    )


def _plans(one: Answer) -> str:
    """The plans of the islands of one, equal ones once; unlike ones with how many islands have them."""
    counted = Counter(island["plan"] for island in one["islands"])
    if len(counted) == 1:
        return str(next(iter(counted)))
    return "; ".join(f"{many} × {plan}" for plan, many in counted.items())


def _islands(first: Answer) -> Table:
    """The plans of the islands of the first, equal ones once."""
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for one in first["islands"]:
        key = (
            one["plan"],
            one["global_batch"],
            one["step_time_s"],
            one["wait_s"],
            one["memory_peak_gib"],
            one["memory_limit_gib"],
        )
        grouped.setdefault(key, []).append(one["name"])
    rows: list[Row] = [
        {
            "islands": ", ".join(names) if len(names) <= NAMED else f"{names[0]} and {len(names) - 1} more",
            "plan": key[0], "batch": key[1], "step": key[2], "wait": key[3] or None, "peak": key[4],
        }
        for key, names in grouped.items()
    ]  # fmt: skip
    columns = (
        Column(key="islands", title="islands"),
        Column(key="plan", title="plan", wide=True, wrap=","),
        Column(key="batch", title="batch"),
        Column(key="step", title="inner step", unit="s"),
        Column(key="wait", title="waits a round", unit="s"),
        Column(key="peak", title="peak", unit="GiB"),
    )
    kept = filled(columns, rows)
    return Table(title="The islands of the first", columns=kept, rows=tuple(rows))


def _without(without: Sequence[Answer]) -> Notes | None:
    if not without:
        return None
    return Notes(
        title="Better without",
        lines=tuple(
            f"without {one['leaves_out']}: {100 * one['saves']:.1f} % less (--set fleet.use=any chooses the islands)"
            for one in without
        ),
    )


def _yours(answer: Answer) -> Facts | None:
    yours = answer["yours"]
    if yours is None:
        return None
    behind = yours["behind"]
    side = "ahead of" if behind < 0.0 else "behind"
    said = f"{100 * abs(behind):.1f} % {side} the best{' (a tie)' if yours['tie'] else ''}"
    facts = [
        Fact(label="plan", value=yours["line"]),
        Fact(label="method", value=yours["method"]),
        Fact(label="fits", value="yes" if yours["fits"] else "no"),
        Fact(label="step", value=yours["step_time_s"], unit="s", note=said if answer["plans"] else ""),
        Fact(label="throughput", value=yours["tokens_per_s"], unit="tokens/s"),
    ]
    return Facts(title="Your plan", facts=tuple(fact for fact in facts if fact.value is not None))


def _miss(miss: Answer | None) -> Facts | None:
    if miss is None:
        return None
    facts = [
        Fact(label="plan", value=miss["line"]),
        Fact(label="memory", value=f"{miss['memory_peak_gib']:.1f} of {miss['memory_limit_gib']:.1f} GiB"),
        Fact(label="run", value=miss["wall_clock_s"], unit="s"),
        Fact(label="cost", value=miss["cost_usd"], unit="USD"),
    ]
    return Facts(title="What comes nearest", facts=tuple(fact for fact in facts if fact.value is not None))


def _some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _kinds(space: Answer) -> Table:
    several = len({tuple(one["methods"]) for one in space["kinds"]}) > 1
    rows: list[Row] = [
        {
            "islands": _some(one["islands"], NAMED), "methods": _some(one["methods"], 1) if several else None,
            "batches": ", ".join(f"{batch:,.0f}" for batch in one["global_batch"]),
            "evaluated": one["evaluated"], "feasible": one["feasible"], "kept": one["kept"],
            "mark": "" if one["fits"] else "none fits",
        }
        for one in space["kinds"]
    ]  # fmt: skip
    return Table(
        title="What each kind of islands was searched for",
        columns=(
            Column(key="islands", title="islands"),
            *([Column(key="methods", title="for")] if several else []),
            Column(key="batches", title="compared at a batch of", drop=1),
            Column(key="evaluated", title="plans"),
            Column(key="feasible", title="feasible"),
            Column(key="kept", title="joined"),
            Column(key="mark", title=""),
        ),
        rows=tuple(rows),
    )


def _again() -> tuple[str, ...]:
    return ("--format json > plans.json; take plans[0] of it into a file of its own: shardmeter predict FILE.json",)


def _flat(answer: Answer) -> list[Row]:
    """A row for every plan of the list, then of the front."""
    made: list[Row] = []
    for kind in ("plans", "pareto"):
        for rank, one in enumerate(answer[kind], start=1):
            figures = {key: value for key, value in one.items() if not isinstance(value, dict | list)}
            names = " ".join(island["name"] for island in one["islands"])
            made.append({"list": kind, "rank": rank, "islands": names, **figures})
    return made
