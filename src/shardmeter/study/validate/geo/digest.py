"""A fingerprint of what a source's rows mean: it changes when a rule of the vocabulary changes a reading, and with nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shardmeter.study.validate.digest import DIGITS
from shardmeter.study.validate.geo.account import Judged
from shardmeter.study.validate.geo.cells import READERS, delay, stated
from shardmeter.study.validate.rows import Damaged


def meaning(one: Judged) -> str:
    """What a row is read as: its words, its numbers, what became of it; without predictions and the wording of reasons."""
    fate = "skipped" if one.skip else "excluded" if one.exclude else "identity" if one.due is not None else "scored"
    numbers = ""
    if fate in ("identity", "scored"):
        numbers = f"{one.measured!r} {one.due!r} {[_number(one, column) for column in READERS if column != 'value']}"
    return f"{one.id} {one.source} {one.quantity} {one.method} {one.kind} {one.case} {fate} {numbers}"


def _number(one: Judged, column: str) -> str:
    try:
        found = delay(one.row, column) if column == "overlap_tau_steps" else stated(one.row, column)
    except Damaged:
        return "damaged"
    return repr(found)


def digests(judged: Iterable[Judged]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of their readings."""
    texts: dict[str, list[str]] = {}
    for one in judged:
        texts.setdefault(one.source, []).append(meaning(one))
    return {
        source: (len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:DIGITS])
        for source, rows in texts.items()
    }
