"""The page of a comparison: what differs, the figures beside each other, where every difference comes from, and what makes it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks

Answer = Mapping[str, Any]
TITLES = {
    "step": "Where the difference of a step comes from",
    "hours": "Where the difference of the wall clock comes from",
    "dollars": "Where the difference of the cost comes from",
    "electricity": "Where the difference of the energy comes from",
    "memory": "Where the difference of the memory peak comes from",
}
"""By ledger."""
MOST_SAID, MOST_TERMS = 24, 15
"""Inputs, and terms of a ledger, that a page shows; the JSON has all."""
LEAST = 1e-3
"""Share of the largest difference of a ledger below which one stands among the other terms."""
CLEAR = 0.2
"""Share of all that differs that the difference of a ledger is at least where terms are said to be parts of it: else they cancel."""
CANCEL = "What is more and what is less nearly cancel: no term is a share of what is left."
FIGURES = {"step_time_s": ("step", "s"), "run.wall_clock_s": ("wall clock", "s"), "run.cost_usd": ("cost", "USD")}
"""Title and unit of what is shared out."""
_OF_ISLAND = re.compile(r"(fleet\.islands\.|plans\.)([^.]+)(.*)")
NOTHING = "none"
"""What stands for an input that is not there."""


def document(answer: Answer, titles: tuple[str, str] = ("", ""), *, short: bool = False) -> Document:
    """A `diff` JSON as a document; `titles` name the two questions. `short` leaves out what was assumed."""
    sections: list[Section] = [
        Facts(title="", facts=tuple(Fact(label=name, value=title) for name, title in zip("AB", titles, strict=True)))
    ]
    if answer["said"]:
        sections += [_said(answer["said"]), _figures(answer["figures"])]
        sections += _clock(answer["wall_clock"])
        sections += [_ledger(name, one) for name, one in answer["ledgers"].items() if _moved(one)]
        sections += _attribution(answer["attribution"])
    sections.append(remarks(answer, short=short))
    return Document(
        title="A and B", verdict=answer["says"], sections=tuple(sections), data=answer, flat=tuple(_flat(answer))
    )


def _said(said: Sequence[Answer]) -> Table:
    """The inputs that differ; those of islands (and of their plans) that change alike in one line."""
    alike = kinds(
        [one for one in said if _is_shown(one)],
        lambda one: (*_island_of(one["field"])[::2], one["unit"], str(one["a"]), str(one["b"])),
    )
    rows = [{**some[0], "field": _field(some)} for some in alike]
    more = len(rows) - MOST_SAID
    return Table(
        title="What differs",
        columns=(
            Column(key="field", title="input"),
            Column(key="a", title="A", wide=True),
            Column(key="b", title="B", wide=True),
            Column(key="follows", title=""),
        ),
        rows=tuple(
            {
                "field": one["field"],
                "a": value_text(one["a"], one["unit"]),
                "b": value_text(one["b"], one["unit"]),
                "follows": "follows" if one["follows"] else "",
            }
            for one in rows[:MOST_SAID]
        ),
        caption=f"and {more} more, which --format json has" if more > 0 else "",
    )


def _island_of(field: str) -> tuple[str, str, str]:
    """What stands before the name of an island, the name, and what stands behind it; no name where it is of none."""
    found = _OF_ISLAND.match(field)
    return (found[1], found[2], found[3]) if found else (field, "", "")


def _field(some: Sequence[Answer]) -> str:
    before, _, behind = _island_of(some[0]["field"])
    names = [_island_of(one["field"])[1] for one in some]
    return str(some[0]["field"]) if len(some) == 1 else f"{before}({span(names)}){behind}"


def value_text(value: Any, unit: str) -> str:
    """An input; of words each once, of a matrix its least and its largest number."""
    if value is None:
        return NOTHING
    if not isinstance(value, list):
        return cells.text(value, unit)
    leaves = list(_leaves(value))
    if any(isinstance(one, str) for one in leaves):
        return ", ".join(dict.fromkeys(map(str, leaves)))
    numbers = [float(one) for one in leaves if one is not None and math.isfinite(one)]
    ends = dict.fromkeys(cells.text(one, unit) for one in (min(numbers), max(numbers))) if numbers else ()
    return " to ".join(ends) or NOTHING


def _leaves(value: Any) -> Iterator[Any]:
    """What lists inside lists hold, in order."""
    if not isinstance(value, list):
        yield value
        return
    for one in value:
        yield from _leaves(one)


def _is_shown(one: Answer) -> bool:
    """Whether an input looks different: a matrix of more islands with the same least and largest number does not."""
    both = isinstance(one["a"], list) and isinstance(one["b"], list)
    return not both or value_text(one["a"], one["unit"]) != value_text(one["b"], one["unit"])


def _figures(rows: Sequence[Answer]) -> Table:
    return Table(
        title="The figures beside each other",
        columns=(
            Column(key="label", title=""),
            Column(key="a", title="A"),
            Column(key="b", title="B"),
            Column(key="difference", title="B - A"),
            Column(key="ratio", title="B / A"),
            Column(key="interval_a", title="90 % of A", drop=2),
            Column(key="interval_b", title="90 % of B", drop=1),
        ),
        rows=tuple(
            {
                "label": one["label"],
                "a": _based(one["a"], one["unit"], one["basis_a"]),
                "b": _based(one["b"], one["unit"], one["basis_b"]),
                "difference": "" if one["difference"] is None else cells.signed(one["difference"], one["unit"]),
                "ratio": "" if one["ratio"] is None else f"{one['ratio']:.3f}",
                "interval_a": _interval(one["interval_a"], one["unit"]),
                "interval_b": _interval(one["interval_b"], one["unit"]),
            }
            for one in rows
        ),
    )


def _based(value: Any, unit: str, basis: str | None) -> str:
    """`1.034 × (extrapolated)`, `unknown`; a figure without a basis as it is."""
    if basis is None:
        return cells.text(value, unit)
    return basis if value is None else f"{cells.text(value, unit)} ({basis})"


def _interval(bounds: Sequence[float | None] | None, unit: str) -> str:
    """`2.01 to 2.58 s`; an end that is not known has no bound. Ends that look alike are no interval."""
    if not bounds:
        return ""
    low, high = ("no end" if end is None else cells.coarse(end, unit) for end in bounds)
    if low == high:
        return ""
    number, _, same = low.partition(" ")
    return f"{number if same == high.partition(' ')[2] else low} to {high}"


def _clock(found: Answer | None) -> Iterator[Table]:
    """Tokens, time of a step and interruptions, and what each makes of the wall clock; nothing where none differs."""
    if found is None or not any(one["difference"] for one in found["terms"]):
        return
    yield Table(
        title="What makes a run longer or shorter",
        columns=(
            Column(key="term", title=""),
            Column(key="a", title="A"),
            Column(key="b", title="B"),
            Column(key="change", title="of the wall clock"),
        ),
        rows=tuple(_clock_row(one) for one in found["terms"] if one["a"] or one["b"]),
        total=_clock_row(found["total"]),
    )


def _clock_row(one: Answer) -> Row:
    sides = {side: cells.text(one[side], one["unit"]) for side in ("a", "b")}
    return {"term": one["term"], **sides, "change": cells.signed(one["difference"], "s")}


def _moved(ledger: Answer) -> bool:
    """Whether a ledger has something to tell: terms that differ, of several."""
    return len(ledger["terms"]) > 1 and any(one["difference"] for one in ledger["terms"])


def _ledger(name: str, ledger: Answer) -> Table:
    """The terms that differ, the largest difference first; the others in one line."""
    unit, whole = ledger["unit"], ledger["total"]["difference"]
    terms = sorted(ledger["terms"], key=lambda one: -abs(one["difference"]))
    least = LEAST * abs(terms[0]["difference"])
    moved = [one for one in terms if abs(one["difference"]) > least]
    shown = moved if len(moved) <= MOST_TERMS + 1 else moved[:MOST_TERMS]
    rest = [one for one in terms if one not in shown and (one["a"] or one["b"])]
    rows: list[Row] = list(shown)
    if rest:
        label = f"{len(rest)} other terms" if len(rest) > 1 else str(rest[0]["term"])
        rows.append({"term": label, **{key: plain_sum(one[key] for one in rest) for key in ("a", "b", "difference")}})
    clear = abs(whole) >= CLEAR * plain_sum(abs(one["difference"]) for one in terms)
    return Table(
        title=TITLES[name],
        columns=(
            Column(key="term", title="term"),
            Column(key="a", title="A", unit=unit),
            Column(key="b", title="B", unit=unit),
            Column(key="change", title="B - A"),
            *((Column(key="share", title="of it", unit="%", drop=1),) if clear else ()),
        ),
        rows=tuple(
            {
                **row,
                "change": cells.signed(row["difference"], unit),
                "share": row["difference"] / whole if clear else None,
            }
            for row in rows
        ),
        total={**ledger["total"], "change": cells.signed(whole, unit)},
        caption="" if clear else CANCEL,
    )


def _attribution(found: Answer) -> Iterator[Section]:
    """What each part makes of the differences, and which mixtures there are not."""
    shares = {name: each for name, each in found["shares"].items() if any(one["difference"] for one in each)}
    if shares:
        groups = [" + ".join(group) for group in found["groups"]]
        rows: list[Row] = [
            {"group": group, **{name: _share(name, each[at]["difference"]) for name, each in shares.items()}}
            for at, group in enumerate(groups)
        ]
        sums = {name: _share(name, math.fsum(one["difference"] for one in each)) for name, each in shares.items()}
        yield Table(
            title="What makes the difference (changed from A to B, the mean of all orders)",
            columns=(
                Column(key="group", title=""),
                *(Column(key=name, title=FIGURES[name][0]) for name in shares),
            ),
            rows=tuple(rows),
            total={"group": "together", **sums},
        )  # fmt: skip
    if found["illegal"]:
        lines = tuple(f"{', '.join(one['from_b'])} of B, the rest of A: {one['why']}" for one in found["illegal"])
        yield Notes(title="Mixtures that are not legal, so that their parts are changed together", lines=lines)


def _share(figure: str, difference: float) -> str:
    return cells.signed(difference, FIGURES[figure][1])


def _flat(answer: Answer) -> Iterator[Row]:
    """One line for every input, figure, term and share."""
    for one in answer["said"]:
        yield _line("input", one["field"], one["unit"], one["a"], one["b"])
    for one in answer["figures"]:
        yield _line("figure", one["figure"], one["unit"], one["a"], one["b"], one["difference"])
    for one in (answer["wall_clock"] or {"terms": ()})["terms"]:
        yield _line("wall clock", one["term"], one["unit"], one["a"], one["b"], one["difference"])
    for name, ledger in answer["ledgers"].items():
        for one in ledger["terms"]:
            yield _line(name, one["term"], ledger["unit"], one["a"], one["b"], one["difference"])
    for figure, shares in answer["attribution"]["shares"].items():
        for one in shares:
            yield _line(f"share of {figure}", one["group"], FIGURES[figure][1], None, None, one["difference"])


def _line(part: str, name: str, unit: str, a: Any, b: Any, difference: float | None = None) -> Row:
    texts = (value_text(one, unit) if isinstance(one, list) else one for one in (a, b))
    return {"part": part, "name": name, "unit": unit, **dict(zip("ab", texts, strict=True)), "difference": difference}
