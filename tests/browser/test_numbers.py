"""The page writes numbers as the command line does."""

from __future__ import annotations

import itertools

import pytest

from shardmeter.core.quantity import show, unit_for
from shardmeter.render import cells

pytestmark = pytest.mark.browser
UNITS = (
    "s",
    "B",
    "B/s",
    "bit/s",
    "FLOP",
    "FLOP/s",
    "W",
    "USD",
    "USD/s",
    "%",
    "±%",
    "",
    "tokens/s",
    "steps",
    "tokens",
    "GiB",
    "kWh",
)
HALVES = [part / 2.0**power for power in (1, 2, 3, 5, 8) for part in (1, 5, 9, 41, 201, 2003, 8191, 20_005)]
"""Numbers that lie exactly between two shorter ones."""
VALUES = [
    sign * digit * 10.0**power
    for power, digit, sign in itertools.product(range(-8, 13), (1.0, 1.005, 2.345678, 2.675, 9.996), (1, -1))
] + HALVES
TELL = "async (pairs) => { const {text} = await import('/static/format.js'); return pairs.map(([value, unit]) => text(value, unit)); }"
SPANS = "async (pairs) => { const {between} = await import('/static/format.js'); return pairs.map(([ends, unit]) => between(ends, unit)); }"
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


def test_intervals_read_as_in_the_terminal(opened):
    pairs = [
        ((value, more * value), unit) for value in VALUES if value > 1e-5 for more in (1.284, 99.7) for unit in UNITS
    ]
    got = opened().evaluate(SPANS, pairs)
    wanted = [cells.between(*ends, unit) for ends, unit in pairs]
    wrong = [(*pair, page, here) for pair, page, here in zip(pairs, got, wanted, strict=True) if page != here]
    assert wrong == []


def test_the_figures_have_the_intervals_of_the_breakdown(opened):
    page = opened("model=llama-3.1-8b&gpus=64xH100-SXM5-80GB&plan=fsdp,recompute=selective&tokens=1T&price=$2.10/gpu/h")
    below = page.inner_text("#panel-predict")
    for key in ("wall_clock_s", "cost_usd"):
        assert f"90 %: {page.inner_text(f'[data-figure-of={key}] .range')}" in below
