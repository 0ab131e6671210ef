"""Opens the socket and serves the application until it is told to end."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shardmeter.core.errors import ShardMeterError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardmeter.ui.app import Settings

PORT = 8642
"""Where the page is, if nothing else is there."""
NEEDS = ("starlette", "uvicorn", "plotly")
LARGEST_HEAD = 192 * 1024
"""Bytes of a request's head: an address of the size that is answered, and what browsers send beside it."""
MOST_CONNECTIONS = 512


def missing() -> tuple[str, ...]:
    """Packages that the page needs and that are not installed."""
    return tuple(name for name in NEEDS if find_spec(name) is None)


def bound(host: str, port: int | None) -> socket.socket:
    """A socket at an address; without a port at the usual one, or at any that is free. Raises ShardMeterError for what is no address of
    this machine, Unavailable where the port is taken."""
    try:
        families = socket.getaddrinfo(host or None, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ShardMeterError(f"--host {host[:100]}: no address of this machine") from None
    family, kind, protocol, _, address = families[0]
    ports = (PORT, 0) if port is None else (port,)
    for one in ports:
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address[0], one, *address[2:]))
            made.listen(256)
        except OSError as error:
            made.close()
            if one == ports[-1]:
                raise Unavailable(
                    f"{host or '*'}:{one}: cannot be bound ({error.strerror or 'no reason is given'})"
                ) from None
        else:
            return made
    raise AssertionError  # pragma: no cover  (the last port returns or raises)


def address_of(made: socket.socket) -> str:
    """The address of the page, as a browser takes it."""
    host, port = made.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (what was bound, read back)
        host = "127.0.0.1" if made.family == socket.AF_INET else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def serve(settings: Settings, made: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until an interrupt; `ready` is called when questions are answered. Raises Unavailable where the server cannot start, and as `ready` does."""
    import uvicorn

    from shardmeter.ui.app import application
    from shardmeter.ui.connection import Connection

    trouble: list[Exception] = []

    def told() -> None:
        try:
            ready()
        except Exception as error:
            trouble.append(error)
            raise

    config = uvicorn.Config(
        application(settings, told), http=Connection, ws="none", lifespan="on", log_level="critical", access_log=False, server_header=False,
        proxy_headers=False, h11_max_incomplete_event_size=LARGEST_HEAD, limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    try:
        server.run([made])
    except SystemExit:  # it did not start
        if not trouble:
            raise Unavailable("the server could not start") from None
    if trouble:
        raise trouble[0]
    if not server.started:
        raise Unavailable("the server could not start")
