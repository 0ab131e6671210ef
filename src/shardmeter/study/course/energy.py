"""Electricity of a run and its carbon: what the machines of every island draw, and what their halls add.

Three figures of one body of formulas: `expected`, what is paid and reported; `least`, the lowest that measured runs leave possible; and
`rated`, what no machine can pass. Leaves out: making the machines (embodied carbon), what is off the nodes, the hours around the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction, Joules, Kilograms, Number, Seconds, Watts
from shardmeter.engine import add
from shardmeter.engine.course import courses, is_apart
from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics import energy
from shardmeter.physics.energy import EXPECTED, LEAST, RATED, Draw
from shardmeter.specs import Island

KWH = 3.6e6
"""Joules."""
MOST_NAMES = 3
"""Islands that a sentence names."""


@record
class Held:
    """An island for as long as a run has it."""

    part: Part
    seconds: Seconds
    busy: Fraction
    """Share of that in which its accelerators compute."""
    idle: Fraction
    """Share of that in which nothing runs on them, for want of a machine."""


def rating(island: Island) -> Watts | None:
    """Most that one accelerator draws: its rating, or its cap where that is lower; None where neither is known."""
    device = island.accelerator
    if device.power is None or device.power_limit is None:
        return device.power if device.power_limit is None else device.power_limit
    return np.minimum(device.power, device.power_limit)


def parts(
    island: Island, lasts: Seconds, busy: Fraction, draw: Draw = EXPECTED, idle: Fraction = 0.0
) -> tuple[Joules, Joules, Joules] | None:
    """Energy of an island that is held for so long and computes the share `busy` of it: its accelerators, the rest of their nodes, the
    hall; None where the rating is not known. The less it computes, the less it draws. A cap is of the accelerators: the rest of a node
    draws what it draws beside uncapped ones."""
    watts = rating(island)
    if watts is None:
        return None
    share = energy.drawn_share(busy, idle, draw.computing, draw.waiting, draw.stopped)
    own = energy.energy(island.gpus, lasts, watts, share)
    uncapped = watts if island.accelerator.power is None else island.accelerator.power
    rest = energy.energy(island.gpus, lasts, uncapped, draw.beside)
    return own, rest, energy.hall_energy(own + rest, island.power.pue)


def joules(
    island: Island, lasts: Seconds, busy: Fraction, draw: Draw = EXPECTED, idle: Fraction = 0.0
) -> Joules | None:
    """The same together."""
    found = parts(island, lasts, busy, draw, idle)
    return None if found is None else add.folded(found)


def busy_share(whole: Whole, part: Part) -> Fraction:
    """Share of its steps and of what they wait for that an island's accelerators compute."""
    if is_apart(whole) or whole.folded is None:
        return part.estimate.compute_seconds / part.estimate.step_time
    steps = np.asarray(whole.folded.steps)[..., part.cell]
    return part.estimate.compute_seconds * steps / whole.folded.seconds


def held(whole: Whole, steps: Count) -> list[Held]:
    """Every island, for how long a run of so many steps holds it, and what it does then: it computes as in its steps while these are
    taken and while it is evaluated, not while it restarts."""
    runs = zip(whole.parts, courses(whole, steps), strict=True)
    return [
        Held(part=part, seconds=one.seconds, busy=busy_share(whole, part) * one.working, idle=one.idle)
        for part, one in runs
    ]


def terms(whole: Whole, steps: Count, draw: Draw = EXPECTED) -> list[tuple[str, Number, str]]:
    """What the islands draw in so many steps: (term, kWh, basis); NaN where a rating is not known. Numbers may be arrays."""
    found: list[tuple[str, Number, str]] = []
    for one in held(whole, steps):
        island = one.part.island
        of = "" if len(whole.parts) == 1 else f" of {island.name}"
        drawn, watts = parts(island, one.seconds, one.busy, draw, one.idle), rating(island)
        if drawn is None or watts is None:
            found.append((f"accelerators{of}", np.nan, f"the rated power of {island.accelerator.name} is not known"))
            continue
        share = float(np.mean(energy.drawn_share(one.busy, one.idle, draw.computing, draw.waiting, draw.stopped)))
        bases = (
            f"{100.0 * share:.0f} % of {show(float(np.mean(watts)), 'W')} each",
            f"{100.0 * draw.beside:.0f} % of the accelerators' rating",
            island.power.pue_basis,
        )
        labels = (f"accelerators{of}", f"rest of the nodes{of}", f"halls{of}")
        found += [(label, own / KWH, basis) for label, own, basis in zip(labels, drawn, bases, strict=True)]
    return found


def used(whole: Whole, steps: Count, draw: Draw = EXPECTED) -> Number:
    """KWh of all islands in so many steps; NaN where the rating of one is not known."""
    drawn = (parts(one.part.island, one.seconds, one.busy, draw, one.idle) for one in held(whole, steps))
    return add.folded(own / KWH for island in drawn for own in island or (np.nan,))


def answer(whole: Whole, steps: Count) -> dict[str, Any]:
    """`energy_kwh`, its range, `energy[]`, `carbon_kg` and `carbon_basis` of the answer; plain numbers."""
    total, carbon = float(used(whole, steps)), emitted(whole, steps)
    known = not np.isnan(total)
    return {
        "energy_kwh": total if known else None,
        "energy_range_kwh": [float(used(whole, steps, draw)) for draw in (LEAST, RATED)] if known else None,
        "energy": [
            {"term": term, "kwh": None if np.isnan(kwh) else float(kwh), "basis": basis}
            for term, kwh, basis in terms(whole, steps)
        ],
        "carbon_kg": None if carbon is None else float(carbon),
        "carbon_basis": _grids(whole),
    }


def emitted(whole: Whole, steps: Count) -> Kilograms | None:
    """Carbon of all islands in so many steps; None where a grid or a rating is not known."""
    total: Number = 0.0
    for one in held(whole, steps):
        island = one.part.island
        drawn = joules(island, one.seconds, one.busy, idle=one.idle)
        if drawn is None or island.power.carbon is None:
            return None
        total = total + energy.carbon(drawn, island.power.carbon)
    return total


def _grids(whole: Whole) -> str:
    """By which grids carbon is counted, or what is lacking."""
    islands = [part.island for part in whole.parts]
    lacking = [one.name for one in islands if one.power.carbon is None or rating(one) is None]
    if lacking:
        return f"not known of {', '.join(lacking[:MOST_NAMES])} (say carbon: 380 g/kWh of the island, or its region)"
    grids = dict.fromkeys(one.power.carbon_basis for one in islands)
    return f"{'; '.join(grids)}; the making of the machines is left out"
