"""The pages cannot drift from the program."""

import json
import re
import shlex
from pathlib import Path

import pytest

import accuracy_page
import audit_page
import check_docs
import command_reference
import geo_page
import loss_page
import sync_page
from shardmeter import sync
from shardmeter.cli import cli, main
from shardmeter.core.record import field_names
from shardmeter.scenario import load
from shardmeter.scenario.schema import IslandInput, PlanInput, RunInput, ScenarioInput
from shardmeter.specs import Accelerator, Fabric, Model, Stack

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("command", cli.commands)
def test_every_command_is_documented(command):
    assert f"## {command}\n" in (DOCS / "commands.md").read_text(encoding="utf-8")
    assert f"shardmeter {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_command_reference_is_fresh():
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == command_reference.page()


def test_the_page_of_sync_methods_is_fresh_and_has_every_method():
    text = (DOCS / "sync.md").read_text(encoding="utf-8")
    assert text == sync_page.page()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(sync.names())
    assert re.findall(r"^\| \[(\w+)\]\(#\w+\) \|", text, re.MULTILINE) == list(sync.names())


def test_the_accuracy_page_is_fresh(shipped_report):
    """A change that moves a prediction shows here first: `make docs`, and both tables in the change."""
    assert (DOCS / "accuracy.md").read_text(encoding="utf-8") == accuracy_page.page(shipped_report)
    assert (ROOT / "README.md").read_text(encoding="utf-8") == accuracy_page.readme(shipped_report)


def test_the_page_of_rows_across_islands_is_fresh():
    assert (DOCS / "geo.md").read_text(encoding="utf-8") == geo_page.page()


def test_the_page_of_losses_is_fresh():
    assert (DOCS / "loss.md").read_text(encoding="utf-8") == loss_page.page()


def test_the_page_of_audits_is_fresh():
    assert (DOCS / "audit.md").read_text(encoding="utf-8") == audit_page.page()


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md")]
    assert [problem for page in pages for problem in check_docs.problems(page)] == []


def test_the_two_commands_of_the_readme_are_one_question(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    block = re.search(r"```console\n(\$ shardmeter predict --model.*?)```", text, re.DOTALL)
    assert block is not None
    answers = []
    for line in block[1].splitlines():
        arguments = [str(ROOT / word) if word.endswith(".yaml") else word for word in shlex.split(line)[2:]]
        assert main([*arguments, "--format", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    one, other = answers
    assert one["step_time_s"] == other["step_time_s"]
    assert one["memory"] == other["memory"]
    assert one["run"]["cost_usd"] == pytest.approx(other["run"]["cost_usd"])


def test_the_python_of_the_readme_runs(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    exec(block[1], {})
    assert "llama-3.1-8b" in capsys.readouterr().out


def test_the_template_of_measured_runs_is_scored(capsys):
    assert main(["validate", str(ROOT / "examples" / "measured-template.csv"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["scored"] == report["rows"] == 2


@pytest.mark.parametrize("page", ["runs.md", "validate.md"])
def test_the_template_of_whole_runs_is_the_same_on_every_page_and_is_scored(page, capsys, tmp_path):
    block = re.search(r"```csv\n(run_id.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    assert block[1] == (ROOT / "examples" / "runs-template.csv").read_text(encoding="utf-8")
    file = tmp_path / "mine.csv"
    file.write_text(block[1], encoding="utf-8")
    assert main(["validate", str(file)]) == 0
    seen = capsys.readouterr()
    assert "1 of 1 rows scored" in seen.out
    assert re.search(r"my-8b +3,400 h +[\d,]+ h +[\d,]+ h to [\d,]+ h +[+-]\d", seen.out)
    assert seen.err == ""


def test_the_pages_name_every_key_of_a_scenario():
    text = (DOCS / "scenario.md").read_text(encoding="utf-8")
    shapes = (ScenarioInput, IslandInput, RunInput, PlanInput)
    keys = {key for shape in shapes for key in shape.model_fields}
    keys |= {key for row in (Model, Stack, Accelerator, Fabric) for key in field_names(row)}
    unsaid = {"wan", "aliases", "vendor", "arch", "retrieved"}
    assert sorted(key for key in keys - unsaid if f"`{key}`" not in text and f"`{key}:" not in text) == []


def test_the_device_variant_of_the_pages_is_read():
    text = (DOCS / "scenario.md").read_text(encoding="utf-8")
    block = re.search(r"500 W, as some clouds have:\n\n```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    scenario = load(block[1] + "model: llama-3.1-8b\n")
    assert float(scenario.fleet.islands[0].accelerator.memory_bandwidth) == 2.4e12


def test_every_room_is_on_the_map():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "src" / "shardmeter").glob("*/__init__.py")]
    assert [room for room in rooms if f"`{room}/`" not in text] == []


def test_the_two_commands_stand_first():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert [line.split()[1:3] for line in first[1].splitlines()] == [["make", "demo"], ["make", "test"]]


def test_contributing_is_short():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_the_changelog_has_an_unreleased_part():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
