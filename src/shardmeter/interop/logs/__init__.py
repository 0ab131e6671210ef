"""What runs print, as measured numbers: one file a format, found by this package. The file of a training log has

* `NAME`: the word of `--from`; `TITLE`: what it is, one line;
* `CLUES`: words that are all in such a log; `SIGN`: what only such a log has (searched for where the clues are);
* `reading(log) -> Reading`: its reports, and what its head says. It raises nothing: what cannot be read is None or left out.

What is common to all is done once: `lines` takes away colours and labels of ranks, `selection` finds restarts, warm-up and pauses,
`contradictions` compares numbers that cannot all be right, `account` puts it together.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from shardmeter.core.errors import BadData, UnknownName, shown
from shardmeter.core.files import at_home, file_name
from shardmeter.interop.found import found_in
from shardmeter.interop.logs.account import account
from shardmeter.interop.logs.lines import opened, plain
from shardmeter.interop.logs.record import LogAccount

LARGEST = 2**31
"""Bytes of a file that is read."""

SEARCHED = 1_000_000
"""Characters of the beginning, the middle and the end that signs of formats are searched in."""


@cache
def formats() -> dict[str, ModuleType]:
    """Every format of training logs by its name."""
    return found_in(__name__, __path__, "reading")


def recognised(text: str) -> tuple[str, ...]:
    """The formats whose signs a text has; empty where it is no training log that is known."""
    return _signs(plain(text))


def read(source: str | Path, format: str | None = None, *, known: Mapping[str, str] | None = None) -> LogAccount:  # noqa: A002  (as the option is called)
    """A training log: a file, or its text (which has line breaks). Without a format it is recognised by what it prints.

    `known` is what is known of the run beside its log (`gpus`, `run.seq_len`, `run.global_batch`): it is taken where the log's head is silent.
    Raises UnknownName for a format that is not known, BadData for a file that cannot be read and for a text that no format recognises.
    """
    if format is not None and format not in formats():
        raise UnknownName("format of a log", format, formats())
    name, text = _text(source)
    with uncollected():
        return _read(text, name, format, known or {})


def _read(text: str, name: str, format_: str | None, known: Mapping[str, str]) -> LogAccount:
    log = opened(text, name)
    names = (format_,) if format_ is not None else _signs(log.text)
    if not names:
        raise BadData(
            f"{name or 'the text'}: no report of a training step is in it, of any format that is known: {', '.join(formats())}"
        )
    accounts = [account(formats()[one].reading(log), log, one, known) for one in names]
    return max(accounts, key=lambda one: (one.step_time is not None, one.used, one.steps))


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles: what is read of lines has none, and it would go through all of it again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


read_log = read
"""By its name among the public ones."""


def is_log(source: str | Path, format: str | None = None) -> bool:  # noqa: A002  (as `read`)
    """Whether `read` would take it: by the format that is named, else by what the file prints."""
    if format is not None:
        return format in formats()
    try:
        return bool(_signs(plain(_text(source, _searched)[1])))
    except BadData:
        return False


def _signs(text: str) -> tuple[str, ...]:
    middle = len(text) // 2
    text = text if len(text) <= 3 * SEARCHED else text[:SEARCHED] + text[middle : middle + SEARCHED] + text[-SEARCHED:]
    return tuple(
        name
        for name, module in formats().items()
        if all(clue in text for clue in module.CLUES) and module.SIGN.search(text) is not None
    )


def _text(source: str | Path, bytes_of: Callable[[Path], bytes] = Path.read_bytes) -> tuple[str, str]:
    """The name of a log and its text, of the bytes that are taken; those that are no UTF-8 are replaced."""
    if isinstance(source, str) and "\n" in source:
        return "", source
    try:
        path = at_home(Path(source))
        if path.exists() and not path.is_file():
            raise BadData(f"{file_name(source)}: is no file")
        if (size := path.stat().st_size) > LARGEST:
            raise BadData(f"{file_name(source)}: {size:,} bytes are more than a log that is read ({LARGEST:,})")
        raw = bytes_of(path)
    except OSError as error:
        raise BadData(f"{file_name(source)}: cannot be read ({error.strerror or 'no reason is given'})") from None
    except ValueError:
        raise BadData(f"{shown(str(source))}: no file can have this name") from None
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return path.name, raw.decode(encoding, errors="replace")


def _searched(path: Path) -> bytes:
    """What signs are searched in: a large file is not read for that."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size <= 3 * SEARCHED:
            return file.read()
        found = []
        for start in (0, size // 4 * 2, (size - SEARCHED) // 2 * 2):  # even: UTF-16 has two bytes a character
            file.seek(start)
            found.append(file.read(SEARCHED))
    return b"".join(found)
