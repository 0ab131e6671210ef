"""The network layer: better networks are never slower, limits are met, hashing is what a small simulation finds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import network_page
import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.crossing import price
from shardmeter.engine.links import bounded, links_of, rates
from shardmeter.engine.uplinks import hashed
from shardmeter.physics import network, wan
from shardmeter.scenario import load
from shardmeter.specs import Crossing, Sync, Wan
from shardmeter.specs.assumed import RANGES, Assumed, ends
from shardmeter.specs.wan import BALANCES, TRANSPORTS

GIGABIT = 1e9 / 8
GPUS = 256
FLEET: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [{"name": "b", "count": 2, "gpus": f"{GPUS}xH100-SXM5-80GB", "fabric": "ib-ndr400"}],
        "wan": {
            "default": {
                "oversubscription": 4,
                "distance": "100 km",
                "transport": "rdma",
                "window": "1 GiB",
                "streams": 1,
            }
        },
    },
    "plan": {"tp": 8},
    "run": {"global_batch": 512, "seq_len": 4096},
}


def said(**keys: Any) -> Any:
    """The fleet with more keys of every site and line."""
    default = {**FLEET["fleet"]["wan"]["default"], **keys}
    return load({**FLEET, "fleet": {**FLEET["fleet"], "wan": {"default": default}}}).fleet


def rate(**keys: Any) -> float:
    """B/s of one building to the other, every GPU sending."""
    fleet = said(**keys)
    return float(rates(bounded(fleet.wan, fleet.islands, [GPUS, GPUS]))[0, 1])


def slowest_of(leaves: int, spines: int, flows: int, rng: np.random.Generator) -> tuple[float, float]:
    """(slowest flow's share, mean adapter's with fixed bytes) of a permutation over two tiers whose flows each take a spine at random,
    every link shared equally until it is full (max-min)."""
    adapters = leaves * leaves
    source = np.repeat(np.arange(adapters), flows)
    target = np.repeat(rng.permutation(adapters), flows)
    spine = rng.integers(0, spines, adapters * flows)
    leaf, other = source // leaves, target // leaves
    count, apart = leaves * spines, leaf != other
    up, down = np.where(apart, leaf * spines + spine, -1), np.where(apart, count + other * spines + spine, -1)
    ways = np.stack([up, down, 2 * count + source, 2 * count + adapters + target])
    free, open_ = np.ones(2 * count + 2 * adapters), np.ones(adapters * flows, dtype=bool)
    got = np.zeros(adapters * flows)
    while open_.any():
        loads = np.zeros_like(free)
        for way in ways:
            np.add.at(loads, way[open_ & (way >= 0)], 1.0)
        share = np.where(loads > 0.0, free / np.maximum(loads, 1.0), np.inf)
        full = share <= share.min() * (1 + 1e-9)
        done = open_ & np.any(full[ways] & (ways >= 0), axis=0)
        got[done] = share.min()
        for way in ways:
            np.subtract.at(free, way[done & (way >= 0)], share.min())
        open_ &= ~done
    return float(got.min()) * flows, float(got.reshape(adapters, flows).min(axis=1).mean()) * flows


@pytest.mark.parametrize(("leaves", "spines", "flows"), [(8, 8, 1), (8, 8, 4), (16, 16, 1), (8, 16, 1)])
def test_hashing_is_what_a_simulation_finds(leaves, spines, flows):
    rng = np.random.default_rng(7)
    slowest, mean = np.mean([slowest_of(leaves, spines, flows, rng) for _ in range(6)], axis=0)
    spare, links = spines / leaves, 2.0 * leaves * spines
    model = min(1.0, spare * float(network.hashed_slowest(flows / spare, links, 0.8)))
    assert model == pytest.approx(slowest, abs=0.07)
    if spare == 1.0:  # with more uplinks than adapters the mean formula says 1, which its page says too
        assert mean - 0.03 <= float(network.hashed_mean(float(flows), 0.35)) <= mean + 0.2


def test_better_networks_are_never_slower():
    base = {"balance": "ecmp", "flows": 1}
    chain: list[list[dict[str, Any]]] = [
        [{**base, "flows": n} for n in (1, 2, 8, 64, 4096)],
        [{"balance": word} for word in ("ecmp", "spray", "planned")],
        [{**base, "slowest": w} for w in (1, 0.5, 0)],
        [{**base, "oversubscription": o} for o in (16, 4, 2, 1)],
        [{**base, "window": f"{n} MiB"} for n in (1, 8, 64)],
        [{**base, "distance": f"{n} km", "window": "16 MiB"} for n in (2000, 100, 10)],
        [{"transport": word, "loss": 1e-5, "window": "16 MiB"} for word in ("rdma", "selective", "lossless")],
        [{"transport": "lossless", "buffer": f"{n} MiB"} for n in (1, 8, 64, 512)],
        [{"transport": "rdma", "buffer": f"{n} MiB"} for n in (1, 8, 64, 512)],
        [{"planes": n, "oversubscription": 1} for n in (2, 4, 8, 64)],
        [{"hold": f"{n} us", "window": "4 MiB", "streams": 2} for n in (50, 20, 0)],
    ]
    for steps in chain:
        found = [rate(**one) for one in steps]
        assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(found)), (steps, found)
        assert found[0] < found[-1], steps


def test_limits_are_met():
    wire = GPUS * 400 * GIGABIT
    assert rate(balance="planned") == pytest.approx(wire * network.HEADER / 4, rel=1e-9)
    assert rate(balance="spray") == pytest.approx(wire * network.HEADER / 4 * 0.95, rel=1e-9)
    assert rate(balance="ecmp", flows=1e6) == pytest.approx(wire * network.HEADER / 4, rel=0.01)
    assert rate(streams=2, window="4 MiB", hold="35 us") == pytest.approx(
        GPUS * 2 * 4 * 2**20 / (wan.rtt_of_distance(100.0, wan.ROUTE, wan.PER_KILOMETRE, wan.EQUIPMENT) + 35e-6)
    )
    held = 64.0 * (8 * 2**20 - 2 * wan.PACKET)  # 64 uplinks of an adapter's rate each
    rtt = wan.rtt_of_distance(100.0, wan.ROUTE, wan.PER_KILOMETRE, wan.EQUIPMENT)
    assert rate(transport="lossless", buffer="8 MiB") == pytest.approx(held / rtt)
    assert rate(transport="coded", redundancy=0.2) == pytest.approx(0.8 * rate())
    assert rate(oversubscription=1) < wire * network.HEADER  # what adapters reach is less
    assert float(hashed("ecmp", 1.0, 8.0, 1.0, 1.0, Assumed())) == 1.0  # a single uplink loses nothing to a hash


def test_a_buffer_that_suffices_and_windows_that_need_none_lose_nothing():
    enough = "700 MiB"
    assert rate(balance="planned", buffer=enough) == rate(balance="planned")
    small = {"window": "4 MiB", "streams": 2}
    assert rate(**small, buffer="1 MiB") == rate(**small, balance="planned")
    assert rate(buffer="1 MiB") < 0.9 * rate()
    assert rate(transport="selective", buffer="1 MiB") > rate(buffer="1 MiB")


@pytest.mark.parametrize("case", ["window-16", "window-8", "buffer-4to1", "meta-16", "mrc-42k", "more-than-8"])
def test_what_was_measured_lies_at_the_default(case):
    row = next(one for one in network_page.rows() if one["name"] == case)
    assert network_page.meets(row, network_page.checks()[case]) == "at the default"


def test_less_buffer_than_four_senders_need_is_less_than_the_line():
    """Two and a half round trips suffice at 4:1 (measured); two do not, and one sender needs one."""
    enough, fewer = (network_page.used(network_page.crowded(trips))[0] for trips in (2.5, 2.0))
    assert fewer < 0.99 * enough
    assert network_page.used(changed(network_page.crowded(1.0), incast=1.0))[0] == pytest.approx(enough)


def test_every_row_of_measurements_has_a_figure():
    assert [one["name"] for one in network_page.rows()] == list(network_page.checks())


def test_the_page_of_the_network_is_fresh():
    assert network_page.PAGE.read_text(encoding="utf-8") == network_page.page()


def test_what_nothing_says_changes_nothing():
    """Fields of uplinks at the values that say nothing give the same numbers, bit for bit, and a planned balance too."""
    rng = np.random.default_rng(0)
    made = Wan(
        islands=("a", "b", "c", "d", "e"), bandwidth=rng.lognormal(20, 1, (5, 5)), rtt=rng.uniform(1e-3, 0.1, (5, 5)), loss=1e-5,
        window=4e6, streams=8.0, lanes=1.0, egress=0.0, up=rng.lognormal(20, 1, 5), down=np.inf, transport=TRANSPORTS,
    )  # fmt: skip
    plain, planned = links_of(made), links_of(changed(made, balance=("planned",) * 5, buffer=np.full(5, math.inf)))
    apart = ~np.eye(5, dtype=bool)
    for name in ("rate", "limit", "rtt", "first", "capacity"):
        assert np.array_equal(getattr(plain, name)[apart], getattr(planned, name)[apart]), name
    assert np.array_equal(plain.rate, plain.sending)


def test_networks_that_were_counted_stay():
    fleet = said(balance="ecmp", flows=2, buffer="8 MiB")
    once = bounded(fleet.wan, fleet.islands, [GPUS, GPUS])
    assert np.array_equal(links_of(once).rate, links_of(bounded(once, fleet.islands)).rate)


def test_ends_of_ranges_enclose_the_default():
    fleet = said(balance="ecmp", flows=2, buffer="8 MiB", planes=4, hold="35 us")
    names = {name for name, _, _ in ends(fleet.wan)}
    assert names == {"hashing", "collisions", "go_back", "drops", "incast", "failures", "repair", "hold"}
    own = rate(balance="ecmp", flows=2, buffer="8 MiB", planes=4, hold="35 us")
    for _, low, high in ends(fleet.wan):
        sides = [float(rates(bounded(one, fleet.islands, [GPUS, GPUS]))[0, 1]) for one in (low, high)]
        assert min(sides) <= own <= max(sides)
    assert all(least <= getattr(Assumed(), name) <= most for name, (least, most, _) in RANGES.items())


def test_words_of_what_binds():
    fleet = said(balance="ecmp")
    links = links_of(bounded(fleet.wan, fleet.islands, [GPUS, GPUS]))
    assert "flows hashed onto 64 uplinks" in links.said(0, 1)
    fleet = said(transport="lossless", buffer="8 MiB")
    assert "buffers of 8 MiB" in links_of(bounded(fleet.wan, fleet.islands)).said(0, 1)
    assert BALANCES == ("ecmp", "planned", "spray")


def test_selective_repeat_is_never_slower_than_going_back():
    """A message waits at its end for what was lost by either; going back sends more again."""
    for loss in (0, 1e-8, 1e-5, 1e-3):
        for size in (1e6, 1e9):
            times = []
            for word in ("rdma", "selective"):
                fleet = said(transport=word, loss=loss)
                found = links_of(bounded(fleet.wan, fleet.islands, [GPUS, GPUS]))
                times.append(size / found.rate[0, 1] + found.waited(size, (0, 1), 4.0))
            assert times[1] <= times[0]
            assert loss == 0 or times[0] > size / rate(transport="lossless")


def test_windows_that_are_said_are_those_of_a_ring():
    """A ring carries half a window a step: over 2,000 km NCCL's two of 4 MiB leave the line idle that 16 of 64 MiB fill."""
    times = []
    for window, streams in (("4 MiB", 2), ("64 MiB", 16)):
        fleet = said(distance="2000 km", window=window, streams=streams)
        one = Crossing(label="gradients", collective="all_reduce", size=8e9)
        net = bounded(fleet.wan, fleet.islands, [GPUS, GPUS])
        times.append(float(price(one, net, [[0], [1]], Sync(), accelerators=[GPUS, GPUS]).seconds))
    delay, least = float(fleet.wan.rtt[0, 1]) / 2.0, 8e9 / rate(distance="2000 km", window="1 GiB")
    steps = 8e9 / (GPUS * 4 * 2**20)
    assert (steps + 5.3) * delay < times[0] < (steps + 6.3) * delay + least
    assert least < times[1] < least + 8.0 * delay


def test_a_message_comes_when_its_last_window_has_passed_at_the_rate_of_the_line() -> None:
    """Against a stream simulated piece by piece of 128 KiB: alone it comes so much sooner than the next one may go."""
    trip, line, window, piece = 5.4e-3, 12.2e9, 4.0 * 2**20, 128.0 * 2**10
    for pieces in (3, 16, 32, 40, 112, 256):
        under_way: list[float] = []
        free = 0.0
        for at in range(pieces):
            free = max(free, under_way[at - 32] if at >= 32 else 0.0) + piece / line
            under_way.append(free + trip)
        size = pieces * piece
        found = size * trip / window - float(network.sooner(size, window, trip, line))
        assert found == pytest.approx(free, rel=0.04)
    assert float(network.sooner(1e9, 1e9, trip, line)) == float(network.sooner(1e6, 0.0, trip, line)) == 0.0


def test_stages_wait_for_a_message_no_longer_than_its_windows_hold_it() -> None:
    """A message that one window holds costs a stage its way, and not its part of a window a round trip."""
    steps = []
    for sends in ("4 MiB", "2 GiB"):
        wan = {"default": {"bandwidth": "400 Gbps", "shared": "gpu", "rtt": "20 ms", "transport": "rdma", "streams": 16,
               "window": "128 MiB", "sends": sends}}  # fmt: skip
        islands = [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 2} for name in "ab"]
        plan = {"tp": 8, "micro_batch": 1, "placement": {"pp": ["a", "b"]}}
        run = {"seq_len": 2048, "global_batch": 16}
        asked = {"model": "llama-3.1-8b", "fleet": {"islands": islands, "wan": wan}, "plan": plan, "run": run}
        steps.append(shardmeter.predict(asked).step_time)
    assert steps[0] == pytest.approx(steps[1], rel=0.01)
