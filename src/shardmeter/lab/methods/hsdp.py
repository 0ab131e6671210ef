"""Hybrid sharding: `fully_shard` of every layer and of the root over the workers of an island, copies of which are kept equal across
islands: gradients are scattered inside, then all-reduced across. All in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.lab.methods.fsdp2 import train_sharded

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "the same step sharded among the workers of its island alone"


def run(worker: Worker) -> None:
    """Train all rounds. Raises Lost as soon as a peer is gone, BadScenario where islands have unequal workers."""
    from torch.distributed.device_mesh import init_device_mesh

    counts = sorted({site.workers for site in worker.experiment.sites})
    if len(counts) > 1 and not worker.task.alone:
        says = f"islands of {' and '.join(map(str, counts))} workers: a mesh of copies and shards has equal rows"
        raise BadScenario(
            "hsdp needs islands alike", [Violation(field="islands", says=says, way_out="the same workers on each")]
        )
    worker.build()
    worker.connect()
    shape = (worker.size // worker.site.workers, worker.site.workers)
    train_sharded(worker, init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")))
