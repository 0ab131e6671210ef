"""`shardmeter front`: which parts of a fleet are the best for days and dollars together."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import opened, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import counter, took

EPILOG = """Examples:

\b
  shardmeter front examples/three-clouds-money.yaml --deadline '10 d'
  shardmeter front examples/spot-fleet.yaml --budget '$50k' --plot front.svg
  shardmeter front examples/home-workers.yaml --set 'fleet.islands.0.price=$0.30/gpu/h'
  shardmeter front examples/three-clouds-money.yaml --set plan.sync.sync_every=50,100,200 --format json

Every island is left out, taken in part (nodes: [2, 8] or nodes: 1..8 of an island say which numbers; left out, all up to 4, else halves) or
taken whole; spot or on demand where both prices are known. A plan that names its sharding is kept, any other is searched; plan.sync is open
where several values are said. Exit code 1 when no fleet fits, or none keeps the deadline or the budget."""


@click.command(epilog=EPILOG, short_help="Which machines, for how many days and dollars?")
@scenario_options
@click.option("--deadline", metavar="TIME", help="Longest run that is wanted, as in '30 d'.")
@click.option("--budget", metavar="USD", help="Most that the run may cost, as in '$50k'.")
@plot_option("Draw cost against days.")
def front(deadline: str | None, budget: str | None, **asked: Any) -> int:
    """Find the fleets out of the islands of SCENARIO that no other one beats in both wall clock and dollars."""
    drawn = drawable(asked["plot"])
    limits = (("deadline", deadline), ("budget", budget))
    asked["overrides"] = (*(f"run.{name}={said}" for name, said in limits if said is not None), *asked["overrides"])
    document, rows = opened(asked)
    from shardmeter.render import front as page
    from shardmeter.study.front.front import front as answer_to

    with counter("front") as report:
        found = answer_to(document, rows, progress=report)
    answer = found.to_dict()
    took(answer["space"], "fleets")
    if drawn:
        draw(page.figures(answer), asked["plot"])
    warn(answer["warnings"])
    write(page.document(answer, page.title(found.fleets.base)), asked["output"])
    return 0 if found.met else 1
