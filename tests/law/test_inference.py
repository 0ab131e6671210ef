"""Laws of serving: the ledger is the time, no line is too fast, no host is passed by, and where two ways cross they are equal."""

from __future__ import annotations

import functools
import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.inference import cut, serve
from shardmeter.engine.inference.lines import DELAY, WIRE, hop, lines
from shardmeter.engine.inference.pipeline import through
from shardmeter.engine.inference.servers import degree, server
from shardmeter.families import family
from shardmeter.physics import decoding
from shardmeter.physics.wan import WIRE as WIRE_OVERHEAD
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs.serving import METHODS, Serving
from shardmeter.study.crossover import LONGEST, crossings, times
from shardmeter.study.infer import checked, laid

KINDS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "RTX 4090", "L40S", "H200-SXM-141GB")
MODELS = ("tinyllama-1.1b", "llama-3.2-3b", "qwen2.5-0.5b")
SEEDS = range(36)
CATALOG = load_catalog()


@functools.cache
def fleet(seed: int, islands: int = 0) -> shardmeter.Scenario:
    """Some islands of some kinds, joined by links of which no two are alike."""
    rng = random.Random(seed)
    names = [f"i{at}" for at in range(islands or rng.randint(2, 5))]
    rows = [
        {"name": name, "accelerator": rng.choice(KINDS), "nodes": 1, "gpus_per_node": rng.choice((1, 2, 4, 8))}
        for name in names
    ]
    links = [
        {
            "between": [a, b],
            "bandwidth": f"{10 ** rng.uniform(-1, 1.5):.3g} Gbps",
            "rtt": f"{10 ** rng.uniform(0, 2.4):.3g} ms",
        }
        for at, a in enumerate(names)
        for b in names[:at]
    ]
    wan = {"default": {"bandwidth": "1 Gbps", "rtt": "30 ms", "streams": rng.choice((1, 16))}, "links": links}
    scenario: dict[str, Any] = {"model": rng.choice(MODELS), "fleet": {"islands": rows}, "run": {"seq_len": 2048}}
    if len(names) > 1:
        scenario["fleet"]["wan"] = wan
    return shardmeter.load(scenario)


def answer(scenario: shardmeter.Scenario, **asked: Any) -> Any:
    servers, links = laid(scenario)
    return serve(servers, links, checked(scenario, Serving(**asked)))


def asked_of(seed: int) -> dict[str, Any]:
    rng = random.Random(1000 + seed)
    return {
        "prompt": float(rng.choice((1, 100, 777, 4096))), "output": float(rng.choice((1, 2, 50, 1000))),
        "batch": float(rng.choice((1, 7, 32))), "experts": 6, "top_k": rng.choice((1, 2, 4)), "blocks": 7,
    }  # fmt: skip


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("seed", SEEDS[:12])
def test_the_ledger_is_the_time(seed, how):
    asked = asked_of(seed)
    found = answer(fleet(seed), how=how, **asked)
    assert found.output_time == pytest.approx(math.fsum(float(term.seconds) for term in found.terms), rel=1e-12)
    parts = found.output_time if how == "block_train" else found.first_time + (asked["output"] - 1.0) * found.token_time
    assert found.output_time == pytest.approx(parts, rel=1e-12)
    assert all(term.seconds > 0.0 for term in found.terms)


@pytest.mark.parametrize("how", METHODS)
def test_one_island_crosses_nothing(how):
    labels = {term.label for term in answer(fleet(3, islands=1), how=how, experts=4, blocks=4, top_k=2).terms}
    assert labels
    assert not labels & {WIRE, DELAY}


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_better_lines_are_never_slower(seed, how):
    scenario, asked = fleet(seed), asked_of(seed)
    before = answer(scenario, how=how, **asked).output_time
    wan = scenario.fleet.wan
    assert wan is not None
    for better in (
        {"bandwidth": wan.bandwidth * 3.0},
        {"rtt": wan.rtt / 3.0},
        {"bandwidth": wan.bandwidth * 1.1, "rtt": wan.rtt * 0.9},
    ):
        closer = changed(scenario, fleet=changed(scenario.fleet, wan=changed(wan, **better)))
        assert answer(closer, how=how, **asked).output_time <= before * (1.0 + 1e-9)


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_longer_prompts_and_outputs_are_never_sooner(seed, how):
    scenario, asked = fleet(seed), asked_of(seed)
    for name in ("prompt", "output"):
        lengths = (1.0, 2.0, 63.0, 64.0, 127.0, 128.0, 129.0, 1000.0, 4096.0)
        found = [answer(scenario, how=how, **{**asked, name: length}).output_time for length in lengths]
        assert all(longer >= one * (1.0 - 1e-5) for one, longer in itertools.pairwise(found)), name


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_sooner_than_its_way(seed):
    """Round all islands for every token of a pipeline and for every traversal; there and back for an ensemble apart."""
    scenario, asked = fleet(seed), {**asked_of(seed), "top_k": 6}
    wan, islands = scenario.fleet.wan, len(scenario.fleet.islands)
    assert wan is not None
    shortest = float(np.min(np.broadcast_to(wan.rtt, (islands, islands))[~np.eye(islands, dtype=bool)]))
    ways = {"pipeline": islands / 2.0, "block_train": islands / 2.0, "soma": 1.0}
    for how, often in ways.items():
        found = answer(scenario, how=how, **asked)
        assert found.first_time >= often * shortest
        assert how == "block_train" or found.token_time >= often * shortest
        crossed = {term.label: float(term.seconds) for term in found.terms}[DELAY]
        times_ = 1.0 if how == "block_train" else asked["output"]
        assert crossed >= times_ * often * shortest * (1.0 - 1e-12)


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("seed", SEEDS[:8])
def test_faster_memory_is_never_slower(seed, how):
    scenario, asked = with_devices(fleet(seed), memory=1e6), asked_of(seed)
    faster = with_devices(scenario, memory_bandwidth=1.5)
    assert answer(faster, how=how, **asked).output_time <= answer(scenario, how=how, **asked).output_time


def with_devices(scenario: shardmeter.Scenario, **times_: float) -> shardmeter.Scenario:
    """The same with numbers of all accelerators so many times as large."""

    def better(device: Any) -> Any:
        return changed(device, **{name: getattr(device, name) * factor for name, factor in times_.items()})

    islands = tuple(changed(one, accelerator=better(one.accelerator)) for one in scenario.fleet.islands)
    return changed(scenario, fleet=changed(scenario.fleet, islands=islands))


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_larger_batches_pass_more_and_wait_longer(seed, how):
    """Where memory has room for any, and enough are under way to fill the busiest place. A prompt's chunks, which make a single
    answer sooner, may cost some of the rate: of a prompt of one token there are none."""
    scenario, asked = with_devices(fleet(seed), memory=1e6), {**asked_of(seed), "in_flight": 1e9}
    for prompt in (asked["prompt"], 1.0):
        found = [
            answer(scenario, how=how, **{**asked, "batch": batch, "prompt": prompt})
            for batch in (1.0, 2.0, 32.0, 512.0)
        ]
        for one, larger in itertools.pairwise(found):
            assert larger.output_time >= one.output_time * (1.0 - 1e-9)
            if how != "pipeline" or prompt == 1.0:
                assert larger.flight_rate >= one.flight_rate * (1.0 - 1e-9)


@pytest.mark.parametrize("how", ["pipeline", "block_train"])
@pytest.mark.parametrize("seed", SEEDS[:12])
def test_no_more_passes_than_the_slowest_host_lets(seed, how):
    scenario, asked = fleet(seed), asked_of(seed)
    for flying in (asked["batch"], 10.0 * asked["batch"], 1e6):
        found = answer(scenario, how=how, **asked, in_flight=flying)
        slowest = min(float(host.copies / host.busy) for host in found.hosts)
        assert found.flight_rate <= asked["batch"] * asked["output"] * slowest * (1.0 + 1e-12)
        assert found.busiest_share <= 1.0
        groups = math.ceil(flying / asked["batch"])
        assert found.flight_rate <= groups * asked["batch"] * asked["output"] / found.output_time * (1.0 + 1e-12)


def test_sequences_under_way_are_what_fits():
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "1xRTX 4090"})
    found = answer(scenario, how="local", prompt=512.0, output=512.0, batch=1.0)
    assert found.fits
    longer = changed(scenario, model=changed(scenario.model, layers=96))
    assert not answer(longer, how="local").fits
    held = shardmeter.load({"model": "llama-3.2-3b", "fleet": fleet_of_homes(3)})
    full = answer(held, how="pipeline", prompt=60_000.0, output=10_000.0)
    assert full.fits
    assert not answer(held, how="pipeline", prompt=60_000.0, output=10_000.0, in_flight=full.in_flight * 4.0).fits


def fleet_of_homes(count: int) -> dict[str, Any]:
    return {
        "islands": [{"name": "home", "gpus": "1xRTX 4090", "count": count}],
        "wan": {"default": {"preset": "home-cable"}},
    }


@pytest.mark.parametrize("seed", SEEDS[:18])
def test_at_the_crossover_both_take_as_long(seed):
    scenario = fleet(seed)
    rng = random.Random(2000 + seed)
    asked = checked(
        scenario, Serving(prompt=float(rng.choice((16, 512, 8192, 60_000))), batch=float(rng.choice((1, 16))))
    )
    servers, _ = laid(scenario)
    both = times(scenario, asked, servers, 10 ** rng.uniform(-3, -0.5))
    lengths, beyond = crossings(both)
    first = both(1.0)
    for length in lengths:
        below, above = (one - two for one, two in (both(length * (1.0 - 1e-6)), both(length * (1.0 + 1e-6))))
        assert below * above <= 0.0
        if length == lengths[0]:
            assert (above > 0.0) == (beyond == "block_train")
            assert (below > 0.0) == (first[0] > first[1])
    ends = both(LONGEST)
    assert ((first[0] > first[1]) == (ends[0] > ends[1])) == (len(lengths) % 2 == 0)


def test_most_fleets_cross_somewhere():
    """So that the test above looks at crossovers at all."""
    found = 0
    for seed in SEEDS[:10]:
        scenario = fleet(seed)
        servers, _ = laid(scenario)
        both = times(scenario, checked(scenario, Serving(prompt=8192.0)), servers, 10e-3)
        found += bool(crossings(both)[0])
    assert found >= 5


def test_a_plain_crossing_is_found_exactly():
    (length,), beyond = crossings(lambda output: (output, 777.0))
    assert beyond == "block_train"
    assert length == pytest.approx(777.0, rel=1e-8)
    assert crossings(lambda output: (output, 0.5)) == ([], "block_train")
    assert crossings(lambda output: (1.0, output + 1.0)) == ([], "pipeline")
    lengths, beyond = crossings(lambda output: (output, 90.0 + output**2 / 1000.0))
    assert beyond == "block_train"
    assert lengths == pytest.approx([100.0, 900.0], rel=1e-8)


def test_many_traversals_lose_at_both_ends():
    """Short outputs do not pay for them, long ones attend to all positions in each."""
    scenario = fleet(0)
    asked = checked(scenario, Serving(prompt=512.0, traversals=64.0))
    servers, _ = laid(scenario)
    both = times(scenario, asked, servers, 1e-3)
    lengths, beyond = crossings(both)
    assert (len(lengths), beyond) == (2, "block_train")
    middle = math.sqrt(lengths[0] * lengths[1])
    assert [one > two for one, two in map(both, (1.0, middle, LONGEST))] == [False, True, False]


@pytest.mark.parametrize("seed", range(40))
def test_layers_are_cut_as_well_as_can_be(seed):
    rng = random.Random(seed)
    seconds = [rng.uniform(1.0, 5.0) for _ in range(rng.randint(2, 3))]
    pieces = rng.randint(len(seconds), 12)
    room = [float(rng.randint(1, 12)) for _ in seconds]
    counts = cut.balanced(seconds, room, pieces)
    assert sum(counts) == pieces
    assert min(counts) >= 1
    best = min(
        (max(own * count for own, count in zip(seconds, way, strict=True)) for way in ways(pieces, len(seconds)) if inside(way, room)),
        default=None,
    )  # fmt: skip
    if best is None:
        assert not inside(counts, room)
    else:
        assert inside(counts, room)
        assert max(own * count for own, count in zip(seconds, counts, strict=True)) == pytest.approx(best)


def ways(pieces: int, hosts: int) -> list[tuple[int, ...]]:
    if hosts == 1:
        return [(pieces,)] if pieces else []
    return [(first, *rest) for first in range(1, pieces) for rest in ways(pieces - first, hosts - 1)]


def inside(counts: Any, room: list[float]) -> bool:
    return all(count <= most for count, most in zip(counts, room, strict=True))


def test_a_token_reads_all_weights_and_its_cache():
    """Memory-bound: one sequence of a dense model on one device reads what lies in memory, no faster than the memory is."""
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "1xH100-SXM5-80GB"})
    found = answer(scenario, how="local", prompt=1024.0, output=2.0)
    device = scenario.fleet.islands[0].accelerator
    rate = device.memory_bandwidth * device.memory_share
    model = scenario.model
    read = 2.0 * (
        model.layers
        * (2.0 * model.hidden * model.head_dim * (model.heads + model.kv_heads) + 3.0 * model.hidden * model.ffn)
    )
    read += 2.0 * model.vocab * model.hidden
    kept = 2.0 * 2.0 * model.layers * model.kv_heads * model.head_dim * 1025.0
    assert (read + kept) / rate <= found.token_time <= 1.3 * (read + kept) / rate


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("llama-3.1-8b", 32 * 2 * 8 * 128 * 3000),
        ("deepseek-v2-lite", 27 * (512 + 64) * 3000),
        ("mistral-7b-v0.1", 32 * 2 * 8 * 128 * 3000),
        ("gemma-2-2b", 13 * 2 * 4 * 256 * (3000 + 3000)),
        ("soma-lstm-32", 2 * 3 * 32),
        ("gpt-oss-20b", 12 * 2 * 8 * 64 * (3000 + 128)),
    ],
)
def test_what_is_kept_of_a_sequence(name, elements):
    model = CATALOG.model(name)
    kind = family(model.family)
    assert sum(count * sum(kind.cached(model, block, 3000.0)) for block, count in kind.order(model)) == elements


def test_a_state_does_not_grow_with_the_sequence():
    model = CATALOG.model("nemotron-h-8b")
    kind = family(model.family)
    states = [block for block, _ in kind.order(model) if block.startswith("mamba")]
    assert kind.cached(model, states[0], 10.0) == kind.cached(model, states[0], 1e6)
    assert sum(kind.cached(model, states[0], 10.0)) > 0.0


def test_one_token_reads_its_own_experts_only():
    assert decoding.experts_touched(64.0, 6.0, 1.0) == pytest.approx(6.0)
    assert decoding.experts_touched(64.0, 6.0, 1e6) == pytest.approx(64.0)
    mixture = shardmeter.load({"model": "mixtral-8x7b", "gpus": "8xH100-SXM5-80GB"})
    dense = changed(mixture, model=changed(mixture.model, experts=2.0))
    assert answer(mixture, how="local").token_time == pytest.approx(answer(dense, how="local").token_time, rel=0.01)


def test_an_ensemble_on_one_island_makes_no_round_trips():
    scenario = fleet(5)
    apart = answer(scenario, how="soma", experts=8, top_k=4)
    home = answer(scenario, how="soma", experts=8, top_k=4, together=True)
    alone = answer(scenario, how="soma", experts=8, top_k=1)
    assert {WIRE, DELAY} <= {term.label for term in apart.terms}
    assert not {WIRE, DELAY} & {term.label for term in (*home.terms, *alone.terms)}
    assert sum(host.experts for host in apart.hosts) == 8
    assert all(host.experts == 8 for host in home.hosts)
    assert all(host.peak > next(one.peak for one in apart.hosts if one.name == host.name) for host in home.hosts)


@pytest.mark.parametrize(("islands", "experts", "top_k"), [(2, 2, 2), (5, 5, 4), (5, 9, 4), (6, 40, 3)])
def test_no_line_of_an_ensemble_carries_more_than_it_can(islands, experts, top_k):
    """Distributions from every island that an expert was chosen of go out by its own line, and into the one that mixes together:
    where hosts are no limit, one of these is full."""
    up, down, size = 100e6 / 8.0, 150e6 / 8.0, 4.0 * 151936
    homes = {"name": "home", "gpus": "1xRTX 4090", "count": islands}
    sites = {f"home-{at + 1}": {"up": "100 Mbps", "down": "150 Mbps"} for at in range(islands)}
    wan = {"default": {"bandwidth": "1 Gbps", "rtt": "30 ms", "streams": 64}, "sites": sites}
    scenario = shardmeter.load({
        "model": "qwen2.5-0.5b", "fleet": {"islands": [homes], "wan": wan}, "run": {"seq_len": 512},
    })  # fmt: skip
    found = answer(scenario, how="soma", experts=experts, top_k=top_k, in_flight=1e9)
    held = [host.experts for host in found.hosts]
    chosen = list(itertools.combinations([at for at, own in enumerate(held) for _ in range(own)], top_k))
    often = [sum(at in one for one in chosen) / len(chosen) for at in range(1, islands)]  # the first mixes
    most = min(up / max(often), down / sum(often)) / size / WIRE_OVERHEAD
    assert found.flight_rate == pytest.approx(most, rel=1e-9)
    assert found.busiest.startswith("line")


@pytest.mark.parametrize("rtt", ["1 ms", "20 ms", "200 ms"])
def test_a_line_starts_slowly_once_for_a_prompt(rtt):
    """Chunks follow one another on a line that has started: two hosts on a wide line take no longer than one host and the whole
    prompt at once on it, however long it is until that line has its rate."""
    hosts = {"name": "host", "gpus": "1xH100-SXM5-80GB", "count": 2}
    wan = {"default": {"bandwidth": "100 Gbps", "rtt": rtt, "streams": 64, "window": "64 MiB"}}
    scenario = shardmeter.load({
        "model": "llama-3.1-8b", "fleet": {"islands": [hosts], "wan": wan}, "run": {"seq_len": 512},
    })  # fmt: skip
    _, links = laid(scenario)
    for prompt in (512.0, 8192.0):
        alone = answer(scenario, how="local", prompt=prompt, output=1.0).first_time
        once = hop(links, 0, 1, prompt * 2.0 * 4096.0, cold=True)
        found = answer(scenario, how="pipeline", prompt=prompt, output=1.0).first_time
        assert found <= alone + once.seconds + once.delay + 1e-6
    assert found <= 0.75 * alone + once.seconds + once.delay  # chunks let both hosts work at once


@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(0.01, 5.0)), min_size=1, max_size=12))
def test_a_row_is_through_a_place_one_after_the_other(row):
    """As an event after the other says it."""
    come, takes = np.cumsum([gap for gap, _ in row]), [each for _, each in row]
    free, ends = 0.0, []
    for at, each in zip(come, takes, strict=True):
        free = max(free, at) + each
        ends.append(free)
    assert through(come, np.cumsum(takes)) == pytest.approx(ends)


def test_traversals_find_every_line_idle():
    """A further traversal costs what the first does, and the way round from the last host to the first."""
    scenario = shardmeter.load({
        "model": "llama-3.1-8b", "run": {"seq_len": 512},
        "fleet": {
            "islands": [{"name": "host", "gpus": "1xH100-SXM5-80GB", "count": 3}],
            "wan": {"default": {"bandwidth": "1 Gbps", "rtt": "100 ms", "streams": 16}},
        },
    })  # fmt: skip
    _, links = laid(scenario)
    asked = {"how": "block_train", "prompt": 512.0, "output": 256.0}
    one, two, three = (answer(scenario, **asked, traversals=times).output_time for times in (1.0, 2.0, 3.0))
    assert three - two == pytest.approx(two - one)
    line = hop(links, 0, 1, 768.0 * 2.0 * 4096.0, cold=True).seconds
    assert two - one - line == pytest.approx(one - hop(links, 0, 1, 4.0 * 256.0, cold=False).seconds)


def test_experts_beside_one_another_share_kernels():
    """A small expert is bound by the start of its kernels: four of them take hardly longer than one, never four times as long."""
    small = {
        "family": "decoder",
        "layers": 2,
        "hidden": 64,
        "ffn": 128,
        "heads": 2,
        "kv_heads": 2,
        "head_dim": 32,
        "vocab": 256,
    }
    scenario = shardmeter.load({"model": small, "gpus": "1xRTX 5090"})
    one, four = (answer(scenario, how="soma", experts=4, top_k=top_k).token_time for top_k in (1, 4))
    assert one < four < 1.5 * one
    large = {"batch": 65536.0, "in_flight": 65536.0}
    one, four = (answer(scenario, how="soma", experts=4, top_k=top_k, **large).token_time for top_k in (1, 4))
    assert 3.0 * one < four < 4.5 * one


def test_hosts_hold_the_whole_model_once():
    for seed in SEEDS[:8]:
        scenario = fleet(seed)
        for how in ("pipeline", "block_train"):
            found = answer(scenario, how=how, blocks=7)
            assert sum(host.layers for host in found.hosts) == scenario.model.layers
            if how == "block_train":
                assert sum(host.blocks for host in found.hosts) == 7
            weights = sum(float(host.memory[0].size * host.accelerators) for host in found.hosts)
            whole = 2.0 * shardmeter.families.parameters(scenario.model)
            assert whole <= weights <= 1.5 * whole  # what every rank holds whole, a tied matrix twice


def test_memory_decides_where_layers_lie():
    """A fast card with little memory gets what fits, and the slow one the rest."""
    islands = [{"name": "fast", "gpus": "1xRTX 5090"}, {"name": "large", "gpus": "1xH200-SXM-141GB"}]
    wan = {"default": {"bandwidth": "10 Gbps", "rtt": "5 ms"}}
    scenario = shardmeter.load({"model": "llama-3.1-70b", "fleet": {"islands": islands, "wan": wan}})
    found = {host.name: host for host in answer(scenario, how="pipeline").hosts}
    assert found["fast"].peak <= found["fast"].limit
    assert found["fast"].layers < 20


def test_groups_are_as_wide_as_the_heads_allow():
    island = shardmeter.load({"model": "qwen2.5-0.5b", "gpus": "8xH100-SXM5-80GB"})
    assert degree(island.model, island.fleet.islands[0], island.stack, 1.0) == 2.0  # 14 heads
    assert degree(island.model, island.fleet.islands[0], island.stack, 4.0) == 4.0  # said


def test_scalar_equals_vector():
    scenario = shardmeter.load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"})
    one = server(scenario.model, scenario.fleet.islands[0], 8.0, scenario.stack, "bf16")
    seen = np.array([10.0, 1000.0, 30_000.0])
    share = cut.shares(one.model, (32,))[0]
    many = np.asarray(one.cache(share, 4.0, seen))
    assert many.tolist() == [float(one.cache(share, 4.0, float(value))) for value in seen]


def test_islands_without_a_network_have_no_lines():
    assert lines(None, fleet(1).fleet.islands, [1.0]) is None
