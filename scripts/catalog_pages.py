"""Writes the catalog (docs/catalog.md and a page for each kind of row under docs/catalog) from the rows that ship; `--check` fails when a page is
not what would be written.

Rows stand as they are written, units and all; only the parameters of models are counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pages import kept_all
from shardmeter import data
from shardmeter.families import active_parameters, parameters
from shardmeter.render.cells import text
from shardmeter.render.listing import SHOWN
from shardmeter.scenario.catalog import Catalog, load_catalog
from shardmeter.scenario.tables import KINDS

DOCS = Path(__file__).parent.parent / "docs"
WRITTEN = "Written by `make docs` from the rows that ship; do not edit."
SAYS = {
    "accelerators": ("Accelerators", "What a device computes, moves and keeps. Peaks are dense. `gpus: 64xNAME`."),
    "fabrics": ("Fabrics", "Networks between nodes; a rate is of one accelerator each way. `fabric: NAME`."),
    "instances": ("Instances", "Machines that clouds rent, with accelerators, fabric and prices of their date. `instance: NAME`."),
    "models": ("Models", "What is trained. Parameters are counted from the shape of the model. `model: NAME`."),
    "stacks": ("Software stacks", "Training software: facts about its code, and at most four numbers fitted to measured runs. `stack: NAME`."),
    "regions": ("Regions", "Where clouds have machines: round trips follow from the distance where nothing was measured. `region: NAME`."),
    "links": ("Kinds of lines", "Lines between islands, sites and round trips by name. `wan: {default: {preset: NAME}}`."),
    "pairs": ("Measured pairs of regions", "What was measured between two regions; it is taken for islands that stand there."),
    "egress": ("Prices of traffic", "What leaves a cloud costs, by provider, continent and where it goes."),
    "grids": ("Electricity grids and halls", "Carbon of a kilowatt-hour, and what a hall draws beside its machines."),
    "storage": ("Storage", "What keeping checkpoints and data costs."),
    "laws": ("Laws of loss", "Loss by parameters and tokens, and where it was fitted. `run.law: NAME`."),
    "critical_batches": ("Critical batches", "From which batch on more sequences a step teach less each. `run.critical_batch: NAME`."),
    "failures": ("Failures", "How often machines fail or are taken away. `run.failures: NAME`, `preemption: NAME`."),
}  # fmt: skip
"""Title of each kind, and what its rows are for."""
MORE = {
    "accelerators": ("peak_fp8", "power"),
    "instances": ("spot",),
    "models": ("experts", "top_k"),
    "stacks": ("fitted_on", "fitted_date"),
}
"""Columns beside those that `shardmeter catalog` shows."""
HEAD = f"""# Catalog

{WRITTEN} Rows were last brought up to date on {data.DATA_DATE}.

What a scenario can name: {{rows}} rows of {{kinds}} kinds. `shardmeter catalog KIND` lists them, `shardmeter catalog KIND NAME` shows every
field of one. Rows of your own win over these: [more rows](scenario.md#more-rows). Each row says where it comes from, and when that was
read; what is not known stays blank.

| kind | rows | what they are |
| --- | ---: | --- |
"""
NEXT = """## What now

* [Name them in a scenario]({base}scenario.md), or [bring rows of your own]({base}scenario.md#more-rows).
* [Measure the machine that you have]({base}measure.md): rows for it come out.
* [How the numbers are used]({base}formulas.md): the formula book.
"""


def pages() -> dict[Path, str]:
    """Every page of the catalog, by its file."""
    catalog = load_catalog()
    found = {DOCS / "catalog" / f"{slug(kind)}.md": page(kind, catalog) for kind in KINDS}
    lines = []
    for kind in KINDS:
        title, says = SAYS[kind]
        lines.append(_line((f"[{title}](catalog/{slug(kind)}.md)", f"{len(catalog.rows(kind))}", says)))
    head = HEAD.format(rows=f"{sum(len(catalog.rows(kind)) for kind in KINDS):,}", kinds=len(KINDS))
    found[DOCS / "catalog.md"] = "\n".join([head + "\n".join(lines), "", NEXT.format(base="")])
    return found


def slug(kind: str) -> str:
    """The page of a kind."""
    return kind.replace("_", "-")


def page(kind: str, catalog: Catalog) -> str:
    """The page of one kind: its rows, what is said of them, where they come from."""
    rows = catalog.rows(kind)
    title, says = SAYS[kind]
    sources = list(dict.fromkeys(row["source"] for row in rows if row.get("source")))
    shown = [
        key for key in (*SHOWN[kind], *MORE.get(kind, ())) if any(row.get(key) for row in rows) or key == "parameters"
    ]
    columns = [*shown, "source", *(["retrieved"] if "retrieved" in rows[0] else [])]
    body = [_row(kind, row, shown, sources, catalog) for row in rows]
    right = ["---:" if all(_numeric(line[at]) for line in body) else "---" for at in range(len(columns))]
    parts = [
        f"# {title}", f"{WRITTEN} All kinds: [catalog](../catalog.md).", says,
        f"{len(rows)} rows. *source* is the number of an entry [below](#sources); `shardmeter catalog {kind} {rows[0]['name']}` shows every field of one.",
        "\n".join([_line(key.replace("_", " ") for key in columns), _line(right), *map(_line, body)]),
        *_notes(rows), "## Sources", "\n".join(f"{number}. {_marked(source)}" for number, source in enumerate(sources, 1)),
    ]  # fmt: skip
    return "\n\n".join([*parts, NEXT.format(base="../")])


def _row(
    kind: str, row: Mapping[str, str], shown: Sequence[str], sources: Sequence[str], catalog: Catalog
) -> list[str]:
    told = dict(row)
    if kind == "models":
        model = catalog.model(row["name"])
        whole, active = int(parameters(model)), int(active_parameters(model))
        told["parameters"] = _size(whole) if active == whole else f"{_size(whole)} ({_size(active)} active)"
    number = f"{sources.index(row['source']) + 1}" if row.get("source") else ""
    cells = [f"`{told[key]}`" if key == "name" else _marked(told.get(key, "")) for key in shown]
    return [*cells, number, *([row["retrieved"]] if "retrieved" in row else [])]


def _size(count: int) -> str:
    return text(float(count), "tokens").removesuffix(" tokens")


def _numeric(cell: str) -> bool:
    return not cell or re.fullmatch(r"[$]?[\d.,e+-]+ ?(?:%|[A-Za-z]{1,5}(?:/[a-z]{1,5})*|[KMBT])?", cell) is not None


def _notes(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Other names and remarks, of the rows that have some."""
    lines = []
    for row in rows:
        others = [name for name in (row.get("aliases") or "").split("|") if name]
        also = f" (also {', '.join(f'`{name}`' for name in others)})" if others else ""
        says = f": {_marked(row['notes'])}" if row.get("notes") else ""
        if also or says:
            lines.append(f"* **{_marked(row['name'])}**{also}{says}")
    return ["## Other names and remarks", "\n".join(lines)] if lines else []


def _marked(said: str) -> str:
    """A text whose signs are no Markdown."""
    return re.sub(r"([*<|\[\]])", r"\\\1", said)


def _line(items: Iterable[str]) -> str:
    return f"| {' | '.join(items)} |"


def main() -> int:
    """Write the pages, or check them."""
    return kept_all(DOCS / "catalog", pages())


if __name__ == "__main__":
    sys.exit(main())
