"""Writes docs/curves.md and its figures: scaling curves that others measured, beside what is predicted; `--check` only compares."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pages import closed, kept
from shardmeter.render.figure import Figure, Line, Scale
from shardmeter.study.validate.curves import SOURCES, Series, curves
from shardmeter.study.validate.shipped import sources

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "curves.md"
FIGURES = ROOT / "docs" / "figures"
HEAD = """# Published scaling curves

Written by `make docs`; do not edit. Among the measured runs that ship ([accuracy.md](accuracy.md)) are series in which one source changed
nothing but the number of accelerators. A curve asks more of a model than a point: not how long a step is, but how much of the efficiency
goes as machines are added. For every series: the error of each point (predicted seconds of a step over measured ones, less one), and the
efficiency that is lost from its smallest size to its largest (tokens a second and accelerator), measured and predicted.

**These rows are not blind.** The stacks were fitted on them, so each prediction stands beside that of a fit that had not seen any row of
the source ("left out"). Series are found by the scenarios that the rows become: model, plan, machines and software equal to the last
number, data-parallel ranks apart. `strong`: one global batch at all sizes; `weak`: one batch an accelerator.
"""
PARTS = {
    "ultrascale": """
## Ultra-Scale Playbook: 8 to 64 H100

{citation}

{summary}

![Data-parallel scaling of llama-1B](figures/ultrascale-data-parallel.svg)

Along data parallelism alone less of the efficiency is lost than was measured: none of its ranks waits for a slower one here, since no stack
has a jitter that a source told. Three series with tp = 8 and large micro-batches lose 20 to 40 % where 9 to 12 % are predicted (the same
layouts at micro-batch 1 are within 3 points), and no row says why. One with tp = pp = 2 is 32 % too fast at its first point alone. Left out,
layouts with tp above 1 and micro-batch 1 are far too fast: the host of this software takes 68 us to launch a kernel, the stacks that stand in
take 25 us.
""",
    "foundry": """
## llm-foundry: up to 512 H100, up to 128 A100

{citation}

{summary}

![Weak scaling of MPT-7b](figures/foundry-weak.svg)

Little is lost and less is predicted. Left out, the points of a series are too fast by much the same: the level is off, the shape is as good as
with the rows. MPT-1b on 32 A100 of 40 GB is slower than on 64, which no other size repeats.
""",
}
TAIL = """
## All of them

![Efficiency that is lost, measured and predicted](figures/curves-lost.svg)

A point on the line loses what was measured. `tests/validation/test_curves.py` holds the errors of this page.
"""


Every = Mapping[str, Sequence[Series]]
"""The series of every source."""
NEXT = (
    "[A curve of your own](returns.md): along GPUs, islands, a bandwidth.",
    "[The same runs by source](accuracy.md).",
    "[Thresholds that others state](thresholds.md).",
)


def page(series: Every | None = None) -> str:
    """The text of the page."""
    made, known = HEAD, series or all_series()
    for source, text in PARTS.items():
        every = known[source]
        citation = sources()[SOURCES[source]]
        made += text.format(citation=citation, summary=summary(every)) + "\n" + table(every)
    return closed(made + TAIL, *NEXT)


def all_series() -> Every:
    """Read once for page and figures."""
    return {source: curves(source) for source in PARTS}


def summary(every: Sequence[Series]) -> str:
    """Means over data parallelism alone, and over all other series where there are some."""
    parts = [("data parallelism alone", [one for one in every if one.is_data_parallel])]
    parts.append(("with tensor or pipeline parallelism held", [one for one in every if not one.is_data_parallel]))
    head = [
        "",
        "series",
        "points",
        "mean error of a point",
        "left out",
        "mean lost, measured",
        "predicted",
        "left out",
        "mean distance",
        "left out",
    ]
    rows = [head, ["---"] * len(head)]
    for name, some in parts:
        if some:
            runs = [run for one in some for run in one.runs]
            out = [abs(run.error_left_out) for run in runs if run.error_left_out is not None]
            lost = {of: [one.lost(of) for one in some] for of in ("measured", "predicted", "left_out")}
            apart = {
                of: statistics.mean(abs(a - b) for a, b in zip(lost[of], lost["measured"], strict=True)) for of in lost
            }
            rows.append([
                name, str(len(some)), str(len(runs)), percent(statistics.mean(abs(run.error) for run in runs)),
                percent(statistics.mean(out)),
                *(percent(statistics.mean(lost[of])) for of in lost), in_points(apart["predicted"]), in_points(apart["left_out"]),
            ])  # fmt: skip
    return lines(rows)


def table(every: Sequence[Series]) -> str:
    """Every series: errors of its points, efficiency lost."""
    rows = [
        ["series", "scaling", "errors of the points", "left out", "lost, measured", "predicted", "left out"],
        ["---"] * 7,
    ]
    for one in every:
        errors = " ".join(signed(run.error) for run in one.runs)
        out = " ".join(signed(run.error_left_out) for run in one.runs if run.error_left_out is not None)
        rows.append(
            [one.title, one.kind, errors, out, *(percent(one.lost(of)) for of in ("measured", "predicted", "left_out"))]
        )
    return lines(rows) + "\n"


def figures(series: Every) -> dict[str, Figure]:
    """Every figure of the page by its file."""
    ultrascale, foundry = series["ultrascale"], series["foundry"]
    return {
        "ultrascale-data-parallel": curve(ultrascale[0], "ultrascale-data-parallel", "Ultra-Scale Playbook, data parallelism alone"),
        "foundry-weak": curve(max(foundry, key=lambda one: one.runs[-1].gpus / one.runs[0].gpus), "foundry-weak", "llm-foundry, weak scaling"),
        "curves-lost": scatter(ultrascale, foundry),
    }  # fmt: skip


def curve(one: Series, slug: str, source: str) -> Figure:
    """Tokens a second and accelerator against accelerators."""
    x = tuple(run.gpus for run in one.runs)

    def rates(seconds: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(None if s is None else run.tokens / run.gpus / s for run, s in zip(one.runs, seconds, strict=True))

    lines_ = (
        Line(label="measured", x=x, y=rates([run.measured for run in one.runs]), style="points"),
        Line(label="predicted", x=x, y=rates([run.predicted for run in one.runs]), low=rates([run.high for run in one.runs]),
             high=rates([run.low for run in one.runs])),
        Line(label="predicted, source left out", x=x, y=rates([run.left_out for run in one.runs]), style="dashed"),
    )  # fmt: skip
    lost = f"{percent(one.lost('measured'))} of the efficiency is lost, {percent(one.lost('predicted'))} predicted"
    return Figure(
        slug=slug, title=f"{one.title}: {lost}", x=Scale(title="accelerators", log=True), y=Scale(title="tokens/s of one accelerator"),
        lines=lines_, caption=(f"{source}, {one.kind} scaling. The band is the 90 % interval of one run.",),
    )  # fmt: skip


def scatter(ultrascale: Sequence[Series], foundry: Sequence[Series]) -> Figure:
    """What is lost from the smallest size to the largest, of every series."""
    groups = {
        "Ultra-Scale, data parallel alone": [one for one in ultrascale if one.is_data_parallel],
        "Ultra-Scale, with tp or pp": [one for one in ultrascale if not one.is_data_parallel],
        "llm-foundry": list(foundry),
    }
    drawn = [
        Line(
            label=name,
            x=tuple(one.lost("measured") for one in some),
            y=tuple(one.lost("predicted") for one in some),
            style="points",
        )
        for name, some in groups.items()
    ]
    most = max(one.lost(of) for one in (*ultrascale, *foundry) for of in ("measured", "predicted"))
    diagonal = Line(label="as measured", x=(0.0, most), y=(0.0, most), style="dashed")
    count = len(ultrascale) + len(foundry)
    within = sum(abs(one.lost("predicted") - one.lost("measured")) <= 0.05 for one in (*ultrascale, *foundry))
    return Figure(
        slug="curves-lost", title=f"Of {count} series {within} lose what was measured within 5 points",
        x=Scale(title="efficiency lost, measured", unit="%"),
        y=Scale(title="efficiency lost, predicted", unit="%"), lines=(*drawn, diagonal),
        caption=("From the smallest to the largest number of accelerators of a series: tokens a second and accelerator.",),
    )  # fmt: skip


def percent(value: float) -> str:
    """A share."""
    return f"{100 * value:.1f} %"


def in_points(value: float) -> str:
    """A distance of two shares."""
    return f"{100 * value:.1f} points"


def signed(value: float) -> str:
    """An error in percent."""
    return f"{100 * value:+.0f}"


def lines(rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Write the page and its figures, or with `--check` compare the page."""
    series = all_series()
    stale = kept(PAGE, page(series))
    if "--check" in sys.argv[1:]:
        return stale
    from shardmeter.render.plot import picture

    FIGURES.mkdir(exist_ok=True)
    for name, figure in figures(series).items():
        (FIGURES / f"{name}.svg").write_bytes(picture(figure, "svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
