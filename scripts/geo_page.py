"""Writes docs/geo.md from the tables of the vocabulary and the rows that ship; `--check` only compares."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pages import closed, kept
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study.validate import shipped
from shardmeter.study.validate.geo import account, score
from shardmeter.study.validate.geo.account import LOSSES, PREDICTORS, UNPREDICTED, Judged
from shardmeter.study.validate.geo.vocabulary import KINDS, METHODS, QUANTITIES, UNITS, Quantity, Word
from shardmeter.study.validate.predictions import predict

PAGE = Path(__file__).parent.parent / "docs" / "geo.md"
DIMENSIONS = {"time": "s", "bandwidth": "B/s", "size": "B", "fraction": "1", "pure": "1", "loss": "as written"}
HEAD = """# Rows of runs across islands

Written by `make docs`; do not edit. `shardmeter validate FILE` reads a file with the columns `quantity` and `kind` as rows of runs
across islands: one number a row, with what was known of the run beside it. This page is the vocabulary: which texts mean what, which
of them are predicted, and what becomes of the rest.

| column | what it holds |
|---|---|
| `id`, `source` | name of the row; where it comes from (errors are means over sources) |
| `quantity`, `value`, `unit` | what was measured, in words, a number and a unit of it |
| `kind` | how it is known: measured, simulated, trained, derived, secondary |
| `method`, `model` | in words; what they say of sizes is read where a column is empty |
| `params_b`, `n_layers`, `tokens_b`, `global_batch_tokens` | billions of parameters, layers, billions of tokens, tokens a step |
| `islands_m`, `gpus_per_island`, `gpu` | islands, accelerators of each and their kind |
| `h`, `bits_per_param`, `fragments_p`, `overlap_tau_steps` | steps of a round, bits sent a parameter, fragments, steps between sending and applying (`H`: a whole round) |
| `wan_gbps`, `rtt_ms`, `compute_step_s` | link in Gbit/s, round trip in ms, seconds of an inner step alone |
| `notes` | only the number of an emulated case is read (`case2 …`) |

Case, dashes and blanks do not count in words. Numbers may carry remarks (`2 (default)`), be ranges (`0.5-4`) or bounds (`>20`); a value
that is a range or a bound is not compared. What a column of numbers cannot hold is told under `damaged`.

Every row is one of: **scored**; **skipped** (clear, but cannot be expressed, with the reason); **excluded** (does not count: second-hand,
unverified, or a fault listed by hand in `src/shardmeter/data/geo/exclusions.csv`); an **identity** (its answer follows from other
measurements of its run: checked to 0.5 % or half of its last printed digit, never scored). Values are compared in SI units.

`loso_mape` is the error of constants that have not seen the row's case, where constants were fitted, else equal to `mape`. The 90 % interval
of a row comes from what predictions of the same quantity miss in other cases (other settings of the network, other models); none where those are
fewer than 8. No paper predicts its own losses: those of synchronous runs come from a law that another paper fitted on the same data
(`shardmeter catalog laws`), those of replicas from the synchronous run of their paper, parameters and tokens that stands beside them, times what
replicas lost in other papers (`data/geo/diloco.csv` without the row's paper). Groups are `method:…`, `kind:…` and `case:…`. Systems of one emulated case, model and batch are a grid of `ranking`.
"""
TABLE = """## Bandwidth tables

Simulated tables (Douillard 2025) print, for a model, a method and a compute utilisation, the last of 50 bandwidths (0.1 to 1000 Gbit/s,
a factor of 1.207 apart) that misses it, rounded to two digits and then to one. Step T, backward 2T/3, L equal layers, M islands (2 where none
are named), C = 2·(M − 1)/M · parameters · bits over the bandwidth; stall of a round (`engine/round.py`, on the demands of `sync/`):

| method | stall |
|---|---|
| data parallel | layers leave behind the backward: max(C/L, C − 2T/3·(L − 1)/L) |
| DiLoCo | max(0, C − k·T) |
| Streaming DiLoCo | P·max(0, C/P − (τ + k)·T), at least C − H·T; P = L/3 fragments, τ = 1 for *overlapped* |

k = 0.55 is the share of a step behind which that program lets a message pass: it follows from when the first layers of strided fragments are
ready (0.540, 0.550 and 0.5525 of a step before its end, in the mean, with 8, 16 and 36 fragments), and is no fit. Where a row does not say: layers and step are those of the
tables' models (1B 24 layers 0.1 s, 10B 48 and 0.8 s, 100B 108 and 4.9 s, 405B 126 and 26 s, 671B 61 and 20 s), a step has 2²⁰ tokens."""
NEXT = (
    "[A file of your own](validate.md) in these columns.",
    "[What is paid for on a line](wan.md), and what [methods](sync.md) send over it.",
    "[Accelerator-hours of whole runs](runs.md).",
)


def page() -> str:
    """The whole page."""
    judged = account.compare(shipped.geo().rows, catalog_of(None), predict)
    parts = [
        HEAD,
        "## Quantities\n\nThe first row whose words occur decides. Words are regular expressions over the plain text.\n",
        table(("quantity", "unit", "words", "meaning", "what becomes of it"), map(quantity, QUANTITIES)),
        "\n## Methods\n",
        table(("method", "words", "meaning"), map(word, METHODS)),
        "\n## Kinds\n",
        table(("kind", "words", "meaning", "why it does not count"), ((*word(one), one.exclude) for one in KINDS)),
        "\n## Units\n",
        table(
            ("dimension", "units"),
            ((name, ", ".join(map(code, units))) for name, units in UNITS.items() if len(units) > 1),
        ),
        f"\n{TABLE}\n",
        f"\n## The rows that ship\n\n{accounts(judged)}\n",
        table(("becomes", "quantity", "rows", "why"), fates(judged)),
        "\n## Identities\n",
        table(("row", "quantity", "reported", "follows", "off by"), identity_rows(judged)),
        f"\n{arithmetic()}",
    ]
    return closed("\n".join(parts), *NEXT)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def code(text: str) -> str:
    """A text as code, `(nothing)` where it is empty."""
    return f"`{text}`" if text else "(nothing)"


def quantity(one: Quantity) -> tuple[str, ...]:
    """One quantity of the vocabulary."""
    if one.skip:
        fate = f"skipped: {one.skip}"
    elif one.name in UNPREDICTED:
        fate = "an identity where it follows from its run; else skipped"
    else:
        predicted = one.name in PREDICTORS or one.name in LOSSES or one.name == "inner_phase_time"
        fate = "predicted" if predicted else "skipped: no formula predicts it yet"
    return one.name, DIMENSIONS[one.dimension], code(one.pattern), one.says, fate


def word(one: Word) -> tuple[str, ...]:
    """One method or kind."""
    return one.name, code(one.pattern), one.says


def accounts(judged: Sequence[Judged]) -> str:
    """How many rows of each fate ship, in a sentence."""
    counts = Counter(_fate(one) for one in judged)
    listed = ", ".join(
        f"{counts[fate]} {fate}" for fate in ("scored", "skipped", "excluded", "identity") if counts[fate]
    )
    covered = [
        one.low <= one.measured <= one.high
        for one in score.scores(judged, score.residuals(judged))
        if one.low and one.high
    ]
    share = f" Of the {len(covered)} with an interval {sum(covered) / len(covered):.0%} lie in it." if covered else ""
    grids = score.grids(judged)
    best = sum(one["regret"] == 0.0 for one in grids.values())
    right, pairs = score.pairs_right(judged)
    order = (
        f" The fastest system is right in {best} of {len(grids)} cells, the order in {right} of {pairs} pairs."
        if grids
        else ""
    )
    return f"{len(judged)} rows: {listed}.{share}{order}"


def _fate(one: Judged) -> str:
    return "skipped" if one.skip else "excluded" if one.exclude else "identity" if one.due is not None else "scored"


def fates(judged: Sequence[Judged]) -> Iterable[Sequence[str]]:
    """(fate, quantity, rows, reason), the most frequent first within a fate."""
    counts = Counter((_fate(one), one.quantity, one.skip or one.exclude) for one in judged)
    order = ("scored", "identity", "excluded", "skipped")
    ranked = sorted(counts.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1:]))
    return [(fate, name, str(count), reason) for (fate, name, reason), count in ranked]


def identity_rows(judged: Sequence[Judged]) -> Iterable[Sequence[str]]:
    """Every identity with both of its numbers."""
    return [
        (one.id, one.quantity, f"{one.measured:.4g}", f"{one.due:.4g}", f"{one.due / one.measured - 1.0:+.1%}")
        for one in judged
        if one.due is not None
    ]


def arithmetic() -> str:
    """What published runs say, and what follows from it."""
    message = 2.0 * 13.0 / 14.0 * 10e9
    phase = 38.0 * 60.0
    ends = [(rate, 8.0 * message / (rate * 1e9)) for rate in (0.5, 4.0)]
    (slow, late), (fast, early) = ends
    low, high = (phase / (phase + seconds) for seconds in (late, early))
    tokens = 16.9 * 30.0 * 393_216.0
    rounds = 1.1e12 / tokens
    mfu = 6.0 * 72.7e9 * 393_216.0 * 30.0 / 1200.0 / (8.0 * 2.25e15)
    size = 72.7e9 * 0.21875 / 8.0
    dense = 2.0 * 7.0 / 8.0 * 2.0 * 12e9
    return f"""## Arithmetic of real runs

**INTELLECT-1** (10B parameters, int8, a ring over at most 14 islands, 38 minutes of inner steps). A round sends 2·13/14 · 10 GB =
{message / 1e9:.2f} GB. Compute utilisation and MFU follow from the reported times (above, within 0.3 points). From the links alone, reported as
{slow:g} to {fast:g} Gbit/s, it takes {early:.0f} to {late:.0f} s, so that the utilisation lies between {low:.1%} and {high:.1%}: 95.7 % (USA) is inside, 85.6 % (with
Europe) and 83.0 % (with Asia) are below, for the medians of 382 and 469 s mean a ring of 0.39 and 0.32 Gbit/s, slower than the slowest link
stated. Its 38 minutes are predicted from model, batch and accelerators alone (`inner_phase_time`). The 42 days cannot be derived: 10¹² tokens by
14 islands all the time would take 22 days; how many took part when is not published.

**OpenDiLoCo** (1.1B parameters, fp16, 4 islands). A round sends 2·3/4 · 2.2 GB = 3.3 GB. With 6.9 % of the time in it, compute utilisation is
93.1 %, inside of the 90 to 95 % that the abstract states. How long its rounds were is not in the row, so no rate of a link follows: an inner phase of an
hour would mean 0.1 Gbit/s.

**Covenant-72B** (SparseLoCo, 0.21875 bit a parameter). A message is 72.7·10⁹ · 0.21875/8 = {size / 1e9:.2f} GB, 146 times less than dense fp32; 20 min
and 70 s make 94.5 %. 16.9 peers · 30 steps · 393,216 tokens are {tokens / 1e6:.0f}M tokens a round, 1.1T tokens {rounds:,.0f} rounds or {rounds * 1270.0 / 86400.0:.0f} days; a step
of 40 s is {mfu:.1%} of the peak of 8 accelerators of 2.25 PFLOP/s. Contradicted: the quoted links (0.11 Gbit/s up, 0.5 down) would need
{8 * size / 0.11e9:.0f} s up and, from 20 peers, {8 * 20 * size / 0.5e9:.0f} s down; the 70 s are the length of a window, not a transfer.

**Decoupled DiLoCo** (0.84 against 198 Gbit/s over 8 data centres). Model and utilisation of the two numbers are not stated, but their ratio, {198 / 0.84:.0f}, does
not depend on the model. Data parallel must pass its message, {8 * dense / 1e9:.0f} Gbit for 12B in bf16, within (1/u − 1/3) of a step for a utilisation u, 0.68 T at 99 %;
24 fragments, one a step, each have a whole step T. That is a ratio of 24 · 1.48 = 35 at equal bits and 142 with 4 bits against 16. The rest, a factor
of {198 / 0.84 / 142:.1f}, follows from nothing that is stated.

**Streaming DiLoCo, table 1**. `TB exchanged` counts bits: 109 h at 1 Gbit/s carry 49 TB, not 441 TB. As bits the column is 16 % above
25·10⁹ tokens / 2²⁰ · 2 GB, as if the 1B model had 1.16·10⁹ parameters, which the hours (1 to 4 % above the prediction) do not say.
"""


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
