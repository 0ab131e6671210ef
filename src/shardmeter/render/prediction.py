"""The page of a prediction: verdict, speed, ledger, memory, run, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.render.csv_text import flatten
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table

Answer = Mapping[str, Any]
NO_WAY_OUT = (
    "none of the changes tried (smaller micro-batch, more sharding, recomputation, tensor parallelism): more GPUs",
)


def document(answer: Answer, title: str = "") -> Document:
    """A `predict` JSON as a document; `title` names the question."""
    bottleneck = answer.get("bottleneck") or {}
    speed: list[Section | None] = [_speed(answer), _ledger(answer), _bottleneck(bottleneck)]
    memory: list[Section | None] = [_memory(answer["memory"])]
    ways: list[Section | None] = [_notes("What would fit", answer.get("way_out") or NO_WAY_OUT)]
    sections: list[Section | None] = [
        *(speed + memory if answer["fits"] else ways + memory + speed),
        _run(answer.get("run")),
        _notes("Assumed", answer.get("assumptions") or ()),
    ]
    return Document(
        title=title,
        verdict=_verdict(answer),
        good=bool(answer["fits"]),
        sections=tuple(section for section in sections if section is not None),
        data=answer,
        flat=(flatten({key: value for key, value in answer.items() if key != "intervals"}),),
    )


def _verdict(answer: Answer) -> str:
    memory = answer["memory"]
    peak, limit = memory["peak_gib"], memory["limit_gib"]
    if answer["fits"]:
        return f"Fits: {peak:.1f} of {limit:.1f} GiB on the fullest GPU."
    return (
        f"Does not fit: needs {peak:.1f} GiB on the fullest GPU, which has {limit:.1f} GiB ({peak - limit:.1f} short)."
    )


def _speed(answer: Answer) -> Facts:
    return Facts(
        title="Speed",
        facts=(
            Fact(label="step", value=answer["step_time_s"], unit="s", note=_interval(answer)),
            Fact(label="throughput", value=answer["tokens_per_s"], unit="tokens/s"),
            Fact(label="per GPU", value=answer["tokens_per_s_per_gpu"], unit="tokens/s"),
            Fact(label="MFU", value=answer["mfu"], unit="%", note=_hfu(answer)),
            Fact(label="model FLOPs per GPU", value=answer["tflops_per_gpu"], unit="TFLOP/s"),
        ),
    )


def _interval(answer: Answer) -> str:
    intervals = answer.get("intervals") or {}
    bounds = intervals.get("step_time_s")
    if not bounds:
        return "90 % interval: not built yet"
    low, high = bounds
    return f"{100 * intervals.get('level', 0.9):.0f} % interval: {low:.3g} to {high:.3g} s"


def _hfu(answer: Answer) -> str:
    hfu = answer.get("hfu")
    return f"HFU {100 * hfu:.1f} % (recomputation counted)" if hfu is not None else ""


def _ledger(answer: Answer) -> Table:
    rows: list[Row] = [
        {**{key: entry.get(key) for key in ("term", "seconds", "share", "cause")}, "hidden_seconds": _hidden(entry)}
        for entry in answer["ledger"]
    ]
    return Table(
        title="Where a step goes",
        columns=(
            Column(key="term", title="term", wide=True),
            Column(key="seconds", title="exposed", unit="s"),
            Column(key="share", title="share", unit="%"),
            Column(key="share", title="", bar=True),
            Column(key="hidden_seconds", title="hidden", unit="s"),
            Column(key="cause", title="cause", wide=True),
        ),
        rows=tuple(_with_bars(rows)),
        total={"term": "step", "seconds": answer["step_time_s"], "share": 1.0 if answer["step_time_s"] else None},
    )


def _hidden(entry: Answer) -> float | None:
    return entry.get("hidden_seconds") or None


def _with_bars(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["seconds"] or row["hidden_seconds"]]


def _bottleneck(bottleneck: Answer) -> Notes | None:
    if not bottleneck.get("term"):
        return None
    share = bottleneck.get("share")
    line = bottleneck["term"] + (f" ({100 * share:.0f} % of the step)" if share is not None else "")
    advice = bottleneck.get("advice")
    return Notes(title="Bottleneck", lines=(line + (f": {advice}" if advice else ""),))


def _memory(memory: Answer) -> Table:
    limit = memory["limit_gib"]
    rows: list[Row] = [
        {
            "term": term["term"],
            "gib": term["gib"],
            "share": term["gib"] / limit if limit else None,
            "exactness": term.get("exactness"),
        }
        for term in memory["terms"]
    ]
    peak = memory["peak_gib"]
    return Table(
        title="Memory of the fullest GPU at its peak",
        columns=(
            Column(key="term", title="term", wide=True),
            Column(key="gib", title="size", unit="GiB"),
            Column(key="share", title="of the limit", unit="%"),
            Column(key="share", title="", bar=True),
            Column(key="exactness", title="how sure"),
        ),
        rows=tuple(row for row in rows if row["gib"]),
        total={"term": f"peak (limit {limit:.1f} GiB)", "gib": peak, "share": peak / limit if limit else None},
    )


def _run(run: Answer | None) -> Facts | None:
    if not run:
        return None
    seconds = run.get("wall_clock_s")
    facts = [
        Fact(label="wall clock", value=seconds / 86400 if seconds is not None else None, unit="days"),
        Fact(label="tokens", value=run.get("tokens"), unit="tokens"),
        Fact(label="steps", value=run.get("steps")),
        Fact(label="GPU time", value=run.get("gpu_hours"), unit="GPU-hours"),
        Fact(label="goodput", value=run.get("goodput"), unit="%"),
        Fact(label="cost", value=run.get("cost_usd"), unit="USD", note=_basis(run)),
        Fact(label="energy", value=run.get("energy_kwh"), unit="kWh"),
        Fact(label="carbon", value=run.get("carbon_kg"), unit="kg"),
        Fact(label="loss", value=run.get("loss")),
    ]
    return Facts(title="The whole run", facts=tuple(fact for fact in facts if fact.value is not None))


def _basis(run: Answer) -> str:
    return "; ".join(str(term["basis"]) for term in run.get("cost_terms") or () if term.get("basis"))


def _notes(title: str, lines: Any) -> Notes | None:
    return Notes(title=title, lines=tuple(str(line) for line in lines)) if lines else None
