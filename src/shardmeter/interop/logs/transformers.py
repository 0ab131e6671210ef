"""Hugging Face's Trainer on the console, and any other trainer whose only report is tqdm's bar."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from shardmeter.core.record import changed
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import duration, inverse, number, positive, whole

NAME = "transformers"
TITLE = "Hugging Face's Trainer on the console, and other bars of tqdm"
CLUES = ("[", "it")
SIGN = re.compile(r"<[^,\]]{1,30},\s*[\d.]+\s?(?:s/it|it/s)|\{'loss': ")
BAR = re.compile(r"\b(\d+)/(\d+) \[([\d:]+)<[^,\]]*,\s*([\d.]+)\s?(s/it|it/s)")
LOSS = re.compile(r"\{'loss': '?([-\w.+]+)'?")
TOKENS = re.compile(r"'num_input_tokens_seen': '?([\d.]+)")
HEAD = {
    "run.global_batch": r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)",
    "plan.micro_batch": r"Instantaneous batch size per device = ([\d,]+)", "accumulation": r"Gradient Accumulation steps = ([\d,]+)",
    "run.steps": r"Total optimization steps = ([\d,]+)", "trainable_parameters": r"Number of trainable parameters = ([\d,]+)",
}  # fmt: skip
RESOLUTION = 2e-3
SAVES = ("Saving model checkpoint", "Running Evaluation", "Running evaluation")


def reading(log: Log) -> Reading:
    """A report every drawing of the longest bar, with the losses printed beside it."""
    said = _head(log)
    drawn = list(_bars(log))
    bars = Counter(total for total, _ in drawn)
    totals = [whole(said.get("run.steps")), max(bars, default=None)]
    total = next((value for value in totals if value in bars), None)
    steps = tuple(_steps(log, [step for of, step in drawn if of == total]))
    notes = ("The times are those of tqdm's bar, means that follow the last steps slowly.",) if bars else ()
    return Reading(
        steps=steps, said=said, resolution=RESOLUTION, notes=notes,
        pauses=tuple(sorted(line.number for word in SAVES for line in log.having(word))),
    )  # fmt: skip


def _bars(log: Log) -> Iterator[tuple[int, Step]]:
    for line in log.having("it"):
        for found in BAR.finditer(line.text):
            count, total = whole(found[1]), whole(found[2])
            if count and total:
                pace = positive(found[4]) if found[5] == "s/it" else inverse(found[4])
                yield total, Step(number=count, seconds=pace, at=duration(found[3]), line=line.number, rank=line.rank)


def _steps(log: Log, drawn: list[Step]) -> Iterator[Step]:
    """The last drawing of every step; the loss goes to the step that was drawn before it was printed."""
    by_line: dict[int, list[Step]] = {}
    for step in drawn:
        by_line.setdefault(step.line, []).append(step)
    held: Step | None = None
    for line in log.lines:
        for step in by_line.pop(line.number, ()):
            if held is not None and (held.number, held.rank) != (step.number, step.rank):
                yield held
            held = step if held is None or held.loss is None or held.number != step.number else changed(step, loss=held.loss, tokens_seen=held.tokens_seen)
        if held is not None and "{'loss'" in line.text and (loss := LOSS.search(line.text)) is not None:
            tokens = TOKENS.search(line.text)
            held = changed(held, loss=number(loss[1]), tokens_seen=whole(tokens[1]) if tokens else None)
    if held is not None:
        yield held


def _head(log: Log) -> dict[str, str]:
    said = {
        key: found[1].replace(",", "") for line in log.having(" = ") for key, pattern in HEAD.items()
        if (found := re.search(pattern, line.text)) is not None
    }  # fmt: skip
    batch, micro, accumulation = (positive(said.get(key)) for key in ("run.global_batch", "plan.micro_batch", "accumulation"))
    if batch and micro and accumulation and batch % (micro * accumulation) == 0:
        said["gpus"] = f"{batch / (micro * accumulation):.0f}"
    return said
