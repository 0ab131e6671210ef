"""`shardmeter validate`: the model against measured runs."""

from __future__ import annotations

import click

from shardmeter.cli.options import catalog_option, format_option, rows
from shardmeter.cli.output import warn, write

EPILOG = """Examples:

\b
  shardmeter validate
  shardmeter validate my-runs.csv --format json
  shardmeter validate --bars bars.yaml

A bars file holds `path.in.the.json: {max: NUMBER}` or `{min: NUMBER}`; exit code 1 when one is missed."""


@click.command(epilog=EPILOG, short_help="How far off are predictions from measured runs?")
@click.argument("file", required=False)
@click.option("--bars", metavar="FILE", help="Limits that the result must keep.")
@catalog_option
@format_option
def validate(file: str | None, bars: str | None, catalogs: tuple[str, ...], output: str) -> int:
    """Compare predictions with the measured runs in FILE (left out: the runs that ship with the package)."""
    from shardmeter.cli.progress import progress
    from shardmeter.render import validation
    from shardmeter.study.validate import validate as compare

    with progress("validating"):
        report = compare(file, bars=bars, catalog=rows(catalogs))
    data = report.to_dict()
    warn(data.get("warnings", ()))
    write(validation.document(data, report.bars_missed, f"Validation against {file or 'the shipped runs'}"), output)
    return 1 if report.bars_missed else 0
