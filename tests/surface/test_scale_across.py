"""`shardmeter plan --scale-across`: how it is asked, its JSON, CSV, page and figures, errors, an interrupt."""

import copy
import csv
import io
import json

import numpy as np
import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.render import csv_text
from shardmeter.render import scale_across as page
from shardmeter.render.scale_across_words import placed
from shardmeter.scenario import opened
from shardmeter.study import scale_across as study
from shardmeter.study.scale_across.cases import asked as asked_about
from shardmeter.study.scale_across.cases import divided, lined
from shardmeter.study.scale_across.cluster import Cluster
from shardmeter.study.scale_across.question import question

SCENARIO = {
    "model": "llama-3.2-3b",
    "stack": "titan-compile",
    "fleet": {
        "islands": [{"name": "building", "count": 2, "gpus": "16xH100-SXM5-80GB", "price": "$2.10/gpu/h"}],
        "wan": {"default": {"preset": "dci-4to1", "distance": "80 km"}},
    },
    "plan": {"sharding": "zero1", "tp": 4, "pp": 4, "recompute": "none"},
    "run": {"seq_len": 8192, "global_batch": 12},
}
OVER = ("--over", "oversubscription=4,8", "--over", "distance=80 km,400 km")
ONE = ("--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB")


@pytest.fixture(scope="module")
def found():
    return shardmeter.scale_across(SCENARIO, {"oversubscription": [4, 8], "distance": ["80 km", "400 km"]})


@pytest.fixture(scope="module")
def answer(found):
    return found.to_dict()


@pytest.fixture
def asked(tmp_path, monkeypatch, found):
    """The command for the same question, answered without another search."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps(SCENARIO), encoding="utf-8")
    monkeypatch.setattr(study, "scale_across", lambda *_, **__: found)
    return ("plan", str(file), "--scale-across", *OVER)


def test_the_answer_has_every_point_with_all_its_choices(answer):
    (case,) = answer["cases"]
    assert answer["question"]["distance_km"] == [80.0, 400.0]
    networks = [(point["oversubscription"], point["distance_km"]) for point in case["points"]]
    assert networks == [(4.0, 80.0), (4.0, 400.0), (8.0, 80.0), (8.0, 400.0)]
    assert case["points"][case["own"]]["own"]
    for point in case["points"]:
        single = [point["one"][name]["step_s"] for name in page.DIMENSIONS]
        pairs = [one["step_s"] for one in point["two"].values()]
        assert point["joint"]["step_s"] <= min(pairs) <= min(single) <= point["default"]["step_s"]
        ratio = point["speedup"]["joint"]
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
        assert ratio["value"] == pytest.approx(point["default"]["step_s"] / point["joint"]["step_s"])


def test_what_is_printed_is_the_answer(capsys, answer, asked):
    assert main([*asked, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"version", "data_date", "figures", "assumptions", "warnings", "published", "space"} <= set(printed)
    assert printed["cases"][0]["points"] == answer["cases"][0]["points"]
    assert [one["slug"] for one in printed["figures"]] == ["winners", "speedup", "dimensions"]


def test_a_row_of_csv_is_a_point_and_a_choice(answer):
    rows = list(csv.DictReader(io.StringIO(csv_text.text(page.document(answer)))))
    assert len(rows) == len(answer["cases"][0]["points"]) * 8
    last = rows[7]
    assert (last["may_change"], last["placement"]) == (
        "placement+schedule+network", answer["cases"][0]["points"][0]["joint"]["placement_says"],
    )  # fmt: skip
    assert float(last["speedup"]) == answer["cases"][0]["points"][0]["speedup"]["joint"]["value"]


def test_the_page_says_what_to_do_and_what_it_gains(found, answer):
    text = str(found)
    assert "What to change: 4:1 over 80 km" in text
    assert "production default" in text.partition("\n\n")[0]
    for words in ("placement alone", "all three", "What to buy", "Published maxima"):
        assert words in text
    full = page.document(answer, command="shardmeter plan run.yaml --scale-across")
    assert any(
        "shardmeter plan run.yaml --scale-across --save joint.yaml && shardmeter" in str(one) for one in full.sections
    )
    wide = [line for line in text.partition("\nTo predict")[0].splitlines()[2:] if len(line) > 110]
    assert wide == []
    assert repr(found).startswith("<ScaleAcross")


def test_the_map_is_what_wins(answer):
    winners, speedup, dimensions = page.figures(answer)
    points = answer["cases"][0]["points"]
    field = winners.to_dict()["field"]
    names = [field["scale"]["labels"][int(value)] for row in field["values"] for value in row]
    assert names == [placed(point["winner"]) for point in points]
    assert winners.marks[0].says == "yours"
    assert [line.label for line in speedup.lines] == ["4:1 oversubscribed", "8:1 oversubscribed"]
    most = max(points, key=lambda point: point["speedup"]["joint"]["value"])
    banded = [line for line in speedup.lines if line.high]
    assert [line.label for line in banded] == [f"{most['oversubscription']:g}:1 oversubscribed"]
    assert most["speedup"]["joint"]["high"] - 1.0 in banded[0].high
    assert dimensions.lines[0].label == "all three"


def test_the_joint_plan_is_what_predict_says(capsys, answer, tmp_path):
    (plan,) = [one for one in answer["cases"][0]["plans"] if one["point"] == answer["cases"][0]["own"]]
    file = tmp_path / "joint.json"
    file.write_text(json.dumps(plan["scenario"]), encoding="utf-8")
    assert main(["predict", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == pytest.approx(plan["step_s"], rel=1e-9)


@pytest.mark.parametrize("name", ["joint.yaml", "joint.json"])
def test_what_is_saved_is_the_plan_that_is_shown(capsys, asked, answer, tmp_path, name):
    """`predict FILE` answers it with the same step, and has nothing to warn of."""
    assert main([*asked, "--save", str(tmp_path / name)]) == 0
    out, err = capsys.readouterr()
    assert f"saved: {tmp_path / name}" in err
    assert f"shardmeter predict {tmp_path / name}" in out
    assert main(["predict", str(tmp_path / name), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    case = answer["cases"][0]
    assert told["step_time_s"] == pytest.approx(case["points"][case["own"]]["joint"]["step_s"], rel=1e-9)
    assert told["warnings"] == []


def test_a_saved_plan_is_predicted_from_any_folder(asked, tmp_path, monkeypatch):
    """Files that the scenario names lie beside it, and not beside what is saved."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    monkeypatch.setattr(page, "plan_shown", lambda _: {"model": "config.json"})
    assert main([*asked, "--save", str(tmp_path / "sub" / "joint.json")]) == 0
    saved = json.loads((tmp_path / "sub" / "joint.json").read_text(encoding="utf-8"))
    assert saved == {"model": str(tmp_path / "config.json")}


def test_one_distance_is_no_picture_and_the_way_out_is_told(capsys, asked, tmp_path):
    assert main([*asked[:-2], "--over", "distance=80 km", "--plot", str(tmp_path / "a.png")]) == 0
    assert "two distances or more, as in --over distance='10 km,400 km'" in capsys.readouterr().err
    assert list(tmp_path.glob("*.png")) == []


def test_of_several_clusters_the_page_and_its_plan_are_of_the_largest_gain(answer):
    (case,) = answer["cases"]
    gains = [point["speedup"]["joint"]["value"] for point in case["points"]]
    several = {**answer, "cases": [case, {**case, "model": "other", "points": case["points"][:1], "own": 0}]}
    told, at = page.shown(several) or (case, -1)
    assert (told["model"], at) == (case["model"], gains.index(max(gains)))
    assert page.plan_shown(several) in [one["scenario"] for one in case["plans"] if one["point"] == at]
    assert f"Most: {page.cluster(case)}" in page.document(several).verdict


def test_a_line_that_nobody_said_is_no_point_of_its_own():
    """What is asked is answered: 2,000 km, and not the usual line between buildings."""
    one = {"gpus": "32xH100-SXM5-80GB", "name": "all"}
    document, rows = opened({**SCENARIO, "fleet": {"islands": [one]}})
    said = lined(document)
    asked = question(divided(document, 2), rows, {"distance": ["2000 km", "9000 km"]}, said=said)
    assert (said, asked.own, len(asked.network)) == (False, (4.0, 2000e3), 2)
    asked = question(*opened(SCENARIO), {"distance": ["2000 km"]})
    assert (asked.own, len(asked.network)) == ((4.0, 80e3), 2)


def test_an_interrupt_shows_what_was_found(capsys, asked, monkeypatch, found):
    monkeypatch.setattr(study, "scale_across", lambda *_, **__: changed(found, stopped=True))
    assert main([*asked]) == 130
    out, err = capsys.readouterr()
    assert "interrupted" in err
    assert "What to change" in out


def test_a_search_that_is_stopped_at_once_has_nothing_to_show():
    document, rows = opened(SCENARIO)
    stopped = study.scale_across(document, rows, question(document, rows), stop=lambda: True)
    assert (stopped.stopped, stopped.fits) == (True, False)
    assert "Stopped before a cluster was searched" in str(stopped)


def test_nothing_that_fits_is_a_no(capsys):
    asked = ("--gpus", "32xH100-SXM5-80GB", "--buildings", "2", "--global-batch", "64", "--over", "distance=80 km")
    assert main(["plan", "--scale-across", "--model", "llama-3.1-405b", *asked]) == 1
    out = capsys.readouterr().out
    assert "No plan fits" in out
    assert "no set of degrees is legal and fits into memory" in out


@pytest.mark.parametrize(("arguments", "says"), [
    (("--objective", "cost", "--top", "3"), ("--objective, --top", "seconds alone")),
    (("--over", "dist=3"), ("no axis of scale-across", "distance, buildings, gpus")),
    (("--over", "distance=10,100", "--buildings", "2"), ("10 has no unit", "100 has no unit", "80 km")),
    (("--over", "gpus=100,128", "--over", "buildings=3", "--buildings", "2"), ("100 GPUs are no whole nodes", "96 or 120 are")),
    (("--over", "model=lama", "--over", "oversubscription=0", "--buildings", "2"), ("nearest are: llama-7b", "0 is out of reason")),
    ((), ("one island", "--buildings 2", "count: 2, gpus: 32xH100-SXM5-80GB")),
    (("--buildings", "3"), ("64 ÷ 3",)),
    (("--plot", "a.gif"), ("a picture is",)),
    (("--save", "a.txt"), ("a scenario is a .yaml or a .json",)),
    (("--save", "no/a.yaml"), ("there is no folder no",)),
])  # fmt: skip
def test_what_is_asked_wrongly_is_listed_with_ways_out(capsys, arguments, says):
    assert main(["plan", *ONE, "--scale-across", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    for words in says:
        assert words in err


def test_axes_alone_are_of_another_question(capsys):
    assert main(["plan", *ONE, "--over", "gpus=64", "--plot", "a.png"]) == 2
    assert "--over, --plot go only with --scale-across" in capsys.readouterr().err


@pytest.mark.parametrize(("over", "says"), [
    ({3: 4}, "3 is no axis"),
    ({"distance": np.array([])}, "has no values"),
    ({"distance": np.array([[10e3]])}, "a list is no length"),
    ({"gpus": range(16, 100_000)}, "99,984 values; at most 5,000"),
    (["gpus=32..4000", "buildings=2..64"], "points (4 oversubscription × 5 distance × 63 buildings × 3,969 gpus)"),
    (["model=llama-3.2-3b,./none.json"], "none.json: no such file"),
])  # fmt: skip
def test_values_of_any_kind_are_told_before_anything_is_searched(monkeypatch, over, says):
    monkeypatch.setattr(Cluster, "run", lambda _: pytest.fail("searched"))
    with pytest.raises(BadScenario) as told:
        shardmeter.scale_across(SCENARIO, over)
    assert says in str(told.value)


def test_methods_of_other_rounds_are_no_question(capsys):
    assert main(["plan", *ONE, "--scale-across", "--buildings", "2", "--set", "plan.sync.method=mezo"]) == 2
    assert "--set 'plan.sync={method: every_step}'" in capsys.readouterr().err


def _asked(change):
    data = copy.deepcopy(SCENARIO) | {
        "model": "llama-3.2-1b",
        "run": {"seq_len": 2048, "global_batch": 64},
        "plan": {"sharding": "zero1", "tp": 1, "pp": 1, "recompute": "none"},
    }
    change(data)
    document, rows = opened(data)
    document = asked_about(document)
    (found,) = study.scale_across(document, rows, question(document, rows, ["distance=80 km"])).to_dict()["cases"]
    return found["plans"][0]


@pytest.mark.parametrize("change", [
    lambda data: data.update(plan="auto,tp=2,pp=1"),
    lambda data: data["plan"].update(sync={"topology": "star"}),
    lambda data: data["fleet"].update(islands=[{"name": "a", "gpus": "16xH100-SXM5-80GB"}, {"name": "b", "gpus": "8xH100-SXM5-80GB"}]),
    lambda data: data["fleet"].update(islands=[
        {"name": "a", "gpus": "8xH100-SXM5-80GB"}, {"name": "b", "gpus": "8xH100-SXM5-80GB", "plan": {"tp": 2, "micro_batch": 2}},
    ]),
    lambda data: data["fleet"]["wan"].update(links=[{"from": "building-1", "to": "building-2", "rtt": "20 ms"}]),
], ids=["open", "sync", "unlike sizes", "own plan", "one way"])  # fmt: skip
def test_a_joint_plan_of_any_scenario_is_one_that_predict_answers_alike(change):
    plan = _asked(change)
    assert shardmeter.predict(plan["scenario"]).to_dict()["step_time_s"] == pytest.approx(plan["step_s"], rel=1e-9)
