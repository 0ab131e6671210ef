"""What `Plan.trainable` names: ranges are a union, layers before the first of them hand no gradient back."""

from __future__ import annotations

import pytest

from shardmeter.families.operations import Block
from shardmeter.strategies.adapters import input_share, trained, weight_share

LAYER = Block(name="layer", count=32, matrices=1.0, vectors=1.0)


@pytest.mark.parametrize(
    ("text", "spans", "weights", "inputs"),
    [
        ("layer:0-7+layer:24-31", ((0, 7), (24, 31)), 16 / 32, 1.0),
        ("layer:24-31+layer:8-15", ((8, 15), (24, 31)), 16 / 32, 24 / 32),
        ("layer:4-9+layer:8-11", ((4, 11),), 8 / 32, 28 / 32),
        ("layer:4-9+layer:10-11+head", ((4, 11),), 8 / 32, 28 / 32),
        ("layer:30+layer:2+layer:30", ((2, 2), (30, 30)), 2 / 32, 30 / 32),
        ("layer:0-3+layer", (), 1.0, 1.0),
        ("head", (), 0.0, 0.0),
    ],
)
def test_ranges_are_a_union(text: str, spans: tuple[tuple[int, int], ...], weights: float, inputs: float) -> None:
    assert trained(text).spans == spans
    assert weight_share(text, LAYER) == weights
    assert input_share(text, LAYER) == inputs
