"""Every example runs, and prints what its `.out` file says where it has one."""

import re
import shlex
from pathlib import Path

import pytest

from shardmeter.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "inference.md"
COMPARISONS = [ROOT / "docs" / "diff.md", ROOT / "docs" / "failures.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_it_is_answered(path, capsys):
    assert main(["predict", str(path)]) == (1 if path.stem == "does-not-fit" else 0)
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.with_suffix(".out").exists()], ids=name)
def test_it_prints_what_is_stored(path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    main(["predict", str(path)])
    assert capsys.readouterr().out == path.with_suffix(".out").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.infer.out")), ids=name)
def test_a_served_one_prints_what_is_stored(path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    options = re.search(
        rf"shardmeter infer examples/{path.name.split('.')[0]}.yaml( --compare.*)", PAGE.read_text(encoding="utf-8")
    )
    assert options is not None
    assert main(["infer", str(path).replace(".infer.out", ".yaml"), *options[1].split()]) == 0
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.diff.out")), ids=name)
def test_a_compared_one_prints_what_is_stored_and_its_page_says_so(path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(ROOT)
    file = f"examples/{path.name.removesuffix('.diff.out')}.yaml"
    lines = [line for page in COMPARISONS for line in page.read_text(encoding="utf-8").splitlines()]
    said = next(line for line in lines if line.startswith(f"$ shardmeter diff {file} "))
    assert main(shlex.split(said)[2:]) == 0
    stored = path.read_text(encoding="utf-8")
    assert capsys.readouterr().out == stored


def test_the_page_of_comparisons_shows_one():
    stored = (ROOT / "examples" / "unreliable-every-step.diff.out").read_text(encoding="utf-8")
    assert f"examples/unreliable-diloco.yaml\n{stored}```" in COMPARISONS[0].read_text(encoding="utf-8")


def test_examples_are_named_in_their_own_head():
    for path in EXAMPLES:
        assert f"shardmeter predict examples/{path.name}" in path.read_text(encoding="utf-8")
