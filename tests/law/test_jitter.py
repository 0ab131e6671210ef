"""What a step waits for its slowest rank: the expected maximum against an integral, the closed form against drawn timelines."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.timeline.build import build, case_of, stragglers
from shardmeter.engine.timeline.overlap import run
from shardmeter.physics.jitter import expected_largest
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Estimate, Island, Plan, Run, Tier

CATALOG = load_catalog()
DEVICE = CATALOG.accelerator("H100-SXM5-80GB")
MODEL = changed(CATALOG.model("llama-3.1-8b"), layers=8)
STACK = changed(CATALOG.stack("titan-compile"), contention=0.0, launch_overhead=1e-7, pipeline_overlap=True)
SEEDS = 400


def integrated(ranks: float) -> float:
    """∫ over x > 0 of 1 − Φ(x)ⁿ, less ∫ over x < 0 of Φ(x)ⁿ."""
    x = np.linspace(-9.0, 9.0, 36001)
    above = np.array([0.5 * math.erfc(one / math.sqrt(2.0)) for one in x])
    below = np.exp(ranks * np.log1p(-np.minimum(above, 1.0 - 1e-16)))
    step = float(x[1] - x[0])
    return float(np.sum(np.where(x > 0.0, 1.0 - below, -below)) * step)


@pytest.mark.parametrize(("ranks", "error"), [
    (2, 0.046), (3, 0.028), (4, 0.02), (8, 0.01), (16, 0.01), (64, 0.01), (1024, 0.01), (1e5, 0.01), (1e6, 0.01),
])  # fmt: skip
def test_the_expected_largest_of_normal_variates(ranks: float, error: float) -> None:
    assert float(expected_largest(float(ranks))) == pytest.approx(integrated(float(ranks)), rel=error)


def test_one_rank_waits_for_nobody_and_more_ranks_wait_longer() -> None:
    found = np.asarray(expected_largest(np.array([1.0, *range(2, 2000), 1e4, 1e5, 1e6])))
    assert found[0] == 0.0
    assert np.all(np.diff(found) > 0.0)


def island(gpus: float) -> Island:
    wire = Tier(
        name="one switch", size=gpus, bandwidth=4e12, share=1.0, latency=0.0, latency_step=0.0, latency_start=0.0
    )
    return Island(name="x", accelerator=DEVICE, nodes=gpus / 8.0, gpus_per_node=8.0, tiers=(wire,))


def asked(plan: Plan, micro_batches: float, jitter: float) -> Estimate:
    run_asked = Run(seq_len=4096.0, global_batch=micro_batches * plan.dp)
    return evaluate(MODEL, island(float(plan.gpus)), plan, run_asked, changed(STACK, jitter=jitter))


def waited(estimate: Estimate) -> float:
    return float(next(term.seconds for term in estimate.terms if term.label == "stragglers"))


@pytest.mark.parametrize("plan", [
    Plan(sharding="ddp", dp_shard=16.0), Plan(sharding="fsdp", dp_shard=64.0), Plan(sharding="ddp", tp=2.0, dp_shard=4.0),
    Plan(sharding="ddp", dp_shard=8.0, pp=4), Plan(sharding="none", tp=8.0, pp=8, schedule="gpipe"),
    Plan(sharding="fsdp", dp_shard=16.0, pp=2),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("micro_batches", [1.0, 8.0])
def test_the_mean_of_drawn_timelines_is_the_closed_form(plan: Plan, micro_batches: float) -> None:
    jitter = 0.02
    case = case_of(
        MODEL, island(float(plan.gpus)), plan, Run(seq_len=4096.0, global_batch=micro_batches * plan.dp), STACK
    )
    plain, ranks = run(build(case)).makespan, float(plan.gpus) / plan.pp
    draws = [stragglers(seed, plan.pp, jitter, ranks) for seed in range(SEEDS if plan.pp == 1 else SEEDS // 4)]
    if plan.pp == 1:  # the step is linear in one pace: two runs give them all
        slope = (run(build(case, pace=(1.0 + jitter,))).makespan - plain) / jitter
        drawn = fmean(slope * (pace[0] - 1.0) for pace in draws)
    else:
        drawn = fmean(run(build(case, pace=pace)).makespan for pace in draws) - plain
    assert waited(asked(plan, micro_batches, jitter)) == pytest.approx(drawn, rel=0.1)


@pytest.mark.parametrize("ranks", [1.0, 8.0, 1000.0])
def test_a_stage_goes_at_the_pace_of_its_slowest_rank(ranks: float) -> None:
    paces = [pace for seed in range(SEEDS) for pace in stragglers(seed, 8, 0.05, ranks)]
    assert fmean(paces) == pytest.approx(1.0 + 0.05 * integrated(ranks), abs=0.003)
    assert max(paces) <= 1.0 + 0.05 * NormalDist().inv_cdf(1.0 - 1e-15)


def test_no_jitter_and_one_rank_wait_for_nobody() -> None:
    assert waited(asked(Plan(sharding="ddp", dp_shard=16.0), 4.0, 0.0)) == 0.0
    assert waited(asked(Plan(sharding="none"), 4.0, 0.1)) == 0.0
    steps = [float(asked(Plan(sharding="ddp", dp_shard=16.0), 4.0, jitter).step_time) for jitter in (0.0, 0.01, 0.05)]
    assert steps == sorted(set(steps))
