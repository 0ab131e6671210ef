"""What the scripts that write pages share: a page is written, or with `--check` compared."""

from __future__ import annotations

import sys
from pathlib import Path


def kept(page: Path, text: str) -> int:
    """Write a page; with `--check` compare it instead. The exit code: 1, and a word on standard error, for one that is stale."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.name} is not what its script writes: run `make docs`", file=sys.stderr)
    return 1
