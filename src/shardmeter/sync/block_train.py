"""BlockTrain: the layers are cut into blocks, each a denoiser of its own band of noise that is trained alone (Spheroid 2026).

A cell holds one of `blocks` B, with an embedding and a head of its own for its local loss. Blocks hand each other nothing in training;
the copies of a block are averaged in rounds, and the trained blocks are put together for use.

Bytes: the block's parameters, `bits` each, to the server of its copies and the mean back: 2·(N/B)·bits/8 a cell and round.
    A block with one cell sends nothing. By `topology` in place of the server; `hierarchical` says how the parts of an island pass.
Period: H = `sync_every` inner steps of the fastest cell; rounds end on time; `split` how the batch is
    shared among the cells of a block.
Window: the round's own length, as late copies are skipped, not waited for: what takes longer than a round would be overtaken by
    the next, whatever grace it got.
Memory: that of training one block: its weights, gradients, optimizer and activations; the mean that comes back is one more copy
    of `bits` a parameter.
Compute: three times the block's forward. The mean is read and written once a round.
Convergence: a block sees no gradient of another: published, 1.359 against 1.320 nats a byte end to end at 4 blocks (byte-level
    WikiText, one host), 0.039 more. Copies are averaged as in local SGD, and cost what its replicas do: the cells of a block.
Source: arXiv 2606.24722 (abstract); rounds, bytes a round and sizes of its runs are not published. H is a guess.
Leaves out: what conditioning on the noise adds to a block, copies of unlike progress, which islands train which block (dealt
    out in turn), retries and headers of HTTP.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.specs import Crossing, Effect, Inner, Progress, Replica, Resident, Round, Sync
from shardmeter.sync import _loss, local_sgd, parts_of

FIELDS = ("sync_every", "blocks", "bits", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 100.0, "blocks": 4}
SOURCE = "blocktrain2026"
NATS, PUBLISHED = 0.039, 4
"""What 4 blocks cost, in nats a byte."""


def inner(sync: Sync) -> Inner:
    """One block of the model."""
    return Inner(blocks=sync.blocks)


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """Every block needs a cell."""
    if sync.blocks <= cells:
        return ()
    islands = f"{cells} island{'' if cells == 1 else 's'}"
    says = f"{sync.blocks} blocks, but {islands}: a block without one is not trained"
    return (("blocks", says, "1" if cells == 1 else f"{cells} or fewer"),)


def effect(replica: Replica, sync: Sync) -> Effect:
    """What the cuts between blocks cost, and what copies that are averaged do. Measured at 4 blocks; in proportion to the cuts
    elsewhere, which is a guess."""
    copies = replica.cells / sync.blocks
    averaged = local_sgd.effect(changed(replica, cells=copies), sync)
    if sync.blocks == 1:
        return averaged
    found = _of_cuts(sync)
    if np.all(np.less_equal(copies, 1.0)):
        return found
    return changed(_loss.more(found, averaged.basis, f"copies of a block: {averaged.text}"), factor=averaged.factor)


def _of_cuts(sync: Sync) -> Effect:
    """Of blocks that have one cell each."""
    measured = sync.blocks == PUBLISHED
    said = "1.359 against 1.320 nats a byte at 4 blocks (byte-level WikiText, one host)"
    if not measured:
        said += f"; {sync.blocks} blocks are outside what was published: in proportion to the cuts"
    nats = NATS * (sync.blocks - 1.0) / (PUBLISHED - 1.0)
    return Effect(basis="published" if measured else "guess", text=said, nats=nats, per="byte", source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps on time, then the mean of the copies of every block. `replica.parameters` are those of one block."""
    groups = parts_of(int(replica.cells), sync.blocks)
    size = replica.parameters * sync.bits / 8.0
    message = Crossing(
        label="blocks to their server and back", collective="star", size=size, window=sync.sync_every, groups=groups
    )
    several = float(len(groups[0]) > 1)  # of the block with most copies
    return Round(
        steps=sync.sync_every,
        crossings=(message,),
        residents=(Resident(label="mean of the copies", size=size * several, exactness="modelled"),),
        traffic=4.0 * 2.0 * replica.parameters,
        pace="deadline",
        parts=float(len(groups)),
        progress=Progress(replicas=replica.cells / float(len(groups)), period=sync.sync_every, bits=sync.bits),
        notes=(
            "every block has an embedding and a head of its own: derived from its local loss, not published",
            "the work that conditioning on the noise adds is not counted",
        ),
    )
