"""`shardmeter returns`: what more GPUs, islands, bandwidth or any other number buy, and where they stop paying."""

from __future__ import annotations

import functools
from typing import Any

import click

from shardmeter.cli.options import opened, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import counter

EPILOG = """Examples:

\b
  shardmeter returns examples/llama-8b-64xh100.yaml --scaling weak
  shardmeter returns examples/llama-8b-64xh100.yaml --axis fabric --plot fabric.svg
  shardmeter returns examples/home-workers.yaml --axis islands
  shardmeter returns examples/three-clouds-70b.yaml --axis fleet.islands.oregon.nodes
  shardmeter returns examples/intellect-1.yaml --over fleet.wan.default.bandwidth=50Mbps..5Gbps:log9 --format json
  shardmeter returns --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --plan auto --over gpus=8,64,512

The knee is the first x from which no step ahead buys half of what a unit bought on average. A global batch that the scenario says
stays (strong scaling); one that it leaves out follows the machines (weak scaling). Exit code 1 when no point fits."""


@click.command(epilog=EPILOG, short_help="What do more GPUs, islands or bandwidth buy?")
@scenario_options
@click.option(
    "--axis", default="gpus", show_default=True, metavar="WHAT",
    help="gpus (the nodes of every island), islands (their count), fabric (bandwidth between nodes), wan (bandwidth between islands), "
    "or any numeric field, as in --set; with values it is --over.",
)  # fmt: skip
@click.option(
    "--over", multiple=True, metavar="WHAT=VALUES",
    help="The axis with its values, a list or range as in sweep; left out, factors of two around the scenario's own.",
)  # fmt: skip
@click.option(
    "--scaling", type=click.Choice(("strong", "weak")),
    help="Of gpus and islands: the global batch stays, or grows with them; left out, it stays where it is said.",
)  # fmt: skip
@plot_option("Draw the curve, dollars and MFU.")
def returns(**asked: Any) -> int:
    """Predict SCENARIO along one axis: throughput, MFU, time and dollars, the knee, and what the next unit buys."""
    drawn = drawable(asked["plot"])
    document, rows = opened(asked)
    from shardmeter.render import returns as page
    from shardmeter.render.heading import heading
    from shardmeter.study.planning.automatic import settled
    from shardmeter.study.returns import returns as answer_to

    settle = functools.partial(settled, processes=None)
    with counter("points of the curve", shortens=True) as report:
        found = answer_to(
            document, rows, asked["axis"], asked["over"], asked["scaling"] or "", settle=settle, report=report
        )
    answer = found.to_dict()
    if drawn:
        draw(page.figures(answer), asked["plot"])
    warn(answer["warnings"])
    write(page.document(answer, heading(found.scenario)), asked["output"])
    return 0 if answer["fits"] else 1
