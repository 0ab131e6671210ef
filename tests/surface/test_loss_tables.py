"""Tables of losses that a law is fitted to: odd ones are answered, warned of or refused with their rows, and none takes long."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.physics.convergence import law_loss

ONE: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,micro_batch=1"}
TRUE = (1.7, 300.0, 0.33, 900.0, 0.34, 1.0)
GRID = [(n, d) for n in (1e8, 6e8, 3.6e9) for d in (2e9, 2e10, 2e11)]


def rows(noise=0.0, pairs=GRID):
    rng = np.random.default_rng(2)
    return [(n, d, float(law_loss(n, d, *TRUE)) * float(np.exp(noise * rng.standard_normal()))) for n, d in pairs]


def asked(folder: Path, table, *, ends="\n", **run) -> dict[str, Any]:
    path = folder / "runs.csv"
    lines = ("parameters,tokens,loss", *(",".join(map(str, row)) for row in table))
    path.write_bytes((ends.join(lines) + ends).encode())
    return {**ONE, "run": {"law": str(path), **(run or {"tokens": "200B"})}}


def answer(*given, **run):
    return shardmeter.predict(asked(*given, **run)).to_dict()


def refused(*given, **run) -> str:
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict(asked(*given, **run))
    return str(caught.value)


def test_one_loss_near_zero_moves_nothing_and_is_named(tmp_path):
    table = rows()
    n, d, _ = table[4]
    table[4] = (n, d, 1e-6)
    found = answer(tmp_path, table)
    assert found["run"]["loss"] == pytest.approx(float(law_loss(8.03e9, 2e11, *TRUE)), rel=0.02)
    assert [one for one in found["warnings"] if "line 6 (6e+08,2e+10,1e-06)" in one]


@pytest.mark.parametrize("ends", ["\r", "\r\n", "\n\n"], ids=["CR", "CRLF", "empty lines"])
def test_lines_end_as_any_system_ends_them(tmp_path, ends):
    assert answer(tmp_path, rows(0.01), ends=ends)["run"]["loss"] == answer(tmp_path, rows(0.01))["run"]["loss"]


def test_a_cell_beyond_the_readers_limit_is_refused_with_its_line(tmp_path):
    assert "runs.csv:3: not readable as CSV" in refused(tmp_path, [(1e9, 1e10, 2.0), (1e9, 1e10, "2" * 1_200_000)])


def test_a_table_of_too_many_rows_is_refused_at_once(tmp_path):
    table, start = [(1e8 + at, 1e10, 3.0) for at in range(100_000)], time.monotonic()
    assert "100,000 rows; a law is fitted to at most 1,000" in refused(tmp_path, table)
    assert time.monotonic() - start < 10.0


def test_forty_noisy_rows_are_fitted_with_all_draws_in_seconds(tmp_path):
    rng = np.random.default_rng(3)
    pairs = np.column_stack([10.0 ** rng.uniform(8, 10, 40), 10.0 ** rng.uniform(9.3, 11.5, 40)]).tolist()
    start = time.monotonic()
    found = answer(tmp_path, rows(0.02, pairs))
    assert time.monotonic() - start < 10.0  # two or three on an idle core
    low, high = found["intervals"]["loss"]
    assert low < float(law_loss(8.03e9, 2e11, *TRUE)) < high


def test_a_run_that_is_repeated_is_one_run(tmp_path):
    text = refused(tmp_path, rows(0.0, GRID[:2] + GRID[4:6]) * 3)
    assert "12 rows of 4 different (parameters, tokens)" in text
    kept = answer(tmp_path, rows(0.01, GRID[:1] * 4 + GRID[3:9]))["assumptions"]
    assert [one for one in kept if "exponents those of besiroglu-2024 (fewer than 8 different runs)" in one]


def test_losses_that_rise_with_size_and_length_are_refused_with_the_rows(tmp_path):
    text = refused(tmp_path, [(n, d, 10.0 / loss) for n, d, loss in rows()])
    assert "the loss rises in 27 of 27 pairs of rows" in text
    assert f"1e+08,2e+09,{10.0 / rows()[0][2]:.6g} to 3.6e+09,2e+11" in text


def test_losses_that_parameters_do_not_lower_are_refused(tmp_path):
    table = [(n, d, float(law_loss(1e9, d, *TRUE))) for n, d in GRID]
    assert "the loss does not fall with parameters" in refused(tmp_path, table)


def test_an_interval_without_width_is_said(tmp_path):
    assert [one for one in answer(tmp_path, rows())["warnings"] if "the interval of the loss has no width" in one]
    assert not [one for one in answer(tmp_path, rows(0.01))["warnings"] if "no width" in one]


def bought(folder, table, **run):
    given = asked(folder, table, critical_batch="none", **run)
    return shardmeter.predict(given, overrides={"fleet.islands.0.price": "$2/gpu/h"}).to_dict()


def test_refits_of_a_law_are_in_the_intervals_of_the_run(tmp_path):
    found = bought(tmp_path, rows(0.004), target_loss=2.2, budget="$1M")
    exact = bought(tmp_path, rows(), target_loss=2.2)
    for key, point in (("wall_clock_s", "wall_clock_s"), ("cost_usd", "cost_usd"), ("run_tokens", "tokens")):
        (low, high), (least, most) = found["intervals"][key], exact["intervals"][key]
        assert low < found["run"][point] < high
        assert high / low > 1.2 * most / least
    tokens = np.log(np.array(found["intervals"]["run_tokens"]) / found["run"]["tokens"])
    assert np.all(np.abs(np.log(np.array(found["intervals"]["cost_usd"]) / found["run"]["cost_usd"])) >= np.abs(tokens))


def test_a_target_that_refits_do_not_reach_has_no_interval_and_no_probability(tmp_path):
    near = answer(tmp_path, rows(0.02), tokens="900T", critical_batch="none")["run"]["loss"]
    found = bought(tmp_path, rows(0.02), target_loss=near, budget="$1000M")
    assert found["run"]["cost_usd"] > 0.0
    assert found["run"]["budget"]["probability"] is None
    assert [found["intervals"][key] for key in ("run_tokens", "wall_clock_s", "cost_usd", "energy_kwh")] == [None] * 4
    assert [one for one in found["warnings"] if one.startswith("how long the run is nobody knows")]


@pytest.mark.parametrize("law", ["besiroglu-2024", "kaplan-2020"])
def test_a_loss_above_that_of_guessing_is_null_and_the_page_says_why(law):
    given = {**ONE, "run": {"law": law, "critical_batch": "zhang-2024", "phases": [{"tokens": 1, "global_batch": 64}]}}
    found = shardmeter.predict(given)
    answered = found.to_dict()
    assert answered["run"]["loss"] is None
    assert [one for one in answered["warnings"] if "above the ln(vocabulary) = 11.76 nats" in one]
    assert "the loss is null" in str(found)


ENDLESS = [
    ({"tokens": "10B", "failures": {"mtbf": "100h"}}, "run.failures.mtbf", ["1s", "100h"], "run.failures: one interruption every"),
    ({"law": "besiroglu-2024", "target_loss": 2.6}, "run.target_loss", [1, 2.6], "run.target_loss: 1 is not reached"),
]  # fmt: skip
TWO_ISLANDS = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("a", "b")],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms"}},
    },
    "plan": {"sharding": "fsdp", "micro_batch": 1, "sync": {"method": "diloco", "sync_every": 100}},
}


@pytest.mark.parametrize("base", [ONE, TWO_ISLANDS], ids=["one", "two"])
@pytest.mark.parametrize(("run", "field", "values", "says"), ENDLESS, ids=["failures", "target"])
def test_a_sweep_calls_illegal_what_predict_refuses(base, run, field, values, says):
    given = {**base, "run": {"global_batch": 512, "seq_len": 2048, **run}}
    bad, good = shardmeter.sweep(given, {field: values}, columns=("fits", "run.wall_clock_s")).rows()
    assert bad["status"].startswith(f"illegal: {says}")
    assert bad["fits"] is bad["run.wall_clock_s"] is None
    with pytest.raises(BadScenario, match=says.partition(": ")[2]):
        shardmeter.predict(given, overrides={field: values[0]})
    alone = shardmeter.predict(given, overrides={field: values[1]}).to_dict()["run"]
    assert good["run.wall_clock_s"] == alone["wall_clock_s"]


def test_long_pauses_end_in_a_sweep_as_they_do_alone():
    given = {**ONE, "run": {"tokens": "10B", "evaluation": {"every": "1s", "lasts": "10d"}}}
    (row,) = shardmeter.sweep(given, {"run.global_batch": [512]}, columns=("run.wall_clock_s",)).rows()
    alone = shardmeter.predict(given, overrides={"run.global_batch": 512}).to_dict()["run"]["wall_clock_s"]
    assert row["status"] == "ok"
    assert row["run.wall_clock_s"] == alone
