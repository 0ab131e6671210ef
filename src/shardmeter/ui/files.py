"""The files of the page: its own, and plotly's script out of the installed package. Only files that were there at the start are served."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

from shardmeter.core.errors import Unavailable

if TYPE_CHECKING:
    from starlette.requests import Request

TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2", ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8", ".webmanifest": "application/manifest+json",
}  # fmt: skip
PLOTLY = "package_data/plotly.min.js"
GZIP = 31
"""`wbits` of a gzip stream."""
KEPT = {"cache-control": "no-cache"}
"""A browser asks whether what it has is still right; a tag answers that."""


def plotly_file() -> Path:
    """The script of the installed plotly; it is not imported. Raises Unavailable where there is none."""
    found = find_spec("plotly")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        file = Path(place) / PLOTLY
        if file.is_file():
            return file
    raise Unavailable("the page needs plotly: pip install 'shardmeter[ui]'")


class Pages:
    """The files by their names; a path that is asked for is looked up, never followed."""

    def __init__(self) -> None:
        folder = Path(str(resources.files("shardmeter.ui"))) / "static"
        found = folder.rglob("*") if folder.is_dir() else ()
        self._files = {
            file.relative_to(folder).as_posix(): file for file in found if file.is_file() and file.suffix in TYPES
        }
        self._plotly = plotly_file()
        self._packed: bytes | None = None

    async def index(self, request: Request) -> Response:
        """GET /"""
        return self._served(request, "index.html")

    async def static(self, request: Request) -> Response:
        """GET /static/…"""
        return self._served(request, request.path_params["name"])

    async def plotly(self, request: Request) -> Response:
        """GET /vendor/plotly.min.js: packed where the browser takes that, a quarter of the bytes through a tunnel."""
        status = self._plotly.stat()
        tag = f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
        headers = {"cache-control": "max-age=86400", "etag": tag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            body = await asyncio.to_thread(self._plotly.read_bytes)
            return Response(body, headers=headers, media_type=TYPES[".js"])
        if self._packed is None:
            self._packed = await asyncio.to_thread(_packed, self._plotly)
        return Response(self._packed, headers=headers | {"content-encoding": "gzip"}, media_type=TYPES[".js"])

    def _served(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        headers = KEPT | {"etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=TYPES[file.suffix])


def _packed(file: Path) -> bytes:
    machine = zlib.compressobj(level=6, wbits=GZIP)
    return machine.compress(file.read_bytes()) + machine.flush()
