"""Energy of a run, as far as the accelerators' ratings go."""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Joules, Seconds, Watts


@formula(cite="shardmeter")
def rated_energy(gpus: Count, duration: Seconds, power: Watts) -> Joules:
    """Energy of `gpus` accelerators that draw their rated `power` for `duration`: an upper bound of theirs.

    Leaves out: what they draw less while they wait, hosts, network, cooling (PUE)."""
    return gpus * duration * power
