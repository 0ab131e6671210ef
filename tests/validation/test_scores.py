"""The report: arithmetic on a hand-made file, accounting, ranking, failures, the shipped rows."""

import json

import numpy as np
import pytest

from shardmeter.data import read_text
from shardmeter.study.validate import shipped, validate
from shardmeter.study.validate.digest import digests
from shardmeter.study.validate.layout import parse_table
from shardmeter.study.validate.mapping import read_rows
from shardmeter.study.validate.metrics import MEMORY, STEP_TIME, Score, over_sources, summary
from shardmeter.study.validate.predictions import Predicted
from shardmeter.study.validate.ranking import Candidate, ranking, ranks, regret, spearman
from shardmeter.study.validate.runs.account import source_of

HEADER = (
    "id,source_key,model,n_layers,hidden,ffn_hidden,n_heads,n_kv_heads,head_dim,vocab,seq_len,accelerator,n_accelerators,"
    "precision,parallel_tp,pp,cp,dp,sharding,micro_batch,global_batch,framework,year,step_time_s,peak_memory_gib,task"
)
SIZES = "Llama-3-8B,32,4096,14336,32,8,128,128256,8192,H100-80GB,8"


def line(id_, source="one", tp=1, micro=1, step="2.0", memory="", precision="bf16", task="pretrain"):
    return (
        f"{id_},{source},{SIZES},{precision},{tp},1,1,{8 // tp},zero1,{micro},16,torchtitan,2025,{step},{memory},{task}"
    )


def written(tmp_path, *lines):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def constant(step, gib=40.0, limit=80.0):
    """A predictor that says the same of every scenario."""

    def answer(scenarios):
        one = Predicted(step_time=step, allocated=gib * 2**30, first=gib * 2**30, reserved=1.1 * gib * 2**30,
                        peak=1.2 * gib * 2**30, limit=limit * 2**30)  # fmt: skip
        return tuple(one for _ in scenarios)

    return answer


def test_errors_are_weighted_by_source(tmp_path):
    path = written(
        tmp_path, line("a"), line("b", step="4.0"), line("c", source="two", step="2.5"), line("d", precision="int8"),
        line("e", step=""), line("f", source="two", step="", memory="55"),
    )  # fmt: skip
    report = validate(path, predictor=constant(2.0)).to_dict()
    assert (report["rows"], report["scored"]) == (6, 4)
    assert [entry["id"] for entry in report["skipped"]] == ["d"]
    assert [entry["id"] for entry in report["excluded"]] == ["e"]
    one, two = (report["by_source"][name]["step_time"] for name in ("one", "two"))
    assert (one["n"], one["mape"], one["bias"], one["within_10pct"]) == (2, 0.25, -0.25, 0.5)
    assert (two["n"], two["mape"]) == (1, pytest.approx(0.2))
    total = report["metrics"]["step_time"]
    assert (total["n"], total["mape"], total["bias"]) == (3, pytest.approx(0.225), pytest.approx(-0.225))
    assert total["loso_mape"] == total["mape"], "a source that does not ship was never fitted"
    memory = report["metrics"]["memory"]
    assert (memory["n"], memory["mape"]) == (1, pytest.approx(0.2)), "torchtitan reports what is reserved: 44 of 55"
    assert report["by_group"]["stack:titan-compile"]["step_time"]["n"] == 3
    assert report["by_source"]["one"]["mape"] == one["mape"], "the leading quantity stands at the top too"
    details = {(row["id"], row["quantity"]): row for row in report["rows_detail"]}
    half = dict(details["b", "step_time"])
    low, high = half.pop("lo"), half.pop("hi")
    assert half == {"id": "b", "quantity": "step_time", "measured": 4.0, "predicted": 2.0, "error": -0.5}
    assert 1.0 < low < 2.0 < high < 4.0, (
        "the interval of the stack, about the prediction: it does not reach twice as far"
    )
    assert one["coverage_90"] == 0.5, "one row is predicted right, the other at half"
    assert details["f", "memory"]["measured"] == pytest.approx(55.0)
    json.dumps(report, allow_nan=False)


def test_a_prediction_that_is_not_finite_is_no_score(tmp_path):
    report = validate(written(tmp_path, line("a")), predictor=constant(float("inf"))).to_dict()
    assert (report["scored"], len(report["skipped"])) == (0, 1)
    json.dumps(report, allow_nan=False)


def test_summary_by_hand():
    scores = [
        Score(id=str(i), source="s", quantity=STEP_TIME, measured=1.0, predicted=1.0 + e, loso=1.0 + 2 * e)
        for i, e in enumerate((-0.1, 0.0, 0.05, 0.4))
    ]
    found = summary(scores)
    assert found["mape"] == pytest.approx(0.1375)
    assert found["median_ape"] == pytest.approx(0.075)
    assert found["p90_ape"] == pytest.approx(float(np.quantile([0.1, 0.0, 0.05, 0.4], 0.9)))
    assert found["bias"] == pytest.approx(0.0875)
    assert found["within_10pct"] == pytest.approx(0.75)
    assert found["loso_mape"] == pytest.approx(0.275)
    assert found["coverage_90"] is None
    assert over_sources([])["mape"] is None
    late = Score(id="x", source="s", quantity=MEMORY, measured=1.0, predicted=1.0)
    assert summary([*scores, late])["loso_mape"] == found["loso_mape"], "of the rows that the fit knew"
    assert summary([late])["loso_mape"] is None


def test_ranks_with_ties():
    assert ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [3.5, 1.0, 3.5, 2.0]
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert regret([2.0, 1.0, 4.0], [1.0, 2.0, 3.0]) == pytest.approx(1.0)


def test_a_grid_needs_five_plans():
    four = [Candidate(grid="g", plan=str(i), measured=float(i + 1), predicted=float(i + 1)) for i in range(4)]
    assert ranking(four) == {}
    assert ranking([*four, Candidate(grid="g", plan="3", measured=9.0, predicted=9.0)]) == {}, (
        "a plan twice is one plan"
    )
    (found,) = ranking([*four, Candidate(grid="g", plan="4", measured=0.5, predicted=9.0)]).values()
    assert found["n"] == 5
    assert found["regret"] == pytest.approx(1.0)


def test_grids_of_a_file(tmp_path):
    plans = [(tp, micro) for tp in (1, 2, 4) for micro in (1, 2)]
    path = written(tmp_path, *(line(f"p{i}", tp=tp, micro=m, step=str(2.0 + i)) for i, (tp, m) in enumerate(plans)))
    report = validate(path, predictor=constant(2.0)).to_dict()
    ((grid, found),) = report["ranking"].items()
    assert "H100-SXM5-80GB" in grid
    assert (found["n"], found["spearman"], found["regret"]) == (6, None, 0.0)


FAILED = "model_size,nodes,mbs,grad_acc,gbs,dp,pp,tp,zero,note\n"


def failed(tmp_path, *lines):
    path = tmp_path / "failed.csv"
    path.write_text(FAILED + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_failed_configurations(tmp_path):
    rows = ("8.86B,1,8,4,256,8,1,1,1,crashed/oom", "8.86B,1,32,4,256,2,2,2,0,oom", "1.34B,8,1,8,256,1,64,1,0,oom",
            "1.34B,1,1,32,256,8,1,1,0,kernel not available")  # fmt: skip
    path = failed(tmp_path, *rows)
    for peak, recall in ((60.0, 0.0), (100.0, 1.0)):
        report = validate(path, predictor=constant(1.0, gib=peak / 1.2)).to_dict()
        assert (report["rows"], report["scored"], report["failures"]["n"]) == (4, 2, 2)
        assert report["failures"]["recall"] == recall
        assert report["failures"]["false_alarm"] == recall, "the shipped runs of the same source all ran"
        assert len(report["excluded"]) == 2
    assert any("stages are more than" in entry["reason"] for entry in report["excluded"])
    assert any("something else than memory" in entry["reason"] for entry in report["excluded"])


def test_shipped_rows_are_all_accounted_for(shipped_report):
    report = shipped_report
    rows = (*shipped.measured().rows, *shipped.geo().rows, *shipped.whole().rows)
    assert report["rows"] == len(rows)
    assert report["rows"] == report["scored"] + len(report["skipped"]) + len(report["excluded"]) + len(
        report["identities"]
    )
    ids = {entry["id"] for entry in report["skipped"] + report["excluded"] + report["identities"]} | {
        row["id"] for row in report["rows_detail"]
    }
    assert ids == {row.text("run_id") or row.id for row in rows}
    assert all(entry["reason"] for entry in report["skipped"] + report["excluded"])
    assert report["scored"] >= 1150
    lost = report["failures"]
    assert lost["rows"] == lost["n"] + len(lost["skipped"]) + len(lost["excluded"]) == len(shipped.failed().rows)
    others = (*(row.text("source") for row in shipped.geo().rows), *(source_of(row) for row in shipped.whole().rows))
    assert set(report["by_source"]) <= {*shipped.sources(), *others}
    floor = report["by_group"]["regime:floor"]["step_time"]["n"]
    assert report["metrics"]["step_time"]["n"] + floor == sum(
        group["step_time"]["n"] for name, group in report["by_group"].items() if name.startswith("task:")
    )


def test_no_composed_row_ships_and_none_scores():
    assert not any("vTrain" in row.text("source_key") for row in shipped.measured().rows)
    text = HEADER + "\n" + line("v-1", source="vTrain single-node") + "\n"
    (verdict,) = read_rows(parse_table(text, "x.csv").rows)
    assert "composed" in verdict.exclude


@pytest.mark.parametrize("name", ["runs.csv", "failed.csv"])
def test_a_shipped_row_means_what_it_meant_when_it_was_condensed(name):
    stored = {
        source: (int(count), digest)
        for file, source, count, digest in _lines(read_text("measured/digests.csv"))
        if file == name
    }
    table = shipped.measured() if name == "runs.csv" else shipped.failed()
    assert digests(read_rows(table.rows)) == stored, "run scripts/condense_measured.py if a rule was changed on purpose"


def test_condensed_tables_are_small_and_hold_no_prose():
    total = 0
    for name in ("runs.csv", "failed.csv", "sources.csv", "digests.csv"):
        text = read_text(f"measured/{name}")
        total += len(text.encode())
        if name in ("runs.csv", "failed.csv"):
            table = parse_table(text, name)
            assert not {"notes", "source_title", "source_ref", "arch_ref", "mfu", "hfu"} & set(table.columns)
            words = {
                cell
                for row in table.rows
                for column, cell in row.cells.items()
                if column not in ("source_key", "model")
            }
            assert max(map(len, words)) <= 60
    assert total < 1_500_000


def _lines(text):
    import csv
    import io

    return list(csv.reader(io.StringIO(text)))[1:]
