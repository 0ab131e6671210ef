"""Every claim beside what the others imply: agreed, contradicted with its causes, or on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import record
from shardmeter.study.audit.factors import Factor, Match, matches, whole
from shardmeter.study.audit.quantities import QUANTITIES
from shardmeter.study.audit.reading import HOUR, Claim
from shardmeter.study.audit.web import Conflict, Way, Ways, agree, conflicts, culprits

AGREED, CONTRADICTED, ALONE = "agreed", "contradicted", "alone"


@record
class WouldBe:
    """What another claim would have to be so that all agree."""

    claim: int
    value: float


@record
class Verdict:
    """One claim, judged."""

    claim: Claim
    status: str
    implied: Way | None = None
    ratio: float | None = None
    """Claimed over implied; what an identity lets come on top is not held against it."""
    causes: tuple[Match, ...] = ()
    integer: int | None = None
    """A whole number that the ratio is, or is one over."""
    others: tuple[WouldBe, ...] = ()


def suspicion(claim: Claim) -> int:
    """How likely a claim is the one that is wrong."""
    return QUANTITIES[claim.quantity].suspicion


def judged(
    found: Ways, statements: Sequence[Claim], factors: Mapping[str, Sequence[Factor]], counting: Sequence[Factor]
) -> tuple[Verdict, ...]:
    """Verdicts on all claims with a number. `factors` by group of quantities, `counting` by conventions."""
    by_id = {one.id: one for one in statements}
    against = conflicts(found)
    wrong = culprits(against, by_id, suspicion)
    return tuple(
        _contradicted(one, found, by_id, against, wrong, factors, counting) if one.id in wrong else _other(one, found, wrong)
        for one in statements if one.claimed and not one.word
    )  # fmt: skip


def _other(claim: Claim, found: Ways, wrong: Sequence[int]) -> Verdict:
    """A claim that no contradiction is laid on."""
    ways = [way for way in found.get(claim.quantity, ()) if claim.id not in way.uses]
    good = [way for way in ways if not set(wrong) & way.uses]
    own = _itself(claim)
    agreed = next((way for way in good if agree(own, way)), None)
    if agreed is None:
        return Verdict(claim=claim, status=ALONE)
    return Verdict(claim=claim, status=AGREED, implied=agreed, ratio=claim.value / agreed.value)


def _itself(claim: Claim) -> Way:
    return Way(
        quantity=claim.quantity, value=claim.value, low=claim.value, high=claim.value, rounding=claim.rounding,
        uses=frozenset({claim.id}),
    )  # fmt: skip


def _contradicted(
    claim: Claim, found: Ways, by_id: Mapping[int, Claim], against: Sequence[Conflict], wrong: Sequence[int],
    factors: Mapping[str, Sequence[Factor]], counting: Sequence[Factor],
) -> Verdict:  # fmt: skip
    ways = [way for way in found.get(claim.quantity, ()) if claim.id not in way.uses and not agree(_itself(claim), way)]
    ways.sort(key=lambda way: (bool(set(wrong) & way.uses), len(way.uses)))
    if not ways:
        return Verdict(claim=claim, status=CONTRADICTED)
    way = ways[0]
    ratio = claim.value / way.value
    loose = claim.rounding + way.rounding
    group = QUANTITIES[claim.quantity].group
    own = counting if way.counted or group == "flops" else ()
    found_causes = matches(ratio, factors.get(group, ()), own, loose=loose)
    count = whole(ratio, loose)
    return Verdict(
        claim=claim, status=CONTRADICTED, implied=way, ratio=ratio, causes=found_causes, integer=count and count[0],
        others=_would_be(claim, way, found, by_id),
    )  # fmt: skip


def _would_be(claim: Claim, way: Way, found: Ways, by_id: Mapping[int, Claim]) -> tuple[WouldBe, ...]:
    """For every other claim of a contradiction, the value with which it would be none."""
    uses = way.uses | {claim.id}
    made = []
    for key in sorted(way.uses):
        other = by_id[key]
        fit = next((w for w in found.get(other.quantity, ()) if w.uses <= uses - {key} and claim.id in w.uses), None)
        if other.claimed and fit is not None:
            made.append(WouldBe(claim=key, value=fit.value))
    return tuple(made)


def presented(quantity: str, value: float) -> tuple[float, str]:
    """A number and its unit as the page and the JSON give it: SI, but accelerator-hours in hours."""
    of = QUANTITIES.get(quantity)
    if of is None:
        return value, ""
    return (value / HOUR, "GPU-h") if of.unit == "gpu_h" else (value, of.unit)


def entry(one: Verdict, by_id: Mapping[int, Claim]) -> dict[str, Any]:
    """A verdict as JSON."""
    value, unit = presented(one.claim.quantity, one.claim.value)
    way = one.implied
    implied, bounds = None, None
    if way is not None:
        implied = presented(one.claim.quantity, way.value)[0]
        bounds = [presented(one.claim.quantity, end)[0] for end in (way.low, way.high)]
    return {
        "claim": one.claim.quantity,
        "says": QUANTITIES[one.claim.quantity].says,
        "text": one.claim.text,
        "value": value,
        "unit": unit,
        "status": one.status,
        "implied": implied,
        "implied_range": bounds,
        "ratio": one.ratio,
        "from": [] if way is None else [stated(by_id[key]) for key in sorted(way.uses)],
        "through": [] if way is None else list(way.through),
        "integer": one.integer,
        "causes": [
            {"key": m.key, "factor": m.factor, "cause": m.cause, "left": m.left, "close": m.close, "source": m.source}
            for m in one.causes
        ],
        "would_be": [
            {"claim": by_id[o.claim].quantity, "text": by_id[o.claim].text,
             "value": presented(by_id[o.claim].quantity, o.value)[0], "unit": presented(by_id[o.claim].quantity, o.value)[1]}
            for o in one.others
        ],
    }  # fmt: skip


def stated(claim: Claim) -> str:
    """A statement in words: `gpus 16`, `peak (accelerator)`."""
    return f"{claim.quantity} {claim.text}" if claim.claimed else f"{claim.quantity} ({claim.origin})"
