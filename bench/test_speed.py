"""The speeds that are promised. Figures are printed; a test fails only at a wide margin, since machines are shared.

`pytest bench -s`, or `make bench`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.timeline.pipeline import pipeline
from shardmeter.engine.timeline.simulate import simulate
from shardmeter.scenario import load, opened
from shardmeter.scenario.ranges import axes
from shardmeter.schedules import Slot
from shardmeter.study.planning.plans import plan
from shardmeter.study.predict import predict
from shardmeter.study.transitions.reading import Reader

OPTIONS = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "tokens": "1T"}
COLD, WARM, PLANS = 0.6, 2e-3, 1e6
"""Bars: seconds of a cold process, seconds of a prediction in process, plans per second."""
MARGIN = 3.0
"""How far from a bar is a failure."""


@pytest.fixture(scope="module")
def scenario():
    """Llama 3.1 8B on 64 H100, as a user would ask."""
    return load(None, options=OPTIONS)


def mesh(scenario):
    """The open mesh `degrees`: tp × dp_shard × micro_batch × global_batch, every axis an array of its own dimension."""
    axes = np.ix_(
        2.0 ** np.arange(4),  # tp
        2.0 ** np.arange(3, 13),  # dp_shard
        np.arange(1.0, 65.0),  # micro_batch
        2.0 ** np.linspace(0, 8, 400),  # micro-batches of a step
    )
    tp, dp_shard, micro_batch, times = axes
    plan = changed(scenario.plan, tp=tp, dp_shard=dp_shard, micro_batch=micro_batch)
    run = changed(scenario.run, global_batch=dp_shard * micro_batch * times)
    return plan, run


def test_cold_predict():
    """A whole process, from the shell's point of view: the best of five."""
    options = [word for key, value in OPTIONS.items() for word in (f"--{key}", value)]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "shardmeter", "predict", *options], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    print(f"\ncold predict: {min(times) * 1e3:.0f} ms (bar {COLD * 1e3:.0f} ms)")
    assert min(times) < COLD * MARGIN


def test_warm_predict(benchmark, scenario):
    """One scalar prediction in process, with the figures that a loop reads; `to_dict` also evaluates some 20 changes."""

    def figures():
        answer = predict(scenario)
        return answer.step_time, answer.tokens_per_s, answer.mfu, answer.memory_peak_gib, answer.fits

    benchmark(figures)
    if benchmark.stats is not None:
        best = benchmark.stats.stats.min
        print(f"\nwarm predict: {best * 1e3:.2f} ms (bar {WARM * 1e3:.0f} ms)")
        assert best < WARM * MARGIN


def test_plans_per_second():
    """Points of the mesh `degrees` with every figure computed, divided by wall time: the best of three."""
    scenario = load(None, options={**OPTIONS, "gpus": "32768xH100-SXM5-80GB"})
    plan, run = mesh(scenario)
    island = scenario.fleet.islands[0]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        estimate = evaluate(scenario.model, island, plan, run, scenario.stack)
        fits = estimate.memory_peak <= estimate.memory_limit
        rate = estimate.tokens / estimate.step_time
        mfu = estimate.model_flops / (estimate.step_time * estimate.peak_flops)
        days = 1e12 / rate
        cost = estimate.gpus * days
        times.append(time.perf_counter() - start)
    points = np.broadcast(estimate.step_time, fits, rate, mfu, cost).size
    assert points == 4 * 10 * 64 * 400
    print(f"\nplans per second on the mesh `degrees` ({points:,} points): {points / min(times) / 1e6:.2f} M (bar 1 M)")
    assert points / min(times) > PLANS / MARGIN


SPACE = {
    "plan.pp": "1,2,4", "plan.schedule": "1f1b", "plan.micro_batch": "1,2,4,8", "run.seq_len": "512..32768:+512",
    "run.global_batch": "1024..65536:+1024",
}  # fmt: skip
"""The space `plans`: 10^8 plans of one island, with sequence and batch open."""
SEARCHED, LONGEST, LARGEST = 5e6, 25.0, 2**30
"""Bars of a search in two processes: plans a second, seconds of the space `plans`, bytes of the largest process."""


def test_search():
    """Every plan of the space through rules, memory, bound, time, list and front."""
    options = {"model": "llama-3.1-8b", "gpus": "1024xH100-SXM5-80GB"}
    question = load(None, options=options, overrides=[f"{name}={said}" for name, said in SPACE.items()], planning=True)
    seen: list[object] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = plan(question, processes=2, progress=seen.append)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    largest = 1024 * max(spent.ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    rate, free = found.tally.evaluated / found.seconds, 2.0 * found.tally.evaluated / busy
    print(
        f"\nsearch of {found.tally.evaluated:,} plans, {found.tally.feasible:,} feasible: {found.seconds:.1f} s (bar {LONGEST:.0f} s), "
        f"{rate / 1e6:.2f} M/s, {free / 1e6:.2f} M/s of two undisturbed processes (bar {SEARCHED / 1e6:.0f} M); "
        f"{largest / 2**20:.0f} MiB, told {len(seen)} times how far it is"
    )
    assert found.tally.evaluated > 1e8
    assert len(seen) > 20
    assert largest < LARGEST
    assert free > SEARCHED / MARGIN


def test_timeline():
    """The scheduler alone on 4,096 and on a million tasks."""
    for micro_batches, bar in ((128, 20e-3), (31_250, 60.0)):
        slots = [Slot(first=0, count=16, forward=1.0, input_grad=1.0, weight_grad=1.0)]
        program = pipeline("1f1b", slots, micro_batches, 1, 0.0)
        times = []
        for _ in range(3 if micro_batches < 1000 else 1):
            start = time.perf_counter()
            simulate(program)
            times.append(time.perf_counter() - start)
        print(f"\ntimeline of {len(program.tasks):,} tasks: {min(times) * 1e3:.1f} ms (bar {bar * 1e3:.0f} ms)")
        assert min(times) < bar * MARGIN


ALIKE, UNLIKE, POINTS = 50e-3, 0.4, 2.0
"""Bars of 100 islands: seconds of a prediction in process with five kinds, all unlike; seconds of a sweep of 10^4 points."""
RENTED = ("H100-SXM5-80GB", "A100-SXM4-80GB", "H800-SXM5-80GB", "H200-SXM-141GB", "A100-SXM4-40GB")


def test_hundred_islands():
    """10^5 accelerators: the batch shared, every inner step, the round that joins them. Seconds of the processor: best of five."""
    for unlike, bar in ((False, ALIKE), (True, UNLIKE)):
        islands: list[dict[str, Any]] = [
            {"name": f"i{at}", "accelerator": RENTED[at % 5], "nodes": 125 + (at if unlike else 0)} for at in range(100)
        ]
        nodes = sum(one["nodes"] for one in islands)
        scenario = load({
            "model": "llama-3.1-70b", "plan": {"sharding": "fsdp", "tp": 8, "recompute": "full", "sync": {"method": "diloco"}},
            "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "20 Gbps", "rtt": "50 ms"}}},
            "run": {"seq_len": 8192, "global_batch": 4 * nodes},
        })  # fmt: skip
        times = []
        for _ in range(5):
            start = time.process_time()
            assert predict(scenario).step_time > 0.0
            times.append(time.process_time() - start)
        print(
            f"\n100 islands, {'all unlike' if unlike else 'five kinds'}: {min(times) * 1e3:.0f} ms (bar {bar * 1e3:.0f} ms)"
        )
        assert min(times) < bar * MARGIN


def test_sweep_of_a_fleet():
    """10^4 points of the numbers of a synchronisation, each with every figure, read and checked. Seconds of the processor."""
    from shardmeter.study.api import sweep

    islands = [{"name": kind, "accelerator": kind, "nodes": 8} for kind in RENTED]
    scenario = {
        "model": "llama-3.1-70b", "plan": {"sharding": "fsdp", "recompute": "full", "sync": {"method": "diloco"}},
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "20 Gbps", "rtt": "50 ms"}}},
        "run": {"seq_len": 8192, "global_batch": 640},
    }  # fmt: skip
    axes = {"plan.sync.sync_every": "1..1000", "plan.sync.bits": [4, 6, 8, 10, 12, 14, 16, 20, 24, 32]}
    sweep(scenario, {"plan.sync.sync_every": [1, 2]})
    start = time.process_time()
    found = sweep(scenario, axes)
    spent = time.process_time() - start
    assert len(found) == 10_000
    print(f"\nsweep of {len(found):,} points of a fleet's synchronisation: {spent:.2f} s (bar {POINTS:.0f} s)")
    assert spent < POINTS * MARGIN


MAPS = {
    "fabric × sequence": ("llama-8b-64xh100", ("fleet.islands.0.fabric.bandwidth=1Gbps..800Gbps:log100", "run.seq_len=512..51200:+512")),
    "network × H": ("unreliable-diloco", ("fleet.wan.default.bandwidth=100Mbps..100Gbps:log100", "plan.sync.sync_every=1..100")),
}  # fmt: skip
"""Maps of 10^4 points: an example, and its axes."""
MAP = 1.0
"""Bar: seconds of such a map, every point read for its regimes."""


@pytest.mark.parametrize("name", MAPS)
def test_a_map_of_regimes(name):
    """Processor seconds of 10^4 points, what is resolved on the way among them: the best of three."""
    example, over = MAPS[name]
    document, rows = opened(f"examples/{example}.yaml", overrides=(), catalog=None, options={})
    times = []
    for _ in range(3):
        start = time.process_time()
        reading = Reader(document, rows).read(axes(over))
        times.append(time.process_time() - start)
    assert np.all(reading.legal)
    print(f"\nmap of regimes, {name}: {len(reading.step):,} points in {min(times):.2f} s (bar {MAP:.0f} s)")
    assert min(times) < MAP * MARGIN
