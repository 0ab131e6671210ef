"""What methods without a backward have in common: scalars cross, and nothing else."""

from __future__ import annotations

from shardmeter.core.units import Count
from shardmeter.specs import Crossing, Progress, Round, Sync

LOSS_BITS = 32.0
ADAM = 2.0
"""Moments a parameter."""


def fault(sync: Sync) -> tuple[str, str, str] | None:
    """Passes side by side that are none of a step: as `sync.fault`."""
    passes = 2.0 * sync.perturbations
    if sync.together <= passes and passes % sync.together == 0.0:
        return None
    return (
        "together",
        f"together = {sync.together:g} of the {passes:g} passes of {sync.perturbations:g} perturbations",
        "a divisor of twice the perturbations",
    )


def every_step(losses: Count) -> Round:
    """A round of one step: so many losses from every cell to all others."""
    message = Crossing(label="losses across islands", collective="all_gather", size=losses * LOSS_BITS / 8.0)
    return Round(
        steps=1.0,
        crossings=(message,),
        progress=Progress(replicas=1.0, bits=0.0),
        notes=("directions are made again from seeds that all islands know: none crosses",),
    )
