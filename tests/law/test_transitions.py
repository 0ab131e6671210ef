"""What rules a step: every second in one regime, crossings held by evaluations of both sides, maps equal to points."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.engine.add import CAUSES
from shardmeter.study import islands
from shardmeter.study.levers import answered
from shardmeter.study.roots import zero
from shardmeter.study.transitions import regimes
from shardmeter.study.transitions.crossings import TENTH_SHARE

ONE: dict[str, Any] = {
    "model": "llama-3.1-8b", "stack": "titan-compile", "gpus": "64xH100-SXM5-80GB",
    "plan": {"sharding": "fsdp", "recompute": "selective"}, "run": {"seq_len": 8192, "global_batch": 128},
}  # fmt: skip
TWO: dict[str, Any] = {
    "model": "llama-3.1-8b", "stack": "titan-compile",
    "fleet": {
        "islands": [{"name": "a", "accelerator": "H100-SXM5-80GB", "nodes": 1, "count": 2}],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms"}},
    },
    "plan": {"sharding": "fsdp", "recompute": "selective", "sync": {"method": "diloco", "sync_every": 50}},
    "run": {"seq_len": 4096, "global_batch": 64},
}  # fmt: skip
SCENARIOS = 40


def drawn(seed: int) -> tuple[dict[str, Any], str]:
    """A random legal scenario and an axis: every fifth of two islands."""
    rng = random.Random(seed)
    model = rng.choice(["llama-3.2-1b", "llama-3.1-8b"])
    if seed % 5:
        plan = {
            "sharding": rng.choice(["fsdp", "zero1", "ddp"]),
            "tp": rng.choice([1, 2, 4]),
            "micro_batch": rng.choice([1, 2]),
        }
        gpus = f"{rng.choice([16, 32, 64])}x{rng.choice(['H100-SXM5-80GB', 'A100-SXM4-80GB'])}"
        run = {"seq_len": rng.choice([1024, 2048, 4096]), "global_batch": 256}
        axes = ("fleet.islands.0.fabric.bandwidth=2Gbps..800Gbps:log9", "run.seq_len=256..16384:x4", "plan.micro_batch=1..16:x2",
                "fleet.islands.0.fabric.latency=1us..10ms:log7")  # fmt: skip
        islands = [{"gpus": gpus, "fabric": "ib-ndr400"}]
        return {
            "model": model,
            "stack": "titan-compile",
            "fleet": {"islands": islands},
            "plan": plan,
            "run": run,
        }, rng.choice(axes)
    method = rng.choice(["diloco", "streaming_diloco", "every_step"])
    sync = {"method": method} | ({} if method == "every_step" else {"sync_every": rng.choice([20, 50])})
    wan = {"default": {"bandwidth": "10 Gbps", "rtt": f"{rng.choice([5, 50, 150])} ms"}}
    fleet = {"islands": TWO["fleet"]["islands"], "wan": wan}
    axis = rng.choice(["fleet.wan.default.bandwidth=10Mbps..800Gbps:log9", "fleet.wan.default.rtt=1ms..2s:log7"])
    if method != "every_step" and rng.random() < 0.4:
        axis = "plan.sync.sync_every=1..400:x4"
    return {**TWO, "model": model, "fleet": fleet, "plan": {"sharding": "fsdp", "sync": sync}}, axis


def predicted(scenario: dict[str, Any], field: str, value: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Seconds by regime and figures of one point, evaluated alone."""
    made = shardmeter.load(scenario, overrides={field: value})
    whole, wide = answered(made), answered(regimes.without_limits(made))
    plan, one = islands.critical(whole).plan, whole.estimate
    by = {name: float(np.max(seconds)) for name, seconds in regimes.seconds(one, wide.estimate, plan).items()}
    under_way, exposed = (float(np.max(number)) for number in regimes.communication(one, plan))
    fits = all(bool(np.all(part.estimate.memory_peak <= part.estimate.memory_limit)) for part in whole.parts)
    return by, {
        "balance": under_way - float(np.max(one.compute_seconds)),
        "tenth": exposed - TENTH_SHARE * float(np.max(one.step_time)),
        "fits": fits, "peak": float(np.max(one.tokens / one.step_time)), "step": float(np.max(one.step_time)),
    }  # fmt: skip


def test_every_term_of_a_ledger_has_a_regime() -> None:
    assert {*regimes.OF_TERM, regimes.CONTENTION} == set(CAUSES)
    assert set(regimes.OF_TERM.values()) | {regimes.LATENCY, regimes.CP} == set(regimes.REGIMES)


def held(scenario: dict[str, Any], field: str, found: dict[str, Any], write: Any) -> None:
    """A crossing says what an evaluation of each of its two sides alone says."""
    sides = [predicted(scenario, field, write(found[side]["value"])) for side in ("below", "above")]
    for (by, figures), side in zip(sides, (found["below"], found["above"]), strict=True):
        assert sum(by.values()) == pytest.approx(figures["step"], rel=1e-12)
        assert side["regime"] == max(by, key=lambda name: by[name])
        assert side["fits"] == figures["fits"]
        assert side["tokens_per_s"] == figures["peak"]
    kind, values = found["kind"], [found[side]["value"] for side in ("below", "above")]
    assert values[0] < values[1]
    if kind == "regime":
        assert found["below"]["regime"] != found["above"]["regime"]
    elif kind == "fits":
        assert [figures["fits"] for _, figures in sides] in ([True, False], [False, True])
    elif kind == "peak":
        assert values[0] < found["value"] < values[1]
        best = predicted(scenario, field, write(found["value"]))[1]["peak"]
        assert all(best >= figures["peak"] or not figures["fits"] for _, figures in sides)
    else:
        signs = [figures[kind] > 0.0 for _, figures in sides]
        assert signs[0] != signs[1], found["says"]
        assert [side["margin"] for side in (found["below"], found["above"])] == [figures[kind] for _, figures in sides]


def test_crossings_are_held_by_evaluations_of_both_sides() -> None:
    """On random scenarios: each crossing of one of them, drawn by chance, evaluated alone by the way of a single prediction."""
    kinds: dict[str, int] = {}
    for seed in range(SCENARIOS):
        scenario, axis = drawn(seed)
        answer = shardmeter.transitions(scenario, axis)
        line = answer.lines[0]
        told = line.to_dict()["crossings"]
        for one in told:
            kinds[one["kind"]] = kinds.get(one["kind"], 0) + 1
            if line.sought.whole:
                assert one["value"] in (one["below"]["value"], one["above"]["value"]) or one["kind"] == "peak"
            elif one["kind"] != "peak":
                assert one["above"]["value"] / one["below"]["value"] < 1.0 + 2e-6
        if told and line.sought.scale is not None:
            held(scenario, line.sought.field, told[seed % len(told)], line.sought.scale.write)
    assert set(kinds) == {"regime", "balance", "tenth", "fits", "peak"}
    assert sum(kinds.values()) > SCENARIOS


def test_the_grid_is_what_points_say() -> None:
    answer = shardmeter.transitions(
        TWO, "fleet.wan.default.bandwidth=0.1Gbps,3Gbps,40Gbps", "plan.sync.sync_every=1,30"
    ).to_dict()
    for (row, steps), (column, rate) in itertools.product(
        enumerate([1, 30]), enumerate(["0.1Gbps", "3Gbps", "40Gbps"])
    ):
        by, figures = predicted(
            {**TWO, "plan": {**TWO["plan"], "sync": {"method": "diloco", "sync_every": steps}}},
            "fleet.wan.default.bandwidth",
            rate,
        )
        name = max(by, key=lambda one: by[one])
        assert answer["map"]["regime"][row][column] == name
        assert answer["map"]["share"][row][column] == by[name] / figures["step"]


def test_whole_numbers_between_a_grid() -> None:
    """The first H beyond, though the grid is coarse; a scenario's own H above it reads the crossing downwards."""
    found = shardmeter.transitions(TWO, "H=1..512:x8").to_dict()["lines"][0]["crossings"]
    balance = next(one for one in found if one["kind"] == "balance")
    assert balance["above"]["value"] - balance["below"]["value"] == 1.0
    assert balance["value"] == balance["below"]["value"] < 50
    assert balance["says"] == f"you become communication-bound at H = {balance['value']:.0f}"


def test_latency_is_what_no_bandwidth_buys() -> None:
    """A network of endless bandwidth leaves its latency, and all of it; one without round trips has none."""
    far = {**TWO, "plan": {"sharding": "fsdp", "sync": {"method": "every_step"}}}
    endless, _ = predicted(far, "fleet.wan.default.bandwidth", "100000 Gbps")
    assert endless["WAN"] < 0.01 * endless["latency"]
    near, _ = predicted(
        {**far, "fleet": {**TWO["fleet"], "wan": {"default": {"bandwidth": "1 Gbps", "rtt": "1us"}}}},
        "plan.micro_batch",
        1,
    )
    assert near["latency"] < 0.01 * near["WAN"]


def test_names_and_what_is_asked_wrongly() -> None:
    line = shardmeter.transitions(ONE, "plan.recompute=none,full").lines[0]
    assert line.found == ()
    assert line.nearest.startswith("none: compute")
    with pytest.raises(BadScenario, match="y without x"):
        shardmeter.transitions(ONE, y="plan.tp")
    with pytest.raises(BadScenario, match=r"plan\.nothing"):
        shardmeter.transitions(ONE, "plan.nothing=1,2")
    with pytest.raises(BadScenario, match="no range"):
        shardmeter.transitions(ONE, "plan.recompute")


def test_roots() -> None:
    assert zero(lambda x: x**3 - 2.0, 0.0, 4.0, -2.0, 62.0, 1e-12) == pytest.approx(2.0 ** (1 / 3), abs=1e-12)
    assert zero(lambda x: 5.0 if x > 0.3 else -1.0, 0.0, 1.0, -1.0, 5.0, 1e-9) == pytest.approx(
        0.3, abs=1e-9
    )  # a step has no zero
