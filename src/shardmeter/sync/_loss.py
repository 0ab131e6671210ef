"""What is known of the loss of replicas that are trained apart: measured runs, DiLoCo's scaling law beyond them, and what later papers
add to it.

A factor below 1 is claimed nowhere: papers that find one found it at one size, and none says that it lasts.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.record import changed
from shardmeter.core.units import Count, Fraction, Nats, Ratio
from shardmeter.specs import Effect, Replica, Sync
from shardmeter.specs.round import BASES
from shardmeter.sync import _measured

EXPONENT = 0.0116
"""Loss grows with replicas M as M to this, in the joint fit N^−0.0985·M^0.0116 of runs at H = 30 (Charles 2025, Table 10)."""
PERIOD = 30.0
"""Inner steps of a round of those runs."""
SHORT = 5.0
"""Inner steps of delay below which no loss was seen (Douillard 2025)."""
LATE = 0.03
"""Nats that a whole round of delay costs a model of 1B: 0.02 to 0.03 (Kale 2025, Table 1)."""


@formula(cite="charles2025")
def loss_growth(cells: Count, period: Count, measured: Ratio, inside: Fraction) -> Ratio:
    """Factor on the loss of M replicas averaged every H steps: what runs of that kind lost (`measured`), where they lie `inside` of
    those that were made (1) and not beyond (0): there no less than M^0.0116 at H = 30, the exponent as ln H beyond, which is a guess.

    Leaves out: data and learning rates other than of those runs."""
    stretch = np.maximum(np.log(np.maximum(period, 1.0)) / np.log(PERIOD), 1.0)
    fitted = np.maximum(cells, 1.0) ** (EXPONENT * stretch)
    growth: Ratio = np.where(np.greater_equal(inside, 1.0), measured, np.maximum(measured, fitted))[()]
    return growth


def apart(cells: Count, parameters: Count, period: Count) -> Effect:
    """So many replicas with a round of `period` inner steps: what runs of that kind lost, between those that were made. Beyond them the
    same lines go on, and never below the joint fit with its exponent in proportion to ln H: no gain is taken over."""
    measured, steps = _measured.gap(cells, parameters, period), np.maximum(period, PERIOD)
    inside = _measured.is_inside(cells, parameters, steps)
    basis, text = "published", f"between measured runs ({_measured.reach()})"
    if np.any(np.less(period, PERIOD) & np.greater(cells, 1.0)):
        basis, text = (
            "derived",
            f"rounds of less than {PERIOD:g} steps are taken to cost what those do ({_measured.reach()})",
        )
    if not np.all(inside):
        basis = "extrapolated"
        text = f"beyond the measured runs ({_measured.reach()}): carried on in ln M and ln H, no less than M^{EXPONENT} at H = {PERIOD:g}"
    return Effect(
        basis=basis,
        text=text,
        factor=loss_growth(cells, steps, np.exp(measured), np.where(inside, 1.0, 0.0)),
        source="charles2025" if np.all(np.less_equal(period, PERIOD)) else "douillard2025",
    )


def replicas(replica: Replica, sync: Sync) -> Effect:
    """All cells of a method that averages them every H steps."""
    return apart(replica.cells, replica.parameters, sync.sync_every)


def delayed(found: Effect, delay: Count) -> Effect:
    """With what is applied `delay` inner steps late: nothing below five steps, that of a whole round from there on."""
    late = np.greater_equal(delay, SHORT)
    if not np.any(late):
        return more(found, "published", f"less than {SHORT:g} steps of delay cost nothing visible", nats=0.0)
    return more(
        found,
        "guess",
        f"{SHORT:g} steps of delay or more are taken to cost what a whole round does, {LATE} nats",
        nats=np.where(late, LATE, 0.0),
        source="kale2025",
    )


def more(found: Effect, basis: str, text: str, nats: Nats | None = None, source: str = "") -> Effect:
    """What is known and something beside it: only as well as the less known of the two."""
    part = Effect(basis=basis, text=text, nats=nats, source=source or found.source)
    return changed(
        found,
        basis=max(found.basis, basis, key=BASES.index),
        text=f"{found.text}; {text}",
        nats=found.nats if nats is None else nats,
        source=source or found.source,
        parts=(*(found.parts or (found,)), part),
    )


def unknown(text: str, source: str) -> Effect:
    """Of which no figure is published that would be a loss."""
    return Effect(basis="unknown", text=text, source=source)
