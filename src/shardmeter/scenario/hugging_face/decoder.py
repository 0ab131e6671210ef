"""Decoders: the sizes that every decoder's config.json has, and what its model type says beside them.

A row of the tables (`decoders`, `mixtures`, `hybrids`, `latents`) is what a model type does that its file does not say, or says
under a name of its own: fields of `specs.Model`, each a constant or a function of (config, fields so far); `also` are functions
that give several fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardmeter.scenario.bounds import heads
from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.layers import Fact, Fields

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context", "tied")
"""Fields that are read for every decoder, in this order: a later one may look at an earlier one."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model type of a decoder: what is constant or named otherwise, and functions that give several fields."""

    fields: dict[str, Any] = field(default_factory=dict)
    also: tuple[Fact, ...] = ()

    def __call__(self, c: Config) -> Fields:
        """The fields of `specs.Model`; faults are noted in the config's report."""
        found: Fields = {"family": "decoder"}
        own = dict(self.fields)
        for name in SIZES:
            given = own.pop(name, None)
            found[name] = USUAL[name](c, found) if given is None else value(given, c, found)
        for name, given in own.items():
            found[name] = value(given, c, found)
        for function in self.also:
            found |= function(c, found)
        return found


def value(given: Any, c: Config, found: Fields) -> Any:
    """A constant as it is, or what a function makes of the config."""
    return given(c, found) if callable(given) else given


def count(key: str, otherwise: float | None = None, least: float = 1.0) -> Fact:
    """A whole number under a key."""
    return lambda c, _: c.count(key, otherwise, least=least)


def flag(key: str, otherwise: bool = False) -> Fact:
    """True or false under a key."""
    return lambda c, _: c.flag(key, otherwise)


def unless(key: str, otherwise: bool = False) -> Fact:
    """The opposite of a flag."""
    return lambda c, _: not c.flag(key, otherwise)


def times(factor: float, of: str = "hidden", key: str = "intermediate_size") -> Fact:
    """A count under a key; left out or null, a multiple of another field."""
    return lambda c, found: c.count(key, factor * found[of], f"{factor:g} × {of}")


def either(test: Callable[[Config], bool], yes: Any, no: Any) -> Fact:
    """One of two values, by a test of the config."""
    return lambda c, _: yes if test(c) else no


def without(key: str, allowed: tuple[Any, ...], why: str) -> Fact:
    """No field, but a refusal where a key has a value that changes sizes in a way that no field of a model says."""

    def check(c: Config, _: Fields) -> Fields:
        given = c.raw(key, allowed[0])
        if not any(given is one or (given == one and type(given) is type(one)) for one in allowed):
            c.refuse(key, f"{given!r} is not modelled: {why}", f"only {', '.join(map(repr, allowed))}")
        return {}

    return check


def _key_value_heads(c: Config, found: Fields) -> float:
    shared = c.count("num_key_value_heads", found["heads"], "= num_attention_heads")
    says, way_out = heads({"heads": found["heads"], "kv_heads": shared}) if known(found["heads"] + shared) else ("", "")
    if says:
        own = c.own("num_key_value_heads")
        c.refuse(own, says.replace("kv_heads", own), way_out.replace("kv_heads", own))
    return shared


def _head_dim(c: Config, found: Fields) -> float:
    each = found["hidden"] / found["heads"]
    return c.count("head_dim", whole_heads(c, found, each), "= hidden_size/num_attention_heads")


def whole_heads(c: Config, found: Fields, each: float) -> float | None:
    """hidden/heads where nothing says the width of a head; None after noting that it is no whole number."""
    said = c.data.get("head_dim", c.model_class.defaults.get("head_dim"))
    if math.isnan(each) or said is not None or each == int(each):
        return each if known(each) and each == int(each) else 1.0
    c.refuse(
        "num_attention_heads", f"{found['heads']:g} heads do not divide hidden_size = {found['hidden']:g}",
        f"say head_dim, or {_nearest_divisor(found['hidden'], found['heads'])} heads", "head_dim = hidden_size/heads",
    )  # fmt: skip
    return 1.0


def _nearest_divisor(hidden: float, heads: float) -> int:
    whole = int(hidden)
    legal = [d for d in range(1, min(whole, 4096) + 1) if whole % d == 0]
    return min(legal, key=lambda d: abs(d - heads))


def _context(c: Config, _: Fields) -> float:
    return c.count("max_position_embeddings", 0.0, "not known", least=0.0)


USUAL: dict[str, Fact] = {
    "layers": lambda c, _: _layers(c),
    "hidden": count("hidden_size"),
    "heads": count("num_attention_heads"),
    "kv_heads": _key_value_heads,
    "head_dim": _head_dim,
    "ffn": count("intermediate_size"),
    "vocab": count("vocab_size"),
    "context": _context,
    "tied": flag("tie_word_embeddings", otherwise=True),
}
"""How a field is read where a model type does not say otherwise."""


def _layers(c: Config) -> int | float:
    """Layers as an int; nan where that is a violation."""
    layers = c.count("num_hidden_layers")
    return int(layers) if known(layers) else layers
