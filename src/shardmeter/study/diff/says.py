"""The sentences on top of a comparison: what a run takes and costs first, then why, then the step, then what is learned."""

from __future__ import annotations

from collections.abc import Iterator

from shardmeter.core.quantity import show
from shardmeter.core.record import record
from shardmeter.study.diff.clock import SAME_STEP
from shardmeter.study.diff.figures import LEDGERS, LOSS, SAME, Answer, most, of
from shardmeter.study.diff.learned import Gap
from shardmeter.study.diff.shares import Attribution

CLOCK = ("run.wall_clock_s", "wall clock", "s")
COST = ("run.cost_usd", "cost", "USD")
RATE = ("tokens_per_s", "throughput", "tokens/s")
STEP = ("step_time_s", "step", "s")
LEDGER_OF_CLOCK = "wall_clock"


@record
class Told:
    """All that the sentences are made of."""

    a: Answer
    b: Answer
    ledgers: Answer
    rules: Answer | None
    attribution: Attribution
    gap: Gap | None
    """What their ways of training cost in loss; None where that is the same, or one loss was asked of both."""

    def both(self, key: str) -> tuple[float, float] | None:
        """A figure of both; None where one of the two does not have it."""
        one, other = of(self.a, key), of(self.b, key)
        return None if one is None or other is None else (one, other)

    @property
    def tokens_of_a_step(self) -> float:
        """Those of B over those of A; NaN where no step is common to all islands."""
        steps, rates = self.both(STEP[0]), self.both(RATE[0])
        return float("nan") if steps is None or rates is None else steps[1] * rates[1] / (steps[0] * rates[0])


def says(told: Told) -> str:
    """Which figures differ, the term that rules that, and the part of the scenario that makes most of it."""
    if told.rules is None:
        found = "No difference." if not told.attribution.groups else "No figure differs."
        return " ".join([found, *_loss(told)])
    return " ".join([*_lead(told), *_why(told, told.rules), *_step(told), *_loss(told)])


def led(told: Told) -> list[tuple[str, str, str]]:
    """The figures that the first sentence tells: those of the run; without one the step or, where steps are not alike, the throughput."""
    if told.both(CLOCK[0]) is not None:
        return [CLOCK, *([COST] if told.both(COST[0]) is not None else [])]
    return [STEP if abs(told.tokens_of_a_step - 1.0) <= SAME_STEP else RATE]


def _lead(told: Told) -> Iterator[str]:
    """`The wall clock goes from 2.61 d to 5.59 d (+114.0 %), the cost from $13,469 to $28,913 (+114.7 %).`"""
    parts: list[str] = []
    for key, noun, unit in led(told):
        both = told.both(key)
        if both is not None:
            change = _change(*both, unit)
            goes = "" if change.startswith("is") or parts else "goes "
            parts.append(f"the {noun} {goes}{change}")
    text = ", ".join(parts)
    yield f"{text[0].upper()}{text[1:]}."


def _change(one: float, other: float, unit: str) -> str:
    if _same(one, other):
        return f"is the same, {_text(one, unit)}"
    ratio = f" ({100.0 * (other / one - 1.0):+.1f} %)" if one else ""
    return f"from {_text(one, unit)} to {_text(other, unit)}{ratio}"


def _why(told: Told, rules: Answer) -> Iterator[str]:
    """The term that rules, and the part of the scenario; of a step that is not told first in `_step`."""
    clock = rules["ledger"] == LEDGER_OF_CLOCK
    ledger = None if clock else next(one for one in LEDGERS if one.name == rules["ledger"])
    key, noun, unit = figure = CLOCK if ledger is None else (ledger.figure, ledger.noun, ledger.unit)
    moved = f"{rules['term']} {_signed(rules['difference'], unit)}{_by(told, key, unit)}"
    both = told.both(key)
    if both is None:
        yield f"The {noun} of the island that sets the pace differs by {_signed(rules['of'], unit)}, most of it {moved}."
    elif _same(*both):
        yield f"The {noun} is the same of other terms: {moved}."
    elif figure in led(told):
        yield f"Most of the change of the {noun} is {moved}."
    elif figure != STEP:
        yield f"The {noun} goes {_change(*both, unit)}: most of it is {moved}."


def _by(told: Told, key: str, unit: str) -> str:
    """The part of the scenario that makes most of the difference of a figure."""
    cause = told.attribution.most(key)
    return f"; by part of the scenario, most is {cause[0]} {_signed(cause[1], unit)}" if cause else ""


def _step(told: Told) -> Iterator[str]:
    """The step, in the second place, where it looks different: what it trains where that is not the same, and the term that makes most
    of it."""
    both, ledger = told.both(STEP[0]), told.ledgers.get("step")
    if STEP in led(told) or both is None or ledger is None or _text(both[0], "s") == _text(both[1], "s"):
        return
    found, ratio = most("step", ledger), told.tokens_of_a_step
    unlike = f" for × {ratio:.4g} the tokens" if abs(ratio - 1.0) > SAME_STEP else ""
    term = f": most of it is {found['term']} {_signed(found['difference'], 's')}" if found else ""
    yield f"A step goes {_change(*both, 's')}{unlike}{term}{_by(told, STEP[0], 's') if term else ''}."


def _loss(told: Told) -> Iterator[str]:
    """What is learned, where that differs and is not what was asked."""
    gap, losses = told.gap, told.both(LOSS)
    if gap is None:
        return
    if not gap.known:
        yield f"What the way of training of {gap.least_known_of} costs in loss is unknown."
    elif losses is None or _same(*losses):
        yield f"On equal tokens the loss of B is {gap.text} that of A ({gap.less_known.basis})."
    else:
        yield f"The loss goes from {losses[0]:.4g} to {losses[1]:.4g} {told.a['run']['law']['unit']} ({gap.less_known.basis})."


def _same(a: float, b: float) -> bool:
    return abs(b - a) <= SAME * max(abs(a), abs(b))


def _signed(value: float, unit: str) -> str:
    return f"{'+' if value > 0.0 else '-' if value < 0.0 else ''}{_text(abs(value), unit)}"


def _text(value: float, unit: str) -> str:
    if unit == "tokens/s":
        return f"{value:,.0f} {unit}"
    return f"{value:,.2f} GiB" if unit == "GiB" else f"{value:,.4g} kWh" if unit == "kWh" else show(value, unit)
