"""Writes the rows of runs across islands that ship with the package: numbers and canonical words, no prose.

    python scripts/condense_geo.py TABLES    from a directory with validation-dev.csv
    python scripts/condense_geo.py           only digests and residuals, from the rows that ship already

Rows that were not read in their source stay out, and so does every cell that is marked as from memory. A condensed row must
mean exactly what its original means: both are judged and compared, and the digest of every source's readings is stored, so
that a test can tell when a rule changes what a shipped row means. What the predictions of shipped rows miss is stored too: the
intervals of other rows are made of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from shardmeter.core.record import changed
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study.validate.geo.account import Judged, compare
from shardmeter.study.validate.geo.cells import COLUMNS, READERS, stated
from shardmeter.study.validate.geo.digest import digests, meaning
from shardmeter.study.validate.geo.identities import scope_of
from shardmeter.study.validate.geo.score import residuals
from shardmeter.study.validate.geo.vocabulary import kind_of_row, method_of, named, source_of
from shardmeter.study.validate.layout import read_table
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.rows import Row
from shipping import stop_if_moved, write, write_digests

DATA = Path(__file__).parent.parent / "src" / "shardmeter" / "data"
OUT = DATA / "geo"
LIMIT = 1_500_000
"""Bytes of all rows that ship, measured ones and these."""
LONGEST_LABEL = 80
"""Characters of a method's own text; a longer one is prose, and its canonical name stands for it."""
TITLES: Mapping[str, str] = {
    r"2501\.18512": "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch",
    r"2502\.12996": "Eager Updates For Overlapped Communication and Computation in DiLoCo",
    r"2503\.09799": "Communication-Efficient Language Model Training Scales Reliably and Robustly: Scaling Laws for DiLoCo",
    r"2412\.01152": "INTELLECT-1 Technical Report",
    r"2407\.07852": "OpenDiLoCo: An Open-Source Framework for Globally Distributed Low-Communication Training",
    r"2603\.08163": "Covenant-72B, read through an analysis of others",
    r"2604\.21428": "Decoupled DiLoCo for Resilient Distributed Pre-training",
    r"2401\.09135": "Asynchronous Local-SGD Training for Language Modeling",
    r"2505\.14065": "PCCL: the collective library of Prime Intellect",
    r"2410\.21680": "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
    r"2407\.21783": "The Llama 3 Herd of Models",
    r"tc_cluster_setting": "collectives under emulated delay and bandwidth on p3.2xlarge (2022)",
    r"Decentralized_FM_alpha": "training of GPT models under emulated delay and bandwidth on V100 (2022)",
}


def condensed(one: Judged) -> dict[str, str]:
    """One judged row in canonical words."""
    row = one.row
    cells = {column: number(row, column) for column in READERS}
    known = named(one.quantity) if one.quantity else None
    modelled = known is not None and not known.skip
    method = row.text("method") if len(row.text("method")) <= LONGEST_LABEL else method_of(row.text("method"))
    return cells | {
        "id": row.text("id"),
        "source": source_of(row.text("source")),
        "kind": kind_of_row(row.text("kind")).name,
        "method": method if modelled else method_of(row.text("method")),
        "model": row.text("model") if modelled else "",
        "gpu": row.text("gpu").partition(" (from memory")[0] if modelled else "",
        "quantity": quantity(one) if modelled else one.quantity,
        "unit": row.text("unit").partition(" (")[0],
        "notes": row.text("notes").partition(";")[0] if one.case else "",
    }


def quantity(one: Judged) -> str:
    """The text itself where it holds an input (a size, a rate, a share), else the canonical name and what part it is about."""
    text = one.row.text("quantity")
    return text if re.search(r"[0-9]", text) else f"{one.quantity} {scope_of(one.row)}".strip()


def number(row: Row, column: str) -> str:
    """A number, range or bound without remarks; empty for what is only remembered or kept elsewhere."""
    text = row.text(column)
    if column == "overlap_tau_steps" and text == "H":
        return text
    if "from memory" in text and "seen" not in text:
        return ""
    found = stated(row, column)
    if found is None:
        return ""
    share = " per island" if re.search(r"\bper (island|peer)", text) else "(up to)" if text.endswith("(up to)") else ""
    return f"{found.text}{share}"


def citation(source: str) -> str:
    """The source with its title, where one is known."""
    title = next((title for pattern, title in TITLES.items() if re.search(pattern, source)), "")
    return f"{title}; {source}" if title else source


def condense(tables: Path) -> None:
    """Write the shipped rows from the collected ones, and stop if one of them means something else."""
    judged = [
        one
        for one in compare(read_table(tables / "validation-dev.csv").rows, catalog_of(None), predict)
        if not kind_of_row(one.row.text("kind")).exclude
    ]
    write(OUT / "rows.csv", map(condensed, judged), COLUMNS)
    shipped = compare(read_table(OUT / "rows.csv").rows, catalog_of(None), predict)
    stop_if_moved([(a.id, full(a), full(b)) for a, b in zip(judged, shipped, strict=True)])
    keys = dict.fromkeys(source_of(one.row.text("source")) for one in judged)
    write(OUT / "sources.csv", ({"source": key, "citation": citation(key)} for key in keys), ("source", "citation"))


def full(one: Judged) -> str:
    """What a row means and what is predicted for it."""
    return f"{meaning(changed(one, source=source_of(one.source)))} {one.predicted!r} {one.left_out!r}"


def main() -> None:
    """Condense, if a directory of tables is named, and write digests and residuals."""
    if len(sys.argv) > 1:
        condense(Path(sys.argv[1]))
    judged = compare(read_table(OUT / "rows.csv").rows, catalog_of(None), predict)
    write_digests(OUT / "digests.csv", digests(judged))
    missed = [
        {"quantity": quantity, "fold": fold, "log_ratio": f"{miss:.9f}"}
        for quantity, pairs in residuals(judged).items()
        for fold, miss in pairs
    ]
    write(OUT / "residuals.csv", missed, ("quantity", "fold", "log_ratio"))
    size = sum(path.stat().st_size for folder in ("geo", "measured") for path in (DATA / folder).glob("*.csv"))
    print(f"{size:,} bytes in geo and measured")
    if size > LIMIT:
        sys.exit(f"more than {LIMIT:,} bytes")


if __name__ == "__main__":
    main()
