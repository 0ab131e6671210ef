"""NeMo 1 and 2: the progress printer's lines, and the bar that NeMo 1 has alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import clock, number, positive, whole, word

NAME = "nemo"
TITLE = "NeMo's progress lines and bars"
CLUES = ("train_step_timing in s",)
SIGN = re.compile(r"train_step_timing in s[=:]")
PLACE = re.compile(r"\biteration (\d+)/(\d+)|\b(\d+)/(\d+) \[")
SAVED = re.compile(r"Validation.*\d+/\d+|[Ss]av(?:ed|ing) checkpoint")


def reading(log: Log) -> Reading:
    """A report a line; of bars the last drawing of every step."""
    steps = tuple(_steps(log))
    bars_alone = "Training epoch" not in log.text
    pauses = tuple(line.number for line in log.lines if SAVED.search(line.text)) if "alid" in log.text or "heckpoint" in log.text else ()
    return Reading(
        steps=_last_drawn(steps), version="NeMo 1" if bars_alone else "NeMo 2", resolution=3e-4, pauses=pauses, said=_head(log),
    )  # fmt: skip


def _steps(log: Log) -> Iterator[Step]:
    for line in log.having("train_step_timing in s"):
        text = line.text
        place = PLACE.search(text)
        last = whole(word(text, "global_step"))
        if last is None and place is not None:
            last = whole(place[1]) if place[1] else (whole(place[3]) or 1) - 1
        if last is None:
            continue
        yield Step(
            number=last + 1, seconds=positive(word(text, "train_step_timing in s")), samples=positive(word(text, "global_batch_size")),
            samples_seen=whole(word(text, "consumed_samples")), loss=number(word(text, "reduced_train_loss")), at=clock(text), line=line.number, rank=line.rank,
        )  # fmt: skip


def _last_drawn(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    following = (*steps[1:], None)
    return tuple(
        step for step, after in zip(steps, following, strict=False)
        if after is None or (after.number, after.rank) != (step.number, step.rank) or step.samples is not None
    )  # fmt: skip


def _head(log: Log) -> dict[str, str]:
    found = re.search(r"\biteration \d+/(\d+) \|", log.text)
    return {} if found is None or len(found[1]) > 15 else {"run.steps": str(int(found[1]) + 1)}
