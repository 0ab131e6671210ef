"""Money and time of a whole run, as far as one island without failures goes."""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Seconds, Usd, UsdPerS


@formula(cite="shardmeter")
def run_time(steps: Count, step: Seconds) -> Seconds:
    """Wall-clock of `steps` optimizer steps.

    Leaves out: failures, checkpoints, evaluation, start-up."""
    return steps * step


@formula(cite="shardmeter")
def rent(gpus: Count, duration: Seconds, price: UsdPerS) -> Usd:
    """Rent of `gpus` accelerators for `duration` at `price` per accelerator.

    Leaves out: minimum terms, egress, storage."""
    return gpus * duration * price
