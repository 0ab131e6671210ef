"""Things with the same figures, told once: which they are, and their names in a few words."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def kinds(things: Sequence[T], figures: Callable[[T], Hashable]) -> list[list[T]]:
    """Things with the same figures together, in the order of the first of each."""
    found: dict[Hashable, list[T]] = {}
    for one in things:
        found.setdefault(figures(one), []).append(one)
    return list(found.values())


def span(names: Sequence[str]) -> str:
    """`north`, `north, south`, `home-1 … home-30`."""
    first, last = names[0], names[-1]
    return first if len(names) == 1 else f"{first}, {last}" if len(names) == 2 else f"{first} … {last}"
