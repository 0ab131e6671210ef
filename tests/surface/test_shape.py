"""Files stay short, functions stay short: what does not fit on two screens is two things."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "shardmeter"
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_sizes(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 500
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


@pytest.mark.parametrize("room", ["families", "schedules", "strategies", "sync"])
def test_demands_know_no_prices(room):
    for path in (SOURCE / room).rglob("*.py"):
        assert "shardmeter.physics" not in path.read_text(encoding="utf-8"), path.name
