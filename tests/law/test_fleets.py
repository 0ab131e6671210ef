"""Laws of several islands, through `predict`: limits, what never gets slower, what sums to what, what names do not change."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine import add
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import joined
from shardmeter.scenario.sync import under
from shardmeter.specs import Fleet, Replica, Scenario, Sync, Wan
from shardmeter.study.predict import Prediction, predict
from shardmeter.study.rounds import trace_rounds
from shardmeter.sync import defaults, faults, method, names, round_of

KINDS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "L40S", "H200-SXM-141GB")
BATCH = 480.0
TOLD = Replica(parameters=1e9, gradient_bytes=4.0, layers=16.0, cells=4.0, matrices=((2048.0, 2048.0, 64.0),))
MEET = tuple(name for name in names() if round_of(TOLD, defaults(name)).pace == "barrier")
"""Methods in which all islands wait for each other."""
ALIKE = tuple(name for name in names() if name not in ("block_train", "dipaco"))
"""Methods that do not deal out parts of the model in the order of the islands."""


@functools.cache
def fleet_of(kinds: tuple[str, ...], nodes: tuple[int, ...]) -> Scenario:
    """Islands of eight to thirty-two accelerators, whose batch can always be shared."""
    islands = [
        {"name": f"i{at}", "accelerator": kind, "nodes": count, "price": "$2/gpu/h"}
        for at, (kind, count) in enumerate(zip(kinds, nodes, strict=True))
    ]
    return shardmeter.load({
        "model": "llama-3.2-1b",
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "egress": "$0.02/GB"}}},
        "plan": {"sharding": "fsdp"},
        "run": {"seq_len": 2048, "global_batch": BATCH, "tokens": "10B"},
    })  # fmt: skip


@st.composite
def asked(draw: Any, methods: tuple[str, ...] = names(), least: int = 2) -> Scenario:
    """A fleet, a network of unlike links, a method with its usual numbers or near them."""
    count = draw(st.integers(least, 4))
    kinds = tuple(draw(st.sampled_from(KINDS)) for _ in range(count))
    scenario = fleet_of(kinds, tuple(draw(st.sampled_from((1, 2, 4))) for _ in range(count)))

    def table(low: float, high: float) -> Any:
        numbers = [draw(st.floats(np.log(low), np.log(high))) for _ in range(count * count)]
        return np.exp(np.array(numbers)).reshape(count, count)

    wan = changed(
        scenario.fleet.wan, bandwidth=table(1e7, 5e9), rtt=table(1e-4, 0.3), loss=table(1e-7, 1e-2) * draw(st.booleans()),
        transport=(draw(st.sampled_from(("tcp", "rdma", "lossless"))),) * count,
    )  # fmt: skip
    name = draw(st.sampled_from(methods))
    sync = changed(defaults(name), blocks=min(defaults(name).blocks, count), split="speed")
    assume(not faults(sync, count))
    if name == "eggroll":
        sync = changed(sync, perturbations=BATCH)
    if "sync_every" in method(name).FIELDS:
        every = draw(st.sampled_from((8.0, 50.0, 500.0)))
        sync = changed(sync, sync_every=max(every, float(sync.fragment_sync_delay)))
    if "num_fragments" in method(name).FIELDS:
        sync = changed(sync, num_fragments=int(min(sync.num_fragments, 8)))
    if "topology" in method(name).FIELDS:
        sync = changed(
            sync, topology=draw(st.sampled_from(("auto", "ring", "tree", "star", "sharded_star", "all_gather")))
        )
    return synced(changed(scenario, fleet=changed(scenario.fleet, wan=wan)), sync)


def synced(scenario: Scenario, sync: Sync) -> Scenario:
    """The scenario with another synchronisation."""
    own = under(scenario, sync)
    return changed(own, plan=changed(own.plan, sync=sync), plans=tuple(changed(plan, sync=sync) for plan in own.plans))


def wired(scenario: Scenario, **numbers: Any) -> Scenario:
    """The scenario with other numbers of its network."""
    return changed(scenario, fleet=changed(scenario.fleet, wan=changed(scenario.fleet.wan, **numbers)))


def rejoined(before: Prediction, scenario: Scenario) -> float:
    """Tokens a second of the same islands under another network or method."""
    whole = before.whole
    inner = [changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True)]
    after = joined(scenario.model, inner, scenario.fleet.wan, scenario.plan).estimate
    return float(after.tokens / after.step_time)


@pytest.mark.parametrize("kind", KINDS)
def test_one_island_that_synchronises_every_step_is_the_island(kind: str) -> None:
    one = {"name": "x", "accelerator": kind, "nodes": 4}
    wan = {"default": {"bandwidth": "1 Gbps", "rtt": "90 ms"}}
    scenario = shardmeter.load({
        "model": "llama-3.2-1b", "fleet": {"islands": [one], "wan": wan},
        "plan": {"sharding": "fsdp", "sync": {"method": "every_step"}}, "run": {"seq_len": 2048, "global_batch": BATCH},
    })  # fmt: skip
    alone = evaluate(scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack)
    assert predict(scenario).estimate == alone


@settings(max_examples=18)
@given(asked(methods=tuple(name for name in MEET if "sync_every" in method(name).FIELDS)))
def test_a_long_period_costs_nothing(scenario: Scenario) -> None:
    before = predict(scenario)
    slowest = max(float(part.estimate.step_time) for part in before.whole.parts)
    costs = []
    for every in (1e3, 1e5, 1e7):
        answer = predict(synced(scenario, changed(scenario.plan.sync, sync_every=every)))
        costs.append(answer.step_time - slowest)
    assert all(after <= earlier * (1 + 1e-9) for earlier, after in itertools.pairwise(costs))
    assert costs[-1] <= 1e-3 * slowest


@settings(max_examples=18)
@given(asked(), st.sampled_from(("bandwidth", "rtt", "loss", "up", "streams")), st.floats(1.0, 50.0))
def test_a_better_network_is_never_slower(scenario: Scenario, what: str, factor: float) -> None:
    before = predict(scenario)
    wan = scenario.fleet.wan
    assert wan is not None
    if what == "up":  # an own connection of the sites, then a wider one
        rate = np.full(len(wan.islands), 1e8)
        worse, better = wired(scenario, up=rate, down=rate), wired(scenario, up=rate * factor, down=rate * factor)
    else:
        value = getattr(wan, what)
        worse = scenario
        better = wired(scenario, **{what: value * factor if what in ("bandwidth", "streams") else value / factor})
    assert rejoined(before, better) >= rejoined(before, worse) * (1 - 1e-9)


@settings(max_examples=18)
@given(
    asked(
        methods=tuple(name for name in names() if "bits" in method(name).FIELDS and "top_k" not in method(name).FIELDS)
    )
)
def test_int8_sends_half_of_bf16(scenario: Scenario) -> None:
    wholes = [predict(synced(scenario, changed(scenario.plan.sync, bits=bits))).whole for bits in (16.0, 8.0)]
    sent = [sum(float(np.sum(one.caused)) for one in whole.priced) for whole in wholes]
    assert sent[1] == sent[0] / 2.0
    assert sent[0] > 0.0 or len(scenario.fleet.islands) == scenario.plan.sync.blocks


@settings(max_examples=15)
@given(asked(methods=ALIKE, least=3), st.randoms(use_true_random=False))
def test_names_and_order_change_nothing(scenario: Scenario, random: Any) -> None:
    drawn = scenario.fleet.wan
    assert drawn is not None
    rate = np.asarray(drawn.bandwidth)
    unlike = 1.0 + 1e-4 * np.arange(rate.size).reshape(rate.shape)
    scenario = wired(
        scenario, bandwidth=rate * unlike
    )  # of equal places for a server the first is taken, of two always
    before = predict(scenario)
    fleet, wan = scenario.fleet, scenario.fleet.wan
    assert wan is not None
    order = list(range(len(fleet.islands)))
    random.shuffle(order)
    kinds = [(one.accelerator.name, float(one.nodes)) for one in fleet.islands]
    assume(len(set(kinds)) == len(kinds))  # of equal islands the first takes what is left of a batch
    islands = tuple(changed(fleet.islands[at], name=f"other-{at}") for at in order)
    grid = np.ix_(order, order)
    turned: dict[str, Any] = {
        name: np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), (len(order),) * 2)[grid]
        for name in ("bandwidth", "rtt", "loss", "window", "streams", "lanes", "egress")
    }
    other: Wan = changed(wan, islands=tuple(one.name for one in islands), **turned)
    after = predict(
        changed(scenario, fleet=Fleet(islands=islands, wan=other), plans=tuple(scenario.plans[at] for at in order))
    )
    assert after.step_time == pytest.approx(before.step_time, rel=1e-9)
    assert after.tokens_per_s == pytest.approx(before.tokens_per_s, rel=1e-9)
    rows, old = after.to_dict()["islands"], before.to_dict()["islands"]
    for place, at in enumerate(order):
        for key, value in old[at].items():
            if isinstance(value, float) and not isinstance(value, bool):
                assert rows[place][key] == pytest.approx(value, rel=1e-9, abs=1e-9), key


@settings(max_examples=18)
@given(asked(methods=("decoupled_diloco",), least=3), st.sampled_from((50.0, 1e4)))
def test_an_island_in_time_never_lowers_the_total_of_a_deadline(scenario: Scenario, faster: float) -> None:
    count = len(scenario.fleet.islands)
    drawn = scenario.fleet.wan
    assert drawn is not None
    wan = changed(drawn, bandwidth=drawn.bandwidth * faster, rtt=1e-4, transport=("lossless",) * count)
    scenario = changed(scenario, fleet=changed(scenario.fleet, wan=wan))
    whole = predict(scenario).whole
    inner = [changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True)]
    part = slice(0, count - 1)
    pairs = ("bandwidth", "rtt", "loss", "window", "streams", "lanes", "egress")
    fewer: Wan = changed(
        wan, islands=wan.islands[part], transport=wan.transport[part],
        **{name: np.broadcast_to(getattr(wan, name), (count, count))[part, part] for name in pairs},
        **{name: np.broadcast_to(getattr(wan, name), (count,))[part] for name in ("up", "down")},
    )  # fmt: skip
    after = joined(scenario.model, inner, wan, scenario.plan)
    before = joined(scenario.model, inner[part], fewer, scenario.plan)
    assert after.folded is not None
    assume(bool(np.all(after.folded.counted == 1.0)))
    rate = [float(one.estimate.tokens / one.estimate.step_time) for one in (before, after)]
    assert rate[1] >= rate[0] * (1 - 1e-12)


@settings(max_examples=18)
@given(asked())
def test_what_must_sum_does(scenario: Scenario) -> None:
    answer = predict(scenario)
    data = answer.to_dict()
    assert add.folded(float(term["seconds"]) for term in data["ledger"]) == answer.step_time
    blocks = scenario.plan.sync.blocks if scenario.plan.sync.method == "block_train" else 1
    rates = [one["tokens_per_s"] for one in data["islands"]]
    seen = min(sum(rates[part::blocks]) for part in range(blocks))  # a token counts once every block has seen it
    assert data["tokens_per_s"] == pytest.approx(seen, rel=1e-9)
    assert data["samples_per_s"] * scenario.run.seq_len == pytest.approx(data["tokens_per_s"], rel=1e-9)
    assert sum(one["gpus"] for one in data["islands"]) == data["gpus"]
    assert sum(one["global_batch"] for one in data["islands"]) == BATCH * blocks
    assert sum(one["sent_bytes"] for one in data["islands"]) == pytest.approx(data["sync"]["sent_bytes"])
    assert sum(one["exposed_s"] for one in data["sync"]["crossings"]) == pytest.approx(data["sync"]["exposed_s"])
    if data["run"] is not None:
        assert sum(one["usd"] for one in data["run"]["cost_terms"]) == data["run"]["cost_usd"]
        lasts = data["run"]["tokens"] / data["tokens_per_s"]  # models apart go on until the slowest is done
        apart = data["sync"]["pace"] == "own" and not data["sync"]["crossings"]
        assert data["run"]["wall_clock_s"] >= lasts * (1.0 - 1e-9)
        assert apart or data["run"]["wall_clock_s"] == pytest.approx(lasts, rel=1e-9)


@settings(max_examples=18)
@given(asked(methods=MEET))
def test_the_closed_form_of_a_round_is_its_timeline(scenario: Scenario) -> None:
    drawn = trace_rounds(scenario, rounds=8)
    answer = drawn.to_dict()
    assert abs(answer["error"]) <= 0.01
    assert sum(term["timeline_s"] for term in answer["terms"]) == pytest.approx(answer["round_time_s"], rel=0.01)
