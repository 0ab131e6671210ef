"""The figure of a crossover: round trip × tokens of output, coloured by how much sooner one traversal answers than the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.figure import Field, Figure, Line, Scale

LINES = (
    ("output_at", "both take as long", "line"), ("output_until", "", "line"),
    ("local_at", "traversals take as long as a whole model on one island", "dashed"), ("local_until", "", "dashed"),
)  # fmt: skip
"""Lengths that are drawn over the round trips: key, legend, how."""
NEAREST = 1e-4
"""Seconds that a round trip is drawn at where there is none: the axis is logarithmic."""


def figures(answer: Mapping[str, Any], often: str) -> tuple[Figure, ...]:
    """The figure of an `infer` JSON whose crossover was asked for, else none; `often` says how often the blocks are traversed."""
    rows = [row for row in answer["crossover"] or () if not row["fleet"]]
    if not rows:
        return ()
    rtts = tuple(max(row["rtt_s"], NEAREST) for row in rows)
    outputs = tuple(cell["output"] for cell in rows[0]["cells"])
    ratios = tuple(tuple(row["cells"][at]["ratio"] for row in rows) for at in range(len(outputs)))
    scale = Scale(title=f"pipeline ÷ {often}", unit="×", log=True, centre=1.0)
    return (
        Figure(
            slug="crossover", title=_found(rows, often),
            x=Scale(title="round trip between islands", unit="s", log=True), y=Scale(title="output", unit="tokens", log=True),
            field=Field(x=rtts, y=outputs, values=ratios, scale=scale), contours=tuple(_contours(rows, rtts)),
            caption=(
                f"Seconds of a token-by-token pipeline over those of {often}: above 1 (purple) the pipeline is slower.",
                f"Prompt {answer['prompt']:,.0f}, batch {answer['batch']:,.0f}; all pairs of islands have the same round trip.",
            ),
        ),
    )  # fmt: skip


def _found(rows: Sequence[Mapping[str, Any]], often: str) -> str:
    """From which length on which way is sooner, at the shortest and at the longest round trip."""
    if all(row["output_at"] is None for row in rows):
        return f"No crossing: {rows[0]['faster_beyond']} is faster everywhere"
    said = [f"{_tokens(row['output_at'])} at {cells.number(1e3 * row['rtt_s'])} ms" for row in (rows[0], rows[-1])]
    return f"The pipeline and {often} take as long at an output of {' and '.join(dict.fromkeys(said))} of round trip"


def _tokens(length: float | None) -> str:
    return "no length" if length is None else f"{cells.number(float(f'{length:.3g}'))} tokens"


def _contours(rows: Sequence[Mapping[str, Any]], rtts: tuple[float, ...]) -> list[Line]:
    """The lines on which two ways take as long; none that is nowhere."""
    made = []
    for key, label, style in LINES:
        lengths = tuple(row[key] for row in rows)
        if any(length is not None for length in lengths):
            made.append(Line(label=label, x=rtts, y=lengths, style=style))
    return made
