"""What no measured run taught the stacks is said, and its interval is that of a stack never seen."""

from __future__ import annotations

from typing import Any

import pytest

import shardmeter


@pytest.mark.parametrize(
    ("model", "plan", "what"),
    [("mixtral-8x7b", "fsdp,ep=8", "routed experts"), ("llama-3.1-8b", "fsdp,cp=2", "context parallelism")],
)
def test_what_the_fit_never_saw_widens_the_interval(model: str, plan: str, what: str) -> None:
    found = shardmeter.predict(model=model, gpus="64xH100-SXM5-80GB", plan=plan, stack="foundry-t21").to_dict()
    plain = shardmeter.predict(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB", stack="foundry-t21").to_dict()
    assert any(what in text for text in found["warnings"])
    assert not any(what in text for text in plain["warnings"])

    def width(answer: dict[str, Any]) -> float:
        low, high = answer["intervals"]["step_time_s"]
        return float((high - low) / answer["step_time_s"])

    assert width(found) > width(plain)
    assert "fitted without such runs" in found["intervals"]["basis"]
