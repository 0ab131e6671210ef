"""Matrices that cross as two thin factors (Vogels 2019): M ≈ P·Qᵀ with P = M·Q made orthonormal, then Q = Mᵀ·P.

Both factors are averaged, P before Q is made: two collectives one after the other. What a matrix loses by it is kept and
added the next time (error feedback). A matrix is what one product multiplies by: query, key and value together, gate and up
together. Code that keeps them apart sends some more rows, a tenth more of a model of 0.5B.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Flop
from shardmeter.specs import Replica, Sync

COLLECTIVES = 2.0
"""P, then Q."""
NUMBERS = 6.0
"""fp32 numbers a parameter: M read by each of the two products, what comes back of it written, that and M read for the error,
the error written. Forming M is the method's."""


def _matrices(replica: Replica, rank: Count) -> list[tuple[Count, Count, Count, Count]]:
    """(rows, columns, how many, rank where the factors are less than the matrix, else 0)."""
    return [
        (rows, columns, many, np.where(np.less(rank * (rows + columns), rows * columns), rank, 0.0))
        for rows, columns, many in replica.matrices
    ]


def _inside(replica: Replica) -> Count:
    """Values that lie in matrices."""
    return plain_sum((rows * columns * many for rows, columns, many in replica.matrices), start=0.0)


def values(replica: Replica, rank: Count) -> Count:
    """Values that cross: r·(m + n) of an m × n matrix where that is less than the matrix, all of the rest."""
    saved: Count = 0.0
    for rows, columns, many, low in _matrices(replica, rank):
        saved = saved + np.where(np.greater(low, 0.0), many * (rows * columns - low * (rows + columns)), 0.0)
    return replica.parameters - saved * _trained(replica)


def message(replica: Replica, sync: Sync) -> Bytes:
    """Both factors and the rest on the wire."""
    return values(replica, sync.rank) * sync.bits / 8.0


def products(replica: Replica, rank: Count) -> Flop:
    """FLOPs of a round: M·Q, Mᵀ·P and P·Qᵀ, 2·m·n·r each, and an orthonormal P by Gram and Schmidt, 2·m·r²."""
    done: Flop = 0.0
    for rows, columns, many, low in _matrices(replica, rank):
        done = done + many * (6.0 * rows * columns * low + 2.0 * rows * low * low)
    return done * _trained(replica)


def _trained(replica: Replica) -> Count:
    """Share of the matrices' values that is trained: all, but with adapters beside them."""
    inside = _inside(replica)
    return np.minimum(replica.parameters / inside, 1.0) if replica.matrices else 1.0


LEFT_OUT = "the factors of a matrix are taken as one message in two equal calls"
