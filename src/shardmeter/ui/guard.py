"""What every request passes before it is answered: host, method, origin, size, how many at once; and what every response carries."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from shardmeter.core.record import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST", "DELETE")
LARGEST = 64 * 1024
"""Bytes of an address, and of a body."""
MOST_AT_ONCE = 24
"""Requests of one client that are answered at once."""
LONGEST_CLIENT = 64
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  (what is asked for, not what is bound)


@record
class Hosts:
    """Names by which the page may be asked for: another name that leads here is a page of somebody else that asks in a user's browser."""

    names: frozenset[str]
    any_address: bool = False
    """Whether any address of numbers is right too: of a server that is bound to all of them. A name of somebody else is none."""

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server; its port is not looked at (a tunnel has another one)."""
        name = bare(host)
        return name in self.names or (self.any_address and _is_address(name))


def hosts_of(bound: str, more: tuple[str, ...] = ()) -> Hosts:
    """The names of a server bound to an address."""
    if bound in EVERYWHERE:
        import socket

        own = {socket.gethostname().lower(), socket.getfqdn().lower()}
        return Hosts(names=frozenset({*LOOPBACK, *own, *map(str.lower, more)}), any_address=True)
    near = LOOPBACK if is_loopback(bound) else ()
    return Hosts(names=frozenset({*near, bound.lower(), *map(str.lower, more)}))


def is_loopback(bound: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return bound.lower() == "localhost" or ipaddress.ip_address(bound).is_loopback
    except ValueError:
        return False


def bare(host: str) -> str:
    """A Host header without its port, lower case: `[::1]:8642` is `::1`; empty for what is no such address in brackets."""
    text = host.strip().lower()
    if text.startswith("["):
        inside, closed, port = text[1:].partition("]")
        return inside if closed and (not port or port.startswith(":")) else ""
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def client_of(headers: Mapping[str, str], peer: str) -> str:
    """Who asks: the page's own random name, and the address."""
    return f"{peer} {headers.get('x-client', '')[:LONGEST_CLIENT]}"


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, hosts: Hosts, most: int = MOST_AT_ONCE) -> None:
        self.app, self.hosts, self.most = app, hosts, most
        self.open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse or pass on; a fault of ours is a sentence, never a traceback."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = _headers(scope)
        refused = self._refused(scope, headers)
        if refused is not None:
            await _say(send, *refused)
            return
        peer = (scope.get("client") or ("", 0))[0]
        client = client_of(headers, peer)
        if self.open[client] >= self.most:
            await _say(send, 429, f"more than {self.most} requests of one client at once; wait for their answers")
            return
        self.open[client] += 1
        try:
            await self._passed(scope, receive, send)
        finally:
            self.open[client] -= 1
            if not self.open[client]:
                del self.open[client]

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, and add what every response carries."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message.get("headers", ()), *_EACH]}
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except asyncio.CancelledError:  # the server ends, and has waited for this long enough
            if not begun:
                await _say(send, 503, "the server ends")
        except Exception as error:
            says = " ".join(str(error).split())[:300]
            sys.stderr.write(f"unexpected error, please report it: {type(error).__name__}: {says}\n")
            if begun:  # the response is broken off: the client sees that
                raise
            await _say(send, 500, f"a fault of ours ({type(error).__name__}), please report it")

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and sentence for what is not answered."""
        host = headers.get("host", "")
        if not self.hosts.knows(host):
            return 421, "this server does not go by that name; shardmeter ui --allow-host NAME adds one"
        if scope["method"] not in METHODS:
            return 405, f"{', '.join(METHODS)} are answered here"
        if len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > LARGEST:
            return 413, f"an address of more than {LARGEST:,} bytes; a scenario is smaller"
        if not _is_ours(scope["method"], headers, host):
            return 403, "asked by another site's page"
        return None


def _is_ours(method: str, headers: Mapping[str, str], host: str) -> bool:
    """Whether our own page asks, a person who follows a link, or no browser at all: never another site's script, frame or form."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return False
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return True
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return method == "GET" and followed


def _headers(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name. Of a name that is there twice the last counts; two hosts are none."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        found[key] = "" if key == "host" and key in found else value.decode("latin-1")
    return found


_EACH = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def _say(send: Send, status: int, says: str) -> None:
    """A refusal as JSON."""
    body = json.dumps(error(says)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    headers += [(b"retry-after", b"1")] if status == 429 else []
    headers += [(b"allow", ", ".join(METHODS).encode())] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *_EACH]})
    await send({"type": "http.response.body", "body": body})


def error(says: str) -> dict[str, Any]:
    """The JSON of a refusal without a field."""
    return {"error": {"says": says, "violations": []}}
