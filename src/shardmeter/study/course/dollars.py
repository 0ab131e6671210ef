"""What is paid for a run, term by term, each with what it rests on: one body of formulas for predict, plan and sweep."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from shardmeter.core.quantity import show
from shardmeter.core.units import Bytes, Fraction, Number, Seconds, Usd
from shardmeter.engine.fleet import Whole
from shardmeter.physics import failures, money
from shardmeter.specs import Island, Run, Wan
from shardmeter.specs.scenario import Scenario
from shardmeter.study import islands
from shardmeter.study.course import energy
from shardmeter.study.course.energy import Held, joules
from shardmeter.study.course.hours import held, step_tokens

Charge = tuple[str, Number, str]
"""(term, USD, basis); NaN where no price is known."""


def charges(run: Run, whole: Whole, steps: Number) -> list[Charge]:
    """What a run of so many steps costs. Numbers may be arrays."""
    longest: Seconds = functools.reduce(np.maximum, held(whole, steps))
    return [*running(whole, steps), *stored(run, steps * step_tokens(whole), longest)]


def running(whole: Whole, steps: Number) -> list[Charge]:
    """What so many steps cost as they are taken: hours, and traffic between islands."""
    several = len(whole.parts) > 1
    found = [one for own in energy.held(whole, steps) for one in _held(own, several)]
    return [*found, *_traffic(whole, steps)]


def stored(run: Run, tokens: Number, duration: Seconds) -> list[Charge]:
    """What the bytes beside a run cost: the data set that is brought, and what is kept as long as it lasts."""
    return [*_brought(run, tokens), *_kept(run, tokens, duration)]


def cost(island: Island, lasts: Seconds, busy: Fraction) -> Usd | None:
    """What an island costs that is held for so long and computes the share `busy` of it: its rent or, of owned ones, what they lose in
    value and their electricity; of the spot market the hours in which it is there; None where a price, or the power of what is owned,
    is not known."""
    if island.price is None:
        return None
    paid = money.rent(island.gpus, lasts, island.price) * (1.0 if island.tariff.owned else _there(island)[0])
    bill = _bill(island, lasts, busy)
    return None if bill is None else paid + bill


def _bill(island: Island, lasts: Seconds, busy: Fraction, idle: Fraction = 0.0) -> Usd | None:
    """What the electricity of an island costs its owner: nothing of what is rented."""
    price = island.tariff.electricity
    if price is None:
        return 0.0
    drawn = joules(island, lasts, busy, idle=idle)
    return None if drawn is None else money.electricity(drawn, price)


def _held(own: Held, several: bool) -> list[Charge]:
    """What one island's hours cost: its rent; of owned accelerators what they lose in value, if that is said, and their electricity."""
    island = own.part.island
    of = f" of {island.name}" if several else ""
    hours: Usd = np.nan if island.price is None else money.rent(own.part.estimate.gpus, own.seconds, island.price)
    if not island.tariff.owned:
        share, said = _there(island)
        return [(f"accelerators{of}", hours * share, f"{island.price_basis}{said}")]
    bill = _bill(island, own.seconds, own.busy, own.idle)
    lost = [(f"depreciation{of}", hours, island.price_basis)] if np.any(np.not_equal(hours, 0.0)) else []
    price = island.tariff.electricity
    if bill is None or price is None:
        return [*lost, (f"electricity{of}", np.nan, "not known")]
    drawn = show(float(np.max(bill / price)), "W*s")
    return [*lost, (f"electricity{of}", bill, f"{drawn} at {show(float(np.max(price)), 'USD/(W*s)')}")]


def _there(island: Island) -> tuple[Fraction, str]:
    """Share of the time that capacity on the spot market is there, as nobody pays for what was taken away, and the words for it."""
    cause = island.preemption
    if cause is None or not np.any(np.greater(cause.wait, 0.0)):
        return 1.0, ""
    share = failures.complete_share(1.0, cause.mtbf, cause.wait)
    return share, f"; {100.0 * float(np.mean(share)):.1f} % of the hours: what was taken away is not paid"


def _traffic(whole: Whole, steps: Number) -> list[Charge]:
    """What every island pays for what it sends to others."""
    if whole.round is None or whole.wan is None:
        return []
    found: list[Charge] = []
    rows: dict[str, dict[str, str]] = {}
    for sender, to, text in whole.wan.prices:
        rows.setdefault(sender, {})[to] = text
    for part, size, usd in zip(whole.parts, whole.sent, whole.paid, strict=True):
        if not np.any(np.greater(size, 0.0)) and not np.any(np.isnan(size)):
            continue
        often = steps / whole.round.steps
        sent, paid = size * often, usd * often
        known = bool(np.all(np.isfinite(sent)) and np.all(np.isfinite(paid)))
        name = part.island.name
        fares = _fares(whole.wan, name, rows.get(name, {})) if known else ""
        basis = f"{_volume(float(np.max(sent)))} at {fares}" if known else "not known"
        found.append((f"traffic from {name}", paid, basis))
    return found


def _fares(wan: Wan, sender: str, rows: Mapping[str, str]) -> str:
    """The prices of traffic out of an island, by the catalog's rows of where it goes; by their numbers where they were said."""
    at, prices = wan.islands.index(sender), np.asarray(wan.egress)
    said = {
        float(prices[at, to]) if prices.ndim else float(prices)
        for to, name in enumerate(wan.islands)
        if to != at and name not in rows
    }
    return ", ".join(
        sorted({*rows.values(), *(f"{show(price, 'USD/B')} as said" for price in said if np.isfinite(price))})
    )


def _brought(run: Run, tokens: Number) -> list[Charge]:
    """The data set on its way to the islands."""
    found = []
    for one in run.hauls:
        size = tokens * one.each
        usd = np.nan if one.price is None else money.traffic(size, one.price)
        found.append((one.name, usd, f"{_volume(float(np.max(size)))} at {one.basis}" if one.basis else "not known"))
    return found


def _kept(run: Run, tokens: Number, duration: Seconds) -> list[Charge]:
    """Checkpoints and copies of the data set."""
    found = []
    for one in run.stocks:
        size = one.size + tokens * one.each
        usd = np.nan if one.price is None else money.storage(size, duration, one.price)
        found.append((one.name, usd, f"{_volume(float(np.max(size)))} at {one.basis}" if one.basis else "not known"))
    return found


def _volume(size: Bytes) -> str:
    """`1.5 TB`: decimal, as traffic and storage are billed."""
    terabytes = float(size) / 1e12
    if terabytes < 0.0995:
        return f"{terabytes * 1e3:,.3g} GB"
    return f"{terabytes:,.3g} TB" if terabytes < 999.5 else f"{terabytes / 1e3:,.1f} PB"


def unpriced(scenario: Scenario, whole: Whole) -> str | None:
    """A warning where the rent is known and what is sent between islands is not."""
    sent, paid = islands.egress(whole)
    if not sent or not np.isnan(paid) or any(island.price is None for island in scenario.fleet.islands):
        return None
    if not np.isfinite(sent):
        return "what an axis across islands sends is counted for pp and for sharded parameters only: the cost is null"
    return (
        "no price is known of what is sent between islands: the cost is null (say fleet.wan.default.egress: $0.02/GB)"
    )


def summed(terms: Sequence[Charge]) -> Usd:
    """What all terms cost together, in their order; NaN where one is not known."""
    total: Usd = 0.0
    for _, usd, _ in terms:
        total = total + usd
    return total
