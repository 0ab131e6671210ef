"""A pipeline over islands: one stage an island, in order, layers dealt out evenly, the embedding with the first and the head with the
last. `schedule` of the settings: gpipe, or 1f1b (default); PyTorch's own schedules pass activations and gradients by gloo.

A step takes `micro_batches` of `batch` sequences through all stages; stages step their own parameters. Only the last knows the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, UnknownName, Violation
from shardmeter.lab import shapes
from shardmeter.lab.worker import HELD_OUT, every_step

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "the whole model's step with all its micro-batches, on one worker"
SCHEDULES = ("1f1b", "gpipe")


def run(worker: Worker) -> None:
    """Train all rounds. Raises Lost as soon as a peer is gone, BadScenario, UnknownName."""
    word = str(worker.settings.get("schedule", "1f1b"))
    if word not in SCHEDULES:
        raise UnknownName("schedule of the lab", word, SCHEDULES)
    if worker.task.alone:
        worker.build()
        worker.connect()
        worker.alone()
        return
    _check(worker)
    worker.build(
        layers=shapes.dealt(worker.shape.layers, worker.size)[worker.place],
        embedding=worker.place == 0,
        head=worker.place == worker.size - 1,
    )
    worker.connect()
    passes = _schedule(worker, word, worker.experiment.micro_batches)
    asks = _schedule(worker, word, max(1, HELD_OUT // worker.experiment.batch))
    _evaluate(worker, asks)
    every_step(worker, lambda: _step(worker, passes))
    _evaluate(worker, asks)


def _check(worker: Worker) -> None:
    """All that cannot be, at once."""
    found = []
    if worker.experiment.workers != len(worker.experiment.sites):
        found.append(Violation(field="islands", says="a stage is one worker", way_out="one worker an island"))
    if worker.shape.layers < worker.size:
        says = f"{worker.shape.layers} layers for {worker.size} stages"
        found.append(Violation(field="model.layers", says=says, way_out=f"at least {worker.size} layers"))
    if found:
        raise BadScenario("no such pipeline", found)


def _schedule(worker: Worker, word: str, micro_batches: int) -> Any:
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    from shardmeter.lab.models import loss_of

    stage = PipelineStage(worker.model, worker.place, worker.size, torch.device("cpu"))
    kind = ScheduleGPipe if word == "gpipe" or micro_batches < worker.size else Schedule1F1B
    return kind(stage, micro_batches, loss_fn=loss_of)


def _passed(worker: Worker, tokens: Any, targets: Any, call: Any) -> float | None:
    """The mean loss of one passage of a batch; None but on the last stage."""
    losses: list[Any] = []
    if worker.place == 0:
        call(tokens)
    elif worker.place == worker.size - 1:
        call(target=targets, losses=losses)
    else:
        call()
    return sum(one.item() for one in losses) / len(losses) if losses else None


def _step(worker: Worker, passes: Any) -> float | None:
    sequences = worker.experiment.batch * worker.experiment.micro_batches
    loss = _passed(worker, *worker.text.windows(worker.steps, 0, sequences), passes.step)
    worker.optimizer.step()
    worker.optimizer.zero_grad(set_to_none=True)
    return loss


def _evaluate(worker: Worker, asks: Any) -> None:
    """Held-out text through all stages; the last tells."""
    import torch

    from shardmeter.lab import groups

    count = worker.experiment.batch * max(1, HELD_OUT // worker.experiment.batch)
    worker.pace.off = True
    with torch.no_grad():
        loss = groups.attempt(lambda: _passed(worker, *worker.text.held_out(count), asks.eval))
    worker.pace.off = False
    if loss is not None:
        worker.told(loss)
