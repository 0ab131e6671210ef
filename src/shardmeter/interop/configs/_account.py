"""Settings of a file while they are read: each is taken once, and what nobody takes is told too."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Callable, Mapping
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, cut, nearest, shown
from shardmeter.interop.configs.record import Setting

ALIKE, MOST_NEAREST = 30, 20
"""Names that share most letters with an unknown one, of which the nearest are chosen; unknown ones for which that is done."""


class Account:
    """What became of each setting: understood, ignored, unknown; and what is wrong with values, told all at once by `stop`."""

    def __init__(self, values: Mapping[str, str], name: str) -> None:
        self.values, self.name = values, name
        self.understood: list[Setting] = []
        self.ignored: list[Setting] = []
        self.assumed: list[str] = []
        self.violations: list[Violation] = []
        self._taken: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the file says it, with a value that is in the file."""
        return key in self.values and not self._hidden(key)

    def text(self, key: str, means: str = "") -> str | None:
        """The value of a setting; None where the file does not say it, or names a variable that it does not hold."""
        if key not in self.values or key in self._taken:
            return self.values.get(key) if self.has(key) else None
        self._taken.add(key)
        if self._hidden(key):
            self.ignored.append(self._setting(key, "a variable whose value is not in the file"))
            return None
        self.understood.append(self._setting(key, means))
        return self.values[key]

    def flag(self, key: str, means: str = "") -> bool:
        """Whether a setting without a value is there."""
        return self.text(key, means) is not None

    def truth(self, key: str, field: str, yes: str = "true", no: str = "false") -> bool:
        """A setting that is true or false, and which of two values of a field of ours it says; false where it is not said."""
        said = self.values.get(key, "").strip().lower() in ("true", "yes", "on", "1")
        return self.text(key, f"{field} = {yes if said else no}") is not None and said

    def whole(self, key: str, means: str, otherwise: int | None = None) -> int | None:
        """A setting that is a whole number of 1 or more."""
        value = self.text(key, f"{means} = {cut(self.values.get(key, ''), 20)}")
        if value is None:
            return otherwise
        if re.fullmatch(r"[0-9]{1,15}", value) is None or int(value) < 1:
            self.refuse(key, f"{shown(value)} is no whole number above 0")
            return otherwise
        return int(value)

    def word(self, key: str, words: Mapping[str, str], means: str, otherwise: str) -> str:
        """A setting that is one of the trainer's words, as ours."""
        value = self.text(key, means)
        if value is None:
            return otherwise
        if value not in words:
            close = ", ".join(nearest(value, words))
            self.refuse(key, f"{shown(value)} is none of its words", f"the nearest are {close}")
            return otherwise
        self.understood[-1] = self._setting(key, f"{means} = {words[value]}")
        return words[value]

    def ignore(self, key: str, why: str) -> None:
        """Note that a setting changes nothing of ours, or cannot be expressed."""
        if key in self.values and key not in self._taken:
            self._taken.add(key)
            self.ignored.append(self._setting(key, why))

    def refuse(self, key: str, says: str, way_out: str = "") -> None:
        """Note what is wrong with a value, once."""
        found = Violation(field=key, says=says, way_out=way_out)
        if found not in self.violations:
            self.violations.append(found)

    def left(self, known: Callable[[str], bool], names: Any, why: Callable[[str], str]) -> tuple[Setting, ...]:
        """Ignore what nobody took, each with its reason, and return what the trainer does not have, with the nearest names."""
        unknown: list[Setting] = []
        for key in [key for key in self.values if key not in self._taken]:
            if known(key):
                self.ignore(key, why(key))
            else:
                close = (
                    f"the nearest are {', '.join(_close(key, names))}"
                    if len(unknown) < MOST_NEAREST
                    else "no such name"
                )
                unknown.append(self._setting(key, close))
        return tuple(unknown)

    def stop(self) -> None:
        """Raise BadScenario with everything that is wrong; nothing where nothing is."""
        if self.violations:
            raise BadScenario(f"{self.name}: {len(self.violations)} settings cannot be read", self.violations)

    def _hidden(self, key: str) -> bool:
        return "$" in self.values[key] or "`" in self.values[key]

    def _setting(self, key: str, means: str) -> Setting:
        return Setting(key=cut(key, 80), value=cut(self.values[key], 120), means=means)


def _close(key: str, names: Any) -> tuple[str, ...]:
    """The three names nearest to an unknown one, among those that share most runs of three letters with it."""
    own = _runs(key[:80])
    return nearest(key, sorted(heapq.nlargest(ALIKE, names, key=lambda name: (len(own & _runs(name)), name))))


@functools.lru_cache(maxsize=4096)
def _runs(name: str) -> frozenset[str]:
    return frozenset(name[at : at + 3] for at in range(len(name) - 2))
