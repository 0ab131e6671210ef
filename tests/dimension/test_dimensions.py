"""Every registered formula, called with quantities of its annotated units, gives its annotated unit; and says its source."""

import csv
import importlib
import math
import pkgutil
import random
from typing import Any

import pint
import pytest

import shardmeter.physics
from shardmeter import data
from shardmeter.core.formula import REGISTRY, Formula
from shardmeter.core.units import Bytes, BytesPerS, Seconds

for _module in pkgutil.walk_packages(shardmeter.physics.__path__, "shardmeter.physics."):
    importlib.import_module(_module.name)

FORMULAS = sorted(
    (formula for formula in REGISTRY.values() if formula.body.__module__.startswith("shardmeter.")),
    key=lambda formula: formula.name,
)
MAGNITUDES = {"s": (1e-6, 1e3), "1/s": (1e-6, 1e3), "B": (1e3, 1e12), "1": (0.01, 100.0)}
"""Range of random magnitudes by unit; others from 1 to 10^15."""
EXPONENTS = dict.fromkeys(("alpha", "beta", "gamma", "exponent"), (0.2, 1.0))
"""Those of power laws, by the name of the parameter."""


def registry() -> pint.UnitRegistry[Any]:
    """A registry with nothing in it but the units of `core.units`, each its own dimension."""
    units: pint.UnitRegistry[Any] = pint.UnitRegistry(None, cache_folder=None)
    bases = {"s": "time", "B": "information", "FLOP": "arithmetic", "W": "power", "USD": "currency", "kg": "mass"}
    for line in (f"{unit} = [{dimension}]" for unit, dimension in bases.items()):
        units.define(line)
    return units


UNITS = registry()


def drawn(formula: Formula, rng: random.Random) -> dict[str, object]:
    """Random arguments of a formula, with its units."""
    arguments: dict[str, object] = {}
    for name, unit in formula.units.items():
        if name == "return":
            continue
        assert unit, f"{formula.name}: parameter {name} has no unit in its annotation"
        low, high = EXPONENTS.get(name) or MAGNITUDES.get(unit, (1.0, 1e15))
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
        arguments[name] = UNITS.Quantity(value, "" if unit == "1" else unit)
    return arguments


def check(formula: Formula) -> None:
    """Call the body a few times and compare the dimension of what comes out."""
    wanted = formula.units.get("return")
    assert wanted, f"{formula.name}: the result has no unit in its annotation"
    expected = UNITS.Quantity(1.0, "" if wanted == "1" else wanted)
    rng = random.Random(formula.name)
    for _ in range(8):
        result = formula.body(**drawn(formula, rng))
        got = result if isinstance(result, UNITS.Quantity) else UNITS.Quantity(result, "")
        assert got.dimensionality == expected.dimensionality, f"{formula.name} gives {got.units}, not {wanted}"
        assert math.isfinite(float(got.magnitude))


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_result_has_its_unit(formula):
    check(formula)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_it_says_what_it_leaves_out(formula):
    assert "Leaves out" in formula.doc


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_its_citation_exists(formula):
    with data.open_text("citations.csv") as lines:
        keys = {row["key"] for row in csv.DictReader(lines)}
    assert formula.cite in keys


def test_a_planted_error_is_caught():
    def wrong(size: Bytes, bandwidth: BytesPerS) -> Seconds:
        return size * bandwidth

    with pytest.raises(AssertionError, match="not s"):
        check(Formula("wrong", wrong, "nobody"))


def test_a_sum_of_unlike_things_is_caught():
    def wrong(size: Bytes, time: Seconds) -> Seconds:
        return time + size

    with pytest.raises(pint.DimensionalityError):
        check(Formula("wrong", wrong, "nobody"))


def test_there_are_formulas():
    assert len(FORMULAS) > 10
