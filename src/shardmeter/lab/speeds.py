"""Experiments against each other: tokens a second of every one, and which of those on alike lines, islands and models is fastest.

Leaves out: what a token teaches, which differs between methods; the losses stand beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

ALIKE = ("lines", "islands", "workers", "paces_flop_per_s", "model")
"""What experiments that are set against each other have in common."""


def tokens_per_s(said: Mapping[str, Any] | None, spent: Mapping[str, Any], *, scored: bool) -> dict[str, float | None]:
    """Tokens a second that the engine says, and those of the measured round, which has as many tokens as the predicted one.

    `said`: a stored prediction; `spent`: the round of the entry, predicted and measured, in seconds. `error` is predicted over measured − 1,
    where it is scored."""
    predicted, measured, error = ((said or {}).get("predict") or {}).get("tokens_per_s"), None, None
    if predicted and spent["predicted"] and spent["measured"]:
        measured = predicted * spent["predicted"] / spent["measured"]
        error = predicted / measured - 1.0 if scored else None
    return {"predicted": predicted, "measured": measured, "error": error}


def contests(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups of two or more scored experiments that are alike but for the method: who is in it, fastest first as measured; how many times as
    fast as the slowest of them each is, predicted and measured; of all pairs, how many come in the predicted order."""
    groups: list[list[Mapping[str, Any]]] = []
    for one in entries:
        if one["tokens_per_s"]["error"] is None:
            continue
        known = next((group for group in groups if all(group[0][key] == one[key] for key in ALIKE)), None)
        if known is None:
            groups.append([one])
        else:
            known.append(one)
    return [_contest(group) for group in groups if len(group) > 1]


def _contest(group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ranked = sorted(group, key=lambda one: -one["tokens_per_s"]["measured"])
    rates = [(one["tokens_per_s"]["predicted"], one["tokens_per_s"]["measured"]) for one in ranked]
    pairs = list(itertools.combinations(rates, 2))
    return {
        "experiments": [one["name"] for one in ranked],
        "over_slowest": [{"predicted": said / rates[-1][0], "measured": took / rates[-1][1]} for said, took in rates],
        "pairs": len(pairs), "pairs_as_predicted": sum(faster[0] > slower[0] for faster, slower in pairs),
    }  # fmt: skip
