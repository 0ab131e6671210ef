"""`plan` for several islands on the command line and in Python: its JSON, its page, what is refused, what is answered with no."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario

ISLANDS = """
model: llama-3.2-1b
fleet:
  islands:
    - {name: oregon, accelerator: H100-SXM5-80GB, nodes: 1, price: $3/gpu/h}
    - {name: iowa, accelerator: A100-SXM4-80GB, nodes: 1, count: 2, price: $1/gpu/h}
  wan: {default: {bandwidth: 10 Gbps, rtt: 30 ms, egress: $0.02/GB}}
plan: {tp: [1, 2], pp: 1, cp: 1, dp_replicate: 1, sharding: fsdp, reshard: true, recompute: none, micro_batch: 2, sync: {method: diloco, sync_every: [50, 100]}}
run: {seq_len: 2048, global_batch: 96, tokens: 1B}
"""
KEYS = {
    "objective", "deadline_s", "budget_usd", "space", "plans", "pareto", "yours", "nearest_miss", "without", "version", "data_date",
    "assumptions", "warnings",
}  # fmt: skip
SPACE = {"evaluated", "feasible", "rejected", "seconds", "optimal"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "islands.yaml"
    path.write_text(ISLANDS)
    return str(path)


def answer(capsys, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["plan", *arguments, "--format", "json"]) == code
    got: dict[str, Any] = json.loads(
        capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in JSON")
    )
    return got


def test_json_has_the_contract_and_its_entries_are_scenarios(capsys, file, tmp_path) -> None:
    got = answer(capsys, file, "--top", "4")
    assert set(got) == KEYS
    assert set(got["space"]) >= SPACE
    assert got["space"]["optimal"]
    assert "gap" not in got["space"]
    first = got["plans"][0]
    assert first["sync_every"] == 100.0
    entry = tmp_path / "plan.json"
    entry.write_text(json.dumps(first))
    assert main(["predict", str(entry), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for name in ("step_time_s", "tokens_per_s", "mfu", "fits"):
        assert again[name] == first[name]
    assert again["run"]["cost_usd"] == first["cost_usd"]


def test_the_page_says_who_trains_how_and_who_waits(capsys, file) -> None:
    assert main(["plan", file]) == 0
    page = capsys.readouterr().out
    for text in (
        "oregon, iowa-1, iowa-2, diloco (optimal in this space",
        "the pace",  # the head of its column, folded
        "most wait",
        "tokens/s",
        "The islands of the first",
    ):
        assert text in page


def test_csv_has_a_row_for_every_plan(capsys, file) -> None:
    assert main(["plan", file, "--top", "3", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    lists = [row["list"] for row in rows]
    assert lists == ["plans"] * (len(rows) - 1) + ["pareto"]
    steps = [float(row["step_time_s"]) for row in rows[:-1]]
    assert 1 < len(steps) <= 3
    assert len(set(steps)) == len(steps), "what comes to the same is listed once"
    assert rows[0]["islands"] == "oregon iowa-1 iowa-2"


def test_islands_are_chosen_where_that_is_asked(capsys, file, tmp_path) -> None:
    got = answer(capsys, file, "--set", "fleet.use=any", "--objective", "cost")
    first = got["plans"][0]
    assert got["space"]["teams"] == 5
    assert first["scenario"]["fleet"]["use"] == [one["name"] for one in first["islands"]]
    pairs = answer(capsys, file, "--set", "fleet.use=2")
    assert {len(one["islands"]) for one in pairs["plans"]} == {2}


def test_any_method_can_be_asked_for_and_every_step_is_what_is_not_said(capsys, file) -> None:
    narrow = ("--set", "plan.tp=1", "--set", "plan.sync.sync_every=100")
    got = answer(capsys, file, *narrow, "--set", "plan.sync.method=any", "--top", "20")
    assert len({one["method"] for one in got["plans"]}) > 4
    usual = answer(capsys, file, "--set", "plan.sync=null")
    assert {one["method"] for one in usual["plans"]} == {"every_step"}
    assert any("none said; other methods change what is trained" in text for text in usual["assumptions"])


def test_a_period_that_is_not_said_is_the_methods_own(capsys, file) -> None:
    got = answer(capsys, file, "--set", "plan.sync.sync_every=null", "--set", "plan.sync.method=diloco")
    assert {one["sync_every"] for one in got["plans"]} == {500.0}
    assert any("longer rounds are always faster" in text for text in got["assumptions"])


def test_auto_finds_the_plans_for_predict(capsys, file) -> None:
    assert (
        main(["predict", file, "--plan", "auto", "--set", "plan.tp=1", "--set", "plan.pp=1", "--format", "json"]) == 0
    )
    got = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in got["islands"]] == ["oregon", "iowa-1", "iowa-2"]
    assert any(text.startswith("plan auto: ") for text in got["assumptions"])


def test_a_whole_plan_is_placed_beside_the_others(capsys, file) -> None:
    got = answer(
        capsys,
        file,
        "--plan",
        "fsdp,tp=2,sync.method=diloco,sync.sync_every=100",
        "--set",
        "run.global_batch=64",
        "--set",
        "fleet.islands.iowa.accelerator=H100-SXM5-80GB",
    )
    assert got["yours"]["behind"] >= 0.0
    assert got["yours"]["method"] == "diloco"


def test_python_prints_its_page() -> None:
    found = shardmeter.plan(ISLANDS, top=2)
    assert found.best is not None
    assert repr(found).startswith("<FleetPlans llama-3.2-1b: ")
    assert "The best plans, by time" in str(found)
    assert shardmeter.predict(found.best.scenario).tokens_per_s == found.best.prediction.tokens_per_s


def test_nothing_that_fits_is_answered_with_no(capsys, file) -> None:
    got = answer(capsys, file, "--set", "model=llama-3.1-70b", code=1)
    assert got["plans"] == []
    assert got["nearest_miss"]["memory_peak_gib"] > got["nearest_miss"]["memory_limit_gib"]
    assert not any(one["fits"] for one in got["space"]["kinds"])
    late = answer(capsys, file, "--deadline", "1 s", code=1)
    assert late["space"]["rejected"] == {"past the deadline": late["space"]["joint"]}
    assert late["nearest_miss"]["wall_clock_s"] > 1.0


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (["fleet.use=4"], "4 islands are asked for, and there are 3"),
        (["fleet.use=0"], "says neither how many islands nor which"),
        (["fleet.use=[oregon,nowhere]"], "unknown island 'nowhere'"),
        (["plan.sync.method=dilco"], "diloco"),
        (["plan.sync.sync_every=[0,5]"], "plan.sync.sync_every"),
        (["plan.sync.bits=any"], "plan.sync.bits"),
        (["run.global_batch=64,128"], "several islands are planned at one"),
        (["plan.tp=3"], "tp 3 does not divide 8 GPUs"),
        (["plan.sync.sync_every=1..200000"], "ways to keep islands together; at most"),
    ],
)
def test_what_is_refused(capsys, file, sets, says) -> None:
    assert main(["plan", file, *(word for one in sets for word in ("--set", one))]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert says in said
    assert "Traceback" not in said


def test_a_cost_needs_the_price_of_what_is_sent(capsys, file) -> None:
    assert main(["plan", file, "--objective", "cost", "--set", "fleet.wan.default.egress=null"]) == 2
    assert "no price is known of what is sent between islands" in capsys.readouterr().err


def test_predict_wants_islands_by_name(capsys, file) -> None:
    with pytest.raises(BadScenario, match="leaves open which islands take part"):
        shardmeter.predict(
            ISLANDS.replace("wan:", "use: any\n  wan:").replace("[1, 2]", "1").replace("[50, 100]", "50")
        )
    one = shardmeter.predict(
        ISLANDS.replace("wan:", "use: [iowa]\n  wan:").replace("[1, 2]", "1").replace("[50, 100]", "50"),
        overrides=["run.global_batch=64"],
    )
    assert [island["name"] for island in one.to_dict()["islands"]] == ["iowa-1", "iowa-2"]


def test_rows_that_are_alike_but_for_their_plans_say_them(capsys, tmp_path) -> None:
    path = tmp_path / "alike.yaml"
    path.write_text(ISLANDS.replace("sync_every: [50, 100]", "sync_every: 50"))
    assert main(["plan", str(path), "--top", "3"]) == 0
    page = capsys.readouterr().out
    table = page[page.index("The best plans, by") :].split("\n\n")[0]
    assert "plan of an island" in table
    assert "tp=2" in table
