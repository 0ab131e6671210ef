"""The one tree of exceptions.

    ShardMeterError            anything a user can cause; exit code 2 unless said otherwise
    ├── BadQuantity            a text that is not a quantity, or could be two
    ├── UnknownName            a GPU, model, stack, fabric, … that no catalog has (nearest three listed)
    ├── BadScenario            a scenario file or plan that is malformed or structurally illegal: all violations at once
    └── BadData                a catalog or measured-data file that cannot be read (file and line)

A plan that is legal but does not fit is not an exception: it is an answer (`fits: false`, exit code 1).
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that is wrong: where, what (with the numbers), the rule and the nearest way out."""

    field: str
    says: str
    rule: str = ""
    way_out: str = ""
    where: str = ""
    """`file:line:column` where known."""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        name = f"{self.field}: " if self.field else ""
        rule = f" ({self.rule})" if self.rule else ""
        out = f"; {self.way_out}" if self.way_out else ""
        return f"{place}{name}{self.says}{rule}{out}"


class ShardMeterError(Exception):
    """Base of everything ShardMeter raises on purpose; `violations` lists every cause."""

    def __init__(self, message: str, violations: Iterable[Violation] = ()) -> None:
        self.message = message
        self.violations = tuple(violations)
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {violation}" for violation in self.violations)]
        return "\n".join(line for line in lines if line)


class BadQuantity(ShardMeterError):
    """A text that cannot be read as the quantity that is wanted, or could be read in two ways."""


class UnknownName(ShardMeterError):
    """A name that no catalog has."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        self.nearest = nearest(name, known)
        hint = f"; the nearest are: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint} (`shardmeter catalog {kind}s` lists all)")


class BadScenario(ShardMeterError):
    """A scenario that is malformed or structurally illegal; carries every violation found."""


class BadData(ShardMeterError):
    """A data file (catalog rows, measured runs) that cannot be read."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The `limit` known names closest to `name`, best first; case and punctuation do not count, a shared beginning does."""

    def plain(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    wanted = plain(name)[:80]
    scored = []
    for candidate in known:
        plain_candidate = plain(candidate)
        ratio = difflib.SequenceMatcher(None, wanted, plain_candidate).ratio()
        bonus = 0.5 if wanted and (wanted in plain_candidate or plain_candidate in wanted) else 0.0
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(wanted, plain_candidate, strict=False))
        bonus += 0.5 * sum(1 for _ in same) / max(1, len(wanted))
        scored.append((-(ratio + bonus), candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:limit])
