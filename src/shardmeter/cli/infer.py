"""`shardmeter infer`: how fast a trained model answers over the islands of a fleet, and whether it fits."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option

HOW = ("pipeline", "block_train", "soma", "local")
ASKED = ("prompt", "output", "batch", "in_flight", "experts", "top_k", "blocks", "traversals")
"""Options that are numbers of the question."""
EPILOG = """Examples:

\b
  shardmeter infer examples/three-clouds-70b.yaml --compare
  shardmeter infer examples/three-clouds-70b.yaml --how block_train --output 1024
  shardmeter infer examples/three-clouds-70b.yaml --prompt 4096 --crossover --plot crossover.png
  shardmeter infer examples/three-clouds-70b.yaml --batch 16 --in-flight 512 --format json
  shardmeter infer examples/home-workers.yaml --how soma --experts 64 --top-k 4

Of the scenario's plan only tp and precision count: the accelerators of an island serve in groups of tp (left out, as many of a node
as divide the heads). Exit code 1 when a host's part does not fit into memory; the figures are given all the same."""


@click.command(epilog=EPILOG, short_help="How fast would the trained model answer?")
@scenario_options
@click.option(
    "--how", type=click.Choice(HOW), default="pipeline", show_default=True,
    help="pipeline: layers cut over islands, token by token; block_train: blocks on islands, all tokens in one traversal; "
    "soma: an ensemble of small experts; local: whole models on single islands.",
)  # fmt: skip
@click.option("--prompt", type=int, default=512, show_default=True, metavar="TOKENS", help="Tokens that are given.")
@click.option(
    "--output", "length", type=int, default=256, show_default=True, metavar="TOKENS", help="Tokens that are written."
)
@click.option("--batch", type=int, default=1, show_default=True, metavar="N", help="Sequences that pass together.")
@click.option(
    "--in-flight", type=int, metavar="N", help="Sequences under way at once; left out, as many as pay and fit."
)
@click.option(
    "--experts", type=int, metavar="N", help="soma: experts, each as large as the model; left out, one on every island."
)
@click.option("--top-k", type=int, metavar="K", help="soma: experts that a sequence is routed to; left out, 4 or all.")
@click.option("--together", is_flag=True, help="soma: every island holds all experts, so that no token crosses.")
@click.option(
    "--blocks", type=int, metavar="N", help="block_train: equal parts of the stack; left out, one on every island."
)
@click.option(
    "--traversals", type=int, default=1, show_default=True, metavar="N", help="block_train: passes for one output."
)
@click.option(
    "--eager",
    is_flag=True,
    help="Launch every kernel from the host as in training; left out, decoding is captured as graphs.",
)
@click.option("--compare", is_flag=True, help="All ways to serve in one table.")
@click.option(
    "--crossover",
    is_flag=True,
    help="From which output length one traversal beats the pipeline and the whole model on one island, for round trips of 1 to 300 ms "
    "and those of the fleet.",
)
@plot_option("Draw that.")
def infer(**asked: Any) -> int:
    """Predict latency, throughput and memory of a trained model that is served over the islands of SCENARIO."""
    drawn = drawable(asked["plot"])
    scenario = resolve(asked)
    from shardmeter.render import inference
    from shardmeter.specs.serving import Serving
    from shardmeter.study.infer import infer as answer_to

    numbers = {name: asked["length" if name == "output" else name] for name in ASKED}
    numbers |= {name: 0 for name in ("experts", "top_k", "blocks") if numbers[name] is None}
    question = Serving(how=asked["how"], together=asked["together"], **numbers)
    answer = answer_to(
        scenario, question, compare=asked["compare"], crossover=asked["crossover"] or drawn, eager=asked["eager"]
    ).to_dict()
    if drawn:
        draw(inference.figures(answer), asked["plot"])
    warn(answer["warnings"])
    write(inference.document(answer, inference.title(scenario, asked["how"])), asked["output"])
    return 0 if answer["fits"] else 1
