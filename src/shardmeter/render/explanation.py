"""The page of an explanation: every formula call of the run, grouped by formula, equal calls folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.formula import REGISTRY, Step
from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table
from shardmeter.render.islands import known_text, loss_text
from shardmeter.study.run_terms import LEDGERS

COUNT = (
    "count: micro-batches of a step, or 1 for what a step has once; a call below that prices one layer says of how many"
)
BESIDE = "; below 1, what a round over islands has once, by its inner steps"


def document(
    answer: Mapping[str, Any],
    steps: Iterable[Step],
    title: str = "",
    term: str = "",
    *,
    terms: Sequence[Row] = (),
    memory: Sequence[Row] = (),
    learning: Sequence[str] = (),
    run: Mapping[str, Sequence[Row]] | None = None,
    sources: Mapping[str, Mapping[str, str]] | None = None,
) -> Document:
    """The trace of a run; `term` keeps the formulas whose name or arguments hold that text.

    `terms` (of the ledger), `memory` (terms), what is known of the `learning` (loss, gradient variance) and terms of the whole `run`, by
    their list in the answer, head the page; `sources` says what the citations in it stand for."""
    kept = [call for call in fold(steps) if not term or matches(call, term)]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for call in kept:
        groups.setdefault(call["formula"], []).append(call)
    alone = len({call["term"] for call in kept} - {""}) == 1
    known = [fact for name, fact in _known(answer).items() if name in learning]
    keys = [*(call["cite"] for call in kept), *(source for _, source in known if source)]
    cited = {key: dict((sources or {}).get(key, {})) for key in keys}
    found = (_terms(terms), _memory(memory), _learning(known))
    heads: list[Section] = [*(page for page in found if page is not None), *map(_of_run, (run or {}).items())]
    own = [{"ledger": key, **row} for key, rows in (run or {}).items() for row in rows]
    return Document(
        title=title,
        verdict=f"{plain_sum(call['times'] for call in kept)} calls of {len(groups)} formulas"
        if kept
        else "no formula of the step",
        sections=(
            *heads,
            *(
                Notes(title=_title(name), lines=tuple(_line(call, alone=alone) for call in calls))
                for name, calls in groups.items()
            ),
            *((_sources(cited),) if any(cited.values()) else ()),
        ),
        data={**answer, "terms": [dict(row) for row in terms], "run_terms": own, "steps": kept, "citations": cited},
        flat=tuple(_flat(call) for call in kept) or tuple(own),
    )


def _terms(rows: Sequence[Row]) -> Table | None:
    shown = [row for row in rows if row["seconds"] or row["hidden_seconds"]]
    if not shown:
        return None
    return Table(
        title="Terms of the ledger: seconds × count = exposed",
        columns=(
            Column(key="term", title="term"),
            Column(key="each_s", title="each", unit="s"),
            Column(key="count", title="× count"),
            Column(key="seconds", title="exposed", unit="s"),
            Column(key="hidden_seconds", title="hidden", unit="s", drop=2),
            Column(key="calls", title="calls", drop=1),
        ),
        rows=tuple({**row, "hidden_seconds": row["hidden_seconds"] or None} for row in shown),
        caption=COUNT + (BESIDE if any(float(row["count"] or 0.0) < 1.0 for row in rows) else ""),
    )


def _of_run(ledger: tuple[str, Sequence[Row]]) -> Table:
    name, rows = ledger
    own = next(one for one in LEDGERS if one.key == name)
    share = (Column(key="share", title="share", unit="%"),) if any("share" in row for row in rows) else ()
    return Table(
        title=f"Terms of the whole run (run.{name})",
        columns=(
            Column(key="term", title="term"),
            Column(key=own.amount, title="of the run", unit=own.unit),
            *share,
            Column(key="basis", title="rests on", wide=True),
        ),
        rows=tuple(rows),
        caption=f"how it is counted: {own.page}",
    )


def _memory(rows: Sequence[Row]) -> Table | None:
    if not rows:
        return None
    return Table(
        title="Terms of memory",
        columns=(
            Column(key="term", title="term"),
            Column(key="gib", title="size", unit="GiB"),
            Column(key="exactness", title="how sure"),
        ),
        rows=tuple(rows),
    )


def _known(answer: Mapping[str, Any]) -> dict[str, tuple[Fact, str]]:
    """What is known of how a method learns, by name, each with its source."""
    found: dict[str, tuple[Fact, str]] = {}
    probes, effect = answer.get("zero_order"), (answer.get("sync") or {}).get("loss_effect")
    if effect:
        found["loss"] = (
            Fact(label="loss", value=loss_text(effect) or "as every step", note=known_text(effect)),
            effect["source"] or "",
        )
    elif probes:
        said = f"{probes['loss_basis']}: {probes['loss_text']}"
        found["loss"] = Fact(label="loss", value="not known", note=said), probes["source"] or ""
    if probes:
        said = f"the squared gradient: {probes['variance_text']}"
        found["gradient variance"] = Fact(label="gradient variance", value=probes["variance"], unit="×", note=said), ""
    return found


def _learning(known: Sequence[tuple[Fact, str]]) -> Facts | None:
    facts = (changed(fact, note=f"{fact.note} [{source}]" if source else fact.note) for fact, source in known)
    return Facts(title="How it learns", facts=tuple(facts)) if known else None


def _sources(cited: Mapping[str, Mapping[str, str]]) -> Notes:
    lines = []
    for key, source in cited.items():
        where = f", {source['where']}" if source.get("where") else ""
        lines.append(
            f"[{key}] {source['authors']}: {source['title']} ({source['year']}){where}" if source else f"[{key}]"
        )
    return Notes(title="Sources", lines=tuple(lines))


def fold(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Equal calls become one with a count, at the place of the first."""
    folded: dict[str, dict[str, Any]] = {}
    for step in steps:
        key = f"{step.term}|{step.block}|{step.portion!r}|{step.formula}({step.arguments!r})={step.value!r}"
        if key in folded:
            folded[key]["times"] += 1
        else:
            folded[key] = {
                "formula": step.formula,
                "arguments": dict(step.arguments),
                "value": step.value,
                "units": _units(step.formula),
                "cite": step.cite,
                "term": step.term,
                "times": 1,
                "block": step.block,
                "pieces": step.pieces,
                "portion": step.portion,
            }
    return list(folded.values())


def matches(call: Mapping[str, Any], term: str) -> bool:
    """Whether a call has to do with a term: the text is in its name or in one of its texts."""
    wanted = term.lower()
    texts = [call["formula"], *(value for value in call["arguments"].values() if isinstance(value, str))]
    return any(wanted in text.lower().replace("_", " ") or wanted in text.lower() for text in texts)


def _units(name: str) -> dict[str, str]:
    return REGISTRY[name].units if name in REGISTRY else {}


def _title(name: str) -> str:
    """The formula's name and the first sentence of what it says about itself, over as many lines as it has."""
    says = " ".join(REGISTRY[name].doc.partition("\n\n")[0].split()) if name in REGISTRY else ""
    says = says.partition(". ")[0].removesuffix(".").replace("`", "")
    return f"{name}: {says}" if says else name


def _line(call: Mapping[str, Any], *, alone: bool) -> str:
    units = call["units"]
    arguments = ", ".join(f"{name}={_text(value, units.get(name, ''))}" for name, value in call["arguments"].items())
    times = f"  ×{call['times']}" if call["times"] > 1 else ""
    value = _text(call["value"], units.get("return", ""))
    term = f"  · {call['term']}" if call["term"] and not alone else ""
    return f"{call['formula']}({arguments}) = {value} [{call['cite']}]{times}{_pieces(call)}{term}"


def _pieces(call: Mapping[str, Any]) -> str:
    """`×32 layers`; `×16 of 32 layers` where only some of them do it."""
    count = call["pieces"]
    if count is None:
        return ""
    some = "" if call["portion"] == 1.0 else f"{cells.number(call['portion'] * count)} of "
    return f"  ×{some}{cells.number(count)} {call['block']}{'' if count == 1.0 else 's'}"


def _text(value: Any, unit: str) -> str:
    if value is None or isinstance(value, str | bool | int | float):
        return cells.text(value, "" if unit == "1" else unit, exact=True)
    if hasattr(value, "ndim"):
        return _text(float(value), unit) if value.ndim == 0 else _range(value, unit)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(item, unit) for item in value)}]"
    return f"<{type(value).__name__}>"


def _range(values: Any, unit: str) -> str:
    """An array by its least and its largest number, as in `3 × 3: 456 MB/s to 682 MB/s`; nothing is read of what is none, nor
    of the diagonal of a table of pairs."""
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim == 2 and numbers.shape[0] == numbers.shape[1]:
        numbers = np.where(np.eye(len(numbers), dtype=bool), np.nan, numbers)
    some = numbers[~np.isnan(numbers)]
    shape = " × ".join(map(str, np.shape(values)))
    if not some.size:
        return f"{shape}: none"
    low, high = (_text(float(one), unit) for one in (some.min(), some.max()))
    return f"{shape}: {low}" if low == high else f"{shape}: {low} to {high}"


def _flat(call: Mapping[str, Any]) -> Row:
    units = call["units"]
    arguments = "; ".join(f"{name}={_text(value, units.get(name, ''))}" for name, value in call["arguments"].items())
    value = call["value"]
    return {
        "formula": call["formula"],
        "arguments": arguments,
        "value": value if isinstance(value, str | bool | int | float) else _text(value, ""),
        "unit": units.get("return", ""),
        "cite": call["cite"],
        "term": call["term"],
        "times": call["times"],
        "block": call["block"],
        "pieces": call["pieces"],
        "portion": call["portion"],
    }
