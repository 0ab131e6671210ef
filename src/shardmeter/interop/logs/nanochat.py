"""nanochat's base_train. Before 2025-10 its tokens a second were those of one micro-batch over the time of a step."""

from __future__ import annotations

import re

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import number, positive, times

NAME = "nanochat"
TITLE = "nanochat's console"
CLUES = ("tok/sec:", "dt:")
SIGN = re.compile(r"step \d+/\d+ \([^)\n]{1,20}\) \| loss:")
REPORT = re.compile(r"step (\d{1,12})/(\d{1,12}) \(.*?\| loss: (-?[\w.+-]+).*?\| dt: (\S+?)ms \| tok/sec: ([\d,.]+)")
HEAD = (
    ("tokens_per_step", re.compile(r"[Tt]otal batch size:? ([\d,]+)")), ("accumulation", re.compile(r"gradient accumulation steps: ([\d,]+)")),
    ("parameters", re.compile(r"Number of parameters: ([\d,]+)")), ("gpus", re.compile(r"world size:? (\d+)")),
)  # fmt: skip


def reading(log: Log) -> Reading:
    """A report a step."""
    steps = tuple(
        Step(
            number=int(found[1]) + 1, loss=number(found[3]), seconds=times(found[4], 1e-3), tokens_per_s=positive(found[5]),
            line=line.number, rank=line.rank,
        )
        for line, found in matches(log, "tok/sec:", REPORT)
    )  # fmt: skip
    first = steps[0].line if steps else 0
    said: dict[str, str] = {}
    for line in log.lines:
        if line.number >= first:
            break
        for field, pattern in HEAD:
            if (head := pattern.search(line.text)) is not None:
                said[field] = head[1].replace(",", "")
    age = "2026-02 or later" if "bf16_mfu:" in log.text else "before 2026-02"
    pauses = sorted(line.number for word in ("Validation bpb", "CORE metric", "Saved ") for line in log.having(word))
    return Reading(steps=steps, version=age if steps else "", said=said, pauses=tuple(pauses))
