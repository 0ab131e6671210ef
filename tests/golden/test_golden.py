"""Frozen predictions: what moves is shown and, if it is meant, blessed (`make bless`) with the difference in the change."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import bless

PLANS = bless.read()


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: bless.said(plan["question"]))
def test_a_frozen_prediction_stands(plan: Any) -> None:
    moved = bless.differences(plan["answer"], bless.answer(plan["question"]))
    assert not moved, "\n".join(["if this is meant: make bless", bless.said(plan["question"]), *moved])


def test_the_plans_are_many_and_unlike() -> None:
    questions = [plan["question"] for plan in PLANS]
    assert len({bless.said(question) for question in questions}) == len(questions) >= 40
    for name, least in (("model", 25), ("stack", 8), ("plan", 25)):
        assert len({question[name] for question in questions}) >= least, name
    assert len({question["gpus"].partition("x")[2] for question in questions}) >= 12
    assert {question["plan"].split(",")[0] for question in questions} >= {
        "none", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp",
    }  # fmt: skip


def test_what_moves_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    was = {"step_time_s": 2.0, "mfu": 0.5, "peak_gib": 10.0, "terms": {"a": 1.0, "b": 0.5}}
    now = {
        "step_time_s": 2.0 * (1.0 + 2e-6),
        "mfu": 0.5 * (1.0 + 1e-7),
        "peak_gib": 10.0,
        "terms": {"a": 1.0, "c": 0.6},
    }
    lines = bless.differences(was, now)
    assert [line.split("  ")[0] for line in lines] == ["step_time_s", "term b", "term c"]
    assert "+0.0002 %" in lines[0]
    file = tmp_path / "plans.json"
    planted = [{"question": PLANS[0]["question"], "answer": PLANS[0]["answer"] | {"mfu": 0.9}}]
    file.write_text(json.dumps(planted))
    monkeypatch.setattr(bless, "FILE", file)
    monkeypatch.setattr(sys, "argv", ["bless.py", "--check"])
    assert bless.main() == 1
    assert "mfu" in capsys.readouterr().out
    assert bless.read() == planted, "a check writes nothing"
    monkeypatch.setattr(sys, "argv", ["bless.py"])
    assert bless.main() == 0
    assert bless.read()[0]["answer"] == PLANS[0]["answer"]
