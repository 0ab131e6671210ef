"""The document about a scenario: its figures are those of the other commands, it is the same every time, whole in every kind of file, and errors
are told before any work."""

from __future__ import annotations

import html.parser
import json
import os
import re
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.cli.main import main
from shardmeter.render import paper_html, paper_markdown, reporting, yaml_text
from shardmeter.render import report as page
from shardmeter.render.document import Column, Table
from shardmeter.render.heading import heading
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.report import compared, validated
from shardmeter.study.report.validated import nearest
from shardmeter.study.validate import shipped
from shardmeter.study.validate.resolve import map_rows

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "llama-8b-64xh100.yaml"
CHAPTERS = 11
SMALL: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpus": "16xH100-SXM5-80GB",
    "plan": "fsdp,recompute=full",
    "global_batch": 32,
}
FEW = ["--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB", "--plan", "fsdp", "--no-search", "--alternatives", "0"]
matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="pictures need matplotlib")


@pytest.fixture(scope="module")
def whole() -> Any:
    """The report on the first example, searched."""
    return shardmeter.report(EXAMPLE, deadline="30 d", budget="$100k", date="2027-01-31")


def paper(found: Any) -> Any:
    return page.written(found.to_dict(), heading(found.scenario))


def test_its_prediction_and_its_plans_are_those_of_the_other_commands(whole):
    limits = ["run.deadline=30 d", "run.budget=$100k"]
    found = whole.to_dict()
    assert found["prediction"] == shardmeter.predict(EXAMPLE, overrides=limits).to_dict()
    plans = shardmeter.plan(EXAMPLE, overrides=limits).to_dict()
    for one, other in zip(found["plans"]["plans"], plans["plans"], strict=False):
        assert (one["line"], one["step_time_s"], one["cost_usd"]) == (
            other["line"],
            other["step_time_s"],
            other["cost_usd"],
        )
    assert found["plans"]["yours"]["rank"] == plans["yours"]["rank"]
    hangs = shardmeter.sensitivity(EXAMPLE, "run.cost_usd", overrides=limits).to_dict()["levers"]
    assert found["sensitivity"]["levers"] == hangs[: len(found["sensitivity"]["levers"])]


def test_other_machines_are_predicted_as_scenarios_of_their_own(whole):
    others = {one["name"]: one for one in whole.to_dict()["alternatives"]["others"]}
    assert list(others) == ["size_twice", "size_half", "fabric_next", "size_four_times"]
    for name, override in (
        ("size_twice", "fleet.islands.0.nodes=16"),
        ("size_half", "fleet.islands.0.nodes=4"),
        ("fabric_next", "fleet.islands.0.fabric=ib-xdr800"),
    ):
        alone = shardmeter.predict(EXAMPLE, overrides=[override]).to_dict()
        assert others[name]["wall_clock_s"] == alone["run"]["wall_clock_s"]
        assert others[name]["cost_usd"] == alone["run"]["cost_usd"]
        assert others[name]["intervals"]["cost_usd"] == alone["intervals"]["cost_usd"]
    assert "128 is no multiple" in others["size_four_times"]["why"]
    assert others["size_four_times"]["wall_clock_s"] is None


def test_what_was_validated_is_what_validate_says(whole, shipped_report):
    block = whole.to_dict()["validation"]
    group = shipped_report["by_group"]["stack:titan-compile"]
    assert block["stack"]["step_time"] == group["step_time"]
    assert block["stack"]["memory"] == group["memory"]
    assert block["everything"]["mape"] == pytest.approx(shipped_report["metrics"]["step_time"]["loso_mape"], rel=1e-12)
    rows = {one["id"]: one for one in shipped_report["rows_detail"] if one["quantity"] == "step_time"}
    for one in block["nearest"]:
        assert one["predicted_s"] == pytest.approx(rows[one["id"]]["predicted"], rel=1e-12)
        assert one["error"] == pytest.approx(rows[one["id"]]["error"], rel=1e-9)


def seen(row: Any) -> Any:
    """The scenario of a row that has one."""
    return row.scenario


def test_the_nearest_run_to_a_measured_run_is_itself():
    rows = map_rows(shipped.measured().rows, load_catalog())
    counted = [
        row
        for row in rows
        if row.scenario is not None and row.regime == "normal" and row.step_time and not row.identity
    ]
    for row in counted[::250]:
        found = nearest(seen(row), rows)
        assert found[0][0] == 0.0
        assert row.id in [one.id for far, one in found if far == 0.0] or len(found) == sum(
            far == 0.0 for far, _ in found
        )
        assert [far for far, _ in found] == sorted(far for far, _ in found)
    assert len(counted[::250]) >= 4


def test_a_stack_that_no_run_taught_says_so():
    found = shardmeter.report(
        **SMALL, overrides={"stack": {"base": "titan-compile", "launch_overhead": "9 us"}}, search=False, alternatives=0
    )
    block = found.to_dict()["validation"]
    assert block["stack"] is None
    assert block["everything"]["n"] > 1000
    assert "No measured run taught this stack" in str(found)


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_nothing_in_it_comes_from_a_clock(whole):
    assert not keys(whole.to_dict()["plans"]["space"]) & {"seconds", "plans_per_s"}
    again = shardmeter.report(EXAMPLE, deadline="30 d", budget="$100k", date="2027-01-31")
    assert json.dumps(again.to_dict(), sort_keys=True) == json.dumps(whole.to_dict(), sort_keys=True)
    assert paper_markdown.text(paper(again), "r") == paper_markdown.text(paper(whole), "r")


@matplotlib
def test_another_process_writes_the_same_bytes(tmp_path):
    texts = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}" / "report.html"
        file.parent.mkdir()
        words = ["report", str(EXAMPLE), "--no-search", "--alternatives", "1", "-o", str(file)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-m", "shardmeter", *words], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        texts.append(file.read_bytes())
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0].decode()


def test_the_scenario_in_it_makes_it_again(whole, tmp_path):
    held = tmp_path / "scenario.yaml"
    held.write_text(yaml_text.text(whole.to_dict()["scenario"]))
    assert shardmeter.predict(held).to_dict() == whole.to_dict()["prediction"]


class Tags(html.parser.HTMLParser):
    """The elements of a page, and whether they close."""

    VOID = frozenset({"meta", "wbr", "path", "use", "rect", "circle", "line", "stop", "br", "image"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append(tag)


@matplotlib
def test_the_page_is_whole_and_asks_nothing_of_the_net(whole):
    text = paper_html.text(paper(whole))
    tags = Tags()
    tags.feed(text)
    assert tags.problems == []
    assert tags.open == []
    names = [tag for tag, _ in tags.seen]
    assert not {"script", "link", "iframe", "img", "object"} & set(names)
    assert names.count("h2") == CHAPTERS
    assert names.count("svg") == names.count("figure") == len(list(paper(whole).figures())) >= 4
    targets = [
        value
        for _, attrs in tags.seen
        for name, value in attrs.items()
        if name in ("href", "src", "xlink:href") and value
    ]
    ids = {attrs["id"] for _, attrs in tags.seen if attrs.get("id")}
    assert all(target.startswith("#") for target in targets)
    assert {target[1:] for target in targets if target.startswith("#chapter")} <= ids
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text


@matplotlib
def test_what_users_write_is_no_markup():
    found = shardmeter.report(
        {"name": "<b>x</b>", "model": "llama-3.1-8b", "gpus": "16xH100-SXM5-80GB", "plan": "fsdp"},
        title="a <script>alert(1)</script> & b",
        search=False,
        alternatives=0,
    )
    text = paper_html.text(paper(found))
    assert "<script>" not in text
    assert "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; b" in text


@matplotlib
def test_markdown_has_its_pictures_beside_it(tmp_path):
    file = tmp_path / "my report.md"
    found = shardmeter.report(EXAMPLE, file, search=False, alternatives=2)
    text = file.read_text(encoding="utf-8")
    named = re.findall(r"!\[[^]]*\]\(<([^>]+)>\)", text)
    assert len(named) == len(list(paper(found).figures())) >= 4
    assert {one.name for one in tmp_path.iterdir()} == {"my report.md", *named}
    assert all((tmp_path / name).read_bytes().startswith(b"<?xml") for name in named)


@matplotlib
def test_pdf_is_the_same_every_time(tmp_path):
    pytest.importorskip("reportlab", reason="PDF needs reportlab")
    one, other = tmp_path / "one.pdf", tmp_path / "other.pdf"
    found = shardmeter.report(EXAMPLE, one, search=False, alternatives=2, title="Ünlike ≤ × signs")
    shardmeter.report(EXAMPLE, other, search=False, alternatives=2, title="Ünlike ≤ × signs")
    raw = one.read_bytes()
    assert raw == other.read_bytes()
    assert raw.startswith(b"%PDF-")
    assert raw.rstrip().endswith(b"%%EOF")
    assert len(re.findall(rb"/Type /Page\b", raw)) >= 6
    assert raw.count(b"/Subtype /Image") >= len(list(paper(found).figures()))


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("does-not-fit", 1, "The first change that makes it fit: "),
        ("dpo-llama-8b", 0, "No measured run had a reference model, so that nothing was checked"),
        ("home-workers", 0, "The round"),
        ("target-loss", 0, "law of the loss"),
        ("spot-fleet", 0, "preemption"),
    ],
)
def test_every_kind_of_scenario_is_reported(name, code, says, capsys):
    assert main(["report", str(EXAMPLES / f"{name}.yaml"), "--no-search"]) == code
    text = capsys.readouterr().out
    assert says in text
    assert "11. " in text
    assert "How far predictions were off" in text


def test_steps_without_a_backward_are_reported():
    found = shardmeter.report(
        **{**SMALL, "gpus": "2xH100-SXM5-80GB", "plan": "none"},
        overrides={"plan.sync.method": "mezo", "plan.dp_replicate": 2, "plan.sharding": "ddp"},
        search=False,
        alternatives=1,
    )
    text = str(page.document(found.to_dict(), "x").sections)
    assert "A step without a backward" in text
    assert "steps without a backward: the loss is not known" in text


def test_without_a_length_no_days_are_told():
    found = shardmeter.report(**SMALL, search=False)
    assert found.to_dict()["prediction"]["run"] is None
    assert found.to_dict()["practice"] is None
    text = paper_markdown.text(paper(found), "r")
    assert "No length of the run was said" in text
    assert "How fast does the training" in text
    assert "done in" not in text


def test_a_plan_that_is_left_open_is_found_and_is_what_is_reported():
    found = shardmeter.report(
        **{**SMALL, "plan": "auto"}, alternatives=1, overrides={"plan.tp": 1, "plan.pp": 1, "plan.cp": 1}
    )
    best = found.to_dict()["plans"]["plans"][0]
    assert found.to_dict()["prediction"]["step_time_s"] == best["step_time_s"]
    assert found.to_dict()["plans"]["yours"] is None
    assert shardmeter.predict(found.to_dict()["scenario"]).to_dict()["step_time_s"] == best["step_time_s"]
    assert "It is the best plan by time" in paper_markdown.text(paper(found), "r")


def test_a_search_beyond_its_size_is_not_begun(monkeypatch):
    monkeypatch.setattr(compared, "LARGEST", 100)
    found = shardmeter.report(EXAMPLE, alternatives=0).to_dict()
    assert found["plans"]["plans"] == []
    assert "--search" in found["plans"]["why"]
    asked = shardmeter.report(**SMALL, alternatives=0, search=True).to_dict()
    assert asked["plans"]["why"] is None
    assert asked["plans"]["space"]["optimal"]


def test_a_limit_that_is_missed_is_no_and_is_written_all_the_same(tmp_path, capsys):
    file = tmp_path / "report.md"
    words = ["report", str(EXAMPLE), "--deadline", "5 d", "--no-search", "--alternatives", "0", "-o", str(file)]
    if find_spec("matplotlib") is None:
        pytest.skip("pictures need matplotlib")
    assert main(words) == 1
    text = file.read_text(encoding="utf-8")
    assert "The deadline is missed" in text
    assert "--deadline '5 d'" in text
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_json_is_the_same_with_and_without_a_file(capsys):
    assert main(["report", str(EXAMPLE), "--no-search", "--alternatives", "0", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"]["fits"] is True
    assert found["data_date"]
    assert found["typed"] == f"shardmeter report {EXAMPLE} -o report.html --no-search --alternatives 0"
    assert found["command"] == "shardmeter report scenario.yaml -o report.html --no-search --alternatives 0"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["-o", "report.docx"], "a report is an .html, an .md or a .pdf"),
        (["-o", "no/such/folder/report.html"], "there is no folder"),
        (["-o", "."], "a report is an"),
        (["--date", "31.1.2027"], "YYYY-MM-DD"),
        (["--date", "2027-02-30"], "YYYY-MM-DD"),
        (["--title", "two\nlines"], "one line"),
        (["--title", "x" * 201], "at most 200"),
        (["--alternatives", "9"], "0<=x<=6"),
        (["--deadline", "soon"], "deadline"),
        (["--set", "model=no-such"], "no-such"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(more, says, capsys):
    assert main(["report", str(EXAMPLE), "--no-search", *more]) == 2
    text = capsys.readouterr().err
    assert says in text
    assert "Traceback" not in text


def test_everything_that_is_wrong_is_told_at_once():
    with pytest.raises(shardmeter.BadScenario) as caught:
        shardmeter.report(EXAMPLE, title="a\nb", date="x", alternatives=99, search="maybe")  # type: ignore[arg-type]
    assert {one.field for one in caught.value.violations} == {"title", "date", "alternatives", "search"}


def test_a_record_has_nothing_to_print_in_full():
    with pytest.raises(TypeError, match="resolved"):
        shardmeter.report(shardmeter.load(EXAMPLE))  # type: ignore[arg-type]


def test_what_a_file_needs_is_told_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "reportlab" else object())
    with pytest.raises(shardmeter.core.errors.Unavailable, match=r"shardmeter\[report\]"):
        shardmeter.report("no-such-file.yaml", tmp_path / "report.pdf")
    with pytest.raises(shardmeter.BadScenario, match="no such file"):
        shardmeter.report("no-such-file.yaml", tmp_path / "report.html")


def test_the_distance_of_kinds_counts():
    scenario = shardmeter.load(None, options=SMALL)
    rows = validated._mapped()
    near = nearest(scenario, rows, most=len(rows))
    same = [far for far, row in near if row.stack == scenario.stack.name]
    assert min(same) < min(
        far for far, row in near if row.scenario is not None and row.scenario.model.family != "decoder"
    )


@matplotlib
def test_what_users_write_is_no_markup_in_markdown_either():
    evil = "<script>x</script><img src=x> [a](javascript:x) ``` <!-- \\<b>"
    islands = [{"name": f"{evil} {at}", "gpus": "8xH100-SXM5-80GB"} for at in range(2)]
    said = {
        "model": "llama-3.1-8b",
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "20 ms"}}},
    }
    said |= {"name": evil, "plan": {"sharding": "fsdp", "sync": {"method": "diloco", "sync_every": 10}}}
    made = paper(shardmeter.report(said, title=evil, search=False, alternatives=0))
    lines, fence, outside = paper_markdown.text(made, "a>b").split("\n"), "", []
    for line in lines:
        if line.startswith("```") and not fence:
            fence = line.removesuffix("text")
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(line)
    assert not fence
    shown = "\n".join(outside)
    assert "&lt;script>" in shown
    assert not re.search(r"<(script|img|/|!|b>)", shown)
    assert "](javascript" not in shown
    assert "](<a%3Eb-step.svg>)" in shown


@matplotlib
def test_links_that_end_in_each_other_are_no_file(tmp_path, capsys):
    (tmp_path / "a.html").symlink_to("a.html")
    command = ["report", *FEW, "-o", str(tmp_path / "a.html")]
    assert main(command) == 2
    assert "symbolic links" in capsys.readouterr().err


@matplotlib
def test_names_that_are_no_text(tmp_path, capsys):
    odd = os.fsdecode(b"bad\xff")
    assert main(["report", *FEW, "-o", str(tmp_path / f"{odd}.html")]) == 2
    assert "no UTF-8 text" in capsys.readouterr().err
    file = tmp_path / f"{odd}.yaml"
    file.write_bytes(EXAMPLE.read_bytes())
    assert main(["report", str(file), "--no-search", "--alternatives", "0", "-o", str(tmp_path / "a.html")]) == 0
    assert "bad?.yaml" in (tmp_path / "a.html").read_text(encoding="utf-8")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "report.html")
    return tmp_path / "report.html"


@matplotlib
def test_a_pipe_that_is_read_gets_the_page(pipe):
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert main(["report", *FEW, "-o", str(pipe)]) == 0
        assert reader.stdout is not None
        assert reader.stdout.read().endswith(b"</html>\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@matplotlib
def test_a_pipe_that_nobody_reads_is_a_sentence(pipe, monkeypatch, capsys):
    monkeypatch.setattr("shardmeter.core.files.PATIENCE", 0.2)
    assert main(["report", *FEW, "-o", str(pipe)]) == 74
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == f"error: {pipe}: cannot be written (a pipe that nobody has read for 0.2 s)"
    )


def test_islands_and_their_lines_are_in_the_summary():
    found = shardmeter.report(EXAMPLES / "two-buildings-hsdp.yaml", search=False, alternatives=0)
    sent = found.answer["prediction"]["islands"][0]["sent_bytes"]
    (line,) = found.answer["lines"]
    assert line["between"] == [["north", "south"]]
    assert line["sent_bytes"] == [sent, sent]
    assert line["rates"][0] == pytest.approx(4096 * 400e9 / 8 / 4)  # a quarter of what the accelerators have
    written = page.written(found.to_dict(), "")
    assert {"The islands", "The lines between them"} <= {one.title for one in written.chapters[0].sections}


def test_lines_of_many_islands_are_told_by_kind():
    found = shardmeter.report(EXAMPLES / "intellect-1.yaml", search=False, alternatives=0).answer
    assert sum(one["pairs"] for one in found["lines"]) == 14 * 13 / 2
    assert [one["rates"][0] * 8.0 for one in found["lines"]] == pytest.approx([4e9, 1e9, 0.5e9, 4e9, 2e9])
    assert {one["sent_bytes"] for one in found["lines"]} == {None}  # which of its lines takes it is not split


def test_which_runs_a_factor_is_from_is_said_once():
    found = shardmeter.report(EXAMPLE, deadline="30 d", budget="$100k", search=False, alternatives=0)
    made = paper_markdown.text(page.written(found.to_dict(), ""), "report")
    assert made.count(found.answer["practice"]["runs"]) == 1


def test_a_table_of_too_many_columns_names_what_it_leaves_out():
    columns = tuple(Column(key=f"k{at}", title=f"head {at}", drop=at % 2) for at in range(14))
    made = paper_html.section(Table(title="wide", columns=columns, rows=({one.key: 1.0 for one in columns},)))
    assert made.count("<th ") == 7
    assert "left out for lack of room: head 1, head 3," in made
