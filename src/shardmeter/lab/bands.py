"""Bands of noise: which block of a stack removes how much of it (DiffusionBlocks, arXiv 2506.14202; BlockTrain, arXiv 2606.24722).

Noise levels σ lie between 1 and 10, as BlockTrain's (below 1 a block would read its target off what it is given). Their logarithms are
drawn from a normal distribution of mean −1.2 and deviation 1.2 (EDM, Karras 2022), cut to that range, and every block has an equal share of
it, the first block the loudest. `LENGTH`, the length of the vector that stands for a byte, is EDM's σ_data. That the published runs used
these two of EDM's numbers is not said.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from shardmeter.core.record import record
from shardmeter.core.units import Ratio

LEAST, MOST = 1.0, 10.0
LEVELS = NormalDist(-1.2, 1.2)
LENGTH = 0.5


@record
class Band:
    """Noise levels of one block, from the loudest, with which it is used, down to the softest, which it leaves."""

    loudest: Ratio
    softest: Ratio

    def level(self, share: float) -> float:
        """The level below which a share (0 … 1) of the band's training lies."""
        low, high = (LEVELS.cdf(math.log(float(end))) for end in (self.softest, self.loudest))
        return math.exp(LEVELS.inv_cdf(low + share * (high - low)))


def bands(blocks: int) -> tuple[Band, ...]:
    """The bands of so many blocks, in the order in which they are used. Raises ValueError below one block."""
    if blocks < 1:
        raise ValueError(f"{blocks} blocks")
    low, high = LEVELS.cdf(math.log(LEAST)), LEVELS.cdf(math.log(MOST))
    inner = [math.exp(LEVELS.inv_cdf(high + (low - high) * cut / blocks)) for cut in range(1, blocks)]
    ends = [MOST, *inner, LEAST]
    return tuple(Band(loudest=ends[at], softest=ends[at + 1]) for at in range(blocks))
