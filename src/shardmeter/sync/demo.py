"""DeMo, DisTrO: of every tile of the momentum only the largest components of its cosine transform cross (Peng 2024).

Momentum builds up on each cell alone; what is sent is taken off it, so that it holds what the others have not seen. All cells
take the same step from what all have sent: the model stays one.

Bytes: `top_k` of the components of every 64 × 64 tile, each a value of `bits` and a position of 12: 4 of 4,096 with their signs
    are 0.0127 bit a parameter. Every cell sends its message to all others (all-gather): M − 1 come in for one that goes out.
Period: one step. `topology` and `hierarchical` say how the messages pass, `split` how the batch is shared among cells.
Window: none; `fragment_sync_delay` 1 applies what a step sent one step later, as Psyche does.
Memory: the messages of all cells. The momentum takes the place of Adam's two moments: where the plan names no optimizer it is sgd,
    whose one momentum is counted there, 4 bytes a parameter, and not here.
Compute: the transform there and back for what is sent and back for what has come, two products with a 64 × 64 matrix each: 768
    FLOPs a parameter and step, in tf32 where the device has it; 18 numbers of fp32 through memory.
Convergence: one step of the whole batch, delay `fragment_sync_delay`, bits a parameter. Published: at 300M and 1B as good as
    AdamW after 100B tokens, with 32 of 4,096.
Source: Peng 2024; 4 of 4,096, signs and tiles of 64 as in the configuration of Psyche's Consilience 40B.
Leaves out: tiles of matrices that 64 does not divide, vectors (tiles of one row); loss of messages; an index packed worse than 12
    bits.
"""

from __future__ import annotations

import numpy as np

from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, _outer, sparse_loco

FIELDS = ("top_k", "bits", "fragment_sync_delay", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"top_k": 4.0 / 4096.0, "bits": 1.0}
SOURCE = "peng2024"
OPTIMIZER = "sgd"
TILE = 64.0
"""Rows and columns of a tile."""
TRANSFORMS = 3.0
"""There for what is sent, back for what is taken off the momentum, back for what all have sent."""
NUMBERS = 18.0
"""fp32 numbers a parameter: four of each transform, the components read for their largest, two arrays of zeros written, the
momentum read and written with what is taken off it."""
SIZES, SHARE = (300e6, 1e9), 32.0 / 4096.0
"""Parameters and components of the runs that matched AdamW."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """As AdamW where it was measured; with fewer components, signs or a step of delay nothing is published."""
    low, high = SIZES
    said = f"as AdamW at {low / 1e6:g}M and {high / 1e9:g}B after 100B tokens with {SHARE * TILE * TILE:g} of 4,096"
    measured = np.all(
        np.less_equal(low, replica.parameters) & np.less_equal(replica.parameters, high)
        & np.greater_equal(sync.top_k, SHARE) & np.greater(sync.bits, 1.0) & np.equal(sync.fragment_sync_delay, 0.0)
    )  # fmt: skip
    if measured:
        return Effect(basis="published", text=said, nats=0.0, source=SOURCE)
    return _loss.unknown(
        f"{said}; of other sizes, fewer components, bare signs or a step of delay nothing is published", SOURCE
    )


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round: one message of the largest components from every cell to every other."""
    size = replica.parameters * sparse_loco.width(sync) / 8.0
    message = Crossing(
        label="largest components across islands",
        collective="all_gather",
        size=size,
        window=sync.fragment_sync_delay,
    )
    gathered = Resident(label="messages of all islands", size=replica.cells * size, exactness="modelled")
    return Round(
        steps=1.0,
        crossings=(message,),
        residents=(gathered,),
        traffic=_outer.passes(replica, NUMBERS + 2.0 * replica.cells * sync.top_k),
        products=TRANSFORMS * 2.0 * 2.0 * TILE * replica.parameters,
        progress=Progress(replicas=1.0, delay=sync.fragment_sync_delay, bits=sparse_loco.width(sync)),
        notes=(
            "transforms and selection are counted from their algorithm, not published",
            "the momentum that is sent is that of the plan's optimizer",
        ),
    )
