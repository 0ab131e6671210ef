"""No line carries more than it can: whatever passes between islands takes at least its bytes over the line's rate."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.crossing import WORDS, Crossed, price
from shardmeter.physics.crossing import RING_START
from shardmeter.specs import Crossing, Sync, Wan

ROUNDING = 1e-9
TOPOLOGIES = [(word, "all_gather" if word == "all_gather" else "all_reduce") for word in WORDS] + [("auto", "exchange")]


def drawn(seed: int, members: int) -> Wan:
    """A network of unlike links and sites."""
    draw = np.random.default_rng(seed)
    trips = 10.0 ** draw.uniform(-4.0, -1.0, (members, members))
    rates = [10.0 ** draw.uniform(7.0, 9.0, shape) for shape in ((members, members), members, members)]
    return Wan(
        islands=tuple(f"i{at}" for at in range(members)), bandwidth=rates[0], rtt=(trips + trips.T) / 2.0, loss=0.0, window=1e9,
        streams=64.0, lanes=1.0, egress=10.0 ** draw.uniform(-2.0, 0.0, (members, members)) / 1e9, up=rates[1], down=rates[2],
        transport=("lossless",) * members,
    )  # fmt: skip


def crossed(wan: Wan, topology: str, collective: str, cells: list[tuple[int, ...]] | None = None) -> Crossed:
    one = Crossing(label="message", collective=collective, size=3e9)
    return price(one, wan, cells or [(at,) for at in range(len(wan.islands))], Sync(topology=topology))


@pytest.mark.parametrize(("topology", "collective"), TOPOLOGIES, ids=str)
def test_nothing_leaves_a_site_faster_than_its_line(topology: str, collective: str) -> None:
    for seed in range(20):
        for members in (2, 3, 5, 9):
            wan = drawn(seed, members)
            found = crossed(wan, topology, collective)
            assert found.seconds >= np.max(found.sent / wan.up) * (1.0 - ROUNDING)


@pytest.mark.parametrize("topology", ["ring", "tree", "star", "sharded_star"])
def test_gathered_messages_reach_every_cell_whole(topology: str) -> None:
    """No way makes M messages that are not averaged fewer bytes; of a mean, each passes 2·(M − 1) times in all."""
    for members in (2, 3, 5, 9):
        wan = drawn(members, members)
        gathered, mean = (crossed(wan, topology, collective) for collective in ("all_gather", "all_reduce"))
        assert np.sum(gathered.sent) == pytest.approx(members * (members - 1) * 3e9)
        assert np.sum(mean.sent) == pytest.approx(2 * (members - 1) * 3e9)
        assert gathered.seconds >= mean.seconds * (1.0 - ROUNDING)
        assert gathered.seconds >= np.max(gathered.sent / wan.up) * (1.0 - ROUNDING)


@pytest.mark.parametrize(("topology", "collective"), TOPOLOGIES, ids=str)
def test_how_islands_are_numbered_changes_nothing(topology: str, collective: str) -> None:
    for seed in range(20):
        for members in (3, 4, 6):
            wan = drawn(seed, members)
            wan = changed(
                wan, up=np.divide(wan.up, 30.0), down=np.divide(wan.down, 30.0)
            )  # sites bind: many links are alike
            order = np.random.default_rng(seed).permutation(members)
            grid = np.ix_(order, order)
            other = changed(
                wan, islands=tuple(wan.islands[at] for at in order), up=np.asarray(wan.up)[order], down=np.asarray(wan.down)[order],
                **{name: getattr(wan, name)[grid] for name in ("bandwidth", "rtt", "egress")},
            )  # fmt: skip
            one, two = crossed(wan, topology, collective), crossed(other, topology, collective)
            assert two.seconds == pytest.approx(one.seconds, rel=1e-9)
            assert two.egress == pytest.approx(one.egress, rel=1e-9)
            assert two.sent == pytest.approx(np.asarray(one.sent)[order], rel=1e-9)


@pytest.mark.parametrize(("topology", "collective"), TOPOLOGIES, ids=str)
def test_more_bandwidth_of_some_links_is_never_slower(topology: str, collective: str) -> None:
    for seed in range(20):
        for members in (3, 4, 6):
            wan, draw = drawn(seed, members), np.random.default_rng(seed)
            faster = [getattr(wan, name) * draw.choice([1.0, 2.0], np.shape(getattr(wan, name)))
                      for name in ("bandwidth", "up", "down")]  # fmt: skip
            better = changed(wan, bandwidth=faster[0], up=faster[1], down=faster[2])
            now, before = crossed(better, topology, collective), crossed(wan, topology, collective)
            assert now.seconds <= before.seconds * (1.0 + ROUNDING)


@pytest.mark.parametrize(("topology", "collective"), TOPOLOGIES, ids=str)
def test_an_island_that_stands_for_several_positions_shares_its_line_among_them(topology: str, collective: str) -> None:
    """Cells of unlike numbers of islands: the parts of a message pass at the same time."""
    for seed in range(20):
        wan = drawn(seed, 6)
        found = crossed(wan, topology, collective, [(0, 1, 2), (3,), (4, 5)])
        assert found.seconds >= np.max(found.sent / wan.up) * (1.0 - ROUNDING)


# ---- axes across islands ---------------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 2} for name in ("a", "b")]},
    "run": {"seq_len": 8192, "global_batch": 64},
}
PIPELINE = {"sharding": "zero1", "tp": 4, "recompute": "full"}
PLACED: list[dict[str, Any]] = [
    PIPELINE | {"dp_shard": 4, "placement": {"pp": ["a", "b"]}},
    PIPELINE | {"dp_shard": 2, "placement": {"pp": ["a", "b", "a", "b"]}},
    PIPELINE | {"dp_shard": 2, "placement": {"pp": ["a", "b", "a", "b"]}, "schedule": "gpipe"},
    *(
        PIPELINE | {"dp_shard": dp, "placement": {"pp": cell}, "schedule": "interleaved", "virtual_stages": rounds}
        for rounds in (2, 4)
        for dp, cell in ((4, ["a", "b"]), (2, ["a", "a", "b", "b"]), (2, ["a", "b", "a", "b"]))
    ),
    {"sharding": "fsdp", "dp_shard": "auto", "placement": {"dp_shard": ["a", "b"]}},
    {"sharding": "fsdp", "dp_shard": "auto", "reshard": False, "placement": {"dp_shard": ["a", "b"]}},
    {"sharding": "fsdp", "dp_shard": "auto", "trainable": "lora(r=16)", "placement": {"dp_shard": ["a", "b"]}},
]


def answer(plan: dict[str, Any], islands: dict[str, Any] | None = None, **wan: Any) -> dict[str, Any]:
    made = copy.deepcopy(GOOD) | {"plan": plan}
    for island in made["fleet"]["islands"]:
        island.update(islands or {})
    made["fleet"]["wan"] = {"default": {"bandwidth": "1 Gbps", "rtt": "1 ms", "transport": "lossless"} | wan}
    found: dict[str, Any] = shardmeter.predict(made).to_dict()
    return found


@pytest.mark.parametrize("plan", PLACED, ids=str)
def test_a_step_is_no_shorter_than_its_bytes_take_between_islands(plan: dict[str, Any]) -> None:
    found = answer(plan)
    for island in found["islands"]:
        assert found["step_time_s"] >= island["sent_bytes"] / 125e6 * (1.0 - ROUNDING)
        assert island["sent_bytes"] > 0.0


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_bytes_of_a_pipeline_follow_its_chunks(rounds: int) -> None:
    """Every boundary is passed once a chunk, the one back to the first stage once less."""
    schedule = {"schedule": "interleaved", "virtual_stages": rounds} if rounds > 1 else {}
    activations = 64 * 8192 * 4096 * 2
    for cell, dp, crossing in ((["a", "b"], 4, 1), (["a", "a", "b", "b"], 2, 1), (["a", "b", "a", "b"], 2, 3)):
        found = answer(PIPELINE | {"dp_shard": dp, "placement": {"pp": cell}} | schedule)
        for island in found["islands"]:
            assert island["sent_bytes"] == pytest.approx((crossing * rounds + rounds - 1) * activations, rel=1e-9)


def test_a_stage_has_the_lanes_of_its_own_nodes() -> None:
    """Of two nodes with a line each, the boundary of two stages on an island uses one."""
    whole = answer(PIPELINE | {"dp_shard": 4, "placement": {"pp": ["a", "b"]}}, shared="node")
    halved = answer(PIPELINE | {"dp_shard": 2, "placement": {"pp": ["a", "a", "b", "b"]}}, shared="node")
    for found, lines in ((whole, 2), (halved, 1)):
        assert found["step_time_s"] >= found["islands"][0]["sent_bytes"] / (lines * 125e6)
    assert halved["step_time_s"] > 1.5 * whole["step_time_s"]


@pytest.mark.parametrize("plan", [
    {"sharding": "fsdp"},
    {"sharding": "fsdp", "placement": {"dp_shard": ["a", "b"]}},
    PIPELINE | {"dp_shard": 4, "placement": {"pp": ["a", "b"]}},
], ids=str)  # fmt: skip
def test_no_line_is_wider_than_the_adapters_at_its_end(plan: dict[str, Any]) -> None:
    """Two nodes of eight adapters of 10 Gbit/s each carry no more than 160 Gbit/s, whatever the line."""
    slow = {"fabric": {"bandwidth": "10 Gbps"}}
    steps = [answer(plan, slow, bandwidth=rate)["step_time_s"] for rate in ("160 Gbps", "16 Tbps")]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)


def test_what_sharded_parameters_send_is_what_they_gather() -> None:
    """Of every gather and reduction an island sends the half that the other lacks, of frozen parameters too."""
    placed: dict[str, Any] = {"sharding": "fsdp", "dp_shard": "auto", "placement": {"dp_shard": ["a", "b"]}}
    layers, ends, passes = 6979584000, 2 * 128256 * 4096 + 4096, 64 / 32
    cases: tuple[tuple[dict[str, Any], float], ...] = (
        ({}, layers * (2 + 2 + 4) + ends * (2 + 4)),
        ({"reshard": False}, (layers + ends) * (2 + 4)),
        ({"dp_replicate": 2}, 2 * (layers * (2 + 2 + 4) + ends * (2 + 4))),
    )
    for more, each in cases:
        found = answer(placed | more)
        assert found["islands"][0]["sent_bytes"] == pytest.approx(passes * each / 2, rel=1e-9)
    frozen = answer(placed | {"trainable": "lora(r=16)"})["islands"][0]["sent_bytes"]
    assert frozen == pytest.approx(passes * (layers * 4 + ends * 2) / 2, rel=0.02)


def test_islands_of_a_pipeline_keep_the_outer_state_of_their_own_stages() -> None:
    made = copy.deepcopy(GOOD)
    made["fleet"] = {
        "islands": [{"name": name, "gpus": "8xH100-SXM5-80GB"} for name in "abcxyz"],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "1 ms"}},
    }
    peaks = []
    for method in ("every_step", "diloco"):
        made["plan"] = PIPELINE | {"placement": {"pp": [list("aabbcc"), list("xxyyzz")]}, "sync": {"method": method}}
        peaks.append([one["memory_peak_gib"] * 2**30 for one in shardmeter.predict(made).to_dict()["islands"]])
    more = [(after - before) / 8.0 * 4.0 for before, after in zip(*peaks, strict=True)]
    layer, matrix = 218112000.0, 128256 * 4096
    assert more[1] == more[4] == pytest.approx(5 * layer, rel=1e-3)
    assert more[0] == more[3] == pytest.approx(6 * layer + matrix, rel=1e-3)
    assert more[2] == pytest.approx(5 * layer + matrix, rel=1e-3)


@pytest.mark.parametrize("passes", [8, 32])
def test_gradients_of_a_pipeline_leave_while_its_last_micro_batch_passes_back(passes: int) -> None:
    """On a line that all stages share the drain of the pipeline hides them, stage by stage; where each has a line of its own, only the
    first stage's own backward does."""
    made = copy.deepcopy(GOOD)
    for island in made["fleet"]["islands"]:
        island["nodes"] = 1
    made["run"]["global_batch"] = 2 * passes
    made["plan"] = {"sharding": "zero1", "pp": 8, "reduce_dtype": "bf16"}
    shown, message, turns = {}, 0.0, []
    for whose, rate in (("island", "400 Gbps"), ("gpu", "50 Gbps")):
        line = {"bandwidth": rate, "rtt": "0.1 ms", "transport": "lossless", "shared": whose}
        made["fleet"]["wan"] = {"default": line}
        found = shardmeter.predict(made)
        message = found.to_dict()["sync"]["crossings"][0]["seconds"]
        shown[whose] = found.to_dict()["sync"]["exposed_s"]
        leaving = found.whole.parts[0].estimate.ends.leaving
        turns = [(float(one.window), float(one.pieces)) for one in reversed(leaving)]
    assert sum(layers for _, layers in turns) == 32.0
    whole, first, start = sum(seconds for seconds, _ in turns), turns[0][0], (2.0 + RING_START) * 0.1e-3 / 2.0
    for of, layers, window in (("island", 32.0, whole), ("gpu", turns[0][1], first)):
        least = start + (message - start) / layers
        assert shown[of] == pytest.approx(max(least, message - window * (1.0 - 1.0 / layers)))


def test_the_last_gradients_take_a_round_trip_at_least() -> None:
    """However wide the line and however many layers leave before them; those of all layers together never more than at the end."""
    made = copy.deepcopy(GOOD)
    made["run"]["global_batch"] = 64
    for milliseconds in (1, 20, 60):
        line = {"bandwidth": "100 Tbps", "rtt": f"{milliseconds} ms", "transport": "lossless"}
        made["fleet"]["wan"] = {"default": line}
        shown = []
        for release in ("layers", "end"):
            made["plan"] = {"sharding": "zero1", "reduce_dtype": "bf16", "sync": {"release": release}}
            shown.append(shardmeter.predict(made).to_dict()["sync"]["exposed_s"])
        assert milliseconds / 1e3 <= shown[0] <= shown[1]


def test_context_parallel_ranks_that_hold_the_same_parameters_gather_them_too() -> None:
    """Outer messages come in parts to all ranks of an island; those of cp hold what those of data parallelism hold."""
    made = copy.deepcopy(GOOD) | {"model": "llama-3.2-1b"}
    for island in made["fleet"]["islands"]:
        island.update({"nodes": 4, "fabric": {"bandwidth": "10 Gbps"}})
    made["fleet"]["wan"] = {"default": {"bandwidth": "400 Gbps", "rtt": "0.1 ms", "transport": "lossless"}}
    found = []
    for more in ({"dp_shard": 8}, {"cp": 8, "dp_shard": 1}, {"cp": 2, "dp_shard": 4}):
        made["plan"] = {"sharding": "ddp", "tp": 4, "sync": {"method": "diloco"}} | more
        found.append(shardmeter.predict(made).to_dict()["sync"]["crossings"][0]["seconds"])
    assert found[1:] == pytest.approx([found[0]] * 2)
