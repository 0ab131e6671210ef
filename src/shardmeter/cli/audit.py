"""`shardmeter audit`: what somebody states about a run, checked."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import SHORTCUTS, planned, rows, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option

EPILOG = """Examples:

\b
  shardmeter audit --claim mfu=104% --claim accelerator=H100-SXM5-80GB
  shardmeter audit --model llama-2-70b --gpus 16xA100-SXM4-80GB --claim mfu=45.5% --claim 'wall_clock=13.5 h' --claim steps=500 \\
    --claim global_batch=16 --claim seq_len=2048
  shardmeter audit --claim global_batch=8 --claim micro_batch=2 --claim accumulation=1 --claim gpus=1
  shardmeter audit --claim 'price=$0.9/node/h' --claim 'wall_clock=1 d' --claim 'cost=$900'
  shardmeter audit examples/llama-8b-64xh100.yaml --claim tokens_per_s=529882 --plot mfu.png

A claim may be given twice, where two statements of it are to be compared. No scenario is needed: --model alone counts FLOPs, --gpus
alone gives the peak; with both, claims stand beside the prediction too. Exit code 1 when a claim is impossible, beyond anything
measured, or contradicts the others."""


@click.command(epilog=EPILOG, short_help="Can these numbers be? Claims against each other.")
@scenario_options
@click.option(
    "--claim", "claims", multiple=True, metavar="NAME=VALUE", help="What is stated, as in mfu=45%. Repeatable."
)
@click.option(
    "--convention", default="mfu", show_default=True, metavar="NAME",
    help="How the claimed MFU counts FLOPs, as in 6n, palm, causal, megatron-72 (docs/audit.md lists all).",
)  # fmt: skip
@plot_option("Draw MFU by convention with the claim.")
def audit(claims: tuple[str, ...], convention: str, plot: str | None, **asked: Any) -> int:
    """Check claims about a run against each other, the model, the machines and what was ever measured."""
    if not claims:
        raise click.UsageError("nothing is claimed: say --claim NAME=VALUE, as in --claim mfu=45%")
    drawn = drawable(plot)
    from shardmeter.render import audit as page
    from shardmeter.study.audit import audit as answer_to

    options = {name: asked[name] for name in SHORTCUTS if asked[name] is not None}
    answer = answer_to(
        asked["scenario"], claims, convention=convention, overrides=asked["overrides"], catalog=rows(asked["catalogs"]),
        options=options, settle=_settled,
    ).to_dict()  # fmt: skip
    if drawn and plot is not None:
        draw(page.figures(answer), plot)
    warn(answer["warnings"])
    write(page.document(answer), asked["output"])
    return 0 if answer["consistent"] else 1


def _settled(made: Any) -> Any:
    """The best plan of what a scenario leaves open."""
    return made if made.choices is None else planned(made)
