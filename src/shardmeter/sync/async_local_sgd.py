"""Asynchronous local SGD: a cell ends its round when it likes; a server applies what it brings at once (Liu 2024).

Delayed Nesterov: the server steps by every outer gradient as it comes and adds momentum only every few of them. Dynamic
local updates: a slower cell takes ⌊speed / fastest speed · H⌋ steps, so that rounds last alike.

Bytes: the outer gradient up and the parameters down, `bits` each, between a cell and the server; nothing between cells.
Period: H = `sync_every` inner steps of the fastest cell. `topology` and `hierarchical` say how the messages pass.
Window: none: a cell waits for its own message and for the answer, never for another cell; `lead` of its last step.
Memory: a cell keeps the parameters it began with, 4 bytes a parameter, where `outer_state` says. The server's parameters,
    momentum and buffer of outer gradients, 12, are counted on the hosts of every cell: any may serve.
Compute: a cell reads θ₀ and θ, writes the message, reads the answer, writes θ₀ and θ: 16 + bits/4 bytes a parameter and
    round; on hosts 8.
Convergence: replicas M, period H, delay H·(M − 1)/M (derived: while a cell is in its round each of the others ends one, and
    each moves the server by an M-th of all steps), bits. Published at 20M, H = 50: 41.13 perplexity against 41.35 in step,
    and 44.27 without delayed momentum and dynamic steps.
Source: Liu 2024 (delayed Nesterov, dynamic local updates).
Leaves out: the server's own update; its queue where several cells end at once.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer

FIELDS = ("sync_every", "bits", "lead", "outer_state", "topology", "hierarchical")
DEFAULTS: dict[str, object] = {"sync_every": 50.0}
SOURCE = "liu2024"
NUMBERS = 4.0
"""fp32 numbers a parameter that a cell reads and writes."""
SERVER = ("server's parameters", "server's momentum", "server's buffered outer gradients")


def effect(replica: Replica, sync: Sync) -> Effect:
    """That of replicas in step: with delayed momentum and dynamic steps none was seen beyond it, at one small size."""
    said = "no worse than in step at 20M, H = 50 (perplexity 41.13 against 41.35; 44.27 without delayed momentum)"
    return _loss.more(_loss.replicas(replica, sync), "guess", said, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps of the fastest cell, one exchange with the server."""
    message = Crossing(
        label="outer gradient to the server and back",
        collective="star",
        size=_outer.message(replica, sync),
        lead=sync.lead,
    )
    device, host = _outer.placed(sync, _outer.kept(replica, "outer copy of the parameters"))
    stale = sync.sync_every * (replica.cells - 1.0) / replica.cells
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=device,
        host_residents=(*host, *_outer.kept(replica, *SERVER)),
        traffic=_outer.traffic(replica, sync, NUMBERS),
        pace="own",
        progress=Progress(replicas=replica.cells, period=sync.sync_every, delay=stale, bits=sync.bits),
        notes=_outer.notes(
            sync,
            "what the server keeps (12 bytes a parameter) is counted on the hosts of every cell, since any may serve",
            "outer gradients are taken as stale by the rounds that the other cells end meanwhile, all at one pace",
        ),
    )
