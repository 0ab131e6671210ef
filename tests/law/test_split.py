"""The batch over unlike cells: no split is better, none is missed, and a batch that cannot be split says which can."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.engine.split import Share, by_speed, equally, nearest


def drawn(seed: int, units: Sequence[int]) -> list[Share]:
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(draw.integers(2, 4)):
        unit = float(draw.choice(units))
        least = unit * draw.integers(1, 3)
        made.append(Share(unit=unit, least=least, start=draw.uniform(0.0, 2.0), each=draw.uniform(0.05, 1.0)))
    return made


def every(batch: float, shares: Sequence[Share]) -> float | None:
    """The shortest longest step of all splits."""
    rows = [np.arange(share.least, batch + 1.0, share.unit) for share in shares]
    longest = [max(share.lasts(part) for share, part in zip(shares, parts, strict=True))
               for parts in itertools.product(*rows) if sum(parts) == batch]  # fmt: skip
    return min(longest, default=None)


@pytest.mark.parametrize("units", [[1], [4], [1, 2, 4], [2, 3], [3, 4, 6, 8]], ids=str)
def test_no_split_is_better(units: list[int]) -> None:
    for seed in range(30):
        shares = drawn(seed, units)
        batch = float(np.random.default_rng(seed).integers(6, 33)) * (units[0] if len(units) == 1 else 1)
        best, found = every(batch, shares), by_speed(batch, shares)
        assert (found is None) == (best is None)
        if found is not None:
            assert sum(found) == batch
            longest = max(share.lasts(part) for share, part in zip(shares, found, strict=True))
            assert longest == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("rule", [by_speed, equally])
def test_the_nearest_batches_can_be_split_and_none_between_them(rule: Any) -> None:
    for seed in range(20):
        shares = drawn(seed, [2, 3, 4, 8])
        for batch in (1.0, 17.0, 29.0, 31.0):
            word = "equal" if rule is equally else "speed"
            near = nearest(batch, [(share.unit, share.least) for share in shares], word)
            assert near
            assert all(rule(one, shares) is not None for one in near)
            inside = np.arange(min((one for one in near if one <= batch), default=batch) + 1.0, near[-1])
            assert all(rule(float(one), shares) is None for one in inside)


@pytest.mark.parametrize(("plan", "batch", "near"), [
    ({"sharding": "fsdp"}, 20, "16 and 24"),
    ({"sharding": "fsdp", "sync": {"split": "equal"}}, 24, "16 and 32"),
    ({"sharding": "fsdp", "placement": {"dp_shard": ["a", "b"]}}, 24, "16 and 32"),
    ({"sharding": "zero1", "tp": 4, "dp_shard": 2, "placement": {"pp": ["a", "b"]}}, 63, "62 and 64"),
    ({"sharding": "zero1", "tp": 4, "dp_shard": 2, "placement": {"pp": ["a", "b"]}, "schedule": "interleaved",
      "virtual_stages": 2}, 6, "4 and 8"),
], ids=str)  # fmt: skip
def test_a_batch_that_cannot_be_shared_is_refused_with_those_that_can(
    plan: dict[str, Any], batch: int, near: str
) -> None:
    made: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "fleet": {
            "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("a", "b")],
            "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "20 ms"}},
        },
        "plan": plan,
        "run": {"seq_len": 8192, "global_batch": batch},
    }
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict(made)
    assert [(one.field, one.way_out) for one in caught.value.violations] == [("run.global_batch", near)]
    for one in near.split(" and "):
        made["run"]["global_batch"] = int(one)
        assert shardmeter.predict(made).step_time > 0.0
