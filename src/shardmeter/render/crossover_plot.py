"""The crossover as a picture: round trip × tokens of output, coloured by how much sooner one traversal answers than the pipeline."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardmeter.render.inference import passes

SIZE, DOTS = (8.0, 5.2), 100
"""Inches, and dots an inch: 800 px wide."""
LINE = "#000000"
LINES = (
    ("output_at", "both take as long", "-"), ("output_until", None, "-"),
    ("local_at", "as long as a whole model on one island", "--"), ("local_until", None, "--"),
)  # fmt: skip
"""Lengths that are drawn over the round trips: key, legend, how."""
LIFT = 1.35
"""Numbers stand above the middle of their cells, or as far below it where the line runs through the upper half."""
COLOURS = "PuOr"
"""Brown to purple: told apart with every usual kind of colour blindness."""


def picture(answer: Mapping[str, Any], kind: str) -> bytes:
    """A `png` or `svg` of the `crossover` of an `infer` JSON. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    _draw(figure, answer)
    made = io.BytesIO()
    figure.savefig(made, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return made.getvalue()


def _draw(figure: Any, answer: Mapping[str, Any]) -> None:
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.ticker import FuncFormatter

    rows = [row for row in answer["crossover"] if not row["fleet"]]
    rtts = np.array([max(row["rtt_s"], 1e-4) * 1e3 for row in rows])
    outputs = np.array([cell["output"] for cell in rows[0]["cells"]])
    ratio = np.log2([[cell["ratio"] for cell in row["cells"]] for row in rows]).T
    axes = figure.subplots()
    most = max(float(np.max(np.abs(ratio))), 1.0)
    norm = TwoSlopeNorm(vmin=-most, vcenter=0.0, vmax=most)
    filled = axes.pcolormesh(_edges(rtts), _edges(outputs), ratio, cmap=COLOURS, norm=norm)
    for down, output in enumerate(outputs):
        for across, rtt in enumerate(rtts):
            share = abs(ratio[down, across]) / most
            crossed = any(output < (rows[across][name] or 0.0) < 2.0 * output for name, *_ in LINES)
            axes.text(
                rtt, output / LIFT if crossed else output * LIFT, f"{2.0 ** ratio[down, across]:.3g}×", ha="center", va="center", fontsize=9,
                color="white" if share > 0.55 else "black", zorder=4,
            )  # fmt: skip
    _crossing(axes, rows, rtts)
    axes.set(xscale="log", yscale="log", xlabel="round trip between islands (ms)", ylabel="output (tokens)")
    axes.set_xticks(rtts, [f"{rtt:g}" for rtt in rtts])
    axes.set_yticks(outputs, [f"{length:,.0f}" for length in outputs])
    axes.minorticks_off()
    axes.set_title(
        f"Seconds of a token-by-token pipeline over those of {passes(answer)}\n"
        f"prompt {answer['prompt']:,.0f}, batch {answer['batch']:,.0f}; above 1 (purple) the pipeline is slower", fontsize=10
    )  # fmt: skip
    bar = figure.colorbar(filled, ax=axes, label=f"pipeline ÷ {passes(answer)} (×)")
    bar.ax.set_ylim(min(float(np.min(ratio)), -1.0), max(float(np.max(ratio)), 1.0))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{2.0**power:.3g}"))


def _crossing(axes: Any, rows: Any, rtts: Any) -> None:
    """The lines on which two ways take as long; a sentence where traversals and the pipeline never do."""
    from matplotlib.patheffects import withStroke

    if all(row["output_at"] is None for row in rows):
        axes.annotate(
            f"no crossing: {rows[0]['faster_beyond']} is faster everywhere", (0.02, 0.02), xycoords="axes fraction"
        )
    halo, ends = [withStroke(linewidth=4.0, foreground="white")], axes.get_ylim()
    for name, label, style in LINES:
        at = np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)
        drawn = label if np.any(np.isfinite(at)) else None
        axes.plot(rtts, at, style, color=LINE, linewidth=2.0, path_effects=halo, label=drawn)
    axes.set_ylim(ends)
    if any(row[name] is not None for row in rows for name, *_ in LINES):
        axes.figure.legend(loc="outside lower right", fontsize=9, frameon=False)


def _edges(centres: Any) -> Any:
    """Edges of cells around centres that are evenly spaced on a logarithmic axis, or one wide cell around a single one."""
    logs = np.log(centres)
    if len(logs) == 1:
        return np.exp([logs[0] - 1.0, logs[0] + 1.0])
    middle = (logs[1:] + logs[:-1]) / 2.0
    return np.exp([2.0 * logs[0] - middle[0], *middle, 2.0 * logs[-1] - middle[-1]])
