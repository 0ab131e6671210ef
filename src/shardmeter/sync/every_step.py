"""Synchronous data parallelism across islands: the gradients of every step are averaged over all cells (Li 2020 §3.2).

Whatever shards the parameters inside a cell (DDP, FSDP, HSDP) is not touched: each rank averages its own part with its peers of
the other cells.

Bytes: the gradients, `gradient_bytes` each; an all-reduce, so that a cell sends and receives 2·(M − 1)/M of them.
Period: one step. `topology` and `hierarchical` say how the all-reduce passes, `release` when it begins, `split` how the batch is
shared among cells.
Window: a layer leaves when its gradients are whole, behind the backwards of the step that are left then (`release: layers`), or with
all others after the last backward (`release: end`); the next step waits for the last layer.
Memory: nothing beside inner training.
Compute: nothing beside inner training.
Convergence: replicas 1, period 1, delay 0, bits those of a gradient: one step of the whole batch.
Source: Li 2020 §3.2.
Leaves out: compression of gradients.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync

FIELDS = ("topology", "hierarchical", "release", "split")
DEFAULTS: dict[str, object] = {}
SOURCE = "li2020"


def effect(replica: Replica, sync: Sync) -> Effect:
    """None: one step of the whole batch."""
    return Effect(basis="derived", text="the step of one island with the whole batch", nats=0.0, source=SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """One step is a round. `replica.gradient_bytes` is what one gradient takes on the wire."""
    message = Crossing(
        label="gradients across islands",
        collective="all_reduce",
        size=replica.parameters * replica.gradient_bytes,
        behind="backward",
    )
    return Round(
        steps=1.0,
        crossings=(message,),
        progress=Progress(replicas=1.0, bits=8.0 * replica.gradient_bytes),
    )
