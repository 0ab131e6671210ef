"""Synchronous data parallelism across islands: the gradients of every step are averaged over all cells (Li 2020 §3.2).

Whatever shards the parameters inside a cell (DDP, FSDP, HSDP) is not touched: each rank averages its own part with its peers of
the other cells, so that a cell sends and receives 2·(M − 1)/M of the gradients, layer by layer behind the last backward.
"""

from __future__ import annotations

from shardmeter.specs import Crossing, Progress, Replica, Round, Sync

FIELDS = ("topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {}
SOURCE = "li2020"


def round_of(replica: Replica, sync: Sync) -> Round:
    """One step is a round. `replica.gradient_bytes` is what one gradient takes on the wire.

    Leaves out: compression of gradients."""
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
