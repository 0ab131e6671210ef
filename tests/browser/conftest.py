"""A real browser and a real server: one of each for all tests of a process. Whatever a page asks of another host, says on its console or
leaves unanswered fails the test that opened it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest

Page: TypeAlias = Any
Opener: TypeAlias = Callable[..., Page]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NEEDS = ("playwright", "starlette", "uvicorn", "plotly")
ANSWERED = "#answer:not(.empty):not(.stale):not([aria-busy])"


def _chromium() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `shardmeter ui` serves the page."""
    absent = [name for name in NEEDS if find_spec(name) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)} (scripts/browser_setup.sh)")
    if _chromium() is None:
        pytest.skip("no chromium (scripts/browser_setup.sh)")
    words = [sys.executable, "-m", "shardmeter", "ui", "--no-open", "--port", "0"]
    source = str(Path(__file__).parents[2] / "src")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    told = tmp_path_factory.mktemp("server") / "stderr"
    with (
        told.open("w") as errors,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as server,
    ):
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("the page is at http"), told.read_text()
        yield line.split()[4].rstrip("/")
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="session")
def browser(origin: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, origin: str) -> Iterator[Opener]:
    """Opens the page on a question: `opened(query, width=…, scheme=…, refused=True where the server is to say no)`."""
    contexts, said, elsewhere = [], list[str](), list[str]()

    def open_page(
        query: str = "",
        *,
        width: int = 1280,
        height: int = 860,
        scheme: str = "light",
        refused: bool = False,
        **more: Any,
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        expected = ("the server responded with a status of 422",) if refused else ()
        page.on(
            "console",
            lambda one: (
                said.append(one.text) if one.type == "error" and not any(w in one.text for w in expected) else None
            ),
        )
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda one: elsewhere.append(one.url) if _leaves(one.url, origin) else None)
        page.goto(f"{origin}/?{query}" if query else origin)
        page.wait_for_selector("#problems .refusal" if refused else ANSWERED)
        page.wait_for_selector("#fields fieldset", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert elsewhere == []


def _leaves(url: str, origin: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != origin


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits until an expression of the page is true; asked from outside, as the page's policy lets no text be run in it."""

    def wait(page: Page, expression: str, arg: object = None, *, seconds: float = 15.0) -> None:
        end = time.monotonic() + seconds
        while not page.evaluate(expression, arg):
            assert time.monotonic() < end, f"not within {seconds:g} s: {expression}"
            time.sleep(0.03)

    return wait


@pytest.fixture
def asked(origin: str) -> Callable[[str], Any]:
    """The JSON under a path of the server."""
    import json
    from urllib.request import urlopen

    def ask(path: str) -> Any:
        with urlopen(f"{origin}{path.replace(' ', '%20')}", timeout=20) as answer:
            return json.load(answer)

    return ask
