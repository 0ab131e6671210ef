"""Claims as people write them: `mfu=104%`, `tokens_per_s=529882`, `gpu_hours=1.5K`, `memory=24.4 GB`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from shardmeter.core.errors import (
    BadQuantity,
    BadScenario,
    ShardMeterError,
    UnknownName,
    Violation,
    cut,
    kind_of,
    shown,
)
from shardmeter.core.quantity import price, quantity
from shardmeter.core.record import record
from shardmeter.specs.plan import SHARDINGS
from shardmeter.strategies.optimizer import OPTIMIZERS
from shardmeter.strategies.precision import names
from shardmeter.study.audit.quantities import Quantity, quantity_of

MOST_CLAIMS = 64
DAY = 86400.0
HOUR = 3600.0
_RATE = re.compile(
    r"\s*(?:tokens?|toks?|sequences|samples|images)?\s*(?:/|\bper\b)\s*s(?:ec)?(?:\s*/\s*(?:gpu|chip|node|core))?\s*$",
    re.IGNORECASE,
)
_FLOPS = re.compile(r"\s*([0-9.eE+-]+)\s*([kMGTPEZY]?)(?:FLOPs?|FLOP/token)?\s*")
_PREFIX = {prefix: 1e3**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E", "Z", "Y"))}
_DIGITS = re.compile(r"(\d[\d_,]*)(?:\.(\d*))?(?:[eE][+-]?\d+)?")
ENERGIES = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9, "Wh": 3.6e3, "kWh": 3.6e6, "MWh": 3.6e9, "GWh": 3.6e12}
MASSES = {"g": 1e-3, "kg": 1.0, "t": 1e3, "tCO2e": 1e3, "tCO2eq": 1e3, "tonnes": 1e3, "kt": 1e6}
_ENERGY = re.compile(rf"(.*?)\s*({'|'.join(ENERGIES)})\s*")
_MASS = re.compile(rf"(.*?)\s*({'|'.join(MASSES)})\s*")
MOST_ROUNDED = 0.03
"""Most that is left open by a last digit: `7B` is no licence for 7 %."""
LARGEST_TFLOPS = 1e8
"""TFLOP/s of a bare number; a larger one is of FLOP/s."""
NONE = "none"
"""An optimizer that keeps nothing: gradients are applied as they are."""
GATHERS = ("all_gather", "reduce_scatter", "all_to_all")
WORDS: dict[str, tuple[str, ...]] = {
    "collective": ("all_reduce", *GATHERS),
    "optimizer": (*OPTIMIZERS, NONE),
    "precision": names(),
    "sharding": SHARDINGS,
}
"""Words that may be claimed; accelerators are those of the catalog."""


@record
class Claim:
    """One statement: of a claim, of the scenario, or taken for granted."""

    id: int
    quantity: str
    value: float
    word: str = ""
    text: str = ""
    """As it was written."""
    rounding: float = 0.0
    """Relative size of what its last digit leaves open."""
    origin: str = "claim"
    """claim, scenario, model, accelerator, assumed."""

    @property
    def claimed(self) -> bool:
        """Whether it is what is audited, not what it is audited against."""
        return self.origin == "claim"


def _share(text: object) -> float:
    """A utilisation; above 100 % too, which is what is looked for."""
    if isinstance(text, str) and text.strip().endswith("%"):
        value = quantity(text.strip()[:-1], "count") / 100.0
    else:
        value = quantity(text, "count")
        if value > 1.0:
            raise BadQuantity(f"{shown(text)} could be {100.0 * value:g} % or {value:g} %: write the percent sign")
    if value > 1e4:
        raise BadQuantity(f"{shown(text)} is no utilisation")
    return value


def _rate(text: object) -> float:
    return quantity(_RATE.sub("", text) if isinstance(text, str) else text, "count")


def _flops_rate(text: object) -> float:
    """FLOP/s; a bare number is of TFLOP/s as its name says, or of FLOP/s where it is as large as that."""
    try:
        bare = quantity(text, "count")
    except BadQuantity:
        return quantity(text, "flops_rate")
    return quantity(f"{bare!r} {'TFLOP/s' if bare < LARGEST_TFLOPS else 'FLOP/s'}", "flops_rate")


def _flops(text: object) -> float:
    match = _FLOPS.fullmatch(text if isinstance(text, str) else repr(text))
    try:
        value = float(match[1]) * _PREFIX[match[2]] if match else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 < value < 1e36:
        raise BadQuantity(f"{shown(text)} is no number of FLOPs; write it like 1.584e11 or 158 GFLOP")
    return value


def _gpu_hours(text: object) -> float:
    plain = (
        re.sub(r"\s*(?:(?:gpu|chip)[- ]?)?(?:h|hours)\s*$", "", text, flags=re.IGNORECASE)
        if isinstance(text, str)
        else text
    )
    return quantity(plain, "count") * HOUR


def _energy(text: object) -> float:
    match = _ENERGY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise BadQuantity(f"{shown(text)} is no energy; write it like 433 MWh or 52 kWh")
    return quantity(match[1], "count") * ENERGIES[match[2]]


def _mass(text: object) -> float:
    match = _MASS.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise BadQuantity(f"{shown(text)} is no mass of carbon; write it like 539 t or 12 kg")
    return quantity(match[1], "count") * MASSES[match[2]]


def _date(text: object) -> float:
    try:
        return date.fromisoformat(str(text).strip()).toordinal() * DAY
    except ValueError:
        raise BadQuantity(f"{shown(text)} is no date; write it like 2026-03-31") from None


PLAIN = ("time", "money", "size", "bandwidth", "ratio", "egress", "power", "carbon")
"""Dimensions that `core.quantity` reads."""


def _plain(dimension: str) -> Callable[[object], float]:
    return lambda text: quantity(text, dimension)


READERS: dict[str, Callable[[object], float]] = {
    "share": _share, "rate": _rate, "flops_rate": _flops_rate, "flops": _flops, "gpu_hours": _gpu_hours, "date": _date,
    "energy": _energy, "mass": _mass, **{name: _plain(name) for name in PLAIN},
    "count": lambda text: quantity(text, "count", ("tokens", "steps", "sequences")),
}  # fmt: skip


def read(claims: object, accelerator: Callable[[str], Any]) -> tuple[Claim, ...]:
    """Claims of a mapping (name: value, or several) or of `name=value` texts. `accelerator` finds a catalog row.

    Raises BadScenario with every claim that cannot be read."""
    found: list[Claim] = []
    wrong: list[Violation] = []
    pairs = list(_pairs(claims, wrong))
    if len(pairs) > MOST_CLAIMS:
        many = Violation(field="claims", says=f"{len(pairs):,} claims", way_out=f"at most {MOST_CLAIMS}")
        raise BadScenario("audit: 1 problem", [many])
    for name, value in pairs:
        try:
            of = quantity_of(name)
            key, number, word = _read(of, value, accelerator)
        except ShardMeterError as error:
            wrong.append(Violation(field=f"claim {cut(name, 60)}", says=error.message))
            continue
        found.append(
            Claim(id=len(found), quantity=key, value=number, word=word, text=cut(str(value), 60), rounding=rounding(of, value))
        )  # fmt: skip
    if wrong:
        raise BadScenario(f"audit: {len(wrong)} problem{'s' if len(wrong) > 1 else ''}", wrong)
    return tuple(found)


def _pairs(claims: object, wrong: list[Violation]) -> Iterable[tuple[str, Any]]:
    if isinstance(claims, Mapping):
        for name, values in claims.items():
            for value in values if isinstance(values, list | tuple) else (values,):
                yield str(name), value
        return
    if isinstance(claims, str) or not isinstance(claims, Iterable):
        raise BadScenario(f"claims: {kind_of(claims)}, where a mapping such as {{'mfu': '45 %'}} belongs")
    for text in claims:
        name, equals, value = str(text).partition("=")
        if equals and name.strip() and value.strip():
            yield name, value.strip()
        else:
            way_out = "write name=value, as in mfu=45%"
            wrong.append(Violation(field="claim", says=f"{shown(text)} is no claim", way_out=way_out))


def _read(of: Quantity, value: object, accelerator: Callable[[str], Any]) -> tuple[str, float, str]:
    """(quantity, number, word): a batch said in tokens, and a price of nodes, belong to quantities of their own."""
    if of.dimension == "word":
        return of.key, 0.0, _word(of.key, value, accelerator)
    if of.dimension in ("price", "price_per_node"):
        rent, basis = price(value)
        return ("price" if basis == "gpu" else "price_per_node"), rent, ""
    if of.key == "global_batch" and isinstance(value, str) and value.strip().endswith("tokens"):
        return "tokens_per_step", quantity(value, "count", ("tokens",)), ""
    number = READERS[of.dimension](value)
    if number <= 0.0:
        raise BadQuantity(f"{shown(value)} is nothing: a claim is above zero")
    return of.key, number, ""


def _word(key: str, value: object, accelerator: Callable[[str], Any]) -> str:
    if key == "accelerator":
        return str(accelerator(str(value)).name)
    words = WORDS[key]
    if value not in words:
        raise UnknownName(key, str(value), words)
    return str(value)


def rounding(of: Quantity, value: object) -> float:
    """Half a unit of the last digit that was written, as a share; counts without a suffix are exact."""
    text = str(value).strip()
    match = _DIGITS.search(text)
    if match is None or of.dimension in ("word", "date"):
        return 0.0
    tail = text[match.end() :].strip()
    bare = not tail and match[2] is None and match.end() - match.start() == len(match[1])
    if of.dimension in ("count", "rate") and bare and (of.whole or len(match[1]) > 4):
        return 0.0
    digits = (match[1] + (match[2] or "")).replace("_", "").replace(",", "")
    if not int(digits or "0"):
        return 0.0
    return min(0.5 / int(digits), MOST_ROUNDED)
