"""Energy and carbon of a run: what accelerators draw while they compute and while they wait, what nodes and halls add.

Three figures, of which the answer says all: what is expected, what measured runs leave possible below, and the rating, an upper
bound that no machine can pass. Embodied carbon (making the machines) is in none of them."""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction, Joules, Kilograms, KilogramsPerJoule, Ratio, Seconds, Watts


@record
class Draw:
    """Shares of an accelerator's rating."""

    computing: Fraction
    waiting: Fraction
    stopped: Fraction
    """While the run has no machine to go on with: nothing spins."""
    beside: Ratio
    """What the rest of its node draws: hosts, adapters, fans, losses of the power supplies."""


IDLE = 0.11
"""Of what it draws under load, an accelerator at rest: V100 35 of 306 W, A100 46 of 407 W (Cloud Carbon Footprint b7a049c, 2024)."""
EXPECTED = Draw(computing=0.95, waiting=0.53, stopped=IDLE, beside=0.60)
"""computing: two runs on H100 drew 0.89 and 0.93 of the rating over all their hours, waits and restarts among them (OLMo 3 7B:
146 MWh in 234,000 h; 32B: 681 MWh in 1.05 million h). waiting: the middle between rest and computing, since collectives spin;
nothing measured. stopped: at rest. beside: 8.4 kW measured of a node of eight H100 (Latif et al. 2025), less 0.91 of their eight times 700 W."""
LEAST = Draw(computing=0.89, waiting=IDLE, stopped=IDLE, beside=0.20)
"""The lower of the two runs; waits at rest; 330 W measured a V100 of 300 W with its whole system (Patterson et al. 2021)."""
RATED = Draw(computing=1.0, waiting=1.0, stopped=1.0, beside=0.82)
"""A node of eight H100 is rated 10.2 kW, its accelerators 5.6 kW of it (DGX H100)."""


@formula(cite="shardmeter")
def drawn_share(busy: Fraction, idle: Fraction, computing: Fraction, waiting: Fraction, stopped: Fraction) -> Fraction:
    """Share of its rating that an accelerator draws on the average: it computes the share `busy` of the time, is stopped for the share
    `idle`, and waits in between.

    Leaves out: that small products draw less than large ones, that memory-bound work draws otherwise, temperature, caps that bind
    for a part of the time."""
    return waiting + (computing - waiting) * busy + (stopped - waiting) * idle


@formula(cite="shardmeter")
def energy(gpus: Count, duration: Seconds, power: Watts, share: Ratio) -> Joules:
    """Energy of `gpus` accelerators, or of what stands beside them in their nodes, at a share of their rating `power`.

    Leaves out: switches outside the nodes, storage, the lines between islands, the hours before and after the run."""
    return gpus * duration * power * share


@formula(cite="shardmeter")
def hall_energy(machines: Joules, pue: Ratio) -> Joules:
    """What the hall of machines adds: cooling, and losses on the way to them.

    Leaves out: that halls need more in summer and where they are half empty."""
    return machines * (pue - 1.0)


@formula(cite="shardmeter")
def carbon(joules: Joules, intensity: KilogramsPerJoule) -> Kilograms:
    """Carbon dioxide, and what warms like it, of the electricity: location-based, on the average of a year.

    Leaves out: making the machines and the hall (embodied carbon), contracts for clean power, the hour of the day."""
    return joules * intensity
