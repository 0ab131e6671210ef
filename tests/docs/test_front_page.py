"""The page of fronts: its example as it is printed, its Python as it runs."""

import re
from pathlib import Path

from shardmeter.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "front.md").read_text(encoding="utf-8")


def timeless(text):
    return re.sub(r"evaluated in [\d.]+ s", "evaluated in 1 s", text)


def test_the_example_prints_what_the_page_shows(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = re.search(r"```console\n\$ shardmeter (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert main([word.strip("'") for word in re.findall(r"'[^']*'|\S+", found[1])]) == 0
    assert timeless(capsys.readouterr().out).startswith(timeless(found[2]).rstrip())


def test_the_python_of_the_page_runs(capsys, monkeypatch):
    import shardmeter

    monkeypatch.chdir(ROOT)
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    exec(block[1], {"shardmeter": shardmeter})
    assert "8.0 nodes" in capsys.readouterr().out
