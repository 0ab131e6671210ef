"""Finished chunks on disk: `OUT.parts/` holds a manifest and one fragment a chunk until all of them are joined to OUT.

A file is written under a hidden name, synced, and renamed into its place: what has its name is whole, whatever ended the sweep.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable, Violation, cut
from shardmeter.core.files import file_name, write_whole
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.read import plain_mapping, read_file
from shardmeter.study.sweep.files import FORMATS
from shardmeter.study.sweep.space import Space
from shardmeter.study.sweep.work import Done

MANIFEST = "sweep.json"
_PART = re.compile(r"([0-9]{6,9})\.([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})\.([0-9a-f]{32})")
"""Number of the chunk; rows that fit, that do not, that are illegal; hash of all that and of the fragment."""
_WHY = ".why"
"""How the name of a file ends that says why rows of a chunk are illegal: counts by reason."""
_REASONS = re.compile(rf"[0-9]{{6,9}}\{_WHY}")
_LOCK = re.compile(r"\.([0-9]+)-of-([0-9]+)\.lock")
_BESIDE = re.compile(r"\.[0-9a-f]{32}\.tmp")
_NAMES = {
    "version": "the version of shardmeter", "data": "the shipped data", "scenario": "the scenario",
    "files": "a file that it names", "catalog": "the catalog", "axes": "what it goes over", "order": "the order of the axes",
    "columns": "the columns", "points": "the points", "chunk": "the rows of a chunk", "format": "the format",
}  # fmt: skip
_TELLING = frozenset({"version", "axes", "points", "chunk", "format"})
"""What every manifest of a sweep has, and hardly another file of its name."""
_SAID = ("version", "data", "order", "columns", "points", "chunk", "format")
"""Parts of the identity that a reader knows by their values."""


@record
class Part:
    """A chunk that is there: its file, and how its rows turned out."""

    path: Path
    counts: tuple[int, int, int]

    def fragment(self) -> bytes | None:
        """What was written; None where that has changed since."""
        number, _, rest = self.path.name.partition(".")
        content = self.path.read_bytes()
        return content if rest == _name(int(number), self.counts, content).partition(".")[2] else None


def _name(number: int, counts: Sequence[int], fragment: bytes) -> str:
    """What the file of a chunk is called."""
    told = f"{number:06d}.{'-'.join(map(str, counts))}"
    return f"{told}.{hashlib.sha256(told.encode() + fragment).hexdigest()[:32]}"


class _DamagedError(Exception):
    """A chunk is not as it was written."""


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
        self.identity = plain_mapping({**space.identity(), "format": kind}, MANIFEST)
        self.warnings: list[str] = []
        """What was found amiss in the folder."""

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
                ours = self._manifest() is not None
                if overwrite and ours:
                    self._forget(held)
                self._begin(anew=anew, overwrite=overwrite, ours=ours)
                self._hold(self.folder / f".{shard[0]}-of-{shard[1]}.lock", held)
                self._take_up()
            yield

    def _begin(self, *, anew: bool, overwrite: bool, ours: bool) -> None:
        """A folder with a manifest, whole; one that is there is left as it is. (What OUT holds stays until it is joined.)"""
        if (self.folder / MANIFEST).exists():
            return
        if not overwrite:
            refuse_existing(self.out)
        if not anew:
            raise BadScenario(f"{file_name(self.folder)} is not there: no chunk is done yet")
        if not ours:
            self._refuse_foreign()
        self.folder.mkdir(exist_ok=True)
        text = json.dumps(self.identity, indent=1).encode()
        self._write(self.folder / MANIFEST, lambda stream: stream.write(text))

    def _refuse_foreign(self) -> None:
        """Leave alone what is no folder of a sweep. (Hidden files may be ours: a sweep that ended before its manifest.)"""
        if not self.folder.exists() and not self.folder.is_symlink():
            return
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else {""}
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise BadScenario(
                f"{file_name(self.folder)} is no folder of a sweep: it is left as it is; name another file"
            )

    def _manifest(self) -> dict[str, Any] | None:
        """The identity of the sweep whose chunks are here; None without one. Raises BadScenario for what is no
        manifest."""
        path = self.folder / MANIFEST
        if not path.exists() and not path.is_symlink():
            return None
        with suppress(ShardMeterError):
            there = read_file(path).data
            if there.keys() >= _TELLING:
                return there
        says = f"{file_name(path)} is no manifest of a sweep: the folder is left as it is"
        raise BadScenario(f"{says}; move it away, or name another file")

    def _forget(self, held: ExitStack) -> None:
        """Remove the chunks of another sweep, unless someone is at it."""
        for lock in self.folder.iterdir():
            if _LOCK.fullmatch(lock.name):
                self._hold(lock, held)
        self._remove()
        held.close()

    def _hold(self, lock: Path, held: ExitStack) -> None:
        """Hold a lock until this process ends, however it ends. Raises BadScenario where another one holds it."""
        try:
            import fcntl
        except ImportError:  # no such locks here: two processes write the same bytes twice
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK  # a pipe of this name is no reason to wait
        stream = held.enter_context(os.fdopen(os.open(lock, flags, 0o666), "wb"))
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
        there, name = self._manifest() or {}, file_name(self.folder)
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
                known = key in _SAID and type(theirs) is type(mine)
                yield key, f" ({_listed(theirs)} then, {_listed(mine)} now)" if known else ""

    def parts(self) -> dict[int, Part]:
        """The chunks of this sweep that are there, by number."""
        return {number: part for number, part in self._files() if self._belongs(number, part.counts)}

    def _belongs(self, number: int, counts: Sequence[int]) -> bool:
        """Whether a sweep of this size has such a chunk."""
        first, after = self.space.span(number)
        return number < self.space.chunks and plain_sum(counts) == after - first

    def _files(self) -> Iterator[tuple[int, Part]]:
        """Every file that is called as a chunk is."""
        with suppress(OSError):
            for path in sorted(self.folder.iterdir()):
                match = _PART.fullmatch(path.name)
                if match and path.is_file():
                    yield int(match[1]), Part(path=path, counts=(int(match[2]), int(match[3]), int(match[4])))

    def drop_damaged(self, numbers: range) -> None:
        """Remove those of these chunks that are not as they were written."""
        with self._guarded():
            for number, part in self._files():
                if number in numbers:
                    with suppress(FileNotFoundError, _DamagedError):  # another process may join them meanwhile
                        self._fragment(part)

    def _fragment(self, part: Part) -> bytes:
        """What a chunk holds; one that is damaged is removed. Raises _DamagedError."""
        fragment = part.fragment()
        if fragment is None:
            part.path.unlink(missing_ok=True)
            self.warnings.append(f"{file_name(part.path)} was damaged: it is removed, and evaluated again")
            raise _DamagedError
        return fragment

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
            with suppress(OSError, ValueError, TypeError, RecursionError):  # damaged: the chunk itself tells
                made.update(json.loads(path.read_bytes()))
        return made

    def put(self, one: Done) -> bool:
        """Keep a chunk; False where another process has joined all of them in the meantime."""
        name = _name(one.number, one.counts, one.fragment)
        why = json.dumps(one.reasons).encode()
        with self._guarded():
            if self._joined():
                return False
            try:
                if one.reasons:
                    self._write(self.folder / f"{one.number:06d}{_WHY}", lambda stream: stream.write(why), synced=False)
                self._write(self.folder / name, lambda stream: stream.write(one.fragment))
            except FileNotFoundError:
                if not self._joined():
                    raise
                return False
        return True

    def _joined(self) -> bool:
        """Whether a process has joined the chunks."""
        return self.out.exists() and not (self.folder / MANIFEST).exists()

    def join(self) -> bool:
        """Join the chunks to the file and remove them; False where some are still missing, or one turns out damaged.

        Several that join at once write the same bytes; the last rename stays."""
        parts = self.parts()
        if len(parts) < self.space.chunks:
            return self._joined()
        fragments = (self._fragment(parts[number]) for number in range(self.space.chunks))
        with self._guarded():
            try:
                self._write(self.out, lambda out: FORMATS[self.kind].join(self.space, fragments, out))
            except _DamagedError:
                return False
            except FileNotFoundError:  # another one was faster, and has removed them
                if not self.out.exists():
                    raise
            self._remove()
        return True

    def _remove(self) -> None:
        """Remove what is ours, the manifest last: chunks without one would be nobody's. The folder goes if that leaves it
        empty."""
        if not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            if any(form.fullmatch(path.name) for form in (_PART, _REASONS, _LOCK, _BESIDE)) and not path.is_dir():
                path.unlink(missing_ok=True)
        (self.folder / MANIFEST).unlink(missing_ok=True)
        with suppress(OSError):  # another process does the same, or it is a link
            if others := sorted(path.name for path in self.folder.iterdir()):
                names = ", ".join(map(file_name, others[:3])) + (f" and {len(others) - 3} more" if others[3:] else "")
                self.warnings.append(f"{file_name(self.folder)} is kept for what is not of this sweep: {names}")
            else:
                self.folder.rmdir()

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
        write_whole(path, write, within=self.folder, synced=synced)


def _listed(value: Any) -> str:
    return cut(", ".join(map(str, value)) if isinstance(value, list) else str(value), 200)
