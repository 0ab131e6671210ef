"""Output of nccl-tests and rccl-tests, as text of any age or as the file of `-J`: seconds of collectives by size.

Nothing is believed that the table itself contradicts: the time of a row against its rates, the number of ranks against the ratio of
the two rates, the average at the end against the rows that are there. The average mixes all sizes and is no speed of a link.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.interop.logs import _nccl_json, _nccl_table
from shardmeter.interop.logs._nccl_table import Device, Figures, Table
from shardmeter.interop.logs.record import Dropped
from shardmeter.study.calibrate.timings import PRICED, Benchmark, Timing

NAME = "nccl-tests"
TITLE = "nccl-tests or rccl-tests: text, or the file of -J"
COLLECTIVES = {"alltoall": "all_to_all", "sendrecv": "send"}
"""What the engine calls some programs; the others have its names, or none."""
TWICE = ("all_reduce",)
ONCE = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Collectives whose bus rate is 2·(n − 1)/n and (n − 1)/n of the algorithm's; of the others they are equal."""
ROUNDED = 0.01e9
"""B/s of the last digit of a rate."""


@record
class BenchmarkAccount:
    """A file of benchmarks, read: the tables that count, and what was left."""

    format: str
    version: str
    lines: int
    benchmarks: tuple[Benchmark, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Timings of all tables."""
        return sum(len(one.timings) for one in self.benchmarks)


def recognises(text: str) -> bool:
    """Whether a text is such output: a row of a table under its rates, or the file of -J."""
    if _nccl_json.is_json(text):
        return True
    head = text[:1_000_000]
    return "algbw" in head and "busbw" in head and _nccl_table.ROW.search(_nccl_table.ANSI.sub("", head)) is not None


def read(text: str, name: str = "") -> BenchmarkAccount:
    """The tables of a text. `name` is that of the file: one that says `all_gather` tells what a table is that does not say it.

    Never raises for what a text holds: a text without a table gives an account without benchmarks."""
    found = [_nccl_json.table_of(text)] if _nccl_json.is_json(text) else _nccl_table.tables(text)
    benchmarks, warnings = [], []
    dropped: dict[str, list[str]] = {}
    for table in found:
        collective, why = _collective(table, name)
        warnings += list(_doubts(table, collective, why))
        if not collective:
            dropped.setdefault("no collective fits the columns alone: name it in the file's name", []).append(
                f"{table.word} {table.number}"
            )
            continue
        one = _benchmark(table, collective, name, dropped)
        if one is not None:
            benchmarks.append(one)
            warnings += list(_contradictions(table, one))
    if len({table.tag for table in found}) > 1 and benchmarks and all(one.ranks == 1 for one in benchmarks):
        warnings.append(
            f"{len(found)} processes of one rank each: the programs were built without MPI, and nothing was sent"
        )
    versions = Counter(table.version for table in found if table.version)
    return BenchmarkAccount(
        format=NAME,
        version=", ".join(versions),
        lines=len(text.splitlines()),
        benchmarks=tuple(benchmarks),
        dropped=tuple(Dropped(reason=why, count=len(where), first=where[0]) for why, where in dropped.items()),
        warnings=tuple(dict.fromkeys(warnings)),
    )


# ---- what a table is -------------------------------------------------------------------------------------------------------------


def _collective(table: Table, name: str) -> tuple[str, str]:
    """The collective of a table in the engine's words, and what it was told by where the table does not say it; or nothing."""
    program = table.program
    if program:
        return COLLECTIVES.get(program, program), ""
    in_name = re.search(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast)", name.lower())
    if in_name:
        plain = in_name[1].replace("_", "")
        known = {
            "allreduce": "all_reduce",
            "allgather": "all_gather",
            "reducescatter": "reduce_scatter",
            "alltoall": "all_to_all",
        }
        return known.get(plain, "send" if plain == "sendrecv" else plain), "the name of the file"
    ratio = _ratio(table)
    if ratio is None or not table.rows:
        return "", ""
    row = table.rows[-1]
    sums, rooted = row.operation not in ("", "none"), row.root not in ("", "-1")
    if sums and not rooted:
        many = len(table.devices) > 2
        return (
            "reduce_scatter" if ratio < 0.99 else "send" if many and ratio < 1.01 else "all_reduce"
        ), "its columns and the ratio of its rates"
    if not sums and not rooted and ratio < 0.99 and len(row.figures) > 1:
        checked, apart = row.figures[0].wrong is not None, row.figures[1].wrong is None
        return ("all_to_all" if apart else "all_gather") if checked else "", "its columns and the ratio of its rates"
    return "", ""


def _ratio(table: Table) -> float | None:
    """Bus rate over algorithm's rate, of the row that says it most exactly."""
    best = max(
        (one for row in table.rows for one in row.figures if one.algorithm_rate and one.bus_rate),
        key=lambda one: one.algorithm_rate or 0.0, default=None,
    )  # fmt: skip
    return None if best is None or not best.algorithm_rate or not best.bus_rate else best.bus_rate / best.algorithm_rate


def _benchmark(table: Table, collective: str, name: str, dropped: dict[str, list[str]]) -> Benchmark | None:
    """The timings of a table that count. None, with the reason in `dropped`, where none does or the hosts are unlike."""
    group, world = _group(table)
    each = table.threads * table.gpus if table.per_process else 1
    ranks = _ranks(table, collective, len(group))
    listed = ranks == len(group) * each
    hosts = Counter(one.host for one in world) if listed else Counter[str]()
    place = f"{table.word} {table.number}"
    if len(set(hosts.values())) > 1:
        dropped.setdefault("hosts with unlike numbers of ranks", []).append(place)
        return None
    if len({one.name for one in world}) > 1:
        dropped.setdefault("unlike devices in one group", []).append(place)
        return None
    timings = tuple(_timings(table, collective, dropped))
    if not timings:
        return None
    return Benchmark(
        collective=collective,
        ranks=float(ranks),
        timings=timings,
        stride=float(_stride(group)) if each == 1 else 1.0,
        per_host=float(hosts.most_common(1)[0][1] * each) if hosts else None,
        hosts=float(max(len(hosts), 1)),
        device=world[0].name if world else "",
        backend=table.version,
        settings=tuple(sorted(table.settings.items())),
        source=f"{name or NAME}, {place}",
    )


def _group(table: Table) -> tuple[list[Device], list[Device]]:
    """The devices of the first group, and all of them."""
    first = table.devices[0].group if table.devices else 0
    return [one for one in table.devices if one.group == first], table.devices


def _stride(group: Sequence[Device]) -> int:
    """Ranks between neighbours of a group; 1 where they are not evenly apart."""
    apart = {b.rank - a.rank for a, b in pairwise(group)}
    return max(apart.pop(), 1) if len(apart) == 1 else 1


def _ranks(table: Table, collective: str, listed: int) -> int:
    """Ranks of one group: as listed, unless the rates of the rows say another number exactly."""
    listed = max(listed, 1) * (table.threads * table.gpus if table.per_process or not listed else 1)
    within = _ranks_by_rates(table, collective)
    if within is None or within[0] <= listed <= within[1] or within[0] != within[1]:
        return listed
    return within[0]


def _ranks_by_rates(table: Table, collective: str) -> tuple[int, int] | None:
    """Least and most ranks that the rates of the rows allow; None where they tell nothing."""
    ratio = 2.0 if collective in TWICE else 1.0 if collective in ONCE else 0.0
    rates = [
        (one.algorithm_rate, one.bus_rate)
        for row in table.rows
        for one in row.figures
        if one.bus_rate is not None and (one.algorithm_rate or 0.0) >= 100 * ROUNDED
    ]
    if not ratio or not rates:
        return None
    algorithm, bus = np.array(rates, dtype=np.float64).T
    with np.errstate(over="ignore", invalid="ignore"):
        share = bus / algorithm / ratio
        slack = 1.2 * ROUNDED / algorithm * np.where(algorithm >= 1000e9, 10.0, 1.0)
        least = float(np.fmax.reduce(1.0 / np.maximum(1.0 - (share - slack), 1e-9), initial=1.0))
        most = float(np.fmin.reduce(1.0 / np.maximum(1.0 - (share + slack), 1e-9), initial=1e9))
    low, high = int(-(-least // 1)), int(most)
    return None if low > high or most == 1e9 else (low, high)


# ---- what counts of it -----------------------------------------------------------------------------------------------------------


def _timings(table: Table, collective: str, dropped: dict[str, list[str]]) -> Iterator[Timing]:
    """Rows that count; the reason for the others goes to `dropped`."""
    for number in table.cut:
        dropped.setdefault("rows that end too early or have something else inside", []).append(f"{table.word} {number}")
    of_host = table.options.get("cputime") == "1"
    apart = collective == "all_to_all"
    for row in table.rows:
        for one in row.figures:
            if apart and one.in_place:
                why = "in place, which an all-to-all cannot be"
            else:
                why = "times of the host (-C 1), not of the device" if of_host else _why_not(row.size, one)
            if why:
                dropped.setdefault(why, []).append(f"{table.word} {row.number}")
            elif one.seconds is not None:
                yield Timing(size=row.size, seconds=one.seconds, in_place=one.in_place, line=row.number)


def _why_not(size: float, one: Figures) -> str:
    if one.seconds is None:
        return "no time there (NaN, inf or N/A)"
    if size <= 0.0 or one.seconds <= 0.0:
        return "no bytes, or no time"
    if one.wrong is not None and one.wrong >= 1.0:
        return "wrong results (#wrong)"
    if one.algorithm_rate is None:
        return ""
    rate = size / one.seconds
    if abs(rate - one.algorithm_rate) > 0.02 * rate + 2 * ROUNDED:
        return "time and algbw of the row do not belong together"
    return ""


# ---- what is to be doubted -------------------------------------------------------------------------------------------------------


def _doubts(table: Table, collective: str, why: str) -> Iterator[str]:
    if why and collective:
        yield f"{table.word} {table.number}: the table does not say its collective; read as {collective} by {why}"
    if collective and collective not in PRICED:
        yield f"{table.word} {table.number}: {collective} has no price in the engine; its rows are read, not fitted"
    if table.options.get("agg iters", "1") not in ("", "1"):
        yield f"{table.word} {table.number}: {table.options['agg iters']} operations at a time (-m): starts are shared, latencies come out too short"
    if table.options.get("graph", "0") != "0":
        yield f"{table.word} {table.number}: replayed from CUDA graphs (-G): what the host takes to launch is left out"
    if table.wrong:
        yield f"{table.word} {table.number}: {table.wrong} values came out wrong: the network or the memory is not to be trusted"


def _contradictions(table: Table, one: Benchmark) -> Iterator[str]:
    if one.ranks == 1:
        yield f"{table.word} {table.number}: one rank: nothing was sent"
    if one.per_host is None:
        yield f"{table.word} {table.number}: the list of devices is not that of {one.ranks:g} ranks: on which hosts they are is not known"
    within = _ranks_by_rates(table, one.collective)
    listed = len(_group(table)[0])
    if within and listed and not table.per_process and not within[0] <= listed <= within[1]:
        yield f"{table.word} {table.number}: {listed} ranks are listed, its rates are those of {within[0]}"
    rates = [f.bus_rate for row in table.rows for f in row.figures if f.bus_rate is not None]
    if table.average is not None and rates:
        mean = plain_sum(rates) / len(rates) / 1e9
        if abs(mean - table.average) > 0.02 * table.average + 0.02:
            yield (f"{table.word} {table.number}: the table ends with an average of {table.average:g} GB/s, its rows have {mean:.4g}: "
                   "rows are missing or were changed")  # fmt: skip
    if not table.ended:
        missing = _missing(table)
        rest = f": {missing} of its sizes are not there" if missing else ""
        yield f"{table.word} {table.number}: the table does not end{rest}"


def _missing(table: Table) -> int:
    """Sizes that a table announces and does not have."""
    if table.sizes is None:
        return 0
    least, most, step, factor = table.sizes
    largest = max((row.size for row in table.rows), default=0.0)
    count, size = 0, float(least)
    while size <= most and count < 100_000:
        count += size > largest * 1.001
        size = size * step if factor and step > 1 else size + max(step, 1)
    return count
