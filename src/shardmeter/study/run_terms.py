"""Terms of a whole run (hours, dollars, electricity, loss) by name, and the pages that tell how they are counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import nearest
from shardmeter.core.record import record


@record
class Ledger:
    """A list of terms in `run` of the answer."""

    key: str
    amount: str
    """Key of an entry's number."""
    unit: str
    """As a page shows it."""
    page: str
    asked: str
    """What a scenario says so that a run has it."""
    usual: tuple[str, ...]
    """Terms that it may have; those of several islands end in their names."""


LEDGERS = (
    Ledger(
        key="hours", amount="seconds", unit="s", page="docs/failures.md", asked="run.failures, run.checkpoint, run.evaluation or preemption",
        usual=("productive", "evaluation", "checkpoints", "lost work", "restarts", "waits for capacity", "waits for the next round"),
    ),
    Ledger(
        key="cost_terms", amount="usd", unit="USD", page="docs/money.md", asked="a length of the run (--tokens) and prices",
        usual=("accelerators", "depreciation", "electricity", "traffic", "data set", "storage of checkpoints", "storage of the data set"),
    ),
    Ledger(
        key="energy", amount="kwh", unit="kWh", page="docs/money.md#what-it-draws", asked="a length of the run (--tokens)",
        usual=("accelerators", "rest of the nodes", "halls"),
    ),
    Ledger(
        key="loss_terms", amount="nats", unit="nats", page="docs/loss.md", asked="run.law or run.target_loss",
        usual=("irreducible", "parameters", "tokens", "batch against the critical one", "replicas", "way of training"),
    ),
)  # fmt: skip


def run_terms(answer: Mapping[str, Any], wanted: str) -> dict[str, list[dict[str, Any]]]:
    """Entries of the answer's ledgers whose term holds a text, by ledger; those that are the text win alone."""
    run, text = answer.get("run") or {}, wanted.lower()
    entries = {one.key: [dict(entry) for entry in run.get(one.key) or ()] for one in LEDGERS}
    for holds in (lambda term: term == text, lambda term: text in term):
        found = {key: [entry for entry in rows if holds(entry["term"].lower())] for key, rows in entries.items()}
        if any(found.values()):
            return {key: rows for key, rows in found.items() if rows}
    return {}


def named(answer: Mapping[str, Any]) -> list[str]:
    """The terms of all ledgers of an answer, each once."""
    run = answer.get("run") or {}
    return list(dict.fromkeys(entry["term"] for one in LEDGERS for entry in run.get(one.key) or ()))


def elsewhere(answer: Mapping[str, Any], wanted: str) -> str:
    """Which ledger of a run has a term that this run does not have, and what asks for it; the nearest such term and its page."""
    own = {term.lower() for term in named(answer)}
    usual = [term for one in LEDGERS for term in one.usual]
    close = nearest(wanted, usual, 1)[0]
    ledger = next(one for one in LEDGERS if close in one.usual)
    lacks = "" if close in own else f", which this run does not have: {ledger.asked} ask for it"
    return f"the nearest term of a whole run is {close!r} of run.{ledger.key}{lacks} ({ledger.page})"
