"""What statements imply: every quantity that follows from others along the identities, and where two ways to it disagree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from shardmeter.core.record import record
from shardmeter.study.audit.identities import Identity, ring_factor
from shardmeter.study.audit.reading import GATHERS, Claim

ROUNDS = 7
"""Identities in a row that a way may take."""
MOST_WAYS = 10
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
    uses: frozenset[int]
    """Ids of the statements."""
    through: tuple[str, ...] = ()
    """The identities, as they are said."""
    counted: bool = False
    """Whether it goes through a count of FLOPs that the model (not a claim) gives."""


Ways = Mapping[str, tuple[Way, ...]]


def ways(statements: Sequence[Claim], identities: Iterable[Identity]) -> Ways:
    """Every quantity that statements imply, each in the ways of the fewest statements first."""
    found: dict[str, list[Way]] = {}
    for one in statements:
        if not one.word:
            counted = one.origin == "model" and one.quantity in COUNTED
            _keep(found, Way(
                quantity=one.quantity, value=one.value, low=one.value, high=one.value, rounding=one.rounding,
                uses=frozenset({one.id}), counted=counted,
            ))  # fmt: skip
    gathers = any(one.word in GATHERS for one in statements)
    for one in statements:
        if one.quantity == "ranks" and one.value > 1.0:
            factor = ring_factor(one.value, gathers=gathers)
            own = Way(
                quantity="ring_factor", value=factor, low=factor, high=factor, rounding=0.0, uses=frozenset({one.id})
            )
            _keep(found, own)
    rules = tuple(identities)
    for _ in range(ROUNDS):
        fresh = [way for rule in rules for target in rule.powers for way in _solved(rule, target, found)]
        kept = [_keep(found, way) for way in fresh]
        if not any(kept):
            break
    return {key: tuple(sorted(own, key=size)) for key, own in found.items()}


def size(way: Way) -> tuple[int, bool, int, float]:
    """The order of ways: those of the fewest statements, exact ones before bounds, of the fewest identities."""
    return len(way.uses), way.high > way.low * (1.0 + EXACT), len(way.through), way.value


def _keep(found: dict[str, list[Way]], way: Way) -> bool:
    """Add a way unless one of some of its statements is there; whether it was added."""
    own = found.setdefault(way.quantity, [])
    if any(other.uses <= way.uses for other in own):
        return False
    own[:] = [other for other in own if not way.uses < other.uses]
    own.append(way)
    if len(own) > MOST_WAYS:
        own.sort(key=size)
        return own.pop() is not way
    return True


def _solved(rule: Identity, target: str, found: Mapping[str, list[Way]]) -> Iterable[Way]:
    """The target of an identity in every way that the others are known in."""
    others = [name for name in rule.powers if name != target]
    if not all(name in found for name in others):
        return
    for parts in itertools.product(*(tuple(found[name])[:MOST_WAYS] for name in others)):
        uses = frozenset().union(*(part.uses for part in parts))
        if any(other.uses <= uses for other in found.get(target, ())):
            continue
        value = low = rule.constant
        high = low * rule.slack
        for name, part in zip(others, parts, strict=True):
            value *= part.value ** -rule.powers[name]
            ends = [part.low ** -rule.powers[name], part.high ** -rule.powers[name]]
            low, high = low * min(ends), high * max(ends)
        power = 1.0 / rule.powers[target]
        value, (low, high) = value**power, sorted((low**power, high**power))
        if not (low > 0.0 and math.isfinite(high)):
            continue
        said = dict.fromkeys([line for part in parts for line in part.through] + [rule.says])
        yield Way(
            quantity=target, value=value, low=low, high=high, rounding=sum(part.rounding for part in parts), uses=uses,
            through=tuple(said), counted=rule.counts or any(part.counted for part in parts),
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
