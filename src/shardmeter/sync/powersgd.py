"""PowerSGD: every gradient matrix crosses as two thin factors, what that loses is added to the next (Vogels 2019).

Bytes: `rank`·(m + n) values of `bits` of every m × n matrix, in two all-reduces (P, then Q); no more than the matrix, whole
    what is no matrix. Both factors are means, so that no message grows with the cells.
Period: one step by default; `sync_every` H > 1 sends the outer gradient of H steps in place of gradients. `topology` and
    `hierarchical` say how the all-reduces pass, `split` how the batch is shared among cells.
Window: none: all gradients are compressed once the backward is done; `lead` is the share of the last step behind which the
    message passes already.
Memory: error feedback, 4 bytes a parameter, and with H > 1 the outer copy that the outer gradient is taken from, 4. Leaves
    out the factors, which are made and reduced matrix by matrix.
Compute: three products a matrix with `rank` columns (two make the factors, one the mean) and orthonormal columns:
    6·m·n·r + 2·m·r² FLOPs, in tf32 where the device has it. Gradient and error read, their sum written, read by two products;
    the mean written, it and the sum read, the error written: 36 bytes a parameter, 56 with H > 1, and bits/4 of what is sent.
Convergence: one step of the whole batch with H = 1, replicas M else; bits a parameter. Published for image classifiers and an
    LSTM with SGD, rank 1 to 4; of Transformers with Adam nothing.
Source: Vogels 2019, Algorithms 1 and 2; rank 4 as its largest.
Leaves out: overlap with the backward, bucket by bucket; warm-up without compression; experts and adapters of unlike shape;
    query, key, value, and gate, up, that are kept as matrices of their own (r more values for every row that is sent again).
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Count
from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, _low_rank, _outer

FIELDS = ("sync_every", "rank", "bits", "lead", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"rank": 4.0}
SOURCE = "vogels2019"
NUMBERS = 3.0 + _low_rank.NUMBERS
"""fp32 numbers a parameter: the sum of gradient and error formed, and what the factors take."""
OUTER = 5.0
"""The same beside it with H > 1: the gradient is a difference, and θ₀ and θ are read and written with the mean."""


def _is_outer(sync: Sync) -> Count:
    """1 where a round has several steps."""
    return np.where(np.greater(sync.sync_every, 1.0), 1.0, 0.0)


def effect(replica: Replica, sync: Sync) -> Effect:
    """Not known for Transformers."""
    said = "at rank 2 to 4 as good as SGD on image classifiers and an LSTM; of Transformers nothing is published"
    return _loss.unknown(said, SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step, or H of them, and two all-reduces of factors."""
    outer, size = _is_outer(sync), _low_rank.message(replica, sync)
    message = Crossing(
        label="factors of gradients across islands",
        collective="all_reduce",
        size=size,
        lead=sync.lead,
        calls=_low_rank.COLLECTIVES,
    )
    kept = _outer.WIDTH * (1.0 + outer) * replica.parameters
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(Resident(label="error feedback, and outer copy", size=kept, exactness="modelled"),),
        traffic=_outer.passes(replica, NUMBERS + OUTER * outer) + 2.0 * size,
        products=_low_rank.products(replica, sync.rank),
        progress=Progress(
            replicas=np.where(outer > 0.0, replica.cells, 1.0), period=sync.sync_every,
            bits=8.0 * size / replica.parameters,
        ),
        notes=(_outer.COUNTED, _low_rank.LEFT_OUT),
    )  # fmt: skip
