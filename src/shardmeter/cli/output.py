"""Writes a document: the answer to standard output, what else is to be said to standard error."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from shardmeter.core.errors import printable

if TYPE_CHECKING:
    from shardmeter.render import Document

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class PipeClosedError(Exception):
    """Whoever read our output has gone; nothing is left to say."""


class UnwritableError(Exception):
    """Standard output takes nothing: a full disk, a descriptor that is not for writing."""


@contextmanager
def written() -> Iterator[None]:
    """Raise PipeClosedError or UnwritableError for what goes wrong with standard output inside, and nothing else."""
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosedError from error
    except OSError as error:
        raise UnwritableError(error.strerror or "no reason is given") from error


def prepare() -> None:
    """Make both streams usable whatever they are: closed, or unable to show some characters; a width that is none is dropped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  (lives as long as the process)
        _tolerate(getattr(sys, name))
    columns = os.environ.get("COLUMNS", "")
    if columns and not (columns.isascii() and columns.isdigit() and len(columns) < 5 and int(columns) >= NARROWEST):
        del os.environ["COLUMNS"]


NARROWEST = 20
"""Columns that a terminal has at least; a smaller `COLUMNS` is taken for a mistake."""


def silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain while it closes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except (OSError, ValueError, AttributeError):
        return
    finally:
        os.close(nowhere)


def write(document: Document, output: str) -> None:
    """Write a document as `table`, `json` or `csv`, the last two in UTF-8 whatever the terminal shows: programs read them. Raises
    PipeClosedError when nobody reads it, UnwritableError when it cannot be written."""
    text = _text(document, output)
    if output != "table" and hasattr(sys.stdout, "reconfigure"):
        with suppress(OSError, ValueError):
            sys.stdout.reconfigure(encoding="utf-8")
    with written():
        sys.stdout.write(text)
        sys.stdout.flush()


def _text(document: Document, output: str) -> str:
    if output == "json":
        from shardmeter.render import json_text

        return json_text.text(document)
    if output == "csv":
        from shardmeter.render import csv_text

        return csv_text.text(document)
    from shardmeter.render import terminal

    page = _Page(sys.stdout)
    terminal.write(document, page)
    return _ESCAPES.sub("", page.getvalue()) if os.environ.get("NO_COLOR") else page.getvalue()


class _Page(io.StringIO):
    """A text that says of itself what the stream says that it is written for."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding or "ascii"

    def isatty(self) -> bool:
        """Whether a person looks at the stream."""
        return self._stream.isatty()


def say(text: str) -> None:
    """Write a line to standard error; where that takes nothing, nobody is told."""
    try:
        sys.stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        silence(sys.stderr)


def warn(warnings: Iterable[str]) -> None:
    """Say warnings on standard error."""
    for warning in warnings:
        say(f"warning: {warning}")


def _tolerate(stream: Any) -> None:
    """A terminal that cannot show a character gets a question mark, not an exception."""
    if hasattr(stream, "reconfigure"):
        with suppress(OSError, ValueError):
            stream.reconfigure(errors="replace")
