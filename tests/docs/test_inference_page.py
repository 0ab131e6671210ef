"""The figures of the page on serving are what the product says."""

import re
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.render.inference import crossing
from shardmeter.specs.serving import Serving
from shardmeter.study import crossover
from shardmeter.study.infer import checked, laid

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "three-clouds-70b.yaml"
SHOWN = EXAMPLE.with_suffix(".infer.out").read_text(encoding="utf-8")


def rows(first: str) -> list[list[str]]:
    """Rows of the table of the page whose head begins with a word."""
    table = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table[1].splitlines()]


def stored(first: str) -> list[str]:
    """Cells of the line of the stored page that begins with one."""
    lines = [re.split(r" {2,}", line.strip()) for line in SHOWN.splitlines()]
    return next(line for line in lines if line[0] == first)


def test_ways_of_the_example():
    """As its stored page has them, which a test of the examples keeps fresh."""
    for row in rows("way | first token | each further | whole answer"):
        *figures, _, fullest = stored(row[0])
        assert row == [*figures, fullest]


def test_crossover_of_the_example():
    for row in rows("round trip"):
        assert row == stored(row[0])


@pytest.mark.parametrize("row", rows("prompt"), ids=lambda row: f"{row[0]}, {row[1]} traversals")
def test_prompts_and_traversals(row):
    prompt, traversals = (int(cell.replace(",", "")) for cell in row[:2])
    scenario = shardmeter.load(EXAMPLE)
    asked = checked(scenario, Serving(prompt=prompt, traversals=traversals))
    found = crossover.rows(scenario, asked, laid(scenario)[0], (1e-3, 10e-3, 100e-3))
    assert row[2:] == [str(crossing(line)).removesuffix(" tokens") for line in found[:-1]]


def test_commands_of_the_page_are_answered(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^\$ shardmeter (.*)$", PAGE.replace("\\\n", " "), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        if "--plot" not in command:
            assert main(command.split()) == 0
    assert "Points" in capsys.readouterr().out


def test_the_python_of_the_page_runs(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    exec(block[1], {})
    assert "Ways to serve" in capsys.readouterr().out
