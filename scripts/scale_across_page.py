"""Writes the study of docs/scale-across.md and its pictures: the answer of one command, for several minutes of one core."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import shardmeter
from shardmeter.render import markdown
from shardmeter.render import scale_across as page
from shardmeter.render.document import Table
from shardmeter.render.scale_across_words import first, gain

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scale-across.md"
FIGURES = ROOT / "docs" / "figures"
BLOCK = re.compile(r"(<!-- study: written by .*? -->\n).*?(<!-- end of study -->)", re.DOTALL)
STUDY = {"model": "llama-3.1-405b", "gpus": "32768xH100-SXM5-80GB", "global_batch": "4096"}
HALF = {**STUDY, "global_batch": "2048"}
"""The same cluster with half the work in a step."""
OVER = {"model": ["llama-3.1-405b", "deepseek-v3"], "buildings": "2,4,8", "gpus": "8192,16384,32768"}


def main() -> int:
    """Write the table, the words and the pictures."""
    from shardmeter.render.plot import picture

    answer = shardmeter.scale_across(None, OVER, buildings=4, **STUDY).to_dict()
    half = shardmeter.scale_across(None, buildings=4, **HALF).to_dict()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), answer, half), encoding="utf-8")
    for figure in page.figures(answer):
        (FIGURES / f"scale-across-{figure.slug}.svg").write_bytes(picture(figure, "svg"))
    return 0


def written(text: str, answer: dict[str, Any], half: dict[str, Any]) -> str:
    """The page with what the study says: its headline, a row a cluster, the pictures, where published maxima are reached, the batch."""
    made = page.document(answer)
    tables = [section for section in made.sections if isinstance(section, Table)]
    clusters = next(table for table in tables if table.title == page.CLUSTERS)
    pictures = [f"![{figure.title}](figures/scale-across-{figure.slug}.svg)" for figure in page.figures(answer)]
    says = "\n".join(f"* {first(line)}" for line in (*answer["published"]["says"], batch(answer, half)))
    block = "\n\n".join([made.verdict, markdown.table_text(clusters), *pictures, says])
    return BLOCK.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)


def batch(answer: dict[str, Any], half: dict[str, Any]) -> str:
    """What half the work in a step does to the gains of one cluster."""
    (other,) = half["cases"]
    same = next(
        case for case in answer["cases"] if all(case[name] == other[name] for name in ("model", "buildings", "gpus"))
    )
    usual, less = (max(point["speedup"]["joint"]["value"] for point in case["points"]) for case in (same, other))
    counts = [f"{int(asked['global_batch']):,}" for asked in (STUDY, HALF)]
    why = ": the shorter a step computes, the less hides behind it" if less > usual else ""
    return (
        f"With {counts[1]} sequences in a step instead of {counts[0]}, {page.cluster(other)} gains up to {gain(less)} instead of "
        f"{gain(usual)}{why}"
    )


if __name__ == "__main__":
    sys.exit(main())
