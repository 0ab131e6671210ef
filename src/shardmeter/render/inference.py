"""The page of an inference: verdict, how soon and how many, what the hosts hold, the ledger, other ways, where they cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.render import cells, crossover
from shardmeter.render.document import Column, Document, Fact, Facts, Row, Section, Table, remarks
from shardmeter.render.figure import Figure
from shardmeter.render.heading import islands_of
from shardmeter.specs import Scenario

Answer = Mapping[str, Any]
TIMES = (
    ("first token", "first_token_s"), ("each further token", "latency_per_token_s"), ("whole answer", "output_s"),
)  # fmt: skip
RATES = (("of one batch's sequence", "tokens_per_s"), ("of all under way", "tokens_per_s_in_flight"))
PIECES = ("layers", "blocks", "experts")
"""What a host may hold; a column that is zero everywhere is not shown."""


def title(scenario: Scenario, how: str) -> str:
    """The question in one line: what is served, on what, how, with which software."""
    return f"{scenario.model.name} served on {islands_of(scenario.fleet.islands)} · {how} · {scenario.stack.name}"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """An `infer` JSON as a document. `short` leaves out what was assumed."""
    sections: list[Section] = [_figures(answer), _hosts(answer), _ledger(answer)]
    if answer["compared"]:
        sections.append(_compared(answer["compared"], answer["batch"]))
    if answer["crossover"]:
        sections.append(_crossover(answer["crossover"], passes(answer)))
    sections.append(remarks(answer, short=short))
    data = {**answer, "figures": [figure.to_dict() for figure in figures(answer)]}
    return Document(
        title=heading, verdict=_verdict(answer), good=bool(answer["fits"]), sections=tuple(sections), data=data, flat=_flat(answer)
    )  # fmt: skip


def figures(answer: Answer) -> tuple[Figure, ...]:
    """What can be drawn of it: the crossover, where that was asked for."""
    return crossover.figures(answer, passes(answer))


def _verdict(answer: Answer) -> str:
    fullest = max(answer["hosts"], key=lambda host: host["memory_gib"] / host["limit_gib"])
    sizes = f"{fullest['memory_gib']:.1f} of {fullest['limit_gib']:.1f} GiB on {fullest['name']}"
    if not answer["fits"]:
        return f"Does not fit: {sizes}."
    speed = f"{cells.text(answer['output_s'], 's')} for {answer['output']:,.0f} tokens"
    return f"Fits: {sizes}; {speed}, {answer['tokens_per_s_in_flight']:,.0f} tokens/s with {answer['in_flight']:,.0f} sequences under way."


def _figures(answer: Answer) -> Facts:
    bounds, level = answer["intervals"], answer["intervals"]["level"]

    def note(key: str, unit: str) -> str:
        if bounds[key] is None:
            return "all tokens come at once"
        low, high = bounds[key]
        return f"{100 * level:.0f} %: {cells.between(low, high, unit)}"

    facts = [Fact(label=label, value=answer[key], unit="s", note=note(key, "s")) for label, key in TIMES]
    facts += [
        Fact(label=f"tokens a second {label}", value=answer[key], unit="tokens/s", note=note(key, "tokens/s"))
        for label, key in RATES
    ]
    worst = answer["bottleneck"]
    facts.append(Fact(label="bound by", value=f"{worst['term']}, {100 * worst['share']:.0f} % of an answer"))
    facts.append(
        Fact(
            label="busiest place",
            value=worst["busiest"],
            note=f"at work {100 * worst['busiest_share']:.0f} % of the time",
        )
    )
    return Facts(title="How soon, how many", facts=tuple(facts))


def _hosts(answer: Answer) -> Table:
    pieces = [name for name in PIECES if any(host[name] for host in answer["hosts"])]
    rows: list[Row] = [
        {**host, "name": span([one["name"] for one in group]), "of_limit": host["memory_gib"] / host["limit_gib"],
         "held": f"{f'{len(group)} of ' if len(group) > 1 else ''}{host['accelerators']:g} × {host['accelerator']}",
         "verdict": "" if host["fits"] else "does not fit"}
        for group in kinds(answer["hosts"], _figures_of) for host in group[:1]
    ]  # fmt: skip
    columns = (
        Column(key="name", title="host"),
        Column(key="held", title="one copy", drop=1),
        Column(key="copies", title="copies", drop=2),
        *(Column(key=name, title=name) for name in pieces),
        Column(key="seconds", title="works an answer", unit="s"),
        Column(key="memory_gib", title="memory", unit="GiB"),
        Column(key="of_limit", title="of the limit", unit="%"),
        Column(key="verdict", title=""),
    )
    return Table(title="Hosts (memory of the fullest accelerator)", columns=columns, rows=tuple(rows))


def _figures_of(host: Answer) -> tuple[Any, ...]:
    """What hosts of one line have in common."""
    return tuple(value for key, value in host.items() if key not in ("name", "memory_terms"))


def _ledger(answer: Answer) -> Table:
    columns = (
        Column(key="term", title="term"),
        Column(key="seconds", title="an answer", unit="s"),
        Column(key="share", title="share", unit="%"),
        Column(key="share", title="", bar=True, drop=1),
        Column(key="cause", title="cause", drop=2),
    )
    total: Row = {"term": "whole answer", "seconds": answer["output_s"], "share": 1.0}
    return Table(title="Where an answer's time goes", columns=columns, rows=tuple(answer["ledger"]), total=total)


def _compared(rows: list[dict[str, Any]], batch: float) -> Table:
    columns = (
        Column(key="how", title="way"),
        Column(key="first_token_s", title="first token", unit="s"),
        Column(key="latency_per_token_s", title="each further", unit="s"),
        Column(key="output_s", title="whole answer", unit="s"),
        Column(key="tokens_per_s_in_flight", title="tokens/s under way"),
        Column(key="in_flight", title="under way", drop=2),
        Column(key="memory_gib", title="fullest", unit="GiB", drop=1),
        Column(key="said", title="", wide=True),
    )
    told: tuple[Row, ...] = tuple(
        {**row, "said": row["why"] or ("" if row["fits"] else "does not fit")} for row in rows
    )
    caption = (
        f"All at --batch {batch:g}{': one sequence a pass; --batch 64 compares throughput' if batch == 1.0 else ''}."
    )
    return Table(title="Ways to serve", columns=columns, rows=told, caption=caption)


def _crossover(rows: list[dict[str, Any]], often: str) -> Table:
    outputs = [cell["output"] for cell in rows[0]["cells"]]
    columns = (
        Column(key="rtt", title="round trip"),
        *(Column(key=f"{length:g}", title=f"{length:,.0f}") for length in outputs),
        Column(key="at", title="as fast at", drop=1),
        Column(key="local", title="as local at"),
    )
    made: tuple[Row, ...] = tuple(
        {"rtt": "your fleet" if row["fleet"] else cells.text(row["rtt_s"], "s"), "at": crossing(row), "local": crossing(row, "local"),
         **{f"{cell['output']:g}": cell["ratio"] for cell in row["cells"]}}
        for row in rows
    )  # fmt: skip
    caption = f"Above 1 {often} {'is' if often.startswith('one') else 'are'} faster. "
    caption += _of_local(rows[0], often) + "".join(_of_fleet(row) for row in rows if row["fleet"])
    return Table(
        title=f"Seconds of the pipeline over those of {often}, by tokens of output", columns=columns, rows=made, caption=caption
    )  # fmt: skip


def _of_local(row: Mapping[str, Any], often: str) -> str:
    """What the last column means."""
    if row["local_faster_beyond"] is None:
        return "No island holds the whole model."
    return f"As local at: where {often} take{'s' if often.startswith('one') else ''} as long as the whole model on one island."


def _of_fleet(row: Mapping[str, Any]) -> str:
    least, most = (cells.text(row[key], "s") for key in ("rtt_least_s", "rtt_most_s"))
    return f" Your fleet: round trips of {least}{f' to {most}' if most != least else ''}."


def crossing(row: Mapping[str, Any], other: str = "output") -> str | None:
    """Where a traversal and the pipeline (or `other`: "local") take as long, in words; None where there is no other."""
    faster = row["faster_beyond" if other == "output" else f"{other}_faster_beyond"]
    if row[f"{other}_at"] is None:
        return faster and f"nowhere: {faster} is faster"
    lengths = [float(f"{row[name]:.3g}") for name in (f"{other}_at", f"{other}_until") if row[name] is not None]
    return f"{' and '.join(f'{length:,.10g}' for length in lengths)} tokens"


def passes(answer: Answer) -> str:
    """How often the blocks are traversed, in words."""
    return "one traversal" if answer["traversals"] == 1.0 else f"{answer['traversals']:,.0f} traversals"


def _flat(answer: Answer) -> tuple[Row, ...]:
    """CSV: a row a cell of the crossover, or a way, or a host, whichever was asked for last."""
    if answer["crossover"]:
        return tuple(
            {**{key: value for key, value in row.items() if key != "cells"}, **cell}
            for row in answer["crossover"]
            for cell in row["cells"]
        )
    if answer["compared"]:
        return tuple(answer["compared"])
    own = {key: answer[key] for key in ("how", "fits", *(key for _, key in (*TIMES, *RATES)), "in_flight")}
    return tuple(
        {"host": host["name"], **own, **{key: value for key, value in host.items() if key not in ("name", "memory_terms", "fits")},
         "host_fits": host["fits"]}
        for host in answer["hosts"]
    )  # fmt: skip
