"""Writes docs/runs.md from the words of the mapping, the fitted factors and the rows that ship; `--check` only compares."""

from __future__ import annotations

import csv
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pages import closed, kept
from shardmeter import data
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study import practice
from shardmeter.study.validate import shipped
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.runs import account, architecture, report, software
from shardmeter.study.validate.runs.account import Judged
from shardmeter.study.validate.runs.words import KINDS, NOT_MEASURED

TEMPLATE = Path(__file__).parent.parent / "examples" / "runs-template.csv"
PAGE = Path(__file__).parent.parent / "docs" / "runs.md"
NAMED = ("llama3.1-405B", "bloom-176b", "deepseek-v3")
COUNTED = "deepseek-v3"
"""The run whose error hangs most on how its hours were counted."""
WORST = 12
WHY = {
    "roberta-base-recipe": "an eager trainer of 2019 on 1,024 V100, which no stack here is; the hours are a day, roughly",
    "openclip-l14-l400m": "two towers: the input of images is not modelled",
    "openclip-l14-l2b": "two towers: the input of images is not modelled",
    "openclip-b32-l400m": "two towers: the input of images is not modelled",
    "llama3.1-8B": "neither batch nor accelerators are stated, and the tokens are a lower bound",
    "llama3-8B": "neither batch nor accelerators are stated, and the tokens are a lower bound",
    "granite3-8b": "batch and layout are not stated; the numbers of accelerators of its two sizes look swapped",
    "granite3-2b": "batch and layout are not stated; the numbers of accelerators of its two sizes look swapped",
    "granite-13b": "at its own 120 TFLOP/s it would take 705 of the 1,056 hours: the rest is no steps",
    "falcon2-11b": "neither batch nor sequence is stated",
    "openeurollm-2b-en": "read as hours of modules, as LUMI bills; by devices it would be 20 % too long. Products of MI250X are not measured here",
    "jetmoe-8b": "batch and degrees are not stated; a mixture in a Megatron of its time",
    "falcon-180b": "the hours have one digit; others tell of more than twice as many",
    "openelm-3b": "layers of unlike width in an eager trainer",
    "openelm-450m": "layers of unlike width in an eager trainer",
    "llama1-7B": "accelerators and layout are not stated; faster than its class",
    "llama1-65B": "layout not stated; faster than its class",
    "llama2-7B": "accelerators and layout are not stated; its hours are half of 13B's to the digit",
    "smollm3-3b": "faster than its class: its stack was fitted on runs of the same trainer",
}
"""What is known of the rows that are predicted worst."""
HEAD = """# Whole training runs

Written by `make docs`; do not edit. `shardmeter validate FILE` reads a file with the column `accel_hours` as whole runs: what was known
before a run is made a scenario, and its accelerator-hours are compared. This page tells how rows are read, what classes of runs take
beyond their steps, and how far off the predictions are.

Start from [the template](../examples/runs-template.csv), a header and one row (made up); what it leaves out is filled in, and said:

```csv
{template}```

The page has what was measured and predicted, the interval and the error of each row where a file scores up to 20; JSON and CSV have all.
Amounts are written as in every other file: `8030000000`, `8.03e9`, `8.03B`, `1.5T`, `4M`.

| column | what it holds |
|---|---|
| `run_id`, `org`, `tier` | name of the row and its maker: rows of one maker whose names begin with the same letters are one *source*; `A`: tokens, hardware and hours are explicit; errors are those of tier A (of all rows where no tier is stated), other tiers are groups of their own |
| `model`, `params_total`, `params_active`, `arch_notes` | which model: by name where the catalog has it at that size, else a nominal one of that size |
| `kind` | pretrain, sft, dual-encoder, … (below) |
| `data_seen`, `data_unit`, `steps` | tokens, or samples of a fixed size; left out: steps × batch |
| `seq_len` | `4096`, `8k`, `128 (90 %) / 512 (10 %)` or `2048 (1T) then 8192 (50B)` (each length a part of the run), `256 image + 128 text` (one sequence) |
| `global_batch`, `global_batch_unit` | `2048` sequences, `4M` tokens, `4Mi -> 16Mi`: a ramp is taken at its end |
| `accelerator`, `n_accel` | what it ran on; hours of MI250X are those of modules of two devices unless it says GCD |
| `framework`, `date`, `precision` | the software of that time |
| `parallel_layout` | `TP8 PP16 DP128`, `ZeRO-1`, `FSDP`, `HSDP`, `EP64`; what it leaves open is searched |
| `accel_hours`, `accel_hours_kind` | the measurement, and how it was counted |

**Not read** for a prediction: days, rates, FLOP/s, utilisation, energy, costs. A rate only tells rows that contradict themselves and
identities (hours that are data over a measured rate of the same run: checked to 0.5 %, never scored). Energies and dollars that are hours times
a figure are not compared.

Hours = steps × step time × accelerators, of every part of the run, as `predict` adds them without interruptions, × the factor of the
class. Where the layout is published its degrees are kept and the fastest plan that fits is taken; where it is not, tensor parallelism
up to a node, a few numbers of stages, micro-batches and shardings of the lineage are searched, recomputing as little as fits (a search narrower
than `plan: auto`: a row takes some hundredths of a second). A published plan that by this model lacks memory is predicted all the same, and said.
Before 2023 the Megatron lineage recomputes layers whole or not at all and shards no activations over the tensor axis; GPT-NeoX recomputes
all; FSDP under a pipeline gathers once a step.

Where a row is silent: `seq_len` 2,048 until mid-2023, 4,096 later; a batch of GPT-3's table until 2022, 4M tokens later (0.5M up to 1B
parameters); `n_accel` the power of two that gives each 8,192 tokens of a step, from 8 to 2,048.
"""
PRACTICE = """## What runs take beyond their steps

Evaluation, restarts, ramps, input, machines that wait: the ratio of the hours that were counted to the hours of the steps. Few classes, told
from what is known before a run, the first that fits; factor = exp(mean over sources of log(measured / predicted) × n / (n + {shrink:g})), n sources, kept
within {low:g} and {high:g} (`physics/practice.py`, after Efron and Morris 1975): a class of few sources stays near 1. Fitted on tier A
(`data/runs/practice.csv`, {date}; `make fit`); **every row is predicted with the factor that has not seen its source**.
`predict` has checkpoints, failures and evaluation as terms of their own ([failures.md](failures.md)), and the factor is in none of its figures. Where
a `deadline` or a `budget` is asked of a run of which nothing is said that interrupts it, it says beside the answer of the steps what runs of the
class took: the factor, its 90 % interval from the residuals of tier A (`data/runs/residuals.csv`), and how likely that keeps the limit.
"""
NEXT = (
    "[A file of your own runs](validate.md) in these columns.",
    "[What interrupts a run](failures.md), and what it costs.",
    "[Seconds of steps](accuracy.md), which these hours are made of.",
)


def page() -> str:
    """The whole page."""
    judged = account.compare(shipped.whole().rows, catalog_of(None), predict)
    parts = [
        HEAD.format(template=TEMPLATE.read_text(encoding="utf-8")),
        f"## Models\n\n{prose(architecture.__doc__)}\n",
        f"## Software\n\n{prose(software.__doc__)}\n",
        "## Kinds\n\nThe first pattern that is found decides, in `kind` and then in the model's name.\n",
        table(
            ("kind", "words", "becomes"),
            ((one.name, f"`{one.pattern}`", becomes(one.skip, named=one.named)) for one in KINDS),
        ),
        "\nHours that nobody measured do not count:\n",
        table(("words of `accel_hours_kind`", "why"), ((f"`{pattern}`", why) for pattern, why in NOT_MEASURED)),
        "\n" + practice_text(),
        classes(judged),
        f"\n## How far off\n\n{summary(judged)}\n",
        table(
            ("run", "measured, h", "predicted, h", "error", "90 % interval, h"),
            (line(one) for one in judged if one.id in NAMED),
        ),
        "\n" + caution(judged),
        "\n### Farthest off\n",
        table(("run", "tier", "class", "error", "what is known of it"), worst(judged)),
        "\n### Every run that is compared\n",
        table(
            ("run", "tier", "class", "measured, h", "predicted, h", "error", "plan"),
            (everything(one) for one in judged if one.steps is not None),
        ),
        "\n## Rows that are not compared\n",
        table(("rows", "becomes", "why"), fates(judged)),
    ]
    return closed("\n".join(parts) + "\n", *NEXT)


def prose(text: str | None) -> str:
    """A module's own words, without their first line, spaces at ends and the marks of code."""
    return (text or "").partition("\n")[2].strip()


def becomes(skip: str, *, named: bool) -> str:
    """What happens to a kind."""
    return f"skipped: {skip}" if skip else "predicted if the catalog has the model" if named else "predicted"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def caution(judged: Sequence[Judged]) -> str:
    """What the classes rest on, with the run that shows it."""
    one = next(one for one in judged if one.id == COUNTED)
    other = practice.factor(practice.HOPPER, one.source) * (one.steps or 0.0) / one.measured - 1.0
    return (
        "**How blind this is.** Factors have not seen the source of the row, but the split into classes was drawn by one who had seen the "
        "errors of these rows, and it matters: the hours of DeepSeek-V3 are published by the trillion of tokens, which is the time of "
        f"steps alone; counted as any other run of its time (`hopper`) it would be {100.0 * other:+.0f} %. A layout that the collection "
        "marks as remembered is used and named in the column `unverified`. Four rules are written from what is remembered of papers and "
        "configurations, not read here: GPT-NeoX recomputes all layers; HAI-LLM copies a token once a node and keeps 20 of 132 "
        "multiprocessors for it; CLIP at 336 pixels was trained at 224 before a last epoch; hours of MI250X are billed by modules."
    )


def practice_text() -> str:
    """How factors are made, with their numbers."""
    with data.open_text(practice.FILE) as file:
        date = next(csv.DictReader(file))["date"]
    return PRACTICE.format(shrink=practice.SHRINK, low=practice.BOUNDS[0], high=practice.BOUNDS[1], date=date)


def classes(judged: Sequence[Judged]) -> str:
    """Factors and errors of the classes."""
    rows = []
    for name, says in practice.CLASSES.items():
        own = [one for one in judged if one.steps is not None and one.practice == name and one.tier == report.COUNTED]
        values = [value for (kind, _), value in practice.table().items() if kind == name]
        plain = [abs(one.steps / one.measured - 1.0) for one in own if one.steps]
        rows.append(
            (
                name, says, str(len({one.source for one in own})), str(len(own)), f"{percent(median(own))}", f"{percent(float(np.median(plain)))}",
                f"{practice.factor(name):.2f}", f"{min(values):.2f} to {max(values):.2f}",
            )
        )  # fmt: skip
    head = (
        "class",
        "runs",
        "sources",
        "rows",
        "median error, source left out",
        "the same without a factor",
        "factor",
        "one source left out",
    )
    return table(head, rows)


def median(own: Iterable[Judged]) -> float:
    """Median size of the error of rows."""
    return float(np.median([abs(one.predicted / one.measured - 1.0) for one in own if one.predicted is not None]))


def percent(value: float) -> str:
    """A share as people write it."""
    return f"{100.0 * value:.0f} %"


def summary(judged: Sequence[Judged]) -> str:
    """The error of every tier in one sentence."""
    found = report.scores(judged)
    parts = []
    for tier in sorted({one.tier for one in judged}):
        ids = {one.id for one in judged if one.tier == tier}
        own = [one for one in found if one.id in ids]
        if own:
            sizes = [abs(one.error) for one in own]
            inside = [
                one.low is not None and one.high is not None and one.low <= one.measured <= one.high for one in own
            ]
            parts.append(
                f"Tier {tier}, {len(own)} rows: median error {percent(float(np.median(sizes)))}, mean {percent(float(np.mean(sizes)))}, "
                f"{percent(float(np.mean(inside)))} of them within their 90 % interval."
            )  # fmt: skip
    return "Each row by the factor without its source.\n\n" + "\n".join(f"* {part}" for part in parts)


def line(one: Judged) -> tuple[str, ...]:
    """One row with its interval."""
    score = report.scores([one])[0]
    ends = f"{score.low or 0.0:,.0f} to {score.high or 0.0:,.0f}"
    return one.id, f"{one.measured:,.0f}", f"{score.predicted:,.0f}", f"{100 * score.error:+.0f} %", ends


def worst(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    """The rows that are farthest off, with what is known of them."""
    scored = [(abs(math.log(one.predicted / one.measured)), one) for one in judged if one.predicted is not None]
    ordered = [one for _, one in sorted(scored, key=lambda pair: -pair[0])][:WORST]
    return [(one.id, one.tier, one.practice, error(one), WHY.get(one.id, "")) for one in ordered]


def error(one: Judged) -> str:
    """Predicted over measured, less one."""
    return f"{100.0 * ((one.predicted or 0.0) / one.measured - 1.0):+.0f} %"


def everything(one: Judged) -> tuple[str, ...]:
    """One compared row with its plan."""
    hours = [f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}" for value in (one.measured, one.predicted or 0.0)]
    return one.id, one.tier, one.practice, *hours, error(one), "; ".join(one.plans)


def fates(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    """How many rows are not compared, and why."""
    counts = Counter(
        ("skipped", one.skip)
        if one.skip
        else ("excluded", one.exclude)
        if one.exclude
        else ("an identity", "hours are data over a rate")
        for one in judged
        if one.steps is None
    )
    return [(str(count), fate, why) for (fate, why), count in counts.most_common()]


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
