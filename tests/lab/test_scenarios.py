"""What the engine is asked of an experiment, and what it is told of an island that was timed alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmeter.core.errors import BadData
from shardmeter.core.record import changed
from shardmeter.engine.crossing import price
from shardmeter.families import parameters
from shardmeter.lab import alone, prediction, scenarios, shapes, study
from shardmeter.lab.alone import Step
from shardmeter.lab.records import Experiment
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Sync
from shardmeter.specs.round import Crossing
from shardmeter.study.predict import predict

BUNDLED = {one.name: one for one in study.read("bundled").experiments}
OF_METHOD = {one.method: one for one in BUNDLED.values()}
TRAINED = sorted(set(OF_METHOD) - {"all_reduce"})
STEP = 0.08


def timed(seconds: float = STEP) -> Step:
    return Step(seconds=seconds, low=seconds, high=seconds, steps=9.0)


def rows(one: Experiment, folder: Path, seconds: float = STEP) -> tuple[alone.Calibrated, ...]:
    return alone.calibrated(one, [(places, timed(seconds), one.name) for places in alone.kinds(one)], folder)


def answer(one: Experiment, folder: Path, **more: Any) -> dict[str, Any]:
    question = scenarios.scenario(one, alone.rows(one, rows(one, folder)), **more)
    return predict(load(question, catalog=load_catalog((folder,)))).to_dict()


@pytest.mark.parametrize("method", TRAINED)
def test_predict_says_the_step_that_was_timed_alone(method: Any, tmp_path: Path) -> None:
    one = OF_METHOD[method]
    (found,) = rows(one, tmp_path)
    said = alone.said_step(scenarios.alone(one, 0, found.row), tmp_path)
    assert said == pytest.approx(STEP, rel=1e-3)
    assert found.rate > 0


@pytest.mark.parametrize("seconds", [1e-4, 0.02, 3.0, 200.0])
def test_any_step_has_a_rate(seconds: Any, tmp_path: Path) -> None:
    one = OF_METHOD["diloco"]
    rows(one, tmp_path, seconds)
    assert alone.said_step(scenarios.alone(one, 0, "lab-1"), tmp_path) == pytest.approx(seconds, rel=1e-3)


def test_a_step_that_no_rate_gives_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no rate of products"):
        rows(OF_METHOD["diloco"], tmp_path, 1e-9)


@pytest.mark.parametrize("method", TRAINED)
def test_a_round_is_at_least_its_steps_and_more_bandwidth_is_never_slower(method: Any, tmp_path: Path) -> None:
    one = OF_METHOD[method]
    usual = answer(one, tmp_path / "usual")["sync"]
    wide = answer(
        changed(one, line=changed(one.line, bandwidth=10.0 * one.line.bandwidth), lines=()), tmp_path / "wide"
    )["sync"]
    stages = len(one.sites) if method == "pipeline" else 1
    assert usual["round_s"] >= STEP * usual["period_steps"] / stages * (1.0 - 1e-3)
    assert wide["round_s"] <= usual["round_s"] * (1.0 + 1e-9)


@pytest.mark.parametrize("method", TRAINED)
def test_a_line_that_is_not_shaped_takes_almost_nothing(method: Any, tmp_path: Path) -> None:
    """What is left of the round is compute: for the pipelines the bubble too."""
    said = answer(OF_METHOD[method], tmp_path, shaped=False)["sync"]
    assert said["round_s"] <= STEP * said["period_steps"] * 1.2


def test_unlike_islands_have_rows_of_their_own(tmp_path: Path) -> None:
    one = OF_METHOD["diloco"]
    sites = (changed(one.sites[0], pace=5e9), *one.sites[1:])
    unlike = changed(one, sites=sites)
    kinds = alone.kinds(unlike)
    assert kinds == ((0,), tuple(range(1, len(sites))))
    steps = [(kinds[0], timed(0.2), "x"), (kinds[1], timed(0.1), "y")]
    found = alone.calibrated(unlike, steps, tmp_path)
    assert alone.rows(unlike, found) == ["lab-1", *["lab-2"] * (len(sites) - 1)]
    said = predict(
        load(scenarios.scenario(unlike, alone.rows(unlike, found)), catalog=load_catalog((tmp_path,)))
    ).to_dict()
    assert [each["step_time_s"] for each in said["islands"]] == pytest.approx(
        [0.2, *[0.1] * (len(sites) - 1)], rel=1e-3
    )


def test_what_is_alike_is_timed_once() -> None:
    one = OF_METHOD["diloco"]
    assert alone.key(one, 0) == alone.key(
        changed(one, name="other", method="noloco", settings=(("sync_every", 3.0),)), 1
    )
    assert alone.key(one, 0) != alone.key(changed(one, batch=one.batch + 1), 0)
    assert alone.key(one, 0) != alone.key(changed(one, method="fsdp2"), 0)


@pytest.mark.parametrize("name", ["small", "tiny"])
def test_the_models_have_as_many_parameters_as_those_that_are_trained(name: Any) -> None:
    shape = next(one.model for one in BUNDLED.values() if one.model.name == name)
    made = load({"model": scenarios.model(shape), "gpus": "1xH100-SXM5-80GB", "plan": "none"}).model
    assert parameters(made) == pytest.approx(shapes.parameters(shape), rel=2e-3)


def test_a_probe_is_priced_as_the_engine_prices_its_messages(tmp_path: Path) -> None:
    one = OF_METHOD["all_reduce"]
    question, said = prediction.made(one, (), tmp_path, shaped=True)
    assert question == {}
    network = load(scenarios.scenario(changed(OF_METHOD["diloco"], sites=one.sites, line=one.line, lines=one.lines),
                                      ["H100-SXM5-80GB"] * len(one.sites), "titan-eager")).fleet.wan  # fmt: skip
    assert network is not None
    cells = [(at,) for at in range(len(one.sites))]
    for point in said["probes"]:
        crossed = price(Crossing(label="", collective="all_reduce", size=float(point["bytes"])), network, cells, Sync())
        assert point["seconds"] == pytest.approx(float(crossed.seconds))
    assert said["round_s"] == pytest.approx(sum(point["seconds"] for point in said["probes"]))


def test_a_prediction_is_on_the_disk_with_its_time_and_digest(tmp_path: Path) -> None:
    digest = prediction.store({"round_s": 1.0}, tmp_path)
    stored = json.loads((tmp_path / prediction.FILE).read_text(encoding="utf-8"))
    assert stored["round_s"] == 1.0
    assert stored["predicted_at"] > 1e9
    assert digest == prediction.digest(tmp_path / prediction.FILE)
    (tmp_path / prediction.FILE).write_text("{}", encoding="utf-8")
    assert digest != prediction.digest(tmp_path / prediction.FILE)


def test_a_calibrating_run_gives_the_median_without_its_first_step(tmp_path: Path) -> None:
    lines = [
        {"event": "step", "t": float(at), "step": at, "seconds": seconds, "loss": 1.0}
        for at, seconds in enumerate([9.0, 1.0, 1.2, 1.1])
    ]
    (tmp_path / "rank-0.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "st', encoding="utf-8"
    )
    found = alone.timed(tmp_path)
    assert (found.seconds, found.steps) == (1.1, 3.0)
    (tmp_path / "rank-0.jsonl").write_text(json.dumps(lines[0]) + "\n", encoding="utf-8")
    with pytest.raises(BadData, match="0 steps of the island alone"):
        alone.timed(tmp_path)
    (tmp_path / "rank-0.jsonl").write_text("no event\n", encoding="utf-8")
    with pytest.raises(BadData, match=r"rank-0.jsonl:1: no event"):
        alone.timed(tmp_path)
