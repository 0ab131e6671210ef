"""Every claim beside what the others imply: agreed, contradicted with its causes, or on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.strategies.optimizer import OPTIMIZERS
from shardmeter.study.audit.factors import Factor, Match, matches, whole
from shardmeter.study.audit.limits import Finding
from shardmeter.study.audit.quantities import QUANTITIES
from shardmeter.study.audit.reading import HOUR, Claim
from shardmeter.study.audit.subject import bytes_of
from shardmeter.study.audit.web import Way, Ways, agree, conflicts, culprits, size

AGREED, CONTRADICTED, GIVEN, ALONE = "agreed", "contradicted", "given", "alone"
"""`given`: another claim was judged by it; `alone`: nothing has to do with it."""
TELLING = 0.01
"""Difference of a count that agrees from which the convention it is in is told."""
ALONE_IN_THE_WORLD = ("dp", "gpus")
"""Counts of ranks that are suspicious where they are one: a launcher that started every process alone."""


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
    single = claim.quantity in ALONE_IN_THE_WORLD and claim.value == 1.0
    return QUANTITIES[claim.quantity].suspicion + (5 if single else 0)


def judged(
    found: Ways, statements: Sequence[Claim], factors: Mapping[str, Sequence[Factor]], counting: Sequence[Factor]
) -> tuple[Verdict, ...]:
    """Verdicts on all claims with a number. `factors` by group of quantities, `counting` by conventions."""
    by_id = {one.id: one for one in statements}
    against = conflicts(found)

    def as_wrong(key: int, wrong: Sequence[int] = ()) -> Verdict:
        return _contradicted(by_id[key], found, by_id, wrong, factors, counting)

    def likely(key: int) -> tuple[float, ...]:
        """Its own suspicion, then how well a cause explains it."""
        causes = as_wrong(key).causes
        return float(suspicion(by_id[key])), -(causes[0].weight if causes and causes[0].close != "order" else 100.0)

    wrong = culprits(against, by_id, likely)
    told = {one.id: as_wrong(one.id, wrong) if one.id in wrong else _other(one, found, wrong, counting) for one in statements
            if one.claimed and not one.word}  # fmt: skip
    used = {key for one in told.values() if one.implied is not None for key in one.implied.uses}
    return tuple(
        changed(one, status=GIVEN) if one.status == ALONE and key in used else one for key, one in told.items()
    )


def limited(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """The verdict with the kind of the finding that is about the claim alone, unless it is contradicted already."""
    kind = next((one.kind for one in findings if one.claims == (verdict.claim.id,)), None)
    return verdict if kind is None or verdict.status == CONTRADICTED else changed(verdict, status=kind)


def _other(claim: Claim, found: Ways, wrong: Sequence[int], counting: Sequence[Factor]) -> Verdict:
    """A claim that no contradiction is laid on."""
    ways = [way for way in found.get(claim.quantity, ()) if claim.id not in way.uses]
    good = [way for way in ways if not set(wrong) & way.uses]
    own = _itself(claim)
    agreed = next((way for way in good if agree(own, way)), None)
    if agreed is None:
        return Verdict(claim=claim, status=ALONE)
    ratio = claim.value / agreed.value
    loose = claim.rounding + agreed.rounding
    differs = (
        agreed.counted
        and QUANTITIES[claim.quantity].group in ("ratio", "flops", "flops_rate")
        and abs(ratio - 1.0) > loose + TELLING
    )
    causes = matches(ratio, (), counting, loose=loose) if differs else ()
    return Verdict(claim=claim, status=AGREED, implied=agreed, ratio=ratio, causes=causes)


def _itself(claim: Claim) -> Way:
    return Way(
        quantity=claim.quantity, value=claim.value, low=claim.value, high=claim.value, rounding=claim.rounding,
        mask=1 << claim.id,
    )  # fmt: skip


def _contradicted(
    claim: Claim, found: Ways, by_id: Mapping[int, Claim], wrong: Sequence[int],
    factors: Mapping[str, Sequence[Factor]], counting: Sequence[Factor],
) -> Verdict:  # fmt: skip
    ways = [way for way in found.get(claim.quantity, ()) if claim.id not in way.uses and not agree(_itself(claim), way)]
    ways.sort(key=lambda way: (bool(set(wrong) & way.uses), *size(way)))
    if not ways:
        return Verdict(claim=claim, status=CONTRADICTED)
    way = ways[0]
    ratio = claim.value / way.value
    loose = claim.rounding + way.rounding
    group = QUANTITIES[claim.quantity].group
    own = counting if way.counted or group == "flops" else ()
    single = (*factors.get(group, ()), *_launched(claim, ratio), *_optimizers(claim, by_id))
    causes = matches(ratio, single, own, loose=loose, order=claim.quantity == "cost")
    count = whole(ratio, loose)
    return Verdict(
        claim=claim, status=CONTRADICTED, implied=way, ratio=ratio, causes=causes, integer=count and count[0],
        others=_would_be(claim, way, found, by_id),
    )  # fmt: skip


def _launched(claim: Claim, ratio: float) -> tuple[Factor, ...]:
    """A world of one, where some whole number of ranks is implied."""
    count = whole(ratio, 0.0)
    if claim.quantity not in ALONE_IN_THE_WORLD or claim.value != 1.0 or count is None or count[1]:
        return ()
    text = f"a world of {count[0]} was not passed on by the launcher: every process believes it is alone"
    source = "DeepSpeed 6914; starcoder 77"
    return (Factor(key="world size", value=float(count[0]), above="", below=text, weight=0.0, source=source),)


def _optimizers(claim: Claim, by_id: Mapping[int, Claim]) -> tuple[Factor, ...]:
    """Bytes of another optimizer's states over those of the one that is claimed."""
    word = next((one.word for one in by_id.values() if one.quantity == "optimizer"), "adamw")
    own = bytes_of(word, "bf16")[2]
    if claim.quantity != "memory_optimizer" or not own:
        return ()
    found = []
    for name in OPTIMIZERS:
        other = bytes_of(name, "bf16")[2]
        if other and other != own:
            text = f"the states of {name} are counted ({other:g} bytes a parameter) where {word} keeps {own:g}"
            found.append(Factor(key="another optimizer", value=other / own, above=text, below="", weight=0.1))
    return tuple(found)


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
