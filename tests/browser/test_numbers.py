"""The page writes numbers as the command line does."""

from __future__ import annotations

import itertools

import pytest

from shardmeter.core.quantity import show, unit_for
from shardmeter.render import cells

pytestmark = pytest.mark.browser
UNITS = ("s", "B", "B/s", "bit/s", "FLOP", "FLOP/s", "W", "USD", "USD/s", "%", "±%", "", "tokens/s", "steps")
VALUES = [
    sign * digit * 10.0**power
    for power, digit, sign in itertools.product(range(-8, 13), (1.0, 2.345678, 9.996), (1, -1))
]
TELL = "async (pairs) => { const {text} = await import('/static/format.js'); return pairs.map(([value, unit]) => text(value, unit)); }"
AXES = "async (pairs) => { const {unitFor} = await import('/static/format.js'); return pairs.map(([value, unit]) => unitFor(value, unit)); }"


def test_values_read_as_in_the_terminal(opened):
    pairs = [(value, unit) for value in (0.0, *VALUES) for unit in UNITS if value >= 0 or unit in ("USD", "±%", "s")]
    got = opened().evaluate(TELL, pairs)
    wanted = [cells.text(value, unit) for value, unit in pairs]
    wrong = [(*pair, page, here) for pair, page, here in zip(pairs, got, wanted, strict=True) if page != here]
    assert wrong == []


def test_counts_read_as_in_the_terminal(opened):
    pairs = [(value, "tokens") for value in VALUES if value >= 1]
    got = opened().evaluate(TELL, pairs)
    assert got == [show(value, "tokens") for value, _ in pairs]


def test_axes_have_the_units_of_pictures(opened):
    pairs = [(value, unit) for value in VALUES if value > 0 for unit in UNITS if unit not in ("", "±%")]
    got = opened().evaluate(AXES, pairs)
    wanted = [list(unit_for(value, unit)) for value, unit in pairs]
    wrong = [
        (pair, page, here)
        for pair, page, here in zip(pairs, got, wanted, strict=True)
        if page[1] != here[1] or page[0] != pytest.approx(here[0])
    ]
    assert wrong == []
