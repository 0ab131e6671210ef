"""nanotron's console: human units with three digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.interop.logs.lines import Line, Log, joined
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import clock, human, number, size, word

NAME = "nanotron"
TITLE = "nanotron's console"
CLUES = ("time_per_iteration_ms:",)
SIGN = re.compile(r"iteration: \d+ / \d+ \|.{0,400}?time_per_iteration_ms:", re.DOTALL)
BEGINS = re.compile(r"iteration: (\d{1,12}) / (\d{1,12}) \|")
MEMORY = re.compile(r"Peak allocated:? ([\d.]+)(\w+?)\. Peak reserved:? ([\d.]+)([KMG]iB)")
START = {
    "plan.micro_batch": r"\bmbs: (\d+)", "accumulation": r"\bgrad_accum: (\d+)", "run.global_batch": r"\bglobal_batch_size: (\d+)",
    "run.seq_len": r"\bsequence_length: (\d+)", "run.steps": r"\btrain_steps: (\d+)",
}  # fmt: skip
DEGREES = re.compile(r"\b(dp|pp|tp|expert_parallel_size|context_parallel_size)=(\d+)")
RESOLUTION = 3e-3
"""Three digits: at worst 5 in 1000, evenly spread."""


def reading(log: Log) -> Reading:
    """The reports, peaks of memory and the line that training starts with."""
    steps = tuple(_step(line, found) for line, found in joined(log, BEGINS, "iteration:", _is_whole))
    peaks = [found for line in log.having("Peak allocated") if (found := MEMORY.search(line.text)) is not None]
    return Reading(
        steps=steps, said=_head(log), resolution=RESOLUTION, pauses=tuple(line.number for line in log.having("Saving checkpoint")),
        allocated=max((value for found in peaks if (value := size(found[1], found[2])) is not None), default=None),
        reserved=max((value for found in peaks if (value := size(found[3], found[4])) is not None), default=None),
    )  # fmt: skip


def _is_whole(text: str) -> bool:
    return "| grad_norm:" in text or "| eta:" in text


def _step(line: Line, begins: re.Match[str]) -> Step:
    text = line.text
    milliseconds = human(word(text, "time_per_iteration_ms:"))
    return Step(
        number=int(begins[1]), seconds=None if milliseconds is None else milliseconds / 1e3, tokens=human(word(text, "global_batch_size:")),
        tokens_per_s=human(word(text, "tokens_per_sec:")), tokens_per_s_per_gpu=human(word(text, "tokens_per_sec_per_gpu:")),
        tokens_seen=human(word(text, "consumed_tokens:")), loss=number(word(text, "lm_loss:")), at=clock(text), line=line.number, rank=line.rank,
    )  # fmt: skip


def _head(log: Log) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in log.having("[Start training]"):
        said |= {key: found[1] for key, pattern in START.items() if (found := re.search(pattern, line.text)) is not None}
    degrees: dict[str, int] = {}
    for line in _degrees(log):
        degrees |= {axis: int(value) for axis, value in DEGREES.findall(line.text)}
    names = {"expert_parallel_size": "ep", "context_parallel_size": "cp"}
    said |= {f"plan.{names.get(axis, axis)}": str(degree) for axis, degree in degrees.items()}
    if {"dp", "tp", "pp"} <= degrees.keys():
        said["gpus"] = str(degrees["dp"] * degrees["tp"] * degrees["pp"] * degrees.get("context_parallel_size", 1))
    return said


def _degrees(log: Log) -> Iterator[Line]:
    """The settings that are printed before the first report: one a line, or all in one."""
    inside = False
    for line in log.lines:
        if "ParallelismArgs(" in line.text:
            inside = True
        if inside:
            yield line
            if ")" in line.text.partition("ParallelismArgs(")[2] or line.text.rstrip().endswith(")"):
                return
