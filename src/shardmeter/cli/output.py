"""Writes a document: the answer to standard output, warnings to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shardmeter.render import Document


class PipeClosedError(Exception):
    """Whoever read our output has gone; nothing is left to say."""


def write(document: Document, output: str) -> None:
    """Write a document as `table`, `json` or `csv`. Raises PipeClosedError when nobody reads it."""
    _tolerate(sys.stdout)
    try:
        _write(document, output)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise PipeClosedError from error


def _write(document: Document, output: str) -> None:
    if output == "json":
        from shardmeter.render import json_text

        sys.stdout.write(json_text.text(document))
    elif output == "csv":
        from shardmeter.render import csv_text

        sys.stdout.write(csv_text.text(document))
    else:
        from shardmeter.render import terminal

        terminal.write(document, sys.stdout)


def warn(warnings: Iterable[str]) -> None:
    """Say warnings on standard error."""
    _tolerate(sys.stderr)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _tolerate(stream: object) -> None:
    """A terminal that cannot show a character gets a question mark, not an exception."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
