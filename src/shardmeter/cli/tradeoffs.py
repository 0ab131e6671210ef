"""`shardmeter tradeoffs`: what turning a knob buys in throughput and costs in loss, memory and traffic."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import opened, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import progress

EPILOG = """Examples:

\b
  shardmeter tradeoffs examples/target-loss.yaml
  shardmeter tradeoffs examples/intellect-1.yaml --over plan.sync.sync_every=10,30,100,300,1000 --plot h.png
  shardmeter tradeoffs examples/intellect-1.yaml --set run.law=hoffmann-2022 --over plan.sync.sync_every=50,100,500 --over plan.sync.bits=4,8,16
  shardmeter tradeoffs examples/llama-8b-64xh100.yaml --over plan.micro_batch=1,2,4 --over plan.recompute=none,selective,full --format json

Without --over: H, fragments, bits, micro-batch, batch, sequence and recompute, those of them that the scenario has. With several --over their
product too (at most 10^5 points), and which of it nothing beats. Exit code 0 also where nothing fits."""


@click.command(epilog=EPILOG, short_help="What does speed cost in loss, memory and traffic?")
@scenario_options
@click.option(
    "--over",
    multiple=True,
    metavar="FIELD=VALUES",
    help="A knob and its values, as in plan.sync.sync_every=10,100,1000. Repeatable.",
)
@plot_option("Draw throughput against loss, and against memory.")
def tradeoffs(**asked: Any) -> int:
    """Turn the knobs of SCENARIO one by one: throughput against loss, memory and traffic."""
    drawn = drawable(asked["plot"])
    document, rows = opened(asked)
    from shardmeter.render import tradeoffs as page
    from shardmeter.render.heading import heading
    from shardmeter.study.tradeoffs import tradeoffs as answer_to

    with progress("turning the knobs"):
        found = answer_to(document, rows, asked["over"])
        answer = found.to_dict()
    if drawn:
        draw(page.figures(answer), asked["plot"])
    warn(answer["warnings"])
    write(page.document(answer, heading(found.scenario)), asked["output"])
    return 0
