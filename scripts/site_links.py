"""Checks a built site: every link between its pages leads to a page and a place on it, links elsewhere are well formed, and nothing is loaded
from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"img": ("src", "srcset"), "script": ("src",), "link": ("href",), "iframe": ("src",), "source": ("src", "srcset"), "video": ("src",),
    "audio": ("src",), "object": ("data",), "embed": ("src",), "use": ("href", "xlink:href"), "image": ("href", "xlink:href"), "form": ("action",)}  # fmt: skip
"""What a browser fetches without being asked (or where it sends what is typed)."""
STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")
SCRIPT = re.compile(r"(?:fetch|import|importScripts|open|Worker)\(\s*['\"]((?:https?:)?//[^'\"]+)")
HOST = re.compile(r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", re.IGNORECASE)


@dataclass
class Seen:
    """What stands on a page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note anchors, links and loads."""
        said = {name: value for name, value in attrs if value}
        self.seen.anchors |= {said[name] for name in ("id", "name") if name in said}
        if tag == "a" and "href" in said:
            self.seen.links.append(said["href"])
        for name in LOADS.get(tag, ()):
            if name in said:
                self.seen.loads += (
                    [part.split()[0] for part in said[name].split(",")] if name == "srcset" else [said[name]]
                )
        self.seen.loads += STYLE.findall(said.get("style", ""))


def problems(site: Path) -> list[str]:
    """What is wrong with a site, a sentence each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [problem for path, seen in pages.items() for problem in _of_page(site, path, seen, pages)]
    for path in sorted([*site.rglob("*.css"), *site.rglob("*.js"), *site.rglob("*.svg")]):
        text = path.read_text(encoding="utf-8")
        found += [
            f"{path.relative_to(site)}: would load {url}"
            for url in (STYLE if path.suffix != ".js" else SCRIPT).findall(text)
        ]
    return found


def _read(path: Path) -> Seen:
    reader = _Reader()
    text = path.read_text(encoding="utf-8")
    reader.feed(text)
    for style in re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL):
        reader.seen.loads += STYLE.findall(style)
    return reader.seen


def _of_page(site: Path, path: Path, seen: Seen, pages: dict[Path, Seen]) -> Iterator[str]:
    name = path.relative_to(site)
    for url in seen.loads:
        if urlsplit(url).netloc:
            yield f"{name}: would load {url}"
        elif not url.startswith(("data:", "#")) and _missing(path, url, pages):
            yield f"{name}: loads {url}, which is not there"
    for url in seen.links:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            if parts.scheme not in {"http", "https"} or not HOST.match(parts.hostname or ""):
                yield f"{name}: {url} is no address"
        elif wrong := _missing(path, url, pages):
            yield f"{name}: {wrong}"


def _missing(path: Path, url: str, pages: dict[Path, Seen]) -> str:
    """Why a link within the site leads nowhere; empty where it leads somewhere."""
    parts = urlsplit(url)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return f"link to {url}: there is no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"link to {url}: no such place on that page"
    return ""
