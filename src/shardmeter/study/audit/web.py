"""What statements imply: every quantity that follows from others along the identities, and where two ways to it disagree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.study.audit.identities import Identity, ring_factor
from shardmeter.study.audit.reading import GATHERS, Claim

ROUNDS = 7
"""Identities in a row that a way may take."""
MOST_WAYS = 8
"""Ways to one quantity that are kept, those of the fewest statements."""
EXACT = 0.004
"""Relative difference below which two numbers are one: what rounding in between leaves."""
CONVENTION = 0.08
"""What ways through a count of FLOPs may differ by and still agree: conventions do."""
COUNTED = frozenset({"flops_per_token", "executed_flops_per_token"})


@record
class Way:
    """One value of a quantity, from some statements."""

    quantity: str
    value: float
    """As if nothing came on top where an identity only bounds."""
    low: float
    high: float
    """Above `low` where an identity only bounds."""
    rounding: float
    mask: int
    """The statements it rests on: bit n is that of id n."""
    through: tuple[str, ...] = ()
    """The identities, as they are said."""
    counted: bool = False
    """Whether it goes through a count of FLOPs that the model (not a claim) gives."""

    @property
    def uses(self) -> frozenset[int]:
        """Ids of the statements."""
        return frozenset(at for at in range(self.mask.bit_length()) if self.mask >> at & 1)


Ways = Mapping[str, tuple[Way, ...]]


def ways(statements: Sequence[Claim], identities: Iterable[Identity]) -> Ways:
    """Every quantity that statements imply, each in the ways of the fewest statements first."""
    found: dict[str, list[Way]] = {}
    for one in statements:
        if not one.word:
            counted = one.origin == "model" and one.quantity in COUNTED
            _keep(found, Way(
                quantity=one.quantity, value=one.value, low=one.value, high=one.value, rounding=one.rounding,
                mask=1 << one.id, counted=counted,
            ))  # fmt: skip
    gathers = any(one.word in GATHERS for one in statements)
    for one in statements:
        if one.quantity == "ranks" and one.value > 1.0:
            factor = ring_factor(one.value, gathers=gathers)
            own = Way(quantity="ring_factor", value=factor, low=factor, high=factor, rounding=0.0, mask=1 << one.id)
            _keep(found, own)
    rules = tuple(identities)
    fresh = {id(way) for own in found.values() for way in own}
    for _ in range(ROUNDS):
        made = [way for rule in rules for target in rule.powers for way in _solved(rule, target, found, fresh)]
        fresh = {id(way) for way in made if _keep(found, way)}
        if not fresh:
            break
    return {key: tuple(sorted(own, key=size)) for key, own in found.items()}


def size(way: Way) -> tuple[int, bool, int, float]:
    """The order of ways: those of the fewest statements, exact ones before bounds, of the fewest identities."""
    return way.mask.bit_count(), way.high > way.low * (1.0 + EXACT), len(way.through), way.value


def _keep(found: dict[str, list[Way]], way: Way) -> bool:
    """Add a way unless one of some of its statements is there; whether it was added."""
    own = found.setdefault(way.quantity, [])
    if _is_known(own, way.mask):
        return False
    own[:] = [other for other in own if way.mask & other.mask != way.mask]
    own.append(way)
    if len(own) > MOST_WAYS:
        own.sort(key=size)
        return own.pop() is not way
    return True


def _is_known(own: Iterable[Way], mask: int) -> bool:
    return any(other.mask & mask == other.mask for other in own)


def _solved(rule: Identity, target: str, found: Mapping[str, list[Way]], fresh: set[int]) -> Iterable[Way]:
    """The target of an identity in every way that the others are known in, one of them at least since the last round."""
    others = [name for name in rule.powers if name != target]
    if not all(name in found for name in others):
        return
    known = found.get(target, ())
    for parts in itertools.product(*(tuple(found[name]) for name in others)):
        mask = 0
        for part in parts:
            mask |= part.mask
        if _is_known(known, mask) or not any(id(part) in fresh for part in parts):
            continue
        way = _value(rule, target, tuple(zip(others, parts, strict=True)), mask)
        if way.low > 0.0 and math.isfinite(way.high):
            yield way


def _value(rule: Identity, target: str, parts: Sequence[tuple[str, Way]], mask: int) -> Way:
    """An identity solved for one quantity: its value, and the ends between which bounds leave it."""
    value = low = rule.constant
    high = low * rule.slack
    for name, part in parts:
        power = -rule.powers[name]
        ends = part.low**power, part.high**power
        value, low, high = value * part.value**power, low * min(ends), high * max(ends)
    power = 1.0 / rule.powers[target]
    low, high = sorted((low**power, high**power))
    said = dict.fromkeys([line for _, part in parts for line in part.through] + [rule.says])
    return Way(
        quantity=target, value=value**power, low=low, high=high, rounding=plain_sum(part.rounding for _, part in parts), mask=mask,
        through=tuple(said), counted=rule.counts or any(part.counted for _, part in parts),
    )  # fmt: skip


def agree(one: Way, other: Way) -> bool:
    """Whether two ways to a quantity meet within what rounding, bounds and conventions of counting leave open."""
    room = EXACT + one.rounding + other.rounding + (CONVENTION if one.counted or other.counted else 0.0)
    return one.low <= other.high * (1.0 + room) and other.low <= one.high * (1.0 + room)


@record
class Conflict:
    """Statements that cannot all be true: two ways to one quantity that differ."""

    uses: frozenset[int]
    quantity: str
    one: Way
    other: Way


def conflicts(found: Ways) -> tuple[Conflict, ...]:
    """Contradictions of the fewest statements, each told once."""
    every = [
        Conflict(uses=a.uses | b.uses, quantity=key, one=a, other=b)
        for key, own in found.items()
        for a, b in itertools.combinations(own, 2)
        if not agree(a, b)
    ]
    every.sort(key=lambda one: (len(one.uses), len(one.one.through) + len(one.other.through), one.quantity))
    kept: list[Conflict] = []
    for one in every:
        if not any(other.uses <= one.uses for other in kept):
            kept.append(one)
    return tuple(kept)


def culprits(
    found: Sequence[Conflict], claims: Mapping[int, Claim], suspicion: Callable[[int], tuple[float, ...]]
) -> tuple[int, ...]:
    """Ids of the claims that, taken away, leave no contradiction: those of most contradictions first, then the most suspicious."""
    left, named = list(found), []
    while left:
        counted: dict[int, int] = {}
        for key in (key for one in left for key in one.uses if claims[key].claimed):
            counted[key] = counted.get(key, 0) + 1
        if not counted:
            break
        worst = max(counted, key=lambda key: (counted[key], *suspicion(key), key))
        named.append(worst)
        left = [one for one in left if worst not in one.uses]
    return tuple(named)
