"""The settings of one file on their way to what they are to us: each is put into one list, and all that is malformed is told together."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from shardmeter import data
from shardmeter.core.errors import BadScenario, Violation, cut, kind_of, nearest, shown
from shardmeter.interop.configs.record import Imported, Setting
from shardmeter.scenario.yaml_reader import read_yaml

AUTO = "auto"
"""A value that the program fills in."""
LARGEST = 1_000_000
"""Characters of the largest file of settings that is read."""
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def topped(text: str, name: str, own: Collection[str]) -> Mapping[str, Any]:
    """The mapping of a text that has one of some names anywhere; empty where it has none, or is no mapping."""
    if not any(one in text for one in own):
        return {}
    try:
        return mapping(text, name)
    except BadScenario:
        return {}


def mapping(text: str, what: str) -> dict[str, Any]:
    """The mapping of a YAML or JSON text (lines of `//` comments, which some readers of JSON take, left out). Raises BadScenario."""
    if len(text) > LARGEST:
        raise BadScenario(f"{what}: a text of {len(text):,} characters; at most {LARGEST:,}")
    found, _ = read_yaml(_COMMENT.sub("", text), what)
    if not isinstance(found, dict):
        raise BadScenario(f"{what}: {kind_of(found)} at the top, where a mapping of settings belongs")
    return found


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The leaves of nested mappings by their dotted paths; a list, and an empty mapping, is a leaf."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{above}{key}"
        found |= flat(value, f"{path}.") if isinstance(value, Mapping) and value else {path: value}
    return found


@cache
def keys(name: str) -> tuple[str, ...]:
    """The settings that a trainer has, from `data/keys`: dotted paths, `a.*` where anything may stand below `a`."""
    return tuple(line for line in data.read_text(f"keys/{name}.txt").splitlines() if line and not line.startswith("#"))


class Sorting:
    """Takes settings out of a file one by one. What nobody took is ignored if the trainer has it, and unknown if it has not."""

    def __init__(self, trainer: str, settings: Mapping[str, Any], known: Collection[str]) -> None:
        self.trainer = trainer
        self.left = dict(settings)
        self.known = known
        self.understood: list[Setting] = []
        self.ignored: list[Setting] = []
        self.assumed: list[str] = []
        self.violations: list[Violation] = []
        self.automatic: list[str] = []
        self.accumulated = 1
        self.micro_batch_left = False

    def means(self, key: str, what: str) -> None:
        """Note what a setting became; nothing where the file has no such setting."""
        if key in self.left:
            self.understood.append(Setting(key=key, value=written(self.left.pop(key)), means=what))

    def ignore(self, key: str, why: str) -> None:
        """Note why a setting changes nothing; nothing where the file has no such setting."""
        if key in self.left:
            self.ignored.append(Setting(key=key, value=written(self.left.pop(key)), means=why))

    def adds_up(self, key: str, steps: int) -> None:
        """Note how many micro-batches a replica adds up, of a file that does not tell how many replicas there are."""
        self.accumulated = steps
        self.means(
            key, f"run.global_batch = {steps} · plan.micro_batch · replicas" if steps > 1 else "one micro-batch a step"
        )

    def assume(self, sentence: str) -> None:
        """Note what the file does not say."""
        self.assumed.append(sentence)

    def value(self, key: str) -> Any:
        """The value of a setting; None where it is left out, or left to the program."""
        given = self.left.get(key)
        if isinstance(given, str) and given.lower() == AUTO:
            self.automatic.append(key)
            self.ignore(key, "left to the program that reads the file: its own arguments say it")
            return None
        return given

    def flag(self, key: str, default: bool | None = False) -> bool | None:
        """True or false, in the spellings of YAML 1.1 too; `default` where it is left out."""
        given = self.value(key)
        if given is None or isinstance(given, bool):
            return default if given is None else given
        word = str(given).lower()
        if word in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return word in ("true", "yes", "on", "1")
        self._refuse(key, given, "true or false")
        return default

    def whole(self, key: str, least: int = 1, most: float = math.inf) -> int | None:
        """A whole number between bounds (`5e8` is one); None where it is left out."""
        given = self.value(key)
        if given is None:
            return None
        text = str(given)
        number = float(text) if re.fullmatch(r"-?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,2})?", text) else math.nan
        if isinstance(given, bool) or not least <= number <= min(most, 1e15) or number != round(number):
            bound = f"{least} or more" if most == math.inf else f"{least} to {most:g}"
            self._refuse(key, given, f"a whole number of {bound}")
            return None
        return int(number)

    def word(self, key: str, words: Collection[str], default: str = "") -> str:
        """One of some words, in lower case; `default` where it is left out."""
        given = self.value(key)
        if given is None:
            return default
        word = str(given).lower()
        if isinstance(given, Mapping | list) or word not in words:
            self._refuse(key, given, f"one of {', '.join(words)}")
            return default
        return word

    def _refuse(self, key: str, given: Any, wanted: str) -> None:
        self.violations.append(Violation(field=key, says=f"{shown(given, 40)}, where {wanted} belongs"))
        self.left.pop(key, None)

    def refuse(self, field: str, says: str, way_out: str = "", rule: str = "") -> None:
        """Note that settings contradict one another."""
        self.violations.append(Violation(field=field, says=says, way_out=way_out, rule=rule))

    def imported(
        self, version: str, document: Mapping[str, Any], idle: Mapping[str, str], *, beside: str = ""
    ) -> Imported:
        """The file as a scenario. `idle` says by patterns of keys why settings change nothing, the first that matches; `beside` why those
        are ignored that the trainer does not have and that look like none of its own, where a program puts its own there.

        Raises BadScenario with everything that was malformed."""
        if self.violations:
            count = len(self.violations)
            raise BadScenario(f"{self.trainer}: {count} problem{'s' if count > 1 else ''}", self.violations)
        unknown: list[Setting] = []
        names = [one for one in self.known if "*" not in one]
        for key, value in self.left.items():
            known, looked = has(key, self.known), len(unknown) < MOST
            if not known and (not beside or (looked and difflib.get_close_matches(key, names, 1, ALIKE))):
                near = ", ".join(nearest(key, names)) if looked else f"not looked for beyond the first {MOST}"
                unknown.append(Setting(key=key, value=written(value), means=f"the nearest are {near}"))
                continue
            why = next((why for pattern, why in idle.items() if fnmatch.fnmatchcase(key, pattern)), NO_FIGURE)
            self.ignored.append(Setting(key=key, value=written(value), means=why if known else beside))
        return Imported(
            format=self.trainer,
            version=version,
            document=document,
            understood=tuple(self.understood),
            assumed=tuple(self.assumed),
            ignored=tuple(self.ignored),
            unknown=tuple(unknown),
            accumulated=self.accumulated,
            micro_batch_left=self.micro_batch_left,
        )


NO_FIGURE = "no figure depends on it"
MOST = 20
"""Unknown names that the nearest known ones are looked for."""
ALIKE = 0.85
"""Likeness of two names from which on one is taken for the other, mistyped."""


def has(key: str, known: Collection[str]) -> bool:
    """Whether a key is a known path, lies below a known `a.*`, or is a section that known paths lie in."""
    parts = key.split(".")
    free = any(".".join([*parts[:depth], "*"]) in known for depth in range(1, len(parts)))
    return key in known or free or any(one.startswith(f"{key}.") for one in known)


def written(value: Any) -> str:
    """A value as a line of the report shows it: as JSON, cut; a float as short as it can be."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 80)
