"""Output of SLURM's `sacct`, with bars (`-P`, `-p`) or in columns: what jobs held, and how long. Start-up and restarts are in it."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Seconds
from shardmeter.interop.logs._nccl_table import ANSI, LONGEST_LINE
from shardmeter.interop.logs.record import Dropped
from shardmeter.study.calibrate.power import Job

NAME = "sacct"
TITLE = "sacct of SLURM, with JobID, Elapsed and AllocTRES"
NEEDED = ("jobid", "elapsed", "alloctres")
ELAPSED = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d{2})(?:\.\d+)?", re.ASCII)
ENDED = ("COMPLETED", "TIMEOUT")
"""States in which a job did what it was let to."""


@record
class JobsAccount:
    """What a scheduler says of jobs, read."""

    format: str
    source: str
    lines: int
    jobs: tuple[Job, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]

    @property
    def gpu_seconds(self) -> Seconds:
        """Of all jobs."""
        return plain_sum(job.gpu_seconds for job in self.jobs)


def recognises(text: str) -> bool:
    """Whether a text begins with such a head."""
    return any(_head(line) for line in text[:100_000].splitlines()[:50])


def read(text: str, name: str = "") -> JobsAccount:
    """The jobs of a text; their steps (`123.batch`, `123.0`) are parts of them, and not counted again.

    Never raises for what a text holds: one without a head gives no job."""
    dropped: dict[str, list[str]] = {}
    jobs: dict[tuple[str, ...], Job] = {}
    head: list[tuple[str, int, int]] | None = None
    bars = True
    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = ANSI.sub("", raw[:LONGEST_LINE])
        if not line.strip() or set(line.strip()) <= {"-", " "}:
            if head and not bars and line.strip():  # the rule under a head tells how wide its columns are
                head = [
                    (name, rule.start(), rule.end())
                    for (name, _, _), rule in zip(head, re.finditer(r"-+", line), strict=False)
                ]
            continue
        found = _head(line)
        if found:
            head, bars = found, "|" in line
            continue
        if head is None:
            continue
        cells = (
            [cell.strip() for cell in line.split("|")]
            if bars
            else [line[first:last].strip() for _, first, last in head]
        )
        said = {column: cell for (column, _, _), cell in zip(head, cells, strict=False)}
        one = _job(said)
        if isinstance(one, str):
            if one:
                dropped.setdefault(one, []).append(f"line {number}")
            continue
        key = (one.id, said.get("start", ""), str(one.elapsed))
        if key in jobs:
            dropped.setdefault("jobs that stand there twice", []).append(f"line {number}")
        jobs[key] = one
    return JobsAccount(
        format=NAME,
        source=name, lines=len(lines), jobs=tuple(jobs.values()),
        dropped=tuple(Dropped(reason=why, count=len(where), first=where[0]) for why, where in dropped.items()),
        warnings=tuple(_doubts(list(jobs.values()))),
    )  # fmt: skip


def _head(line: str) -> list[tuple[str, int, int]] | None:
    """(column, where it begins, where it ends) of a line that is a head; None for any other."""
    line = line[:LONGEST_LINE]
    names = [(found[0].lower(), found.start(), found.end()) for found in re.finditer(r"[^|\s]+", line)]
    return names if {name for name, _, _ in names} >= set(NEEDED) else None


def _job(said: dict[str, str]) -> Job | str:
    """A line as a job, or why it is none; nothing is to be said of a step."""
    identity, elapsed = said.get("jobid", ""), ELAPSED.fullmatch(said.get("elapsed", ""))
    if not re.match(r"\d", identity) or elapsed is None:
        return "lines without a job or a time"
    if "." in identity:
        return ""
    days, hours, minutes, seconds = (int(one or 0) for one in elapsed.groups())
    held = dict(part.partition("=")[::2] for part in said.get("alloctres", "").split(","))
    kinds = {name.partition(":")[2]: _whole(count) for name, count in held.items() if name.startswith("gres/gpu:")}
    gpus = _whole(held.get("gres/gpu", "")) or plain_sum(kinds.values())
    if not gpus:
        return "jobs without accelerators"
    return Job(
        id=identity[:40], state=said.get("state", "").partition(" ")[0].rstrip("+")[:20], gpus=float(gpus),
        elapsed=86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds, nodes=float(_whole(held.get("node", "")) or 1),
        kind=next(iter(kinds), "")[:40],
    )  # fmt: skip


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else 0


def _doubts(jobs: list[Job]) -> list[str]:
    running = [job.id for job in jobs if job.state == "RUNNING"]
    lost = [job for job in jobs if job.state and job.state not in (*ENDED, "RUNNING")]
    total = plain_sum(job.gpu_seconds for job in jobs)
    found = []
    if running:
        found.append(f"{len(running)} jobs still run, the first is {running[0]}: their hours are those so far")
    if lost and total:
        share = plain_sum(job.gpu_seconds for job in lost) / total
        found.append(
            f"{len(lost)} of {len(jobs)} jobs did not end by themselves ({100 * share:.0f} % of the accelerator-hours): failed, cancelled or preempted"
        )
    return found
