"""What micro-benchmarks gave: tasks, timings, and the file that holds them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, Violation, shown
from shardmeter.core.files import file_name, read_text
from shardmeter.core.record import record
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD

FORMAT = "shardmeter-measured-1"
"""Word in every file of measurements, by which a reader knows it."""
LARGEST_FILE = 64_000_000
SIZES: Mapping[str, tuple[str, ...]] = {
    "matmul": ("tokens", "inputs", "outputs"),
    "attention": ("batch", "heads", "seq", "head_dim"),
    "copy": ("bytes",),
    "pointwise": ("rows", "width"),
    "launch": (),
    "collective": ("bytes", "ranks"),
}
"""Kinds of tasks, and the sizes that each has."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "copy": ("to another", "in place"),
    "pointwise": ("norm", "activation", "residual", "loss", "update"),
    "launch": ("kernel", "step"),
    "collective": ("all_reduce", "all_gather", "reduce_scatter"),
}
"""What tasks of a kind are called; those of the others have no name."""
FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8")
"""Number formats that a task may be in."""
PHASES = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)


@record
class Task:
    """One micro-benchmark at one size. matmul: one of the three products of a linear layer, by `phase`; attention: causal, fused,
    forward or input_grad (the whole backward); copy: `name` to another (buffer), in place (scaled where it lies); pointwise: `name` norm, activation, residual, loss,
    update; launch: `name` kernel, step; collective: `name` all_reduce, all_gather, reduce_scatter over processes of its own."""

    kind: str
    name: str = ""
    phase: str = FORWARD
    dtype: str = "fp32"
    sizes: Mapping[str, int]

    @property
    def label(self) -> str:
        """The task in a few words."""
        numbers = " × ".join(f"{self.sizes[name]:,}" for name in SIZES[self.kind])
        return " ".join(filter(None, (self.kind, self.name, self.phase if self.kind == "matmul" else "", numbers)))


@record
class Timing:
    """How long a task took, in seconds, of `runs`: the median and the 5th and 95th per cent of single runs."""

    task: Task
    seconds: float
    low: float
    high: float
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """The entry of the file."""
        task = self.task
        return {
            "kind": task.kind, "name": task.name, "phase": task.phase, "dtype": task.dtype, "sizes": dict(task.sizes),
            "seconds": self.seconds, "low": self.low, "high": self.high, "runs": self.runs,
        }  # fmt: skip


@record
class Measured:
    """All timings of one device under one software, at one date."""

    device: str
    """What the driver, or the processor, calls itself."""
    kind: str
    """cpu or cuda."""
    software: str
    threads: int
    """Threads of a CPU; 0 of a GPU."""
    clock: str
    """wall, or cpu (seconds that the process itself ran: of one thread on a machine that others use too)."""
    date: str
    memory: float
    """Bytes that the device, or the machine, has."""
    processors: float
    """Streaming multiprocessors; 0 of a CPU."""
    took: float
    """Seconds of the whole measurement."""
    timings: tuple[Timing, ...]
    left_out: tuple[str, ...] = ()
    """What was asked and could not run: kernels that the device or its software lacks, sizes that find no room."""

    def of(self, kind: str, name: str = "", phase: str = "", dtype: str = "") -> tuple[Timing, ...]:
        """The timings of a kind; of a name, a phase and a number format where these are said."""
        asked = {"name": name, "phase": phase, "dtype": dtype}
        return tuple(
            one for one in self.timings
            if one.task.kind == kind and all(not word or getattr(one.task, field) == word for field, word in asked.items())
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The file: plain numbers in SI units."""
        own = ("device", "kind", "software", "threads", "clock", "date", "memory", "processors", "took")
        return {"format": FORMAT, **{name: getattr(self, name) for name in own},
                "timings": [one.to_dict() for one in self.timings], "left_out": list(self.left_out)}  # fmt: skip


def read(path: Path) -> Measured:
    """A file that `shardmeter measure -o` wrote. Raises BadData, with every complaint, for any other."""
    where = file_name(path)
    try:
        found = json.loads(read_text(path, "a file of measurements", LARGEST_FILE, BadData))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadData):
            raise
        raise BadData(f"{where}: not readable as JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadData(f"{where}: no file of measurements; `shardmeter measure -o FILE` writes one")
    bad: list[Violation] = []
    timings = found.get("timings")
    rows = timings if isinstance(timings, list) else []
    if not rows:
        bad.append(Violation(field="timings", says="is no list of timings, or an empty one", where=where))
    read_rows = [_timing(row, f"timings[{at}]", where, bad) for at, row in enumerate(rows)]
    texts = {name: _word(found, name, where, bad) for name in ("device", "kind", "software", "clock", "date")}
    numbers = {name: _number(found, name, "", where, bad) for name in ("threads", "memory", "processors", "took")}
    for name, known in (("kind", r"cpu|cuda"), ("clock", r"wall|cpu"), ("date", r"\d{4}-\d{2}-\d{2}")):
        if not re.fullmatch(known, texts[name], re.ASCII):
            bad.append(Violation(field=name, says=f"{shown(texts[name])} is not as measure writes it", where=where))
    left = found.get("left_out", [])
    if not isinstance(left, list) or not all(isinstance(one, str) and len(one) <= 200 for one in left):
        bad.append(Violation(field="left_out", says="is no list of short texts", where=where))
    if bad:
        raise BadData("the measurements cannot be read", bad)
    return Measured(
        device=texts["device"], kind=texts["kind"], software=texts["software"], clock=texts["clock"], date=texts["date"],
        threads=int(numbers["threads"]), memory=numbers["memory"], processors=numbers["processors"],
        took=numbers["took"], timings=tuple(one for one in read_rows if one is not None),
        left_out=tuple(left),
    )  # fmt: skip


def _timing(row: Any, field: str, where: str, bad: list[Violation]) -> Timing | None:
    if not isinstance(row, dict) or row.get("kind") not in list(SIZES):
        bad.append(Violation(field=field, says=f"is no timing of {', '.join(SIZES)}", where=where))
        return None
    before = len(bad)
    texts = {name: _word(row, name, where, bad, field) for name in ("kind", "name", "phase", "dtype")}
    phases = PHASES if texts["kind"] == "matmul" else PHASES[:2]
    for name, words in (("phase", phases), ("dtype", FORMATS), ("name", NAMES.get(texts["kind"], ("",)))):
        if texts[name] not in words:
            bad.append(Violation(field=f"{field}.{name}", says=f"is none of {', '.join(words)}", where=where))
    sizes = row.get("sizes")
    given = sizes if isinstance(sizes, dict) else {}
    known = {name: int(_number(given, name, f"{field}.sizes", where, bad, least=1.0)) for name in SIZES[texts["kind"]]}
    times = {name: _number(row, name, field, where, bad, least=1e-12) for name in ("seconds", "low", "high")}
    runs = _number(row, "runs", field, where, bad, least=1.0)
    return None if len(bad) > before else Timing(task=Task(**texts, sizes=known), **times, runs=int(runs))


def _word(found: Mapping[str, Any], name: str, where: str, bad: list[Violation], inside: str = "") -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > 200:
        bad.append(Violation(field=".".join(filter(None, (inside, name))), says="is no short text", where=where))
        return ""
    return value


def _number(
    found: Mapping[str, Any], name: str, inside: str, where: str, bad: list[Violation], least: float = 0.0
) -> float:
    value = found.get(name)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(min(value, 1e300)) if plain and value is not None else math.nan
    if not least <= number <= 1e18:
        field = ".".join(filter(None, (inside, name)))
        bad.append(Violation(field=field, says=f"{shown(value)} is no number from {least:g} to 1e18", where=where))
        return least
    return number
