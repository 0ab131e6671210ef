"""The settings of one file while they are read: each ends in exactly one list, and all that is malformed is told together."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import heapq
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, overload

from shardmeter.core.errors import BadScenario, Violation, cut, nearest, shown
from shardmeter.core.record import record
from shardmeter.interop.configs._saying import value_text
from shardmeter.interop.configs._trees import has, written
from shardmeter.interop.configs.record import Imported, Setting

MOST = 10**15
"""No whole number of a setting is larger."""
LONGEST, MALFORMED = 80, 40
"""Characters of a key or a value that are shown in a list, and of a malformed value."""
NEAREST, LIKELY = 20, 30
"""Unknown settings that the nearest names are looked for, and the names sharing most letters with one, among which they are."""
ALIKE = 0.85
"""Likeness of two names from which on one is taken for the other, mistyped."""
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NO_FIGURE = "no figure depends on it"


@record
class Dialect:
    """How a kind of file writes values."""

    number: str
    """What a text of a whole number looks like; where it is empty no text is one."""
    elsewhere: Callable[[Any], str]
    """Why a value is not in the file; empty where it is."""
    shown: Callable[[Any], str]
    """A value as a report shows it, before it is cut."""
    folded: bool = False
    """Whether capitals do not count, and words and digits stand for true and false."""
    lenient: bool = False
    """Whether a text in the wrong place is told as ignored, since a program may make something of it; else it is malformed."""


def _of_shell(value: Any) -> str:
    hidden = isinstance(value, str) and ("$" in value or "`" in value)
    return "a variable whose value is not in the file" if hidden else ""


def _of_program(value: Any) -> str:
    automatic = isinstance(value, str) and value.lower() == "auto"
    return "left to the program that reads the file: its own arguments say it" if automatic else ""


def _nowhere(value: Any) -> str:  # noqa: ARG001  (every value is in the file)
    return ""


SHELL = Dialect(number=r"[0-9]{1,15}", elsewhere=_of_shell, shown=str)
"""Texts, some of them variables."""
TREE = Dialect(
    number=r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?", elsewhere=_of_program, shown=written, folded=True
)
"""JSON and YAML as Hugging Face's programs and DeepSpeed take them: `5e8` is a whole number, `auto` the program's."""
TYPED = Dialect(number="", elsewhere=_nowhere, shown=value_text, lenient=True)
"""TOML, and Python, whose expressions are texts here."""


class Reading:
    """Settings of a file by key, and what became of each of them so far: what is understood stays so, and what is ignored."""

    def __init__(
        self,
        trainer: str,
        said: Mapping[str, Any],
        known: frozenset[str],
        dialect: Dialect,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.trainer, self.said, self.known, self.dialect = trainer, said, known, dialect
        self.defaults = defaults or {}
        self.document: dict[str, Any] = {}
        self.assumed: list[str] = []
        self.violations: list[Violation] = []
        self.accumulated = 1
        self.micro_batch_left = False
        self._understood: dict[str, str] = {}
        self._ignored: dict[str, str] = {}

    def hides(self, key: str) -> bool:
        """Whether the file says it, with a value that is not in the file."""
        return key in self.said and self.dialect.elsewhere(self.said[key]) != ""

    def has(self, key: str) -> bool:
        """Whether the file says it, in a way that can be read."""
        return key in self.said and key not in self._ignored and not self.hides(key)

    def value(self, key: str) -> Any:
        """What the file says; where it is silent, or leaves it to others (which is then told), the trainer's default, if that is known."""
        if self.has(key):
            return self.said[key]
        if self.hides(key):
            self.ignore(key, self.dialect.elsewhere(self.said[key]))
        return self.defaults.get(key)

    def text(self, key: str, means: str) -> str | None:
        """A setting of any value; None where it is left out."""
        value = self.value(key)
        if value is None:
            return None
        self.means(means, key)
        return str(value)

    def given(self, key: str, means: str) -> bool:
        """Whether a setting that needs no value is there."""
        return self.text(key, means) is not None

    @overload
    def flag(self, key: str, default: bool = False) -> bool: ...

    @overload
    def flag(self, key: str, default: None) -> bool | None: ...

    def flag(self, key: str, default: bool | None = False) -> bool | None:
        """A setting that is true or false; `default`, or the trainer's where that is known, where it is left out."""
        value, default = self.value(key), self.defaults.get(key, default)
        if isinstance(value, bool) or self._left_out(key, value):
            return value if isinstance(value, bool) else default
        word = str(value).lower()
        if self.dialect.folded and word in (*YES, *NO):
            return word in YES
        self._malformed(key, f"{shown(value, MALFORMED)} is none of its words", ("true", "false"))
        return default

    @overload
    def whole(
        self,
        key: str,
        means: str = "",
        otherwise: None = None,
        *,
        least: int = 1,
        most: int = MOST,
        also: int | None = None,
    ) -> int | None: ...

    @overload
    def whole(
        self, key: str, means: str, otherwise: int, *, least: int = 1, most: int = MOST, also: int | None = None
    ) -> int: ...

    def whole(
        self,
        key: str,
        means: str = "",
        otherwise: int | None = None,
        *,
        least: int = 1,
        most: int = MOST,
        also: int | None = None,
    ) -> int | None:
        """A whole number between bounds, or `also`, and what it is to us (`plan.tp`); where it is left out the trainer's default, or `otherwise`."""
        value, otherwise = self.value(key), self.defaults.get(key, otherwise)
        if self._left_out(key, value):
            return otherwise
        number = self._number(value)
        if number != also and (not least <= number <= most or number != round(number)):
            bound = f"{least} or more" if most == MOST else f"{least} to {most}"
            self._malformed(key, f"{shown(value, MALFORMED)} is no whole number of {bound}")
            return otherwise
        if means:
            self.means(f"{means} = {number:.0f}", key)
        return int(number)

    def word(self, key: str, words: Collection[str], means: str = "", otherwise: str = "") -> str:
        """One of some words, as ours where they are a mapping; where it is left out the trainer's default as ours, or `otherwise`."""
        value, usual = self.value(key), self.defaults.get(key)
        ours = words if isinstance(words, Mapping) else {one: one for one in words}
        default = otherwise if usual is None else ours[usual]
        if self._left_out(key, value):
            return default
        word = str(value).lower() if self.dialect.folded and not isinstance(value, Mapping | list) else value
        if not isinstance(word, str) or word not in ours:
            self._malformed(key, f"{shown(value, MALFORMED)} is none of its words", words)
            return default
        if means:
            self.means(f"{means} = {ours[word]}", key)
        return ours[word]

    def put(self, path: str, value: Any, *keys: str, why: str = "") -> None:
        """Set a field of the scenario, which these keys say."""
        *parts, last = path.split(".")
        inner = self.document
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
        self.means(f"{path} = {_brief(value)}{f' ({why})' if why else ''}", *keys)

    def means(self, text: str, *keys: str) -> None:
        """These keys are understood; where the file says none of them, and the trainer's defaults are known, it is an assumption."""
        silent = []
        for key in keys:
            if key in self.said and key not in self._ignored:
                before = self._understood.get(key)
                self._understood[key] = f"{before}; {text}" if before and before != text else text
            elif key in self.defaults:
                silent.append(f"{key} = {self.dialect.shown(self.defaults[key])}")
        if silent and len(silent) == len(keys):
            self.assume(f"{text}: {', '.join(silent)} is the trainer's default")

    def adds_up(self, key: str, steps: int) -> None:
        """Note how many micro-batches a replica adds up, of a file that does not tell how many replicas there are."""
        self.accumulated = steps
        self.means(
            f"run.global_batch = {steps} · plan.micro_batch · replicas" if steps > 1 else "one micro-batch a step", key
        )

    def ignore(self, key: str, why: str) -> None:
        """Note why a setting changes nothing of ours; nothing where the file has no such setting, or it is told already."""
        if key in self.said and key not in self._understood:
            self._ignored.setdefault(key, why)

    def assume(self, sentence: str) -> None:
        """Note what the file does not say."""
        self.assumed.append(sentence)

    def refuse(self, field: str, says: str, way_out: str = "", rule: str = "") -> None:
        """Note what is wrong with a value, or with several that contradict one another, once."""
        found = Violation(field=field, says=says, way_out=way_out, rule=rule)
        if found not in self.violations:
            self.violations.append(found)

    def imported(
        self, version: str, why: Callable[[str], str], document: Mapping[str, Any] | None = None, *, beside: str = ""
    ) -> Imported:
        """The file as a scenario, `document` or what was put. What nobody read is ignored, for what `why` says of its key, if the trainer
        has it, and unknown if it has not. `beside`: why those are ignored that the trainer does not have and that look like none of its
        own, where a program puts its own there.

        Raises BadScenario with everything that was malformed."""
        if self.violations:
            count = len(self.violations)
            raise BadScenario(f"{self.trainer}: {count} problem{'s' if count > 1 else ''}", self.violations)
        unknown = self._left(why, beside)
        return Imported(
            format=self.trainer,
            version=version,
            document=self.document if document is None else document,
            understood=self._settings(self._understood),
            assumed=tuple(self.assumed),
            ignored=self._settings(self._ignored),
            accumulated=self.accumulated,
            micro_batch_left=self.micro_batch_left,
            unknown=self._settings(unknown),
        )

    def _left(self, why: Callable[[str], str], beside: str) -> dict[str, str]:
        """Ignores what nobody took, each with its reason; returns what the trainer does not have, with the nearest names."""
        unknown: dict[str, str] = {}
        names = [one for one in self.known if "*" not in one]
        for key in [key for key in self.said if key not in self._understood and key not in self._ignored]:
            if has(key, self.known):
                self.ignore(key, why(key))
                continue
            looked = len(unknown) < NEAREST
            likely = _likely(key, names) if looked else []
            if beside and not difflib.get_close_matches(key, likely, 1, ALIKE):
                self.ignore(key, beside)
            else:
                near = ", ".join(nearest(key, likely)) if looked else f"not looked for beyond the first {NEAREST}"
                unknown[key] = f"the nearest are {near}"
        return unknown

    def _left_out(self, key: str, value: Any) -> bool:
        return not self.has(key) or (value is None and key not in self.defaults)

    def _number(self, value: Any) -> float:
        """A value as a number; NaN where it is none."""
        if isinstance(value, int) and not isinstance(value, bool):
            return min(max(value, -2 * MOST), 2 * MOST)
        return float(value) if re.fullmatch(self.dialect.number, str(value)) else math.nan

    def _malformed(self, key: str, says: str, words: Collection[str] = ()) -> None:
        close = f"the nearest are {', '.join(nearest(str(self.said[key])[:MALFORMED], words))}" if words else ""
        if self.dialect.lenient and (words or isinstance(self.said[key], str)):
            self.ignore(key, f"{says}; {close}" if close else says)
        else:
            self.refuse(key, says, close)

    def _settings(self, means: Mapping[str, str]) -> tuple[Setting, ...]:
        return tuple(
            Setting(key=cut(key, LONGEST), value=cut(self.dialect.shown(self.said[key]), LONGEST), means=text)
            for key, text in means.items()
        )


def by_pattern(reasons: Mapping[str, str]) -> Callable[[str], str]:
    """Why settings change no figure, by patterns of their keys, the first that matches."""
    return lambda key: next((why for one, why in reasons.items() if fnmatch.fnmatchcase(key, one)), NO_FIGURE)


def _likely(key: str, names: Collection[str]) -> list[str]:
    """The names that share most runs of three letters with a key, most first."""
    own = _runs(key[:LONGEST])
    return heapq.nlargest(LIKELY, names, key=lambda name: (len(own & _runs(name)), name))


@functools.lru_cache(maxsize=4096)
def _runs(name: str) -> frozenset[str]:
    return frozenset(name[at : at + 3] for at in range(len(name) - 2))


def _brief(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else value_text(value)
