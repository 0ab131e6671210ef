"""What was found as sentences: which value changes what, as seen from the scenario's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.study.transitions.axes import BITS, Sought
from shardmeter.study.transitions.crossings import BALANCE, FITS, PEAK, REGIME, TENTH, Crossing, Side

NAMED = {"nodes": "{} nodes", "micro-batch": "micro-batch {}", "sequence": "a sequence of {}"}
"""How a whole number is said, by the title of its axis; of others `title = number`."""


@record
class Told:
    """A crossing with its sentence."""

    crossing: Crossing
    says: str
    away: float | None
    """Factor between the scenario's own value and the crossing, 1 or more; None where one of them is unknown or zero."""


def shown(sought: Sought, value: float) -> str:
    """A value of an axis with its unit."""
    if sought.unit == "bit/s":
        return show(value * BITS, "bit/s")
    if sought.unit:
        return show(value, sought.unit)
    return f"{value:,.0f}" if sought.whole else f"{value:.4g}"


def placed(sought: Sought, value: float) -> str:
    """The same as part of a sentence: `11.3 Gbit/s`, `H = 42`, `micro-batch 3`."""
    text = shown(sought, value)
    if sought.unit:
        return text
    if sought.title == "nodes" and text == "1":
        return "1 node"
    return NAMED[sought.title].format(text) if sought.title in NAMED else f"{sought.title} = {text}"


def told(sought: Sought, found: Sequence[Crossing]) -> tuple[Told, ...]:
    """Crossings with their sentences, in order."""
    return tuple(Told(crossing=one, says=sentence(sought, one), away=away(sought, one)) for one in found)


def away(sought: Sought, one: Crossing) -> float | None:
    """How far a crossing is from the scenario's own value, as a factor."""
    own = sought.own
    if not isinstance(own, float) or own <= 0.0 or one.value <= 0.0:
        return None
    return math.exp(abs(math.log(one.value / own)))


def sentence(sought: Sought, one: Crossing) -> str:
    """What changes where, for someone who stands at the scenario's own value (below, where that is not known)."""
    down = isinstance(sought.own, float) and sought.own >= one.above.value
    near, far = (one.above, one.below) if down else (one.below, one.above)
    at = placed(sought, one.value)
    if one.kind == PEAK:
        return f"throughput peaks at {at}" if near.fits and far.fits else f"the fastest that fits is {at}"
    if one.kind == BALANCE:
        return f"you become {'communication' if far.margin > 0.0 else 'compute'}-bound at {at}"
    if one.kind == TENTH:
        return f"exposed communication {'reaches' if far.margin > 0.0 else 'falls to'} 10 % of the step at {at}"
    if one.kind == FITS:
        return f"it {'begins to fit' if far.fits else 'no longer fits'} at {at}"
    return f"{_from(at, one, down=down)} {far.regime} rules instead of {near.regime}"


def _from(at: str, one: Crossing, *, down: bool) -> str:
    if one.whole:
        return f"from {at} {'down' if down else 'on'}"
    return f"{'below' if down else 'above'} {at}"


def nearest(found: Sequence[Told]) -> Told | None:
    """The crossing that is nearest to the scenario's own value, those of regimes and of communication against compute first."""
    ranked = sorted(found, key=lambda one: (one.crossing.kind not in (REGIME, BALANCE), one.away or math.inf))
    return ranked[0] if ranked else None


def kept(sought: Sought, sides: Sequence[Side]) -> str:
    """That nothing changes between the ends of a range."""
    low, high = sides[0], sides[-1]
    return (
        f"{low.regime} rules from {placed(sought, low.value)} ({100.0 * low.share:.0f} % of the step) to "
        f"{placed(sought, high.value)} ({100.0 * high.share:.0f} %)"
    )
