"""LLaMA-Factory's trainer_log.jsonl: steps with the time that has passed."""

from __future__ import annotations

import re

from shardmeter.interop.logs.json_lines import objects, scalar
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import duration, number, positive, whole

NAME = "llama-factory"
TITLE = "LLaMA-Factory's trainer_log.jsonl"
CLUES = ('"current_steps"', '"elapsed_time"')
SIGN = re.compile(r'"current_steps"\s*:')


def reading(log: Log) -> Reading:
    """A report a line; whole seconds."""
    steps = []
    said: dict[str, str] = {}
    for place, entry in objects(log):
        step = whole(scalar(entry.get("current_steps")))
        passed = entry.get("elapsed_time")
        if step is None or not ("loss" in entry or "lr" in entry):
            continue
        steps.append(
            Step(
                number=step, at=duration(passed) if isinstance(passed, str) else None, loss=number(scalar(entry.get("loss"))),
                tokens_seen=whole(scalar(entry.get("total_tokens"))), tokens_per_s=positive(scalar(entry.get("throughput"))), line=place,
            )
        )  # fmt: skip
        if (total := whole(scalar(entry.get("total_steps")))) is not None:
            said["run.steps"] = str(total)
    return Reading(steps=tuple(steps), said=said)
