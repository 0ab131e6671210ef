"""Writes docs/loss.md from the laws that ship, the formulas and the examples; `--check` only compares."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pages import closed, kept
from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.physics import convergence
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import CriticalBatch, LossLaw, Replica
from shardmeter.study.course.loss import law_at
from shardmeter.sync import defaults, effect, was_measured

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "loss.md"
POINTS = ((1e9, 20e9), (8e9, 160e9), (8e9, 1e12), (70e9, 1.4e12))
BUDGETS = (1e20, 1e22, 1e24)
EACH = 6.0
"""FLOPs of a parameter and token."""
CELLS, PERIODS, SIZES = (2.0, 4.0, 8.0), (30.0, 100.0, 500.0), (1e8, 1e9, 1e10)
HEAD = """# The loss of a run

Written by `make docs`; do not edit. What a run learns is asked by three fields of `run`: `law` (its loss for its tokens), `target_loss`
(its tokens for a loss) and `critical_batch` (what a large batch costs). Without one of them `run.loss` is null: a law belongs to
a data set and a tokenizer, and none is taken unless it is asked for.

## Laws

L(N, D) = E + (A/N^α + B/D^β)^γ, with N parameters and D tokens that are seen once. γ = 1 is the form of Hoffmann (2022); E = 0, β = 1, γ = α_D
that of Kaplan (2020). Laws with B = 0 hold at one ratio of tokens to parameters. The same loss in nats is another quality on other data:
use these for their shape, and fit your own.
"""
OWN = """
`run.law: FILE.csv` fits a law to your own runs: columns `parameters`, `tokens`, `loss`, a row a run, at most 1,000. Five different runs are the
least (two sizes, two lengths); below eight the exponents stay those of besiroglu-2024 and E, A, B are fitted. The fit takes least squares of the
logarithms, with residuals beyond 0.001 counted by their size (Hoffmann 2022, approach 3), and is repeated on 100 draws of the rows with
replacement: the 90 % interval of loss and tokens is theirs (`intervals.loss`, `intervals.run_tokens`), and of a target it is in those of the
wall clock, the GPU time, the cost and the electricity too. Where more than 5 % of the draws never reach the target all of these, and the
probability of a deadline or a budget, are null, and a warning says so. Losses that rise with parameters and tokens, or do not fall with one
of them, are refused with their rows; rows that the law misses by more than 10 %, and an interval without width, are warned of. Laws of others
have no interval: how far they are from your data nobody knows.

A law that is asked far below its range answers more nats than a model that guesses, ln(vocabulary): the loss is then null, and a warning says why.

A mixture of experts counts the parameters that a token passes, which is a guess. Laws are of decoders trained whole and from nothing: for other
families, adapters, runs beside a reference and islands that train models of their own the loss is null, and a warning says why.

In the JSON `run.loss` is the sum of those of `run.loss_terms[]` (`term`, `nats`, `factor`, `basis`, `source`, `text`, `counted`) that are counted;
`run.law` has `name`, `unit`, `data`, `source`, the `parameters` as it counts them, where the run lies `outside` of the fit, and the `optimum` of as many
FLOPs (`parameters`, `tokens`, `loss` by the law alone); `run.critical_batch` has `name`, `tokens`, and the `least_tokens` of the smallest batches.
A term of the law whose size or tokens lie outside of the fit is `extrapolated`, with the range in its `text`; a term that the law does not have (E
of Kaplan, the tokens of a law of one ratio) is no line.

A target is worth as many tokens as its law says, and laws differ: `run.other_laws[]` has what the others of the catalog that reach it say (`name`,
`tokens`, `wall_clock_s` in proportion to them, where each is `outside` of its fit), one line of the page. So a deadline or a budget of a target has no
probability. A target above ln(vocabulary), where a model starts that knows nothing, is refused.
"""
OPTIMUM = """
## The optimum of a budget

With C = 6·N·D FLOPs the least loss is at N = (αA/βB)^(1/(α+β)) · (C/6)^(β/(α+β)): there A·α/N^α = B·β/D^β. The exponents say how the two grow.
"""
BATCH = """
## The critical batch

Steps S and tokens E that reach a loss lie on (S/S_min − 1)·(E/E_min − 1) = 1 (McCandlish 2018): a batch of B tokens needs E = E_min·(1 + B/B_crit)
tokens and S = S_min·(1 + B_crit/B) steps. At the critical batch both are twice the least. `run.critical_batch` names how it grows; with `target_loss`
it is zhang-2024 unless it is `none`, else it is left out. Of phases with unlike batches each loses by its own. Outside of the range of
the fit the answer says so.
"""
BATCH_END = """
Bergsma (2025) finds a power law in D too, with nearly the same exponent; its constants were not read in the paper and do not ship. That the critical
batch is small at the beginning (Merrill 2025), which is what ramps are for, is left out.
"""
PHASES = """
## Phases

`run.phases` is a list of `{tokens, global_batch, seq_len}`; what a phase leaves out is the run's. Their tokens add to the run's; the step at the head of
the page is that of the run's own batch, or the last phase's. Each phase is priced as a run of its own: `run.phases[]` of the JSON has its
step, its duration, its memory and whether it fits.
"""
REPLICAS = """
## Replicas that meet every H steps

Loss over the synchronous one, from the runs of two papers (`data/geo/diloco.csv`, 35M to 10B parameters, 2 to 8 replicas, H = 30 and 100, C4),
in straight lines over ln N, ln M and ln H between them. A gain that was measured counts as none. Beyond those runs (in brackets) the lines go on, and
are never below M^0.0116 at H = 30 with the exponent in proportion to ln H (Charles 2025): more replicas, longer rounds and another size are no free lunch.
"""
REST = """
| what else | nats | how well known |
|---|---|---|
| less than 5 steps of delay | 0 | published (Douillard 2025) |
| 5 steps to a whole round of delay | 0.03 | guess: 0.02 to 0.03 was measured for a whole round of 100 at 1B (Kale 2025) |
| blocks with objectives of their own | 0.039 a byte at 4 blocks | published at 4 blocks; in proportion to the cuts elsewhere, a guess |
| DiLoCoX | 0.3 | guess: one run, second-hand |
| largest few of every chunk (SparseLoCo) | 0 from 1 % and 2 bits on | published to 2B |
| low rank, zero order, experts merged or routed | | unknown: no loss is published that could be added |

What is a guess stands in `run.loss_terms[]` and does not count unless `run.loss_guesses: true`; what is carried beyond what was measured counts, and
a warning names it; where nothing is known the loss is null, and a warning says why.

Of 814 rows of runs across islands that ship, 94 are losses that other papers predict: all within 0.05 nats ([geo.md](geo.md) says how).
"""
NEXT = (
    "[What H, bits or the batch cost in loss](tradeoffs.md), knob by knob.",
    "[What methods do to the loss](methods.md#what-is-known-of-the-loss).",
    "[What the longer run costs](money.md).",
)


def page() -> str:
    """The whole page."""
    catalog = load_catalog()
    laws = [catalog.law(name) for name in catalog.names("laws")]
    batches = [catalog.critical_batch(name) for name in catalog.names("critical_batches")]
    both = [law for law in laws if law.b]
    parts = [
        HEAD,
        table(("law", "E", "A", "α", "B", "β", "γ", "data", "fitted on", "source"), map(constants, laws)),
        "\nLoss at some sizes and lengths (in brackets: outside of the fit):\n",
        table(("law", *(f"{show(n, '')}, {show(d, 'tokens')}" for n, d in POINTS)), map(losses, laws)),
        OWN,
        OPTIMUM,
        table(("law", "N ~ C^", *(f"{budget:.0e} FLOP" for budget in BUDGETS)), map(optima, both)),
        BATCH,
        table(("name", "B_crit", "fitted on", "10B tokens", "100B", "1T"), (critical(one, both[0]) for one in batches)),
        BATCH_END,
        REPLICAS,
        table(("replicas", "H", *(show(size, "") for size in SIZES)), gaps()),
        REST,
        PHASES,
        example("batch-ramp", "Phases"),
        "## A target\n",
        example("target-loss", "The whole run"),
    ]
    return closed("\n".join(parts), *NEXT)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def constants(law: LossLaw) -> tuple[str, ...]:
    """One law with its range."""
    numbers = (f"{float(one):.6g}" for one in (law.irreducible, law.a, law.alpha, law.b, law.beta, law.gamma))
    ranges = f"{_range(law.parameters_least, law.parameters_most)} {law.counts} parameters, {_range(law.tokens_least, law.tokens_most)} tokens"
    at = "" if law.tokens_per_parameter is None else f", {law.tokens_per_parameter:g} a parameter"
    return (f"`{law.name}`", *numbers, law.data, f"{ranges}{at}", law.source)


def _range(least: object, most: object) -> str:
    low, high = (float(str(one)) if one is not None else None for one in (least, most))
    return f"{show(low, '')} to {show(high, '')}" if low is not None else f"up to {show(high, '')}"


def losses(law: LossLaw) -> tuple[str, ...]:
    """The loss of a law at the points."""
    return (f"`{law.name}`", *(_loss(law, n, d) for n, d in POINTS))


def _loss(law: LossLaw, n: float, d: float) -> str:
    if law.tokens_per_parameter is not None and d / n != law.tokens_per_parameter:
        return ""
    inside = all(
        (least is None or value >= least) and (most is None or value <= most)
        for value, least, most in (
            (n, law.parameters_least, law.parameters_most),
            (d, law.tokens_least, law.tokens_most),
        )
    )
    text = f"{float(law_at(law, n, d)):.3f}"
    return text if inside else f"({text})"


def optima(law: LossLaw) -> tuple[str, ...]:
    """Parameters and tokens of the optimum."""
    found = []
    for budget in BUDGETS:
        size = float(convergence.optimal_parameters(budget, EACH, law.a, law.alpha, law.b, law.beta))
        found.append(f"{show(size, '')}, {show(budget / EACH / size, 'tokens')}")
    return (f"`{law.name}`", f"{float(law.beta / (law.alpha + law.beta)):.3f}", *found)


def critical(one: CriticalBatch, law: LossLaw) -> tuple[str, ...]:
    """The critical batch at some lengths; of a law of the loss, where `law` says that 20 tokens a parameter end."""
    found = []
    for tokens in (1e10, 1e11, 1e12):
        if one.form == "tokens":
            batch = convergence.critical_batch_of_tokens(tokens, one.coefficient, one.exponent, one.overhead)
        else:
            batch = convergence.critical_batch_of_loss(
                law_at(law, tokens / 20.0, tokens), one.coefficient, one.exponent
            )
        found.append(show(float(batch), "tokens"))
    of = (
        f"{one.coefficient:g} · D^{one.exponent:g} / {one.overhead:g}"
        if one.form == "tokens"
        else f"{one.coefficient:.0e} · L^(−1/{one.exponent:g})"
    )
    return (f"`{one.name}`", of, f"{_range(one.tokens_least, one.tokens_most)} tokens, {one.data}", *found)


def gaps() -> Iterable[tuple[str, ...]]:
    """What replicas lose, in per cent."""
    for cells, period in itertools.product(CELLS, PERIODS):
        texts = []
        for size in SIZES:
            told = Replica(parameters=size, gradient_bytes=2.0, layers=24.0, cells=cells)
            factor = float(effect(told, changed(defaults("diloco"), sync_every=period)).factor or 1.0)
            text = f"{100.0 * (factor - 1.0):.2f} %"
            texts.append(text if was_measured(cells, size, period) else f"({text})")
        yield (f"{cells:g}", f"{period:g}", *texts)


def example(name: str, begins: str) -> str:
    """What an example prints from a heading on, up to what was assumed."""
    text = (ROOT / "examples" / f"{name}.out").read_text(encoding="utf-8")
    shown = text[text.index(f"\n{begins}\n") + 1 :].partition("\nAssumed\n")[0].rstrip()
    return f"```console\n$ shardmeter predict examples/{name}.yaml\n…\n{shown}\n```\n"


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
