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

\b
  shardmeter predict --model llama-3.1-8b --instance 8xp5.48xlarge --tokens 1T --deadline '30 d' --budget '$2M'

Exit code 1 when the plan does not fit, or the run misses its deadline or its budget; the figures are given all the same."""


@click.command(epilog=EPILOG, short_help="How fast, does it fit, how long, for how much?")
@scenario_options
@click.option("--deadline", metavar="TIME", help="Is the run done by then, as in '30 d'? Needs the run's length.")
@click.option(
    "--budget", metavar="USD", help="Does it cost no more, as in '$2M'? Needs the run's length and every price."
)
def predict(deadline: str | None, budget: str | None, **asked: Any) -> int:
    """Predict speed, memory, duration and cost of SCENARIO, with the terms they are made of."""
    limits = (("deadline", deadline), ("budget", budget))
    asked["overrides"] = (*(f"run.{name}={said}" for name, said in limits if said is not None), *asked["overrides"])
    scenario = resolve(asked)
    from shardmeter.render import prediction
    from shardmeter.render.heading import heading
    from shardmeter.study.predict import predict as answer_to

    answer = answer_to(scenario).to_dict()
    warn(answer.get("warnings", ()))
    write(prediction.document(answer, heading(scenario)), asked["output"])
    return 0 if prediction.is_yes(answer) else 1
