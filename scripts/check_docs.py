"""Checks the hand-written pages: every relative link leads somewhere, every file named in backticks with a path exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:src|tests|docs|scripts|examples|bench)/[\w./-]+\.\w+)`")


def problems(page: Path) -> list[str]:
    """What is wrong with one page."""
    text = page.read_text(encoding="utf-8")
    found = [f"link to {target}" for target in LINK.findall(text) if not (page.parent / target).exists()]
    found += [f"`{target}` does not exist" for target in NAMED.findall(text) if not (ROOT / target).exists()]
    return [f"{page.relative_to(ROOT)}: {problem}" for problem in found]


def main() -> int:
    """Check every page; print what is wrong."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
    found = [problem for page in pages for problem in problems(page)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
