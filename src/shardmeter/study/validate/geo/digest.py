"""A fingerprint of what a source's rows mean: it changes when a rule of the vocabulary changes a reading, and with nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from shardmeter.study.validate.digest import fingerprints
from shardmeter.study.validate.fates import fate
from shardmeter.study.validate.geo.account import Judged
from shardmeter.study.validate.geo.cells import READERS, delay, stated
from shardmeter.study.validate.rows import Damaged


def meaning(one: Judged) -> str:
    """What a row is read as: its words, its numbers, what became of it; without predictions and the wording of reasons."""
    found, numbers = fate(one), ""
    if found in ("identity", "scored"):
        numbers = f"{one.measured!r} {one.due!r} {[_number(one, column) for column in READERS if column != 'value']}"
    return f"{one.id} {one.source} {one.quantity} {one.method} {one.kind} {one.case} {found} {numbers}"


def _number(one: Judged, column: str) -> str:
    try:
        found = delay(one.row, column) if column == "overlap_tau_steps" else stated(one.row, column)
    except Damaged:
        return "damaged"
    return repr(found)


def digests(judged: Iterable[Judged]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of their readings."""
    return fingerprints((one.source, meaning(one)) for one in judged)
