"""A fingerprint of what a source's rows mean: it changes when a mapping rule changes a reading, and with nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shardmeter.core.record import changed
from shardmeter.study.validate.mapping import Verdict

DIGITS = 16


def digests(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of their readings (assumptions and the wording of reasons left out)."""
    texts: dict[str, list[str]] = {}
    for verdict in verdicts:
        texts.setdefault(verdict.source_key, []).append(_text(verdict))
    return {
        source: (len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:DIGITS])
        for source, rows in texts.items()
    }


def _text(verdict: Verdict) -> str:
    reading = verdict.reading
    if reading is None:
        return f"{verdict.id} {'skipped' if verdict.skip else 'excluded'} {verdict.stack} {verdict.task}"
    return f"{verdict.id} {verdict.regime} {verdict.measured!r} {changed(reading, assumptions=())!r}"
