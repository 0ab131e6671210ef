"""Fields of a scenario that are about what interrupts a run: checkpoints and evaluation; failures are rows of the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from shardmeter.core.errors import BadQuantity, shown
from shardmeter.core.quantity import BOUNDS, counted, quantity
from shardmeter.scenario.bounds import Bound
from shardmeter.scenario.money import BytesEach, Kept
from shardmeter.scenario.values import Bandwidth, Input, number_field, refused, said
from shardmeter.specs.course import AUTO, STEPS, TIME


def _rhythm(*words: str) -> Callable[[Any], tuple[float, str]]:
    """A reader of how often something happens: a number of steps, a time, or one of some words."""
    wanted = " or ".join(("a number of steps", "a time", *words))

    def read(value: Any) -> tuple[float, str]:
        if value in words:
            return 0.0, str(value)
        try:
            number, word = counted(value)
        except BadQuantity:
            return _time(value, wanted)
        if word not in ("", "steps") or number < 1.0 or number != round(number):
            raise refused(f"{shown(value, 40)} is not {wanted}", "as in 500 steps, or 30 min")
        return number, STEPS

    return read


def _time(value: Any, wanted: str) -> tuple[float, str]:
    try:
        seconds = quantity(value, "time")
    except BadQuantity as error:
        raise refused(error.message, f"{wanted}, as in 500 steps, or 30 min") from None
    if seconds == 0.0:
        raise refused("0 makes no sense here", "as in 500 steps, or 30 min")
    return seconds, TIME


_SCHEMA = WithJsonSchema({"type": ["string", "integer"], "examples": ["500 steps", "30 min"]})
Every: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_rhythm()), _SCHEMA]
"""(count, "steps") or (seconds, "time")."""
EveryOrAuto: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_rhythm(AUTO)), _SCHEMA]
"""The same, or (0, "auto")."""
Lasting: TypeAlias = Annotated[float, *number_field("time", Bound(*BOUNDS["time"])).__metadata__]
"""Seconds, above zero."""


class CheckpointInput(Input):
    """How the state of the run is written."""

    every: EveryOrAuto | None = said(
        "Training between two checkpoints: steps, a time, or auto = Daly's interval, which loses the least (Young's, to higher order)."
    )
    bandwidth: Bandwidth | None = said(
        "Of the store, or of the line to one far away, as in 100 GB/s; left out, 122 MB/s for each GPU (Llama 3's store)."
    )
    bytes_per_parameter: BytesEach | None = said(
        "Of a full state; left out: run.storage's, else 14 (weights, master weights, two moments)."
    )
    blocking: bool | None = said(
        "Whether training waits while it is written; false: behind the next steps. True if left out."
    )
    keep: Kept | None = said("Full states that are kept and paid for: run.storage.checkpoints.")


class EvaluationInput(Input):
    """Pauses in which the model is evaluated."""

    every: Every | None = said("Training between two of them: steps, or a time.")
    lasts: Lasting | None = said("How long one takes, as in 10 min.")
