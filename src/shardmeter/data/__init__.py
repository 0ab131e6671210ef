"""The rows that ship with the package, and the only way to reach them."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import IO

DATA_DATE = "2026-11-29"
"""The day the rows were last brought up to date: the `data_date` of every JSON answer."""


def file(name: str) -> Traversable:
    """One shipped file, by its name below `shardmeter/data`."""
    return resources.files(__name__).joinpath(name)


def open_text(name: str) -> IO[str]:
    """Open one shipped file for reading, as UTF-8."""
    return file(name).open(encoding="utf-8")


def read_text(name: str) -> str:
    """The whole text of one shipped file."""
    return file(name).read_text(encoding="utf-8")
