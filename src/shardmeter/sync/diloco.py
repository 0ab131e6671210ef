"""DiLoCo: H AdamW steps alone, then one Nesterov step on the mean of what the cells moved (Douillard 2023).

Bytes: the outer gradient (parameters before the round less parameters after it), `bits` a parameter, in one all-reduce: a
    cell sends and receives 2·(M − 1)/M of it. 16 bits in OpenDiLoCo, 8 in INTELLECT-1.
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how the all-reduce passes, `split` how the batch is
    shared among cells.
Window: none: all wait. `lead`, 0 by default, is the share of the last inner step behind which the message passes already;
    the simulator of the papers releases it layer by layer behind that step's backward, 0.55.
Memory: outer copy of the parameters and outer momentum, 4 + 4 bytes a parameter, where `outer_state` says. Leaves out the
    message itself, which is made and reduced tensor by tensor.
Compute: the message takes θ₀ and θ (2 numbers read) and is written; the update reads its mean, θ₀ and momentum and writes
    θ₀, momentum and θ (5 numbers): 28 + bits/4 bytes a parameter and round; on hosts 8, θ out and back.
Convergence: replicas M, period H, delay 0, bits. Published at H = 30: loss ∝ M^0.0116 (Charles 2025).
Source: Douillard 2023, Algorithm 1; H = 500 as there and in OpenDiLoCo (Jaghouar 2024); INTELLECT-1 (Jaghouar 2024b).
Leaves out: cells that join or fail within a round; retries of an all-reduce.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer

FIELDS = ("sync_every", "bits", "lead", "outer_state", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 500.0}
SOURCE = "douillard2023"
STATE = ("outer copy of the parameters", "outer momentum")
"""What an outer step by Nesterov keeps, a number each a parameter."""
NUMBERS = 7.0
"""fp32 numbers a parameter that message and update read and write."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """The scaling law of its replicas."""
    return _loss.replicas(replica, sync)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps alone, one blocking all-reduce of the outer gradient, one outer step."""
    message = Crossing(
        label="outer gradient across islands",
        collective="all_reduce",
        size=_outer.message(replica, sync),
        lead=sync.lead,
    )
    device, host = _outer.placed(sync, _outer.kept(replica, *STATE))
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=device,
        host_residents=host,
        traffic=_outer.traffic(replica, sync, NUMBERS),
        progress=Progress(replicas=replica.cells, period=sync.sync_every, bits=sync.bits),
        notes=_outer.notes(sync),
    )
