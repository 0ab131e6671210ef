"""Many islands: what is saved of the work moves no number, and the work does not grow with the square of what is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.engine import fleet, links, wans
from shardmeter.engine.wans import Networks
from shardmeter.scenario import load


def many(count: int, method: str = "diloco") -> dict[str, Any]:
    islands = [{"name": f"site-{at}", "gpus": "8xH100-SXM5-80GB", "price": "$2/gpu/h"} for at in range(count)]
    return {
        "model": "llama-3.2-1b",
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms"}}},
        "plan": {"sharding": "fsdp", "sync": {"method": method}},
        "run": {"tokens": "1B"},
    }


def test_the_first_least_is_argmin_of_the_stack() -> None:
    draw = np.random.default_rng(7)
    for _ in range(200):
        several = [draw.choice([0.0, 1.0, 2.0, np.inf, -np.inf, np.nan], size=(3, 4)) for _ in range(4)]
        several.append(draw.choice([0.0, 1.0, np.nan], size=(1, 4)))
        stacked = np.argmin(np.stack(np.broadcast_arrays(*several)), axis=0)
        found = links._first_least(several)
        assert found.dtype == stacked.dtype
        assert np.array_equal(found, stacked)


@pytest.mark.parametrize("method", ["every_step", "diloco"])
def test_networks_that_are_shared_move_no_number(method: str) -> None:
    one = load(many(5, method))
    networks = Networks(one.fleet.islands, one.fleet.wan)
    given = one.model, one.fleet, one.plan, one.run, one.stack, one.plans
    alone, first, again = fleet.evaluate_fleet(*given), *(fleet.evaluate_fleet(*given, networks) for _ in range(2))
    for shared in (first, again):
        assert shared.estimate.step_time == alone.estimate.step_time
        assert [np.asarray(x).tobytes() for x in (*shared.sent, *shared.paid)] == [
            np.asarray(x).tobytes() for x in (*alone.sent, *alone.paid)
        ]
        assert shared.priced[0].narrowest == alone.priced[0].narrowest


def test_all_changes_that_are_tried_ask_a_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario's own network for the answer and for all changes of plans and method, and three others for those of the network."""
    asked: list[int] = []

    def counted(*given: Any) -> Any:
        asked.append(1)
        return links.links_of(*given)

    monkeypatch.setattr(wans, "links_of", counted)
    answer = shardmeter.predict(many(20)).to_dict()
    assert answer["bottleneck"]
    assert len(asked) <= 5


def test_cells_are_grouped_in_order() -> None:
    one = load(many(7))
    whole = fleet.evaluate_fleet(one.model, one.fleet, one.plan, one.run, one.stack, one.plans)
    assert fleet.grouped(whole.parts) == [[at] for at in range(7)]
