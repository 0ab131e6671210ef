"""The report: what logs say beside what was predicted, and whether that was written before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab_stage import Simulated

from shardmeter.cli.main import main
from shardmeter.core.errors import BadData, ShardMeterError
from shardmeter.lab import prediction, running, speeds, study
from shardmeter.lab import report as reports
from shardmeter.lab.measured import measured
from shardmeter.render import json_text, lab_trace, markdown, plot_html, plot_lines
from shardmeter.render import lab as page
from shardmeter.render.figure import Line

TEXT = """
name: mine
models: {small: {layers: 2, hidden: 64}}
lines: {country: {bandwidth: 100 Mbps, rtt: 20 ms}}
experiments:
  - {name: outer, method: diloco, islands: 3, line: country, model: small, rounds: 5, sync: {sync_every: 10}}
  - {name: every, method: ddp, islands: 2, line: country, model: small, rounds: 1}
  - {name: probe, method: all_reduce, islands: 2, line: country, model: small, settings: {sizes: [4 B, 1 MB]}}
  - {name: killed, method: diloco, islands: 3, line: country, model: small, rounds: 5, sync: {sync_every: 10},
     fault: {kill: worker, island: b, after_round: 1}}
"""


def made(folder: Path, *, stage: Simulated | None = None, text: str = TEXT, **more: Any) -> Path:
    place = folder / "out"
    killed = Simulated(codes=lambda task, fault: -9 if fault is not None and task.island == 1 else 0)
    running.run(study.read(text), text, place, stage=(stage or killed).stage(), **more)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("lab"))


def entry(data: Any, name: str) -> Any:
    return next(one for one in data["experiments"] if one["name"] == name)


def test_measured_numbers_are_those_of_the_logs(place: Path) -> None:
    one = entry(reports.report(place).data, "outer")
    assert one["round"]["measured"] == pytest.approx(10 * 0.05 + 0.4)
    assert one["round"]["rounds"] == 5
    assert one["inner_step"]["measured"] == pytest.approx(0.05)
    assert one["sync"]["measured"] == pytest.approx(0.4)
    assert one["wire_bytes"]["measured"] == pytest.approx(3 * 5e6)
    assert one["payload_bytes"]["measured"] == pytest.approx(3.2e6)
    assert one["peak_memory_bytes"] == 2e8
    assert one["loss"]["curve"]
    told = {key: value for key, value in one["loss"].items() if key != "curve"}
    assert told == {"before": 5.5, "after": 3.5, "basis": "held-out", "falls": True, "diverged": False}


def test_errors_are_predicted_over_measured_less_one(place: Path) -> None:
    data = reports.report(place).data
    for one in data["experiments"]:
        for key in ("round", "wire_bytes"):
            said = one[key]
            assert said["error"] == pytest.approx(said["predicted"] / said["measured"] - 1.0), (one["name"], key)
    errors = [abs(one["round"]["error"]) for one in data["experiments"] if one["method"] != "all_reduce"]
    assert data["totals"]["round"]["n"] == 3
    assert data["totals"]["round"]["worst_abs_error"] == max(errors)
    assert data["totals"]["transport"]["n"] == 2


def test_rounds_after_a_fault_do_not_count(place: Path) -> None:
    one = entry(reports.report(place).data, "killed")
    assert one["round"]["rounds"] == 1
    assert one["survivors"] == ["a", "c"]
    assert "a worker of b was killed after 1 round; a, c went on to the end" in page.broken(one)[0]


def test_a_prediction_that_was_changed_or_is_younger_does_not_count(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer", "every"])
    file = where / "outer" / "prediction.json"
    said = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**said, "round_s": 0.9}), encoding="utf-8")
    late = where / "every" / "outcome.json"
    late.write_text(json.dumps({**json.loads(late.read_text(encoding="utf-8")), "started_at": 5.0}), encoding="utf-8")
    data = reports.report(where).data
    assert entry(data, "outer")["complaints"] == ["the prediction is not the one that was there when the run began"]
    assert entry(data, "every")["complaints"] == ["the prediction is no older than the run"]
    assert data["totals"]["predicted_first"] == 0
    assert data["totals"]["round"]["n"] == 0
    assert len(data["warnings"]) == 2


def test_a_run_without_an_end_and_one_that_was_never_run(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer", "every"])
    file = where / "outer" / "outcome.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "status": "running"}), encoding="utf-8")
    found = reports.report(where)
    assert entry(found.data, "outer")["status"] == "broken off"
    assert entry(found.data, "probe")["status"] == "not run"
    assert found.failed == ("outer",)
    assert found.data["totals"]["not_run"] == 2


def test_on_loopback_times_are_not_scored_and_messages_are(tmp_path: Path) -> None:
    data = reports.report(made(tmp_path, stage=Simulated(kind="loopback"), only=["outer", "probe"])).data
    one = entry(data, "outer")
    assert one["round"]["measured"] is not None
    assert one["round"]["error"] is None
    assert one["wire_bytes"]["measured"] is None
    assert one["payload_bytes"]["error"] is not None
    assert data["totals"]["transport"]["n"] == 0
    assert "not scored" in data["warnings"][0]


def test_a_machine_that_others_use_is_told(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    for file in (where / "outer" / "run").glob("*.jsonl"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"seconds": 0.05,', '"seconds": 0.1,'), encoding="utf-8"
        )
    (says,) = reports.report(where).data["warnings"]
    assert says.startswith("outer: a step took 1.98 × as long in the run as alone")


def test_training_that_gets_nowhere_is_told(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    for file in (where / "outer" / "run").glob("*.jsonl"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"loss": 3.5, "what"', '"loss": 6.5, "what"'), encoding="utf-8"
        )
    data = reports.report(where).data
    assert data["totals"]["loss"] == {"told": 1, "falls": 0, "not_falling": ["outer"]}


def test_other_figures_have_tables_of_their_own(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    lines = [
        {"event": "eval", "t": 900.0, "step": 9, "loss": 3.0, "what": "assembled"}, {"event": "eval", "t": 901.0, "step": 9, "loss": 2.5, "what": "reference"},
        {"event": "eval", "t": 902.0, "step": 9, "loss": 9.0, "what": "block 0"},
        {"event": "figure", "t": 903.0, "name": "variance_ratio", "value": 0.26, "expected": 0.25, "error": 0.01, "samples": 1000},
        {"event": "lost", "t": 904.0, "round": 2, "says": "rank 1 is gone", "members": [0, 2]},
    ]  # fmt: skip
    with (where / "outer" / "run" / "rank-0.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    data = reports.report(where).data
    (whole,) = data["assembled"]
    assert (whole["what"], whole["reference"], whole["difference"]) == ("assembled", "reference", 0.5)
    (ratio,) = data["variance"]
    assert (ratio["value"], ratio["expected"], ratio["experiment"]) == (0.26, 0.25, "outer")
    assert entry(data, "outer")["lost"][0]["members"] == [0, 2]
    text = markdown.text(page.document(data))
    assert "| outer | assembled | 3.000 | reference | 2.500 | +0.500 |" in text


def test_logs_without_a_round_that_counts_are_no_numbers() -> None:
    one = study.read(TEXT).experiments[0]
    found = measured(one, {0: ({"event": "ready", "t": 1.0}, {"event": "stopped", "t": 2.0, "says": "no"})})
    assert (found.round, found.step, found.sync, found.wire, found.before) == (None,) * 5
    assert found.stopped[0]["says"] == "no"


def test_the_trace_has_a_row_a_worker_and_the_round_that_was_predicted(place: Path) -> None:
    found = reports.report(place)
    events = json.loads(lab_trace.text(found.data, found.logs))["traceEvents"]
    names = {one["args"]["name"] for one in events if one["ph"] == "M" and one["name"] == "thread_name"}
    assert {"predicted", "worker 0 · steps", "worker 2 · rounds", "worker 1 · exchanges"} <= names
    lasting = [one for one in events if one["ph"] == "X" and one["pid"] == 1]
    assert sum(one["cat"] == "predicted" for one in lasting) == 5
    assert all(one["dur"] > 0 and one["ts"] >= 0 for one in lasting)


def test_what_is_drawn(place: Path) -> None:
    data = reports.report(place).data
    drawn = page.figures(data)
    assert [one.slug for one in drawn] == ["rounds", "bytes", "losses"]
    assert "mine" not in plot_html.page(drawn)[:0].decode()
    assert (
        len(drawn[0].lines)
        == len({one["method"] for one in data["experiments"] if one["round"]["error"] is not None}) + 1
    )


def test_the_page_and_the_json_are_plain(place: Path) -> None:
    data = json.loads(json_text.text(page.document(reports.report(place).data)))
    assert {
        "version",
        "data_date",
        "assumptions",
        "warnings",
        "study",
        "machine",
        "experiments",
        "totals",
        "variance",
        "assembled",
        "figures",
    } <= set(data)
    keys = {
        "name",
        "method",
        "status",
        "predicted_first",
        "round",
        "inner_step",
        "sync",
        "wire_bytes",
        "payload_bytes",
        "loss",
        "peak_memory_bytes",
    }
    assert all(keys <= set(one) for one in data["experiments"])


@pytest.mark.parametrize("lacks", ["study.yaml", "machine.json"])
def test_a_folder_that_no_lab_made_is_refused(lacks: Any, tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    (where / lacks).unlink()
    with pytest.raises(BadData, match="no folder of `shardmeter lab run`"):
        reports.report(where)


@pytest.mark.parametrize("file", ["prediction.json", "outcome.json", "run/rank-0.jsonl"])
def test_a_damaged_file_is_one_sentence(file: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = made(tmp_path, only=["outer"])
    (where / "outer" / file).write_text("{]\n", encoding="utf-8")
    assert main(["lab", "report", str(where)]) == 2
    seen = capsys.readouterr()
    assert file.rpartition("/")[2] in seen.err
    assert "Traceback" not in seen.err


# ---- the command -----------------------------------------------------------------------------------------------------------------


def test_the_command_writes_page_json_and_trace(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "lab",
                "report",
                str(place),
                "--format",
                "json",
                "-o",
                str(tmp_path / "page.md"),
                "--plot",
                str(tmp_path / "page.html"),
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert json.loads((place / "report.json").read_text(encoding="utf-8")) == {**said, "bars_missed": []}
    assert "## Rounds" in (tmp_path / "page.md").read_text(encoding="utf-8")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!")
    assert json.loads((place / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert main(["lab", "report", str(place), "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("name,method,islands,status,predicted_first,round_predicted_s,")


def test_a_missed_bar_is_a_no(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = tmp_path / "bars.yaml"
    bars.write_text("totals.round.median_abs_error: {max: 0.0001}\n", encoding="utf-8")
    assert main(["lab", "report", str(place), "--bars", str(bars)]) == 1
    assert "allowed at most 0.0001" in capsys.readouterr().out
    bars.write_text("totals.predicted_first: {min: 4}\n", encoding="utf-8")
    assert main(["lab", "report", str(place), "--bars", str(bars)]) == 0
    bars.write_text("totals.rounds: {min: 4}\n", encoding="utf-8")
    assert main(["lab", "report", str(place), "--bars", str(bars)]) == 2
    assert "round" in capsys.readouterr().err


def test_a_failed_experiment_is_a_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = made(tmp_path, stage=Simulated(codes=lambda task, fault: 1), only=["outer"])
    assert main(["lab", "report", str(where)]) == 1
    assert "outer (failed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("report", "no-such-folder"), "no folder of `shardmeter lab run`"),
        (("run", "no-such-study"), "no study that ships: bundled, fast"),
        (("run", "no-such-study.yaml"), "no such file"),
        (("run", "fast", "--only", "dilco-2"), "diloco-2"),
        (("run", "fast", "--kind", "wires"), "'wires' is not one of"),
        (("run",), "Missing argument 'STUDY'"),
        (("report", ".", "--plot", "x.pdf"), "a picture is a .png"),
        (("reprt",), "No such command"),
    ],
)
def test_wrong_input_is_a_sentence(arguments: Any, says: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *arguments]) == 2
    seen = capsys.readouterr()
    assert says in seen.err
    assert seen.out == ""
    assert "Traceback" not in seen.err


def test_the_study_may_be_mistyped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(TEXT.replace("sync_every", "sync_evry"), encoding="utf-8")
    assert main(["lab", "run", str(file), "-o", str(tmp_path / "out")]) == 2
    assert "did you mean 'sync_every'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_pytorch_that_is_said_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmeter.lab.machine.torch_version", lambda: "")
    assert main(["lab", "run", "fast", "-o", str(tmp_path / "out")]) == 74
    assert "pip install 'shardmeter[lab]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_privileges_the_way_out_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmeter.lab.machine.torch_version", lambda: "9.9")
    monkeypatch.setattr("shardmeter.lab.network.missing", lambda kind="auto": ("needs root",))
    assert main(["lab", "run", "fast", "-o", str(tmp_path / "out")]) == 74
    assert "needs root; --kind loopback trains without" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("torch", "lines", "code"), [("9.9", (), 0), ("", (), 1), ("9.9", ("needs root",), 1), ("", ("needs root",), 1)]
)
def test_check_says_what_is_missing(
    torch: Any, lines: Any, code: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("machine", "checking"):
        monkeypatch.setattr(f"shardmeter.lab.{module}.torch_version", lambda: torch)
    monkeypatch.setattr("shardmeter.lab.network.missing", lambda kind="auto": lines)
    monkeypatch.setattr("shardmeter.lab.checking.cores", lambda: 2)
    assert main(["lab", "check", "--format", "json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["works"] is (code == 0)
    assert len(said["missing"]) == len(lines) + (not torch)
    assert main(["lab", "check"]) == code
    assert ("Not all" in capsys.readouterr().out) is (code == 1)


def test_nothing_that_was_measured_enters_a_prediction(tmp_path: Path) -> None:
    """Steps that were begun again make a round longer than predicted, not its prediction."""
    where = made(tmp_path, only=["outer"])
    before = entry(reports.report(where).data, "outer")
    for file in (where / "outer" / "run").glob("rank-*.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines()
        twice = [line for line in lines for _ in range(1 + (json.loads(line)["event"] == "step"))]
        file.write_text("\n".join(twice) + "\n", encoding="utf-8")
    data = reports.report(where).data
    after = entry(data, "outer")
    for key in ("round", "sync", "wire_bytes", "payload_bytes"):
        assert after[key]["predicted"] == before[key]["predicted"]
    assert before["steps_more"] == 0.0
    assert after["steps_more"] == 10.0
    assert any("begun again" in says for says in data["warnings"])


def test_a_study_of_probes_alone_has_a_page(tmp_path: Path) -> None:
    data = reports.report(made(tmp_path, only=["probe"])).data
    drawn = page.figures(data)
    assert drawn
    assert "within" in drawn[0].title
    assert "None" not in markdown.text(page.document(data))


ALIKE = """
name: which
models: {small: {layers: 2, hidden: 64}}
lines: {slow: {bandwidth: 10 Mbps, rtt: 80 ms}, fast: {bandwidth: 1 Gbps, rtt: 5 ms}}
experiments:
  - {name: every, method: ddp, islands: 3, line: slow, model: small, rounds: 1}
  - {name: outer, method: diloco, islands: 3, line: slow, model: small, rounds: 3, sync: {sync_every: 10}}
  - {name: apart, method: diloco, islands: 3, line: fast, model: small, rounds: 3, sync: {sync_every: 10}}
"""


def test_methods_on_alike_lines_are_set_against_each_other_in_tokens_a_second(tmp_path: Path) -> None:
    data = reports.report(made(tmp_path, text=ALIKE)).data
    every, outer = entry(data, "every"), entry(data, "outer")
    tokens = 3 * 8 * 64
    assert every["tokens_per_s"]["measured"] == pytest.approx(tokens / (0.05 + 0.4))
    assert outer["tokens_per_s"]["measured"] == pytest.approx(10 * tokens / (10 * 0.05 + 0.4))
    for one in (every, outer):
        said = one["tokens_per_s"]
        assert said["error"] == pytest.approx(said["predicted"] / said["measured"] - 1.0)
    (group,) = data["contests"]
    assert group["experiments"] == ["outer", "every"]
    assert group["over_slowest"][0]["measured"] == pytest.approx(10 * 0.45 / 0.9)
    assert (group["pairs"], group["pairs_as_predicted"]) == (1, 1)
    text = markdown.text(page.document(data))
    assert "3 × 10 Mbit/s, 80.0 ms: outer trains 5.00 × as fast as every (predicted" in text
    assert "apart trains" not in text


def test_an_order_that_was_not_predicted_is_told() -> None:
    rates = {"fast": (1.0, 9.0), "middle": (2.0, 6.0), "slow": (1.5, 3.0)}
    entries = [
        {**dict.fromkeys(speeds.ALIKE, 0), "name": name, "tokens_per_s": {"predicted": said, "measured": took, "error": said / took - 1.0}}
        for name, (said, took) in rates.items()
    ]  # fmt: skip
    (group,) = speeds.contests(entries)
    assert group["experiments"] == ["fast", "middle", "slow"]
    assert (group["pairs"], group["pairs_as_predicted"]) == (3, 1)
    assert speeds.contests(entries[:1]) == []


def test_nothing_is_set_against_each_other_where_times_are_not_scored(tmp_path: Path) -> None:
    assert reports.report(made(tmp_path, stage=Simulated(kind="loopback"), text=ALIKE)).data["contests"] == []


@pytest.mark.parametrize(
    ("busy", "says"), [(1.0, "islands slow each other"), (0.1, "something else uses this machine")]
)
def test_who_slows_a_step_is_told_from_how_busy_workers_were_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float, says: str
) -> None:
    monkeypatch.setattr("shardmeter.lab.machine.cores", lambda: 2)
    monkeypatch.setattr(running, "cores", lambda: 2)
    heard: list[str] = []
    data = reports.report(made(tmp_path, stage=Simulated(busy=busy, drag=1.5), text=ALIKE, say=heard.append)).data
    assert entry(data, "outer")["cores_wanted"] == pytest.approx(3 * busy, rel=0.02)
    crowded = [line for line in heard if "want 3.0 of 2 cores" in line]
    assert len(crowded) == (3 if busy == 1.0 else 0)
    slow = [line for line in data["warnings"] if line.startswith("outer: a step took")]
    assert len(slow) == 1
    assert slow[0].endswith(says)


def test_progress_tells_its_place_and_how_long_it_takes(tmp_path: Path) -> None:
    heard: list[str] = []
    made(tmp_path, text=ALIKE, say=heard.append)
    assert heard[0] == "1/3 every: island a runs by itself for 3 s"
    assert "on the lines a round; now 11 rounds, the first to warm up: about " in heard[2]
    assert heard[-1].startswith("3/3 apart: done in ")


def test_results_that_are_in_the_way_are_counted(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ShardMeterError, match="has results of outer, every, probe and 1 more; --again replaces them"):
        made(tmp_path)


def test_the_lab_without_a_command_says_its_help_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab"]) == 2
    said = capsys.readouterr().err
    assert said.count("Usage: shardmeter lab") == 1
    assert "Error" not in said
    assert "shardmeter lab run fast" in said


def test_the_line_to_compare_with_has_no_marks_of_its_own() -> None:
    class Axes:
        def plot(self, *_: object, **look: object) -> None:
            self.marker = look["marker"]

    axes = Axes()
    plot_lines._line(axes, Line(label="as measured", x=(1.0, 2.0), y=(1.0, 2.0), style="dashed"), 0)
    assert axes.marker == ""
    plot_lines._line(axes, Line(label="found", x=(1.0, 2.0), y=(1.0, 2.0)), 0)
    assert axes.marker


SHORT = "\n".join(
    line for line in TEXT.splitlines() if "killed" not in line and "fault" not in line and "name: every" not in line
)
WRONG: tuple[Any, ...] = (
    None,
    True,
    "x",
    [],
    [1],
    [None],
    {},
    {"a": 1},
    float("nan"),
    float("-inf"),
    10**400,
    1e300,
    -1,
    0,
)
FILES = ("machine.json", "outer/outcome.json", "outer/prediction.json", "probe/prediction.json", "probe/outcome.json")


def fields(data: Any, most: int, path: tuple[Any, ...] = ()) -> Any:
    """Places in a value of JSON, `most` items of every list."""
    if path:
        yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data[:most]) if isinstance(data, list) else ()
    for key, value in inner:
        if path != ("predict",) or key == "sync":
            yield from fields(value, most, (*path, key))


def edited(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    new = json.loads(json.dumps(data))
    place = new
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return new


def told_or_refused(where: Path) -> None:
    """A report with all that is drawn of it, or one clear refusal."""
    try:
        found = reports.report(where)
    except BadData as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "as a lab writes it" in said or "no event of a worker" in said
        return
    document = page.document(found.data)
    json_text.text(document)
    markdown.text(document)
    lab_trace.text(found.data, found.logs)
    plot_html.page(page.figures(found.data))


@pytest.mark.parametrize("name", FILES)
def test_whatever_a_field_of_a_file_holds_is_told_or_refused(tmp_path: Path, name: str) -> None:
    where = made(tmp_path, text=SHORT)
    text = (where / name).read_text(encoding="utf-8")
    data, outcome = json.loads(text), where / name.split("/", maxsplit=1)[0] / "outcome.json"
    for number, path in enumerate(fields(data, 1)):
        for value in WRONG[number % 14 :: 14]:
            (where / name).write_text(json.dumps(edited(data, path, value)), encoding="utf-8")
            if name.endswith("prediction.json"):  # as if it had been there when the run began
                said = json.loads(outcome.read_text(encoding="utf-8"))
                outcome.write_text(json.dumps({**said, "prediction_sha256": prediction.digest(where / name)}))
            told_or_refused(where)


@pytest.mark.parametrize("name", ["outer", "probe"])
def test_whatever_a_field_of_an_event_holds_is_told_or_refused(tmp_path: Path, name: str) -> None:
    where = made(tmp_path, text=SHORT)
    file = where / name / "run" / "rank-0.jsonl"
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lasts = {event["event"]: at for at, event in enumerate(events)}
    for number, path in enumerate((at, field) for at in lasts.values() for field in events[at]):
        for value in WRONG[number % 14 :: 14]:
            new = edited(events, path, value)
            file.write_text("".join(json.dumps(event) + "\n" for event in new), encoding="utf-8")
            told_or_refused(where)


def test_a_damaged_file_is_refused_with_its_fields(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    file = where / "outer" / "outcome.json"
    file.write_text(json.dumps({"status": 3, "survivors": [None]}), encoding="utf-8")
    with pytest.raises(BadData, match=r"status: wanted text, got 3\n.*survivors\.0: is nothing"):
        reports.report(where)
    file.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(BadData, match="is no outcome of a run"):
        reports.report(where)


def test_a_training_that_diverged_is_told_and_does_not_fall(tmp_path: Path) -> None:
    where = made(tmp_path, only=["outer"])
    for file in (where / "outer" / "run").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        last = max(at for at, one in enumerate(lines) if "loss" in one)
        lines[last]["loss"] = float("nan")
        file.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    found = reports.report(where)
    assert entry(found.data, "outer")["loss"]["falls"] is False
    assert found.data["totals"]["loss"]["not_falling"] == ["outer"]
    assert "outer: a loss was no finite number: the training diverged" in found.data["warnings"]
    told_or_refused(where)


def test_a_study_of_nothing_but_probes_is_drawn(tmp_path: Path) -> None:
    assert page.figures(reports.report(made(tmp_path, only=["probe"])).data)
