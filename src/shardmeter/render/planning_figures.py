"""The picture of a search: plans by two figures, the front among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
AXES: Mapping[str, tuple[str, str, str]] = {
    "time": ("wall_clock_s", "wall clock", "s"),
    "cost": ("cost_usd", "cost of the run", "USD"),
    "throughput": ("tokens_per_s", "throughput", "tokens/s"),
    "energy": ("energy_kwh", "energy of the run", "kWh"),
}
"""By objective: the figure of a plan, its title and its unit."""
PER_STEP: Mapping[str, tuple[str, str, str]] = {
    "time": ("step_time_s", "step", "s"),
    "cost": ("cost_usd_per_token", "cost", "USD"),
    "energy": ("energy_j_per_token", "energy a token", "W*s"),
}
"""The same where the run has no length."""
MEMORY = ("memory_peak_gib", "peak of the fullest GPU", "GiB")


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Of a `plan` JSON: the plans that are listed (first line, in their order) and, of several objectives, the front (second line, in its
    order); by the first two objectives, or by the objective and memory. Nothing where no plan is feasible."""
    plans, front = list(answer["plans"]), list(answer["pareto"])
    if not plans:
        return ()
    words = answer["objective"] or ["time"]
    y = _axis(words[0], plans)
    x = _axis(words[1], plans) if len(words) > 1 else MEMORY
    lines = [_points("plans of the list", plans, x, y, "points")]
    if len(words) > 1 and len(front) > 1:
        lines.append(_points("the front", front, x, y, "line"))
    limits = [float(one["memory_limit_gib"]) for one in plans if one.get("memory_limit_gib")] if x is MEMORY else []
    marks = [Mark(says=f"limit: {min(limits):.0f} GiB", x=min(limits))] if limits else []
    return (
        Figure(
            slug="front",
            title=f"{len(plans)} plans by {y[1]} and {x[1]}",
            x=Scale(title=x[1], unit=x[2]),
            y=Scale(title=y[1], unit=y[2]),
            lines=tuple(line for line in lines if line.x),
            marks=tuple(marks),
            caption=("Every plan is a scenario of its own: predict gives the same figures.",),
        ),
    )


def _axis(word: str, plans: Sequence[Answer]) -> tuple[str, str, str]:
    """What stands for an objective: of the run where every plan has it, else of a step or a token."""
    whole = AXES[word]
    known = all(one.get(whole[0]) is not None for one in plans)
    return whole if known or word not in PER_STEP else PER_STEP[word]


def _points(label: str, plans: Sequence[Answer], x: tuple[str, str, str], y: tuple[str, str, str], style: str) -> Line:
    known = [one for one in plans if one.get(x[0]) is not None]
    return Line(label=label, x=tuple(one[x[0]] for one in known), y=tuple(one.get(y[0]) for one in known), style=style)
