"""One connection of a browser: who sends no whole request, or takes no answer, does not keep a place for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 15.0
"""How long the head of a request may take, from the connection or from the answer before it."""
STALLED_S = 30.0
"""How long a client may take nothing of what waits for it."""


class Connection(H11Protocol):  # type: ignore[misc, unused-ignore]  # untyped where uvicorn is not installed
    """uvicorn's connection with two more limits in time: it bounds what is kept open after an answer, and neither a first request that never
    comes, nor half a head, nor an answer that nobody reads. Leaves out a client that takes a few bytes in every half minute."""

    head_s, stalled_s = HEAD_S, STALLED_S

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override, unused-ignore]
        """The first head is waited for from here."""
        super().connection_made(transport)
        self._wait(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        for one in (self._head, self._stall):
            if one is not None:
                one.cancel()

    def handle_events(self) -> None:
        """A head that is whole is waited for no more."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE and self._head is not None:
            self._head.cancel()

    def on_response_complete(self) -> None:
        """The next head is waited for from here; a connection without a byte of it is closed as the server's settings say."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self._wait(self.timeout_keep_alive + self.head_s)

    def pause_writing(self) -> None:
        """The client takes less than there is."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has taken nearly all."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()

    def _wait(self, seconds: float) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(seconds, self.transport.abort)

    def _watch(self, before: int) -> None:
        if self._stall is not None:
            self._stall.cancel()
        self._stall = self.loop.call_later(self.stalled_s, self._look, before)

    def _look(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._watch(left)
