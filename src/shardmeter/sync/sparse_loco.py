"""SparseLoCo: of every chunk of 4,096 outer gradients only the largest cross, in few bits; the rest is kept (Sarfi 2025).

What is not sent stays in a buffer (error feedback, decayed by 0.95), which does what an outer momentum does elsewhere.

Bytes: `top_k` of the parameters, each a value of `bits` and a position of 12 within its chunk: 64 of 4,096 at 2 bits is
    0.21875 bit a parameter. Every cell uploads its own message and downloads those of all others (all-gather): M − 1 of them.
    Where all is sent (`top_k` 1) no position is.
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how the messages pass, `split` how the batch is shared
    among cells.
Window: none: all wait; `lead` of the last step.
Memory: outer copy and error feedback, 4 + 4 bytes a parameter (derived), where `outer_state` says; the M messages of a round.
Compute: the sum of the outer gradient and the decayed buffer is formed (θ₀, θ and buffer read, buffer written), read once
    more for its largest, and spread from M messages over an array of zeros (written once, 2·M·top_k read and written); the
    update reads that and θ₀ and writes θ₀ and θ: 40 + 8·M·top_k bytes a parameter and round; on hosts 8.
Convergence: replicas M, period H, delay 0, bits a parameter. Published: 1–3 % of the values at 2 bits can beat dense DiLoCo
    (512M to 2B).
Source: Sarfi 2025; H = 30 and 64 of 4,096 at 2 bits as in Covenant-72B (arXiv 2603.08163).
Leaves out: a cap on the peers that are merged; masks in place of positions, fewer bits where more than a twelfth is sent;
    scales of the values.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count
from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, _outer

BITS = 2.0
"""Bits of a value that the published runs send."""
FIELDS = ("sync_every", "bits", "top_k", "lead", "outer_state", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 30.0, "bits": BITS, "top_k": 64.0 / 4096.0}
SOURCE = "sarfi2025"
POSITION = 12.0
"""Bits of a position in a chunk of 4,096."""
NUMBERS = 10.0
"""fp32 numbers a parameter that selection, merge and update read and write, the entries of the messages apart."""
LEAST, SIZES = 0.01, (512e6, 2e9)
"""Share of the values and parameters of the runs that were as good as DiLoCo."""


def width(sync: Sync) -> Count:
    """Bits a parameter on the wire: value and position of the share that is sent."""
    return sync.top_k * (sync.bits + POSITION * np.less(sync.top_k, 1.0))


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of DiLoCo where enough is sent: better is claimed and not taken over. Of a smaller share nothing is known."""
    said = "1 to 3 % of the values at 2 bits are as good as all (512M to 2B)"
    if np.any(np.less(sync.top_k, LEAST)):
        return _loss.unknown(f"{said}; of a smaller share nothing is published", SOURCE)
    known = np.all(np.clip(replica.parameters, *SIZES) == replica.parameters)
    enough = np.all(np.greater_equal(sync.bits, BITS))
    return _loss.more(_loss.replicas(replica, sync), "published" if known and enough else "guess", said, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps alone, one message of the largest outer gradients from every cell to every other."""
    size = replica.parameters * width(sync) / 8.0
    message = Crossing(
        label="largest outer gradients across islands", collective="all_gather", size=size, lead=sync.lead
    )
    device, host = _outer.placed(sync, _outer.kept(replica, "outer copy of the parameters", "error feedback"))
    gathered = Resident(label="outer messages of a round", size=replica.cells * size, exactness="modelled")
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(*device, gathered),
        host_residents=host,
        traffic=_traffic(replica, sync),
        progress=Progress(replicas=replica.cells, period=sync.sync_every, bits=width(sync)),
        notes=_outer.notes(sync, "outer copy and error feedback are kept in fp32: derived, not published"),
    )


def _traffic(replica: Replica, sync: Sync) -> Bytes:
    if sync.outer_state == "host":
        return _outer.passes(replica, 2.0)
    return _outer.passes(replica, NUMBERS + 2.0 * replica.cells * sync.top_k)
