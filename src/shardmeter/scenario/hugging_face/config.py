"""A config.json under reading: every key asked for by name, with what was understood, assumed and wrong written down.

A key is found under its own name or one of its aliases. Where the file leaves it out, the library's class default stands in,
and the report says so; where there is none, it follows from other keys (`otherwise`), or its absence is a violation. A fault
never stops the reading: all of them are listed at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from shardmeter.core.errors import Violation, kind_of, shown
from shardmeter.scenario.hugging_face.defaults import ALIASES, Class, class_of
from shardmeter.scenario.hugging_face.report import Report

ABSENT: Any = object()
"""What a key is that neither the file nor the class has."""
REQUIRED = frozenset({
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "num_experts_per_tok",
})  # fmt: skip
"""Sizes that the library always writes at the top of a file: one that is not there is a damage, not a default."""
MOST = 1e9
"""The largest number that any size of a model has."""
MOST_LAYERS = 10_000
"""The most layers that a model has: they set the length of lists."""


def known(number: float) -> bool:
    """Whether a number was read: nan stands for one that is missing or wrong, which is noted."""
    return not math.isnan(number)


def told(value: Any) -> str:
    """A value of the wrong kind, and what kind it is."""
    if isinstance(value, str):
        return f"{shown(value)} is {kind_of(value)}"
    return str(value).lower() if isinstance(value, bool) else f"holds {kind_of(value)}"


class Config:
    """One mapping of a config.json, or one nested in it, with the class that the library reads it with."""

    def __init__(self, data: Mapping[str, Any], kind: str, report: Report, path: tuple[str, ...] = ()) -> None:
        self.data, self.kind, self.report, self.path = data, kind, report, path
        self.model_class: Class = class_of(kind)
        self.asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        """Whether the file itself says the key, under any of its names."""
        return any(name in self.data for name in self.names(key))

    def names(self, key: str) -> tuple[str, ...]:
        """The key and its aliases: what the class calls it comes first."""
        own = self.model_class.aliases.get(key)
        return tuple(dict.fromkeys((*((own,) if own else ()), key, *ALIASES.get(key, ()))))

    def raw(self, key: str, otherwise: Any = ABSENT) -> Any:
        """The value as written; else the class default (assumed, and said); else `otherwise`, of which nothing is said."""
        found = [name for name in self.names(key) if name in self.data]
        self.asked.update(found)
        if found:
            value = next((self.data[name] for name in found if self.data[name] is not None), None)
            self.report.understood[self.label(found[0])] = value
            return value
        default = next(
            (self.model_class.defaults[n] for n in self.names(key) if n in self.model_class.defaults), ABSENT
        )
        if default is ABSENT:
            return otherwise
        if default is not None:
            self.report.assume(self.label(key), default, "class default")
        return default

    def take(self, values: Mapping[str, Any], why: str) -> None:
        """Values in place of what the file leaves out, each said with its `why`."""
        for key, value in values.items():
            self.report.assume(self.label(key), value, why)
        self.model_class = Class(
            self.model_class.known,
            {**self.model_class.defaults, **values},
            self.model_class.aliases,
            self.model_class.inside,
        )

    def label(self, key: str) -> str:
        """A key with the mappings around it: `text_config.hidden_size`."""
        return ".".join((*self.path, key))

    def own(self, key: str) -> str:
        """The name that the file has for a key, or the key."""
        return next((name for name in self.names(key) if name in self.data), key)

    def refuse(self, key: str, says: str, way_out: str = "", rule: str = "") -> None:
        """Note one violation at a key."""
        made = Violation(field=self.label(key), says=says, way_out=way_out, rule=rule)
        if made not in self.report.violations:
            self.report.violations.append(made)

    def count(self, key: str, otherwise: float | None = None, why: str = "", least: float = 1.0) -> float:
        """A whole number of at least `least`. Left out or null: `otherwise`, said with its `why`; else a violation."""
        if key in REQUIRED and otherwise is None and not self.path and key not in self:
            self._lacks(key, ABSENT)
            return math.nan
        value = self.raw(key)
        if value is ABSENT or value is None:
            if otherwise is not None:
                if why:
                    self.report.assume(self.label(key), otherwise, why)
                return otherwise
            self._lacks(key, value)
            return math.nan
        return self.whole(key, value, least)

    def _lacks(self, key: str, value: Any) -> None:
        says = "is missing" if value is ABSENT else "is null"
        default = next(
            (self.model_class.defaults[n] for n in self.names(key) if self.model_class.defaults.get(n) is not None),
            None,
        )
        of_class = "" if default is None else f" (the class {self.kind} takes {shown(default)} for a model built anew)"
        self.refuse(key, f"{says}, and nothing else tells it{of_class}", f"write {key}: N")

    def whole(self, key: str, value: Any, least: float = 1.0, rule: str = "") -> float:
        """A value as a whole number; nan after noting that it is none."""
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # one number a layer, all the same
        says, most = "", MOST_LAYERS if key.endswith("layers") else MOST
        if isinstance(value, bool) or not isinstance(value, int | float):
            looks = isinstance(value, str) and value.strip().lstrip("-").isdigit()
            says = f"{told(value)}, where a whole number belongs"
            if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
                says = f"a list of unlike numbers ({', '.join(map(str, value[:4]))}…), where all layers have one here"
            way_out = f"write {value.strip()}, without quotes" if isinstance(value, str) and looks else ""
        elif isinstance(value, float) and not math.isfinite(value):
            says, way_out = f"{value} is no number", ""
        elif value != int(value):
            says, way_out = f"{value} is no whole number", ""
        elif value < least:
            says, way_out = f"{shown(value)} is too small", f"at least {least:g}"
        elif value > most:
            says, way_out = f"{shown(value)} is beyond reason", f"at most {most:g}"
        if says:
            self.refuse(key, says, way_out, rule)
            return math.nan
        return float(value)

    def number(self, key: str, otherwise: float) -> float:
        """A number between -`MOST` and `MOST`, whole or not; null is `otherwise`. nan after noting that it is none."""
        value = self.raw(key, otherwise)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, f"{told(value)}, where a number belongs")
        elif not abs(value) <= MOST:
            beyond = isinstance(value, int) or math.isfinite(value)
            self.refuse(key, f"{shown(value)} is {'beyond reason' if beyond else 'no number'}", f"at most {MOST:g}")
        else:
            return float(value)
        return math.nan

    def several(self, keys: Iterable[str], otherwise: float | None = None, least: float = 1.0) -> float:
        """The count of the first of several keys that the file has, or else that the class has."""
        tried = tuple(keys)
        self.asked.update(tried)
        known = [key for key in tried if key in self and any(self.data.get(n) is not None for n in self.names(key))]
        known += [key for key in tried if any(self.model_class.defaults.get(n) is not None for n in self.names(key))]
        return self.count((*known, tried[0])[0], otherwise, least=least)

    def flag(self, key: str, otherwise: bool = False) -> bool:
        """True or false; null is false."""
        value = self.raw(key, otherwise)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        self.refuse(key, f"{told(value)}, where true or false belongs")
        return False

    def word(self, key: str, otherwise: str = "") -> str:
        """A text; null is `otherwise`."""
        value = self.raw(key, otherwise)
        if value is None:
            return otherwise
        if isinstance(value, str):
            return value
        self.refuse(key, f"{told(value)}, where a text belongs")
        return otherwise

    def items(self, key: str) -> list[Any] | None:
        """A list; None where it is left out or null."""
        value = self.raw(key, None)
        if value is None or isinstance(value, list):
            return value
        self.refuse(key, f"{told(value)}, where a list belongs")
        return None

    def inside(self, *keys: str, kind: str = "") -> Config:
        """A nested mapping under the first of `keys` that is there, read with the class that it names, that its parent's class
        gives it, or `kind`. Empty where it is left out: the class defaults are then all assumed."""
        key = next((name for name in keys if self.data.get(name) is not None), keys[0])
        value = self.data.get(key)
        self.asked.add(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, f"{told(value)}, where a mapping belongs")
        data = value if isinstance(value, Mapping) else {}
        older = self.data.get(f"{key}_dict")  # CLIP writes a part twice: the older name wins
        if isinstance(older, Mapping):
            data = {**data, **older}
        self.asked.add(f"{key}_dict")
        named = data.get("model_type")
        usual = self.model_class.inside.get(key, "") or kind
        own = (
            named if isinstance(named, str) and named not in ("", self.kind) else usual
        )  # Qwen3-VL's tower says qwen3_vl
        made = Config(data, own, self.report, (*self.path, key))
        made.asked.add("model_type")
        self.report.parts.append(made)
        return made
