"""Claims beside what `predict` says of the same scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardmeter.core.units import GIB
from shardmeter.study.audit.reading import HOUR, Claim
from shardmeter.study.audit.verdicts import presented

if TYPE_CHECKING:
    from shardmeter.study.predict import Prediction

KEYS = {
    "mfu": ("mfu", 1.0), "hfu": ("hfu", 1.0), "tflops_per_gpu": ("tflops_per_gpu", 1e12), "tokens_per_s": ("tokens_per_s", 1.0),
    "tokens_per_s_per_gpu": ("tokens_per_s_per_gpu", 1.0), "samples_per_s": ("samples_per_s", 1.0), "step_time": ("step_time_s", 1.0),
    "memory": ("memory.peak_gib", GIB), "memory_allocated": ("memory.allocated_gib", GIB), "wall_clock": ("run.wall_clock_s", 1.0),
    "gpu_hours": ("run.gpu_hours", HOUR), "cost": ("run.cost_usd", 1.0),
}  # fmt: skip
"""Claims that `predict` answers: the key of its JSON and what that is in SI."""
OF_TIME = ("mfu", "hfu", "tflops_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s")
"""Those that are so many times larger as the step is shorter."""


def beside(
    prediction: Prediction | None, statements: Sequence[Claim], implied: Mapping[str, float]
) -> list[dict[str, Any]]:
    """A row for every claim that is predicted: number, interval, whether the claim lies inside, and what the others imply where
    it is contradicted (`implied`)."""
    asked = [one for one in statements if one.claimed and one.quantity in KEYS]
    if prediction is None or not asked:
        return []
    answer = prediction.to_dict()
    rows = []
    for one in asked:
        path, unit = KEYS[one.quantity]
        value = _at(answer, path)
        if value is None:
            continue
        bounds = _interval(answer, one.quantity, path, value)
        value, (low, high) = value * unit, (bounds[0] * unit, bounds[1] * unit) if bounds else (None, None)
        inside = None if low is None or high is None else low <= one.value <= high
        other = implied.get(one.quantity)
        rows.append(
            {
                "claim": one.quantity, "value": presented(one.quantity, one.value)[0], "unit": presented(one.quantity, one.value)[1],
                "predicted": presented(one.quantity, value)[0],
                "interval": None if low is None or high is None else [presented(one.quantity, end)[0] for end in (low, high)],
                "inside": inside, "ratio": one.value / value, "implied": other and presented(one.quantity, other)[0],
                "implied_inside": None if other is None or low is None or high is None else low <= other <= high,
            }
        )  # fmt: skip
    return rows


def _at(answer: Any, path: str) -> float | None:
    for part in path.split("."):
        answer = None if answer is None else answer.get(part)
    return answer  # type: ignore[no-any-return]


def _interval(answer: Any, quantity: str, path: str, value: float) -> tuple[float, float] | None:
    """The 90 % interval: its own, or that of the step."""
    bounds = answer["intervals"].get(path.rpartition(".")[2])
    if bounds is None and path == "memory.peak_gib":
        bounds = answer["intervals"].get("memory_peak_gib")
    if bounds is not None:
        return bounds[0], bounds[1]
    step = answer["intervals"].get("step_time_s")
    if quantity not in OF_TIME or step is None or not answer["step_time_s"]:
        return None
    low, high = (end / answer["step_time_s"] for end in step)
    return value / high, value / low
