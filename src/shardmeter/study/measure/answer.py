"""The answer of `measure`: timings, rows, intervals, and the profile they are written into."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardmeter.core.record import record
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Accelerator
from shardmeter.study.calibrate import profile
from shardmeter.study.measure.collectives import collectives, messages
from shardmeter.study.measure.record import Measured, Task, Timing
from shardmeter.study.measure.rows import KERNEL, LEVEL, Rows, rows, slug
from shardmeter.study.measure.run import Device, Gone, timings
from shardmeter.study.measure.tasks import tasks
from shardmeter.study.measure.torch_device import open_device, refuse_ranks

BUDGET, QUICK_BUDGET = 90.0, 20.0
"""Seconds of a measurement where none are said; collectives are beside."""
NARROW_RATIO = 1.25
"""How far above its 5th per cent the 95th of a task may be, median over tasks, before the page warns."""


@record
class Measurement:
    """What was measured, and the rows it gives."""

    measured: Measured
    rows: Rows

    @property
    def unsteady(self) -> float:
        """The 95th per cent of single runs over the 5th, median over tasks."""
        spread = sorted(one.high / one.low for one in self.measured.timings)
        return spread[len(spread) // 2]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the numbers doubtful."""
        found = [f"not timed, as it could not run here: {what}" for what in self.measured.left_out]
        if self.unsteady > NARROW_RATIO:
            found.append(
                f"single runs spread by {self.unsteady:.2f} ×: something else uses this machine; measure again when it is quiet"
            )
        for kind, error in self.rows.errors.items():
            if error > 0.25:
                found.append(
                    f"{kind}: the engine's formula misses the timed sizes by {100 * error:.0f} % (median), whatever the row says"
                )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """The JSON: the file of measurements, the rows as the catalog writes them, and how well the engine meets the timings."""
        return {
            **self.measured.to_dict(),
            "rows": {kind: dict(row) for kind, row in self._cells().items()},
            "intervals": {"level": LEVEL, "accelerators": _pairs(self.rows.accelerator_bounds), "stacks": _pairs(self.rows.stack_bounds)},
            "errors": dict(self.rows.errors),
            "kernels": [{**one.to_dict(), "predicted": said, "error": said / one.seconds - 1.0} for one, said in self.rows.detail],
            "assumptions": [
                "a kernel's number is the one with which the engine's formulas meet the timed sizes in the median",
                "peaks are the fastest run of a product, where no row of the catalog is named for them",
            ],
            "warnings": list(self.warnings),
        }  # fmt: skip

    def _cells(self) -> dict[str, dict[str, str]]:
        """By table: the accelerator's row, that of its attention, the stack's."""
        device, stack = self.rows.accelerator, self.rows.stack
        shares = {
            f"{column}_{dtype}": profile.cell(value, unit)
            for column, unit, table in (
                ("peak", "FlopPerS", device.peak),
                ("matmul_share", "Ratio", device.matmul_share),
            )
            for dtype, value in table.items()
        }
        forward, backward = device.attention_share[KERNEL]
        return {
            "accelerators": {**profile.cells("accelerators", device), **shares, "dense": "yes", "matmul_share_basis": "measured"},
            "attention": {
                "arch": device.arch, "kernel": KERNEL, "forward": profile.cell(forward, "Fraction"),
                "backward": profile.cell(backward, "Fraction"), "source": device.source, "retrieved": device.retrieved,
            },
            "stacks": profile.cells("stacks", stack),
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Put the rows and their intervals into a user profile. Raises what `profile.put` raises."""
        cells = self._cells()
        for kind in ("attention", "accelerators", "stacks"):
            profile.put(folder, kind, cells[kind])
        basis = self.rows.stack.fitted_on
        own = {name: span for name, span in self.rows.accelerator_bounds.items() if name not in ("forward", "backward")}
        profile.put_interval(folder, "accelerators", self.rows.accelerator.name, own, level=LEVEL, basis=basis)
        attends = {name: span for name, span in self.rows.accelerator_bounds.items() if name in ("forward", "backward")}
        profile.put_interval(
            folder, "attention", f"{self.rows.accelerator.arch} {KERNEL}", attends, level=LEVEL, basis=basis
        )
        profile.put_interval(folder, "stacks", self.rows.stack.name, self.rows.stack_bounds, level=LEVEL, basis=basis)

    def __repr__(self) -> str:
        device = self.rows.accelerator
        rates = ", ".join(
            f"{dtype} {share * device.peak[dtype] / 1e12:.3g} TFLOP/s" for dtype, share in device.matmul_share.items()
        )
        return f"<Measurement of {self.measured.device}: {rates}; {len(self.measured.timings)} timings>"

    def __str__(self) -> str:
        import shardmeter

        return shardmeter.page(self)


def measure(
    device: str | Device = "cpu",
    *,
    quick: bool = False,
    budget: float | None = None,
    threads: int | None = None,
    clock: str = "wall",
    ranks: int = 1,
    name: str = "",
    like: Accelerator | None = None,
    report: Callable[[Gone], None] = lambda _: None,
) -> Measurement:
    """Measure a device: `cpu`, `cuda`, or anything that is a `Device`. `ranks` beyond 1: collectives over so many processes too.

    Raises Unavailable without PyTorch, ShardMeterError where there is no such device."""
    opened: Device = open_device(device, threads, clock) if isinstance(device, str) else device
    if ranks > 1:
        refuse_ranks(opened.kind, ranks)
    start, seconds = time.monotonic(), budget or (QUICK_BUDGET if quick else BUDGET)
    asked = tasks(opened.kind, opened.dtypes, quick=quick)
    found = timings(opened, asked, seconds, report)
    if ranks > 1:
        asked = (*asked, *messages(opened.kind, ranks))
        found = (*found, *collectives(opened.kind, ranks, seconds / 4.0))
    measured = Measured(
        device=opened.name, kind=opened.kind, software=opened.software, threads=opened.threads, clock=opened.clock,
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(), memory=opened.memory, processors=opened.processors,
        took=time.monotonic() - start, timings=found, left_out=_left_out(asked, found),
    )  # fmt: skip
    return of(measured, name, like)


def _left_out(asked: Sequence[Task], found: Sequence[Timing]) -> tuple[str, ...]:
    """The tasks that have no timing, those of one kernel together."""
    timed = {repr(one.task) for one in found}
    lacking = Counter(
        " ".join(filter(None, (task.kind, task.name, task.phase, task.dtype)))
        for task in asked
        if repr(task) not in timed
    )
    return tuple(f"{what} ({count} size{'s' if count > 1 else ''})" for what, count in lacking.items())


def of(measured: Measured, name: str = "", like: Accelerator | str | None = None) -> Measurement:
    """The answer that a file of measurements holds; `name` of the row, left out: what the device calls itself.

    Raises UnknownName for a `like` that is no accelerator."""
    part = load_catalog().accelerator(like) if isinstance(like, str) else like
    usual = slug(measured.device) + (f"-{measured.threads}t" if measured.threads else "")
    return Measurement(measured=measured, rows=rows(measured, name or usual, part))


def _pairs(bounds: dict[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: [low, high] for name, (low, high) in bounds.items()}
