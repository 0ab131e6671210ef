"""`shardmeter sensitivity`: what an answer hangs on, number by number, and by twos."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import progress

EPILOG = """Examples:

\b
  shardmeter sensitivity examples/intellect-1.yaml
  shardmeter sensitivity examples/llama-8b-64xh100.yaml --of run.cost_usd --plot tornado.png
  shardmeter sensitivity examples/intellect-1.yaml --what-if fleet.wan.bandwidth=x2 --with plan.sync.sync_every=x0.5
  shardmeter sensitivity examples/three-clouds-70b.yaml --pairs 4 --format json

A figure is named as in the JSON of predict: tokens_per_s, step_time_s, mfu, memory.peak_gib, run.wall_clock_s, run.cost_usd. A number is
moved by NAME=x2, NAME=+10% or NAME=20 Gbps, NAME being a path or the end of one. Exit code 0 also where nothing moves it."""


@click.command(epilog=EPILOG, short_help="Which numbers does the answer hang on?")
@scenario_options
@click.option("--of", default="tokens_per_s", show_default=True, metavar="FIGURE", help="What the effect is on.")
@click.option("--what-if", "moves", multiple=True, metavar="NAME=x2", help="Move one number. Repeatable.")
@click.option(
    "--with", "others", multiple=True, metavar="NAME=x0.5", help="Move this one too, beside each --what-if. Repeatable."
)
@click.option("--pairs", type=int, default=0, metavar="N", help="All pairs of the first N numbers, 2 to 12.")
@click.option("--all", "every", is_flag=True, help="List every number, those that do nothing too.")
@plot_option("Draw what half and twice of each number do.")
def sensitivity(**asked: Any) -> int:
    """Rank every number of SCENARIO by what it does to one figure of the answer."""
    drawn = drawable(asked["plot"])
    scenario = resolve(asked)
    from shardmeter.render import sensitivity as page
    from shardmeter.render.heading import heading
    from shardmeter.study.sensitivity import sensitivity as answer_to

    with progress("moving every number"):
        found = answer_to(
            scenario, asked["of"], pairs=asked["pairs"], what_if=asked["moves"], beside=asked["others"]
        )  # fmt: skip
    answer = found.to_dict()
    if drawn:
        draw(page.figures(answer), asked["plot"])
    warn(answer["warnings"])
    write(page.document(answer, heading(scenario), every=asked["every"]), asked["output"])
    return 0
