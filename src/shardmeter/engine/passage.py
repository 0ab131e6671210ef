"""A message on its way between cells, and how it passes: what the topologies of every backend are given, and give."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.engine.links import Array, Links


@record
class Message:
    """A message between the islands of one position, one of each cell."""

    size: Bytes
    calls: Count
    links: Links
    rings: Count
    """Rings side by side, each over one rank of every island."""
    ranks: Count
    """Accelerators of all islands together where one ring goes through all of them, else 0."""
    idle: Seconds = 0.0
    """For how long nothing has passed when it begins."""
    back: Count = 1.0
    """What comes back from a server, over the message: all of the others' where they are not averaged."""

    @property
    def cells(self) -> int:
        """How many cells take part."""
        return len(self.links.names)


@record
class Passage:
    """How a message passes: seconds (…, cells), what goes from where to where over the size (cells, cells), the narrowest."""

    seconds: Array
    shares: Array
    narrowest: str
    server: int = -1
    """The cell that answers the others: what it sends is for their exchanges, of the rest each cell's own; −1 = none."""


def alike(seconds: Any, shares: Array, narrowest: str) -> Passage:
    """The same seconds for every cell."""
    cells = len(shares)
    return Passage(seconds=np.repeat(last(seconds), cells, axis=-1), shares=shares, narrowest=narrowest)


def last(number: Any) -> Array:
    """With an axis more at its end."""
    return np.asarray(number, dtype=float)[..., None]
