"""Hugging Face's trainer_state.json: no time of a step, only that of the whole call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.interop.logs.json_lines import scalar
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, positive, whole

NAME = "transformers-state"
TITLE = "trainer_state.json of Hugging Face's Trainer"
CLUES = ('"log_history"',)
SIGN = re.compile(r'"log_history"\s*:\s*\[')
STEPS_APART = 0.05
"""Steps by the printed rate (three decimals) may be that far from the counted ones."""


def reading(log: Log) -> Reading:
    """The losses as reports, and the mean over the call as the only one with a time."""
    state = _state(log.text)
    history = [entry for entry in state.get("log_history") or () if isinstance(entry, Mapping)]
    steps = [
        Step(number=step, loss=number(scalar(entry["loss"])), tokens_seen=whole(scalar(entry.get("num_input_tokens_seen"))), line=place)
        for place, entry in enumerate(history, 1)
        if "loss" in entry and (step := whole(scalar(entry.get("step")))) is not None
    ]  # fmt: skip
    ends = [entry for entry in history if positive(scalar(entry.get("train_runtime"))) is not None]
    notes: tuple[str, ...] = (
        "The file has no time of a step and no clocks: only the time of the whole call, with its compilation and saving.",
    )
    if ends:
        mean, told = _mean(ends[-1], history, len(history) + 1)
        if mean is not None:
            last = next((step for step in reversed(steps) if step.number == mean.number), None)
            steps = [step for step in steps if step.number != mean.number]
            steps.append(mean if last is None else mean._replace(loss=last.loss, tokens_seen=last.tokens_seen))
        notes += told
    else:
        notes += ("It has no train_runtime: the run had not ended when it was written.",)
    return Reading(
        steps=tuple(steps),
        said=_head(state),
        version="5.x or late 4.x" if "best_global_step" in state else "4.x",
        notes=notes,
    )


def _state(text: str) -> Mapping[str, Any]:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, Mapping) and isinstance(state.get("log_history") or [], Sequence) else {}


def _mean(
    end: Mapping[str, Any], history: Sequence[Mapping[str, Any]], place: int
) -> tuple[Step | None, tuple[str, ...]]:
    """The whole call as one report, without the evaluations in it."""
    runtime = positive(scalar(end.get("train_runtime"))) or 0.0
    counted, rate = positive(scalar(end.get("step"))), positive(scalar(end.get("train_steps_per_second")))
    evaluated = plain_sum(positive(scalar(entry.get("eval_runtime"))) or 0.0 for entry in history)
    steps = counted
    notes: tuple[str, ...] = ()
    if counted is not None and rate is not None and abs(rate * runtime / counted - 1) > STEPS_APART:
        steps = rate * runtime
        notes = (
            f"train_steps_per_second says {steps:,.0f} steps in train_runtime, the state counts {counted:,.0f}: a resumed run; the rate is taken.",
        )
    steps = positive(steps)
    if steps is None or not runtime > evaluated:
        return None, notes
    samples = positive((positive(scalar(end.get("train_samples_per_second"))) or 0.0) * runtime / steps)
    tokens = positive(scalar(end.get("train_tokens_per_second")))
    made = Step(
        number=int(counted or steps), seconds=(runtime - evaluated) / steps, over=max(1, int(steps)),
        samples=float(round(samples)) if samples is not None else None,
        tokens_per_s=tokens, line=place,
    )  # fmt: skip
    told = f" less {evaluated:,.0f} s of evaluations" if evaluated else ""
    return made, (*notes, f"The time of a step is train_runtime ({runtime:,.0f} s{told}) over {steps:,.0f} steps.")


def _head(state: Mapping[str, Any]) -> dict[str, str]:
    fields = {"max_steps": "run.steps", "train_batch_size": "plan.micro_batch"}
    return {
        field: f"{value:.0f}"
        for key, field in fields.items()
        if (value := positive(scalar(state.get(key)))) is not None
    }
