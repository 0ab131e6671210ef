"""Writes docs/lab.md from `scripts/lab_page.md`, the methods and a recorded report; `--check` only compares.

`python scripts/lab_page.py --record DIR` takes the report of DIR, a folder of `shardmeter lab run bundled`, into the record first."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import kept
from shardmeter.lab.report import report
from shardmeter.lab.scenarios import DONE, WAYS
from shardmeter.render import json_text, lab, markdown
from shardmeter.render.document import Facts, Notes, Table, told
from shardmeter.sync import method

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "lab.md"
TEXT = Path(__file__).parent / "lab_page.md"
RECORD = ROOT / "tests" / "lab" / "recorded" / "report.json"
NOTHING = "No run is recorded."
LEVEL = 3
SETTINGS = {
    "sizes": "bytes of each all-reduce, as in [1 MB, 16 MB]", "pause": "how long the line is idle before one more of each size",
    "steps": "steps, each of them a round, for each of `rounds` (10)", "bucket": "bytes of gradients that leave at once (25 MiB)",
    "schedule": "gpipe or 1f1b",
    "inner": "how workers of an island share a replica: ddp or fsdp2", "outer_rate": "rate of the outer step", "outer_momentum": "its momentum",
    "pull": "how far a pair is pulled to its mean", "reference": "false: no model is trained whole to compare with",
    "probe": "how far a probe moves", "samples": "of the variance; 0: not measured", "top_k": "experts that answer together",
}  # fmt: skip
"""What the lab's own words mean."""


def methods() -> str:
    """Every method, with what the engine knows it by and its own words."""
    lines = ["| method | in a scenario | meets | words of `sync` | words of `settings` |", "|---|---|---|---|---|"]
    placed = {
        "fsdp2": "`every_step`, `placement: {dp_shard}`",
        "pipeline": "`every_step`, `placement: {pp}`",
        "hsdp": "`every_step`, fsdp inside",
    }
    for name, way in WAYS.items():
        known = placed.get(name, f"`{way.sync}`" if way.sync else "none: a probe of gloo")
        meets = "every step" if way.stops else "never" if way.by_step else "in rounds"
        read = ", ".join(f"`{field}`" for field in method(way.sync).FIELDS if field in DONE) if way.sync else ""
        lines.append(f"| `{name}` | {known} | {meets} | {read} | {', '.join(f'`{word}`' for word in way.own)} |")
    used = [word for word in SETTINGS if any(word in way.own for way in WAYS.values())]
    return "\n".join(lines) + "\n\n" + "; ".join(f"`{word}`: {SETTINGS[word]}" for word in used) + "."


def condensed(data: Mapping[str, Any]) -> dict[str, Any]:
    """A report without what only its figures need."""
    found: dict[str, Any] = json.loads(json.dumps(json_text.envelope(data)))
    for one in found["experiments"]:
        one["loss"]["curve"], one["traffic"], one["alone"] = [], None, []
    return {**found, "figures": []}


def results() -> str:
    """The tables of the recorded report."""
    if not RECORD.exists():
        return NOTHING
    data = json.loads(RECORD.read_text(encoding="utf-8"))
    document = lab.document(data, short=True)
    parts = [f"{document.title}.", document.verdict]
    shown = [one for one in document.sections if isinstance(one, Table | Facts | Notes) and told(one)]
    return "\n\n".join([*parts, *(markdown.section_text(one, level=LEVEL) for one in shown)])


def page() -> str:
    """The whole page."""
    return TEXT.read_text(encoding="utf-8").replace("{methods}", methods()).replace("{results}", results())


def main() -> int:
    """Write the page, or check it; with `--record DIR` take a report into the record before."""
    if "--record" in sys.argv[1:]:
        folder = Path(sys.argv[sys.argv.index("--record") + 1])
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(condensed(report(folder).data), indent=1) + "\n", encoding="utf-8")
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
