"""Rows that follow from a measurement of the same run: what they must be, to check that they are read right. Never scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from shardmeter.study.validate.geo.cells import first, number, value_of
from shardmeter.study.validate.geo.vocabulary import plain, quantity_of, si
from shardmeter.study.validate.rows import NotModelled, Row, Unclear

Siblings = Mapping[tuple[str, str], Sequence[Row]]
"""Rows by method and model, as plain text: of one run."""
FP32_BITS = 32.0
_FILLERS = re.compile(r"\b(median|mean|wall|time|per|outer|step|steps|round|node|island|of|only)\b|[,:;=/]")
_ALONE = re.compile(r"no comm|single site|one site|baseline")


def run_of(row: Row) -> tuple[str, str]:
    """What rows of one run have in common."""
    return plain(row.text("method")), plain(row.text("model"))


def siblings(rows: Sequence[Row]) -> Siblings:
    """All rows of a file, by run."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(run_of(row), []).append(row)
    return found


def scope_of(row: Row) -> str:
    """Which part of a run a row is about: what its quantity says beside the quantity, without remarks in brackets."""
    text = plain(row.text("quantity"))
    words = re.sub(r"\([^)]*\)", " ", re.sub(quantity_of(text, row.text("unit")).pattern, " ", text, count=1))
    return " ".join(_FILLERS.sub(" ", words).split())


def identity(row: Row, name: str, runs: Siblings) -> float | None:
    """What the row must be (SI) by arithmetic on other rows of its run, or None where it is no identity."""
    found = _OF_QUANTITY.get(name)
    return None if found is None else found(row, runs)


def _measured(row: Row, name: str, runs: Siblings, scope: str) -> float | None:
    """A quantity of the same run and scope, in SI; that of the whole run where the scope has none of its own."""
    rows = {scope_of(one): one for one in runs.get(run_of(row), ()) if one is not row and _is(one, name)}
    one = rows.get(scope)
    if one is None:
        return None
    value = value_of(one)
    return si(value.low, one.text("unit"), "time") if value.exact else None


def _is(row: Row, name: str) -> bool:
    try:
        return quantity_of(row.text("quantity"), row.text("unit")).name == name
    except (NotModelled, Unclear):
        return False


def _times(row: Row, runs: Siblings) -> tuple[float, float] | None:
    """(inner phase, outer synchronisation) of a row's scope, as measured."""
    scope = scope_of(row)
    inner = _measured(row, "inner_phase_time", runs, scope) or _measured(row, "inner_phase_time", runs, "")
    outer = _measured(row, "sync_time", runs, scope)
    return None if inner is None or outer is None else (inner, outer)


def _compute_utilization(row: Row, runs: Siblings) -> float | None:
    times = _times(row, runs)
    if times is None:
        return 1.0 if _ALONE.search(plain(row.text("quantity"))) else None
    return times[0] / sum(times)


def _sync_share(row: Row, runs: Siblings) -> float | None:
    times = _times(row, runs)
    return None if times is None else times[1] / sum(times)


def _mfu(row: Row, runs: Siblings) -> float | None:
    """The MFU of one site, less what the outer synchronisation takes."""
    times = _times(row, runs)
    alone = [one for one in runs.get(run_of(row), ()) if _is(one, "mfu") and _ALONE.search(plain(one.text("quantity")))]
    if times is None or not alone:
        return None
    return si(value_of(alone[0]).low, alone[0].text("unit"), "fraction") * times[0] / sum(times)


def _ring_bandwidth(row: Row, runs: Siblings) -> float | None:
    """Bytes of a ring over the measured time; the text says over how many ranks (`2*13/14`)."""
    factor = re.search(r"2 ?[*·x] ?([0-9]+) ?/ ?([0-9]+)", row.text("quantity"))
    size, outer = round_bytes(row), _measured(row, "sync_time", runs, scope_of(row))
    if factor is None or size is None or outer is None:
        return None
    return 2.0 * float(factor[1]) / float(factor[2]) * size / outer


def _compression(row: Row, _: Siblings) -> float | None:
    bits = number(row, "bits_per_param")
    return FP32_BITS / bits if bits and "fp32" in plain(row.text("quantity")) else None


def round_bytes(row: Row) -> float | None:
    """Bytes of one message of all parameters, as bits and parameters say."""
    bits = number(row, "bits_per_param")
    billions = number(row, "params_b") or first(row.text("model"), r"([0-9.]+) ?B\b")
    return billions * 1e9 * bits / 8.0 if bits and billions else None


_OF_QUANTITY: Mapping[str, Callable[[Row, Siblings], float | None]] = {
    "compute_utilization": _compute_utilization,
    "sync_share": _sync_share,
    "mfu": _mfu,
    "ring_bandwidth": _ring_bandwidth,
    "compression_factor": _compression,
    "round_bytes": lambda row, _: round_bytes(row),
}
