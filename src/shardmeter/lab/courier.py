"""A worker's copies on their way to the server of its block, from a thread of its own, while training goes on.

One connection to a server, kept open. A copy that is still on its way when the next is due is late: its connection is closed, and the
next goes over a new one. A server that refuses or breaks off is gone, and the next of the block's workers serves, which may be this one;
so is one that has given no sign for as long as patience lasts. Two that a cut line parts each take themselves or the next they
reach, and average apart.
"""

from __future__ import annotations

import http
import http.client
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.lab.parameter_server import COPIES, KEPT, PAUSE, PLACE, Server

if TYPE_CHECKING:
    from shardmeter.lab.parameter_server import Vector


@record
class Peer:
    """A worker that can be posted to."""

    rank: int
    address: str
    port: int


@record
class Exchange:
    """What became of a copy that was sent."""

    round: int
    seconds: Seconds
    mean: Any = None
    """Of the copies in time, as float32; None where this one came late, or nobody was there."""
    copies: Count = 0.0
    sent: Bytes = 0.0
    """Payload; nothing by the server itself."""
    received: Bytes = 0.0
    server: int | None = None
    """Rank of who served."""
    gone: tuple[tuple[int, str], ...] = ()
    """Peers found to be gone: (rank, how it was told)."""


class Courier:
    """Sends this worker's copies to whoever serves its block, from a thread of its own, while training goes on."""

    def __init__(self, rank: int, peers: Sequence[Peer], server: Server, patience: float) -> None:
        """`peers`: the copies' workers in the order in which they serve, this one among them; `server`: this one's own. A server that
        gives no sign for `patience` seconds is gone."""
        self._rank, self._peers, self._server, self._patience = rank, tuple(peers), server, patience
        self._gone: set[int] = set()
        self._silent: dict[int, float] = {}
        self._line: tuple[int, http.client.HTTPConnection] | None = None
        self._way: _Way | None = None

    @property
    def living(self) -> tuple[int, ...]:
        """Ranks of the copies not known to be gone, in order."""
        return tuple(sorted(peer.rank for peer in self._peers if peer.rank not in self._gone))

    def begin(self, at: int, copy: Vector, window: float) -> None:
        """Send a round's copy; it is late `window` seconds from now. The one before must have been taken or dropped."""
        self._way, self._line = _Way(at, copy, window, self._line), None
        self._way.thread = threading.Thread(target=self._run, args=(self._way,), daemon=True)
        self._way.thread.start()

    def taken(self, wait: float = 0.0) -> Exchange | None:
        """What became of the copy on its way, once; None while it is on its way, or where there is none."""
        way = self._way
        if way is None or way.thread is None:
            return None
        way.thread.join(wait)
        if way.thread.is_alive():
            return None
        self._way, self._line = None, way.line
        return way.result

    def drop(self) -> Exchange | None:
        """The round is over: a copy that is still on its way is late, and its connection is closed. What became of it."""
        way = self._way
        found = self.taken()
        if way is None or found is not None:
            return found
        way.dropped, self._way = True, None
        way.hang_up()
        gone: tuple[tuple[int, str], ...] = ()
        if way.to is not None and way.to.rank != self._rank and (says := self._silence(way.to, way.begun)):
            gone = ((way.to.rank, says),)
            self._leave(way.to.rank)
        server = None if way.to is None else way.to.rank
        return Exchange(round=way.at, seconds=time.monotonic() - way.begun, server=server, gone=gone)

    def close(self) -> None:
        """Nothing is sent any more."""
        self.drop()
        if self._line is not None:
            self._line[1].close()

    def _run(self, way: _Way) -> None:
        gone: list[tuple[int, str]] = []
        for peer in self._peers:
            if peer.rank in self._gone:
                continue
            way.to = peer
            try:
                found = self._own(way) if peer.rank == self._rank else self._posted(peer, way)
            except (OSError, http.client.HTTPException) as error:
                if way.dropped:
                    return
                way.hang_up()
                says = self._judged(peer, error, way.begun)
                if says:
                    self._leave(peer.rank)
                    gone.append((peer.rank, says))
                    continue
                found = {"server": peer.rank}
            seconds = time.monotonic() - way.begun
            gone.extend(self._missed() if peer.rank == self._rank else ())
            way.result = Exchange(round=way.at, seconds=seconds, gone=tuple(gone), **found)
            return

    def _own(self, way: _Way) -> dict[str, Any]:
        """The worker serves itself: its copy goes into the pot."""
        pot = self._server.add(way.at, self._rank, way.copy, way.window)
        found = None
        while not way.dropped and found is None and time.monotonic() < way.until:
            found = self._server.answer(pot, self._rank, min(time.monotonic() + PAUSE, way.until))
            if found is None and pot.mean is not None:
                break
        mean, copies = found or (None, 0)
        return {"mean": mean, "copies": float(copies), "server": self._rank}

    def _posted(self, peer: Peer, way: _Way) -> dict[str, Any]:
        line, body = self._connected(peer, way), way.copy.astype(self._server.format).tobytes()
        line.request("POST", f"/copy/{way.at}", body, {PLACE: str(self._rank), KEPT: str(way.window)})
        answer = line.getresponse()
        back = answer.read()
        self._silent.pop(peer.rank, None)
        found: dict[str, Any] = {"sent": float(len(body)), "received": float(len(back)), "server": peer.rank}
        if answer.status == http.HTTPStatus.OK:
            mean = np.frombuffer(back, dtype=self._server.format).astype(np.float32)
            found |= {"mean": mean, "copies": float(answer.headers[COPIES])}
        return found

    def _connected(self, peer: Peer, way: _Way) -> http.client.HTTPConnection:
        """The line of the exchange before, or a new one; it gives up when the copy is late."""
        left = max(PAUSE, way.until - time.monotonic())
        if way.line is None or way.line[0] != peer.rank:
            way.hang_up()
            way.line = peer.rank, http.client.HTTPConnection(peer.address, peer.port, timeout=left)
            way.line[1].connect()
            self._silent.pop(peer.rank, None)
        line = way.line[1]
        if line.sock is not None:
            line.sock.settimeout(left)
        return line

    def _judged(self, peer: Peer, error: Exception, since: float) -> str:
        """How it is told that a peer is gone; empty where it may only be slow."""
        if isinstance(error, (ConnectionError, http.client.HTTPException)):
            return f"rank {peer.rank} is gone: {str(error) or type(error).__name__}"
        return self._silence(peer, since)

    def _silence(self, peer: Peer, since: float) -> str:
        """How long a peer has given no sign, where that is too long."""
        first = self._silent.setdefault(peer.rank, since)
        if time.monotonic() - first < self._patience:
            return ""
        return f"rank {peer.rank} is gone: no sign of it for {self._patience:g} s"

    def _leave(self, rank: int) -> None:
        """A peer is gone: nothing is sent to it, and nothing waited for."""
        self._gone.add(rank)
        self._server.left(rank)

    def _missed(self) -> list[tuple[int, str]]:
        """Copies whose connection has ended and whose port does not answer: they are gone."""
        found = []
        for rank in self._server.absent():
            peer = next(one for one in self._peers if one.rank == rank)
            if rank not in self._gone and not reached(peer, min(1.0, self._patience)):
                self._leave(rank)
                found.append((rank, f"rank {rank} is gone: its port does not answer"))
        return found


class _Way:
    """A copy on its way."""

    def __init__(
        self, at: int, copy: Vector, window: float, line: tuple[int, http.client.HTTPConnection] | None
    ) -> None:
        self.at, self.copy, self.window, self.line = at, copy, window, line
        self.begun = time.monotonic()
        self.until = self.begun + window
        self.to: Peer | None = None
        self.dropped, self.result = False, Exchange(round=at, seconds=0.0)
        self.thread: threading.Thread | None = None

    def hang_up(self) -> None:
        """Close the connection, also under a thread that waits on it."""
        line, self.line = self.line, None
        if line is None:
            return
        held = line[1].sock
        if held is not None:
            with suppress(OSError):  # it may be closed already
                held.shutdown(socket.SHUT_RDWR)
        line[1].close()


def reached(peer: Peer, patience: float) -> bool:
    """Whether the port of a worker answers within `patience` seconds."""
    try:
        socket.create_connection((peer.address, peer.port), patience).close()
    except OSError:
        return False
    return True


def fetched(peer: Peer, patience: float) -> Vector | None:
    """The trained block of a worker, waited for while it trains; None where the worker is gone, or silent for `patience` seconds."""
    while True:
        line = http.client.HTTPConnection(peer.address, peer.port, timeout=patience)
        try:
            line.request("GET", "/block")
            answer = line.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            line.close()
        if answer.status == 200:
            return np.frombuffer(body, dtype=np.float32).copy()
        time.sleep(5.0 * PAUSE)


# ---- who listens where ----------------------------------------------------------------------------------------------------------


def told(folder: str, peer: Peer) -> None:
    """Write down where a worker listens, for the others of the run."""
    path = _path(folder, peer.rank)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rank": peer.rank, "address": peer.address, "port": peer.port}), encoding="utf-8")
    part.replace(path)


def found(folder: str, ranks: Sequence[int], patience: float) -> Mapping[int, Peer]:
    """Where all these workers listen. Raises ShardMeterError where one does not say so within `patience` seconds."""
    _awaited({rank: _path(folder, rank) for rank in ranks}, patience)
    return {rank: Peer(**json.loads(_path(folder, rank).read_text(encoding="utf-8"))) for rank in ranks}


def met(folder: str, rank: int, ranks: Sequence[int], patience: float) -> None:
    """Begin together: wait until all have come here. Raises ShardMeterError where one does not within `patience` seconds."""
    marks = {one: Path(folder) / f"met-{one}" for one in ranks}
    marks[rank].touch()
    _awaited(marks, patience)


def _awaited(marks: Mapping[int, Path], patience: float) -> None:
    until = time.monotonic() + patience
    while missing := [rank for rank, path in marks.items() if not path.exists()]:
        if time.monotonic() > until:
            raise ShardMeterError(f"no sign of rank {', '.join(map(str, missing))} after {patience:g} s")
        time.sleep(PAUSE / 5.0)


def _path(folder: str, rank: int) -> Path:
    return Path(folder) / f"server-{rank}.json"
