"""A figure as a picture: PNG, SVG or a page of HTML, 800 px wide, the same bytes every time. Needs matplotlib."""

from __future__ import annotations

import io
import math
import textwrap
from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.render import plot_field, plot_lines, plot_marks, ticks
from shardmeter.render.figure import Figure

WIDTH, HEIGHT, DOTS = 8.0, 4.7, 100
"""Inches of a picture (its caption adds to the height), and dots an inch."""
TITLE_LETTERS, CAPTION_LETTERS, LEGEND_LETTERS = 86, 118, 105
"""Letters of a line."""
TITLE_LINE, CAPTION_LINE, LEGEND_LINE, NAME_LINE = 0.2, 0.165, 0.22, 0.2
"""Inches of a line of text."""
STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"], "font.size": 9.5, "axes.titlesize": 10.5, "axes.labelsize": 9.5, "legend.fontsize": 9.0,
    "xtick.labelsize": 9.0, "ytick.labelsize": 9.0, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "hatch.linewidth": 0.6, "text.parse_math": False,
}  # fmt: skip
KINDS = ("png", "svg", "html")


def picture(figure: Figure, kind: str, dots: int = DOTS) -> bytes:
    """The bytes of a `png` (800 px wide at 100 `dots` an inch), an `svg` or a page of `html`. Raises ImportError without matplotlib, ValueError for
    another kind."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if kind == "html":
        from shardmeter.render import plot_html

        return plot_html.page((figure,))
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE | {"svg.hashsalt": f"figure {figure.slug}"})
        canvas = _drawn(figure)
        made = io.BytesIO()
        nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
        canvas.savefig(made, format=kind, metadata=nothing, dpi=dots)
    return made.getvalue()


def _drawn(figure: Figure) -> Any:
    """The matplotlib figure: axes, what lies in them, marks where there is room, a legend below, sentences under that."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    title = _even(figure.title)
    caption = _wrapped(figure.caption, CAPTION_LETTERS)
    names = len(figure.y.labels) if any(ticks.lying(figure, line) for line in figure.lines) else 0
    foot = CAPTION_LINE * len(caption) + (0.1 if caption else 0.03)
    head = TITLE_LINE * len(title) + 0.08
    height = max(HEIGHT, 1.4 + NAME_LINE * 1.4 * names) + head + foot
    canvas: Any = Canvas(figsize=(WIDTH, height), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots()
    x, y = ticks.of_figure(figure)
    if figure.field is None:
        axes.grid(color="#E3E3E3", linewidth=0.7)
    else:
        plot_field.draw(axes, figure, figure.field)
    plot_lines.draw(axes, figure)
    _scaled(axes, x, y)
    if names:
        axes.invert_yaxis()
    canvas.text(
        0.012, 1.0 - 0.07 / height, "\n".join(title), fontsize=10.5, fontweight="bold", va="top", linespacing=1.25
    )
    legend = _legend(canvas, axes, foot / height)
    canvas.get_layout_engine().set(rect=(0.005, (foot + legend) / height, 0.99, 1.0 - (foot + legend + head) / height))
    if caption:
        canvas.text(0.012, 0.006, "\n".join(caption), fontsize=8.5, color="#333333", va="bottom", linespacing=1.3)
    canvas.draw_without_rendering()
    plot_marks.draw(axes, figure, x, y)
    return canvas


def _wrapped(sentences: tuple[str, ...], letters: int) -> list[str]:
    """Sentences in lines of at most so many letters."""
    return [line for sentence in sentences for line in textwrap.wrap(sentence, letters)]


def _even(title: str) -> list[str]:
    """A title in as few lines as it needs, as even as that allows."""
    lines = textwrap.wrap(title, TITLE_LETTERS)
    narrower = (textwrap.wrap(title, letters) for letters in range(TITLE_LETTERS // 2, TITLE_LETTERS))
    return next((made for made in narrower if len(made) <= len(lines)), lines)


def _scaled(axes: Any, x: ticks.Axis, y: ticks.Axis) -> None:
    """Ends, ticks and titles of both axes; nothing that matplotlib would choose."""
    for one, matter in ((x, "x"), (y, "y")):
        getattr(axes, f"set_{matter}scale")("log" if one.log else "linear")
        getattr(axes, f"set_{matter}lim")(one.low, one.high)
        texts = [text if len(text) < 30 else "\n".join(textwrap.wrap(text, 34)) for _, text in one.ticks]
        getattr(axes, f"set_{matter}ticks")([tick for tick, _ in one.ticks], texts)
        getattr(axes, f"set_{matter}label")("\n".join(textwrap.wrap(one.title, 50 if matter == "y" else 90)))
    axes.minorticks_off()
    if plain_sum(len(text) + 2 for _, text in x.ticks) > 95:
        axes.tick_params(axis="x", rotation=30)
        for label in axes.get_xticklabels():
            label.set_ha("right")
            label.set_rotation_mode("anchor")


def _legend(canvas: Any, axes: Any, bottom: float) -> float:
    """The labels, below the axes, in as many columns as their texts allow; the inches that they take."""
    handles, texts = axes.get_legend_handles_labels()
    if not texts:
        return 0.0
    columns = max(1, min(len(texts), 4, int(LEGEND_LETTERS / (max(map(len, texts)) + 7))))
    texts = ["\n".join(textwrap.wrap(text, LEGEND_LETTERS)) for text in texts]
    made = canvas.legend(
        handles,
        texts,
        loc="lower center",
        bbox_to_anchor=(0.5, bottom),
        ncols=columns,
        frameon=False,
        borderaxespad=0.0,
    )
    made.set_in_layout(False)
    lines: int = math.ceil(len(texts) / columns) + sum(text.count("\n") for text in texts)
    return LEGEND_LINE * lines + 0.06
