"""A user's files. Read whole: only regular ones, only up to a size, only UTF-8 text. Written whole: what has its name is the old file or
the new one, whatever comes between. Whatever else it is, one sentence says."""

from __future__ import annotations

import csv
import errno
import io
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from shardmeter.core.errors import ShardMeterError, Unavailable, cut, nearest, printable

REFUSED = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
    errno.ENXIO,
})  # fmt: skip
"""What a machine says that takes no more, or not from us: no fault of the name that was given."""

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


LONGEST_PATH, LONGEST_STEP = 4096, 255
"""Characters of the longest path, and of one name inside it, that file systems write."""


_CLOSED = False


def close_files() -> None:
    """From here on this process reads no file that a scenario names: what comes from elsewhere names parts of the catalog, or writes them
    out. For the whole process and for good; catalogs that are to be used are read before."""
    global _CLOSED
    _CLOSED = True


def are_closed() -> bool:
    """Whether no file may be named in this process."""
    return _CLOSED


def refuse_closed(path: object, error: type[ShardMeterError]) -> None:
    """Raise `error` where no file may be named; the file system is not asked."""
    if _CLOSED:
        raise error(
            f"{file_name(path)}: names a file, which is not read here; name a part of the catalog, or write it out"
        )


def file_name(path: object) -> str:
    """A path as messages show it: whole, so that it can be found, unless it is too long to be one; only plain characters."""
    text = str(path)
    is_path = len(text) <= LONGEST_PATH and all(len(step) <= LONGEST_STEP for step in Path(text).parts)
    return printable(text if is_path else cut(text))


def at_home(path: Path) -> Path:
    """A path whose `~` is written out; as it stands where no such user, or no home, is known, and where no file may be named."""
    if _CLOSED:
        return path
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def read_text(path: Path, what: str, most: int, error: type[ShardMeterError], suffixes: tuple[str, ...] = ()) -> str:
    """The text of a file that should hold `what` and at most `most` bytes. Raises `error` with one sentence.

    Where the file is missing or a folder, files of the `suffixes` near it are named.
    """
    refuse_closed(path, error)
    name = file_name(path)
    raw = _bytes(path, name, what, most, error, suffixes)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(f"{name}: binary, or not UTF-8 text; {what} is plain text") from None
    if "\0" in text:
        raise error(f"{name}: binary (control characters inside); {what} is plain text")
    return text


def csv_lines(text: str, name: str, error: type[ShardMeterError]) -> list[tuple[int, list[str]]]:
    """(line number, cells without blanks around them) of a table in CSV, the header first, empty lines left out; lines end as any system
    ends them. Raises `error` with the line of what is no CSV: a cell beyond the reader's limit."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as trouble:
        raise error(f"{name}:{reader.line_num}: not readable as CSV: {trouble}") from None
    return [(number, cells) for number, cells in lines if any(cells)]


def _bytes(
    path: Path, name: str, what: str, most: int, error: type[ShardMeterError], suffixes: tuple[str, ...]
) -> bytes:
    try:
        why = _no_file(path, what, suffixes)
        if why:
            raise error(f"{name}: {why}")
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
            size = max(len(raw), os.fstat(stream.fileno()).st_size)
    except OSError as trouble:
        raise error(f"{name}: cannot be read ({trouble.strerror or 'no reason is given'})") from None
    except ValueError:  # a name with a null byte, or one that the file system cannot write
        raise error(f"{name}: no file can have this name") from None
    if len(raw) > most:
        raise error(f"{name}: {size} bytes is no {what.removeprefix('a ')}; at most {most}")
    return raw


def _no_file(path: Path, what: str, suffixes: tuple[str, ...]) -> str:
    """Why a path is no regular file; empty if it is one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            return f"is a link to a file that does not exist ({file_name(path.readlink())})"
        return f"no such file{_beside(path, suffixes)}"
    except NotADirectoryError:
        return "no such file (a part of its path is no folder)"
    if stat.S_ISREG(mode):
        return ""
    kind = next((says for test, says in _KINDS if test(mode)), "is no regular file")
    inside = _inside(path, suffixes) if stat.S_ISDIR(mode) else []
    return f"{kind}, not {what}" + (f"; it holds {', '.join(inside)}" if inside else "")


def _inside(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    return [file_name(p.name) for p in sorted(folder.iterdir()) if p.suffix in suffixes][:3]


def _beside(path: Path, suffixes: tuple[str, ...]) -> str:
    """Files beside one that is missing."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in suffixes][:200]
    except OSError:
        return ""
    close = nearest(path.name, names)
    return f"; beside it are: {', '.join(map(file_name, close))}" if close else ""


def put_file(path: Path | str, content: bytes | str, *, executable: bool = False) -> None:
    """Write a file of a user as `write_whole` does, a text as UTF-8. Raises ShardMeterError where no file can have this name or stand at
    this place, Unavailable where the machine takes none: a full disk, a folder that is not for writing."""
    name = file_name(path)
    try:
        write_whole(Path(path), content.encode() if isinstance(content, str) else content, executable=executable)
    except OSError as trouble:
        kind = Unavailable if trouble.errno in REFUSED else ShardMeterError
        raise kind(f"{name}: cannot be written ({trouble.strerror or 'no reason is given'})") from None
    except ValueError:  # a name with a null byte, or one that the file system cannot write
        raise ShardMeterError(f"{name}: no file can have this name") from None


def write_whole(
    path: Path, content: bytes | Callable[[IO[bytes]], Any], *, executable: bool = False, within: Path | None = None, synced: bool = True
) -> None:  # fmt: skip
    """Write a file under a hidden name beside it (or in the folder `within`, of the same file system) and rename it into its place: an
    interruption, a kill or a full disk in between leaves what was there. Raises OSError, or what `content` raises as a function that
    writes to a stream.

    `synced`: on the disk before it has its name. A link is followed, permissions of a file that is there stay, one that is read-only is
    refused. Written as it comes is what is no regular file: a device, a pipe; a pipe that nobody reads is given up after PATIENCE."""
    target = Path(os.path.realpath(path))
    before = _status(target)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    write = content if callable(content) else lambda stream: stream.write(content)
    if before is not None and not stat.S_ISREG(before.st_mode):
        opener = _piped if stat.S_ISFIFO(before.st_mode) else None
        with open(target, "wb", opener=opener) as stream:
            write(stream)
        return
    beside = (within or target.parent) / f".{os.urandom(16).hex()}.tmp"
    try:
        with beside.open("xb") as stream:
            write(stream)
            stream.flush()
            _permit(stream.fileno(), before, executable=executable)
            if synced:
                os.fsync(stream.fileno())
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


PATIENCE = 10.0
"""Seconds that a pipe is given until somebody reads it."""


def _piped(path: str, flags: int) -> int:
    """Open a named pipe once somebody reads it. Raises OSError (ENXIO) where nobody does within PATIENCE."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK)
        except OSError as trouble:
            if trouble.errno != errno.ENXIO:
                raise
            if time.monotonic() >= end:
                raise OSError(errno.ENXIO, f"a pipe that nobody has read for {PATIENCE:g} s", path) from None
            time.sleep(min(0.05, PATIENCE))
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _status(path: Path) -> os.stat_result | None:
    """What is at a path; None where nothing is. Raises OSError where nothing can be."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _permit(descriptor: int, before: os.stat_result | None, *, executable: bool) -> None:
    """The permissions of the file that was there; of a new one, the system's, and to run it."""
    mode = os.fstat(descriptor).st_mode if before is None else before.st_mode
    wanted = stat.S_IMODE(mode) | (0o111 if executable else 0)
    if wanted != stat.S_IMODE(os.fstat(descriptor).st_mode) and hasattr(os, "fchmod"):
        os.fchmod(descriptor, wanted)
