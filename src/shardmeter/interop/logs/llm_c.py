"""llm.c's console: the time of the step that was just done, tokens a second as a running mean."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, positive, times

NAME = "llm.c"
TITLE = "llm.c's console"
CLUES = (" tok/s", " ms |")
SIGN = re.compile(r"step\s+\d+/\d+ \| (?:train )?loss ")
REPORT = re.compile(r"step\s+(\d{1,12})/(\d{1,12}) \| (?:train )?loss (-?[\w.+-]+).*?\| ([\d.]+) ms \|.*?([\d.]+) tok/s")
BATCH = re.compile(r"total[ _](?:desired[ _])?batch[ _]size[^\d\n]*(\d+)")
LENGTH = re.compile(r"sequence length T[^\d\n]*(\d+)")
DEVICE = re.compile(r"^\| device\s+\| (.+?)\s+\|$")
GPUS = re.compile(r"^\| num_processes\s+\| (\d+)")


def reading(log: Log) -> Reading:
    """A report a step, and the tables at the head."""
    said: dict[str, str] = {}
    for line in log.having("| "):
        for field, pattern in (("tokens_per_step", BATCH), ("run.seq_len", LENGTH), ("accelerator", DEVICE), ("gpus", GPUS)):
            if (found := pattern.search(line.text)) is not None:
                said.setdefault(field, found[1])
    steps = tuple(
        Step(
            number=int(found[1]), loss=number(found[3]), seconds=times(found[4], 1e-3), tokens_per_s=positive(found[5]),
            line=line.number, rank=line.rank,
        )
        for line, found in matches(log, "tok/s", REPORT)
    )  # fmt: skip
    pauses = tuple(line.number for word in ("val loss", "Writing model", "HellaSwag") for line in log.having(word))
    return Reading(steps=steps, said=said, pauses=tuple(sorted(pauses)))
