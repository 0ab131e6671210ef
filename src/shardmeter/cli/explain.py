"""`shardmeter explain`: the same prediction with every formula call shown."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.core.errors import ShardMeterError

EPILOG = """Examples:

\b
  shardmeter explain examples/llama-8b-64xh100.yaml
  shardmeter explain examples/llama-8b-64xh100.yaml --term gemm_time
  shardmeter explain --model llama-3.1-8b --gpus 8xH100-SXM5-80GB --format csv

Exit code 1 when the plan does not fit, as `predict` has it."""


@click.command(epilog=EPILOG)
@scenario_options
@click.option(
    "--term", metavar="TEXT", default="", help="Only formulas that have this text in their name or arguments."
)
def explain(term: str, **asked: Any) -> int:
    """Show how the prediction for SCENARIO comes about: each formula call, its numbers and its source."""
    scenario = resolve(asked)
    from shardmeter.render import explanation
    from shardmeter.render.heading import heading
    from shardmeter.study.explain import explain as explanation_of

    found = explanation_of(scenario)
    answer = found.prediction.to_dict()
    warn(answer.get("warnings", ()))
    page = explanation.document(answer, found.steps, heading(scenario), term)
    if not page.flat:
        names = ", ".join(sorted({step.formula for step in found.steps}))
        raise ShardMeterError(f"no formula of this run has {term!r} in its name or arguments; there are: {names}")
    write(page, asked["output"])
    return 0 if answer["fits"] else 1
