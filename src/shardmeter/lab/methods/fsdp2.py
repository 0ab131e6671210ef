"""Fully sharded data parallelism: PyTorch's `fully_shard` of every layer and of the root (embedding and head) over all workers, so
that parameters and gradients cross the border of the islands every step. All in fp32.

Every micro-batch gathers again (embedding and head stay gathered until the backward) and scatters its gradients. On processors
PyTorch's FSDP has no streams: a gather is not hidden. gloo scatters by an all-reduce, of which each keeps its part: twice the bytes of
a reduce-scatter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmeter.lab.models import optimizer_of
from shardmeter.lab.worker import every_step

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "the same step sharded among the workers of its island alone"


def run(worker: Worker) -> None:
    """Train all rounds. Raises Lost as soon as a peer is gone."""
    from torch.distributed.device_mesh import init_device_mesh

    worker.build()
    worker.connect()
    train_sharded(worker, init_device_mesh("cpu", (worker.size,), mesh_dim_names=("shard",)))


def train_sharded(worker: Worker, mesh: Any) -> None:
    """Shard the model over a mesh and train it. Raises Lost."""
    from torch.distributed.fsdp import fully_shard

    for layer in worker.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(worker.model, mesh=mesh)
    worker.optimizer = optimizer_of(worker.model, worker.experiment.learning_rate)
    if worker.task.alone:
        every_step(worker)
        return
    worker.evaluate_together()
    every_step(worker)
    worker.evaluate_together()
