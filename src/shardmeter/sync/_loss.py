"""What is known of the loss of replicas that are trained apart: DiLoCo's scaling law, and what later papers add to it.

A factor below 1 is claimed nowhere: papers that find one found it at one size, and none says that it lasts.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.record import changed
from shardmeter.core.units import Count, Nats, Ratio
from shardmeter.specs import Effect, Replica, Sync
from shardmeter.specs.round import BASES

EXPONENT = 0.0116
"""Loss grows with replicas M as M to this, in the joint fit N^−0.0985·M^0.0116 of the runs below (Charles 2025, Table 10)."""
PERIOD, CELLS, SIZES = 30.0, 8.0, (35e6, 2.4e9)
"""Those runs: inner steps of a round, most replicas, least and most parameters; C4, 20 tokens a parameter."""
SHORT = 5.0
"""Inner steps of delay below which no loss was seen (Douillard 2025)."""
LATE = 0.03
"""Nats that a whole round of delay costs a model of 1B: 0.02 to 0.03 (Kale 2025, Table 1)."""
GROWTH = "it is taken to grow with ln H beyond 30 and not to shrink below"


@formula(cite="charles2025")
def loss_growth(cells: Count, period: Count) -> Ratio:
    """Factor on the loss of M replicas averaged every H steps: M^0.0116 at H = 30, the exponent as ln H beyond.

    That beyond is a guess.

    Leaves out: sizes, data and learning rates other than of the fit."""
    stretch = np.maximum(np.log(np.maximum(period, 1.0)) / np.log(PERIOD), 1.0)
    growth: Ratio = np.maximum(cells, 1.0) ** (EXPONENT * stretch)
    return growth


def apart(cells: Count, parameters: Count, period: Count) -> Effect:
    """So many replicas with a round of `period` inner steps: `loss_growth`, and what of them lies outside its fit."""
    low, high = SIZES
    outside = [
        said
        for said, is_outside in (
            (f"rounds of other than {PERIOD:g} steps ({GROWTH})", np.not_equal(period, PERIOD)),
            ("more cells", np.greater(cells, CELLS)),
            ("another size", np.less(parameters, low) | np.greater(parameters, high)),
        )
        if np.any(is_outside)
    ]
    said = f"loss × M^{EXPONENT} at H = {PERIOD:g}, {low / 1e6:g}M to {high / 1e9:g}B, up to {CELLS:g} cells, C4"
    return Effect(
        basis="guess" if outside else "published",
        text=f"{said}; not measured here: {', '.join(outside)}" if outside else said,
        factor=loss_growth(cells, period),
        source="charles2025",
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
    )


def more(found: Effect, basis: str, text: str, nats: Nats | None = None, source: str = "") -> Effect:
    """What is known and something beside it: only as well as the less known of the two."""
    return changed(
        found,
        basis=max(found.basis, basis, key=BASES.index),
        text=f"{found.text}; {text}",
        nats=found.nats if nats is None else nats,
        source=source or found.source,
    )


def unknown(text: str, source: str) -> Effect:
    """Of which no figure is published that would be a loss."""
    return Effect(basis="unknown", text=text, source=source)
