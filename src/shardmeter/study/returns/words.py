"""From what is asked (`gpus`, `islands`, `fabric`, `wan`, or a field) to the axis that a scenario has for it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, cut, nearest, shown
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.grammar import spelled_out
from shardmeter.scenario.read import Document
from shardmeter.specs import Island, Scenario
from shardmeter.study.levers import levers
from shardmeter.study.relief import batch_unsaid
from shardmeter.study.returns import said
from shardmeter.study.returns.axis import FABRIC, GPU, GPUS, ISLAND, ISLANDS, WAN, WORDS, Axis, Tied

STRONG, WEAK = "strong", "weak"
GBIT = 1e9 / 8.0
"""Bytes a second of 1 Gbit/s: the next unit of any bandwidth."""
WHOLE = frozenset(
    {"tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "micro_batch", "virtual_stages", "ahead", "seq_len", "global_batch", "steps"}
    | {"sync_every", "num_fragments", "fragment_sync_delay", "blocks", "levels", "rank", "perturbations", "nodes", "count", "bits"}
    | {"layers", "gpus_per_node", "nics", "streams", "experts"}
)  # fmt: skip
"""Last words of the fields whose values are whole numbers."""
_SIZED = re.compile(r"fleet\.islands\.([^.]+)\.(nodes|gpus|count)")
_GPUS = re.compile(r"\s*[0-9.]+\s*[xX×*]\s*(\S.*?)\s*")


@record
class _Entry:
    """An island of the document: its place, how many it stands for, and one of them."""

    at: int
    given: Mapping[str, Any]
    count: int
    island: Island

    @property
    def path(self) -> str:
        return f"fleet.islands.{self.at}"

    @property
    def name(self) -> str:
        return str(self.given.get("name") or self.island.name)


def axis_of(document: Document, own: Scenario, asked: str) -> Axis:
    """The axis of a word or a field. Raises BadScenario for what the scenario does not have, with the nearest of what it has."""
    field = _full(own, asked.strip())
    entries = _entries(document, own)
    sized = _SIZED.fullmatch(field)
    if field in (GPUS, ISLANDS):
        return _size(field, entries, entries, counts=field == ISLANDS)
    if sized is not None and (some := [one for one in entries if sized[1] in (one.name, str(one.at))]):
        return _size(field, some, entries, counts=sized[2] == "count")
    if field == FABRIC:
        return _fabric(entries)
    if field == WAN:
        return _wan(own)
    return _field(document, own, field)


def _full(own: Scenario, word: str) -> str:
    """The field of a word; `bandwidth` is that between islands, of one island that between its nodes."""
    link = WAN if len(own.fleet.islands) > 1 else FABRIC
    return {"bandwidth": link, "rtt": "fleet.wan.default.rtt"}.get(word, spelled_out(word))


MOST_KINDS = 4
"""Entries of islands of which each is asked about by itself."""


def counts_of(document: Document, own: Scenario) -> tuple[str, ...]:
    """The axes of single islands more: one for every entry of the document where there are few, else all of them in their mix."""
    entries = _entries(document, own)
    if len(entries) == 1 or len(entries) > MOST_KINDS:
        return (ISLANDS,)
    return tuple(
        f"{one.path.rpartition('.')[0]}.{one.name if one.given.get('name') else one.at}.count" for one in entries
    )


def _entries(document: Document, own: Scenario) -> list[_Entry]:
    """The islands of the document that take part."""
    fleet = document.data.get("fleet")
    items = fleet.get("islands") if isinstance(fleet, Mapping) else None
    if not items:
        items = [{"gpus": document.data.get("gpus")}]
    found = []
    for at, given in enumerate(items):
        name = given.get("name") or (f"island-{at + 1}" if len(items) > 1 else None)
        own_ones = [one for one in own.fleet.islands if name is None or _is_of(one.name, str(name))]
        if own_ones:
            count = len(own.fleet.islands) if len(items) == 1 else len(own_ones)
            found.append(_Entry(at=at, given=given, count=count, island=own_ones[0]))
    return found


def _is_of(island: str, entry: str) -> bool:
    return island == entry or (island.startswith(f"{entry}-") and island[len(entry) + 1 :].isdecimal())


def _size(name: str, some: Sequence[_Entry], every: Sequence[_Entry], *, counts: bool) -> Axis:
    """Nodes, or islands, of some entries, growing together in the mix that they have."""
    if counts and name == ISLANDS and len(said_ := [one for one in some if one.given.get("count")]) == 1:
        some = said_
    sizes = [one.count if counts else int(one.island.nodes) for one in some]
    units = functools.reduce(math.gcd, sizes)
    if counts:
        total, moved, one = float(plain_sum(e.count for e in every)), float(plain_sum(sizes)), ISLAND
        tied = tuple(
            Tied(field=f"{e.path}.count", own=float(size), whole=True) for e, size in zip(some, sizes, strict=True)
        )
    else:
        total = float(plain_sum(e.count * e.island.gpus for e in every))
        moved, one = float(plain_sum(e.count * e.island.gpus for e in some)), GPU
        tied = tuple(map(_nodes, some))
    each = moved / units
    of = "" if len(some) == len(every) else f" ({' and '.join(e.name for e in some)})"
    return Axis(
        name=name, title=f"{one}s{of}", unit="", one=one, own=float(units), whole=True, is_size=True, base=total - moved, each=each,
        step_title=_next(some, each, units, sizes, counts=counts), tied=tied,
    )  # fmt: skip


def _next(some: Sequence[_Entry], each: float, units: int, sizes: Sequence[int], *, counts: bool) -> str:
    """What the next unit is, in words."""
    if counts:
        return "1 island" if each == 1.0 else f"{each:g} islands (the mix of {len(some)} kinds)"
    nodes = plain_sum(size // units * e.count for e, size in zip(some, sizes, strict=True))
    return f"{each:,.0f} GPU{'s' if each > 1 else ''} ({nodes:,} node{'s' if nodes > 1 else ''})"


def _nodes(entry: _Entry) -> Tied:
    """The field that says how large an island is."""
    match = _GPUS.fullmatch(str(entry.given.get("gpus") or ""))
    if match is not None:
        return Tied(field=f"{entry.path}.gpus", own=float(entry.island.gpus), after=f"x{match[1]}", whole=True)
    return Tied(field=f"{entry.path}.nodes", own=float(entry.island.nodes), whole=True)


def _fabric(entries: Sequence[_Entry]) -> Axis:
    tied = []
    for one in entries:
        if one.island.outside is None:
            raise BadScenario(f"fabric: {one.name} has no network between nodes", [_only(FABRIC, "another axis")])
        tied.append(Tied(field=f"{one.path}.fabric.bandwidth", own=float(one.island.outside.bandwidth), after=" B/s"))
    own = min(one.own for one in tied)
    title = "bandwidth of the fabric, each adapter" + ("" if len(tied) == 1 else " (the least; all in proportion)")
    return Axis(
        name=FABRIC, title=title, unit="B/s", one="Gbit/s", own=own, whole=False, step=GBIT, step_title="1 Gbit/s", tied=tuple(tied),
    )  # fmt: skip


def _wan(own: Scenario) -> Axis:
    """All lines between islands, and those of their sites, in proportion."""
    known = {one.name: one for one in levers(own)}
    lines = [known[name] for name in ("fleet.wan.bandwidth", "fleet.wan.sites") if name in known]
    if not lines:
        raise BadScenario(
            "wan: nothing lies between islands here",
            [_only(WAN, "an axis such as gpus, or a scenario of several islands")],
        )

    def moved(factor: float) -> Scenario | None:
        made: Scenario | None = own
        for line in lines:
            again = {} if made is None else {one.name: one for one in levers(made)}
            made = again[line.name].scaled(factor) if line.name in again else made
        return made

    least = min(one.value for one in lines)
    title = "bandwidth between islands (of the narrowest line; all in proportion)"
    return Axis(
        name=WAN, title=title, unit="B/s", one="Gbit/s", own=least, whole=False, step=GBIT, step_title="1 Gbit/s",
        lever=changed(lines[0], title=title, value=least, scaled=moved),
    )  # fmt: skip


def _only(field: str, way_out: str) -> Violation:
    return Violation(field=field, says="the scenario has none", way_out=way_out)


def _field(document: Document, own: Scenario, field: str) -> Axis:
    """Any number of a scenario: as its document says it, else as it was resolved."""
    known = {one.name: one for one in levers(own)}
    given = said.said(document, field)
    number = said.read(given, field) if given is not None else said.resolved(own, field, known)
    lever = known.get(field) if number is None or (field.startswith("fleet.wan.") and given is None) else None
    if number is None and lever is None:
        raise BadScenario(f"{cut(field) or shown(field)}: {_no_number(given, field, known)}")
    if number is not None and number.si == 0.0:
        raise BadScenario(
            f"{cut(field)} is 0 in the scenario: a curve has no proportion to nothing; say the scenario with a value"
        )
    leaf = field.rpartition(".")[2]
    if lever is not None or number is None:
        return _levered(field, lever or known[field])
    whole = leaf in WHOLE and number.si.is_integer() and not number.unit
    step = 1.0 if whole else GBIT if number.unit == "B/s" else number.si / 100.0
    title = {1.0: f"1 {leaf}", GBIT: "1 Gbit/s"}.get(step, "1 %") if whole or number.unit == "B/s" else "1 %"
    tied = Tied(field=field, own=number.number, before=number.before, after=number.after, whole=whole)
    return Axis(
        name=field, title=field, unit=number.unit, one=leaf, own=number.si, whole=whole, step=step, step_title=title, tied=(tied,),
    )  # fmt: skip


def _levered(field: str, lever: Any) -> Axis:
    rate = lever.unit == "B/s"
    return Axis(
        name=field, title=lever.title, unit=lever.unit if lever.unit in ("B/s", "s", "B", "USD/B", "USD/s") else "", one=lever.title,
        own=lever.value, whole=lever.whole, step=GBIT if rate else 1.0 if lever.whole else lever.value / 100.0,
        step_title="1 Gbit/s" if rate else "1 more" if lever.whole else "1 %", lever=lever,
    )  # fmt: skip


def _no_number(given: Any, field: str, known: Mapping[str, Any]) -> str:
    if given is not None:
        return f"{shown(given)} is no number, and a curve goes along one"
    close = ", ".join(nearest(field, (*WORDS, *known)))
    return f"the scenario has no such number; the nearest are {close}"


def scaled(axis: Axis, document: Document, own: Scenario, scaling: str) -> Axis:
    """The axis of a size with what becomes of the global batch: `strong` fixes it, `weak` lets it grow, "" leaves it as it is said.

    Raises BadScenario for a scaling of what is no size, for an unknown word, and for phases that have batches of their own."""
    if scaling and scaling not in (STRONG, WEAK):
        raise BadScenario(f"scaling: {shown(scaling)} is none; strong (the batch stays) or weak (it grows)")
    if not scaling:
        return axis
    if not axis.is_size:
        raise BadScenario(f"scaling: {axis.name} adds no machines; --scaling goes with gpus and islands")
    if own.run.phases and scaling == WEAK:
        raise BadScenario("scaling: weak is not of phases, which have batches of their own; leave run.phases out")
    given = said.said(document, "run.global_batch")
    if scaling == STRONG:
        stays = (
            {} if given is not None or own.choices is not None else {"run.global_batch": float(own.run.global_batch)}
        )
        return changed(axis, always={**(axis.always or {}), **stays})
    number = said.read(given, "run.global_batch") if given is not None else None
    if number is not None:
        tokens = "token" in number.after
        batch = Tied(
            field="run.global_batch", own=number.number, after=number.after, whole=not tokens and number.scale == 1.0
        )
    elif own.choices is not None:
        size, word = own.choices.global_batch[0]
        batch = Tied(field="run.global_batch", own=size, after=f" {word}", whole=True)
    else:
        return axis
    return changed(axis, batch=batch)


def scaling_of(axis: Axis, document: Document, own: Scenario) -> str:
    """What becomes of the batch along an axis of a size; empty along any other."""
    if not axis.is_size:
        return ""
    if axis.batch is not None:
        return WEAK
    stays = "run.global_batch" in (axis.always or {}) or own.choices is not None
    unsaid = said.said(document, "run.global_batch") is None and batch_unsaid(own)
    return WEAK if unsaid and not stays else STRONG
