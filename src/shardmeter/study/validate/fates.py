"""What became of the rows of a file: each is scored, skipped, excluded or an identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from shardmeter.core.sums import plain_sum


class Judged(Protocol):
    """A row that was judged; at most one of `skip`, `exclude` and `due` is set."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def skip(self) -> str:
        """Why it cannot be expressed; empty where it can."""

    @property
    def exclude(self) -> str:
        """Why it does not count; empty where it does."""

    @property
    def due(self) -> float | None:
        """What its measurement must be by others of the same run; None where nothing says so."""

    @property
    def measured(self) -> float:
        """What was measured, SI."""


One = TypeVar("One", bound=Judged)


def fate(one: Judged) -> str:
    """The word for what became of a row."""
    return "skipped" if one.skip else "excluded" if one.exclude else "identity" if one.due is not None else "scored"


def accounting(
    judged: Sequence[One], is_scored: Callable[[One], bool], tolerance: Callable[[One], float]
) -> dict[str, Any]:
    """Every row once, as the report counts them; an identity agrees within the row's `tolerance`, a share."""
    return {
        "rows": len(judged),
        "scored": plain_sum(map(is_scored, judged)),
        "skipped": [{"id": one.id, "reason": one.skip} for one in judged if one.skip],
        "excluded": [{"id": one.id, "reason": one.exclude} for one in judged if one.exclude],
        "identities": [_identity(one, tolerance(one)) for one in judged if one.due is not None],
    }


def _identity(one: Judged, tolerance: float) -> dict[str, Any]:
    error = (one.due or 0.0) / one.measured - 1.0
    return {"id": one.id, "error": error, "agrees": abs(error) <= tolerance}
