"""torchtitan's console: `step:` lines, the mesh, the batch and the device at its head."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardmeter.interop.logs.lines import Line, Log, joined
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import clock, number, positive, size, word

NAME = "torchtitan"
TITLE = "torchtitan's console"
CLUES = ("step:", "memory:")
SIGN = re.compile(r"step:\s*\d+\s+loss:.{0,400}?\b(?:tps|wps):", re.DOTALL)
BEGINS = re.compile(r"step:\s*(\d{1,12})\s+loss:")
MEMORY = re.compile(r"memory:\s*([\d.]+)([KMG]iB)")
MESH = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp|ep|etp)=(\d+)")
OLD_MESH = re.compile(r"device mesh with \[([^\]]*)\], \[([\d, ]+)\]")
OLD_AXES = {"dp": "dp_shard"}
BATCH = {
    "run.global_batch": r"global batch size:? ([\d,]+)", "plan.micro_batch": r"local batch size:? ([\d,]+)",
    "accumulation": r"gradient accumulation steps:? ([\d,]+)", "run.seq_len": r"sequence length:? ([\d,]+)",
    "run.steps": r"total steps:? ([\d,]+)", "tokens_per_step": r"(?:([\d,]+) tokens per train step|tokens per train step:? ([\d,]+))",
}  # fmt: skip
DEVICE = re.compile(r"capacity: (.+?) with ([\d.]+)GiB memory")
MODEL = re.compile(r"Model (.+?) size: ([\d,]+) total parameters")
PAUSES = ("validate step:", "Saving the checkpoint", "Saving a full checkpoint", "Finished saving the checkpoint")


def reading(log: Log) -> Reading:
    """The reports, and what is said before them."""
    steps = tuple(_steps(log))
    pauses = sorted(line.number for mark in PAUSES for line in log.having(mark))
    notes: tuple[str, ...] = ()
    if any(("retries" in line.text or "cudaMalloc retries" in line.text) for line in log.having("retries")):
        notes = ("The allocator had to retry: the steps around it are slower than the plan's.",)
    return Reading(steps=steps, version=_age(log), said=_head(log), averaged=True, pauses=tuple(pauses), notes=notes)


def _is_whole(text: str) -> bool:
    return "mfu:" in text and not text.endswith("mfu:")


def _steps(log: Log) -> Iterator[Step]:
    for line, begins in joined(log, BEGINS, "step:", _is_whole):
        text = line.text
        if text.endswith("validate ", 0, begins.start()):
            continue
        memory = MEMORY.search(text)
        yield Step(
            number=int(begins[1]), tokens_per_s_per_gpu=positive(word(text, "tps:") or word(text, "wps:")), loss=number(word(text, "loss:")),
            reserved=size(*memory.groups()) if memory else None, at=clock(text), line=line.number, rank=line.rank,
        )  # fmt: skip


def _age(log: Log) -> str:
    first = next((line.text for line, _ in joined(log, BEGINS, "step:", _is_whole)), "")
    ages = (
        ("wps:", "before 2024-11"), ("grad_norm:", "2025-06 or later"), ("tflops:", "2025-02 to 2025-06"),
        ("tps:", "2024-11 to 2025-02"),
    )  # fmt: skip
    return next((age for mark, age in ages if mark in first), "")


def _head(log: Log) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in log.lines:
        text = line.text
        if " mesh with " in text:
            said |= _mesh(line)
        elif "rainer is initialized" in text:
            for key, pattern in BATCH.items():
                if (found := re.search(pattern, text)) is not None:
                    said[key] = next(value for value in found.groups() if value).replace(",", "")
        elif "capacity: " in text and (found := DEVICE.search(text)) is not None:
            said |= {"accelerator": found[1], "device_memory": f"{float(number(found[2]) or 0) * 2**30:.0f}"}
        elif " total parameters" in text and (found := MODEL.search(text)) is not None:
            said |= {"model": found[1], "parameters": found[2].replace(",", "")}
    return said


def _mesh(line: Line) -> dict[str, str]:
    degrees = {axis: int(value) for axis, value in MESH.findall(line.text)}
    if not degrees and (found := OLD_MESH.search(line.text)) is not None:
        axes = (axis.strip(" '\"") for axis in found[1].split(","))
        degrees = {
            OLD_AXES.get(axis, axis): int(value)
            for axis, value in zip(axes, found[2].split(","), strict=False)
            if value.strip().isdigit()
        }
    product = 1
    for axis, degree in degrees.items():
        product *= degree if axis not in ("ep", "etp") else 1
    own = {f"plan.{axis}": str(degree) for axis, degree in degrees.items() if re.fullmatch(r"[a-z_]+", axis)}
    return own | ({"gpus": str(product)} if degrees else {})
