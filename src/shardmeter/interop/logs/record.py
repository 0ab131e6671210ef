"""What a log says of a run, and what of it was used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Fraction, Seconds


@record
class Step:
    """One report of a log: a step, or the mean over the steps since the last report. None = not said in that line."""

    number: int
    """Optimizer steps finished."""
    seconds: Seconds | None = None
    """Of one step."""
    tokens: Count | None = None
    """Of one step, all accelerators together."""
    samples: Count | None = None
    tokens_per_s: float | None = None
    """All accelerators together."""
    tokens_per_s_per_gpu: float | None = None
    loss: float | None = None
    allocated: Bytes | None = None
    """Peak of one accelerator."""
    reserved: Bytes | None = None
    at: Seconds | None = None
    """Clock of the line, since any origin."""
    over: int = 1
    """Steps that the report averages."""
    samples_per_s: float | None = None
    """All accelerators together."""
    tokens_seen: Count | None = None
    """Since the run began, all accelerators together, and samples so too."""
    samples_seen: Count | None = None
    line: int = 0
    """Of the file, from 1."""
    rank: str = ""
    """Who printed it, where lines say so."""


@record
class Dropped:
    """Steps or lines that were not used, and why."""

    reason: str
    count: int
    first: str
    """Where: the first of them, as `step 12` or `line 340`."""


@record
class Reading:
    """What a format file makes of a log: its reports in the order of the lines, and what its head says."""

    steps: tuple[Step, ...]
    version: str = ""
    said: Mapping[str, str] = dataclasses.field(default_factory=dict)
    averaged: bool = False
    """Whether a report is the mean over the steps since the last one."""
    resolution: Fraction = 0.0
    """Standard error of one time by the digits it is printed with, over itself."""
    pauses: tuple[int, ...] = ()
    """Lines that tell of an evaluation or a checkpoint."""
    allocated: Bytes | None = None
    """Peak that no report carries, of the fullest accelerator; and the reserved one."""
    reserved: Bytes | None = None
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    """What is wrong with the counters of this age of the format, one sentence each."""


MOST_TOLD = 500
"""Reports in the JSON of an account, evenly spread."""


@record
class LogAccount:
    """A log, read: what it says of the run, how fast the run was, and which lines that rests on."""

    format: str
    version: str
    """Age of the format, as far as its lines tell; empty where they do not."""
    lines: int
    steps: int
    """Reports of training steps that were read."""
    used: int
    """Of these, the ones that `step_time` is the median of."""
    dropped: tuple[Dropped, ...]
    step_time: Seconds | None
    """Median over the used reports; None where the log has no time of steps."""
    spread: tuple[Seconds, Seconds] | None
    """5 % and 95 % of the used reports."""
    error: Fraction | None
    """Standard error of the median over the median."""
    tokens_per_step: Count | None
    gpus: Count | None
    peak_allocated: Bytes | None
    peak_reserved: Bytes | None
    goodput: Fraction | None
    """Seconds of steps over those between the first and the last line with a clock; None without clocks."""
    restarts: int
    loss_first: float | None
    loss_last: float | None
    said: tuple[tuple[str, str], ...]
    """What the head of the log says of the run: sequence length, batch, degrees, GPUs, model, device, as (field of a scenario, value)."""
    warnings: tuple[str, ...]
    """Unit mistakes and counter traps that numbers of the log contradict each other by, one sentence each."""
    rests_on: str = ""
    """Where the time of a step comes from: `time of steps`, `tokens a second`, `samples a second`, `clocks of lines`."""
    pace: tuple[tuple[float, Seconds], ...] = ()
    """The used reports: the step, and its seconds."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the account."""
        own = {name: getattr(self, name) for name in _PLAIN}
        return {
            **own,
            "format_version": self.version,
            "spread": None if self.spread is None else list(self.spread),
            "dropped": [dataclasses.asdict(one) for one in self.dropped],
            "said": dict(self.said),
            "pace": [{"step": step, "seconds": seconds} for step, seconds in self.pace[:: 1 + len(self.pace) // MOST_TOLD]],
            "warnings": list(self.warnings),
            "assumptions": [],
        }

    def __str__(self) -> str:
        from shardmeter import page

        return page(self)

    def __repr__(self) -> str:
        """One line."""
        time = "no time of steps" if self.step_time is None else f"{self.step_time:.4g} s a step"
        return f"LogAccount({self.format}: {time}, {self.used} of {self.steps} reports used)"


_PLAIN = (
    "format", "lines", "steps", "used", "step_time", "error", "tokens_per_step", "gpus", "peak_allocated", "peak_reserved",
    "goodput", "restarts", "loss_first", "loss_last", "rests_on",
)  # fmt: skip
