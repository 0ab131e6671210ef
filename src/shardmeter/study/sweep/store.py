"""Finished chunks on disk: `OUT.parts/` holds a manifest and one fragment a chunk until all of them are joined to OUT.

A file is written under a hidden name, synced, and renamed into its place: what has its name is whole, whatever ended the sweep.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from shardmeter.core.errors import BadScenario, Unavailable, Violation
from shardmeter.core.files import file_name
from shardmeter.study.sweep.files import FORMATS
from shardmeter.study.sweep.space import Space
from shardmeter.study.sweep.work import Done

MANIFEST = "sweep.json"
_PART = re.compile(r"(\d{6,9})\.(\d+)-(\d+)-(\d+)")
"""Number of the chunk; rows that fit, that do not, that are illegal."""
_WHY = ".why"
"""How the name of a file ends that says why rows of a chunk are illegal: counts by reason."""
_NAMES = {
    "version": "the version of shardmeter", "data": "the shipped data", "scenario": "the scenario",
    "files": "a file that it names", "catalog": "the catalog", "axes": "what it goes over", "order": "the order of the axes",
    "columns": "the columns", "points": "the points", "chunk": "the rows of a chunk", "format": "the format",
}  # fmt: skip
_HASHED = ("scenario", "catalog")
"""Parts of the identity that mean nothing to a reader."""
Parts: TypeAlias = dict[int, tuple[Path, tuple[int, int, int]]]


def parts_of(out: Path) -> Path:
    """The folder of the finished chunks of a file."""
    return out.with_name(f"{out.name}.parts")


def is_joined(out: Path) -> bool:
    """Whether a file is there, and no chunks that wait to be joined to it."""
    with suppress(OSError):  # a name that is too long
        return out.exists() and not (parts_of(out) / MANIFEST).exists()
    return False


def refuse_existing(out: Path) -> None:
    """Raise BadScenario for a file (no folder) that is there, unless chunks wait beside it."""
    if is_joined(out) and not out.is_dir():
        raise BadScenario(f"{file_name(out)} exists; --overwrite replaces it, or name another file")


def chunks_kept(out: Path) -> int:
    """How many finished chunks wait to be joined to a file."""
    with suppress(OSError):
        return sum(_PART.fullmatch(path.name) is not None for path in parts_of(out).iterdir())
    return 0


class Store:
    """The chunks of one sweep that is written to `out`."""

    def __init__(self, space: Space, out: Path, kind: str) -> None:
        self.space, self.out, self.kind = space, out, kind
        self.folder = parts_of(out)
        self.identity = {**space.identity(), "format": kind}

    @contextmanager
    def opened(self, shard: tuple[int, int], *, anew: bool, overwrite: bool) -> Iterator[None]:
        """Make the folder (only if a sweep may begin `anew`), or take up the one that is there, and hold this shard of
        it.

        Raises BadScenario for a file that is there already, for chunks of another sweep, and where another process is
        at the same shard; Unavailable for what cannot be written."""
        with ExitStack() as held:
            with self._guarded():
                if self.out.is_dir():
                    raise BadScenario(f"{file_name(self.out)} is a folder; name a file")
                if overwrite:
                    self._forget(held)
                self._begin(anew=anew, overwrite=overwrite)
                self._hold(self.folder / f".{shard[0]}-of-{shard[1]}.lock", held)
                self._take_up()
            yield

    def _begin(self, *, anew: bool, overwrite: bool) -> None:
        """A folder with a manifest, whole; one that is there is left as it is. (What OUT holds stays until it is joined.)"""
        if (self.folder / MANIFEST).exists():
            return
        if not overwrite:
            refuse_existing(self.out)
        if not anew:
            raise BadScenario(f"{file_name(self.folder)} is not there: no chunk is done yet")
        self._refuse_foreign()
        self.folder.mkdir(exist_ok=True)
        text = json.dumps(self.identity, indent=1).encode()
        self._write(self.folder / MANIFEST, lambda stream: stream.write(text))

    def _refuse_foreign(self) -> None:
        """Leave alone what is no folder of a sweep. (Hidden files are ours: a sweep that ended before its manifest.)"""
        if not self.folder.exists() and not self.folder.is_symlink():
            return
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else {""}
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise BadScenario(
                f"{file_name(self.folder)} is no folder of a sweep: it is left as it is; name another file"
            )

    def _forget(self, held: ExitStack) -> None:
        """Remove the chunks of another sweep, unless someone is at it."""
        if self.folder.is_dir() and (self.folder / MANIFEST).exists():
            for lock in self.folder.glob(".*.lock"):
                self._hold(lock, held)
            self._remove()
            held.close()

    def _hold(self, lock: Path, held: ExitStack) -> None:
        """Hold a lock until this process ends, however it ends. Raises BadScenario where another one holds it."""
        try:
            import fcntl
        except ImportError:  # no such locks here: two processes write the same bytes twice
            return
        stream = held.enter_context(lock.open("wb"))
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            shard = lock.stem.lstrip(".").replace("-of-", "/")
            at = "this sweep" if shard == "1/1" else f"shard {shard} of this sweep"
            says = f"another process is at {at} already ({file_name(self.folder)})"
            raise BadScenario(f"{says}; wait for it, or name another file") from None
        except OSError:  # a file system without locks
            return

    def _take_up(self) -> None:
        """Refuse chunks of another sweep, with what differs."""
        try:
            there = json.loads((self.folder / MANIFEST).read_bytes())
        except ValueError:
            there = None
        name = file_name(self.folder)
        if not isinstance(there, dict):
            raise BadScenario(f"{name}/{MANIFEST} is no manifest of a sweep; --overwrite replaces it")
        if differs := [_NAMES.get(key, key) + told for key, told in self._differences(there)]:
            raise BadScenario(
                f"{name} holds chunks of another sweep: nothing is resumed",
                [Violation(field="", says=f"{one} differs", way_out="--overwrite, or another file") for one in differs],
            )

    def _differences(self, there: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The parts of the identity that differ from a manifest, and how where that can be said."""
        for key, mine in self.identity.items():
            theirs = there.get(key)
            if theirs == mine:
                continue
            if isinstance(mine, dict) and isinstance(theirs, dict):
                yield key, f" ({', '.join(n for n in {**theirs, **mine} if theirs.get(n) != mine.get(n))})"
            else:
                yield key, "" if key in _HASHED else f" ({_listed(theirs)} then, {_listed(mine)} now)"

    def parts(self) -> Parts:
        """The chunks that are there: the fragment, and how its rows turned out."""
        made: Parts = {}
        with suppress(OSError):
            for path in self.folder.iterdir():
                if match := _PART.fullmatch(path.name):
                    fits, fits_not, illegal = map(int, match.groups()[1:])
                    made[int(match[1])] = path, (fits, fits_not, illegal)
        return made

    def missing(self) -> tuple[str, ...]:
        """The shards whose chunks are not all there, as I/N; none where no shard, or shards of several N, have begun."""
        numbers = set()
        with suppress(OSError):
            numbers = {int(lock.stem.rpartition("-of-")[2]) for lock in self.folder.glob(".*-of-*.lock")} - {1}
        if len(numbers) != 1:
            return ()
        (of,) = numbers
        there = self.parts()
        lacking = sorted({number % of + 1 for number in range(self.space.chunks) if number not in there})
        return tuple(f"{shard}/{of}" for shard in lacking)

    def reasons(self) -> Counter[str]:
        """Why rows of the chunks that are there are illegal, and how many for each."""
        made: Counter[str] = Counter()
        for path in self.folder.glob(f"*{_WHY}"):
            with suppress(OSError, ValueError):
                made.update(json.loads(path.read_bytes()))
        return made

    def put(self, one: Done) -> bool:
        """Keep a chunk; False where another process has joined all of them in the meantime."""
        name = f"{one.number:06d}.{'-'.join(map(str, one.counts))}"
        why = json.dumps(one.reasons).encode()
        with self._guarded():
            try:
                if one.reasons:
                    self._write(self.folder / f"{one.number:06d}{_WHY}", lambda stream: stream.write(why), synced=False)
                self._write(self.folder / name, lambda stream: stream.write(one.fragment))
            except FileNotFoundError:
                if self.folder.exists() or not self.out.exists():
                    raise
                return False
        return True

    def join(self) -> bool:
        """Join the chunks to the file and remove them; False where some are still missing.

        Several that join at once write the same bytes; the last rename stays."""
        parts = self.parts()
        if len(parts) < self.space.chunks:
            return self.out.exists() and not self.folder.exists()
        paths = [parts[number][0] for number in sorted(parts)]
        with self._guarded():
            try:
                self._write(self.out, lambda out: FORMATS[self.kind].join(self.space, paths, out))
            except FileNotFoundError:  # another one was faster, and has removed them
                if not self.out.exists():
                    raise
        self._remove()
        return True

    def _remove(self) -> None:
        """Remove the folder, the manifest last: chunks without one would be nobody's."""
        for path in self.parts().values():
            path[0].unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise Unavailable for what the machine refuses, with what is kept."""
        try:
            yield
        except OSError as error:
            kept = len(self.parts())
            says = (
                f"; {kept:,} of {self.space.chunks:,} chunks are kept: the same command goes on from there"
                if kept
                else ""
            )
            why = "its folder does not exist" if not self.out.parent.is_dir() else error.strerror or str(error)
            raise Unavailable(f"{file_name(self.out)} cannot be written ({why}){says}") from None

    def _write(self, path: Path, write: Callable[[IO[bytes]], Any], *, synced: bool = True) -> None:
        """A whole file or none, whatever fails if it is `synced`."""
        beside = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with beside.open("wb") as stream:
                write(stream)
                stream.flush()
                if synced:
                    os.fsync(stream.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
