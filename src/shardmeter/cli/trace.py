"""`shardmeter trace`: one step task by task, for Perfetto, as a picture, and as a summary."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from typing import Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import UnwritableError, write
from shardmeter.core.errors import ShardMeterError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a disk says that takes no more: no fault of the name that was given."""

EPILOG = """Examples:

\b
  shardmeter trace examples/llama-70b-tp8-pp4.yaml -o step.json --svg step.svg
  shardmeter trace examples/llama-8b-64xh100.yaml --steps 2 --global-batch 128 -o steps.json
  shardmeter trace examples/llama-70b-tp8-pp4.yaml --ranks 0,3 --svg ends.svg --straggle 0.1

A rank is one representative GPU of a pipeline stage: those that share a stage do the same at the same time. Open the JSON
at ui.perfetto.dev or in chrome://tracing. Whether the plan fits into memory is no question here: `predict` says it."""


@click.command(epilog=EPILOG)
@scenario_options
@click.option("-o", "--out", metavar="FILE", help="Where to write the trace events (JSON for Perfetto).")
@click.option("--svg", metavar="FILE", help="Where to draw the timeline.")
@click.option("--steps", metavar="N", type=click.IntRange(1, 1000), default=1, show_default=True, help="Steps to run.")
@click.option(
    "--ranks", metavar="N,N…", help="Only these pipeline stages in both files; left out, all (16 in the SVG)."
)
@click.option(
    "--straggle", metavar="SHARE", type=click.FloatRange(0.0, 1.0), default=None,
    help="Jitter: the standard deviation of a rank's compute over its mean. Every stage goes at the pace of its slowest rank, "
    "drawn anew with --seed; the closed form has the mean of such draws. Left out, the stack's.",
)  # fmt: skip
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="What the stragglers are drawn from.",
)
def trace(
    out: str | None, svg: str | None, steps: int, ranks: str | None, straggle: float | None, seed: int, **asked: Any
) -> int:
    """Run the step of SCENARIO task by task: every layer, collective and send of one GPU per pipeline stage."""
    if straggle is not None and not math.isfinite(straggle):
        raise ShardMeterError(f"--straggle {straggle}: say a share from 0 to 1, as in 0.05")
    scenario = resolve(asked)
    from shardmeter.cli.progress import progress
    from shardmeter.render import tracing
    from shardmeter.render.heading import heading
    from shardmeter.study.trace import trace as traced

    kept = _ranks(ranks, scenario.plan.pp)
    with progress("tracing"):
        found = traced(scenario, steps=steps, straggle=straggle, seed=seed)
        title, written = heading(scenario), {}
        if out is not None:
            from shardmeter.render import chrome

            written["trace"] = _save(out, chrome.text(found, kept))
        if svg is not None:
            from shardmeter.render import gantt

            written["picture"] = _save(svg, gantt.svg(found, title, kept))
        answer = found.to_dict()
    write(tracing.document(answer, title, written), asked["output"])
    return 0


def _ranks(said: str | None, pp: int) -> tuple[int, ...] | None:
    """Stages as numbers. Raises ShardMeterError for what is none of them."""
    if said is None:
        return None
    parts = [part.strip() for part in said.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 6 and int(part) < pp for part in parts):
        raise ShardMeterError(
            f"--ranks {said}: the pipeline stages are 0 to {pp - 1}; say some of them, as in 0,{pp - 1}"
        )
    return tuple(sorted({int(part) for part in parts}))


def _save(path: str, text: str) -> str:
    """Write a file. Raises ShardMeterError with a sentence where no file can be there, UnwritableError where it takes nothing."""
    from shardmeter.core.files import file_name

    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno in FULL:
            raise UnwritableError(f"{file_name(path)}: {error.strerror}") from None
        raise ShardMeterError(
            f"{file_name(path)}: cannot be written ({error.strerror or 'no reason is given'})"
        ) from None
    except ValueError:
        raise ShardMeterError(f"{file_name(path)}: no file can have this name") from None
    return path
