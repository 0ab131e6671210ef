"""How far numbers are usually off: what makes one explanation more plausible than another.

Of what catalogs have rows of, the spread of these rows; of the rest, bounds that are stated with where they come from. All are
standard deviations of a logarithm: an explanation that moves a number by `far` is as plausible as a normal deviation of far/usual.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from shardmeter.core.record import record
from shardmeter.study import intervals
from shardmeter.study.doctor.cause import Usual

WIDEST = 1.0
"""Of the logarithm of a number of kernels."""
UNSAID = Usual(deviation=math.log(4.0), basis="was not said: a default may be off by a factor of four")
SAID = Usual(deviation=math.log(2.0) / 2.0, basis="was said: a slip is a factor of two, taken as two deviations")
CLOCK = Usual(
    deviation=-math.log(0.7) / 2.0,
    basis="half the power leaves 0.7 of the clock (physics.gemm.matmul_rate), taken as two deviations",
)
WAIT = Usual(deviation=0.2, basis="a loader that lets a GPU wait for a third of its time is taken as two deviations")
JITTER = Usual(
    deviation=0.034,
    basis="slowest over fastest of eight GPUs is 5 %: a deviation of 0.017 (specs.stack), twice that where nodes differ",
)
LINE = Usual(deviation=math.log(4.0), basis="nodes of INTELLECT-1 saw 0.5 to 4 of 5 Gbit/s (data/geo/links.csv)")
WHOLE = Usual(deviation=math.inf, basis="nothing to fail, or all of it: no share is likelier than another")


@record
class Words:
    """How likely a named difference is before anything is measured."""

    chance: float
    basis: str


SILENT = Words(chance=0.25, basis="happens without a word: taken as one chance in four")
AGAINST = Words(chance=0.1, basis="contradicts what was said: taken as one chance in ten")
MISCOUNTED = Words(chance=0.1, basis="a count or a unit misread: taken as one chance in ten")


def of_kernels(share: float) -> Usual:
    """Of a number that rules `share` of a step: as far as its kernels would have to be off to make a step as wrong as that of a stack
    never seen; at most a factor of e."""
    found = intervals.factors("step_time", "", fitted=False) or (math.exp(-SAID.deviation), math.exp(SAID.deviation))
    unseen = (math.log(found[1]) - math.log(found[0])) / (2.0 * intervals.NORMAL_90)
    wide = min(unseen / share, WIDEST) if share > 0.0 else WIDEST
    return Usual(
        deviation=wide,
        basis=f"stacks never seen are off by {100 * unseen:.0f} % of a step, and this is {100 * share:.0f} % of it",
    )


@functools.cache
def of_fabrics() -> Usual:
    """How the rate of a node's network differs among fabrics."""
    from shardmeter.scenario.catalog import load_catalog
    from shardmeter.study.doctor.classes import node_rate

    catalog = load_catalog()
    rates = [node_rate(catalog.fabric(name), 8.0) for name in catalog.names("fabrics")]
    found = _deviation(rates)
    return Usual(
        deviation=found, basis=f"{len(rates)} fabrics of the catalog differ by a factor of {math.exp(found):.2g}"
    )


def _deviation(values: list[float]) -> float:
    """Of the logarithm of one row over another: what is there and what was believed are two of them."""
    return math.sqrt(2.0) * float(np.std(np.log(np.array(values)), ddof=1))
