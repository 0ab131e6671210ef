"""`shardmeter plan`: out of all legal plans, the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.interrupts import INTERRUPTED, stoppable
from shardmeter.cli.options import command_line, resolve, scenario_options
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import plot_option
from shardmeter.cli.progress import counter, took
from shardmeter.cli.saving import savable, save_plan
from shardmeter.cli.scale_across import plan_across, refuse_misplaced

if TYPE_CHECKING:
    from shardmeter.specs import Choices, Scenario
    from shardmeter.study.planning.plans import Ranked

EPILOG = """Examples:

\b
  shardmeter plan --model llama-3.1-8b --gpus 64xH100-SXM5-80GB
  shardmeter plan --model llama-3.1-70b --gpus 512xH100-SXM5-80GB --set plan.tp=8 --set plan.pp=1..8:x2 --global-batch 1024
  shardmeter plan examples/llama-70b-tp8-pp4.yaml --top 5
  shardmeter plan examples/llama-70b-tp8-pp4.yaml --save best.yaml && shardmeter export best.yaml --to torchtitan --for 0.2.2
  shardmeter plan --model llama-3.1-8b --gpus 64xH100-SXM5-80GB,256xH100-SXM5-80GB --tokens 1T --price '$2/gpu/h' --objective time,cost
  shardmeter plan islands.yaml --set fleet.use=any --set plan.sync.method=diloco,streaming_diloco
  shardmeter plan --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --tokens 1T --price '$2/gpu/h' --deadline '30 d' --budget '$100,000'
  shardmeter plan examples/scale-across.yaml --scale-across --plot map.png
  shardmeter plan examples/scale-across.yaml --scale-across --save joint.yaml && shardmeter predict joint.yaml
  shardmeter plan --scale-across --model llama-3.1-405b --gpus 32768xH100-SXM5-80GB --buildings 4 --over distance='10 km..2000 km:log5'

What is left out is chosen. A plan field pins (--set plan.tp=8), a list or a range narrows (plan.tp=1,2,4; plan.pp=1..8:x2), any
opens what is not offered by itself (plan.schedule=any, plan.offload=any, plan.precision=any). All plans are compared at one
global batch. Of several islands each has its own plan, plan.sync and fleet.use say what else is open (plan.sync.method=any,
plan.sync.bits=4,8, fleet.use=any). A SCENARIO that names a whole plan has it placed among the others. The search is exhaustive: the first plan is
optimal in its space. --scale-across asks another question: which axis crosses buildings, with which schedule, over which network.
Exit code 1 when no plan fits, or none within the deadline and the budget."""


@click.command(epilog=EPILOG, short_help="Which sharding, micro-batch and recompute are best?")
@scenario_options
@click.option(
    "--objective", metavar="WORD[,WORD…]",
    help="time, cost, throughput or energy; several give the front of all, ordered by the first. Left out: time.",
)  # fmt: skip
@click.option("--deadline", metavar="TIME", help="Longest run that counts, as in '30 d'; needs the run's length.")
@click.option(
    "--budget", metavar="USD", help="Most that a run may cost, as in '$2M'; needs the run's length and a price."
)
@click.option("--top", metavar="N", type=click.IntRange(1, 1000), default=10, show_default=True, help="Plans to list.")
@click.option(
    "--processes", metavar="N", type=click.IntRange(1, 256), help="Processes; left out, 2 where the search is long."
)
@click.option(
    "--scale-across", is_flag=True,
    help="Of several buildings: choose placement, schedule and network together, beside the production default.",
)  # fmt: skip
@click.option(
    "--over", multiple=True, metavar="AXIS=VALUES",
    help="With --scale-across: oversubscription=1,2,4,8, distance='10 km,400 km', buildings, gpus or model. Repeatable; left out, the "
    "scenario's network and a map of oversubscription and distance.",
)  # fmt: skip
@click.option(
    "--buildings", metavar="N", type=click.IntRange(2, 64), help="With --scale-across: divide the GPUs evenly into N buildings."
)  # fmt: skip
@click.option(
    "--save", metavar="FILE", help="Write the best plan as a scenario, for predict FILE and export FILE. A .yaml or .json."
)  # fmt: skip
@plot_option("With --scale-across: draw the map of placements and the speed-ups.")
def plan(
    objective: str | None,
    deadline: str | None,
    budget: str | None,
    top: int,
    processes: int | None,
    scale_across: bool,
    **asked: Any,
) -> int:
    """Find the best plans for SCENARIO: degrees, micro-batch, recompute, schedule, sharding and what else is left open."""
    refuse_misplaced(scale_across)
    if scale_across:
        return plan_across(asked)
    savable(asked["save"])
    limits = (("objective", objective), ("deadline", deadline), ("budget", budget))
    asked["overrides"] = (*(f"run.{name}={said}" for name, said in limits if said is not None), *asked["overrides"])
    scenario = resolve(asked, planning=True)
    if scenario.choices is not None and scenario.choices.joint is not None:
        return _of_fleet(scenario, asked, top, processes)
    from shardmeter.render import planning
    from shardmeter.study.planning.plans import plan as plans_of

    with counter("points", shortens=True) as report, stoppable() as stop:
        found = plans_of(scenario, top=top, processes=processes, progress=report, stop=stop)
    answer = found.to_dict()
    took(answer["space"])
    warn(answer["warnings"])
    if found.stopped:
        say(f"interrupted: the best of the first {found.tally.evaluated:,} plans is shown")
    save_plan(None if found.best is None else found.best.document, asked)
    command = "" if found.best is None else command_line("predict", *_same(asked, found.best, found.space.choices))
    write(planning.document(answer, planning.title(scenario), command=command), asked["output"])
    return INTERRUPTED if found.stopped else 0 if found.ranked else 1


def _of_fleet(scenario: Scenario, asked: dict[str, Any], top: int, processes: int | None) -> int:
    """The answer for several islands."""
    from shardmeter.render import planning_fleet
    from shardmeter.study.planning.fleet_plans import plan_fleet

    with counter("points", shortens=True) as report, stoppable() as stop:
        found = plan_fleet(scenario, top=top, processes=processes, progress=report, stop=stop)
    answer = found.to_dict()
    took(answer["space"])
    warn(answer["warnings"])
    if found.stopped:
        say("interrupted: the best of what was searched is shown")
    save_plan(found.ranked[0].document if found.ranked else None, asked)
    write(planning_fleet.document(answer, planning_fleet.title(scenario)), asked["output"])
    return INTERRUPTED if found.stopped else 0 if found.ranked else 1


def _same(asked: dict[str, Any], best: Ranked, choices: Choices) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The question without what only the planner is asked, and what it has chosen; and the size that it has chosen, if there was a
    choice."""
    same = {**asked, **dict.fromkeys(("plan", "seq", "micro_batch", "global_batch"))}
    left, more = list(_CHOSEN), []
    if len(choices.islands) > 1:
        fleet, island = best.document.get("fleet"), best.scenario.fleet.islands[0]
        said = best.document if fleet is None else fleet["islands"][0]
        size = next(name for name in ("nodes", "gpus") if name in said)
        left += ["gpus=", f"fleet.islands.0.{size}"]
        if asked["gpus"] is not None or fleet is None:
            same["gpus"] = f"{float(island.gpus):.0f}x{island.accelerator.name}"
        else:
            more = [f"fleet.islands.0.{size}={said[size]}"]
    same["overrides"] = tuple(text for text in asked["overrides"] if not text.strip().startswith(tuple(left)))
    return same, tuple(more)


_CHOSEN = ("plan.", "run.objective", "run.deadline", "run.budget", "run.seq_len", "run.global_batch")
