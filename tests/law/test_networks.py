"""Many networks at once: every number is that of `evaluate_fleet` with the network, and what no network changes is evaluated once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine import crossing, fleet, piped
from shardmeter.engine.chosen import FIGURES
from shardmeter.engine.networks import Overall, over_networks
from shardmeter.engine.sharing import IndivisibleBatch
from shardmeter.engine.wans import Networks
from shardmeter.specs import Scenario, Wan
from shardmeter.specs.wan import BALANCES, TRANSPORTS
from shardmeter.sync import names

H100, A100 = "H100-SXM5-80GB", "A100-SXM4-80GB"
SEVERAL = 3
"""Networks that each fleet is asked on."""


def fleet_of(kinds: str, plan: dict[str, Any], **said: Any) -> Scenario:
    """Buildings of 16 accelerators, one for every letter of `kinds`."""
    islands = [
        {"name": f"b{at}", "accelerator": {"h": H100, "a": A100}[kind], "nodes": 2} for at, kind in enumerate(kinds)
    ]
    link = {"bandwidth": "100 Gbps", "rtt": "10 ms", "egress": "$0.02/GB"}
    return shardmeter.load({
        "model": "llama-3.2-1b",
        "fleet": {"islands": islands, "wan": {"default": link}},
        "plan": {"sharding": "zero1", "tp": 4, "recompute": "full"} | plan,
        "run": {"seq_len": 2048, "global_batch": 96 * len(kinds)} | said,
    })  # fmt: skip


def drawn(scenario: Scenario, seed: int, *, alike: bool) -> list[Wan]:
    """Networks that differ in every field, with links alike or each its own."""
    wan = scenario.fleet.wan
    assert wan is not None
    rng, count = np.random.default_rng(seed), len(wan.islands)

    def numbers(low: float, high: float, *shape: int) -> Any:
        found = np.exp(rng.uniform(np.log(low), np.log(high), () if alike else shape))
        return np.broadcast_to(found, shape).copy()

    def words(of: tuple[str, ...]) -> tuple[str, ...]:
        return (str(rng.choice(of)),) * count if alike else tuple(map(str, rng.choice(of, count)))

    square = (count, count)
    return [
        changed(
            wan, bandwidth=numbers(1e8, 5e10, *square), rtt=numbers(1e-4, 5e-2, *square), loss=numbers(1e-8, 1e-3, *square),
            window=numbers(1e5, 1e8, *square), streams=np.floor(numbers(1, 64, *square)), lanes=np.full(square, rng.choice([1.0, 2.0, 8.0])),
            egress=numbers(1e-12, 1e-10, *square), up=numbers(1e9, 1e11, count), down=numbers(1e9, 1e11, count),
            transport=words(TRANSPORTS), balance=words(BALANCES), flows=np.floor(numbers(1, 8, count)), uplink=numbers(5e9, 1e11, count),
            slowest=numbers(0.1, 1.0, count), buffer=numbers(1e6, 1e9, count), planes=np.floor(numbers(1, 3, count)),
            sends=numbers(1e6, 1e8, *square),
        )
        for _ in range(SEVERAL)
    ]  # fmt: skip


def assert_equal(scenario: Scenario, wans: list[Wan]) -> Overall:
    """What `over_networks` says of each network is what `evaluate_fleet` says of it alone."""
    model, plan, run, stack, plans = scenario.model, scenario.plan, scenario.run, scenario.stack, scenario.plans
    every = over_networks(model, scenario.fleet, plan, run, stack, wans, plans)
    for at, wan in enumerate(wans):
        one = fleet.evaluate_fleet(model, changed(scenario.fleet, wan=wan), plan, run, stack, plans)
        ours, theirs = every.estimate, one.estimate
        assert one.folded is not None
        pairs = {name: (getattr(ours, name)[at], getattr(theirs, name)) for name in ("step_time", *FIGURES)}
        pairs |= {"round": (np.asarray(every.round)[at], one.folded.seconds)}
        pairs |= {f"sent {to}": (np.asarray(every.sent)[at, to], sent) for to, sent in enumerate(one.sent)}
        pairs |= {f"paid {to}": (np.asarray(every.paid)[at, to], paid) for to, paid in enumerate(one.paid)}
        for which in ("seconds", "hidden"):
            ledgers = ({t.label: getattr(t, which) for t in some.terms} for some in (ours, theirs))
            mine, its = ledgers
            assert its.keys() <= mine.keys()
            pairs |= {f"{label} {which}": (mine[label][at], its.get(label, 0.0)) for label in mine}
        held = {term.label: term.size for term in theirs.memory}
        pairs |= {f"{term.label} held": (np.asarray(term.size)[at], held.get(term.label, 0.0)) for term in ours.memory}
        for name, (mine, its) in pairs.items():
            assert mine == pytest.approx(float(its), rel=1e-12, nan_ok=True), (name, at)
        assert np.asarray(every.critical)[at] == one.critical
        assert every.narrowest[at] == tuple(charge.narrowest for charge in one.priced)
        assert every.batches[at] == tuple({part.cell: part.run.global_batch for part in one.parts}.values())
    return every


PAIRS = {"pp": [["b0", "b1"], ["b2", "b3"]]}
PLACED: dict[str, tuple[str, dict[str, Any]]] = {
    "gradients between eight": ("hhhhhhhh", {}),
    "gradients between unlike ones": ("hah", {"sync": {"split": "equal"}}),
    "parts by speed": ("hha", {}),
    "one ring through all": ("hh", {"sync": {"hierarchical": False, "topology": "tree"}}),
    "pipeline": ("hh", {"placement": {"pp": ["b0", "b1"]}}),
    "pipeline of unlike ones": ("hah", {"placement": {"pp": ["b0", "b1", "b2"]}, "schedule": "gpipe"}),
    "interleaved": ("ha", {"placement": {"pp": ["b0", "b1"]}, "schedule": "interleaved", "virtual_stages": 2}),
    "breadth first": ("hh", {"placement": {"pp": ["b0", "b1"]}, "schedule": "interleaved-bf", "virtual_stages": 2}),
    "zero bubble": ("hh", {"placement": {"pp": ["b0", "b0", "b1", "b1"]}, "schedule": "zb-h1"}),
    "pipelines of pairs": ("hhhh", {"placement": PAIRS}),
    "pipelines of unlike pairs": ("hhha", {"placement": PAIRS, "schedule": "interleaved", "virtual_stages": 2}),
    "a pipeline and one alone": ("hhh", {"placement": {"pp": [["b0", "b1"]]}}),
    "sharded over all": ("hhh", {"sharding": "fsdp", "placement": {"dp_shard": ["b0", "b1", "b2"]}}),
    "sharded over unlike ones": ("hha", {"sharding": "fsdp", "placement": {"dp_shard": [["b0", "b2"]]}}),
    "tensors": ("hh", {"tp": 8, "dp_shard": 4, "placement": {"tp": ["b0", "b1"]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACED)
def test_each_network_is_answered_as_if_it_were_the_only_one(name):
    kinds, plan = PLACED[name]
    scenario = fleet_of(kinds, plan)
    assert_equal(scenario, drawn(scenario, 1, alike=True) + drawn(scenario, 2, alike=False))


@pytest.mark.parametrize("method", names())
def test_every_method_is_answered_as_on_one_network(method):
    more = {"perturbations": 384} if method == "eggroll" else {}
    scenario = fleet_of("haha", {"sharding": "fsdp", "tp": 1, "sync": {"method": method} | more})
    assert_equal(scenario, drawn(scenario, 3, alike=False)[:2])


def test_another_cell_may_be_critical_on_another_network():
    scenario = fleet_of("hhhh", {"placement": PAIRS})
    (wan,) = drawn(scenario, 4, alike=True)[:1]
    slow = np.full_like(wan.rtt, 1e-3)
    wans = []
    for pair in ((0, 1), (2, 3)):
        rtt = slow.copy()
        rtt[pair], rtt[pair[::-1]] = 0.5, 0.5
        wans.append(changed(wan, rtt=rtt, bandwidth=np.full_like(rtt, 1e11), transport=("lossless",) * 4))
    every = assert_equal(scenario, wans)
    assert sorted(np.asarray(every.critical).tolist()) == [0, 2]
    assert every.batches[0] == every.batches[1][::-1] != every.batches[1]


def test_what_no_network_changes_is_evaluated_once(monkeypatch):
    counts = {"priced": 0, "timed": 0, "crossed": 0}

    def counted(module: Any, name: str) -> None:
        body = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return body(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    counted(piped, "priced")
    counted(piped, "timed")
    counted(crossing, "crossed")
    scenario = fleet_of("hhhh", {"placement": PAIRS, "schedule": "interleaved", "virtual_stages": 2})
    networks = Networks(scenario.fleet.islands, drawn(scenario, 5, alike=True))
    for micro_batch in (1.0, 2.0):
        plan, *plans = (changed(one, micro_batch=micro_batch) for one in (scenario.plan, *scenario.plans))
        over_networks(scenario.model, scenario.fleet, plan, scenario.run, scenario.stack, networks, plans, says=False)
    assert counts == {"priced": 2, "timed": 2, "crossed": 1}


def test_what_cannot_be_answered_is_refused():
    scenario = fleet_of("hh", {})
    wans = drawn(scenario, 6, alike=True)

    def ask(networks: Any = wans, **said: Any) -> None:
        asked = changed(scenario, **said)
        over_networks(asked.model, asked.fleet, asked.plan, asked.run, asked.stack, networks)

    for refused in ((), wans[0], Networks(scenario.fleet.islands, wans[0])):
        with pytest.raises(ValueError, match="two islands at least, and a list of networks"):
            ask(refused)
    with pytest.raises(ValueError, match="2 networks: it takes two islands"):
        ask(
            Networks(scenario.fleet.islands[:1], wans[:2]),
            fleet=changed(scenario.fleet, islands=scenario.fleet.islands[:1]),
        )
    with pytest.raises(ValueError, match=r"Sync\.bits: an array, where networks are the axis"):
        ask(plan=changed(scenario.plan, sync=changed(scenario.plan.sync, bits=np.array([8.0, 16.0]))))
    with pytest.raises(IndivisibleBatch):
        ask(run=changed(scenario.run, global_batch=97.0))


def test_links_of_networks_side_by_side_are_those_of_each():
    """To the last bit, whatever they have in common: words, plain numbers, what is not said."""
    scenario = fleet_of("hah", {})
    wan, sending = scenario.fleet.wan, (8.0, 4.0, 16.0)
    assert wan is not None
    plain = [
        changed(wan, bandwidth=1e9 * times, balance=(word,) * 3, sends=sends, up=up)
        for times in (1.0, 7.0)
        for word in BALANCES
        for sends, up in ((np.inf, np.inf), (4e6, 3e9))
    ]
    for alike in (True, False):
        wans = [*drawn(scenario, 3, alike=alike), wan, *plain, changed(wan, rtt=0.2), *drawn(scenario, 4, alike=alike)]
        every = Networks(scenario.fleet.islands, wans)
        for turns in (1.0, 4.0):
            found = every.links(sending, turns)
            for at, one in enumerate(wans):
                own = Networks(scenario.fleet.islands, one).links(sending, turns)
                assert found.some(at, one.balance).tables == own.tables
                assert found.some(at, own.balance).words == own.words
