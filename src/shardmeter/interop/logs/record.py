"""What a log says of a run, and what of it was used."""

from __future__ import annotations

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


@record
class Dropped:
    """Steps or lines that were not used, and why."""

    reason: str
    count: int
    first: str
    """Where: the first of them, as `step 12` or `line 340`."""


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
