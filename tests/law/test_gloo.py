"""Laws of messages that gloo passes between islands: no line is worse for being better, arrays answer as their numbers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine import fleet
from shardmeter.engine.crossing import price
from shardmeter.engine.networks import over_networks
from shardmeter.engine.wans import Networks
from shardmeter.specs import Crossing, Scenario, Wan
from shardmeter.specs.plan import Sync

BETTER = {"bandwidth": 3.0, "rtt": 1 / 3.0, "loss": 1 / 3.0, "window": 3.0, "streams": 3.0, "up": 3.0, "down": 3.0}
"""By what a field is multiplied to make a network better."""
SIZES = 1.0, 1e3, 3e6, 2e9
DRAWS = 12
"""Random networks of every kind of message."""
collectives = pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "exchange"])


def wan_of(count: int, **said: Any) -> Wan:
    """Lines of 100 Mbit/s and 20 ms, one stream each."""
    usual: dict[str, Any] = {
        "bandwidth": 12.5e6, "rtt": 0.02, "loss": 0.0, "window": 4.0 * 2**20, "streams": 1.0, "lanes": 1.0, "egress": np.nan,
        "up": np.full(count, np.inf), "down": np.full(count, np.inf), "transport": ("tcp",) * count, "backend": "gloo",
    }  # fmt: skip
    return Wan(islands=tuple("abcdefghijkl"[:count]), **usual | said)


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """What the lines of a random network are like, each its own."""
    count = int(rng.integers(2, 9))

    def numbers(low: float, high: float, *shape: int) -> Any:
        return np.exp(rng.uniform(np.log(low), np.log(high), shape))

    square = count, count
    return {
        "bandwidth": numbers(1e5, 1e10, *square), "rtt": numbers(1e-4, 0.3, *square), "loss": numbers(1e-8, 1e-2, *square) * rng.choice([0.0, 1.0]),
        "window": numbers(1e4, 1e8, *square), "streams": np.floor(numbers(1, 32, *square)), "up": numbers(1e5, 1e11, count),
        "down": numbers(1e5, 1e11, count), "mtu": np.full(square, rng.choice([0.0, 1500.0, 9000.0])),
        "lanes": np.full(square, rng.choice([1.0, 8.0])),
    }  # fmt: skip


def seconds(collective: str, size: float, said: Mapping[str, Any], **more: Any) -> float:
    """What a message takes, of all members the slowest."""
    count = len(said["up"]) if "up" in said else more.pop("count")
    sync = Sync(hierarchical=more.pop("hierarchical", True))
    message = Crossing(label="probe", collective=collective, size=size, calls=more.pop("calls", 1.0))
    return float(np.max(price(message, wan_of(count, **said), [(at,) for at in range(count)], sync, **more).seconds))


@collectives
def test_no_message_is_slower_over_a_better_network(collective):
    """Every number of one pair or site, or of all, made better: bandwidth, round trip, loss, window, streams, sites."""
    rng = np.random.default_rng(2026)
    for _ in range(DRAWS):
        said = drawn(rng)
        count = len(said["up"])
        more: dict[str, Any] = {
            "hierarchical": bool(rng.random() < 0.7),
            "calls": float(rng.choice([1, 20])),
            "idle": float(rng.choice([0.0, 0.5, 100.0])),
        }
        more |= {"accelerators": [float(rng.integers(1, 9)) for _ in range(count)]} if rng.random() < 0.5 else {}
        for size in SIZES:
            before = seconds(collective, size, said, **more)
            assert 0.0 < before < np.inf
            for name, times in BETTER.items():
                one = np.array(said[name])
                one[tuple(rng.integers(0, count, one.ndim))] *= times
                for better in (one, said[name] * times):
                    after = seconds(collective, size, {**said, name: better}, **more)
                    assert after <= before * (1.0 + 1e-9), (name, size, more)


@collectives
def test_more_bytes_and_longer_silence_take_no_less(collective):
    rng = np.random.default_rng(7)
    for _ in range(DRAWS):
        said = drawn(rng)
        by_size = [seconds(collective, size, said) for size in (0.0, *SIZES)]
        by_idle = [seconds(collective, 3e6, said, idle=idle) for idle in (0.0, 0.1, 1.0, 1e3, 1e9)]
        assert by_size == sorted(by_size)
        assert by_idle == sorted(by_idle)


@collectives
def test_sizes_and_silences_may_be_arrays(collective):
    sizes, idles = np.array([1.0, 3e6, 5e6, 2e9]), np.array([0.0, 0.3, 1.0, 90.0])
    rng = np.random.default_rng(3)
    for _ in range(DRAWS):
        said = drawn(rng)
        count = len(said["up"])
        cells = [(at,) for at in range(count)]
        message = Crossing(label="probe", collective=collective, size=sizes)
        many = price(message, wan_of(count, **said), cells, Sync(), idle=idles).seconds
        each = [seconds(collective, size, said, idle=idle) for size, idle in zip(sizes, idles, strict=True)]
        np.testing.assert_allclose(many, each, rtol=1e-12)


def test_the_ring_goes_round_as_islands_are_listed():
    """The libraries go by rank: a slow line between neighbours is in the way, one across the ring is not."""
    slow = {
        pair: np.where(
            np.isin(np.arange(16).reshape(4, 4), [4 * pair[0] + pair[1], 4 * pair[1] + pair[0]]), 1e6, 12.5e6
        )
        for pair in ((0, 1), (0, 2))
    }
    beside, across = (seconds("all_reduce", 8e6, {"bandwidth": one}, count=4) for one in slow.values())
    assert across == seconds("all_reduce", 8e6, {}, count=4)
    assert beside > 5.0 * across


@pytest.mark.parametrize(("collective", "way"), [("all_reduce", (1, 0)), ("all_gather", (0, 1))])
def test_reductions_go_to_the_one_before_and_gathers_to_the_one_behind(collective, way):
    """As `recvRank` and `sendRank` are in gloo's allreduce.cc and allgather.cc."""
    alike = np.full((3, 3), 12.5e6)
    there, back = alike.copy(), alike.copy()
    there[way], back[way[::-1]] = 1e6, 1e6
    usual = seconds(collective, 8e6, {}, count=3)
    assert seconds(collective, 8e6, {"bandwidth": there}, count=3) > 2.0 * usual
    assert seconds(collective, 8e6, {"bandwidth": back}, count=3) == usual


@collectives
def test_losses_bind_where_a_window_just_does_not(collective):
    """A window a hair below what losses leave a stream does not lift these."""
    lossy = {"loss": 1e-3, "rtt": 0.1}
    limit = 1.22 * 1448.0 / np.sqrt(1e-3)
    less, more = (seconds(collective, 1e4, {**lossy, "window": limit * x}, count=3) for x in (0.999999, 1.000001))
    assert less == pytest.approx(more, rel=1e-4)


@collectives
def test_packets_count_at_a_site_as_on_a_line(collective):
    """A site that is the narrowest has headers too, also where a window holds all that is asked for."""
    for mtu in (576.0, 1500.0, 9000.0):
        packets = {"mtu": np.full((2, 2), mtu), "rtt": 2.0}
        line = seconds(collective, 8e6, packets, count=2)
        sites = {"bandwidth": 1e12, "up": np.full(2, 12.5e6), "down": np.full(2, 12.5e6), **packets}
        assert seconds(collective, 8e6, sites) == pytest.approx(line, rel=1e-12)


def scenario_of(islands: int = 4, method: str = "diloco", **line: Any) -> Scenario:
    """A small model on islands of one accelerator."""
    line = {"bandwidth": "100 Mbps", "rtt": "20 ms", "streams": 1, "mtu": "9 kB"} | line
    names = "abcdefgh"[:islands]
    return shardmeter.load({
        "model": {"family": "decoder", "name": "t", "layers": 2, "hidden": 128, "heads": 4, "kv_heads": 4, "ffn": 512, "vocab": 256},
        "stack": "titan-eager",
        "fleet": {"islands": [{"name": name, "gpus": "1xH100-SXM5-80GB"} for name in names], "wan": {"backend": "gloo", "default": line}},
        "plan": {"sharding": "none", "sync": {"method": method}},
        "run": {"seq_len": 64, "global_batch": 8 * islands},
    })  # fmt: skip


@pytest.mark.parametrize("method", ["diloco", "streaming_diloco", "noloco", "block_train", "dipaco"])
def test_rounds_of_several_lengths_are_answered_as_each_by_itself(method):
    """Connections that stand idle for longer, round by round."""
    scenario, lengths = scenario_of(method=method), np.array([10.0, 100.0, 3e5])

    def rounds(sync_every: Any) -> Any:
        plan = changed(scenario.plan, sync=changed(scenario.plan.sync, sync_every=sync_every))
        whole = fleet.evaluate_fleet(scenario.model, scenario.fleet, plan, scenario.run, scenario.stack, scenario.plans)
        assert whole.folded is not None
        return whole.folded.seconds

    np.testing.assert_allclose(rounds(lengths), [rounds(float(one)) for one in lengths], rtol=1e-12)


def test_networks_side_by_side_are_answered_as_each_by_itself():
    scenario = scenario_of(3)
    wan = scenario.fleet.wan
    assert wan is not None
    wans = [changed(wan, bandwidth=wan.bandwidth * x, rtt=wan.rtt / y) for x, y in ((1.0, 1.0), (0.1, 5.0), (9.0, 0.2))]
    asked = scenario.plan, scenario.run, scenario.stack
    every = over_networks(scenario.model, scenario.fleet, *asked, wans, scenario.plans)
    for at, one in enumerate(wans):
        alone = fleet.evaluate_fleet(scenario.model, changed(scenario.fleet, wan=one), *asked, scenario.plans)
        assert alone.folded is not None
        assert np.asarray(every.round)[at] == pytest.approx(alone.folded.seconds, rel=1e-12)
        assert every.narrowest[at] == tuple(charge.narrowest for charge in alone.priced)
    with pytest.raises(ValueError, match="one backend"):
        Networks(scenario.fleet.islands, [wan, changed(wan, backend="nccl")])


@pytest.mark.parametrize("mtu", ["1 B", "52 B", "60 B", "575 B", "70 kB"])
def test_what_is_no_packet_is_refused(mtu):
    """At 52 bytes nothing is left beside the headers."""
    with pytest.raises(BadScenario, match=r"mtu"):
        scenario_of(mtu=mtu)
    wan = scenario_of().fleet.wan
    assert wan is not None
    with pytest.raises(BadScenario, match=r"mtu"):
        shardmeter.predict(
            changed(scenario_of(), fleet=changed(scenario_of().fleet, wan=changed(wan, mtu=wan.mtu * 0.0 + 52.0)))
        )


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_ring_of_fsdp_leaves_an_island_once(workers):
    """However many ranks an island has, one of its hops crosses: its bytes pass at the rate of the whole line."""
    names = ["a", "b", "c"]
    far = {
        "model": {"family": "decoder", "name": "t", "layers": 2, "hidden": 512, "heads": 4, "kv_heads": 4, "ffn": 2048, "vocab": 256},
        "stack": "titan-eager",
        "fleet": {
            "islands": [{"name": name, "gpus": f"{workers}xH100-SXM5-80GB"} for name in names],
            "wan": {"backend": "gloo", "default": {"bandwidth": "1 Mbps", "rtt": "1 us", "streams": 1}},
        },
        "plan": {"sharding": "fsdp", "placement": {"dp_shard": names}},
        "run": {"seq_len": 64, "global_batch": 3 * workers},
    }  # fmt: skip
    made = shardmeter.predict(far)
    every, sent = 3.0 * workers, sum(float(one) for one in made.whole.sent) / 3.0
    across = sent * (every - 1.0) / every / (2.0 / 3.0)
    assert made.step_time == pytest.approx(across / 125e3, rel=0.02)
