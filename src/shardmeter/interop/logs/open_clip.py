"""open_clip's console: batches of pairs, with samples a second of all and of one device."""

from __future__ import annotations

import re
from statistics import median

from shardmeter.interop.logs.lines import Log, matches
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import clock, number, positive, whole

NAME = "open_clip"
TITLE = "open_clip's console"
CLUES = ("Train Epoch:", "Batch (t):")
SIGN = re.compile(r"Train Epoch: \d+ \[\s*\d+/\d+")
REPORT = re.compile(
    r"Train Epoch: (\d{1,9}) \[\s*(\d{1,18})/(\d{1,18}).*?\].*?Data \(t\): (\S+) Batch \(t\): ([\d.]+), ([\d.]+)/s(?:, ([\d.]+)/s/gpu)?"
)
ROUNDED = 0.2
"""Rates and times are means over unlike spans: their product may be that far from the batch."""
LOSS = re.compile(r"\bLoss: (-?[\w.+-]+)")
PARAMETERS = {
    "gpus": re.compile(r"\bworld_size: (\d+)"), "plan.micro_batch": re.compile(r"\bbatch_size: (\d+)"), "model": re.compile(r"\bmodel: (\S+)"),
}  # fmt: skip


def reading(log: Log) -> Reading:
    """A report a line: batches seen are samples over a batch, which is rate × time."""
    said = {
        field: found[1] for line in log.having(": ") if "Train Epoch" not in line.text for field, pattern in PARAMETERS.items()
        if (found := pattern.search(line.text)) is not None
    }  # fmt: skip
    steps = []
    for line, found in matches(log, "Train Epoch:", REPORT):
        seconds, rate, of_one = positive(found[5]), positive(found[6]), positive(found[7])
        seen = (whole(found[1]) or 0) * (whole(found[3]) or 0) + (whole(found[2]) or 0)
        if rate is not None and of_one is not None and rate >= of_one:
            said.setdefault("gpus", str(round(rate / of_one)))
        if seconds is None or rate is None:
            continue
        loss = LOSS.search(line.text)
        steps.append(
            Step(number=seen, seconds=seconds, samples_per_s=rate, loss=number(loss[1]) if loss else None, at=clock(line.text), line=line.number, rank=line.rank)
        )  # fmt: skip
    return Reading(steps=_by_batch(steps, said), said=said)


def _by_batch(steps: list[Step], said: dict[str, str]) -> tuple[Step, ...]:
    """Samples seen as batches seen."""
    if not steps:
        return ()
    measured = median(float((step.seconds or 0.0) * (step.samples_per_s or 0.0)) for step in steps)
    local, gpus = positive(said.get("plan.micro_batch")), positive(said.get("gpus"))
    whole_batch = local * gpus if local and gpus else measured
    batch = max(1, round(whole_batch if abs(whole_batch / measured - 1) < ROUNDED else measured))
    return tuple(
        step._replace(number=round(step.number / batch) + 1, samples=float(batch), samples_seen=float(step.number))
        for step in steps
    )
