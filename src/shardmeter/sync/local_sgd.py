"""Local SGD, federated averaging: every cell takes H steps alone, then all take the mean of their parameters (McMahan 2016).

Bytes: the parameters, `bits` each, in one all-reduce: a cell sends and receives 2·(M − 1)/M of them.
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how the all-reduce passes, `split` how the batch is
    shared among cells.
Window: none: all wait; the share `lead` of the last step is the most that may pass before it ends.
Memory: nothing stays: parameters are averaged in place, tensor by tensor.
Compute: parameters read, the message written, its mean read, parameters written: 8 + bits/4 bytes a parameter and round.
Convergence: replicas M, period H, delay 0, bits.: an outer step of rate 1 without momentum.
Source: McMahan 2016, Algorithm 1; Stich 2018.
Leaves out: sampling a part of the cells each round; the inner optimizer's moments, which stay with their cell.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer

FIELDS = ("sync_every", "bits", "lead", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {}
SOURCE = "mcmahan2016"


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of DiLoCo at the least: a plain mean is an outer step of rate 1 without momentum."""
    said = "a plain mean has no outer momentum: it is taken to cost what DiLoCo does, which is the least"
    return _loss.more(_loss.replicas(replica, sync), "guess", said)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps alone, one blocking mean of the parameters."""
    message = Crossing(
        label="parameters across islands",
        collective="all_reduce",
        size=_outer.message(replica, sync),
        lead=sync.lead,
    )
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        traffic=_outer.passes(replica, 2.0) + 2.0 * _outer.message(replica, sync),
        progress=Progress(replicas=replica.cells, period=sync.sync_every, bits=sync.bits),
        notes=(_outer.COUNTED,),
    )
