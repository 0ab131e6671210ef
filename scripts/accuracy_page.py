"""Writes docs/accuracy.md, and the table in README.md, from `shardmeter validate`; `--check` only compares."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmeter.render import markdown, validation
from shardmeter.study.validate import validate

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- accuracy: written by `make docs` -->\n).*?(<!-- end of accuracy -->)", re.DOTALL)
HEAD = """# Accuracy

Written by `make docs` from `shardmeter validate` (the measured runs that ship with the package); do not edit.

*Source left out* is the honest column: the stack's few numbers were refitted without the source that is being predicted.
*In sample* used all sources. Errors are means over sources, so that one paper with many rows does not speak for all.
Which rows do not count, and why, stands at the end.

Groups cut the same rows by stack, task, regime and layout. *layout* tells one stage (`pp=1`) from several (`pp>1`) and tensor
parallelism within a usual node of 8 (`tp<=8`) from wider (`tp>8`); rows on a software floor (*regime*) count in groups only. With
`--format json` every group has its sources under `by_source`.
"""


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    sections = validation.document(report).sections
    return HEAD + "\n" + "\n\n".join(markdown.section_text(section) for section in sections) + "\n"


def readme(report: Mapping[str, Any]) -> str:
    """README.md with its table replaced."""
    table = markdown.table_text(validation.metrics_table(report))
    return BLOCK.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", README.read_text(encoding="utf-8"))


def main() -> int:
    """Write the pages, or check them."""
    report = validate().to_dict()
    wanted = {PAGE: page(report), README: readme(report)}
    if "--check" not in sys.argv[1:]:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [
        path.name for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
