"""`shardmeter predict`: how fast, does it fit, how long, how much."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import warn, write

EPILOG = """Examples:

\b
  shardmeter predict examples/llama-8b-64xh100.yaml
  shardmeter predict --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --plan fsdp --tokens 1T
  shardmeter predict examples/llama-8b-64xh100.yaml --set plan.micro_batch=2 --format json
  shardmeter predict --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --tokens 1T --price '$2.10/gpu/h'
  shardmeter predict --model llama-3.1-8b --instance 8xp5.48xlarge --tokens 1T

Exit code 1 when the plan does not fit; the figures are given all the same."""


@click.command(epilog=EPILOG)
@scenario_options
def predict(**asked: Any) -> int:
    """Predict speed, memory, duration and cost of SCENARIO, with the terms they are made of."""
    scenario = resolve(asked)
    from shardmeter.render import prediction
    from shardmeter.render.heading import heading
    from shardmeter.study.predict import predict as answer_to

    answer = answer_to(scenario).to_dict()
    warn(answer.get("warnings", ()))
    write(prediction.document(answer, heading(scenario)), asked["output"])
    return 0 if answer["fits"] else 1
