"""NoLoCo, gossip: after H steps alone a cell averages with one other, drawn anew each round; no collective (Kolehmainen 2025).

An outer Nesterov step on the pair's mean outer gradient, pulled towards the mean of the pair's parameters, so that cells that
have not met stay near each other.

Bytes: outer gradient and outer parameters, 2·`bits` a parameter, to one cell and from it, whatever the number of cells.
Period: H = `sync_every` inner steps. `hierarchical` says how the parts of an island pass, `split` how the batch is shared among
    cells.
Window: none: a pair waits for each other; `lead` of the last step. Partners change, so that in the long run every cell is held to
    the pace of the slowest, which each meets in turn; what is saved is the collective, not the wait.
Memory: outer copy and outer momentum, 4 + 4 bytes a parameter, where `outer_state` says, and what the partner sent, 2·`bits` a
    parameter, on the devices.
Compute: as DiLoCo, and the parameters read once more to be sent, the partner's read: 32 + 5·bits/8 bytes a parameter and round;
    on hosts 8.
Convergence: replicas M, period H, delay 0, bits. Cells never agree: their spread is held by the outer step. Up to 4 % faster than
    DiLoCo is claimed, 125M to 6.8B.
Source: Kolehmainen 2025; H = 100 is a guess, as DiLoCo's papers of that size.
Leaves out: a cell without a partner where their number is odd; the mean over partners stands for each.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, _outer, diloco

FIELDS = ("sync_every", "bits", "lead", "outer_state", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 100.0}
SOURCE = "kolehmainen2025"
SENT = 2.0
"""Values a parameter: outer gradient and outer parameters."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of DiLoCo: up to 4 % better is claimed and not taken over."""
    said = "pairs in place of all: up to 4 % faster than DiLoCo by its authors (125M to 6.8B), not taken over"
    return _loss.more(_loss.replicas(replica, sync), "guess", said, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps alone, one exchange with another cell, one outer step."""
    one = _outer.message(replica, sync)
    message = Crossing(
        label="outer gradient and parameters with another island",
        collective="exchange",
        size=SENT * one,
        lead=sync.lead,
    )
    on_host = sync.outer_state == "host"
    device, host = _outer.placed(sync, _outer.kept(replica, *diloco.STATE))
    partner = Resident(label="what the partner sent", size=SENT * one, exactness="modelled")
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(*device, partner),
        host_residents=host,
        traffic=_outer.passes(replica, 2.0 if on_host else diloco.NUMBERS + 1.0) + (0.0 if on_host else 5.0 * one),
        progress=Progress(replicas=replica.cells, period=sync.sync_every, bits=SENT * sync.bits),
        notes=_outer.notes(sync, "partners change every round, so that all cells are held to the pace of the slowest"),
    )
