"""DeepSpeed's timers: samples a second of the throughput timer, and the breakdown of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from shardmeter.core.sums import plain_sum
from shardmeter.interop.logs.lines import Line, Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import GIB, clock, positive, times, whole, word

NAME = "deepspeed"
TITLE = "DeepSpeed's timers"
CLUES = ("SamplesPerSec=",)
SIGN = re.compile(r"SamplesPerSec=")
PLACE = re.compile(r"(?:epoch=\d+/micro_step=(\d+)/global_step=(\d+)|\b\d+/(\d+)), (?:RunningAvg)?SamplesPerSec=")
PART = re.compile(r"\b(fwd|bwd|step): ([\d.]+)")
SETTING = re.compile(r"\b(\w+) (?:\.{2,}|=)? *([\w.]+)\s*$")
SETTINGS = {
    "train_batch_size": "run.global_batch", "train_micro_batch_size_per_gpu": "plan.micro_batch", "gradient_accumulation_steps": "accumulation",
    "world_size": "gpus", "zero_optimization_stage": "zero_stage",
}  # fmt: skip
WORLD = re.compile(r"\bworld_size=(\d+)")


def reading(log: Log) -> Reading:
    """A report of the throughput timer, with the breakdown that follows it."""
    said = _head(log)
    steps = tuple(_steps(log, whole(said.get("accumulation")) or 1))
    notes = []
    if log.having("fwd_microstep:"):
        notes.append("wall_clock_breakdown waits for the device after every phase: steps are slower than without it.")
    if steps and "global_step=" not in log.text and "accumulation" not in said:
        notes.append(
            "This age of DeepSpeed counts micro-steps: without gradient_accumulation_steps they are taken as steps."
        )
    age = (
        "2022-12 or later"
        if "global_step=" in log.text
        else "2022-07 to 2022-12"
        if "CurrSamplesPerSec" in log.text
        else "before 2022-07"
    )
    return Reading(steps=steps, version=age, said=said, notes=tuple(notes))


def _steps(log: Log, accumulation: int) -> Iterator[Step]:
    """The throughput timer prints every steps_per_print, the breakdown every step: its median over these."""
    held: Step | None = None
    broken: list[float] = []
    for line in log.lines:
        text = line.text
        if "SamplesPerSec=" in text and (place := PLACE.search(text)) is not None:
            if held is not None:
                yield _with(held, broken)
            held, broken = _report(line, place, accumulation), []
        elif held is not None and "time (ms) |" in text and " fwd: " in text:
            parts = {name: value for name, text_ in PART.findall(text) if (value := times(text_, 1e-3)) is not None}
            if len(parts) == 3:
                broken.append(plain_sum(parts.values()))
    if held is not None:
        yield _with(held, broken)


def _report(line: Line, place: re.Match[str], accumulation: int) -> Step:
    text = line.text
    micro, count, old = (whole(value) for value in place.groups())
    return Step(
        number=count if count is not None else max(1, (old or micro or 0) // max(1, accumulation)),
        samples_per_s=positive(word(text, "CurrSamplesPerSec=") or word(text, "SamplesPerSec=")),
        allocated=times((word(text, "MaxMemAllocated=") or "").removesuffix("GB"), GIB), at=clock(text), line=line.number, rank=line.rank,
    )  # fmt: skip


def _with(step: Step, broken: list[float]) -> Step:
    return step._replace(seconds=median(broken)) if broken else step


def _head(log: Log) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in log.lines:
        if ("_size" in line.text or "_steps" in line.text or "_stage" in line.text) and (
            found := SETTING.search(line.text)
        ) is not None:
            if (field := SETTINGS.get(found[1])) is not None and positive(found[2]) is not None:
                said[field] = found[2]
        elif "world_size=" in line.text and (world := WORLD.search(line.text)) is not None:
            said.setdefault("gpus", world[1])
    if (stage := said.pop("zero_stage", None)) is not None and stage in ("1", "2", "3"):
        said["plan.sharding"] = f"zero{stage}"
    return said
