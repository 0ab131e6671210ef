"""Each cause, solved: what it would have to be, how plausible that is, what it leaves unexplained, what else it would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.specs import Island, Scenario
from shardmeter.study.doctor import classes
from shardmeter.study.doctor.cause import NUMBER, READING, SETTING, Cause, Misread, Named, Numeric
from shardmeter.study.doctor.measured import Measured, Spread
from shardmeter.study.doctor.misread import misreadings
from shardmeter.study.doctor.numbers import numeric
from shardmeter.study.doctor.settings import named
from shardmeter.study.doctor.solved import Solution, solved
from shardmeter.study.doctor.world import World
from shardmeter.study.intervals import NORMAL_90

LIKELY, POSSIBLE = 0.1, 0.01
"""Plausibility from which a cause is called so."""
HELPS = 0.1
"""Share of the gap that a cause has to close to be named at all."""
NO_WHOLE = 0.3
"""What is left of the plausibility of a count that would be no whole number."""


@record
class Finding:
    """A cause with the value that it would have to have."""

    cause: Cause
    world: World
    """The prediction if it is so."""
    solution: Solution | None
    """Of a number."""
    left: float
    """Standard deviations of the prediction that the measured number still lies from its middle."""
    unexplained: float
    """What was measured over what the cause predicts."""
    plausibility: float
    predicted: tuple[float, float, float] | None = None
    """What the cause predicts of the number that is explained, with both ends of its interval; of a misread figure what it would read."""
    others: tuple[tuple[Measured, float, float, float], ...] = ()
    """Every other measured number with what the cause predicts of it, low and high."""

    @property
    def explains(self) -> bool:
        """Whether the cause alone explains the number."""
        return self.solution.reaches if self.solution is not None else abs(self.left) <= NORMAL_90

    @property
    def word(self) -> str:
        """likely, possible, unlikely."""
        return "likely" if self.plausibility >= LIKELY else "possible" if self.plausibility >= POSSIBLE else "unlikely"

    @property
    def factor(self) -> float:
        """By which a figure was misread; 1 elsewhere."""
        return self.cause.factor if isinstance(self.cause, Misread) else 1.0

    def entry(self) -> dict[str, Any]:
        """`causes[]` of the answer."""
        cause, solution = self.cause, self.solution
        number = cause if isinstance(cause, Numeric) else None
        many = gpus_of_node(self)
        kind = NUMBER if number else SETTING if isinstance(cause, Named) else READING
        return {
            "name": cause.name,
            "title": cause.title,
            "kind": kind,
            "field": cause.field if isinstance(cause, Numeric | Named) else "",
            "unit": number.unit if number else "",
            "of": "node" if many != 1.0 else "",
            "said": number.said * many if number else None,
            "assumed": number is not None and number.assumed,
            "implied": solution.value * many if solution else None,
            "low": solution.low * many if solution else None,
            "high": solution.high * many if solution else None,
            "ratio": solution.value / number.said if solution and number and number.said else None,
            "value": cause.value if isinstance(cause, Named) else None,
            "factor": cause.factor if isinstance(cause, Misread) else None,
            "explains": self.explains,
            "plausible": self.word,
            "plausibility": self.plausibility,
            "unexplained": self.unexplained,
            "rate": rate_of(self),
            "why": why(self),
            "means": cause.means,
            "predicted": self.predicted,
            "others": [
                {"quantity": one.quantity.name, "unit": one.quantity.unit, "measured": one.value, "predicted": value, "low": low, "high": high,
                 "consistent": low <= one.value <= high}
                for one, value, low, high in self.others
            ],
        }  # fmt: skip


def findings(
    scenario: Scenario, base: World, primary: Measured, others: Sequence[Measured], spread: Spread,
    is_free: Callable[[Cause], bool],
) -> tuple[Finding, ...]:  # fmt: skip
    """Every cause that is free and closes some of the gap, the most plausible of those that explain it alone first."""
    gap = primary.slowness(base)
    asked = [*numeric(scenario, base), *named(scenario), *misreadings(scenario, base, primary)]
    asked = [one for one in asked if primary.quantity.kind in one.touches and is_free(one)]
    made = [finding(one, base, primary, spread) for one in asked]
    helping = [one for one in made if one is not None and _helps(one, gap)]
    told = _with_others(helping, others, spread)
    return tuple(sorted(told, key=lambda one: (not one.explains, -one.plausibility, abs(math.log(one.unexplained)))))


def _helps(found: Finding, gap: float) -> bool:
    """Whether a cause closes enough of the gap to be named; a misread figure that does not fit is none."""
    if isinstance(found.cause, Misread) and not found.explains:
        return False
    return abs(math.log(found.unexplained)) <= (1.0 - HELPS) * abs(gap)


def finding(cause: Cause, base: World, primary: Measured, spread: Spread) -> Finding | None:
    """One cause, solved; None where it moves nothing."""
    if isinstance(cause, Numeric):
        return _of_number(cause, base, primary, spread)
    if isinstance(cause, Named):
        return _of_name(cause, primary, spread)
    if isinstance(cause, Misread):
        return _of_reading(cause, base, primary, spread)
    raise TypeError(type(cause).__name__)


def _of_number(cause: Numeric, base: World, primary: Measured, spread: Spread) -> Finding | None:
    solution = solved(cause, primary, spread, base)
    if solution.value == cause.said and not solution.reaches:
        return None
    world = cause.at(solution.value)
    told = _predicted(primary, world, spread)
    left = 0.0 if solution.exact else primary.deviations(world, spread)
    known = (cause.far(solution.high) + cause.far(solution.low)) / 2.0
    wide = abs(cause.far(solution.high) - cause.far(solution.low)) / (2.0 * NORMAL_90)
    far = cause.far(solution.value) if solution.exact else known
    plausibility = cause.chance * math.erfc(far / math.hypot(cause.usual, wide) / math.sqrt(2.0)) * _fit(left)
    if cause.whole and math.floor(solution.high) < math.ceil(solution.low):
        plausibility *= NO_WHOLE
    return Finding(
        cause=cause, world=world, solution=solution, left=left, unexplained=_left(primary, world), plausibility=plausibility,
        predicted=told,
    )  # fmt: skip


def _of_name(cause: Named, primary: Measured, spread: Spread) -> Finding | None:
    world = cause.world()
    if not math.isfinite(float(primary.of(world))):
        return None
    left = primary.deviations(world, spread)
    return Finding(
        cause=cause, world=world, solution=None, left=left, unexplained=_left(primary, world),
        plausibility=cause.chance * _fit(left), predicted=_predicted(primary, world, spread),
    )  # fmt: skip


def _of_reading(cause: Misread, base: World, primary: Measured, spread: Spread) -> Finding:
    read = changed(primary, value=primary.value / cause.factor)
    left = read.deviations(base, spread)
    return Finding(
        cause=cause, world=base, solution=None, left=left, unexplained=_left(read, base), plausibility=cause.chance * _fit(left),
        predicted=_predicted(primary, base, spread, cause.factor),
    )  # fmt: skip


def _predicted(measured: Measured, world: World, spread: Spread, times: float = 1.0) -> tuple[float, float, float]:
    """(predicted, low, high)."""
    low, high = measured.ends(world, spread)
    return times * float(measured.of(world)), times * float(low), times * float(high)


def _fit(deviations: float) -> float:
    return math.exp(-deviations * deviations / 2.0)


def _left(measured: Measured, world: World) -> float:
    """How many times as slow, or as full, as the world predicts."""
    return math.exp(measured.slowness(world))


def _with_others(
    some: Sequence[Finding], others: Sequence[Measured], spread: Spread
) -> Iterator[Finding]:  # fmt: skip
    """Findings with what they predict of the other measured numbers; the best of them keeps its plausibility, those under which the
    others are farther from what was measured lose some."""
    if not others or not some:
        yield from some
        return
    fits = [math.prod(_fit(min(abs(one.deviations(own.world, spread)), FARTHEST)) for one in others) for own in some]
    best = max([fit for own, fit in zip(some, fits, strict=True) if own.explains] or fits)
    for own, fit in zip(some, fits, strict=True):
        told = []
        for one in others:
            low, high = one.ends(own.world, spread)
            told.append((one, float(one.of(own.world)), float(low), float(high)))
        yield changed(own, others=tuple(told), plausibility=own.plausibility * min(fit / best, 1.0))


FARTHEST = 6.0
"""Deviations beyond which a figure is simply wrong."""


# ---- in words --------------------------------------------------------------------------------------------------------------------


def gpus_of_node(found: Finding) -> float:
    """What a number of one GPU is told times: networks between nodes are told as what a node has."""
    return float(_island(found).gpus_per_node) if found.cause.kind == "fabric-bandwidth" else 1.0


def _island(found: Finding) -> Island:
    """The island that a number is of, the first where it is of none."""
    at = found.cause.island if isinstance(found.cause, Numeric) else 0
    return found.world.scenario.fleet.islands[at]


def rate_of(found: Finding) -> float | None:
    """Of a network's number, what a node (or a line between islands) really sends, B/s: with the share that collectives reach."""
    if found.solution is None:
        return None
    scenario, name, island = found.world.scenario, found.cause.kind, _island(found)
    if name == "fabric-bandwidth" and len(island.tiers) > 1:
        tier = island.tiers[1]
        reached = float(tier.share) * min(float(scenario.stack.nic_factor), 1.0)
        return found.solution.value * float(island.gpus_per_node) * reached
    return found.solution.value if name in ("wan-bandwidth", "site-bandwidth") else None


def why(found: Finding) -> list[str]:
    """Sentences that say why a cause is as plausible as it is."""
    said = [found.cause.basis]
    rate = rate_of(found)
    if rate is not None:
        kinds = classes.fabric_kinds(_island(found)) if found.cause.kind == "fabric-bandwidth" else classes.line_kinds()
        said.insert(0, classes.named(rate, kinds))
    if found.solution is not None and isinstance(found.cause, Numeric):
        cause = found.cause
        if cause.whole and math.floor(found.solution.high) < math.ceil(found.solution.low):
            said.append("no whole number lies in the interval")
        if not found.explains and cause.bound:
            said.append(f"would have to be {cause.bound}")
    if not found.explains:
        said.append(f"leaves a factor of {max(found.unexplained, 1.0 / found.unexplained):.3g} unexplained")
    for one, _, low, high in found.others:
        if not low <= one.value <= high:
            said.append(f"does not go with the {one.quantity.title}")
    return [text for text in said if text]
