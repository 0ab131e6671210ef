"""The fit: numbers that made up the rows are found again, the same rows give the same numbers, nothing leaves its bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Fleet, Plan, Run, Scenario
from shardmeter.study.fit.batch import batches, step_times
from shardmeter.study.fit.leave_out import (
    ENOUGH,
    FitRow,
    fit_rows,
    fit_stacks,
    five_row_error,
    leave_one_source_out,
    stand_in,
)
from shardmeter.study.fit.stacks import PRIORS

pytest.importorskip("scipy")
CATALOG = load_catalog()
STACK = CATALOG.stack("titan-compile")
DEVICE = CATALOG.accelerator("A100-SXM4-80GB")
TRUTHS = (
    {"gemm_factor": 0.72, "traffic_factor": 1.7, "launch_overhead": 55e-6, "nic_factor": 0.42, "contention": 0.55},
    {"gemm_factor": 0.97, "traffic_factor": 0.8, "launch_overhead": 18e-6, "nic_factor": 0.8, "contention": 0.3},
)


def scenarios(truth: dict[str, float]) -> list[Scenario]:
    """Sizes from launch-bound to product-bound, in one node and in eight, under a stack of known numbers."""
    found = []
    for name, nodes, micro, seq in product(("llama-3.2-1b", "llama-3.1-8b"), (1.0, 8.0), (1.0, 4.0), (512.0, 4096.0)):
        island = build_island(accelerator=DEVICE, nodes=nodes, gpus_per_node=8.0, fabric=CATALOG.fabric("ib-hdr200"))
        plan = Plan(dp_shard=8.0 * nodes, micro_batch=micro)
        run = Run(seq_len=seq, global_batch=plan.dp * micro * 2.0)
        found.append(
            Scenario(
                model=CATALOG.model(name),
                stack=changed(STACK, **truth),
                fleet=Fleet(islands=(island,)),
                plan=plan,
                run=run,
            )
        )
    return found


def made(truth: dict[str, float], source: str = "made", stack: str = "own", noise: float = 0.0) -> list[FitRow]:
    """Rows whose time is the engine's own, a little off if `noise`."""
    rows = []
    factors = np.random.default_rng(7).normal(1.0, noise, 64)
    for place, scenario in enumerate(scenarios(truth)):
        step = evaluate(
            scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack
        ).step_time
        told = changed(scenario, stack=STACK)  # the numbers that made the row are not told
        rows.append(
            FitRow(
                id=f"{source}-{place}",
                source=source,
                stack=stack,
                scenario=told,
                step_time=float(step) * factors[place],
            )
        )
    return rows


@pytest.mark.parametrize("truth", TRUTHS, ids=["slow", "quick"])
def test_the_numbers_that_made_the_rows_are_found_again(truth: dict[str, float]) -> None:
    flat = {name: changed(prior, spread=100.0) for name, prior in PRIORS.items()}
    found = fit_rows(made(truth), flat)
    assert found.rows == len(made(truth))
    assert found.numbers == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("truth", TRUTHS, ids=["slow", "quick"])
def test_the_shipped_priors_pull_a_little_and_leave_the_times_right(truth: dict[str, float]) -> None:
    rows = made(truth)
    found = fit_rows(rows)
    assert found.numbers == pytest.approx(truth, rel=0.2)
    again = step_times(batches([changed(r.scenario, stack=changed(STACK, **found.numbers)) for r in rows]), len(rows))
    assert np.max(np.abs(again / np.array([row.step_time for row in rows]) - 1.0)) < 0.01


def test_a_few_percent_of_noise_move_the_numbers_by_a_few_percent() -> None:
    found = fit_rows(made(TRUTHS[0], noise=0.02))
    assert found.numbers["gemm_factor"] == pytest.approx(TRUTHS[0]["gemm_factor"], rel=0.05)
    assert found.numbers["nic_factor"] == pytest.approx(TRUTHS[0]["nic_factor"], rel=0.15)


def test_the_same_rows_give_the_same_numbers() -> None:
    first, second = (fit_rows(made(TRUTHS[0], noise=0.02)) for _ in range(2))
    assert first == second


def test_numbers_stay_inside_their_bounds_whatever_was_measured() -> None:
    rows = made(TRUTHS[0])
    for times in (1e-3, 1e3):
        found = fit_rows([changed(row, step_time=row.step_time * times) for row in rows])
        for name, prior in PRIORS.items():
            assert prior.low <= found.numbers[name] * (1.0 + 1e-9), name
            assert found.numbers[name] <= prior.high * (1.0 + 1e-9), name


def test_one_batched_evaluation_is_many_single_ones() -> None:
    rows = made(TRUTHS[1])
    groups = batches([row.scenario for row in rows])
    assert len(groups) < len(rows), "rows of equal structure go together"
    assert sorted(place for group in groups for place in group.places) == list(range(len(rows)))
    whole = step_times(groups, len(rows), {"gemm_factor": np.array([0.6, 0.9]), "nic_factor": np.array([0.3, 1.0])})
    for point, numbers in enumerate(({"gemm_factor": 0.6, "nic_factor": 0.3}, {"gemm_factor": 0.9, "nic_factor": 1.0})):
        for place, row in enumerate(rows):
            s = row.scenario
            alone = evaluate(s.model, s.fleet.islands[0], s.plan, s.run, changed(s.stack, **numbers))
            assert whole[point, place] == float(alone.step_time)


def test_a_source_is_predicted_without_itself() -> None:
    seen, other = made(TRUTHS[0], "one"), made(TRUTHS[1], "two", stack="other")
    rows = [*seen, *other]
    fits = fit_stacks(rows)
    predicted = leave_one_source_out(rows, rows, fits)
    in_sample = np.abs(
        step_times(
            batches([changed(r.scenario, stack=changed(STACK, **fits[r.stack].numbers)) for r in rows]), len(rows)
        )
        / np.array([row.step_time for row in rows])
        - 1.0
    )
    left_out = np.abs(predicted / np.array([row.step_time for row in rows]) - 1.0)
    assert in_sample.mean() < 0.01
    assert left_out.mean() > 0.1, "each stack is stood in for by the other"
    crooked = [changed(row, step_time=row.step_time * 3.0) if row.source == "one" else row for row in rows]
    moved = leave_one_source_out(crooked, rows, fit_stacks(crooked))
    assert np.array_equal(moved[: len(seen)], predicted[: len(seen)]), (
        "what a source measured does not reach its answer"
    )
    assert not np.allclose(moved[len(seen) :], predicted[len(seen) :])


def test_a_stack_with_enough_other_rows_keeps_its_own_numbers() -> None:
    rows = [*made(TRUTHS[0], "one"), *made(TRUTHS[0], "two"), *made(TRUTHS[1], "three", stack="other")]
    assert len(made(TRUTHS[0])) >= ENOUGH
    predicted = leave_one_source_out(rows, rows, fit_stacks(rows))
    errors = np.abs(predicted / np.array([row.step_time for row in rows]) - 1.0)
    assert errors[: 2 * len(made(TRUTHS[0]))].max() < 0.01


def test_the_stand_in_is_the_median_and_five_rows_are_enough_to_leave_it() -> None:
    fits = {name: fit_rows(made(truth)) for name, truth in zip("ab", TRUTHS, strict=True)}
    middle = stand_in(fits)
    for name in PRIORS:
        assert middle[name] == pytest.approx(sum(found.numbers[name] for found in fits.values()) / 2.0)
    rows = made(TRUTHS[0])
    five = five_row_error(rows, middle, draws=2)
    told = [changed(row.scenario, stack=changed(STACK, **middle)) for row in rows]
    unseen = np.abs(step_times(batches(told), len(rows)) / np.array([row.step_time for row in rows]) - 1.0).mean()
    assert five is not None
    assert five < unseen
    assert five_row_error(rows[:9], middle) is None
