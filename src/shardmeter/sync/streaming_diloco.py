"""Streaming DiLoCo: the parameters in P fragments, each with a round of its own, H/P steps apart (Douillard 2025).

Bytes: one fragment of the outer gradient, `bits` a parameter, P times a round: the bytes of DiLoCo, a P-th at a time.
Period: H = `sync_every` inner steps for each of `num_fragments`, so that one starts every H/P. `topology` and `hierarchical`
    say how an all-reduce passes, `split` how the batch is shared among cells.
Window: τ = `fragment_sync_delay` inner steps from sending to applying, and `lead` of the step before (about 0.55 where
    layers are released behind that step's backward); a fragment later than that is waited for.
Memory: outer copy and outer momentum, 4 + 4 bytes a parameter, where `outer_state` says, and the fragments under way. With
    the state on hosts the devices hold that of one fragment at a time.
Compute: as DiLoCo, and the local parameters read once more to be mixed in: 32 + bits/4 bytes a parameter and round; on
    hosts 8.
Convergence: replicas M, period H, delay τ, bits. Published: τ < 5 and 4 bits cost nothing visible with
    `fragment_update_alpha` 0.5, the weight of the local parameters where a fragment is applied; it moves no bytes.
Source: Douillard 2025, Tables 1 and 4 (H = 100, τ = 1, 4 bits, α = 0.5; fragments of three layers: 8 of a 24-layer model).
Leaves out: fragments of unequal size (embedding and head); fragments in strides or in sequence, which move the same bytes.
"""

from __future__ import annotations

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count
from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, _outer, diloco

FIELDS = (
    "sync_every", "num_fragments", "fragment_sync_delay", "fragment_update_alpha", "bits", "lead", "outer_state",
    "topology", "hierarchical", "split",
)  # fmt: skip
DEFAULTS: dict[str, object] = {
    "sync_every": 100.0, "num_fragments": 8, "fragment_sync_delay": 1.0, "fragment_update_alpha": 0.5, "bits": 4.0,
}  # fmt: skip
SOURCE = "douillard2025"
NUMBERS = diloco.NUMBERS + 1.0
"""fp32 numbers a parameter that message, update and mixing read and write."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of DiLoCo, and of the delay."""
    return _loss.delayed(_loss.replicas(replica, sync), sync.fragment_sync_delay)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps of one cell, P fragments sent and applied τ steps later."""
    parts = float(sync.num_fragments)
    message = Crossing(
        label="fragment of the outer gradient across islands",
        collective="all_reduce",
        size=_outer.message(replica, sync) / parts,
        messages=parts,
        window=sync.fragment_sync_delay,
        lead=sync.lead,
    )
    device, host = residents(replica, sync, sync.fragment_sync_delay)
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=device,
        host_residents=host,
        traffic=_outer.traffic(replica, sync, NUMBERS),
        progress=Progress(
            replicas=replica.cells, period=sync.sync_every, delay=sync.fragment_sync_delay, bits=sync.bits
        ),
        notes=_outer.notes(sync, "fragments are taken as equal parts of the parameters"),
    )


def residents(replica: Replica, sync: Sync, window: Count) -> tuple[tuple[Resident, ...], tuple[Resident, ...]]:
    """(on devices, on hosts): outer state, fragments under way for `window` inner steps, and on devices the state of the
    fragment that is updated where the rest lies on hosts."""
    state = _outer.kept(replica, *diloco.STATE)
    device, host = _outer.placed(sync, state)
    if host:
        size = plain_sum(one.size for one in state) / float(sync.num_fragments)
        device = (Resident(label="outer state of one fragment", size=size, exactness="modelled"),)
    return (*device, _outer.under_way(replica, sync, window)), host
