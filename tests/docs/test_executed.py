"""Commands that pages show print what stands there; `make docs` rewrites it."""

import shlex
from pathlib import Path

import pytest

import example_outputs
from shardmeter.cli import main

ROOT = Path(__file__).parents[2]
SHOWN = [
    pytest.param(*block, id=f"{name}-{at}")
    for name in example_outputs.EXECUTED
    for at, block in enumerate(
        example_outputs.SHOWS.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    )
]


def test_every_page_shows_something():
    assert {str(one.id).rpartition("-")[0] for one in SHOWN} == set(example_outputs.EXECUTED)


@pytest.mark.parametrize(("command", "printed"), SHOWN)
def test_it_prints_what_is_shown(command, printed, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == printed
