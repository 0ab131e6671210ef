"""DiLoCo with overlapped, eager outer updates: the mean of a round arrives while the next one runs (Kale 2025).

At the end of a round every cell applies its own outer gradient at once in place of the mean, and corrects it when the mean
arrives, at the end of the next round.

Bytes: those of DiLoCo, `bits` a parameter and round, in `num_fragments` messages (1 = the whole at once; the paper's times
    are with Streaming DiLoCo's fragments).
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how an all-reduce passes, `split` how the batch is
    shared among cells.
Window: the whole next round, H inner steps, and `lead` of the step before.
Memory: outer copy and outer momentum, 4 + 4 bytes a parameter, and the cell's own outer gradient until the mean replaces
    it, 4 (derived), where `outer_state` says; the messages under way, a whole model of `bits`, on the devices.
Compute: as DiLoCo, and the own outer gradient of the last round read, that of this one written: 36 + bits/4 bytes a
    parameter and round; on hosts 8.
Convergence: replicas M, period H, delay H, bits. Published at 1B: 2.69 nats against 2.66 with one step of overlap (delayed,
    25B tokens, 4 bits); eager close to DiLoCo.
Source: Kale 2025, Table 1 (H = 100, 4 bits).
Leaves out: what lies between one step and one round of overlap; that is Streaming DiLoCo's `fragment_sync_delay`.
"""

from __future__ import annotations

import numpy as np

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer, diloco

FIELDS = ("sync_every", "num_fragments", "bits", "lead", "outer_state", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 100.0, "bits": 4.0}
SOURCE = "kale2025"
NUMBERS = diloco.NUMBERS + 2.0
"""fp32 numbers a parameter that message and both updates read and write."""
MEASURED, SIZE = 100.0, 1e9
"""H and parameters of the runs with delay."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of DiLoCo, and what a whole round of delay costs without the eager step, which is the most."""
    said = (
        f"0.02 to {_loss.LATE} nats more at 1B for a round of delay (H = {MEASURED:g}); the eager step is close to none"
    )
    found = _loss.replicas(replica, sync)
    known = np.all(np.equal(sync.sync_every, MEASURED) & np.less_equal(replica.parameters, SIZE))
    return _loss.more(found, "published" if known else "guess", said, nats=_loss.LATE, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps, what the last round moved under way behind them."""
    parts = float(sync.num_fragments)
    message = Crossing(
        label="outer gradient across islands",
        collective="all_reduce",
        size=_outer.message(replica, sync) / parts,
        messages=parts,
        window=sync.sync_every,
        lead=sync.lead,
    )
    device, host = _outer.placed(sync, _outer.kept(replica, *diloco.STATE, "own outer gradient"))
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(*device, _outer.under_way(replica, sync, sync.sync_every)),
        host_residents=host,
        traffic=_outer.traffic(replica, sync, NUMBERS),
        progress=Progress(replicas=replica.cells, period=sync.sync_every, delay=sync.sync_every, bits=sync.bits),
        notes=_outer.notes(
            sync, "the own outer gradient is kept in fp32 until its mean arrives: derived, not published"
        ),
    )
