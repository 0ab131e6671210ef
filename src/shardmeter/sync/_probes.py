"""What methods without a backward have in common: scalars cross, and nothing else."""

from __future__ import annotations

import math

from shardmeter.core.units import Count
from shardmeter.specs import Crossing, Progress, Round, Sync

LOSS_BITS = 32.0
ADAM = 2.0
"""Moments a parameter."""


def faults(sync: Sync) -> tuple[tuple[str, str, str], ...]:
    """Passes side by side that are none of a step: as `sync.faults`."""
    passes, together = int(2.0 * sync.perturbations), int(sync.together)
    if passes % together == 0:
        return ()
    some = [one for one in range(1, math.isqrt(passes) + 1) if passes % one == 0]
    whole = sorted({*some, *(passes // one for one in some)})
    near = [*[one for one in whole if one < together][-1:], *[one for one in whole if one > together][:1]]
    says = f"together = {together} of the {passes} passes of {sync.perturbations:g} perturbations"
    return (("together", says, f"{' or '.join(map(str, near))}, which divides them"),)


def every_step(losses: Count) -> Round:
    """A round of one step: so many losses from every cell to all others."""
    message = Crossing(label="losses across islands", collective="all_gather", size=losses * LOSS_BITS / 8.0)
    return Round(
        steps=1.0,
        crossings=(message,),
        progress=Progress(replicas=1.0, bits=0.0),
        notes=("directions are made again from seeds that all islands know: none crosses",),
    )
