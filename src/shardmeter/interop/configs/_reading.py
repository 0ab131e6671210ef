"""What a reader of settings collects: every setting ends in exactly one list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, nearest, shown
from shardmeter.interop.configs._saying import value_text
from shardmeter.interop.configs.record import Imported, Setting

LONGEST = 80
"""Characters of a value that is shown."""


class Reading:
    """Settings of a file by key, and what became of each of them so far."""

    def __init__(self, said: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.said, self.defaults = said, defaults
        self.document: dict[str, Any] = {}
        self.wrong: list[Setting] = []
        self.assumed: list[str] = []
        self.violations: list[Violation] = []
        self._understood: dict[str, str] = {}
        self._ignored: dict[str, str] = {}

    def has(self, key: str) -> bool:
        """Whether the file says it, and in a way that could be read."""
        return key in self.said and key not in self._ignored

    def value(self, key: str) -> Any:
        """What the file says or, where it is silent, the trainer's default."""
        return self.said[key] if self.has(key) else self.defaults.get(key)

    def whole(self, key: str, least: int = 1, also: Collection[int] = ()) -> int:
        """A whole number that is at least `least` or one of `also`. Of a text (an expression, a variable) the default, which is then told;
        anything else is malformed."""
        value = self.value(key)
        if isinstance(value, int) and not isinstance(value, bool) and (least <= value <= MOST or value in also):
            return value
        says = f"{shown(value, 20)} is no whole number of {least} or more"
        if self.has(key) and not isinstance(value, str):
            self.violations.append(Violation(field=key, says=says))
        self.ignore(key, says)
        return int(self.defaults[key])

    def word(self, key: str, known: Collection[Any]) -> Any:
        """One of the known words; the default where the file says none of them, which is then told."""
        value = self.value(key)
        if isinstance(value, str | bool | None) and value in known:
            return value
        close = ", ".join(nearest(str(value)[:40], [str(one) for one in known]))
        self.ignore(key, f"{shown(value, 20)} is none of its words; the nearest are {close}")
        return self.defaults.get(key)

    def put(self, path: str, value: Any, *keys: str, why: str = "") -> None:
        """Set a field of the scenario, which these keys say."""
        *parts, last = path.split(".")
        inner = self.document
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
        self.means(f"{path} = {_brief(value)}{f' ({why})' if why else ''}", *keys)

    def means(self, text: str, *keys: str) -> None:
        """These keys are understood; those that the file does not say are an assumption with the trainer's default."""
        silent = []
        for key in keys:
            if self.has(key):
                before = self._understood.get(key)
                self._understood[key] = f"{before}; {text}" if before else text
            elif key in self.defaults:
                silent.append(f"{key} = {value_text(self.defaults[key])}")
        if silent and len(silent) == len(keys):
            self.assumed.append(f"{text}: {', '.join(silent)} is the trainer's default")

    def ignore(self, key: str, why: str) -> None:
        """A key that says nothing of ours, and why."""
        if key in self.said:
            self._ignored[key] = why
            self._understood.pop(key, None)

    def imported(self, format_: str, version: str, keys: Collection[str], why: Callable[[str], str]) -> Imported:
        """The report: what is left of the keys is ignored, with the reason `why` tells, or unknown to the trainer, whose `keys` are given.

        Raises BadScenario with everything that was malformed."""
        if self.violations:
            raise BadScenario(f"{format_}: {len(self.violations)} settings cannot be read", self.violations)
        ignored, unknown = dict(self._ignored), []
        for key in self.said:
            if key in self._understood or key in ignored:
                continue
            if not keys or key in keys:
                ignored[key] = why(key)
            else:
                unknown.append(self._setting(key, f"the nearest are {', '.join(nearest(key, keys))}"))
        return Imported(
            format=format_,
            version=version,
            document=self.document,
            understood=tuple(self._setting(key, text) for key, text in self._understood.items()),
            assumed=tuple(self.assumed),
            ignored=tuple(self._setting(key, text) for key, text in ignored.items()),
            unknown=tuple(unknown),
        )

    def _setting(self, key: str, means: str) -> Setting:
        return Setting(key=key, value=value_text(self.said[key])[:LONGEST], means=means)


MOST = 2**53
"""Above it a float does not hold every whole number."""


def _brief(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else value_text(value)
