"""What a run learns and in which phases, as sections of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.quantity import show as text
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Fact, Row, Section, Table

Answer = Mapping[str, Any]


def sections(answer: Answer) -> tuple[Section, ...]:
    """The tables of a `predict` JSON whose run has a law or phases."""
    run = answer.get("run") or {}
    found = []
    if run.get("phases"):
        found.append(_phases(run))
    if run.get("loss_terms"):
        found.append(_loss(run, answer.get("intervals") or {}))
    return tuple(found)


def other_laws(run: Answer) -> list[Fact]:
    """What the other laws make of a target: their fewest and most tokens, and the wall clocks of these."""
    laws = run.get("other_laws")
    if not laws:
        return []
    each = [
        f"{one['name']} {cells.text(one['tokens'], 'tokens')}{' (outside of its fit)' if one['outside'] else ''}"
        for one in laws
    ]
    note = f"{_ends(laws, 'wall_clock_s', 's')}; {', '.join(each)}"
    return [Fact(label="other laws", value=_ends(laws, "tokens", "tokens"), note=note)]


def _ends(laws: Sequence[Answer], key: str, unit: str) -> str:
    """`290B to 2.6T tokens`: the least and the most."""
    low, high = (cells.coarse(end(one[key] for one in laws), unit) for end in (min, max))
    return high if low == high else f"{low.removesuffix(' tokens')} to {high}"


def _phases(run: Answer) -> Table:
    """One row a phase, each with the step of its own batch."""
    return Table(
        title="Phases",
        columns=(
            Column(key="tokens", title="tokens", unit="tokens"),
            Column(key="global_batch", title="sequences a step"),
            Column(key="seq_len", title="of"),
            Column(key="step_time_s", title="step", unit="s"),
            Column(key="tokens_per_s", title="tokens/s", drop=2),
            Column(key="memory_peak_gib", title="peak", unit="GiB", drop=1),
            Column(key="seconds", title="lasts", unit="s"),
        ),
        rows=tuple(run["phases"]),
        total={"tokens": run["tokens"], "seconds": plain_sum(one["seconds"] for one in run["phases"])},
    )


def _loss(run: Answer, intervals: Answer) -> Table:
    """What the loss is made of; what does not count stands beside it in brackets."""
    law, batch = run["law"], run.get("critical_batch")
    rows: list[Row] = [
        {
            "term": one["term"] if one["counted"] else f"({one['term']}: not counted)",
            "nats": None if one["nats"] is None else f"{one['nats']:.4f}",
            "basis": one["basis"],
            "text": one["text"],
        }
        for one in run["loss_terms"]
    ]
    bounds = intervals.get("loss")
    said = [f"{law['name']}: {law['data']}, {law['unit']}"]
    said += [f"90 %: {bounds[0]:.3f} to {bounds[1]:.3f}"] if bounds else []
    said += [f"critical batch {batch['tokens'] / 1e6:,.3g}M tokens ({batch['name']})"] if batch else []
    if best := law.get("optimum"):
        said.append(
            f"by the law alone as many FLOPs reach {best['loss']:.3f} with {text(best['parameters'], '')} parameters and {text(best['tokens'], 'tokens')}"
        )
    return Table(
        title="What the loss is made of",
        columns=(
            Column(key="term", title="term"),
            Column(key="nats", title="nats"),
            Column(key="basis", title="how sure", drop=2),
            Column(key="text", title="", wide=True, drop=1),
        ),
        rows=tuple(rows),
        total={"term": "loss", "nats": None if run["loss"] is None else f"{run['loss']:.4f}"},
        caption="; ".join(said),
    )
