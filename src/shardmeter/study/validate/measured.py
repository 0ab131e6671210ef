"""What was measured: the step time of a row and its memory, and which reading of the memory it is."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.families import decoder
from shardmeter.specs.model import Model
from shardmeter.study.validate.rows import Row, Unclear

AGREE = 0.02
"""Two statements of one measurement may differ by this share (rounded rates), else the row contradicts itself."""
ALLOCATED, RESERVED, PROCESS, FIRST = "allocated", "reserved", "process", "first stage"
MEMORY_READINGS: tuple[tuple[str, str], ...] = (
    (r"titan|torchtune", RESERVED),
    (r"nanotron", FIRST),
    (r"primus|nvidia-smi|rocm", PROCESS),
    (r"", ALLOCATED),
)
"""(pattern in framework, reading): torchtitan logs what is reserved, nanotron what is allocated on its first rank, most others the allocator's peak."""
COUNTED: tuple[tuple[str, str], ...] = ((r"maxtext|paxml", "full attention, matrices that multiply, no recomputation"),)
"""Frameworks whose printed TFLOP/s is their only rate, and how they count."""


@record
class Measured:
    """The measurements of one row; None where it has none."""

    step_time: float | None = None
    """Seconds."""
    memory: float | None = None
    """Bytes."""
    memory_reading: str = ALLOCATED
    time_from: str = ""
    """The column that the step time came from."""


def read_measured(row: Row, model: Model | None, seq_len: float, batch: float, gpus: float) -> Measured:
    """Step time from its own column, else from tokens/s or samples/s with the batch, else (see `COUNTED`) from TFLOP/s."""
    times: dict[str, float] = {}
    step = row.positive("step_time_s")
    tokens = row.positive("tokens_per_s_per_gpu")
    samples = row.positive("samples_per_s_per_gpu")
    if step:
        times["step_time_s"] = step
    if tokens:
        times["tokens_per_s_per_gpu"] = batch * seq_len / (tokens * gpus)
    if samples:
        times["samples_per_s_per_gpu"] = batch / (samples * gpus)
    if len(times) > 1:
        least, most = min(times.values()), max(times.values())
        if most / least - 1.0 > _tolerance(tokens):
            stated = ", ".join(f"{column} {value:.4g} s" for column, value in times.items())
            raise Unclear(f"step time and rates disagree: {stated}")
    if not times and model is not None:
        times |= _from_flops(row, model, seq_len, batch, gpus)
    column = next(iter(times), "")
    memory = row.positive("peak_memory_gib")
    reading = next(name for pattern, name in MEMORY_READINGS if re.search(pattern, row.text("framework").lower()))
    return Measured(
        step_time=times.get(column),
        memory=memory * 2.0**30 if memory else None,
        memory_reading=row.text("memory_reading") or reading,
        time_from=column,
    )


def _tolerance(tokens: float | None) -> float:
    """Rates printed as whole numbers below 100 are off by up to half a unit."""
    return max(AGREE, 0.75 / tokens) if tokens and tokens < 100.0 else AGREE


def _from_flops(row: Row, model: Model, seq_len: float, batch: float, gpus: float) -> dict[str, float]:
    """Step time from a printed rate of FLOPs, where it is known what the framework counts."""
    rate = row.positive("tflops_per_gpu")
    if not rate or not any(re.search(pattern, row.text("framework").lower()) for pattern, _ in COUNTED):
        return {}
    per_token = float(decoder.training_flops(model, 1.0, seq_len))
    return {"tflops_per_gpu": float(batch * seq_len * per_token / (rate * 1e12 * gpus))}
