"""`shardmeter transitions`: what rules a step along one axis or over two, and the exact points at which that changes."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import opened, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import progress

EPILOG = """Examples:

\b
  shardmeter transitions examples/llama-8b-64xh100.yaml
  shardmeter transitions examples/llama-8b-64xh100.yaml --x fleet.islands.0.fabric.bandwidth
  shardmeter transitions examples/intellect-1.yaml --x fleet.wan.default.bandwidth=50Mbps..10Gbps:log25 --y H=1..500:x2
  shardmeter transitions run.yaml --x plan.micro_batch=1..16 --y plan.recompute=none,selective,full --plot map.svg

Without --x: the axes along which the scenario is likeliest to change its regime, a line each. An axis without values goes
over a range around the scenario's own. Crossings are found by evaluating values in between, and are held by one on either
side: where another regime takes most of the step, where communication (hidden and exposed) takes as long as compute, where
exposed communication takes a tenth of the step, where it no longer fits, where throughput peaks. Exit code 1 when no point
fits."""


@click.command(epilog=EPILOG, short_help="What rules a step, and from where on not any more?")
@scenario_options
@click.option(
    "--x",
    metavar="FIELD[=VALUES]",
    help="An axis: a field (as in --set, or a word: H, bandwidth, wan, rtt, fabric, nodes, islands), over a list or a range as in sweep.",
)
@click.option("--y", metavar="FIELD[=VALUES]", help="A second one, for a map of both.")
@plot_option("Draw the map, and the regimes along every axis.")
def transitions(x: str | None, y: str | None, plot: str | None, **asked: Any) -> int:
    """Say what rules a step of SCENARIO, and at which exact values something else does."""
    if y is not None and x is None:
        raise click.UsageError("--y goes with --x: say --x alone for one axis")
    drawn = drawable(plot)
    document, rows = opened(asked)
    from shardmeter.render import transitions as page
    from shardmeter.render.heading import heading
    from shardmeter.study.transitions import transitions as found

    with progress("evaluating along the axes"):
        answer = found(document, rows, x, y)
    data = answer.to_dict()
    if drawn and plot is not None:
        draw(page.figures(data), plot)
    warn(data["warnings"])
    write(page.document(data, heading(answer.scenario)), asked["output"])
    return 0 if answer.fits else 1
