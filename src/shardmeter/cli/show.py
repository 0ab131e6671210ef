"""`shardmeter show`: what is read from a Hugging Face config.json."""

from __future__ import annotations

import click

from shardmeter.cli.options import format_option
from shardmeter.cli.output import warn, write

EPILOG = """Examples:

\b
  shardmeter show ./config.json
  shardmeter show ~/checkpoints/Qwen3-30B-A3B
  shardmeter show ./config.json --format json

Exit code 2 when the file is damaged or describes no model that is built; every fault is listed."""


@click.command(epilog=EPILOG, short_help="What is understood of a Hugging Face config.json?")
@click.argument("file")
@format_option
def show(file: str, output: str) -> int:
    """Show what is read from FILE, a Hugging Face config.json or a folder that holds one: the model with its parameters, what was
    understood, assumed and ignored."""
    from pathlib import Path

    from shardmeter.render import configuration
    from shardmeter.scenario.hugging_face.reading import open_model

    found = open_model(Path(file))
    warn(found.report.warnings)
    write(configuration.document(found.answer()), output)
    return 0
