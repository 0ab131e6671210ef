"""Pipelines over islands that `plan` finds are what predicting every choice alone finds, and its bounds are none."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.sharing import IndivisibleBatch
from shardmeter.scenario import load
from shardmeter.study.legal import checked
from shardmeter.study.planning import groups, placements
from shardmeter.study.planning.fleet_plans import FleetPlans, plan_fleet
from shardmeter.study.planning.pipelines import Choice, Lines
from shardmeter.study.predict import predict

DEVICES = ("H100-SXM5-80GB", "A100-SXM4-80GB", "H200-SXM5-141GB")
SLOW, FAST = ("3 Gbps", "10 Gbps"), ("50 Gbps", "200 Gbps")


def drawn(seed: int) -> dict[str, Any]:
    """Three or four islands of one or two stages, with a link of its own between some pairs."""
    rng = random.Random(seed)
    names = "abcd"[: rng.choice((3, 3, 4))]
    kinds = rng.choice((DEVICES, DEVICES[:1]))
    islands = [
        {"name": name, "accelerator": rng.choice(kinds), "nodes": rng.choice((1, 1, 2) if len(names) == 3 else (1,))}
        for name in names
    ]
    links = [
        {"between": list(pair), "bandwidth": rng.choice((*SLOW, *FAST)), "rtt": f"{rng.choice((1, 10, 60))} ms"}
        for pair in itertools.combinations(names, 2)
        if rng.random() < 0.7
    ]
    return {
        "model": "llama-3.2-1b",
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": rng.choice(FAST), "rtt": "5 ms"}, "links": links}},
        "run": {"seq_len": 2048, "global_batch": rng.choice((192, 384))},
        "plan": {
            "sharding": "fsdp", "tp": 1, "cp": 1, "dp_shard": 8, "dp_replicate": 1, "micro_batch": rng.choice((1, 2)), "recompute": "none",
            "reshard": True, "schedule": rng.choice(("1f1b", "1f1b", "gpipe")), "placement": {"pp": "auto"},
            "sync": {"method": rng.choice(("every_step", "diloco", "streaming_diloco"))},
            "ahead": [seed % 3],
        },
    }  # fmt: skip


def found(document: dict[str, Any], top: int = 3) -> FleetPlans:
    return plan_fleet(load(copy.deepcopy(document), planning=True), top=top)


def every(count: int) -> set[Choice]:
    """All ways to deal islands out to cells in order, cells by their first island: each order of all, cut at each set of places."""
    made = set()
    for order in itertools.permutations(range(count)):
        for cuts in itertools.product((False, True), repeat=count - 1):
            cells, begin = [], 0
            for place in [*(at + 1 for at, cut in enumerate(cuts) if cut), count]:
                cells.append(order[begin:place])
                begin = place
            made.add(tuple(sorted(cells, key=min)))
    return made


def families(got: FleetPlans) -> list[Lines]:
    way = got.found.ways[0]
    scenario = changed(got.scenario, plan=changed(got.scenario.plan, sync=way.at(0)))
    assert got.placed is not None
    return list(placements.families(scenario, got.placed.plans, got.found.batch))


def step(lines: Lines, cells: Choice) -> float:
    """Of one choice, predicted alone; inf where it is illegal or does not fit."""
    try:
        p = predict(checked(placements.laid(lines, cells)))
    except (BadScenario, IndivisibleBatch):
        return math.inf
    return float(p.step_time) if p.fits else math.inf


@pytest.mark.parametrize("seed", range(7))
def test_the_best_is_that_of_every_choice_predicted_and_bounds_are_below_all(seed: int) -> None:
    document = drawn(seed)
    got = found(document)
    assert got.optimal
    plain = found({**document, "plan": {k: v for k, v in document["plan"].items() if k != "placement"} | {"tp": [1]}})
    best = float(plain.ranked[0].prediction.step_time) if plain.ranked else math.inf
    for lines in families(got):
        floor = lines.floor()
        for cells in every(len(lines.steps)):
            several = [cell for cell in cells if len(cell) > 1]
            if not several or any(sum(lines.steps[at] for at in cell) != lines.pp for cell in several):
                continue
            seconds = step(lines, cells)
            terms = [lines.lines([cell]) if len(cell) > 1 else lines.single(cell[0]) for cell in cells]
            bound = float(lines.joined(lines.step(terms), cells)[0])
            assert bound <= seconds * (1.0 + 1e-9), (seed, cells)
            assert floor <= bound * (1.0 + 1e-6), (seed, cells)
            best = min(best, seconds)
    assert got.ranked[0].prediction.step_time == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", [1, 5, 7])
def test_every_entry_is_a_scenario_that_predict_answers_to_the_bit(seed: int) -> None:
    got = found(drawn(seed), top=6).to_dict()
    for one in got["plans"]:
        again = predict(load(copy.deepcopy(one)))
        assert again.step_time == one["step_time_s"], one["line"]
        assert again.tokens_per_s == one["tokens_per_s"]


def test_islands_that_can_change_places_are_one_choice() -> None:
    document = drawn(0)
    document["fleet"] = {
        "islands": [{"name": name, "accelerator": DEVICES[0], "nodes": 1} for name in "abcdef"],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "10 ms"}},
    }
    got = found(document)
    alike = groups.classes(got.scenario)
    assert set(alike) == {0}
    assert len(list(groups.partitions((1,) * 6, 3, alike))) == 2  # two of three, or one and three alone
    assert len(groups.orders((0, 1, 2, 3), alike)) == 1
    assert got.placed is not None
    assert got.placed.looked < 20


def test_a_fleet_of_many_islands_has_a_gap_that_holds() -> None:
    rng, names = random.Random(3), [f"i{at}" for at in range(12)]
    document = drawn(0)
    document["plan"]["sync"] = {"method": "every_step"}
    document["run"]["global_batch"] = 768
    document["fleet"] = {
        "islands": [{"name": name, "accelerator": rng.choice(DEVICES), "nodes": 1} for name in names],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "10 ms"}, "links": [
            {"between": list(pair), "bandwidth": rng.choice((*SLOW, *FAST)), "rtt": f"{rng.choice((1, 10, 60))} ms"}
            for pair in itertools.combinations(names, 2)]},
    }  # fmt: skip
    got = found(document)
    assert not got.optimal
    assert got.gap > 0.0
    assert got.to_dict()["space"]["gap"] == got.gap
    assert got.placed is not None
    for lines in families(got)[:6]:
        floor, order = lines.floor(), list(range(12))
        for _ in range(2):
            rng.shuffle(order)
            cells = tuple(tuple(order[at : at + lines.pp]) for at in range(0, 12 - lines.pp + 1, lines.pp))
            left = tuple((at,) for at in sorted(set(range(12)) - {at for cell in cells for at in cell}))
            assert floor <= step(lines, tuple(sorted((*cells, *left), key=min)))


def test_a_bound_of_cells_is_solved_for_the_share_that_ends_first() -> None:
    lines = families(found(drawn(2)))[0]
    one, other = (np.array([[1.0]]), np.array([[2.0]])), (np.array([[3.0]]), np.array([[1.0]]))
    seconds = float(lines.step([one, other])[0])
    assert (seconds - 1.0) / 2.0 + (seconds - 3.0) == pytest.approx(lines.passes)


def test_a_model_that_fits_no_island_is_laid_over_several() -> None:
    document = {
        "model": "llama-3.1-70b",
        "fleet": {
            "islands": [{"name": "a", "accelerator": DEVICES[0], "nodes": 1, "count": 4}],
            "wan": {"default": {"bandwidth": "25 Gbps", "rtt": "5 ms"}},
        },
        "run": {"seq_len": 4096, "global_batch": 128},
        "plan": {
            "tp": 4,
            "cp": 1,
            "recompute": "full",
            "sharding": "fsdp",
            "reshard": True,
            "placement": {"pp": "auto"},
        },
    }
    got = found(document)
    assert got.found.joined.feasible == 0
    assert got.best is not None
    assert got.best.prediction.fits
    assert got.best.scenario.plan.placement
