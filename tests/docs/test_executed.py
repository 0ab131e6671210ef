"""Commands that pages show print what stands there; `make docs` rewrites it."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from shardmeter.cli import main

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("example_outputs", ROOT / "scripts" / "example_outputs.py")
assert spec is not None
assert spec.loader is not None
outputs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outputs)
SHOWN = [
    pytest.param(*block, id=f"{name}-{at}")
    for name in outputs.EXECUTED
    for at, block in enumerate(outputs.SHOWS.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")))
]


def timeless(text: str) -> str:
    """A text without how long a search took."""
    return re.sub(r"in [\d.]+ s\b", "in 1 s", text)


def test_every_page_shows_something():
    assert {str(one.id).rpartition("-")[0] for one in SHOWN} == set(outputs.EXECUTED)


@pytest.mark.parametrize(("command", "printed"), SHOWN)
def test_it_prints_what_is_shown(command, printed, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    assert timeless(capsys.readouterr().out) == timeless(printed)
