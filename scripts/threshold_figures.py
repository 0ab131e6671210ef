"""Writes docs/thresholds.md and its figures: published thresholds and curves beside what is found here; `--check` compares the page."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pages import closed, kept
from shardmeter.core.quantity import show
from shardmeter.render.figure import Figure, Line, Scale
from shardmeter.study.validate import shipped
from shardmeter.study.validate.geo import bandwidth
from shardmeter.study.validate.geo.vocabulary import GBIT
from shardmeter.study.validate.rows import Row
from shardmeter.study.validate.thresholds import THRESHOLDS, Threshold, found

DOCS = Path(__file__).parent.parent / "docs"
PAGE, FIGURES = DOCS / "thresholds.md", DOCS / "figures"
RATES = np.logspace(-1.0, 3.0, 161)
"""Gbit/s of the curves."""
TABLE = "Table 4"
HEAD = """# Published thresholds

Written by `make docs` (`scripts/threshold_figures.py`); do not edit. Statements of when training is bound by communication, each beside
what `shardmeter transitions` finds. They are formulas and simulations of others; no measured run is in them.

## Tokens of a device

The scaling book (Austin and others 2025, the chapters on training and on GPUs) compares the time of a layer's matrix products with that
of one collective at full rate: C FLOP/s, W bytes a second. Sharded data parallelism is compute-bound from C/W tokens of a device on, and
tensor parallelism up to F·W/C ways. The same crossing is found here by evaluating whole steps (`balance`: communication, hidden and
exposed, takes as long as compute), once on an ideal machine and stack, once on real ones.

*Ideal* means: products at the peak of the device (no tiles, waves, or limit of power), memory that costs nothing, launches and the host's
part of a step likewise, links at their wire rate with latencies of 1 ns, rings, bf16 on the wire, no slowing of compute by what passes
behind it, no recomputation, a vocabulary of 128 (`src/shardmeter/study/validate/thresholds.py`). *Exact* is the book's formula with what
it leaves out: a rank holds one part of X of what it gathers, (X − 1)/X; and, of tensor parallelism, the backward, which sends as much as
the forward and computes twice as much (× 2/3 for a whole step). What is left between that and ours is 2 us of start of every kernel,
which makes compute longer, and core attention.

*Real* is the shipped row of the accelerator under a fitted stack: products reach less than the peak, which asks for fewer tokens; links
reach less than their wire rate, gradients pass in fp32, and norms and activations are counted as compute.
"""
MORE = """
![thresholds on ideal and on real machines](figures/thresholds.svg)

## Utilisation of compute over a link

Streaming DiLoCo (Douillard and others 2025, their table of simulated bandwidths): two islands, H = 100, the share of time that is computed
against the bandwidth of the link. The lines are the rounds of `sync/` folded by `engine/round.py`; the points are what the table prints
for 50, 80, 90, 95 and 99 %, the last of 50 bandwidths (a factor of 1.207 apart) that misses each. *Off* compares the bandwidth that is
printed with the one that our curve gives on the same grid; a grid step is 1.207.
"""
NEXT = (
    "[Where your own scenario crosses](transitions.md) from one regime to the next.",
    "[Series that others measured](curves.md).",
    "[What the next Gbit/s buys](returns.md).",
)


def main() -> int:
    """Write the page and its figures, or check them: of pictures, which depend on the version of matplotlib, that they are there."""
    stale = kept(PAGE, page())
    if "--check" in sys.argv[1:]:
        missing = [name for name in ("thresholds", *map(_slug, sizes())) if not (FIGURES / f"{name}.svg").exists()]
        if missing:
            print(f"{PAGE.name} lacks {missing}: run `make docs`", file=sys.stderr)
        return 1 if missing else stale
    from shardmeter.render.plot import picture

    FIGURES.mkdir(exist_ok=True)
    for figure in (thresholds_figure(measured()), *map(utilisation, sizes())):
        (FIGURES / f"{figure.slug}.svg").write_bytes(picture(figure, "svg"))
    return 0


def page() -> str:
    """The whole page."""
    lines = [HEAD, _table(measured()), MORE]
    for size in sizes():
        lines += [f"\n![utilisation of {size:g}B parameters](figures/{_slug(size)}.svg)\n"]
    lines += ["", _bandwidths()]
    return closed("\n".join(lines) + "\n", *NEXT)


Measured = list[tuple[Threshold, float, float | None]]


@functools.cache
def measured() -> Measured:
    """Every threshold with what is found on its ideal machine, and on a real one."""
    made: Measured = []
    for one in THRESHOLDS:
        ours = found(one.ideal, one.axis, one.each)
        if ours is None:
            raise ValueError(f"{one.slug}: no crossing")
        made.append((one, ours, None if one.real is None else found(one.real, one.real_axis)))
    return made


def _value(one: Threshold, value: float) -> str:
    return f"{value:,.0f}" if one.unit == "tokens" else show(value, one.unit)


def _table(rows: Measured) -> str:
    cells = [
        (
            one.says, _value(one, one.book), _value(one, one.exact), _value(one, ours), f"{100.0 * (ours / one.exact - 1.0):+.1f} %",
            "" if real is None else f"{_value(one, real)} ({one.real_says})",
        )
        for one, ours, real in rows
    ]  # fmt: skip
    return _markdown(("statement", "book", "exact", "ours, ideal", "off", "ours, real"), cells)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def thresholds_figure(rows: Measured) -> Figure:
    """Tokens of a device by statement."""
    some = [row for row in rows if row[0].unit == "tokens"]
    places = tuple(float(at) for at in range(len(some)))
    real = [(at, value) for at, (_, _, value) in zip(places, some, strict=True) if value is not None]
    worst = max(abs(ours / one.exact - 1.0) for one, ours, _ in some)
    return Figure(
        slug="thresholds", title=f"The scaling book's thresholds are found within {100.0 * worst:.1f} % on an ideal machine",
        x=Scale(title="tokens of a device from which a step is compute-bound", log=True),
        y=Scale(title="", labels=tuple(one.says.rpartition(":")[0] for one, _, _ in some)),
        lines=(
            Line(label="formula", x=tuple(one.exact for one, _, _ in some), y=places, style="points"),
            Line(label="ours, ideal machine and stack", x=tuple(ours for _, ours, _ in some), y=places, style="points"),
            Line(label="ours, real ones", x=tuple(value for _, value in real), y=tuple(at for at, _ in real), style="points"),
        ),
        caption=("Formula: C/W · (X − 1)/X. Real: accelerators and fitted stacks as shipped; the models are named in the table.",),
    )  # fmt: skip


# ---- Streaming DiLoCo ------------------------------------------------------------------------------------------------------------


def table_rows() -> list[Row]:
    """The shipped rows of the table of bandwidths."""
    return [row for row in shipped.geo().rows if TABLE in row.text("source") and bandwidth.target_of(row) is not None]


def sizes() -> list[float]:
    """Billions of parameters of its models."""
    return sorted({bandwidth.simulated(row).parameters / 1e9 for row in table_rows()})


def _slug(size: float) -> str:
    return f"utilisation-{size:g}b"


def utilisation(size: float) -> Figure:
    """Curves of one model, a line a method, with the printed points."""
    rows = [row for row in table_rows() if bandwidth.simulated(row).parameters == size * 1e9]
    methods = list(dict.fromkeys(row.text("method") for row in rows))
    lines = []
    for method in methods:
        own = [row for row in rows if row.text("method") == method]
        curve = bandwidth.utilization(bandwidth.simulated(own[0]), RATES * GBIT)
        lines.append(Line(label=method, x=tuple(RATES * 1e9), y=tuple(np.asarray(curve).tolist())))
    printed = [(float(row.text("value")) * 1e9, bandwidth.target_of(row)) for row in rows]
    lines.append(
        Line(
            label="printed in the table", x=tuple(x for x, _ in printed), y=tuple(y for _, y in printed), style="points"
        )
    )
    hits = sum(off(row)[1] == 0 for row in rows)
    return Figure(
        slug=_slug(size), title=f"Compute utilisation of {size:g}B parameters: {hits} of {len(rows)} printed bandwidths are met on the grid",
        x=Scale(title="bandwidth between two islands", unit="bit/s", log=True), y=Scale(title="share of the time that is computed", unit="%"),
        lines=tuple(lines),
        caption=("Points: the last of 50 bandwidths (a factor of 1.207 apart) that misses 50, 80, 90, 95 or 99 %; they lie up to a step left of a curve.",),
    )  # fmt: skip


def off(row: Row) -> tuple[float, int]:
    """(log of ours over the printed bandwidth, steps of the grid between them)."""
    ours, printed = bandwidth.wan_bandwidth(row), float(row.text("value")) * GBIT
    return float(np.log(ours / printed)), bandwidth.grid_step(ours) - bandwidth.grid_step(printed)


def _bandwidths() -> str:
    """A row a model and method: printed and ours at every utilisation."""
    cells = []
    for size in sizes():
        rows = [row for row in table_rows() if bandwidth.simulated(row).parameters == size * 1e9]
        for method in dict.fromkeys(row.text("method") for row in rows):
            own = [row for row in rows if row.text("method") == method]
            pairs = [f"{float(row.text('value')):g} / {bandwidth.wan_bandwidth(row) / GBIT:g}" for row in own]
            mean = float(np.mean([abs(np.expm1(off(row)[0])) for row in own]))
            cells.append((f"{size:g}B", method, *pairs, f"{100.0 * mean:.1f} %"))
    found_all = [off(row) for row in table_rows()]
    exact = sum(step == 0 for _, step in found_all)
    within = sum(abs(step) <= 1 for _, step in found_all)
    mean = float(np.mean([abs(np.expm1(one)) for one, _ in found_all]))
    said = f"\nOf {len(found_all)} bandwidths {exact} are met exactly, {within} within one step of the grid; the mean error is {100.0 * mean:.1f} %."
    head = ("model", "method", *(f"{share} %, printed / ours, Gbit/s" for share in (50, 80, 90, 95, 99)), "off")
    return _markdown(head, cells) + "\n" + said


if __name__ == "__main__":
    sys.exit(main())
