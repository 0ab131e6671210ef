"""The pages cannot drift from the program."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from shardmeter.cli import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def script(name):
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("command", cli.commands)
def test_every_command_is_documented(command):
    assert f"## {command}\n" in (DOCS / "commands.md").read_text(encoding="utf-8")
    assert f"shardmeter {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_command_reference_is_fresh():
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == script("command_reference").page()


def test_the_accuracy_page_is_fresh():
    """A change that moves a prediction shows here first: `make docs`, and both tables in the change."""
    pages = script("accuracy_page")
    report = pages.validate().to_dict()
    assert (DOCS / "accuracy.md").read_text(encoding="utf-8") == pages.page(report)
    assert (ROOT / "README.md").read_text(encoding="utf-8") == pages.readme(report)


def test_links_lead_somewhere():
    checker = script("check_docs")
    pages = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md")]
    assert [problem for page in pages for problem in checker.problems(page)] == []


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
