"""`shardmeter sweep`: any fields over ranges and lists, to a table or a file that can be resumed."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import opened, scenario_options
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.progress import counter, progress
from shardmeter.core.errors import ShardMeterError

if TYPE_CHECKING:
    from shardmeter.study.sweep.space import Space

MOST_SHOWN = 1_000_000
"""Points of a sweep that is not written to a file."""
EPILOG = """Examples:

\b
  shardmeter sweep examples/llama-8b-64xh100.yaml --over plan.micro_batch=1..8 --over plan.recompute=none,selective,full
  shardmeter sweep run.yaml --over plan.tp=1,2,4 --over fleet.islands.0.nodes=1..64:x2 -o grid.csv
  shardmeter sweep run.yaml --over fleet.islands.0.fabric.bandwidth=50Gbps..800Gbps:log20 --columns step_time_s,mfu
  shardmeter sweep run.yaml --over plan.tp,plan.pp='(1,8),(2,4),(8,1)' --over stack=titan-compile,mcore-2024 -o out.parquet

Values are lists (1,2,4 or none,full), ranges (1..64; 1..64:x2; 1..64:+8; 1Gbps..400Gbps:log20; 40ms..2s:lin20), or both;
several fields with a comma between them move together. The last axis moves fastest. With -o, finished chunks lie in
FILE.parts: after an interruption the same command goes on, and the file is the same byte for byte. Exit code 1 when no
point fits, and of --join when a shard is missing: the page says which."""


@click.command(epilog=EPILOG, short_help="How do many scenarios come out? A table of them all.")
@scenario_options
@click.option(
    "--over", multiple=True, required=True, metavar="FIELD=VALUES",
    help="An axis: a field (as in --set) over a list or a range. Repeatable: the product of all is evaluated.",
)  # fmt: skip
@click.option(
    "--columns", metavar="NAME,NAME…", help="Figures of every point, named as in the JSON of predict (run.cost_usd)."
)
@click.option("-o", "--out", metavar="FILE", help="Write the rows to a .csv, .json or .parquet file, resumably.")
@click.option("--overwrite", is_flag=True, help="Replace the file and finished chunks of another sweep.")
@click.option(
    "--engine", metavar="local|dask|dask://HOST:PORT", default="local", show_default=True,
    help="Where to evaluate: processes here, a Dask cluster on this machine, or a Dask scheduler.",
)  # fmt: skip
@click.option("--workers", metavar="N", type=click.IntRange(1, 1024), help="Processes here; left out, one a core.")
@click.option(
    "--shard", metavar="I/N", help="Evaluate the I-th of N parts, for job arrays; the last one to end joins them."
)
@click.option(
    "--join",
    is_flag=True,
    help="Evaluate nothing: join the chunks of finished shards; exit code 1, and which are missing, if some are.",
)
def sweep(over: tuple[str, ...], columns: str | None, out: str | None, **asked: Any) -> int:
    """Predict SCENARIO at every point of the product of its axes."""
    if out is None and (asked["shard"] or asked["join"] or asked["overwrite"]):
        raise click.UsageError("--shard, --join and --overwrite go with -o FILE")
    if sum(map(bool, (asked["shard"], asked["join"], asked["overwrite"]))) > 1:
        raise click.UsageError("one of --shard, --join and --overwrite: each is of the whole, or of one part")
    names = [name.strip() for name in columns.split(",") if name.strip()] if columns is not None else []
    if columns is not None and not names:
        raise click.UsageError("--columns names no figure; as in --columns step_time_s,mfu, or leave it out")
    shard = _shard(asked["shard"])
    document, rows = opened(asked)
    from shardmeter.study.sweep import refuse_existing, space_of
    from shardmeter.study.sweep import suffix as format_of

    if out is not None:
        format_of(Path(out))
        if shard == (1, 1) and not asked["overwrite"]:
            refuse_existing(Path(out))
    with progress("reading the values of the axes"):
        points = space_of(document, rows, over, names)
    warn(points.warnings)
    workers = asked["workers"] or _cores()
    if out is None:
        return _shown(points, asked["engine"], workers, asked["output"])
    return _written(points, Path(out), shard, workers, asked)


def _shown(points: Space, engine: str, workers: int, output: str) -> int:
    """All rows on standard output."""
    from shardmeter.render import sweeping
    from shardmeter.study.sweep import sweep as swept

    if points.points > MOST_SHOWN:
        raise ShardMeterError(f"{points.points:,} points are too many to print: write them to a file with -o FILE.csv")
    with counter(f"sweep of {points.points:,}") as report:
        answer = swept(points, engine=engine, workers=workers, report=report)
    write(sweeping.document(answer, full=output != "table"), output)
    return 0 if answer.counts[0] else 1


def _written(points: Space, out: Path, shard: tuple[int, int], workers: int, asked: dict[str, Any]) -> int:
    """All rows to a file, what became of it on standard output."""
    from shardmeter.render import sweeping
    from shardmeter.study.sweep import chunks_kept
    from shardmeter.study.sweep import write as written

    start = time.monotonic()
    try:
        with counter(f"sweep of {points.points:,}") as report:
            answer = written(
                points, out, engine=asked["engine"], workers=workers, overwrite=asked["overwrite"], shard=shard,
                join_only=asked["join"], report=report,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(_kept(chunks_kept(out), out))
        raise
    warn(answer.warnings)
    write(sweeping.written(answer, points, time.monotonic() - start), asked["output"])
    if answer.idle:  # a shard without chunks
        return 0
    if not answer.complete:  # a shard has done its part; --join, and a sweep of which a chunk broke, have not
        return 0 if asked["shard"] else 1
    return 0 if answer.counts[0] else 1


def _kept(chunks: int, out: Path) -> str:
    """What an interruption leaves."""
    if not chunks:
        return "no chunk was finished yet: the same command starts anew"
    are = "1 finished chunk is" if chunks == 1 else f"{chunks:,} finished chunks are"
    return f"{are} kept in {out}.parts: the same command goes on from there"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shard(text: str | None) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text) if text is not None else None
    if text is not None and (match is None or not 1 <= int(match[1]) <= int(match[2])):
        raise click.UsageError(f"--shard {text}: say I/N with I from 1 to N, as in 3/8")
    return (int(match[1]), int(match[2])) if match else (1, 1)
