"""What each part in which two scenarios differ makes of the difference: its mean over all orders in which the parts can be changed.

The shares sum to the difference, and those of B against A are those of A against B with the other sign (Shapley's value; a single
order has neither a reason to be the one nor that symmetry)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.core.record import record
from shardmeter.study.course import course
from shardmeter.study.diff.mixtures import groups, mixture
from shardmeter.study.diff.sides import Side
from shardmeter.study.islands import nobody_waits
from shardmeter.study.predict import Prediction, predict

FIGURES = ("step_time_s", "run.wall_clock_s", "run.cost_usd")
"""What is shared out."""
Values = Mapping[str, float | None]


@record
class Illegal:
    """A mixture that is no legal scenario."""

    from_b: tuple[str, ...]
    """The parts that it takes from B; the others are A's."""
    why: str


@record
class Attribution:
    """The difference of every figure, part by part."""

    groups: tuple[tuple[str, ...], ...]
    """Parts that are changed together, because some mixture of them is illegal; most stand alone."""
    shares: Mapping[str, tuple[float, ...]]
    """Of every figure that all mixtures have: B − A by group, in their order."""
    illegal: tuple[Illegal, ...] = ()

    def most(self, figure: str) -> tuple[str, float] | None:
        """The part that makes most of the difference of a figure, in its direction, and how much; None where there is one part, or it is
        not known."""
        shares = self.shares.get(figure)
        if shares is None or len(shares) < 2:
            return None
        at = shares.index(max(shares) if math.fsum(shares) >= 0.0 else min(shares))
        return " + ".join(self.groups[at]), shares[at]

    def to_dict(self) -> dict[str, Any]:
        """`attribution` of the answer."""
        return {
            "groups": [list(group) for group in self.groups],
            "shares": {
                figure: [{"group": " + ".join(group), "difference": one} for group, one in zip(self.groups, each, strict=True)]
                for figure, each in self.shares.items()
            },
            "illegal": [{"from_b": list(one.from_b), "why": one.why} for one in self.illegal],
        }  # fmt: skip


def attribution(a: Side, b: Side, one: Prediction, other: Prediction) -> Attribution:
    """Share out the differences of two predictions."""
    apart = groups(a, b)
    if not apart:
        return Attribution(groups=(), shares={})
    found: dict[frozenset[str], Values | str] = {frozenset(): _values(one), frozenset(apart): _values(other)}
    for taken in _subsets([(name,) for name in apart]):
        if taken not in found:
            found[taken] = _tried(a, b, taken, apart)
    blocks, illegal = _merged(apart, found)
    return Attribution(
        groups=blocks,
        shares={name: shares for name in FIGURES if (shares := _shapley(blocks, found, name)) is not None},
        illegal=illegal,
    )


def _tried(a: Side, b: Side, from_b: frozenset[str], apart: Sequence[str]) -> Values | str:
    """The figures of a mixture; why it is none."""
    try:
        return _values(predict(mixture(a, b, from_b, apart)))
    except ShardMeterError as error:
        return str(error.violations[0]) if error.violations else error.message


def _values(made: Prediction) -> Values:
    run = course(made.scenario, made.whole) or {}
    step = None if nobody_waits(made.whole) else made.step_time
    return {"step_time_s": step, "run.wall_clock_s": run.get("wall_clock_s"), "run.cost_usd": run.get("cost_usd")}


def _subsets(blocks: Sequence[tuple[str, ...]]) -> Iterator[frozenset[str]]:
    """All unions of blocks, from none to all."""
    for mask in range(2 ** len(blocks)):
        yield frozenset(name for at, block in enumerate(blocks) if mask >> at & 1 for name in block)


def _merged(
    apart: Sequence[str], found: Mapping[frozenset[str], Values | str]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Illegal, ...]]:
    """The parts, those together that no legal scenario has apart: the pair that most illegal mixtures divide is joined until none is
    left. Also the mixtures that made it so."""
    blocks: list[tuple[str, ...]] = [(name,) for name in apart]
    illegal: dict[frozenset[str], Illegal] = {}
    while True:
        bad = [taken for taken in _subsets(blocks) if isinstance(found[taken], str)]
        if not bad:
            return tuple(blocks), tuple(illegal.values())
        for taken in bad:
            from_b = tuple(name for name in apart if name in taken)
            illegal.setdefault(taken, Illegal(from_b=from_b, why=str(found[taken])))
        pairs = [(i, j) for i in range(len(blocks)) for j in range(i + 1, len(blocks))]
        i, j = max(
            pairs, key=lambda pair: sum((blocks[pair[0]][0] in one) != (blocks[pair[1]][0] in one) for one in bad)
        )
        blocks[i] += blocks.pop(j)


def _shapley(
    blocks: Sequence[tuple[str, ...]], found: Mapping[frozenset[str], Values | str], figure: str
) -> tuple[float, ...] | None:
    """The share of every block; None where some mixture does not have the figure."""
    values: dict[frozenset[str], float] = {}
    for taken in _subsets(blocks):
        own = found[taken]
        value = None if isinstance(own, str) else own[figure]
        if value is None:
            return None
        values[taken] = value
    count = len(blocks)
    shares = []
    for at, block in enumerate(blocks):
        others = [one for place, one in enumerate(blocks) if place != at]
        steps = []
        for taken in _subsets(others):
            before = sum(one[0] in taken for one in others)
            weight = math.factorial(before) * math.factorial(count - before - 1) / math.factorial(count)
            steps.append(weight * (values[taken | set(block)] - values[taken]))
        shares.append(math.fsum(steps))
    return tuple(shares)
