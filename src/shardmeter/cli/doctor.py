"""`shardmeter doctor`: what would explain a measured number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import SHORTCUTS, resolve, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option

if TYPE_CHECKING:
    from shardmeter.specs import Scenario

EPILOG = """Examples:

\b
  shardmeter doctor examples/llama-8b-64xh100.yaml --measured tokens_per_s_per_gpu=2100
  shardmeter doctor examples/llama-8b-64xh100.yaml --measured step_time=8.1s --measured memory=34GiB
  shardmeter doctor run.yaml --measured duration='13.5 h for 500 steps' --measured mfu=45.5% --plot why.svg
  shardmeter doctor two-nodes.yaml --measured step_time=8.68s --against one-node.yaml --measured-b step_time=2.46s
  shardmeter doctor two-nodes.yaml --measured its_per_s=0.25 --set-b fleet.islands.0.nodes=1 --measured-b its_per_s=2

Measured: step_time, its_per_s, tokens_per_s (_per_gpu, _per_node, _per_island), samples_per_s (_per_gpu), mfu, hfu,
tflops_per_gpu, compute_utilization, forward, backward, duration ('3 h for 500 steps', tokens, samples or '3 epochs of 52k samples'),
memory (as nvidia-smi shows it), memory_reserved, memory_allocated. Times and sizes with units.

Exit code 1 when no single cause explains the number; pairs of causes are then given."""


@click.command(epilog=EPILOG, short_help="Why is my run slower than predicted?")
@scenario_options
@click.option(
    "--measured",
    "numbers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A number that was measured of SCENARIO. Repeatable.",
)
@click.option("--against", metavar="OTHER", help="Another scenario that was measured: what both share is fixed by it.")
@click.option(
    "--set-b",
    "overrides_b",
    multiple=True,
    metavar="a.b=VALUE",
    help="Override one field of the other scenario only; without --against the other is SCENARIO with this. Repeatable.",
)
@click.option(
    "--measured-b",
    "numbers_b",
    multiple=True,
    metavar="NAME=VALUE",
    help="The same figure of the other scenario. Repeatable.",
)
@plot_option("Draw what each cause predicts beside what was measured.")
def doctor(
    numbers: tuple[str, ...],
    against: str | None,
    overrides_b: tuple[str, ...],
    numbers_b: tuple[str, ...],
    plot: str | None,
    **asked: Any,
) -> int:
    """Run the model backwards: which single causes would explain what was measured of SCENARIO, and what to measure next."""
    drawn, compared = drawable(plot), against is not None or bool(overrides_b)
    if not numbers:
        raise click.UsageError("nothing was measured: say --measured tokens_per_s_per_gpu=1786, or another number")
    if compared != bool(numbers_b):
        raise click.UsageError(
            "a comparison needs the other scenario (--against or --set-b) and what was measured of it (--measured-b)"
        )
    from shardmeter.cli.progress import progress
    from shardmeter.render import doctor as page
    from shardmeter.render.heading import heading
    from shardmeter.study.doctor import doctor as diagnosis
    from shardmeter.study.doctor import measured

    given, theirs = measured(numbers), measured(numbers_b, "--measured-b") if compared else ()
    scenario = resolve(asked)
    other = _other(asked, against, overrides_b) if compared else None
    with progress("asking every cause"):
        found = diagnosis(scenario, given, other, theirs)
    answer = found.to_dict()
    if drawn:
        draw(page.figures(answer), str(plot))
    warn(answer["warnings"])
    write(page.document(answer, heading(found.scenario)), asked["output"])
    return 0 if found.explained else 1


def _other(asked: dict[str, Any], against: str | None, overrides_b: tuple[str, ...]) -> Scenario:
    """The other scenario: a file with what --set says of both, or SCENARIO again; in either case with --set-b."""
    own = {**asked, "overrides": (*asked["overrides"], *overrides_b)}
    if against is not None:
        own |= {"scenario": against, **dict.fromkeys(SHORTCUTS)}
    return resolve(own)
