"""The server: what is asked under which address, who answers it, and what is remembered."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName
from shardmeter.core.record import record
from shardmeter.ui import files, work
from shardmeter.ui.crew import BusyError, EndedError, Lane, TooLongError, cores
from shardmeter.ui.guard import LARGEST, MOST_AT_ONCE, Guard, Hosts, client_of, error, hosts_of
from shardmeter.ui.search import LIMIT_S, RunningError, Searches
from shardmeter.ui.state import Asked, parsed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from starlette.requests import Request

VIEWS = ("predict", "memory", "explain", "returns", "transitions", "tradeoffs", "sensitivity", "doctor", "trace")
QUICK = ("predict", "memory", "trace")
"""Views that take no longer than a prediction."""
WORDS_OF = {
    "numbers": (), "predict": (), "memory": (), "explain": ("term",), "returns": ("axis", "over", "scaling"), "transitions": ("x", "y"),
    "tradeoffs": ("over",), "sensitivity": ("of", "what_if", "with", "pairs"), "doctor": ("measured",), "trace": ("steps", "rounds", "island"),
}  # fmt: skip
"""Words that a view's answer depends on."""
LATER_S = 0.05
"""How long the questions of sliders, which take a tenth of the time, may pass those of views by."""
JSON_HEADERS = {"cache-control": "no-store"}
BODY_S = 10.0
"""How long a body may take to arrive."""


@record
class Settings:
    """What a server is started with."""

    hosts: Hosts
    folders: tuple[str, ...] = ()
    """Folders with more catalog rows."""
    workers: int = 0
    """Processes that answer at once; 0 = the cores. As many again, at most 2, are for what takes longer."""
    waiting: int = 64
    """Questions that may wait."""
    patience: float = 8.0
    """Seconds that they may wait."""
    quick_limit: float = 2.5
    """Seconds after which a question goes to those that take longer."""
    limit: float = 10.0
    search_limit: float = LIMIT_S
    most_at_once: int = MOST_AT_ONCE
    cache: int = 64 * 1024**2
    """Bytes of answers that are remembered."""
    memory: int = 2 * 1024**3
    """Bytes that a question may take."""


class Remembered:
    """Answers by what was asked, the ones asked longest ago forgotten first."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._found: OrderedDict[tuple[str, ...], work.Reply] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> work.Reply | None:
        """An answer; None where it is not known."""
        if key in self._found:
            self._found.move_to_end(key)
        return self._found.get(key)

    def put(self, key: tuple[str, ...], reply: work.Reply) -> None:
        """Remember an answer; refusals that depend on nothing but the question too, faults never."""
        size = len(reply.body) + sum(map(len, key))
        if (
            reply.passing
            or reply.status not in (work.OK, work.UNPROCESSABLE)
            or size > self._most // 8
            or key in self._found
        ):
            return
        self._found[key] = reply
        self._size += size
        while self._size > self._most:
            old, gone = self._found.popitem(last=False)
            self._size -= len(gone.body) + sum(map(len, old))


class GoneError(Exception):
    """Nobody waits for the answer any more."""


class Server:
    """Lanes, searches and what is remembered, for the handlers of one application."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.setup = work.Setup(folders=settings.folders, memory=settings.memory)
        self.remembered = Remembered(settings.cache)
        workers = settings.workers or cores()
        self.quick = Lane(self.setup, workers=workers, waiting=settings.waiting, patience=settings.patience)
        self.long = Lane(self.setup, workers=min(2, workers), waiting=settings.waiting // 4, patience=settings.patience)
        self.searches = Searches(self.setup, most=max(2, workers), limit=settings.search_limit)

    async def open(self) -> None:
        """Start all processes."""
        await asyncio.gather(self.quick.open(), self.long.open())

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(self.quick.close(), self.long.close(), asyncio.to_thread(self.searches.close))

    async def sweeping(self) -> None:
        """End and forget searches now and then."""
        while True:
            await asyncio.sleep(10.0)
            await asyncio.to_thread(self.searches.sweep)

    async def asked(self, question: work.Question, *, quick: bool) -> work.Reply:
        """The reply to a question, from whoever has the time for it. Raises as a lane does."""
        limit = self.settings.limit
        if not quick:
            return await self.long.ask(question, limit)
        began = time.monotonic()
        with suppress(TooLongError):
            found = await self.quick.ask(
                question, min(self.settings.quick_limit, limit), LATER_S if question.kind == "view" else 0.0
            )
            if found.status != work.MOVED:
                return found
        from shardmeter.core.record import changed

        rest = limit - (time.monotonic() - began)
        if rest <= 0.0:
            raise TooLongError
        return await self.long.ask(changed(question, quick=False), rest)

    async def replied(
        self, request: Request, question: work.Question, key: tuple[str, ...], *, quick: bool
    ) -> tuple[work.Reply, bool]:
        """The reply, and whether it was remembered. Raises GoneError, and as a lane does."""
        known = self.remembered.get(key)
        if known is not None:
            return known, True
        found = await unless_gone(request, self.asked(question, quick=quick))
        self.remembered.put(key, found)
        return found, False

    # ---- handlers ----------------------------------------------------------------------------------------------------------------

    async def numbers(self, request: Request) -> Response:
        """GET /api/numbers."""
        return await self._of_state(request, "numbers", "")

    async def view(self, request: Request) -> Response:
        """GET /api/VIEW."""
        return await self._of_state(request, "view", request.path_params["view"])

    async def _of_state(self, request: Request, kind: str, name: str) -> Response:
        began = time.perf_counter()
        asked = parsed(query_of(request))
        quick = kind == "numbers" or name in QUICK
        question = work.Question(kind=kind, name=name, query=narrowed(asked, WORDS_OF[name or kind]), quick=quick)
        found, known = await self.replied(request, question, (kind, name, question.query), quick=quick)
        if found.status != work.OK:
            return response(found)
        head = f'{{"took_s": {time.perf_counter() - began:.6f}, "cached": {"true" if known else "false"}, '
        return Response(head.encode() + found.body[1:], media_type=work.JSON, headers=JSON_HEADERS)

    async def catalog(self, request: Request) -> Response:
        """GET /api/catalog?kind=…"""
        kind = request.query_params.get("kind", "models")[:64]
        return await self._of_all(request, work.Question(kind="catalog", name=kind))

    async def examples(self, request: Request) -> Response:
        """GET /api/examples."""
        return await self._of_all(request, work.Question(kind="examples"))

    async def schema(self, request: Request) -> Response:
        """GET /api/schema."""
        return await self._of_all(request, work.Question(kind="schema"))

    async def _of_all(self, request: Request, question: work.Question) -> Response:
        found, _ = await self.replied(request, question, (question.kind, question.name), quick=True)
        return response(found)

    async def download(self, request: Request) -> Response:
        """GET /download/…"""
        name, asked = request.path_params["name"][:128], parsed(query_of(request))
        view = asked.word("view", "predict")
        words = (*WORDS_OF.get(view, ()), "view", "format", "version", "trainer")
        question = work.Question(kind="download", name=name, query=narrowed(asked, words))
        found, _ = await self.replied(request, question, ("download", name, question.query), quick=False)
        return response(found)

    async def start_search(self, request: Request) -> Response:
        """POST /api/search."""
        text = await body_of(request)
        asked = parsed(text)  # what cannot be asked is refused here, not by the process
        peer = request.client.host if request.client else ""
        client = client_of(request.headers, peer)
        query = narrowed(asked, ("objective", "top"))
        try:
            name = await asyncio.to_thread(self.searches.start, client, query)
        except RunningError:
            return JSONResponse(error("a search of yours is running; cancel it, or wait for it"), 409, JSON_HEADERS)
        return JSONResponse({"job": name}, 202, JSON_HEADERS)

    async def look(self, request: Request) -> Response:
        """GET /api/search/ID."""
        job = self.searches.job(request.path_params["name"])
        return Response(job.text(), media_type=work.JSON, headers=JSON_HEADERS)

    async def cancel(self, request: Request) -> Response:
        """DELETE /api/search/ID: its process is gone when this answers."""
        job = self.searches.job(request.path_params["name"])
        await asyncio.to_thread(job.cancel)
        return Response(job.text(), media_type=work.JSON, headers=JSON_HEADERS)


def response(found: work.Reply) -> Response:
    """A reply as a response; a download has the name that it is kept under, which no user writes."""
    headers = dict(JSON_HEADERS)
    if found.file:
        headers["content-disposition"] = (
            f'attachment; filename="{"".join(c for c in found.file if c.isalnum() or c in "._-")}"'
        )
    return Response(found.body, found.status, headers, found.media)


def narrowed(asked: Asked, words: tuple[str, ...]) -> str:
    """The canonical text of a question: its state, and the words that its answer depends on."""
    from urllib.parse import quote, urlencode

    more = [(key, value) for key in words for value in asked.words.get(key, ())]
    return "&".join(text for text in (asked.state.text(), urlencode(more, quote_via=quote)) if text)


def query_of(request: Request) -> str:
    """The query string as it came. Raises BadScenario for what is no ASCII."""
    try:
        return bytes(request.scope["query_string"]).decode("ascii")
    except UnicodeDecodeError:
        raise BadScenario("the address has characters that are not escaped") from None


class TooSlowError(Exception):
    """A body that does not arrive in its time."""


class TooLargeError(Exception):
    """A body beyond what is read."""


async def body_of(request: Request) -> str:
    """The body, bounded in bytes and in time. Raises TooLargeError, TooSlowError, GoneError, BadScenario."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or len(length) > 12 or int(length) > LARGEST:
        raise TooLargeError
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > LARGEST:
                    raise TooLargeError
    except TimeoutError:
        raise TooSlowError from None
    except ClientDisconnect:
        raise GoneError from None
    try:
        return found.decode("ascii")
    except UnicodeDecodeError:
        raise BadScenario("the body has characters that are not escaped") from None


async def unless_gone(request: Request, work_: Coroutine[Any, Any, work.Reply]) -> work.Reply:
    """The reply, unless whoever asked goes away: then the work is ended. Raises GoneError, and as the work does."""
    task, gone = asyncio.ensure_future(work_), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            raise GoneError
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()


async def _left(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def application(settings: Settings, ready: Callable[[], None] = lambda: None) -> Guard:
    """The whole application, to be served by one process; `ready` is called once its workers are there."""
    server = Server(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            await server.open()
        except Exception as trouble:  # the server's own words for it would be a traceback
            work.our_fault(trouble)
            await server.close()
            raise
        sweeping = asyncio.ensure_future(server.sweeping())
        try:
            ready()
            yield
        finally:
            sweeping.cancel()
            await server.close()

    page = files.Pages()
    routes = [
        Route("/", page.index, methods=["GET"]),
        Route("/static/{name:path}", page.static, methods=["GET"]),
        Route("/vendor/plotly.min.js", page.plotly, methods=["GET"]),
        Route("/api/numbers", server.numbers, methods=["GET"]),
        Route("/api/catalog", server.catalog, methods=["GET"]),
        Route("/api/examples", server.examples, methods=["GET"]),
        Route("/api/schema", server.schema, methods=["GET"]),
        Route("/api/search", server.start_search, methods=["POST"]),
        Route("/api/search/{name}", server.look, methods=["GET"]),
        Route("/api/search/{name}", server.cancel, methods=["DELETE"]),
        *(Route(f"/api/{view}", _view(server, view), methods=["GET"]) for view in VIEWS),
        Route("/download/{name}", server.download, methods=["GET"]),
    ]
    made = Starlette(routes=routes, lifespan=lifespan, exception_handlers=HANDLERS)
    made.router.redirect_slashes = False
    return Guard(made, settings.hosts, settings.most_at_once)


def _view(server: Server, view: str) -> Any:
    async def handler(request: Request) -> Response:
        request.path_params["view"] = view
        return await server.view(request)

    return handler


def _refused(_: Request, found: Exception) -> Response:
    status = 404 if isinstance(found, UnknownName) and found.kind == "search" else work.UNPROCESSABLE
    assert isinstance(found, ShardMeterError)  # noqa: S101  (registered for these)
    return response(work.refusal(found, status))


def _saying(status: int, says: str, **more: str) -> Any:
    def handler(_: Request, __: Exception) -> Response:
        return JSONResponse(error(says), status, JSON_HEADERS | more)

    return handler


def _status(_: Request, found: Any) -> Response:
    says = {404: "there is nothing under this address", 405: "this address is not asked in that way"}
    return JSONResponse(
        error(says.get(found.status_code, "not answered")), found.status_code, JSON_HEADERS | dict(found.headers or {})
    )


HANDLERS: dict[Any, Any] = {
    ShardMeterError: _refused,
    BusyError: _saying(503, "too many questions at once; ask again in a moment", **{"retry-after": "1"}),
    TooLongError: _saying(
        504, "the answer takes longer than it may here: ask for fewer points or a narrower range, or the command line"
    ),
    EndedError: _saying(
        503, "the process that answered has ended (short of memory?); ask for less", **{"retry-after": "1"}
    ),
    TooLargeError: _saying(413, f"more than {LARGEST:,} bytes; a scenario is smaller"),
    TooSlowError: _saying(408, f"the question did not arrive within {BODY_S:.0f} s", connection="close"),
    GoneError: _saying(499, "nobody waits for this answer any more"),
    404: _status,
    405: _status,
}

__all__ = ["Settings", "application", "hosts_of"]
