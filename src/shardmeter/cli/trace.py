"""`shardmeter trace`: one step task by task, for Perfetto, as a picture, and as a summary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import write
from shardmeter.core.errors import ShardMeterError
from shardmeter.core.files import put_file

if TYPE_CHECKING:
    from shardmeter.study.trace import Drawn

EPILOG = """Examples:

\b
  shardmeter trace examples/llama-70b-tp8-pp4.yaml -o step.json --svg step.svg
  shardmeter trace examples/llama-8b-64xh100.yaml --steps 2 --global-batch 128 -o steps.json
  shardmeter trace examples/llama-70b-tp8-pp4.yaml --ranks 0,3 --svg ends.svg --straggle 0.1
  shardmeter trace islands.yaml --rounds 3 --svg rounds.svg
  shardmeter trace islands.yaml --island oregon -o step.json

A rank is one representative GPU of a pipeline stage: those that share a stage do the same at the same time. Open the JSON
at ui.perfetto.dev or in chrome://tracing. Whether the plan fits into memory is no question here: `predict` says it."""


@click.command(epilog=EPILOG, short_help="What happens when in a step? Task by task.")
@scenario_options
@click.option("-o", "--out", metavar="FILE", help="Where to write the trace events (JSON for Perfetto).")
@click.option("--svg", metavar="FILE", help="Where to draw the timeline.")
@click.option("--steps", metavar="N", type=click.IntRange(1, 1000), help="Steps of one island to run; left out, 1.")
@click.option(
    "--rounds", metavar="N", type=click.IntRange(2, 1000), help="Rounds of several islands to run; left out, 4."
)
@click.option("--island", metavar="NAME", help="Of several islands, draw the inner step of this one.")
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
    help="What the stragglers are drawn from; left out, 0.",
)
def trace(out: str | None, svg: str | None, island: str | None, ranks: str | None, **asked: Any) -> int:
    """Run the step of SCENARIO task by task: every layer, collective and send of one GPU per pipeline stage.

    Of several islands, rounds are run: inner steps, messages between islands, and who waits for whom. Only methods by which all islands
    wait for the slowest have a round to draw; of the others (block_train, decoupled_diloco, async_local_sgd, soma, branch_train_merge)
    --island draws an inner step."""
    straggle = asked.pop("straggle")
    if straggle is not None and not math.isfinite(straggle):
        raise ShardMeterError(f"--straggle {straggle}: say a share from 0 to 1, as in 0.05")
    of_step = {"--steps": asked.pop("steps"), "--ranks": ranks, "--straggle": straggle, "--seed": asked.pop("seed")}
    rounds = asked.pop("rounds")
    scenario = resolve(asked)
    from shardmeter.cli.progress import progress
    from shardmeter.render import tracing
    from shardmeter.render.heading import heading
    from shardmeter.study.rounds import one_island, trace_rounds
    from shardmeter.study.trace import trace as traced

    scenario = scenario if island is None else one_island(scenario, island)
    several = len(scenario.fleet.islands) > 1
    _check_options(several, rounds, of_step)
    kept = _ranks(ranks, scenario.plan.pp)
    with progress("tracing"):
        found: Drawn = (
            trace_rounds(scenario, rounds=rounds or 4)
            if several
            else traced(scenario, steps=of_step["--steps"] or 1, straggle=straggle, seed=of_step["--seed"] or 0)
        )
        title, written = heading(scenario), {}
        if out is not None:
            from shardmeter.render import chrome

            put_file(out, chrome.text(found, kept))
            written["trace"] = out
        if svg is not None:
            from shardmeter.render import gantt

            put_file(svg, gantt.svg(found, title, kept))
            written["picture"] = svg
        answer = found.to_dict()
    write(tracing.document(answer, title, written), asked["output"])
    return 0


def _check_options(several: bool, rounds: int | None, of_step: dict[str, Any]) -> None:
    """Refuse options of a step where rounds are run, and of rounds where a step is."""
    said = [name for name, value in of_step.items() if value is not None]
    if several and said:
        raise ShardMeterError(f"{', '.join(said)}: of the step of one island; say --island NAME too, or leave it out")
    if not several and rounds is not None:
        raise ShardMeterError("--rounds: one island has no rounds; say --steps")


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
