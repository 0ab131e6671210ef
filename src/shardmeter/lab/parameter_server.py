"""Copies of a block and their mean, over HTTP: every worker listens, the first living island of a block serves its copies.

A copy is posted at the end of a round (`courier`) and answered with the mean of those that came in time: all that are there, or those
that have come half a window after the first, so that the other half is left for the way back (lines carry as much either way). What
comes later is told so, and counts for nothing. The body is plain numbers, `bits` each.

Leaves out: secrecy, retries of one message, a window shared unequally by the two ways, copies weighted by the steps behind them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter.core.errors import ShardMeterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

FORMATS = {32: np.float32, 16: np.float16}
"""How a number passes, by its bits."""
PAUSE = 0.05
"""Seconds between two looks for something that is not there yet."""
PLACE, KEPT, COPIES = "X-Place", "X-Window", "X-Copies"
"""Headers: whose copy it is, seconds of its window; how many copies a mean is of."""


class _Pot:
    """The copies of one round."""

    def __init__(self) -> None:
        self.copies: dict[int, Vector] = {}
        self.closes: float | None = None
        self.mean: Vector | None = None


class Server:
    """Takes copies of this worker's block, gives back means, hands out the block when it is done."""

    def __init__(self, address: str, ranks: Collection[int], bits: int = 32) -> None:
        """`ranks`: whose copies there are, this worker's among them. Raises ShardMeterError where no port can be opened."""
        self._ranks, self._format = frozenset(ranks), FORMATS[bits]
        self._absent: set[int] = set()
        self._pots: dict[int, _Pot] = {}
        self._final: Vector | None = None
        self._changed = threading.Condition()
        try:
            self._http = _Http((address, 0), _Handler)
        except OSError as error:
            raise ShardMeterError(f"no port to serve a block on {address}: {error.strerror}") from None
        self._http.owner = self
        self.port = int(self._http.server_address[1])
        threading.Thread(target=self._http.serve_forever, args=(PAUSE,), daemon=True).start()

    def add(self, at: int, rank: int, copy: Vector, window: float) -> _Pot:
        """Put a copy into the pot of a round; the last of those expected closes it."""
        with self._changed:
            self._absent.discard(rank)
            pot = self._pots.setdefault(at, _Pot())
            if pot.mean is None:
                pot.copies[rank] = copy
                if pot.closes is None:
                    pot.closes = time.monotonic() + window / 2.0
                self._close_if_whole(pot)
            for old in [one for one in self._pots if one < at - 1]:
                del self._pots[old]
            return pot

    def answer(self, pot: _Pot, rank: int, until: float | None = None) -> tuple[Vector, int] | None:
        """(mean, of how many) once a pot is closed; None where this copy is not in it, or `until` is over before."""
        with self._changed:
            while pot.mean is None:
                closes = pot.closes or 0.0
                now = time.monotonic()
                if now >= closes:
                    self._close(pot)
                elif until is not None and now >= until:
                    return None
                else:
                    self._changed.wait((closes if until is None else min(closes, until)) - now)
            return (pot.mean, len(pot.copies)) if rank in pot.copies else None

    def left(self, rank: int) -> None:
        """The connection of a copy has ended: it is not waited for until it comes again."""
        with self._changed:
            self._absent.add(rank)
            for pot in self._pots.values():
                self._close_if_whole(pot)

    def absent(self) -> tuple[int, ...]:
        """Ranks whose connection has ended."""
        with self._changed:
            return tuple(sorted(self._absent))

    def _close_if_whole(self, pot: _Pot) -> None:
        if pot.mean is None and pot.copies and self._ranks - self._absent <= pot.copies.keys():
            self._close(pot)

    def _close(self, pot: _Pot) -> None:
        pot.mean = np.mean([pot.copies[rank] for rank in sorted(pot.copies)], axis=0, dtype=np.float32)
        self._changed.notify_all()

    def publish(self, block: Vector) -> None:
        """The block is trained: whoever asks gets it."""
        with self._changed:
            self._final = block

    @property
    def final(self) -> Vector | None:
        """The trained block, once it is."""
        with self._changed:
            return self._final

    @property
    def format(self) -> Any:
        """Of the numbers that pass."""
        return self._format

    def close(self) -> None:
        """Nobody is served any more."""
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the caller's end, told by `Server.left`; anything else is a fault and is printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def setup(self) -> None:
        super().setup()
        self._rank: int | None = None

    def finish(self) -> None:
        if self._rank is not None:
            self.server.owner.left(self._rank)
        with suppress(OSError):  # what the caller no longer reads
            super().finish()

    def do_POST(self) -> None:
        """A copy of a round: `/copy/ROUND`."""
        owner = self.server.owner
        at, self._rank = int(self.path.rpartition("/")[2]), int(self.headers[PLACE])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        copy = np.frombuffer(body, dtype=owner.format).astype(np.float32)
        pot = owner.add(at, self._rank, copy, float(self.headers[KEPT]))
        found = owner.answer(pot, self._rank)
        if found is None:
            self._send(409, b"")
        else:
            self._send(200, found[0].astype(owner.format).tobytes(), found[1])

    def do_GET(self) -> None:
        """The trained block."""
        final = self.server.owner.final
        if final is None:
            self._send(503, b"")
        else:
            self._send(200, final.tobytes())

    def _send(self, status: int, body: bytes, copies: int = 0) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(COPIES, str(copies))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """The worker's log says what passed."""
