"""Rewrites tests/golden/report.md, one whole report as Markdown, and the part of it that docs/report.md shows, after a change that is meant:
`make bless`; `--check` only compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import shardmeter
from pages import kept
from shardmeter.render import paper_markdown
from shardmeter.render import report as page
from shardmeter.render.heading import heading

ROOT = Path(__file__).parent.parent
SCENARIO = ROOT / "examples" / "llama-8b-64xh100.yaml"
GOLDEN, PAGE = ROOT / "tests" / "golden" / "report.md", ROOT / "docs" / "report.md"
SHOWN = re.compile(
    r"(<!-- report: written by `make bless` -->\n```markdown\n).*?(```\n<!-- end of report -->)", re.DOTALL
)


def golden() -> str:
    """The report on the first example, without its pictures."""
    found = shardmeter.report(SCENARIO, deadline="30 d", date="2027-01-31")
    return paper_markdown.text(page.written(found.to_dict(), heading(found.scenario)), "report")


def shown(text: str) -> str:
    """docs/report.md with the summary of a report in it."""
    summary = text.partition("\n## 2. ")[0]
    return SHOWN.sub(lambda match: f"{match[1]}{summary}{match[2]}", PAGE.read_text(encoding="utf-8"))


def main() -> int:
    """Write both, or check them."""
    text = golden()
    return max(kept(GOLDEN, text), kept(PAGE, shown(text)))


if __name__ == "__main__":
    sys.exit(main())
