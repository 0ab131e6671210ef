"""Writes docs/accuracy.md, and the table in README.md, from `shardmeter validate`; `--check` only compares."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import closed
from shardmeter.core.record import changed
from shardmeter.render import Table, markdown, validation
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

* **Error** of a row: predicted/measured − 1. *In sample*, *source left out*: mean of its size. *Bias*: mean with its sign; below
  zero = predicted too fast. *Median*, *90th*: of its size. *Within 10 %*: share of the rows.
* **Source**: one paper, repository or page. **Stack**: one training software of one age.
* **Software floor** (`regime:floor`): runs of one published sweep on several nodes, with pipeline stages and tensor parallelism,
  whose time for a layer does not fall below a value that depends on `tp` alone, whatever the hardware could do: latency of the
  software, which this model does not have. They are scored apart and are not in the headline: what a plan of this kind takes is
  predicted far too short.
* **Wide tensor parallelism** (`tp>8`): more ranks than a usual node of eight holds, so that every layer waits for the fabric.
* **Runs across islands** (iteration time over slow links, collectives, bandwidth that a utilisation needs, …): their rows, words and
  arithmetic are in [geo.md](geo.md). Sources and groups of them name their quantity. *Source left out* means there: the emulated case left
  out, where constants were fitted.

Groups cut the same rows by stack, task, regime and layout (`pp=1`: one pipeline stage; `pp>1`: several). With `--format json`
every group has its sources under `by_source`.
"""
BESIDE = (
    ("regime:floor", "software floor (not in the headline)"),
    ("layout:pp=1,tp>8", "tp above 8, one pipeline stage"),
    ("layout:pp>1,tp>8", "tp above 8, several stages (floor rows among them)"),
)
"""Groups that do worst, shown beside the headline."""
NEXT = (
    "[Your own runs](validate.md): the same tables for a file of yours.",
    "[Why a measured number is another one](doctor.md) than the predicted.",
    "[What the model leaves out](formulas.md), formula by formula.",
)


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    first, *rest = validation.document(report).sections
    sections = (first, beside(report), *rest)
    return closed(HEAD + "\n" + "\n\n".join(markdown.section_text(section) for section in sections) + "\n", *NEXT)


def beside(report: Mapping[str, Any]) -> Table:
    """Step time where the model does worst."""
    groups = {title: report["by_group"][key] for key, title in BESIDE if key in report["by_group"]}
    table = validation.group_table({"by_group": groups})
    if table is None:
        raise SystemExit("the report has no groups")
    return changed(table, title="Beside it: step time where the model does worst")


def readme(report: Mapping[str, Any]) -> str:
    """README.md with its table replaced."""
    table = markdown.table_text(validation.metrics_table(report))
    worst = markdown.table_text(beside(report))
    table = f"{table}\n\nWhere it does worst (step time; the terms are defined in docs/accuracy.md):\n\n{worst}"
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
