"""DiLoCoX: DiLoCo whose outer gradients cross as thin factors of few bits, one whole round late (Qi 2025).

Inside a cell the paper runs a pipeline, with the outer state of every stage where the stage is; that is the plan's.

Bytes: `rank`·(m + n) values of `bits` of every m × n matrix of the outer gradient, in two all-reduces; no more than the
    matrix, whole what is no matrix.
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how the all-reduces pass, `split` how the batch is
    shared among cells.
Window: the whole next round, H inner steps, and `lead` of the step before.
Memory: outer copy, outer momentum and error feedback, 4 + 4 + 4 bytes a parameter (derived), where `outer_state` says; the
    message under way, on the devices.
Compute: as DiLoCo, and the error read, the sum written, read by two products, the mean written, it and the sum read, the
    error written: 60 bytes a parameter and round and bits/4 of what is sent; on hosts 8. 6·m·n·r + 2·m·r² FLOPs a matrix.
Convergence: replicas M, period H, delay H, bits a parameter. A loss 0.3 above that of all-reduce after 4,000 steps is quoted
    for 107B, 20 cells.
Source: Qi 2025 (abstract: 107B over 1 Gbit/s, 357 times the speed of all-reduce); H = 125, 4 bits. The rank is not in what we
    could read: 2,048 is a guess, under which the figure holds (docs/zoo.md).
Leaves out: the adaptation of rank and H while gradients shrink.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _low_rank, _outer, diloco

FIELDS = ("sync_every", "rank", "bits", "lead", "outer_state", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 125.0, "rank": 2048.0, "bits": 4.0}
SOURCE = "qi2025"
NUMBERS = diloco.NUMBERS + 2.0 + _low_rank.NUMBERS
"""fp32 numbers a parameter that message and update read and write."""
GAP = 0.3
"""Nats above all-reduce, quoted."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """What is quoted for one run, replicas and all. The law of replicas alone is of whole outer gradients in time: far less."""
    said = f"{GAP} nats above all-reduce after 4,000 steps of one run (107B, 20 cells, H = 125), quoted second-hand"
    return Effect(basis="guess", text=said, nats=GAP, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps, the factors of what the last round moved under way behind them."""
    size = _low_rank.message(replica, sync)
    message = Crossing(
        label="factors of outer gradients across islands",
        collective="all_reduce",
        size=size,
        window=sync.sync_every,
        lead=sync.lead,
        calls=_low_rank.COLLECTIVES,
    )
    on_host = sync.outer_state == "host"
    device, host = _outer.placed(sync, _outer.kept(replica, *diloco.STATE, "error feedback"))
    under_way = Resident(label="outer messages under way", size=size, exactness="modelled")
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(*device, under_way),
        host_residents=host,
        traffic=_outer.passes(replica, 2.0 if on_host else NUMBERS) + (0.0 if on_host else 2.0 * size),
        products=0.0 if on_host else _low_rank.products(replica, sync.rank),
        progress=Progress(
            replicas=replica.cells, period=sync.sync_every, delay=sync.sync_every,
            bits=8.0 * size / replica.parameters,
        ),
        notes=_outer.notes(
            sync, _low_rank.LEFT_OUT, "outer copy, momentum and error feedback are kept in fp32: derived, not published"
        ),
    )  # fmt: skip
