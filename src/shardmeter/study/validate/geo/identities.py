"""Rows that follow from a measurement of the same run: what they must be, to check that they are read right. Never scored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from shardmeter.core.sums import plain_sum
from shardmeter.physics import failures
from shardmeter.study.validate.geo.cells import first, number, value_of
from shardmeter.study.validate.geo.vocabulary import method_of, plain, quantity_of, si
from shardmeter.study.validate.rows import NotModelled, Row, Unclear

Measured = Mapping[tuple[str, str], float]
"""What was measured of one run, in SI, by canonical quantity and scope."""
Runs = Mapping[tuple[str, str], Measured]
"""By method and model as plain text; where a row names neither, by its source."""
FP32_BITS = 32.0
DAY = 86400.0
SOURCES = ("inner_phase_time", "sync_time", "mfu", "failures")
"""Quantities from which others follow."""
ALONE = "one site alone"
"""The scope of what was measured without any exchange."""
_FILLERS = re.compile(r"\b(median|mean|wall|time|per|outer|step|steps|round|node|island|of|only)\b|[,:;=/]")
_ALONE = re.compile(r"no comm|single site|one site|baseline")


def run_of(row: Row) -> tuple[str, str]:
    """What rows of one run have in common."""
    method, model = plain(row.text("method")), plain(row.text("model"))
    return ("", plain(row.text("source"))) if not model and method_of(method) == "unstated" else (method, model)


def runs(rows: Sequence[Row]) -> Runs:
    """The measurements of a file that others may follow from, by run. Two that differ are none."""
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in rows:
        one = _measurement(row)
        if one is not None:
            earlier = found.setdefault(run_of(row), {}).setdefault(one[0], one[1])
            found[run_of(row)][one[0]] = one[1] if earlier == one[1] else math.nan
    return found


def _measurement(row: Row) -> tuple[tuple[str, str], float] | None:
    try:
        quantity = quantity_of(row.text("quantity"), row.text("unit"))
        if quantity.name not in SOURCES:
            return None
        value = value_of(row)
        if quantity.name == "failures":
            rate = _rate(row, value.low) if value.exact else None
            return None if rate is None else ((quantity.name, ""), rate)
        scope = ALONE if _is_alone(row) else scope_of(row)
        return ((quantity.name, scope), si(value.low, row.text("unit"), quantity.dimension)) if value.exact else None
    except (NotModelled, Unclear):
        return None


def _rate(row: Row, count: float) -> float | None:
    """Failures of one accelerator a second, of a count for so many days of nodes of so many (`per 1000 node-days (8 GPU nodes)`)."""
    days, gpus = (first(plain(row.text("quantity")), one) for one in (r"per ([0-9]+) node days", r"([0-9]+) gpu nodes"))
    return None if days is None or gpus is None else count / (days * DAY * gpus)


def _is_alone(row: Row) -> bool:
    """Whether a row is about one site that exchanges nothing."""
    return bool(_ALONE.search(plain(row.text("quantity"))))


def scope_of(row: Row) -> str:
    """Which part of a run a row is about: what its quantity says beside the quantity, without remarks in brackets."""
    text = plain(row.text("quantity"))
    words = re.sub(r"\([^)]*\)", " ", re.sub(quantity_of(text, row.text("unit")).pattern, " ", text, count=1))
    return " ".join(_FILLERS.sub(" ", words).split())


def identity(row: Row, name: str, known: Runs) -> float | None:
    """What the row must be (SI) by arithmetic on other measurements of its run, or None where it is no identity."""
    found = _OF_QUANTITY.get(name)
    due = None if found is None else found(row, known.get(run_of(row), {}))
    return None if due is None or math.isnan(due) else due


def _times(row: Row, run: Measured) -> tuple[float, float] | None:
    """(inner phase, outer synchronisation) of a row's scope; the inner phase of the whole run where the scope has none."""
    scope = scope_of(row)
    inner = run.get(("inner_phase_time", scope), run.get(("inner_phase_time", "")))
    outer = run.get(("sync_time", scope))
    return None if inner is None or outer is None else (inner, outer)


def _compute_utilization(row: Row, run: Measured) -> float | None:
    times = _times(row, run)
    if times is None:
        return 1.0 if _is_alone(row) else None
    return times[0] / plain_sum(times)


def _sync_share(row: Row, run: Measured) -> float | None:
    times = _times(row, run)
    return None if times is None else times[1] / plain_sum(times)


def _mfu(row: Row, run: Measured) -> float | None:
    """The MFU of one site, less what the outer synchronisation takes."""
    times, alone = _times(row, run), run.get(("mfu", ALONE))
    return None if times is None or alone is None else alone * times[0] / plain_sum(times)


def _ring_bandwidth(row: Row, run: Measured) -> float | None:
    """Bytes of a ring over the measured time; the text says over how many ranks (`2*13/14`)."""
    factor = re.search(r"2 ?[*·x] ?([0-9]+) ?/ ?([0-9]+)", row.text("quantity"))
    size, outer = round_bytes(row), run.get(("sync_time", scope_of(row)))
    if factor is None or size is None or outer is None or float(factor[2]) == 0.0:
        return None
    return 2.0 * float(factor[1]) / float(factor[2]) * size / outer


def _compression(row: Row, _: Measured) -> float | None:
    bits = number(row, "bits_per_param")
    return FP32_BITS / bits if bits and "fp32" in plain(row.text("quantity")) else None


def round_bytes(row: Row) -> float | None:
    """Bytes of one message of all parameters, as bits and parameters say."""
    bits = number(row, "bits_per_param")
    billions = number(row, "params_b") or first(row.text("model"), r"([0-9.]+) ?B\b")
    return billions * 1e9 * bits / 8.0 if bits and billions else None


def _mtbf(row: Row, run: Measured) -> float | None:
    """What a source projects to more accelerators from its own rate."""
    text, rate = plain(row.text("quantity")), run.get(("failures", ""))
    gpus = first(text, r"projected (?:at|to|for) ([0-9]+) gpus")
    return None if gpus is None or not rate else 1.0 / float(failures.failure_rate(gpus, 1.0 / rate))


_OF_QUANTITY: Mapping[str, Callable[[Row, Measured], float | None]] = {
    "compute_utilization": _compute_utilization,
    "sync_share": _sync_share,
    "mfu": _mfu,
    "mtbf": _mtbf,
    "ring_bandwidth": _ring_bandwidth,
    "compression_factor": _compression,
    "round_bytes": lambda row, _: round_bytes(row),
}
