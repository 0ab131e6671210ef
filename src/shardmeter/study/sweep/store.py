"""Finished chunks on disk: `OUT.parts/` holds a manifest and one fragment a chunk until all of them are joined to OUT.

A file is written beside its place, synced, and renamed into it: what has its name is whole, whatever ended the sweep."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from shardmeter.core.errors import BadScenario, Unavailable, Violation
from shardmeter.core.files import file_name
from shardmeter.study.sweep.engines import Done
from shardmeter.study.sweep.files import FORMATS
from shardmeter.study.sweep.space import Space

MANIFEST = "sweep.json"
_PART = re.compile(r"(\d{6,9})\.(\d+)-(\d+)-(\d+)")
"""Number of the chunk; rows that fit, that do not, that are illegal."""
_NAMES = {
    "version": "the version of shardmeter", "data": "the shipped data", "scenario": "the scenario", "catalog": "the catalog",
    "axes": "what it goes over", "columns": "the columns", "points": "the points", "chunk": "the rows of a chunk",
    "format": "the format",
}  # fmt: skip


class Store:
    """The chunks of one sweep that is written to `out`."""

    def __init__(self, space: Space, out: Path, kind: str) -> None:
        self.space, self.out, self.kind = space, out, kind
        self.folder = out.with_name(f"{out.name}.parts")
        self.identity = {**space.identity(), "format": kind}

    def open(self, *, overwrite: bool) -> bool:
        """Make the folder, or take up the one that is there; whether anything is left to do.

        Raises BadScenario for a file that is there already and for chunks of another sweep; Unavailable for what cannot be
        written."""
        if self.out.is_dir():
            raise BadScenario(f"{file_name(self.out)} is a folder; name a file")
        if overwrite:
            self._guarded(self._forget)
        try:
            there: Any = json.loads((self.folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            if self.out.exists():
                says = f"{file_name(self.out)} exists; --overwrite replaces it, or name another file"
                raise BadScenario(says) from None
            self._guarded(self._begin)
            return True
        except (OSError, ValueError):
            raise BadScenario(f"{file_name(self.folder)} is no folder of a sweep; --overwrite replaces it") from None
        self._same(there)
        return True

    def _begin(self) -> None:
        self.folder.mkdir(parents=False, exist_ok=True)
        text = json.dumps(self.identity, indent=1, sort_keys=True).encode()
        self._write(self.folder / MANIFEST, lambda stream: stream.write(text))

    def _forget(self) -> None:
        if self.folder.exists() and not (self.folder / MANIFEST).exists() and any(self.folder.iterdir()):
            raise BadScenario(f"{file_name(self.folder)} is no folder of a sweep: it is left as it is; name another file")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.out.unlink(missing_ok=True)

    def _same(self, there: Mapping[str, Any]) -> None:
        """Refuse chunks of another sweep, with what differs."""
        differs = []
        for key, mine in self.identity.items():
            theirs = there.get(key) if isinstance(there, Mapping) else None
            if theirs == mine:
                continue
            if isinstance(mine, dict) and isinstance(theirs, dict):
                names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
                order = "" if names else " (in another order)"
                differs.append(f"{_NAMES[key]}{order or ': ' + ', '.join(names)}")
            else:
                told = f": {theirs} then, {mine} now" if key not in ("scenario", "catalog") else ""
                differs.append(f"{_NAMES[key]}{told}")
        if differs or list(there["axes"]) != sorted(self.identity["axes"]):
            name = file_name(self.folder)
            raise BadScenario(
                f"{name} holds chunks of another sweep: nothing is resumed",
                [Violation(field="", says=f"what differs is {one}", way_out="--overwrite, or another file") for one in differs],
            )

    def parts(self) -> dict[int, tuple[Path, tuple[int, int, int]]]:
        """The chunks that are there: the fragment, and how its rows turned out."""
        made = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _PART.fullmatch(path.name)
            if match:
                fits, fits_not, illegal = map(int, match.groups()[1:])
                made[int(match[1])] = path, (fits, fits_not, illegal)
        return made

    def put(self, one: Done) -> None:
        """Keep a chunk."""
        name = f"{one.number:06d}.{'-'.join(map(str, one.counts))}"
        self._guarded(lambda: self._write(self.folder / name, lambda stream: stream.write(one.fragment)))

    def join(self) -> bool:
        """Join the chunks to the file and remove them; False where some are still missing.

        Several that join at once write the same bytes; the last rename stays."""
        parts = self.parts()
        if len(parts) < self.space.chunks:
            return False
        paths = [parts[number][0] for number in sorted(parts)]
        try:
            self._guarded(lambda: self._write(self.out, lambda out: FORMATS[self.kind].join(self.space, paths, out)))
        except FileNotFoundError:  # another one was faster, and has removed them
            return self.out.exists()
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _guarded(self, act: Callable[[], Any]) -> None:
        """Raise Unavailable for what the machine refuses, with what is kept."""
        try:
            act()
        except FileNotFoundError:
            if self.out.parent.is_dir():
                raise
            raise Unavailable(f"{file_name(self.out)}: its folder does not exist") from None
        except OSError as error:
            kept = len(self.parts())
            says = f"; {kept:,} of {self.space.chunks:,} chunks are kept: the same command goes on from there" if kept else ""
            raise Unavailable(f"{file_name(self.out)} cannot be written ({error.strerror or error}){says}") from None

    @staticmethod
    def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
        """A whole file or none."""
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            with beside.open("wb") as stream:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
