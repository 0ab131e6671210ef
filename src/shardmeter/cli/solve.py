"""`shardmeter solve`: the largest micro-batch, the longest sequence, the fewest GPUs that fit."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import command_line, resolve, scenario_options
from shardmeter.cli.output import warn, write

QUESTIONS = ("micro-batch", "seq", "gpus")
EPILOG = """Examples:

\b
  shardmeter solve micro-batch examples/llama-8b-64xh100.yaml
  shardmeter solve seq examples/llama-8b-64xh100.yaml --set plan.recompute=full
  shardmeter solve gpus --model llama-3.1-70b --gpus 64xH100-SXM5-80GB --plan fsdp,recompute=full --global-batch 256
  shardmeter solve micro-batch --model llama-3.1-8b --gpus 8xH100-SXM5-80GB --global-batch 64 --format json

micro-batch keeps a global batch that is said; seq keeps it in sequences; gpus keeps tp, pp, cp and the batch, and dp_shard
follows (the GPUs that the scenario names tell their kind and network). A scenario that is legal but for
what is asked (a batch that its micro-batch or its GPUs do not divide) is answered over legal values, with a warning; where no
value is legal, the nearest batch is named. Of several islands, which share one batch, sweep tells which values fit. Exit code 1 when no legal value fits."""


@click.command(epilog=EPILOG, short_help="How large a micro-batch or sequence, how few GPUs?")
@click.argument("question", type=click.Choice(QUESTIONS))
@scenario_options
def solve(question: str, **asked: Any) -> int:
    """Find the largest micro-batch, the longest sequence or the fewest GPUs with which SCENARIO fits into memory."""
    from shardmeter.render import solution
    from shardmeter.render.heading import heading
    from shardmeter.study.inverse import QUESTIONS as NAMED
    from shardmeter.study.solve import solve as solution_of

    found = solution_of(question, resolve(asked, NAMED[question].begins))
    answer = found.to_dict()
    warn(answer["warnings"])
    command = command_line("predict", asked, answer["set"]) if answer["set"] else ""
    write(solution.document(answer, heading(found.prediction.scenario), command=command), asked["output"])
    return 0 if found.answer is not None else 1
