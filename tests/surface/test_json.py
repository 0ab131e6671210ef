"""The JSON that scripts rely on: the keys of the contract, SI numbers finite or null."""

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from shardmeter.cli import main

TEMPLATE = str(Path(__file__).parents[2] / "examples" / "measured-template.csv")
ALWAYS = {"version", "data_date", "assumptions", "warnings"}
PREDICT = ALWAYS | {
    "fits",
    "fits_probability",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "samples_per_s",
    "mfu",
    "hfu",
    "tflops_per_gpu",
    "memory",
    "islands",
    "ledger",
    "bottleneck",
    "run",
    "intervals",
}
ISLAND = {
    "name",
    "gpus",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "memory_peak_gib",
    "compute_utilization",
}
RUN = {
    "wall_clock_s",
    "gpu_hours",
    "tokens",
    "steps",
    "goodput",
    "cost_usd",
    "cost_terms",
    "energy_kwh",
    "carbon_kg",
}
VALIDATE = ALWAYS | {
    "rows",
    "scored",
    "skipped",
    "excluded",
    "identities",
    "metrics",
    "by_source",
    "by_group",
    "ranking",
    "failures",
    "transfer",
    "rows_detail",
}
METRICS = {"n", "mape", "median_ape", "p90_ape", "bias", "within_10pct", "coverage_90", "loso_mape"}
QUESTION = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp", "--tokens", "1T"]


def answer(capsys, *arguments):
    code = main([*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))


def numbers(data):
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            yield from numbers(item)
    elif isinstance(data, float):
        yield data


def test_predict(capsys):
    code, data = answer(capsys, "predict", *QUESTION)
    assert code in (0, 1)
    assert set(data) >= PREDICT
    assert set(data["memory"]) >= {"peak_gib", "allocated_gib", "limit_gib", "terms"}
    assert all(set(island) >= ISLAND for island in data["islands"])
    assert all(set(term) >= {"term", "seconds", "share", "hidden_seconds", "cause"} for term in data["ledger"])
    assert set(data["bottleneck"]) >= {"term", "share", "advice", "cause", "cause_share", "cause_terms", "relief"}
    changes = [*data["bottleneck"]["relief"], *data["way_out"]]
    assert all(set(one) >= {"change", "set", "step_time_s", "gain", "fits"} for one in changes)
    assert set(data["run"]) >= RUN
    assert set(data["intervals"]) >= {"level", "step_time_s", "tokens_per_s", "memory_peak_gib", "basis"}
    assert all(math.isfinite(number) for number in numbers(data))


def test_the_terms_are_the_totals(capsys):
    _, data = answer(capsys, "predict", *QUESTION)
    total = 0.0
    for term in data["ledger"]:
        total += term["seconds"]
    assert total == data["step_time_s"]
    assert sum(term["share"] for term in data["ledger"]) == pytest.approx(1)
    assert sum(term["gib"] for term in data["memory"]["terms"]) == pytest.approx(data["memory"]["peak_gib"])
    assert (data["memory"]["peak_gib"] <= data["memory"]["limit_gib"]) == data["fits"]


def test_the_steps_of_a_run_are_whole_and_enough_for_its_tokens(capsys):
    _, data = answer(capsys, "predict", *QUESTION)
    run, each = data["run"], data["tokens_per_s"] * data["step_time_s"]
    assert run["steps"] == math.ceil(run["tokens"] / each)
    assert run["wall_clock_s"] == pytest.approx(run["tokens"] / data["tokens_per_s"])


def test_no_tokens_no_run(capsys):
    _, data = answer(capsys, "predict", *QUESTION[:-2])
    assert data["run"] is None
    assert data["assumptions"]


def test_explain(capsys):
    code, data = answer(capsys, "explain", *QUESTION)
    assert code == 0
    assert set(data) >= PREDICT | {"steps", "terms", "citations"}
    assert {"formula", "arguments", "value", "units", "cite", "times"} <= set(data["steps"][0])
    _, part = answer(capsys, "explain", *QUESTION, "--term", "gemm")
    assert 0 < len(part["steps"]) < len(data["steps"])


@pytest.mark.parametrize("kind", ["accelerators", "fabrics", "instances", "models", "stacks"])
def test_catalog(capsys, kind):
    code, data = answer(capsys, "catalog", kind)
    assert code == 0
    assert set(data) >= ALWAYS | {"kind", "rows"}
    assert data["rows"]
    name = data["rows"][0]["name"]
    code, one = answer(capsys, "catalog", kind, name)
    assert code == 0
    assert one["row"]["name"] == name


@pytest.mark.parametrize(
    ("name", "parameters", "active", "predicting"),
    [
        ("llama-3.1-8b", 8_030_261_248, 8_030_261_248, 0),
        ("mixtral-8x7b", 46_702_792_704, 12_879_925_248 - 32 * 6 * 4096, 0),
        ("deepseek-v3", 671_026_404_352, 671_026_404_352 - 58 * 248 * (3 * 7168 * 2048 + 7168), 11_610_067_968),
        ("llava-1.5-7b", 7_063_427_072, 7_063_427_072, 0),
    ],
)
def test_catalog_counts_the_parameters_of_a_model(capsys, name, parameters, active, predicting):
    _, data = answer(capsys, "catalog", "models", name)
    assert data["parameters"] == parameters
    assert data["active_parameters"] == active
    assert data["prediction_parameters"] == predicting
    main(["catalog", "models", name])
    assert f"active parameters  {active:,}" in re.sub(" {2,}", "  ", capsys.readouterr().out)


def test_no_other_kind_has_parameters(capsys):
    _, data = answer(capsys, "catalog", "stacks", "titan-compile")
    assert "parameters" not in data


def test_validate(capsys, shipped_report):
    code, own = answer(capsys, "validate", TEMPLATE)
    assert code == 0
    assert set(own) >= VALIDATE
    data = shipped_report
    assert set(own) == {*data, "version", "data_date"}
    assert set(data["metrics"]) >= {"step_time", "memory"}
    assert set(data["metrics"]["step_time"]) >= METRICS
    assert all(set(entry) >= METRICS for entry in data["by_source"].values())
    assert all(set(entry) >= {"id", "reason"} for entry in data["skipped"] + data["excluded"])
    assert data["rows"] == data["scored"] + len(data["skipped"]) + len(data["excluded"]) + len(data["identities"])


def test_csv_is_one_flat_row(capsys):
    main(["predict", *QUESTION, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 1
    assert float(rows[0]["step_time_s"]) > 0
    assert float(rows[0]["memory.peak_gib"]) > 0
