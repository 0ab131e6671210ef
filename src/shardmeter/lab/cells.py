"""Islands of several workers under a method of rounds: one replica an island, `inner` of the settings says how its workers share it.

none (default): an island is one worker. ddp: every worker has the whole replica and averages gradients with those of its island; the
first exchanges with the other islands and passes the mean on. fsdp2: workers hold shards, each exchanges its own with its peers of the
other islands. Islands then have equal workers, and a lost worker is the end: there is no going on without a part of a replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, UnknownName, Violation
from shardmeter.lab import averaging, groups, outer
from shardmeter.lab.models import optimizer_of

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = ("none", "ddp", "fsdp2")


class Cell:
    """What one worker holds of its island's replica, and whom it exchanges that with. Made once the group is there."""

    def __init__(self, worker: Worker) -> None:
        """Shares the worker's model out. Raises BadScenario, UnknownName."""
        self.worker, self.inner = worker, str(worker.settings.get("inner", "none"))
        if self.inner not in INNER:
            raise UnknownName("way to share an island's replica", self.inner, INNER)
        self.inside: Any = None
        self.across: Any = None
        self.parameters = list(worker.model.parameters())
        if self.inner != "none" or worker.site.workers > 1:
            _check(worker, self.inner)
            self._share()

    @property
    def count(self) -> int:
        """Cells that exchange."""
        return self.worker.size // (1 if self.inner == "none" else self.worker.site.workers)

    def mean(self, values: Any, bits: int) -> Any:
        """The mean over all cells of what this worker holds. Raises RuntimeError where a peer is gone."""
        import torch.distributed as dist

        if self.inner != "ddp":
            return averaging.mean(values, bits, self.count, self.across)
        first = self.worker.rank == self.worker.first
        found = averaging.mean(values, bits, self.count, self.across) if first else values.clone()
        dist.broadcast(found, self.worker.members.index(self.worker.first), group=self.inside)
        return found

    def size(self, count: int, bits: int) -> int:
        """Bytes that this worker holds of a message over the border."""
        if self.inner == "ddp" and self.worker.rank != self.worker.first:
            return 0
        return averaging.size(count, bits, self.count)

    def evaluate(self) -> None:
        """Loss of the first island's replica, told by the first worker."""
        if self.inner == "fsdp2":
            self.worker.evaluate_together()
        else:
            self.worker.evaluate()

    def _share(self) -> None:
        worker, width = self.worker, self.worker.site.workers
        places = range(worker.size)
        self.inside = groups.part([places[at : at + width] for at in places[::width]], worker.place)
        self.across = groups.part([places[lane::width] for lane in range(width)], worker.place)
        if self.inner == "ddp":
            from torch.nn.parallel import DistributedDataParallel

            worker.stepping = DistributedDataParallel(worker.model, process_group=self.inside)
            return
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(self.inside, "cpu", mesh_dim_names=("shard",))
        for layer in worker.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(worker.model, mesh=mesh)
        worker.optimizer = optimizer_of(worker.model, worker.experiment.learning_rate)
        self.parameters = [one.to_local() for one in worker.model.parameters()]

    def outer(self) -> outer.Outer:
        """Outer state of what this worker holds."""
        return outer.of(self.worker, self.parameters)


def _check(worker: Worker, inner: str) -> None:
    found = []
    counts = sorted({site.workers for site in worker.experiment.sites})
    if inner == "none":
        says = f"{worker.site.workers} workers on an island, each a replica of its own"
        found.append(Violation(field="inner", says=says, way_out="inner: ddp or fsdp2, or one worker an island"))
    if len(counts) > 1 and not worker.task.alone:
        says = f"islands of {' and '.join(map(str, counts))} workers share a replica in unlike parts"
        found.append(Violation(field="islands", says=says, way_out="the same workers on each"))
    if found:
        raise BadScenario("no such islands", found)
