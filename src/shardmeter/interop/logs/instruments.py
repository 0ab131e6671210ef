"""What measures a machine beside a run: benchmarks of collectives, the monitor of the accelerators, the scheduler. One file a format."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from shardmeter.core.errors import BadData, UnknownName
from shardmeter.core.files import file_name, read_text
from shardmeter.interop.logs import gloo, nccl_tests, nvidia_smi, sacct, uncollected

FORMATS: dict[str, ModuleType] = {one.NAME: one for one in (nccl_tests, gloo, nvidia_smi, sacct)}
"""A format has NAME, TITLE, `recognises(text)` and `read(text, name)`, which raises nothing for what a text holds."""
LARGEST_FILE = 512_000_000
"""Bytes of the largest file that is read."""
Account: TypeAlias = nccl_tests.BenchmarkAccount | nvidia_smi.PowerAccount | sacct.JobsAccount


def read(source: str | Path, format: str | None = None) -> Account:  # noqa: A002  (as the option is called)
    """What an instrument wrote: a file, or its text (which has line breaks). Without a format it is recognised by what it holds.

    Raises UnknownName for a format that is not known, BadData for a file that cannot be read and for one that no format recognises.
    """
    if format is not None and format not in FORMATS:
        raise UnknownName("format of measurements", format, FORMATS)
    name, text = _text(source)
    found = FORMATS[format] if format is not None else recognised(text)
    if found is None:
        known = "; ".join(one.TITLE for one in FORMATS.values())
        raise BadData(f"{name or 'the text'}: nothing that is measured beside a run is recognised in it: {known}")
    with uncollected():
        account: Account = found.read(text, name)
    return account


def recognised(text: str) -> ModuleType | None:
    """The format of a text; None where no format says that it is its own."""
    return next((one for one in FORMATS.values() if one.recognises(text)), None)


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return "", source
    path = Path(source)
    return file_name(path.name), read_text(path, "an output of benchmarks or monitors", LARGEST_FILE, BadData)
