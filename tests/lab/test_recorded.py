"""The recorded run of the bundled study, on two quiet cores, against the limits that it was built for."""

from __future__ import annotations

import json
from pathlib import Path

RECORDED = json.loads((Path(__file__).parent / "recorded" / "report.json").read_text(encoding="utf-8"))


def test_rounds_bytes_and_losses_are_met() -> None:
    totals = RECORDED["totals"]
    assert totals["round"]["median_abs_error"] <= 0.10
    assert totals["round"]["worst_abs_error"] <= 0.25
    assert totals["wire_bytes"]["worst_abs_error"] <= 0.05
    assert totals["loss"]["not_falling"] == []


def test_it_covers_what_the_study_is_for() -> None:
    entries = RECORDED["experiments"]
    assert len(entries) >= 12
    assert all(one["predicted_first"] for one in entries)
    assert {one["method"] for one in entries} >= {
        "ddp", "fsdp2", "hsdp", "pipeline", "diloco", "streaming_diloco", "local_sgd", "sparse_loco", "noloco", "block_train", "soma",
    }  # fmt: skip
