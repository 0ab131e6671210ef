"""`shardmeter catalog`: what can be named in a scenario."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import catalog_option, format_option, rows
from shardmeter.cli.output import write

KINDS = (
    "accelerators", "fabrics", "instances", "models", "stacks", "regions", "links", "pairs", "egress", "grids", "storage",
    "laws", "critical_batches", "failures",
)  # fmt: skip

EPILOG = """Examples:

\b
  shardmeter catalog accelerators
  shardmeter catalog models llama-3.1-8b
  shardmeter catalog regions gcp:europe-west4
  shardmeter catalog pairs aws:us-east-1/aws:us-west-2
  shardmeter catalog stacks --format json"""


@click.command(epilog=EPILOG, short_help="What can be named: accelerators, models, stacks, prices …")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", required=False)
@catalog_option
@format_option
def catalog(kind: str, name: str | None, catalogs: tuple[str, ...], output: str) -> int:
    """List the rows of KIND, or show the row NAME with its sources; of a model, its parameters are counted.

    links are kinds of lines, pairs what was measured between two regions, egress what traffic costs, laws what is
    known of the loss of so many parameters and tokens, failures how often machines fail or are taken away."""
    from shardmeter.render import listing
    from shardmeter.scenario.catalog import load_catalog
    from shardmeter.scenario.tables import singular

    found = rows(catalogs) or load_catalog()
    if name is None:
        write(listing.several(kind, found.rows(kind)), output)
        return 0
    record = getattr(found, singular(kind))(name)
    row = next(row for row in found.rows(kind) if row["name"] == record.name)
    write(listing.one(kind, row, record, found.where(kind, name), _counted(kind, record)), output)
    return 0


def _counted(kind: str, record: Any) -> dict[str, int]:
    """Parameters of a model as its family counts them, prediction modules apart as publishers have it; nothing for other kinds."""
    if kind != "models":
        return {}
    from shardmeter.families import active_parameters, family, parameters

    body = parameters(record)
    return {
        "parameters": int(body),
        "active_parameters": int(active_parameters(record)),
        "prediction_parameters": int(family(record.family).parameters(record) - body),
    }
