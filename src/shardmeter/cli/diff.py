"""`shardmeter diff`: what two scenarios say differently, and what that does to every figure."""

from __future__ import annotations

import click

from shardmeter.cli.options import catalog_option, format_option, planned, rows
from shardmeter.cli.output import warn, write

EPILOG = """Examples:

\b
  shardmeter diff examples/llama-8b-64xh100.yaml --set-b plan.tp=4
  shardmeter diff examples/unreliable-every-step.yaml examples/unreliable-diloco.yaml
  shardmeter diff a.yaml b.yaml --set run.tokens=1T --format json

Every difference is B - A. B left out is A with what --set-b says. Exit code 0 also where nothing differs, and where one of the
two does not fit."""


@click.command(epilog=EPILOG, short_help="Why does one scenario come out other than another?")
@click.argument("a")
@click.argument("b", required=False)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="a.b=VALUE",
    help="Override one field of both scenarios, as in run.tokens=1T. Repeatable.",
)
@click.option(
    "--set-b",
    "overrides_b",
    multiple=True,
    metavar="a.b=VALUE",
    help="Override one field of B only, as in plan.tp=4. Repeatable.",
)
@catalog_option
@format_option
def diff(
    a: str,
    b: str | None,
    overrides: tuple[str, ...],
    overrides_b: tuple[str, ...],
    catalogs: tuple[str, ...],
    output: str,
) -> int:
    """Explain the difference of the scenarios A and B: inputs, figures, terms, and which input makes how much of it."""
    if b is None and not overrides_b:
        raise click.UsageError("nothing to compare A with: name B, or say what is different with --set-b")
    from shardmeter.render import difference as page
    from shardmeter.render.heading import heading
    from shardmeter.study.diff import difference, sides

    read = sides(a, a if b is None else b, overrides, overrides_b, catalog=rows(catalogs), settle=planned)
    found = difference(*read)
    answer = found.to_dict()
    warn(answer["warnings"])
    titles = (heading(found.a.scenario), heading(found.b.scenario))
    write(page.document(answer, titles), output)
    return 0
