"""What the scripts that write pages share: a page is written, or with `--check` compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def kept(page: Path, text: str) -> int:
    """Write a page; with `--check` compare it instead. The exit code: 1, and a word on standard error, for one that is stale."""
    if "--check" not in sys.argv[1:]:
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.name} is not what its script writes: run `make docs`", file=sys.stderr)
    return 1


def kept_all(folder: Path, texts: Mapping[Path, str]) -> int:
    """The same of many pages; a folder that is theirs alone holds no page besides: one that is there too is removed, or is stale."""
    stale = [page for page in sorted(folder.glob("*.md")) if page not in texts]
    for page in stale:
        if "--check" in sys.argv[1:]:
            print(f"{page.name} is written by no script: run `make docs`", file=sys.stderr)
        else:
            page.unlink()
    codes = [kept(page, text) for page, text in texts.items()]
    return max([0, *codes, int(bool(stale) and "--check" in sys.argv[1:])])


def closed(text: str, *ways: str) -> str:
    """A page with what its reader may do next at its end: a line each."""
    return "\n".join([f"{text.rstrip()}\n", "## What now\n", *(f"* {way}" for way in ways), ""])
