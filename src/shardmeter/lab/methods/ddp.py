"""Data parallelism: PyTorch's DistributedDataParallel over all workers of all islands, gradients averaged in buckets by gloo.

`bucket` of the settings: bytes of a bucket (PyTorch's own otherwise: 25 MiB, the first 1 MiB). Micro-batches before the last of a step
only add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmeter.core.units import Nats
from shardmeter.lab.worker import every_step

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "the same step among the workers of its island alone"


def run(worker: Worker) -> None:
    """Train all rounds. Raises Lost as soon as a peer is gone."""
    whole = worker.build()
    worker.connect()
    model = _wrapped(worker)
    if not worker.task.alone:
        worker.evaluate(whole)
    every_step(worker, lambda: _step(worker, model))
    if not worker.task.alone:
        worker.evaluate(whole)


def _wrapped(worker: Worker) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    bucket = worker.settings.get("bucket")
    return DistributedDataParallel(worker.model, bucket_cap_mb=None if bucket is None else float(bucket) / 2**20)


def _step(worker: Worker, model: Any) -> Nats:
    count, total = worker.experiment.micro_batches, 0.0
    for micro_batch in range(count):
        model.require_backward_grad_sync = micro_batch == count - 1
        loss = model(*worker.batch(micro_batch))
        (loss / count).backward()
        total += loss.item() / count
    worker.optimizer.step()
    worker.optimizer.zero_grad(set_to_none=True)
    return total
