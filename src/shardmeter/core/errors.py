"""The one tree of exceptions.

    ShardMeterError            anything a user can cause; exit code 2 unless said otherwise
    ├── BadQuantity            a text that is not a quantity, or could be two
    ├── UnknownName            a GPU, model, stack, fabric, … that no catalog has (nearest three listed)
    ├── BadScenario            a scenario file or plan that is malformed or structurally illegal: all violations at once
    ├── BadData                a catalog or measured-data file that cannot be read (file and line)
    └── Unavailable            a file that cannot be written, a scheduler that cannot be reached (exit code 74)

A plan that is legal but does not fit is not an exception: it is an answer (`fits: false`, exit code 1).
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shardmeter.core.sums import plain_sum

LONGEST_SHOWN = 60
"""Characters of a user's text that a message repeats."""
MOST_SHOWN = 20
"""Violations that a message lists; the error itself carries all."""
LISTED = ("accelerator", "fabric", "instance", "model", "stack")
"""Kinds of names that `shardmeter catalog` lists."""


def printable(text: str) -> str:
    """The text with every character that is no plain one (control, bidirectional, surrogate) written as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cut(text: str, most: int = LONGEST_SHOWN) -> str:
    """The beginning of a text, with an ellipsis where something was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(value: object, most: int = LONGEST_SHOWN) -> str:
    """A user's value as a message repeats it: short, in quotes if it is a text, never an escape sequence."""
    if isinstance(value, str):
        return repr(cut(value, most))
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"a whole number of about {int(value.bit_length() * 0.30103) + 1} digits"
    if value is None or isinstance(value, bool | int | float):
        return "nothing" if value is None else str(value)
    return kind_of(value)


def quoted(name: str) -> str:
    """A name as it stands inside the braces of a YAML line: in quotes where it has more than letters, digits and dashes."""
    return (
        name
        if re.fullmatch(r"(?!(?i:true|false|null)$)[A-Za-z][A-Za-z0-9_./-]*", name)
        else json.dumps(name, ensure_ascii=False)
    )


def kind_of(value: object) -> str:
    """What a value is, in a reader's words: `a list`, `a text`; never the name of a Python class."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"), (str, "a text"), ((bytes, bytearray), "bytes"), ((int, float, complex), "a number"),
        (Mapping, "a mapping"), ((list, tuple), "a list"), ((set, frozenset), "a set"), (type(None), "nothing"),
    )  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")


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
        place = f"{printable(self.where)}: " if self.where else ""
        name = f"{printable(self.field)}: " if self.field and not self._is_placed() else ""
        rule = f" ({self.rule})" if self.rule else ""
        out = f"; {self.way_out}" if self.way_out else ""
        return f"{place}{name}{printable(self.says)}{printable(rule)}{printable(out)}"

    def _is_placed(self) -> bool:
        """Whether the place is an option that names the field itself: `--model`, `--set plan.tp=0`."""
        last = self.field.rpartition(".")[2].replace("_", "-")
        return self.where == f"--{last}" or (self.where.startswith("--") and f" {self.field}=" in self.where)


class ShardMeterError(Exception):
    """Base of everything ShardMeter raises on purpose; `violations` lists every cause."""

    def __init__(self, message: str, violations: Iterable[Violation] = ()) -> None:
        self.message = "\n".join(map(printable, message.split("\n")))
        self.violations = tuple(violations)
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        """So that every one can be copied, and come back from another process, whatever it was made of."""
        return _again, (type(self), self.message, self.__dict__)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {violation}" for violation in self.violations[:MOST_SHOWN])]
        if len(self.violations) > MOST_SHOWN:
            lines.append(f"  … and {len(self.violations) - MOST_SHOWN:,} more")
        return "\n".join(line for line in lines if line)


def _again(kind: type[ShardMeterError], message: str, parts: dict[str, Any]) -> ShardMeterError:
    """The same exception a second time."""
    made = kind.__new__(kind, message)
    made.__dict__.update(parts)
    return made


class BadQuantity(ShardMeterError):
    """A text that cannot be read as the quantity that is wanted, or could be read in two ways."""


class UnknownName(ShardMeterError):
    """A name that no catalog has; `because` says why, where that is known. `ranked`: the known names stand in the order of how near they
    are, which their own spelling does not tell (an alias may be nearer than the name of its row)."""

    def __init__(self, kind: str, name: str, known: Iterable[str], because: str = "", *, ranked: bool = False) -> None:
        self.kind, self.name = kind, name
        self.nearest = tuple(known)[:3] if ranked else nearest(name, known)
        hint = f"; the nearest are: {', '.join(self.nearest)}" if self.nearest else ""
        lists = f" (`shardmeter catalog {kind}s` lists all)" if kind in LISTED else ""
        super().__init__(f"unknown {kind} {shown(name)}{f' ({because})' if because else ''}{hint}{lists}")


class BadScenario(ShardMeterError):
    """A scenario that is malformed or structurally illegal; carries every violation found."""


class BadData(ShardMeterError):
    """A data file (catalog rows, measured runs) that cannot be read."""


class Unavailable(ShardMeterError):
    """What is asked is right, and the machine does not do it: a full disk, a folder that is read-only, no scheduler there."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The `limit` known names closest to `name`, best first; case and punctuation do not count, a shared beginning does.

    Names are compared in order of the most that they can reach, and no longer than that can be among the best."""
    wanted = _plain(name)[:80]
    most = []
    for candidate in known:
        plain = _plain(candidate)
        bonus = _bonus(wanted, plain)
        shared = plain_sum(
            min(times, wanted.count(letter)) for letter, times in _letters(plain).items() if letter in wanted
        )
        alike = 2.0 * shared / (len(wanted) + len(plain)) if wanted or plain else 1.0
        most.append((-(alike + bonus), candidate, plain, bonus))
    best: list[tuple[float, str]] = []
    for bound, candidate, plain, bonus in sorted(most):
        if len(best) == limit and bound > best[-1][0] + 1e-9:
            break
        ratio = difflib.SequenceMatcher(None, wanted, plain).ratio()
        best = sorted([*best, (-(ratio + bonus), candidate)])[:limit]
    return tuple(candidate for _, candidate in best)


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


@lru_cache(maxsize=4096)
def _letters(plain: str) -> Counter[str]:
    return Counter(plain)


def _bonus(wanted: str, plain: str) -> float:
    """What one name in the other, and a shared beginning, add to how alike two names are."""
    bonus = 0.5 if wanted and wanted in plain else 0.0
    if not bonus and plain and plain in wanted:  # a short name is in many
        bonus = 0.5 * len(plain) / len(wanted)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(wanted, plain, strict=False))
    return bonus + 0.5 * sum(1 for _ in same) / max(1, len(wanted))
