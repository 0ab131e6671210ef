"""Writes docs/cross-site.md: published efficiencies over several sites beside what is predicted; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from pages import closed, kept
from shardmeter.core.quantity import show
from shardmeter.study.validate.cross_site.efficiency import ALIKE, Verdict, alike, verdict, verdicts
from shardmeter.study.validate.cross_site.gains import Gain, gains
from shardmeter.study.validate.cross_site.rates import CHANNELS, DISTANCES, channel_rates
from shardmeter.study.validate.cross_site.trials import EACH_ALONE, Trial, trials
from shardmeter.study.validate.cross_site.worlds import LINES, OVERSUBSCRIPTIONS, TOKENS

PAGE = Path(__file__).parent.parent / "docs" / "cross-site.md"
HEAD = f"""# Published efficiencies over several sites

Written by `make docs` (`scripts/cross_site_page.py`); do not edit. What has been published of training over data centres are percentages:
press and posts of vendors and carriers, hardly ever with model, batch and line. So each is held against *all that may have been run*: what
is said is kept, what is not said is spanned. It asks whether the percentage can be what we predict, and what it takes; it fits
nothing.

*Efficiency* is tokens a second across over those of the same accelerators in one building (N144: over the sum of both sites by themselves).
Spanned, where nothing is said: models of the class, {TOKENS[0] / 1e6:g} and {TOKENS[1] / 1e6:g} million tokens a step, gradients that cross in bf16 or fp32 (dp),
pipelines that cross with 1F1B or with chunks of a stage (pp), lines from {OVERSUBSCRIPTIONS[0]:g}:1 to {OVERSUBSCRIPTIONS[1]:g}:1 of what the adapters carry; all with tp 8, a pipeline
inside or across, Megatron-Core. A range is that of all of these, for dp with messages that take 0.77 to 2.0 times as long, as those between
islands were seen to do. A published efficiency is *inside* where a range has it: a weak verdict, as most ranges are wide because no rate
was published. It was first asked up to 16:1; N140 then lay 3.6 points below all of dp, bf16 over a tuned line, and the span was widened to
{OVERSUBSCRIPTIONS[1]:g}:1. What is to be learned is the last two columns: what line and window a figure takes, if it is true. Ascend is not in the catalog; A100 stands for it (its peak is near).

Lines: {"; ".join(f"*{LINES[word].word}*: {LINES[word].says}" for word in ("default", "tuned", "ordinary"))}.
"""
PLACES = {"N141": "500 km (N141)", "N145": "2,000 km (N145)"}
ONES = ("dp, bf16", "dp, bf16, at the end", "pp, 1f1b", "pp, 1f1b, 2 ahead", "pp, interleaved")
DP = ONES[0]
SHOWN = [word for word in LINES if word != "ordinary"]
PIECES = f"""
## What each piece of the network does

Efficiencies of Mistral Large 2 in the worlds of two rows at {ALIKE:g}:1 and their least round trip, messages as predicted, one thing at a time:
{"; ".join(f"*{word}*: {LINES[word].says}" for word in SHOWN if word not in ("default", "tuned"))}.
"""
GAINS = """
## Gains

Largest published gains against the largest found here over what was not said. What is compared was chosen after first tries that
stayed below what was published, so that being reached is no confirmation: it says what a gain takes. First tries: N149 with Llama 2 70B and exactly the
memory of 1F1B, nothing, with 7B and micro-batches of the same size 1.11 (*in halves*, micro-batches of one sequence for two and up to four
ahead of the line, was added last: in the same memory twice as many are under way; how near it comes is chance); N150 with Llama 2 70B 2.1 times, with 7B and a connection for each accelerator 3.2; N155 up to 15:1, 1.05.
"""
RATES = """
## Rates over distance

GB/s of an adapter of 400 Gbit/s by its channels (queue pairs) of NCCL's 4 MiB, round trip 20 µs and 10 µs a kilometre: as the line
of a scenario gives them.
"""
NEXT = (
    "[Training across buildings](scale-across.md): plan your own.",
    "[Uplinks, transports and buffers](network.md) that these figures hang on.",
    "[How rows are read](geo.md) that say more than a percentage.",
)


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


def page() -> str:
    """The whole page."""
    parts = [HEAD, table(("", "who", "said", "not said", "published", "kind", "source"), map(row, trials()))]
    for trial in trials():
        parts += section(trial)
    some = [alike(one) for one in trials() if one.id in PLACES]
    parts += [PIECES, table(("crosses", "line", *PLACES.values()), (piece(some, *one) for one in product(ONES, SHOWN)))]
    head = ("", "who", "published", "compared here", "found", "where", "published is")
    parts += [GAINS, table(head, map(gain, gains()))]
    parts += [RATES, table(("channels", *(f"{at:,g} km" for at in DISTANCES)), map(rates, CHANNELS))]
    return closed("\n".join(parts) + "\n", *NEXT)


def row(one: Trial) -> Sequence[str]:
    """What was published."""
    return one.id, one.who, one.said, one.unsaid, one.figure, one.kind, one.source


def section(trial: Trial) -> Iterable[str]:
    """A row's verdicts: in words, and plan by plan."""
    found = verdicts(trial)
    taken = [needs(one) for one in found]
    yield f"\n## {trial.id}: {trial.figure}\n"
    yield " ".join((*sentences(trial, found), *takes(trial, found, taken)))
    rows = (cells(one, *need) for one, need in zip(found, taken, strict=True))
    yield ""
    yield table(("crosses", "line", "efficiency", "published is", "line it takes", "window it takes"), rows)


def sentences(trial: Trial, found: Sequence[Verdict]) -> Iterable[str]:
    """For which plans it is inside, for which it is not and by how much."""
    inside = [f"{one.plan} ({one.line.word})" for one in found if one.inside]
    outside = [f"{one.plan} ({one.line.word}: {100.0 * one.off:+.1f})" for one in found if not one.inside]
    against = "the sum of both sites by themselves" if trial.against == EACH_ALONE else "one building"
    yield f"Against {against}."
    yield "Inside for all that is spanned." if not outside else f"Inside for {'; '.join(inside) or 'nothing'}."
    if outside:
        yield f"Outside, by so many points above (+) or below (−) all of them: {'; '.join(outside)}."


def takes(trial: Trial, found: Sequence[Verdict], taken: Sequence[tuple[str, str]]) -> Iterable[str]:
    """The assumptions under which it is reached, as far as gradients and NCCL's windows go."""
    by = {(one.plan, one.line.word): (one, need) for one, need in zip(found, taken, strict=True)}
    wide, narrow = by.get((DP, "tuned")), by.get((DP, "default"))
    if trial.low == 0.0 or wide is None:
        return
    _, (rate, window) = wide
    late = by.get((f"{DP}, at the end", "tuned"))
    left = [] if late is None else [f"all at the end of the backward: {late[1][0]}"]
    if narrow is not None:
        left.append(f"NCCL's window leaves {narrow[0].nominal[1]:.1%} at best")
    more = f" ({'; '.join(left)})" if left else ""
    yield f"Gradients in bf16 must have {rate}, of it under way {window}{more}."


def cells(one: Verdict, rate: str, window: str) -> Sequence[str]:
    """One plan and line, and what it takes."""
    low, high = one.span
    where = "inside" if one.inside else f"{100.0 * abs(one.off):.1f} points {'above' if one.off > 0.0 else 'below'}"
    return one.plan, one.line.word, f"{low:.1%} to {high:.1%}", where, rate, window


def needs(one: Verdict) -> tuple[str, str]:
    """The line and the window from which on gradients that cross in bf16 allow what was published; twice as much in fp32."""
    if not one.plan.startswith(DP) or one.trial.low == 0.0:
        return "", ""
    rates = one.least()
    enough = [rate for rate in rates if rate is not None]
    if not enough:
        return "none", ""
    some = "" if len(enough) == len(rates) else f" ({len(enough)} of {len(rates)} cases)"
    low, high = min(enough), max(enough)
    windows = [show(rate * one.trial.rtts[0], "B") for rate in (low, high)]
    return f"{low * 8.0 / 1e9:.2g} to {high * 8.0 / 1e9:.2g} Gbit/s a GPU{some}", " to ".join(windows)


def piece(some: Sequence[Trial], plan: str, line: str) -> Sequence[str]:
    """One plan and line at the places."""
    spans = [verdict(one, plan, line).nominal for one in some]
    return plan, line, *(f"{low:.1%} to {high:.1%}" for low, high in spans)


def gain(one: Gain) -> Sequence[str]:
    """A published gain."""
    most = one.pairs[0]
    enough = [pair.says for pair in one.pairs if pair.gain >= one.factor]
    where = f"reached at {'; '.join(enough)}" if enough else "more than is found"
    found = f"{one.pairs[-1].gain:.2f} to {most.gain:.2f} times as fast"
    return one.id, one.who, one.figure, one.compared, found, most.says, where


def rates(channels: int) -> Sequence[str]:
    """One row of the table of rates."""
    return str(channels), *(f"{rate / 1e9:.2g}" for rate in channel_rates(channels))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main())
