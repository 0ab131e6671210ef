"""The part of a prediction's page that tells of several islands: who does what, who waits, what crosses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.core.sums import plain_sum
from shardmeter.render.cells import text
from shardmeter.render.document import Column, Fact, Facts, Row, Section, Table

Answer = Mapping[str, Any]
PACES = {
    "barrier": "all islands meet, the slowest sets the pace",
    "deadline": "rounds end on time, late messages do not count",
    "own": "nobody waits",
}


def sections(answer: Answer, interval: str = "") -> tuple[Section, ...]:
    """The round, with its interval in words, and the islands; nothing for one island."""
    sync = answer.get("sync")
    if not sync:
        return ()
    crossings = [one for one in sync["crossings"] if one["bytes"]]
    return (_round(sync, interval), *([_crossings(crossings)] if crossings else []), _islands(answer["islands"], sync))


def _round(sync: Answer, interval: str) -> Facts:
    steps = sync["period_steps"]
    facts = [
        Fact(label="method", value=sync["method"], note=PACES[sync["pace"]]),
        Fact(label="round", value=sync["round_s"], unit="s", note="; ".join(said for said in (_steps(steps, "inner step"), interval) if said)),
        Fact(label="waits for messages", value=sync["exposed_s"], unit="s", note=_hidden(sync)),
        Fact(label="outer update", value=sync["update_s"] or None, unit="s"),
        Fact(label="time in inner steps", value=sync["utilization"], unit="%"),
        Fact(label="sent a round, all islands", value=sync["sent_bytes"], unit="B"),
        Fact(label="the optimizer sees", value=_model(sync), note=_seen(sync)),
        Fact(label="loss", value=loss_text(sync["loss_effect"]), note=known_text(sync["loss_effect"])),
    ]  # fmt: skip
    return Facts(title="The round", facts=tuple(fact for fact in facts if fact.value is not None))


def _model(sync: Answer) -> str:
    if not sync["crossings"]:
        return "a model of its own"
    copies = sync["progress"]["replicas"]
    return "one model" if copies == 1.0 else f"{copies:g} replicas"


def _seen(sync: Answer) -> str:
    """What convergence depends on, in words."""
    seen = sync["progress"]
    if not sync["crossings"]:
        return "on every island, never averaged"
    if seen["replicas"] == 1.0 and seen["period"] == 1.0:
        return "averaged every step"
    late = f", {_steps(seen['delay'])} late" if seen["delay"] else ""
    return f"averaged every {seen['period']:g} steps{late}, {seen['bits']:.3g} bits"


def loss_text(effect: Answer | None) -> str | None:
    """What the method adds to the loss; None where it trains as one synchronous run does."""
    if effect is None or (effect["nats"] == 0.0 and effect["factor"] in (None, 1.0)):
        return None
    factor, nats = effect["factor"], effect["nats"]
    said = [] if factor in (None, 1.0) else [f"× {factor:.4g}"]
    said += [f"{nats:+.2g} nats a {effect['per']}"] if nats else []
    return ", ".join(said) or ("not known" if factor is None and nats is None else "as every step")


def known_text(effect: Answer | None) -> str:
    """How much of an effect on the loss is known."""
    return "" if effect is None else f"{effect['basis']}: {effect['text']}"


def _steps(count: float, what: str = "step") -> str:
    """`1 step`, `37.5 steps`; nothing for none."""
    return f"{count:,g} {what}{'' if count == 1 else 's'}" if count else ""


def _hidden(sync: Answer) -> str:
    hidden = sync["hidden_s"]
    return f"and {text(hidden, 's')} behind inner steps" if hidden else ""


def _crossings(crossings: Sequence[Answer]) -> Table:
    """Every kind of message. What made it slow is the last column to go: it is why one looks here."""
    rows: list[Row] = [
        {
            "label": one["label"], "bytes": one["bytes"], "messages": one["messages"], "seconds": one["seconds"],
            "window": _steps(one["window_steps"]) or None, "exposed": one["exposed_s"], "narrowest": one["narrowest"],
        }
        for one in crossings
    ]  # fmt: skip
    due = (Column(key="window", title="due after", drop=1),)
    return Table(
        title="What crosses between islands in a round",
        columns=(
            Column(key="label", title="message", wide=True),
            Column(key="bytes", title="size", unit="B", drop=3),
            Column(key="messages", title="times", drop=2),
            Column(key="seconds", title="each takes", unit="s"),
            *(due if any(row["window"] for row in rows) else ()),
            Column(key="exposed", title="waited", unit="s"),
            Column(key="narrowest", title="narrowest", wide=True, drop=4),
        ),
        rows=tuple(rows),
    )


def _islands(islands: Sequence[Answer], sync: Answer) -> Table:
    shown = kinds(islands, _figures)
    rows: list[Row] = [
        {
            "name": span([one["name"] for one in group]),
            "gpus": f"{f'{len(group)} of ' if len(group) > 1 else ''}{group[0]['gpus']:,.0f} × {group[0]['accelerator']}",
            "batch": group[0]["global_batch"],
            "step": group[0]["step_time_s"],
            "steps": group[0]["steps_per_round"],
            "wait": group[0]["wait_s"] or None,
            "rate": plain_sum(one["tokens_per_s"] for one in group),
            "mfu": group[0]["mfu"],
            "peak": group[0]["memory_peak_gib"],
            "mark": _mark(group[0], sync),
        }
        for group in shown
    ]
    return Table(
        title="Islands",
        columns=(
            Column(key="name", title="island"),
            Column(key="gpus", title="accelerators", drop=4),
            Column(key="batch", title="batch", drop=5),
            Column(key="step", title="inner step", unit="s"),
            Column(key="steps", title="steps a round", drop=3),
            Column(key="wait", title="waits a round", unit="s"),
            Column(key="rate", title="tokens/s, all"),
            Column(key="mfu", title="MFU", unit="%", drop=2),
            Column(key="peak", title="peak", unit="GiB", drop=1),
            Column(key="mark", title=""),
        ),
        rows=tuple(rows),
        caption=_of_parts(sync["parts"]),
    )


def _of_parts(parts: float) -> str:
    """How the figures of blocks that are trained apart add up."""
    if parts == 1.0:
        return ""
    return (
        f"Each of the {parts:g} blocks sees every token: tokens/s of the islands add to {parts:g} times the throughput (to more where "
        f"one block falls behind); MFU counts every block's own embedding and head"
    )


def _mark(one: Answer, sync: Answer) -> str:
    marks = [] if one["fits"] else ["does not fit"]
    marks += ["too late"] if not one["counted"] else []
    marks += ["sets the pace"] if one["sets_the_pace"] and sync["pace"] == "barrier" else []
    return ", ".join(marks)


def _figures(one: Answer) -> tuple[Any, ...]:
    """What islands of one line have in common."""
    return tuple(
        one[key] for key in ("accelerator", "gpus", "global_batch", "step_time_s", "counted", "memory_peak_gib")
    )
