"""A fingerprint of what a source's rows mean: it changes when a mapping rule changes a reading, and with nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from shardmeter.core.record import changed
from shardmeter.study.validate.mapping import Verdict

DIGITS = 16


def digests(verdicts: Iterable[Verdict]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of their readings (assumptions and the wording of reasons left out)."""
    return fingerprints((verdict.source_key, _text(verdict)) for verdict in verdicts)


def fingerprints(readings: Iterable[tuple[str, str]]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of what they are read as; `readings` are (source, text of a row)."""
    texts: dict[str, list[str]] = {}
    for source, text in readings:
        texts.setdefault(source, []).append(text)
    return {
        source: (len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:DIGITS])
        for source, rows in texts.items()
    }


def _text(verdict: Verdict) -> str:
    reading = verdict.reading
    if reading is None:
        return f"{verdict.id} {'skipped' if verdict.skip else 'excluded'} {verdict.stack} {verdict.task}"
    return f"{verdict.id} {verdict.regime} {verdict.measured!r} {said(changed(reading, assumptions=()))}"


def said(value: Any) -> str:
    """A record as text, without the fields that hold their default: one that is new to a record says nothing of older rows."""
    if is_dataclass(value):
        held = [(one, getattr(value, one.name)) for one in fields(value)]
        kept = [
            f"{one.name}={said(found)}"
            for one, found in held
            if one.default is MISSING or type(found) is not type(one.default) or found != one.default
        ]
        return f"{type(value).__name__}({', '.join(kept)})"
    if isinstance(value, tuple):
        return f"({', '.join(said(one) for one in value)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {said(found)}' for key, found in value.items())}}}"
    return repr(value)
