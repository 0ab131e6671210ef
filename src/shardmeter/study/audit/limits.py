"""What no run does: more than the peak, more than was ever measured, less memory than is counted exactly, longer than the calendar."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from shardmeter import data
from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.specs import Accelerator
from shardmeter.study.audit.factors import Factor
from shardmeter.study.audit.reading import NONE, Claim
from shardmeter.study.audit.web import Way, Ways

HIGHEST = "measured/highest.csv"
NODE = 8.0
"""Accelerators of a usual node: below, single devices are compared too."""
ROOM = 1.05
"""Above the highest measured: conventions and clocks."""
LEAST = 0.01
"""MFU below which a reading is no likelier than the claim."""
USUAL_MFU = 0.35
SIXTEEN = ("bf16", "fp16")
IMPOSSIBLE, BEYOND = "impossible", "beyond measured"
MOST_READINGS = 5
BELIEVED = 0.2
"""Most that a reading may be unlikely to be told of what is not impossible."""
ONE_PART = 0.05
"""Relative difference of a total from one of its parts that is called the same."""
STATES = ("memory_parameters", "memory_gradients", "memory_optimizer")
PARTS = (*STATES, "memory_activations")


@record
class Reading:
    """What a claim would be if one cause were behind it."""

    cause: str
    value: float
    weight: float = 0.0


@record
class Finding:
    """One thing that cannot be, or was never seen."""

    kind: str
    quantity: str
    says: str
    claims: tuple[int, ...] = ()
    value: float | None = None
    limit: float | None = None
    readings: tuple[Reading, ...] = ()


@record
class Highest:
    """The highest MFU among the shipped runs."""

    accelerator: str
    precision: str
    mfu: float
    model: str
    gpus: float
    source: str


@cache
def highest() -> tuple[Highest, ...]:
    """By accelerator, precision and size, as `scripts/highest_mfu.py` wrote it."""
    with data.open_text(HIGHEST) as file:
        return tuple(
            Highest(accelerator=row["accelerator"], precision=row["precision"], mfu=float(row["mfu"]), model=row["model"],
                    gpus=float(row["gpus"]), source=row["source"])
            for row in csv.DictReader(file)
        )  # fmt: skip


def bar(precision: str, gpus: float | None, accelerator: str = "") -> Highest | None:
    """The highest measured MFU at a precision: on at least a node where the job has one, of one accelerator or of all."""
    formats = SIXTEEN if precision in SIXTEEN else (precision,)
    small = gpus is not None and gpus < NODE
    rows = [
        one for one in highest()
        if one.precision in formats and (small or one.gpus >= NODE) and accelerator in ("", one.accelerator)
    ]  # fmt: skip
    return max(rows, key=lambda one: one.mfu, default=None)


def findings(
    found: Ways, statements: Sequence[Claim], accelerator: Accelerator | None, precision: str, factors: Sequence[Factor],
    numbers: Mapping[str, float],
) -> tuple[Finding, ...]:  # fmt: skip
    """Everything that cannot be."""
    by_id = {one.id: one for one in statements}
    return (
        *_utilisation(found, by_id, accelerator, precision, factors, numbers.get("gpus")),
        *_order(found),
        *_whole(found, by_id),
        *_memory(found, by_id, accelerator, numbers),
        *_nothing_kept(found, by_id),
        *_calendar(found),
    )


def _claimed(way: Way, by_id: Mapping[int, Claim]) -> tuple[int, ...]:
    return tuple(sorted(key for key in way.uses if by_id[key].claimed))


def _utilisation(
    found: Ways, by_id: Mapping[int, Claim], accelerator: Accelerator | None, precision: str, factors: Sequence[Factor],
    gpus: float | None,
) -> Iterable[Finding]:  # fmt: skip
    """Every way to an MFU, the highest first: claimed, or what a rate needs."""
    told: set[frozenset[int]] = set()
    best = bar(precision, gpus)
    own = bar(precision, gpus, accelerator.name) if accelerator else None
    limit = ROOM * max(best.mfu if best else 1.0, own.mfu if own else 0.0)
    top = 1.0 if precision in SIXTEEN or best is None else max(1.0, 2.0 * best.mfu)
    every = [way for key in ("mfu", "hfu") for way in found.get(key, ())]
    for way in sorted(every, key=lambda one: (len(one.uses), -one.value)):
        ids = frozenset(_claimed(way, by_id))
        value = way.value / (1.0 + way.rounding)
        if not ids or any(other <= ids for other in told) or value <= limit:
            continue
        told.add(ids)
        readings = _readings(way.value, factors, min(limit, 1.0))
        name = way.quantity.upper()
        said = ", ".join(f"{by_id[key].quantity} {by_id[key].text}" for key in sorted(ids))
        direct = len(ids) == 1 and not way.through
        needs = f"{name} {_percent(way.value)}" if direct else f"{said}: {name} {_percent(way.value)}"
        if value > top:
            says = f"{needs} is more than the peak" + (f" of {accelerator.name}" if accelerator else "")
            says += ": the FLOPs do not belong to that time, or the peak is another's"
            yield Finding(kind=IMPOSSIBLE, quantity=way.quantity, says=says, claims=tuple(sorted(ids)), value=way.value, limit=1.0, readings=readings)  # fmt: skip
        elif best is not None:
            row = f"{best.model} on {best.gpus:g} × {best.accelerator}, {best.source}"
            says = f"{needs}, where the highest measured run of our data has {_percent(best.mfu)} ({row})"
            readings = tuple(one for one in readings if one.weight <= BELIEVED)
            if own is not None and own is not best:
                says += f", the highest of {own.accelerator} {_percent(own.mfu)}"
            yield Finding(kind=BEYOND, quantity=way.quantity, says=says, claims=tuple(sorted(ids)), value=way.value, limit=limit, readings=readings)  # fmt: skip


def _percent(value: float) -> str:
    return f"{100.0 * value:.4g} %"


def _readings(value: float, factors: Sequence[Factor], limit: float) -> tuple[Reading, ...]:
    """What a utilisation is if one factor is behind it, where that is a usual one."""
    made = [
        Reading(cause=one.above, value=value / one.value, weight=one.weight + _unusual(value / one.value))
        for one in factors if one.above and one.value > 1.0 and LEAST <= value / one.value <= limit
    ]  # fmt: skip
    return tuple(sorted(made, key=lambda one: one.weight)[:MOST_READINGS])


def _unusual(mfu: float) -> float:
    """How unlikely a utilisation is by itself: runs have a third, give or take a factor of two."""
    return 0.3 * max(abs(math.log(mfu / USUAL_MFU)) - math.log(2.0), 0.0)


def _order(found: Ways) -> Iterable[Finding]:
    """Executed FLOPs are never fewer than those of the model."""
    claimed = [next((way for way in found.get(key, ()) if not way.through), None) for key in ("mfu", "hfu")]
    mfu, hfu = claimed
    if mfu is not None and hfu is not None and hfu.value * (1.0 + mfu.rounding + hfu.rounding + 1e-9) < mfu.value:
        says = f"HFU of {_percent(hfu.value)} below MFU of {_percent(mfu.value)}: what is executed is never less than the model's"
        yield Finding(kind=IMPOSSIBLE, quantity="hfu", says=says, claims=(), value=hfu.value, limit=mfu.value)


def _whole(found: Ways, by_id: Mapping[int, Claim]) -> Iterable[Finding]:
    """What counts things comes out whole."""
    for key in ("accumulation", "dp", "nodes"):
        for way in found.get(key, ()):
            exact = way.rounding == 0.0 and way.low == way.high and way.through
            if exact and abs(way.value - round(way.value)) > 1e-6 * way.value:
                ids = _claimed(way, by_id)
                said = ", ".join(f"{by_id[i].quantity} {by_id[i].text}" for i in ids)
                says = f"{key} would be {way.value:.4g}, no whole number ({said}): {way.through[-1]}"
                yield Finding(kind=IMPOSSIBLE, quantity=key, says=says, claims=ids, value=way.value)
                break


def _first(found: Ways, key: str) -> Way | None:
    return next(iter(found.get(key, ())), None)


def _memory(
    found: Ways, by_id: Mapping[int, Claim], accelerator: Accelerator | None, numbers: Mapping[str, float]
) -> Iterable[Finding]:
    if "memory_kv_cache" in found:
        says = "training has no KV cache: keys and values are activations, counted already"
        size = found["memory_kv_cache"][0].value
        yield Finding(kind=IMPOSSIBLE, quantity="memory_kv_cache", says=says, claims=_claimed(found["memory_kv_cache"][0], by_id), value=size, limit=0.0)  # fmt: skip
    for key in ("memory", "memory_allocated"):
        own = next((way for way in found.get(key, ()) if not way.through), None)
        if own is None:
            continue
        yield from _parts(own, found, by_id, numbers)
        if accelerator is not None and own.value > accelerator.memory * (1.0 + own.rounding):
            says = f"{_size(own.value)} are more than the {_size(float(accelerator.memory))} of {accelerator.name}"
            yield Finding(kind=IMPOSSIBLE, quantity=key, says=says, claims=_claimed(own, by_id), value=own.value, limit=float(accelerator.memory))  # fmt: skip
        if key == "memory":
            tensors = next((way for way in found.get("memory_allocated", ()) if not way.through), None)
            if tensors is not None and tensors.value > own.value * (1.0 + own.rounding + tensors.rounding):
                says = f"{_size(tensors.value)} in tensors are more than the {_size(own.value)} that the device shows"
                yield Finding(kind=IMPOSSIBLE, quantity=key, says=says, claims=(*_claimed(own, by_id), *_claimed(tensors, by_id)), value=own.value, limit=tensors.value)  # fmt: skip


def _parts(own: Way, found: Ways, by_id: Mapping[int, Claim], numbers: Mapping[str, float]) -> Iterable[Finding]:
    """A total holds all its parts: those that are claimed, and states that are counted exactly."""
    parts = {key: way for key in PARTS if (way := _first(found, key)) is not None}
    total = plain_sum(way.value for way in parts.values())
    if not parts or total <= own.value * (1.0 + own.rounding + 0.01):
        return
    says = (
        f"{_size(own.value)} in all is less than {_listed(parts)} = {_size(total)}, a ratio of {total / own.value:.3g}"
    )
    ids = sorted({i for way in (own, *parts.values()) for i in _claimed(way, by_id)})
    readings = tuple(_of_parts(own.value, total, parts, numbers.get("dp", 1.0)))
    yield Finding(
        kind=IMPOSSIBLE, quantity=own.quantity, says=says, claims=tuple(ids), value=own.value, limit=total, readings=readings
    )  # fmt: skip


def _listed(parts: Mapping[str, Way], but: str = "") -> str:
    return " + ".join(
        f"{_size(way.value)} of {key.removeprefix('memory_')}" for key, way in parts.items() if key != but
    )


def _of_parts(own: float, total: float, parts: Mapping[str, Way], ranks: float) -> Iterable[Reading]:
    """What would make a total hold its parts: optimizer states that are shared, fewer activations, a part that was taken for all."""
    states, activations = (parts.get(key) for key in ("memory_optimizer", "memory_activations"))
    if ranks > 1.0 and states is not None and (left := total - states.value * (1.0 - 1.0 / ranks)) <= own:
        cut, rest = _size(states.value / ranks), _size(own - left)
        cause = f"optimizer states are shared by {ranks:g} data parallel ranks: {cut}, and {rest} for context, buffers, fragments"
        yield Reading(cause=cause, value=left)
    if activations is not None and (room := own - total + activations.value) > 0.0:
        cause = f"activations are over-estimated: at most {_size(room)} are left for them, context and buffers"
        yield Reading(cause=cause, value=room)
    for key, way in parts.items():
        if abs(own / way.value - 1.0) < ONE_PART:
            cause = f"it is that of {key.removeprefix('memory_')} alone: {_listed(parts, key)} come on top"
            yield Reading(cause=cause, value=total)


def _nothing_kept(found: Ways, by_id: Mapping[int, Claim]) -> Iterable[Finding]:
    """An optimizer without state has no memory."""
    own = next((way for way in found.get("memory_optimizer", ()) if not way.through), None)
    if own is not None and any(one.word == NONE for one in by_id.values() if one.quantity == "optimizer"):
        says = f"{_size(own.value)} of optimizer states where the optimizer keeps none: another branch was counted (Adam keeps 8 bytes a parameter)"
        yield Finding(
            kind=IMPOSSIBLE,
            quantity="memory_optimizer",
            says=says,
            claims=_claimed(own, by_id),
            value=own.value,
            limit=0.0,
        )


def _size(value: float) -> str:
    return f"{value / 1e9:.4g} GB" if value >= 1e8 else show(value, "B")


def _calendar(found: Ways) -> Iterable[Finding]:
    """A run lasts no longer than from its first day to its last."""
    start, end, lasts = (_first(found, key) for key in ("start", "end", "wall_clock"))
    if start is None or end is None:
        return
    days = (end.value - start.value) / 86400.0 + 1.0
    if days < 1.0:
        yield Finding(kind=IMPOSSIBLE, quantity="end", says="the last day is before the first")
    elif lasts is not None and lasts.low > days * 86400.0 * (1.0 + lasts.rounding):
        says = f"{show(lasts.low, 's')} do not fit into the {days:g} days from the first to the last"
        yield Finding(kind=IMPOSSIBLE, quantity="wall_clock", says=says, value=lasts.low, limit=days * 86400.0)
