"""The page of a prediction: verdict, speed, ledger, memory, run, and what was assumed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.render import cells, islands, learning, limits
from shardmeter.render.csv_text import flatten
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table

Answer = Mapping[str, Any]
NO_WAY_OUT = (
    "none of the changes tried at this global batch, alone or together (up to 32 times the nodes, where their fabric is known): "
    "a larger batch over more GPUs, larger GPUs, or a smaller model"
)
NO_WAY_OUT_TOGETHER = (
    "none of the changes of the islands' plans and of where the outer state lies that were tried, alone or two together: larger GPUs, "
    "more of them an island, or a smaller model"
)
SURE = 0.9
"""Probability above which a plan is said to fit, and below one minus which it is said not to; between them it is borderline,
unless the estimate misses by more than `NEAR`."""
NEAR = 0.1
"""Share of the limit by which the estimate of a borderline plan may exceed it."""
BEST_PLANS = 3
"""Changes of the plan that are listed; of what is bought, and of what is only supposed, the best one each."""
HAD = {"bought": "(has to be bought)", "supposed": "(only supposed: nobody sells it alone)"}
"""How a change of the hardware is had, in words."""
MOST_TERMS, MOST_BASES = 15, 2
"""Terms of a table that are shown one by one, and bases that stand in one cell."""
_KIND = re.compile(r" (?:of|from|to) (?!the )")
"""What stands between the kind of a term and its island."""
WORTH = 0.01
RUN = ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh", "carbon_kg", "goodput")
"""Figures of the run that have an interval."""
MFU = "MFU: full attention counted, causal hardware does half; HFU: recomputation counted too"


def document(answer: Answer, title: str = "", *, short: bool = False) -> Document:
    """A `predict` JSON as a document; `title` names the question. `short` leaves out what was assumed."""
    speed: list[Section | None] = [
        speed_facts(answer),
        *probe_facts(answer),
        *islands.sections(answer, interval_text(answer, "round_s", "s")),
        ledger_table(answer),
        *bottleneck_sections(answer),
    ]
    memory: list[Section | None] = [memory_table(answer)]
    ways: list[Section | None] = [ways_out(answer.get("way_out") or (), alone=not answer.get("sync"))]
    sections: list[Section | None] = [
        *(speed + memory if answer["fits"] else ways + memory + speed),
        run_facts(answer),
        *learning.sections(answer),
        *made_of(answer.get("run")),
        _notes("Warnings", answer.get("warnings") or ())
        if short
        else _notes("Assumed", answer.get("assumptions") or ()),
    ]
    return Document(
        title=title,
        verdict=" ".join((verdict(answer), *limits.missed(answer), *limits.doubts(answer))),
        good=is_yes(answer),
        sure=not borderline(answer),
        sections=tuple(section for section in sections if section is not None),
        data=answer,
        flat=_flat(answer),
    )


def memory_document(answer: Answer, title: str = "") -> Document:
    """What a `predict` JSON says of memory alone: the verdict, the terms of the fullest GPU, what would fit."""
    ways = () if answer["fits"] else (ways_out(answer.get("way_out") or (), alone=not answer.get("sync")),)
    keys = ("fits", "fits_probability", "memory", "islands", "way_out", "assumptions", "warnings")
    intervals = answer.get("intervals") or {}
    bounds = {key: intervals.get(key) for key in ("level", "memory_peak_gib", "memory_basis")}
    return Document(
        title=title,
        verdict=verdict(answer),
        good=bool(answer["fits"]),
        sure=not borderline(answer),
        sections=(*ways, memory_table(answer)),
        data={**{key: answer[key] for key in keys}, "intervals": bounds},
        flat=tuple(dict(term) for term in answer["memory"]["terms"]),
    )


def is_yes(answer: Answer) -> bool:
    """Whether the plan fits and the run keeps what limits it."""
    return bool(answer["fits"]) and not limits.missed(answer)


def _flat(answer: Answer) -> tuple[Row, ...]:
    """One row of all scalars; of several islands that row is `all`, and one row an island follows with its own figures."""
    whole = flatten({key: value for key, value in answer.items() if key != "intervals"} | _bounds(answer))
    if not answer.get("sync"):
        return (whole,)
    own = {"name": "island", "memory_peak_gib": "memory.peak_gib", "memory_limit_gib": "memory.limit_gib"}
    rows = [{own.get(key, key): value for key, value in one.items()} for one in answer["islands"]]
    return ({"island": "all", **whole}, *rows)


def verdict(answer: Answer) -> str:
    """Whether it fits, and how sure that is, in a sentence."""
    memory = answer["memory"]
    peak, limit = memory["peak_gib"], memory["limit_gib"]
    if borderline(answer):
        chance = f"a chance of {100 * answer['fits_probability']:.0f} % to fit"
        counted = "counted as fitting" if answer["fits"] else f"{peak - limit:.1f} short, counted as not fitting"
        return f"Borderline: {peak:.1f} of {limit:.1f} GiB on the fullest GPU, {chance} ({counted})."
    if answer["fits"]:
        return f"Fits: {peak:.1f} of {limit:.1f} GiB on the fullest GPU."
    if doubtful(answer):
        chance = f"a chance of {100 * answer['fits_probability']:.0f} % that it does"
        needs = f"needs {peak:.1f} GiB on the fullest GPU, which has {limit:.1f} GiB ({peak - limit:.1f} short)"
        return f"Does not fit by this estimate ({chance}): {needs}."
    return (
        f"Does not fit: needs {peak:.1f} GiB on the fullest GPU, which has {limit:.1f} GiB ({peak - limit:.1f} short)."
    )


def borderline(answer: Answer) -> bool:
    """Whether the chance to fit is neither high nor low, and the estimate itself fits or misses by little."""
    memory = answer["memory"]
    return doubtful(answer) and memory["peak_gib"] <= (1.0 + NEAR) * memory["limit_gib"]


def doubtful(answer: Answer) -> bool:
    """Whether the chance to fit is neither high nor low."""
    chance = answer.get("fits_probability")
    return chance is not None and 1.0 - SURE <= chance <= SURE


def speed_facts(answer: Answer) -> Facts:
    """Step, throughput, rates of FLOPs."""
    hfu = answer.get("hfu")
    basis = (answer.get("intervals") or {}).get("basis")
    return Facts(
        title="Speed",
        facts=(
            _step(answer),
            Fact(
                label="throughput",
                value=answer["tokens_per_s"],
                unit="tokens/s",
                note=interval_text(answer, "tokens_per_s", "tokens/s"),
            ),
            Fact(label="per GPU", value=answer["tokens_per_s_per_gpu"], unit="tokens/s"),
            *_samples(answer),
            Fact(label="model FLOPs per GPU", value=answer["tflops_per_gpu"], unit="TFLOP/s"),
            Fact(label="MFU", value=answer["mfu"], unit="%", note=f"HFU {cells.text(hfu, '%')}" if hfu else ""),
        ),
        caption=(MFU, *((f"Interval: {basis}",) if basis else ())),
    )


def _step(answer: Answer) -> Fact:
    """The step that all accelerators take, if there is one."""
    common = answer["step_time_s"]
    note = interval_text(answer, "step_time_s", "s") if common else "none that all islands take: see the round"
    return Fact(label="step", value=common, unit="s", note=note)


def probe_facts(answer: Answer) -> tuple[Facts, ...]:
    """Steps without a backward: their passes, and how noisy an estimate they make."""
    found = answer.get("zero_order")
    if not found:
        return ()
    beside = f"{found['together']:g} side by side" if found["together"] > 1.0 else ""
    facts = (
        Fact(label="forward passes", value=found["passes"], note="over every sequence" + (f", {beside}" if beside else "")),
        Fact(label="losses compared", value=found["losses"], note="a step"),
        Fact(
            label="gradient variance", value=found["variance"], unit="×",
            note=f"the squared gradient: {found['variance_text']}; a backward has none beside its batch's",
        ),
        *(() if answer.get("sync") else (Fact(label="loss", value="not known", note=f"{found['loss_basis']}: {found['loss_text']}"),)),
    )  # fmt: skip
    return (Facts(title="A step without a backward", facts=facts),)


def _samples(answer: Answer) -> tuple[Fact, ...]:
    """Samples a second, where a sample is more than a sequence of the run."""
    word = answer.get("sample", "sequences")
    return () if word == "sequences" else (Fact(label=word, value=answer["samples_per_s"], unit=f"{word}/s"),)


def interval_text(answer: Answer, key: str, unit: str) -> str:
    """`90 %: 2.01 to 2.58 s`; empty where none is known."""
    intervals = answer.get("intervals") or {}
    bounds = intervals.get(key)
    if not bounds:
        return ""
    return f"{100 * intervals['level']:.0f} %: {cells.between(bounds[0], bounds[1], unit)}"


def _bounds(answer: Answer) -> dict[str, Any]:
    """The intervals as flat values for CSV."""
    intervals = answer.get("intervals") or {}
    found: dict[str, Any] = {"interval_level": intervals.get("level")}
    for key in ("step_time_s", "tokens_per_s", "memory_peak_gib", "round_s", *RUN):
        low, high = intervals.get(key) or (None, None)
        found |= {f"{key}.low": low, f"{key}.high": high}
    return found


def ledger_table(answer: Answer) -> Table:
    """The terms of a step, which add to it."""
    rows: list[Row] = [
        {**{key: entry.get(key) for key in ("term", "seconds", "share", "cause")}, "hidden_seconds": _hidden(entry)}
        for entry in answer["ledger"]
    ]
    step = answer["step_time_s"] or plain_sum(entry["seconds"] for entry in answer["ledger"])
    pacing = next((one["name"] for one in answer["islands"] if one.get("sets_the_pace")), "")
    return Table(
        title=f"Where an inner step of {pacing} goes" if pacing else "Where a step goes",
        columns=(
            Column(key="term", title="term"),
            Column(key="seconds", title="exposed", unit="s"),
            Column(key="share", title="share", unit="%"),
            Column(key="share", title="", bar=True, drop=1),
            Column(key="hidden_seconds", title="hidden", unit="s", drop=3),
            Column(key="cause", title="cause", drop=2),
        ),
        rows=tuple(_with_bars(rows)),
        total={"term": "step", "seconds": step, "share": 1.0 if step else None},
    )


def _hidden(entry: Answer) -> float | None:
    return entry.get("hidden_seconds") or None


def _with_bars(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["seconds"] or row["hidden_seconds"]]


def bottleneck_sections(answer: Answer) -> tuple[Section | None, ...]:
    """The cause that takes most, its terms together, and what would relieve it: evaluated changes."""
    bottleneck = answer.get("bottleneck") or {}
    if not bottleneck.get("term"):
        return ()
    lines = [_cause(bottleneck)]
    relief = [one for one in bottleneck.get("relief") or () if one["fits"] and one["gain"] >= WORTH]
    rows = [one for one in relief if one["reach"] == "set"][:BEST_PLANS]
    rows += [one for reach in HAD for one in [one for one in relief if one["reach"] == reach][:1]]
    if not rows or not answer["fits"]:
        lines.append(bottleneck.get("advice") or "")
        return (Notes(title="Bottleneck", lines=tuple(line for line in lines if line)),)
    return (
        Notes(title="Bottleneck", lines=tuple(lines)),
        _changes("What would relieve it (one change, evaluated)", rows),
    )


def _cause(bottleneck: Answer) -> str:
    if not bottleneck.get("cause"):
        return f"{bottleneck['term']} ({100 * bottleneck['share']:.0f} % of the step)"
    terms = [f"{one['term']} {100 * one['share']:.0f} %" for one in bottleneck["cause_terms"] if one["share"] >= 0.005]
    made_of = f": {', '.join(terms)}" if len(terms) > 1 else f" ({bottleneck['cause_terms'][0]['term']})"
    return f"{bottleneck['cause']}, {100 * bottleneck['cause_share']:.0f} % of the step{made_of}"


def _changes(title: str, entries: Sequence[Answer]) -> Table:
    """Changes with what they bring, each with the option that makes it."""
    rows: list[Row] = [
        {
            "change": one["change"],
            "step": one["step_time_s"],
            "rate": one["tokens_per_s"],
            "gain": one["gain"],
            "peak": one["memory_peak_gib"],
            "set": HAD[one["reach"]] if one["reach"] in HAD else options(one["set"]),
        }
        for one in entries
    ]
    return Table(
        title=title,
        columns=(
            Column(key="change", title="change"),
            Column(key="step", title="step", unit="s"),
            Column(key="gain", title="saves", unit="%"),
            Column(key="rate", title="tokens/s", drop=1),
            Column(key="peak", title="peak", unit="GiB", drop=2),
            Column(key="set", title="option", wide=True),
        ),
        rows=tuple(rows),
    )


def options(sets: Sequence[str]) -> str:
    """Overrides as they are typed in a shell."""
    return " ".join(f"--set {shlex.quote(text)}" for text in sets)


def ways_out(entries: Sequence[Answer], *, alone: bool) -> Section:
    """What would make a plan fit that does not."""
    if not entries:
        return Notes(title="What would fit", lines=(NO_WAY_OUT if alone else NO_WAY_OUT_TOGETHER,))
    rows: list[Row] = [
        {
            "mark": "take" if position == 0 else "",
            "change": one["change"],
            "peak": one["memory_peak_gib"],
            "step": one["step_time_s"],
            "rate": one["tokens_per_s"],
            "set": options(one["set"]),
        }
        for position, one in enumerate(entries)
    ]
    return Table(
        title="What would fit (evaluated; the fastest first, another optimizer or more GPUs last)",
        columns=(
            Column(key="mark", title=""),
            Column(key="change", title="change", wide=True),
            Column(key="rate", title="tokens/s", drop=1),
            Column(key="peak", title="peak", unit="GiB", drop=2),
            Column(key="step", title="step", unit="s"),
            Column(key="set", title="option", wide=True),
        ),
        rows=tuple(rows),
    )


def memory_table(answer: Answer) -> Table:
    """The terms of the peak, which add to it."""
    memory = answer["memory"]
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
            Column(key="term", title="term"),
            Column(key="gib", title="size", unit="GiB"),
            Column(key="share", title="of the limit", unit="%"),
            Column(key="share", title="", bar=True, drop=1),
            Column(key="exactness", title="how sure", drop=2),
        ),
        rows=tuple(row for row in rows if row["gib"]),
        total={"term": f"peak (limit {limit:.1f} GiB)", "gib": peak, "share": peak / limit if limit else None},
        caption=_memory_interval(answer),
    )


def _memory_interval(answer: Answer) -> str:
    bounds, chance = interval_text(answer, "memory_peak_gib", "GiB"), answer.get("fits_probability")
    if not bounds or chance is None:
        return ""
    likely = f"{100 * chance:.0f} %" if 0.01 <= chance < 0.995 else "above 99 %" if chance > 0.5 else "below 1 %"
    return f"{bounds}; chance to fit {likely} ({answer['intervals'].get('memory_basis')})"


def run_facts(answer: Answer, *, classed: bool = True) -> Facts | None:
    """The whole run: hours, dollars, energy, limits (`classed` as in `limits.facts`); None where its length is not known."""
    run = answer.get("run")
    if not run:
        return None
    paid: Sequence[Answer] = run.get("cost_terms") or ()
    basis = paid[0]["basis"] if len(paid) == 1 else ""
    facts = [
        Fact(label="wall clock", value=run.get("wall_clock_s"), unit="s", note=interval_text(answer, "wall_clock_s", "s")),
        Fact(label="tokens", value=run.get("tokens"), unit="tokens"),
        *learning.other_laws(run),
        Fact(label="steps", value=run.get("steps")),
        Fact(label="GPU time", value=run.get("gpu_hours"), unit="GPU-hours"),
        Fact(label="goodput", value=run.get("goodput"), unit="%"),
        Fact(
            label="cost", value=run.get("cost_usd"), unit="USD",
            note="; ".join(filter(None, (interval_text(answer, "cost_usd", "USD"), basis))),
        ),
        Fact(label="energy", value=run.get("energy_kwh"), unit="kWh", note=_range(run)),
        Fact(label="carbon", value=run.get("carbon_kg"), unit="kg", note=run.get("carbon_basis") or ""),
        Fact(label="loss", value=run.get("loss"), unit=(run.get("law") or {}).get("unit", "")),
        *limits.facts(answer, classed=classed),
    ]  # fmt: skip
    return Facts(title="The whole run", facts=tuple(fact for fact in facts if fact.value is not None))


def _range(run: Answer) -> str:
    bounds = run.get("energy_range_kwh")
    return f"from {cells.text(bounds[0], 'kWh')} to the rating's {cells.text(bounds[1], 'kWh')}" if bounds else ""


def made_of(run: Answer | None) -> tuple[Table, ...]:
    """What the hours, the dollars and the electricity are made of, where that is more than one thing."""
    if not run:
        return ()
    tables = (
        ("What the hours are made of", run.get("hours"), "seconds", "s", run.get("wall_clock_s")),
        ("What the dollars are made of", run.get("cost_terms"), "usd", "USD", run.get("cost_usd")),
        ("What the electricity is made of", run.get("energy"), "kwh", "kWh", run.get("energy_kwh")),
    )
    return tuple(
        Table(
            title=title,
            columns=(
                Column(key="term", title="term"),
                Column(key=key, title="time" if unit == "s" else unit, unit=unit),
                Column(key="share", title="share", unit="%"),
                Column(key="basis", title="basis", wide=True),
            ),
            rows=tuple(
                {**one, "share": one[key] / whole if whole and one[key] is not None else None}
                for one in _grouped(terms, key)
            ),
            total={"term": "together", key: whole, "share": 1.0 if whole else None},
        )
        for title, terms, key, unit, whole in tables
        if terms and len(terms) > 1 and whole is not None
    )


def _grouped(terms: Sequence[Answer], key: str) -> list[Answer]:
    """The terms or, of many islands, those of one kind together."""
    if len(terms) <= MOST_TERMS:
        return list(terms)
    kinds: dict[str, list[Answer]] = {}
    for one in terms:
        kinds.setdefault(_KIND.split(str(one["term"]))[0], []).append(one)
    return [
        {"term": f"{kind}, {len(some)} islands" if len(some) > 1 else str(some[0]["term"]),
         key: plain_sum(one[key] for one in some), "basis": _bases(some)}
        for kind, some in kinds.items()
    ]  # fmt: skip


def _bases(terms: Sequence[Answer]) -> str:
    """What these terms rest on, each once; of many, the first."""
    found = list(dict.fromkeys(str(one["basis"]) for one in terms))
    more = f"; {len(found) - MOST_BASES} more" if len(found) > MOST_BASES else ""
    return "; ".join(found[:MOST_BASES]) + more


def _notes(title: str, lines: Any) -> Notes | None:
    return Notes(title=title, lines=tuple(str(line) for line in lines)) if lines else None
