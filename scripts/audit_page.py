"""Writes docs/audit.md from the conventions, quantities, identities and causes, with examples that are run; `--check` only compares."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pages import closed, kept
from shardmeter.cli import main as shardmeter
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.audit import factors, limits
from shardmeter.study.audit.conventions import CONVENTIONS, counted
from shardmeter.study.audit.identities import DENSE, IDENTITIES, SIX_N, TRAINED
from shardmeter.study.audit.quantities import ALL

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "audit.md"
SHOWN = ("llama-3.1-8b", "mixtral-8x7b", "gpt-oss-20b")
SEQ = 8192.0
WIDTH = "112"
HEAD = """# Auditing claims

Written by `make docs`; do not edit. Somebody states numbers of a run: an MFU, tokens/s, a batch, hours, a bill. `shardmeter audit` takes them as
claims and says what they imply of each other, which one cannot be, by which factor it is off, and what is likely to be behind that factor.

    shardmeter audit [SCENARIO or options] --claim NAME=VALUE …
    shardmeter.audit(scenario, claims={"mfu": "104 %"}, model=…, gpus=…)

* Nothing but claims is needed. `--model` alone gives FLOPs of a token (else 6·N of claimed `parameters`), `--gpus` or the claim `accelerator` alone
  the peak; where both are named, claims stand beside the prediction too, made with what is claimed of batch, sequence and degrees.
* A claim that is made twice (`--claim mfu=23.4% --claim mfu=74.13%`) is compared with itself.
* Every claim that the others imply is worked out again. Where two ways to a number differ by more than rounding, the claim whose absence leaves no
  contradiction is named; of several, the one that programs get wrong more often (an MFU before a batch). The page says what each other claim would
  have to be instead.
* The ratio is looked up among the causes below, the numbers of the run itself, the peaks of the catalog and the conventions of counting: the
  likeliest first, the others beside it. A whole number that nothing given has is told as such.
* Numbers that pass through a count of FLOPs may differ by 8 %: conventions do. Times may be 1.35 times those of the steps (checkpoints, restarts,
  evaluation), collectives 1.6 times the wire's.
* Impossible: more than the peak; memory below what states and claimed parts add up to; degrees that are no whole numbers; days that the calendar
  does not have. Beyond anything measured: more than 1.05 times the highest MFU among the runs that ship.

Exit code 0 when the claims agree (or nothing implies anything), 1 when one is impossible, beyond anything measured or contradicted, 2 when one
cannot be read. JSON: `verdict`, `consistent`, `claims[]` (`claim`, `value`, `unit`, `status`, `implied`, `implied_range`, `ratio`, `from[]`,
`through[]`, `integer`, `causes[]`, `would_be[]`), `implied[]`, `findings[]` (`kind`, `says`, `value`, `limit`, `readings[]`), `conventions[]`, `peaks[]`,
`predicted[]`, `figures[]`. Values are SI, shares fractions, accelerator-hours hours.

## Examples
"""
EXAMPLES = (
    ("An MFU above 100 %. The peak was a constant of another device.", "--claim mfu=104% --claim accelerator=H100-SXM5-80GB"),
    ("A blog divided by the peak of one accelerator.",
     "--model llama-2-70b --gpus 16xA100-SXM4-80GB --claim mfu=45.5% --claim 'wall_clock=13.5 h' --claim steps=500 --claim global_batch=16 --claim seq_len=2048"),
    ("`8 != 2 * 1 * 1`: a batch that does not multiply out.", "--claim global_batch=8 --claim micro_batch=2 --claim accumulation=1 --claim gpus=1"),
    ("A rate that is an eighth of what the batch and the step say.",
     "--claim tokens_per_s_per_gpu=1000 --claim tokens_per_step=1048576 --claim 'step_time=8.192 s' --claim gpus=16 --claim accumulation=8"),
    ("A bill.", "--claim 'price=$0.9/node/h' --claim 'wall_clock=1 d' --claim 'cost=$900'"),
)  # fmt: skip
NEXT = (
    "[What would explain a number](doctor.md) of a run that is yours to look into.",
    "[What measured runs reach](accuracy.md), by source.",
    "[What papers say of training over slow lines](zoo.md), taken apart.",
)


def run(line: str) -> str:
    """What the command prints on a page of fixed width."""
    out = io.StringIO()
    kept = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(out):
            shardmeter(["audit", *shlex.split(line)])
    finally:
        os.environ.pop("COLUMNS") if kept is None else os.environ.update(COLUMNS=kept)
    return "\n".join(text.rstrip() for text in out.getvalue().rstrip().split("\n"))


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *(f"| {line} |" for line in lines)])


def conventions() -> str:
    """Every convention with its formula, its source, and what it is of three models."""
    subjects = [counted(load_catalog().model(name), SEQ) for name in SHOWN]
    rows = []
    for one in CONVENTIONS:
        shares = [(value := one.count(subject)) and value / subject.own for subject in subjects]
        cells = tuple("" if share is None else f"{share:.3f}" for share in shares)
        rows.append(
            (f"`{one.key}`", one.formula, one.seen + (" (a mistake)" if one.mistake else ""), one.source, *cells)
        )
    return table(
        (
            "`--convention`",
            "FLOPs of a token",
            "where it is used, what it leaves out",
            "source",
            *(f"{name}" for name in SHOWN),
        ),
        rows,
    )


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for says, line in EXAMPLES:
        shown = line.replace(" --claim", " \\\n    --claim", 1) if len(line) > 90 else line
        parts.append(f"{says}\n\n```console\n$ shardmeter audit {shown}\n{run(line)}\n```\n")
    parts.append(
        "## Conventions\n\nAn MFU is a count of FLOPs over a peak, and there are many counts. The last columns are the count over mfu's at 8,192 tokens: the MFU "
        "that each prints is so many times ours. L layers, h hidden, H·Q width of all query heads, T sequence, V vocabulary, f width of the MLP, g of a "
        f"heads of keys and values; sources are keys of `data/citations.csv`.\n\n{conventions()}\n"
    )
    quantities = [(f"`{one.key}`", one.says, ", ".join(f"`{name}`" for name in one.aliases)) for one in ALL]
    parts.append(f"## Claims\n\n{table(('claim', 'what it is', 'also'), quantities)}\n")
    rules = "\n".join(
        f"* {one.says}" + (f" (up to {one.slack:g} times: {one.because})" if one.slack > 1.0 else "")
        for one in (*IDENTITIES, SIX_N, DENSE, TRAINED)
    )
    parts.append(f"## Identities\n\n{rules}\n")
    causes = [
        (row["key"], row["value"], row["of"].replace("|", ", "), row["above"], row["below"], row["source"])
        for row in factors.rows()
    ]
    parts.append(
        f"## Causes\n\n{table(('cause', 'factor', 'of', 'a claim is so many times too large', 'too small', 'seen in'), causes)}\n"
    )
    best = [
        (one.accelerator, one.precision, f"{one.gpus:g}", one.model, f"{100 * one.mfu:.1f} %", one.source)
        for one in limits.highest()
    ]
    parts.append(
        "## The highest measured\n\nBy mfu's count over the dense bf16 peak, on less than a node and on more "
        f"(`scripts/highest_mfu.py` reads it off the rows that ship).\n\n{table(('accelerator', 'precision', 'GPUs', 'model', 'MFU', 'source'), best)}\n"
    )
    return closed("\n".join(parts), *NEXT)


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
