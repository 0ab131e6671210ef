"""Calibration: recorded scores hold, few rows tell of the others, intervals shrink, a bad row does not lead."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from shardmeter import data
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study import intervals
from shardmeter.study.calibrate.calibration import calibrate, save
from shardmeter.study.calibrate.observation import Observation
from shardmeter.study.calibrate.score import grids, score
from shardmeter.study.predict import predict
from shardmeter.study.validate import shipped

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANS = ({"tp": 1, "micro_batch": 1}, {"tp": 4, "micro_batch": 2}, {"tp": 8, "micro_batch": 4})
TRUE = {"gemm_factor": 0.60, "traffic_factor": 1.9, "scale_up_factor": 0.8}
"""The planted stack: slower products, more traffic, slower links than the one that is calibrated."""


@pytest.fixture(scope="module")
def runs() -> tuple[Observation, ...]:
    """Runs whose step times are what a planted stack gives."""
    return tuple(observed(plan) for plan in PLANS)


def observed(plan: dict[str, int], longer: float = 1.0) -> Observation:
    scenario = load(
        EXAMPLES / "llama-8b-64xh100.yaml", overrides={f"plan.{name}": value for name, value in plan.items()}
    )
    planted = changed(scenario, stack=changed(scenario.stack, **TRUE))
    return Observation(id=f"tp{plan['tp']}", scenario=scenario, step_time=longer * predict(planted).step_time)


def test_three_runs_tell_of_a_fourth(runs: tuple[Observation, ...], tmp_path: Path) -> None:
    answer = calibrate(runs, "ours", date="2026-11-30")
    fourth = observed({"tp": 2, "micro_batch": 1})
    missed: list[float] = [
        abs(float(predict(changed(fourth.scenario, stack=stack)).step_time) / float(fourth.step_time) - 1.0)
        for stack in (answer.before, answer.after)
    ]
    before, after = missed
    assert before > 0.1
    assert after < 0.35 * before
    save(answer, tmp_path)
    again = predict(load(EXAMPLES / "llama-8b-64xh100.yaml", catalog=[tmp_path], options={"stack": "ours"})).to_dict()
    low, high = again["intervals"]["step_time_s"]
    never = intervals.factors("step_time", "", fitted=False)
    assert low < again["step_time_s"] < high
    assert never is not None
    assert high / low < 0.8 * never[1] / never[0]
    assert "ours, calibrated on 1 row of tp1" in again["intervals"]["basis"]


def test_intervals_of_numbers_shrink_with_runs(runs: tuple[Observation, ...]) -> None:
    one, three = calibrate(runs[:1]), calibrate(runs)

    def width(bounds: dict[str, tuple[float, float]]) -> float:
        return float(np.mean([np.log(high / low) for low, high in bounds.values()]))

    assert width(one.found.bounds) < width(one.prior_bounds)
    assert width(three.found.bounds) < width(three.prior_bounds)
    assert three.factors[1] / three.factors[0] < one.factors[1] / one.factors[0]


def test_a_run_that_is_wrong_is_named_and_counts_little(runs: tuple[Observation, ...]) -> None:
    wrong = observed({"tp": 2, "micro_batch": 2}, longer=6.0)
    answer = calibrate((*runs, wrong))
    assert [bool(p > 0.5) for p in answer.bad] == [False, False, False, True]
    assert any(text.startswith("tp2: does not agree") for text in answer.to_dict()["warnings"])
    clean = calibrate(runs)
    assert answer.predicted[0][1] == pytest.approx(clean.predicted[0][1], rel=0.05)


def test_what_cannot_be_calibrated_is_said_at_once(runs: tuple[Observation, ...]) -> None:
    far = load(EXAMPLES / "intellect-1.yaml")
    with pytest.raises(BadScenario, match="far: 14 islands"):
        calibrate((runs[0], Observation(id="far", scenario=far, step_time=1.0)))
    with pytest.raises(BadScenario, match="0 runs"):
        calibrate(())


def test_recorded_scores_are_what_a_grid_gives() -> None:
    """docs/calibration.md: its smallest grid again, the medians of all, and what no grid loses."""
    with data.open_text("calibration.csv") as file:
        recorded = list(csv.DictReader(file))
    name, rows = min(grids(load_catalog()).items(), key=lambda one: len(one[1]))
    (again,) = score(name, rows, seen=(3,))
    (line,) = [one for one in recorded if one["grid"] == name and one["seen"] == "3"]
    assert (again.before, again.after) == pytest.approx((float(line["before"]), float(line["after"])), abs=1e-3)
    left_out = [shipped.left_out()[row.id, "step_time"] / row.step_time - 1.0 for row in rows]
    assert again.before == pytest.approx(np.mean(np.abs(left_out)), abs=0.01)
    for seen, cut, most in (("3", 0.23, 0.011), ("5", 0.27, 0.0)):
        some = np.array([(float(one["before"]), float(one["after"])) for one in recorded if one["seen"] == seen])
        assert len(some) == 17
        assert np.median(1.0 - some[:, 1] / some[:, 0]) > cut
        assert np.max(some[:, 1] - some[:, 0]) < most
