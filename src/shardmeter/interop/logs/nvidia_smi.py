"""Output of `nvidia-smi dmon` and of `nvidia-smi --query-gpu=… --format=csv`: watts, and whether anything ran.

`sm` and `utilization.gpu` say that some kernel was running, no share of any peak; `mem` of dmon is the memory controller's, no capacity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean, median

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Seconds
from shardmeter.interop.logs._nccl_table import ANSI, LONGEST_LINE
from shardmeter.interop.logs.record import Dropped
from shardmeter.study.calibrate.power import BUSY, Draw

NAME = "nvidia-smi"
TITLE = "nvidia-smi dmon, or nvidia-smi --query-gpu=… --format=csv"
EVERY = 1.0
"""Seconds between samples of dmon where it does not say times (its own default)."""
GAP = 5.0
"""A pause of so many usual ones between samples is a gap, which nothing is said of."""
HOTTEST = 20_000.0
"""Watts of no accelerator."""
COLUMNS = {
    "gpu": "gpu", "pwr": "power", "sm": "busy", "fb": "memory", "index": "gpu", "uuid": "gpu", "pci.bus_id": "gpu",
    "power.draw": "power", "power.draw.average": "power", "power.draw.instant": "power", "utilization.gpu": "busy",
    "memory.used": "memory", "power.limit": "limit", "enforced.power.limit": "limit", "timestamp": "time", "name": "name",
}  # fmt: skip
TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")


@record
class PowerAccount:
    """A monitor's log, read."""

    format: str
    source: str
    lines: int
    samples: int
    draws: tuple[Draw, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]


Sample = tuple[str, float | None, float, float | None, float | None, float | None, str]
"""(accelerator, seconds since any origin, watts, busy, bytes, limit, name)."""


def recognises(text: str) -> bool:
    """Whether a text has the head of either form, and watts in it."""
    return any(_head(line) for line in text[:100_000].splitlines())


def read(text: str, name: str = "") -> PowerAccount:
    """The draws of every accelerator. Never raises for what a text holds: a log without a head gives no draw."""
    dropped: dict[str, list[str]] = {}
    samples: dict[str, list[Sample]] = {}
    head: tuple[str, ...] = ()
    is_csv = False
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = ANSI.sub("", raw[:LONGEST_LINE]).strip()
        found = _head(line)
        if found:
            head, is_csv = found, "," in line
        if found or not line or line.startswith("#") or not head:
            continue
        one = _sample(head, [cell.strip() for cell in line.split("," if is_csv else None)])
        if isinstance(one, str):
            dropped.setdefault(one, []).append(f"line {number}")
        else:
            samples.setdefault(one[0], []).append(one)
    warnings = []
    if samples and all(one[1] is None for own in samples.values() for one in own):
        warnings.append(
            f"no times: samples are taken to be {EVERY:g} s apart, as dmon's are unless it was told otherwise"
        )
    return PowerAccount(
        format=NAME,
        source=name, lines=len(lines), samples=sum(map(len, samples.values())),
        draws=tuple(_draw(gpu, own, dropped) for gpu, own in samples.items()),
        dropped=tuple(Dropped(reason=why, count=len(where), first=where[0]) for why, where in dropped.items()),
        warnings=tuple(warnings),
    )  # fmt: skip


def _head(line: str) -> tuple[str, ...]:
    """Our names of the columns of a line that is a head with watts; empty for any other line."""
    line = ANSI.sub("", line[:LONGEST_LINE]).strip()
    if line.startswith("#"):
        names = line.lstrip("# ").split()
        if "pwr" not in names:
            return ()
        return tuple({"Date": "date", "Time": "clock"}.get(name, COLUMNS.get(name, "")) for name in names)
    names = [re.sub(r"\s*\[.*?\]", "", name).strip() for name in line.split(",")]
    if not any(name.startswith("power.draw") for name in names):
        return ()
    return tuple(COLUMNS.get(name, "") for name in names)


def _sample(head: Sequence[str], cells: Sequence[str]) -> Sample | str:
    """A line as a sample, or why it is none."""
    if len(cells) != len(head):
        return "lines with more or fewer cells than the head"
    said: dict[str, str] = {}
    for name, cell in zip(head, cells, strict=True):
        said.setdefault(name, cell)
    power = _number(said.get("power", ""))
    if power is None or not 0.0 <= power <= HOTTEST:
        return "no watts there"
    busy, memory = _number(said.get("busy", "")), _number(said.get("memory", ""))
    return (
        said.get("gpu", "0"), _time(said), power, None if busy is None else busy / 100.0, None if memory is None else memory * 2.0**20,
        _number(said.get("limit", "")), said.get("name", "")[:100],
    )  # fmt: skip


def _time(said: Mapping[str, str]) -> float | None:
    text = said.get("time") or f"{said.get('date', '')} {said.get('clock', '')}".strip()
    for form in TIMES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def _draw(gpu: str, own: Sequence[Sample], dropped: dict[str, list[str]]) -> Draw:
    each = list(_spans(own, dropped))
    watts = [one[2] for one in own]
    ran = [one[3] for one in own]
    most = sorted(watts)[int(0.95 * (len(watts) - 1))]
    busy = [share >= BUSY if share is not None else one[2] >= BUSY * most for one, share in zip(own, ran, strict=True)]
    computing = [watt for watt, is_busy in zip(watts, busy, strict=True) if is_busy]
    held = [one[4] for one in own if one[4] is not None]
    limits = [one[5] for one in own if one[5] is not None and one[5] > 0.0]
    return Draw(
        gpu=gpu, samples=len(own), seconds=plain_sum(each), energy=plain_sum(watt * span for watt, span in zip(watts, each, strict=True)),
        mean=fmean(watts), computing=fmean(computing) if computing else None, peak=max(watts), busy=plain_sum(busy) / len(busy),
        memory=max(held, default=None), limit=min(limits, default=None), name=own[0][6],
    )  # fmt: skip


def _spans(own: Sequence[Sample], dropped: dict[str, list[str]]) -> Iterator[Seconds]:
    """Seconds that each sample stands for: up to the next one; the usual where there is a gap, or none after it."""
    times = [one[1] for one in own]
    apart = [b - a if a is not None and b is not None else None for a, b in pairwise(times)]
    usual = median([one for one in apart if one is not None and one > 0.0] or [EVERY])
    for one in (*apart, None):
        whole = one is not None and 0.0 <= one <= GAP * usual
        if one is not None and not whole:
            dropped.setdefault("gaps between samples, or clocks that go back", []).append(f"accelerator {own[0][0]}")
        yield one if whole and one is not None else usual


def _number(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(?:W|%|MiB)?", text, re.ASCII)
    return float(found[1]) if found else None
