"""Decoupled DiLoCo: cells send fragments to a syncer all the time and wait for nobody (Douillard 2026).

The syncer merges what has come, weighted by tokens, once a quorum is there and a grace window has passed; a cell that is
late or has failed does not contribute to that merge.

Bytes: one fragment, `bits` a parameter, up to the syncer and back down, `num_fragments` times a round.
Period: H = `sync_every` inner steps of the fastest cell for each fragment, so that one leaves every H/P. `topology` and
    `hierarchical` say how the messages pass; `grace` is what a round waits for late cells.
Window: τ = `fragment_sync_delay` inner steps, and `lead` of the step before.
Memory: as Streaming DiLoCo (derived): outer copy and outer momentum, 4 + 4 bytes a parameter, where `outer_state` says, and
    the fragments under way; the syncer's share of it is counted with the cells.
Compute: as Streaming DiLoCo: 32 + bits/4 bytes a parameter and round; on hosts 8.
Convergence: replicas M, period H, delay τ, bits; `fragment_update_alpha` is the weight of the local parameters where a
    fragment is applied. Published: 64.1 against 64.4 points of accuracy. Tokens of late cells are lost, not late.
Source: Douillard 2026 (24 fragments, H = 24, τ = 2).
Leaves out: quorums of fewer than all that meet the deadline; the adaptation of the grace window; vector clocks, whose bytes
    are nothing beside a fragment.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer, streaming_diloco

FIELDS = (
    "sync_every", "num_fragments", "fragment_sync_delay", "fragment_update_alpha", "bits", "lead", "grace", "outer_state",
    "topology", "hierarchical",
)  # fmt: skip
DEFAULTS: dict[str, object] = {"sync_every": 24.0, "num_fragments": 24, "fragment_sync_delay": 2.0}
SOURCE = "douillard2026"


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of Streaming DiLoCo: published is an accuracy, no loss."""
    found = _loss.delayed(_loss.replicas(replica, sync), sync.fragment_sync_delay)
    return _loss.more(found, "guess", "as Streaming DiLoCo; 64.1 against 64.4 points of accuracy are published")


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps of the fastest cell, P fragments to the syncer and back; the round ends on time."""
    parts = float(sync.num_fragments)
    message = Crossing(
        label="fragment to the syncer and back",
        collective="star",
        size=_outer.message(replica, sync) / parts,
        messages=parts,
        window=sync.fragment_sync_delay,
        lead=sync.lead,
    )
    device, host = streaming_diloco.residents(replica, sync, sync.fragment_sync_delay)
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=device,
        host_residents=host,
        traffic=_outer.traffic(replica, sync, streaming_diloco.NUMBERS),
        pace="deadline",
        progress=Progress(
            replicas=replica.cells, period=sync.sync_every, delay=sync.fragment_sync_delay, bits=sync.bits
        ),
        notes=_outer.notes(
            sync,
            "the syncer's state is counted as Streaming DiLoCo's of every cell: derived, not published",
            "the quorum is taken to be every cell that meets the deadline",
        ),
    )
