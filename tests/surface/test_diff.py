"""`shardmeter diff`: its faces, its exit codes, what it refuses."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.render.difference import value_text
from shardmeter.scenario.schema import IslandInput

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = str(EXAMPLES / "llama-8b-64xh100.yaml")
TOO_LARGE = str(EXAMPLES / "does-not-fit.yaml")


def test_json_has_the_keys_of_the_contract(capsys):
    assert main(["diff", ONE, "--set-b", "plan.tp=4", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    keys = {"version", "data_date", "assumptions", "warnings", "equal", "says", "said", "figures", "ledgers", "rules"}
    assert set(found) == keys | {"attribution", "wall_clock"}
    assert found["said"][0] == {"field": "plan.tp", "group": "plan", "unit": "", "a": 1, "b": 4, "follows": False}
    step = found["figures"][0]
    assert step["figure"] == "step_time_s"
    assert step["interval_a"][0] < step["a"] < step["interval_a"][1]
    assert (found["rules"]["ledger"], found["rules"]["term"]) == ("wall_clock", "a longer step")
    assert "tensor parallel" in found["says"]


def test_csv_is_one_line_for_every_input_figure_term_and_share(capsys):
    assert main(["diff", ONE, "--set-b", "plan.tp=4", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    parts = {row["part"] for row in rows}
    assert parts >= {
        "input",
        "figure",
        "step",
        "memory",
        "hours",
        "dollars",
        "electricity",
        "wall clock",
        "share of step_time_s",
    }
    steps = [float(row["difference"]) for row in rows if row["part"] == "step"]
    whole = next(float(row["difference"]) for row in rows if row["name"] == "step_time_s")
    assert sum(steps) == pytest.approx(whole, rel=1e-9)


def test_the_page_says_which_term_rules_and_what_makes_it(capsys):
    assert main(["diff", ONE, TOO_LARGE]) == 0, "that one of the two does not fit is no reason to say no"
    page = capsys.readouterr().out
    assert page.startswith("A and B\nThe throughput goes from"), (
        "only one of them has a run, and its steps are of another batch"
    )
    assert "A step goes from" in page
    assert "by part of the scenario, most is" in page
    assert "What makes the difference" in page
    answer = shardmeter.diff(ONE, overrides_b=["plan.tp=4"])
    assert "tensor parallel" in str(answer)
    assert "plan.tp" in str(answer)
    assert "s a step" in repr(answer)


def test_islands_that_change_alike_stand_in_one_line(capsys):
    path = str(EXAMPLES / "unreliable-diloco.yaml")
    change = ["--set-b", "fleet.islands.0.nodes=2"]
    assert main(["diff", path, *change]) == 0
    page = capsys.readouterr().out
    assert re.search(r"fleet\.islands\.\(zone-1 … zone-4\)\.nodes +4 +2\n", page)
    assert main(["diff", path, *change, "--format", "json"]) == 0
    fields = [one["field"] for one in json.loads(capsys.readouterr().out)["said"]]
    assert {f"fleet.islands.zone-{at}.nodes" for at in (1, 2, 3, 4)} <= set(fields)


def test_options_apply_to_both_or_to_b_only(capsys):
    assert main(["diff", ONE, ONE, "--set", "plan.tp=4", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["says"] == "No difference."
    assert main(["diff", ONE, "--set", "plan.tp=4", "--set-b", "plan.tp=2", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["a"], one["b"]) for one in found["said"] if one["field"] == "plan.tp"] == [(4, 2)]
    assert found["warnings"] == []


def test_a_plan_that_is_left_open_is_found_first(capsys):
    assert (
        main(
            ["diff", ONE, "--set-b", "plan=auto", "--set-b", "plan.tp=1,2", "--set-b", "plan.pp=1", "--format", "json"]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert any(text.startswith("B: plan auto") for text in found["assumptions"])
    assert found["attribution"]["groups"] == [["plan"]]


def test_steps_of_unlike_batches_are_warned_of_and_a_run_of_one_alone(capsys):
    assert main(["diff", ONE, "--set-b", "run.global_batch=256", "--set-b", "run.tokens=null"]) == 0
    said = capsys.readouterr().err
    assert "2 times the tokens" in said
    assert "B has no length of its run" in said


def test_several_islands_without_a_common_step(capsys):
    path = str(EXAMPLES / "three-clouds-70b.yaml")
    both = ["--set", "plan.sync={method: async_local_sgd, sync_every: 100}"]
    assert main(["diff", path, *both, "--set-b", "plan.sync.sync_every=50", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("no step is common" in text for text in found["warnings"])
    assert "step_time_s" not in found["attribution"]["shares"]
    assert found["ledgers"]["step"]["total"]["a"] > 0.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], ["Missing argument"]),
        ([ONE], ["nothing to compare", "--set-b"]),
        ([ONE, "no-such-file.yaml"], ["no-such-file.yaml"]),
        ([ONE, "--set-b", "plan.tp=-3", "--set-b", "plan.colour=red"], ["plan.tp", "plan.colour", "2 problems"]),
        ([ONE, "--set", "plan.colour=red", "--set-b", "plan.tp=-3"], ["plan.colour", "B: plan.tp"]),
        ([ONE, "--set", "plan.colour=red", "--set-b", "plan.colour=red"], ["plan.colour"]),
        (["no-file.yaml", "no-other.yaml"], ["A: no-file.yaml", "B: no-other.yaml"]),
        ([ONE, "--set-b", "model=lama-3.1-8b"], ["llama-3.1-8b"]),
        ([ONE, "--set-b", "run.failures=llama3x"], ["llama-3-405b"]),
        ([ONE, "--set-b", "run.failures={mtbf: 1 min, per: gpu}"], ["the run does not end"]),
        ([ONE, ONE, "--format", "xml"], ["xml"]),
    ],
    ids=lambda value: " ".join(value)[-60:] if isinstance(value, list) else "",
)
def test_refusals(capsys, arguments, says):
    assert main(["diff", *arguments]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "Traceback" not in seen.err
    assert [text for text in says if text not in seen.err] == []


def test_a_record_takes_no_overrides():
    scenario = shardmeter.load(ONE)
    with pytest.raises(TypeError, match="resolved"):
        shardmeter.diff(scenario, overrides_b=["plan.tp=2"])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "none"), (3.0, "s", "3.00 s"), ([], "", "none"), (["pp", "north"], "", "pp, north"),
        ([[0.0, 2e9], [4e9, 0.0]], "B/s", "0 B/s to 4 GB/s"), ([float("inf")], "", "none"), ([2.0, 2.0], "", "2"),
        ([["pp", [["north", "south"]]]], "", "pp, north, south"), ([[1.0, None], [2.0]], "s", "1.00 s to 2.00 s"),
    ],
)  # fmt: skip
def test_inputs_as_text(value, unit, text):
    assert value_text(value, unit) == text


CLOUDS = str(EXAMPLES / "three-clouds-money.yaml")


def test_inputs_of_islands_have_the_names_that_set_takes_and_units_of_people(capsys):
    owned = "{power_price: $0.12/kWh, value: $30k}"
    changes = [
        "fleet.islands.oregon.owned={power_price: $0.08/kWh, value: $30k}", "fleet.islands.oregon.carbon=200 g/kWh",
        "fleet.islands.oregon.pue=1.5", "fleet.islands.iowa.spot=false", "fleet.islands.oregon.fabric=roce-400",
        "fleet.islands.virginia.nodes=2",
    ]  # fmt: skip
    sets = [word for one in changes for word in ("--set-b", one)]
    assert main(["diff", CLOUDS, "--set", f"fleet.islands.oregon.owned={owned}", *sets, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)["said"]
    keys = {
        one["field"].split(".")[3] for one in said if one["field"].startswith("fleet.islands.") and not one["follows"]
    }
    assert keys <= set(IslandInput.model_fields)
    fields = {one["field"].removeprefix("fleet.islands."): one for one in said}
    assert {f"oregon.{key}" for key in ("owned.power_price", "carbon", "pue", "fabric")} <= set(fields)
    assert (fields["iowa.spot"]["a"], fields["iowa.spot"]["b"]) == (True, False)
    assert fields["virginia.tiers.ib-ndr400.size"]["follows"]
    assert main(["diff", CLOUDS, "--set", f"fleet.islands.oregon.owned={owned}", *sets]) == 0
    page = capsys.readouterr().out
    assert re.search(r"oregon\.owned\.power_price +\$0\.12/kWh +\$0\.08/kWh\n", page)
    assert re.search(r"oregon\.carbon +322 g/kWh +200 g/kWh\n", page)


def test_the_data_set_is_told_by_its_islands_and_its_inputs_once(capsys):
    assert main(["diff", CLOUDS, "--set-b", "run.dataset.bytes_per_token=2", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["field"] for one in found["said"]] == ["run.dataset.bytes_per_token"]
    terms = {one["term"] for one in found["ledgers"]["dollars"]["terms"]}
    assert {f"storage of the data set of {name}" for name in ("oregon", "iowa", "virginia")} <= terms


def test_an_interval_without_width_is_left_out_and_shares_that_are_not_shown_are_explained(capsys):
    assert main(["diff", str(EXAMPLES / "spot-fleet.yaml"), "--set-b", "fleet.islands.iowa.spot=false"]) == 0
    page = capsys.readouterr().out
    assert re.search(r"goodput +88\.6 % +88\.6 % +0\.0 % +1\.000\n", page)
    assert main(["diff", CLOUDS, "--set-b", "fleet.islands.oregon.nodes=2"]) == 0
    page = capsys.readouterr().out
    assert "3 islands: 2 of 32 × H100-SXM5-80GB + 1 of 32 × H200-SXM-141GB" in page
    assert page.count("no term is a share") == page.count("B - A\n")


TARGET = str(EXAMPLES / "target-loss.yaml")


def test_the_first_sentence_is_the_run_and_its_cost_where_the_step_goes_the_other_way(capsys):
    more = ["--set-b", "run.target_loss=2.5", "--set-b", "plan.micro_batch=16"]
    assert main(["diff", TARGET, *more, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = {one["figure"]: one for one in found["figures"]}
    assert told["step_time_s"]["ratio"] < 1.0 < told["run.wall_clock_s"]["ratio"]
    lead = found["says"].partition(". Most")[0]
    assert re.fullmatch(
        r"The wall clock goes from \S+ \w+ to \S+ \w+ \(\+\S+ %\), the cost from \S+ to \S+ \(\+\S+ %\)", lead
    )
    assert found["rules"]["term"] == "more tokens"
    assert re.search(r"A step goes from [^(]+ \(-", found["says"])


def test_without_a_run_unlike_batches_lead_with_the_throughput(capsys):
    gone = ["--set", "run.tokens=null", "--set-b", "run.global_batch=256"]
    assert main(["diff", ONE, *gone, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wall_clock"] is None
    assert found["says"].startswith("The throughput goes from")
    assert "for × 2 the tokens" in found["says"]


def test_equal_tokens_are_not_equal_loss(capsys):
    pair = [str(EXAMPLES / f"unreliable-{name}.yaml") for name in ("every-step", "diloco")]
    assert main(["diff", *pair, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = next(one for one in found["figures"] if one["figure"] == "loss_factor")
    assert (row["a"], row["basis_b"]) == (1.0, "extrapolated")
    assert row["b"] == pytest.approx(1.034, abs=5e-4)
    assert any("equal tokens are not equal loss" in text and "× 1.034" in text for text in found["warnings"])
    assert main(["diff", *pair, "--set", "run.law=besiroglu-2024"]) == 0
    page = capsys.readouterr().out
    assert re.search(r"The loss goes from \S+ to \S+ nats/token \(extrapolated\)", page)
    assert re.search(r"\n  loss +\S+ nats/token +\S+ nats/token", page)
    assert re.search(r"\n  loss factor +1 × \(derived\) +1\.034 × \(extrapolated\)", page)


@pytest.mark.parametrize(
    ("change", "basis", "says"),
    [
        ("dilocox", "guess", "equal tokens are not equal loss"), ("local_sgd", "guess", "equal tokens are not equal loss"),
        ("branch_train_merge", "unknown", "equal tokens need not be equal loss"),
    ],
)  # fmt: skip
def test_what_is_known_of_the_loss_says_how_well(capsys, change, basis, says):
    path = str(EXAMPLES / "unreliable-diloco.yaml")
    assert main(["diff", path, "--set-b", f"plan.sync={{method: {change}}}", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = next(one for one in found["figures"] if one["figure"] == "loss_factor")
    assert row["basis_b"] == basis
    assert (row["b"] is None) == (basis == "unknown")
    assert any(says in text for text in found["warnings"])


def test_at_equal_loss_nothing_is_warned_of(capsys):
    assert main(["diff", TARGET, "--set-b", "plan.sync={method: every_step}"]) == 0
    seen = capsys.readouterr()
    assert "equal tokens" not in seen.err + seen.out
    assert "loss factor" in seen.out
