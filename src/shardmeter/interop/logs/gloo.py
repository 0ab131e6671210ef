"""Output of gloo's own benchmark: seconds of collectives of hosts, over TCP or InfiniBand verbs. The median of every size counts."""

from __future__ import annotations

import re

from shardmeter.interop.logs._nccl_table import ANSI, LONGEST_LINE
from shardmeter.interop.logs.nccl_tests import BenchmarkAccount
from shardmeter.interop.logs.record import Dropped
from shardmeter.study.calibrate.timings import Benchmark, Timing

NAME = "gloo"
TITLE = "gloo's benchmark"
RINGS = {"ALLREDUCE_RING_CHUNKED": "all_reduce", "NEW_ALLREDUCE_RING": "all_reduce", "ALLGATHER_RING": "all_gather",
         "ALLGATHER": "all_gather", "ALLTOALL": "all_to_all"}  # fmt: skip
"""What passes as the engine prices it. Other algorithms (halving and doubling, `allreduce_ring`, which sends everything to everybody)
move other bytes in other steps."""
OF_EACH = ("all_gather", "all_to_all")
"""Collectives whose `size` is what goes to or comes from one rank; the whole buffer has one for every rank."""
OPTIONS = re.compile(r"processes=(\d{1,6}), inputs=(\d{1,6}), threads=(\d{1,6})")
ROW = re.compile(r"\s*(\d{1,15})\s+(\d{1,15})" + r"\s+(\d{1,15}(?:\.\d{1,9})?)" * 5 + r"\s+(\d{1,12})\s*")


def recognises(text: str) -> bool:
    """Whether a text is such output: its options, and the names of its columns."""
    head = text[:1_000_000]
    return OPTIONS.search(head) is not None and "p50 (" in head


def read(text: str, name: str = "") -> BenchmarkAccount:
    """The tables of a text: one a title. Every process is taken to be on a host of its own, as gloo is run.

    Never raises for what a text holds. Leaves out: outputs before 2021, which give elements and not bytes."""
    dropped: dict[str, list[str]] = {}
    found: list[Benchmark] = []
    title, begins, processes, plain, unit, timings = "", 1, 0, True, 1e-6, list[Timing]()

    def close() -> None:
        if timings and title in RINGS and plain and processes > 1:
            scale = processes if RINGS[title] in OF_EACH else 1
            found.append(Benchmark(
                collective=RINGS[title], ranks=float(processes), hosts=float(processes), per_host=1.0, backend=NAME,
                timings=tuple(Timing(size=one.size * scale, seconds=one.seconds, line=one.line) for one in timings),
                source=f"{name or NAME}, line {begins}",
            ))  # fmt: skip
        elif timings:
            why = f"{title or 'a table without a title'} does not pass as any collective that is priced"
            why = why if title not in RINGS else "several inputs or threads, or one process"
            dropped.setdefault(why, []).append(f"line {begins}")
        timings.clear()

    lines = text.splitlines()
    for number, raw in enumerate(lines, 1):
        line = ANSI.sub("", raw[:LONGEST_LINE])
        word = line.strip()
        if re.fullmatch(r"[A-Z][A-Z_]{3,40}", word):
            close()
            title, begins = word, number
        elif options := OPTIONS.search(line):
            processes, plain = int(options[1]), options[2] == options[3] == "1"
        elif "p50 (" in line:
            unit = 1e-9 if "p50 (ns)" in line else 1e-6
        elif row := ROW.fullmatch(line):
            size, median = float(row[1]), float(row[4])
            if size > 0.0 and median > 0.0:
                timings.append(Timing(size=size, seconds=median * unit, line=number))
            else:
                dropped.setdefault("no bytes, or no time", []).append(f"line {number}")
    close()
    return BenchmarkAccount(
        format=NAME, version="", lines=len(lines), benchmarks=tuple(found),
        dropped=tuple(Dropped(reason=why, count=len(where), first=where[0]) for why, where in dropped.items()),
        warnings=(),
    )  # fmt: skip
