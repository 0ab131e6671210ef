"""What methods without a backward have in common: scalars cross, and nothing else."""

from __future__ import annotations

from shardmeter.core.units import Count
from shardmeter.specs import Crossing, Progress, Round, Sync

LOSS_BITS = 32.0


def every_step(sync: Sync, losses: Count) -> Round:
    """A round of one step: so many losses from every cell to all others."""
    message = Crossing(label="losses across islands", collective="all_gather", size=losses * LOSS_BITS / 8.0)
    return Round(
        steps=1.0,
        crossings=(message,),
        progress=Progress(replicas=1.0, bits=0.0),
        notes=("directions are made again from seeds that all islands know: none crosses",),
    )
