"""A sum of floats is plain additions, alone and in arrays, under every Python (`core.sums.plain_sum`)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.sums import plain_sum

SOURCE = Path(__file__).parents[2] / "src" / "shardmeter"
WHOLE = frozenset({"len", "int", "bool", "isinstance", "any", "all", "startswith", "endswith", "count", "is_layer", "is_file"})  # fmt: skip
"""Functions and methods whose results are whole numbers, or truths."""
COUNTS = frozenset({"study/scale_across/search.py", "study/sweep/__init__.py"})
"""Files that sum names of whole numbers."""
ELSEWHERE = ("lab/", "render/paper_pdf.py", "render/report_figures.py")
"""What clocks and counters gave, tensors, and places on a page: no prediction."""


def builtin_sums(tree: ast.AST) -> list[int]:
    """Lines with a built-in `sum` of what may be floats."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    told = [call.func for call in calls if getattr(call.func, "id", "") == "sum" and of_whole(call.args[0])]
    return [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "sum" and node not in told
    ]


def of_whole(items: ast.expr) -> bool:
    """Whether one can see that these are whole numbers."""
    if isinstance(items, ast.GeneratorExp | ast.ListComp):
        return is_whole(items.elt)
    return (
        isinstance(items, ast.Call)
        and getattr(items.func, "id", "") == "map"
        and getattr(items.args[0], "id", "") in WHOLE
    )


def is_whole(one: ast.expr) -> bool:
    if isinstance(one, ast.Constant):
        return isinstance(one.value, int)
    if isinstance(one, ast.BoolOp):
        return all(map(is_whole, one.values))
    if isinstance(one, ast.Call):
        return (getattr(one.func, "id", "") or getattr(one.func, "attr", "")) in WHOLE
    return isinstance(one, ast.Compare) or (isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.Not))


def test_floats_are_added_plainly():
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    trees = {name: ast.parse(text) for name, text in texts.items() if re.search(r"\bsum\b", text)}
    found = {
        name: lines
        for name, tree in trees.items()
        if name not in COUNTS and not name.startswith(ELSEWHERE) and (lines := builtin_sums(tree))
    }
    assert not found, f"{found}: use core.sums.plain_sum"


@pytest.mark.parametrize(("code", "seen"), [("sum(x)", 1), ("map(sum, x)", 1), ("sum(1 for _ in x)", 0), ("sum(a == b for a in x)", 0), ("sum(map(len, x))", 0), ("sum(a.b for a in x)", 1)])  # fmt: skip
def test_what_is_seen(code, seen):
    assert len(builtin_sums(ast.parse(code))) == seen


@given(st.lists(st.floats(-1e300, 1e300), max_size=8))
def test_a_number_alone_is_what_it_is_in_an_array(numbers):
    alone = plain_sum(numbers, 0.0)
    assert [alone, alone] == list(plain_sum((np.full(2, one) for one in numbers), np.zeros(2)))


def test_rounding_is_not_carried_along():
    assert plain_sum([1.0, 1e100, 1.0, -1e100]) == 0.0
    assert plain_sum([]) == 0
