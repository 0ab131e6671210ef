"""SOMA: every island trains a small LSTM of bytes of its own, by SPSA on its own cluster of the text; nothing crosses.

The training text is cut into pieces of 512 bytes, which a router (`router`, made alike by every worker) deals to N experts, equally many
to each; an expert reads windows of its own pieces only. A step probes `perturbations` random signs on both sides, `together` passes side by
side, all of the same `batch` sequences, and moves by Adam along the mean estimate. A round is a step, and every island takes it alone.

In use the router reads the 256 bytes before a text and takes the k experts that are nearest; their distributions are averaged. After the
rounds one worker evaluates on held-out text the ensembles of 1, 2, … and all experts, and two models of N times the
parameters (as near as a width gives): one by SPSA with as many updates of as many probes and sequences, each a pass N times as large, so
that it computes what all experts together do, and one by as many updates by backpropagation. It finds the experts in the folder of
results, not over the line. And it measures the relative variance of one probe of N experts apart over that of all by one loss
(`variance`). Settings: `perturbations`, `together`, `probe` (how far a probe moves, 0.01), `top_k` (4 or all), `steps` a round, `reference`
(false: neither is trained), `samples` of the variance (0: not measured).

A worker that dies takes its expert with it: it is named, and the others make up the ensemble.

Leaves out: islands of several workers, gains that decay, states carried from one window to the next, the router's own cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter import sync
from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.units import Nats
from shardmeter.lab import presence, router
from shardmeter.lab.courier import met
from shardmeter.lab.records import Shape
from shardmeter.lab.shapes import embedding_parameters, forward_flops, parameters
from shardmeter.lab.worker import every_step

if TYPE_CHECKING:
    from shardmeter.lab.spsa import Learner
    from shardmeter.lab.variance import Spread
    from shardmeter.lab.worker import Worker

INNER = "the same updates: nothing crosses anyway"
PIECE = 512
"""Bytes of a piece of text; of one that is held out, the first half is routed by."""
TOP_K = 4
SAMPLES = 1000
MEASURED = 2
"""Sequences by which the variance is measured."""
PROBES = 25
"""Probes of the variance at once."""
PAUSE = 0.1


@record
class Part:
    """What an expert trains with."""

    embedding: Any
    pieces: Any
    """Its cluster: pieces × bytes."""
    perturbations: int
    together: int
    probe: float


def run(worker: Worker) -> None:
    """Train, then put the experts together. Raises BadScenario where model and islands do not go together."""
    from shardmeter.lab.spsa import Learner, begun, embedding_of

    refuse(worker)
    experts, settings = len(worker.experiment.sites), worker.settings
    pieces = cut(worker.text.train)
    routes, chosen = router.trained([piece.tobytes() for piece in pieces], experts, worker.task.seed)
    usual = sync.defaults("soma")
    part = Part(
        embedding=embedding_of(worker.shape, worker.task.seed),
        pieces=pieces[chosen == worker.island],
        perturbations=int(settings.get("perturbations", usual.perturbations)),
        together=int(settings.get("together", usual.together)),
        probe=float(settings.get("probe", 0.01)),
    )
    learner = Learner(begun(worker.shape, worker.task.seed + worker.island), worker.experiment.learning_rate)
    if worker.task.alone:
        worker.ready()
        every_step(worker, lambda: step(worker, learner, part))
        return
    held_lock = presence.hold(worker.task.folder, worker.rank)
    met(worker.task.folder, worker.rank, range(worker.task.world), float(worker.task.patience))
    worker.ready()
    if worker.rank == 0:
        untrained = {at: begun(worker.shape, worker.task.seed + at) for at in range(experts)}
        worker.told(ensemble(worker, part, routes, untrained)[-1][1])
    own_loss(worker, part, learner, routes)
    every_step(worker, lambda: step(worker, learner, part))
    own_loss(worker, part, learner, routes)
    keep(worker, learner)
    finish(worker, part, routes, pieces, chosen)
    held_lock.close()


def refuse(worker: Worker) -> None:
    """Raises BadScenario for what cannot be trained so, all of it at once."""
    wrong = []
    if worker.shape.kind != "lstm":
        wrong.append(("model", f"soma trains LSTMs of bytes, not a {worker.shape.kind}", "kind: lstm"))
    if any(site.workers != 1 for site in worker.experiment.sites):
        wrong.append(("islands", "soma trains with one worker an island", "workers: 1"))
    if worker.shape.seq_len >= PIECE // 2:
        says = f"windows of {worker.shape.seq_len} do not fit into half a piece of {PIECE} bytes"
        wrong.append(("model.seq_len", says, f"{PIECE // 2 - 1} or fewer"))
    if wrong:
        raise BadScenario("soma cannot train this", [Violation(field=a, says=b, way_out=c) for a, b, c in wrong])


def cut(text: Any) -> Any:
    """Whole pieces of a text: pieces × bytes."""
    whole = len(text) // PIECE
    return text[: whole * PIECE].reshape(whole, PIECE)


# ---- training -------------------------------------------------------------------------------------------------------------------


def step(worker: Worker, learner: Learner, part: Part) -> Nats:
    """One update of the expert; the mean loss of its probes. Paced, it lasts its passes' FLOPs over the pace."""
    import torch

    from shardmeter.lab.spsa import signs

    begun = time.monotonic()
    seed = np.random.SeedSequence((worker.task.seed, worker.island, worker.steps))
    count = worker.experiment.batch * worker.experiment.micro_batches
    losses = losses_on(worker.shape, part.embedding, drawn(part.pieces, count, worker.shape.seq_len, seed))
    draw = torch.Generator().manual_seed(int(seed.generate_state(1)[0]))
    directions = signs(part.perturbations, learner.vector.numel(), draw)
    loss = learner.step(losses, directions, part.probe, part.together)
    if worker.pace.rate is not None:
        flops = 2.0 * part.perturbations * forward_flops(worker.shape, float(count))
        worker.pace.wait(begun, flops / worker.pace.rate)
    return loss


def drawn(pieces: Any, count: int, seq_len: int, seed: np.random.SeedSequence) -> Any:
    """So many windows of seq_len + 1 bytes, at random out of pieces."""
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, len(pieces), count)
    starts = draw.integers(0, pieces.shape[1] - seq_len, count)
    return pieces[rows[:, None], starts[:, None] + np.arange(seq_len + 1)]


def losses_on(shape: Shape, embedding: Any, windows: Any) -> Any:
    """The loss of copies on windows (windows × bytes)."""
    from shardmeter.lab.spsa import losses_of

    return losses_of(shape, embedding, *both(windows))


def both(windows: Any) -> tuple[Any, Any]:
    """(tokens, targets) of windows."""
    import torch

    rows = torch.from_numpy(windows.astype(np.int64))
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


# ---- evaluation -----------------------------------------------------------------------------------------------------------------


def held(worker: Worker) -> tuple[list[bytes], Any]:
    """(what stands before, windows) of held-out text: first halves of pieces, and the windows that fill the second halves."""
    pieces, half, seq = cut(worker.text.held), PIECE // 2, worker.shape.seq_len
    starts = range(half, PIECE - seq, seq)
    before = [piece[:half].tobytes() for piece in pieces for _ in starts]
    return before, np.concatenate([np.stack([piece[at : at + seq + 1] for at in starts]) for piece in pieces])


def own_loss(worker: Worker, part: Part, learner: Learner, routes: router.Router) -> None:
    """Log the expert's loss on held-out text that is nearest to it, and on all of it."""
    before, windows = held(worker)
    nearest = np.argmax(router.nearness(routes, before), axis=1) == worker.island
    for windows_of, name in ((windows[nearest], "its own"), (windows, "all")):
        if len(windows_of):
            loss = alone_loss(worker.shape, part.embedding, learner.vector, windows_of)
            worker.told(loss, f"expert {worker.island}, {name}")


def alone_loss(shape: Shape, embedding: Any, vector: Any, windows: Any) -> Nats:
    """Mean loss of one model, nats a byte."""
    import torch

    with torch.no_grad():
        return float(losses_on(shape, embedding, windows)(vector[None])[0].item())


def ensemble(
    worker: Worker, part: Part, routes: router.Router, experts: Mapping[int, Any]
) -> tuple[tuple[int, Nats], ...]:
    """(k, loss on held-out text of the k nearest experts) for k of 1, 2, 4 … and all; last that of `top_k`. Of experts that there are."""
    import torch

    from shardmeter.lab.spsa import log_likelihoods

    before, windows = held(worker)
    there = sorted(experts)
    near = router.nearness(routes, before)[:, there]
    ranked = np.argsort(np.argsort(-near, axis=1, kind="stable"), axis=1)
    with torch.no_grad():
        copies = torch.stack([experts[at] for at in there])
        likelihoods = log_likelihoods(worker.shape, part.embedding, copies, *both(windows)).exp()
    usual = min(int(worker.settings.get("top_k", TOP_K)), len(there))
    counts = sorted({*(k for k in (1, 2, 4) if k < len(there)), len(there)})
    found = []
    for k in (*counts, usual):
        taken = torch.from_numpy((ranked < k).T.astype(np.float32))[:, :, None]
        mixed = (likelihoods * taken).sum(0) / k
        found.append((k, float(-mixed.log().mean())))
    return tuple(found)


def keep(worker: Worker, learner: Learner) -> None:
    """Write the trained expert into the folder of results."""
    path = expert_file(worker, worker.rank)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.save(file, learner.vector.detach().numpy())
    part.replace(path)


def expert_file(worker: Worker, rank: int) -> Path:
    """Where an expert is kept."""
    return Path(worker.task.folder) / f"expert-{rank}.npy"


def finish(worker: Worker, part: Part, routes: router.Router, pieces: Any, chosen: Any) -> None:
    """The lowest rank that has an expert waits for the others and evaluates them all."""
    import torch

    experts: dict[int, Any] = {}
    for rank in range(worker.task.world):
        if not waited(worker, rank):
            says = (
                f"expert {rank} (island {worker.experiment.sites[rank].name}) is gone: the others make up the ensemble"
            )
            living = [one for one in range(worker.task.world) if one != rank]
            worker.log.event("lost", round=worker.steps, says=says, members=living)
        elif rank < worker.rank:
            return
        else:
            experts[rank] = torch.from_numpy(np.load(expert_file(worker, rank)))
    losses = ensemble(worker, part, routes, experts)
    worker.told(losses[-1][1])
    for k, loss in losses[:-1]:
        worker.told(loss, f"ensemble top-{k}")
    if worker.settings.get("reference", True):
        compare(worker, part, pieces)
    samples = int(worker.settings.get("samples", SAMPLES))
    if samples and len(experts) > 1:
        windows = {
            at: drawn(
                pieces[chosen == at], MEASURED, worker.shape.seq_len, np.random.SeedSequence((worker.task.seed, at))
            )
            for at in experts
        }
        told_spread(worker, measured(worker.shape, part, list(experts.values()), list(windows.values()), samples))


def waited(worker: Worker, rank: int) -> bool:
    """Wait for the expert of a rank; False where it is gone without one."""
    path = expert_file(worker, rank)
    while not path.exists():
        if not presence.lives(worker.task.folder, rank):
            return path.exists()
        time.sleep(PAUSE)
    return True


def compare(worker: Worker, part: Part, pieces: Any) -> None:
    """Train the two references on all pieces, unpaced, and log their losses."""
    import torch

    from shardmeter.lab.spsa import Learner, begun, embedding_of, signs

    shape = widened(worker.shape, len(worker.experiment.sites))
    embedding, rate = embedding_of(shape, worker.task.seed), worker.experiment.learning_rate
    by = {"reference": True, "reference by backpropagation": False}
    _, windows = held(worker)
    for name, probed in by.items():
        started, learner = time.monotonic(), Learner(begun(shape, worker.task.seed), rate)
        for at in range(worker.steps):
            seed = np.random.SeedSequence((worker.task.seed, at))
            count = worker.experiment.batch * worker.experiment.micro_batches
            losses = losses_on(shape, embedding, drawn(pieces, count, shape.seq_len, seed))
            if probed:
                draw = torch.Generator().manual_seed(int(seed.generate_state(1)[0]))
                directions = signs(part.perturbations, learner.vector.numel(), draw)
                learner.step(losses, directions, part.probe, part.together)
            else:
                learner.descend(losses)
        seconds = time.monotonic() - started
        says = f"{name}: {worker.steps} updates of {learner.vector.numel():,} parameters, width {shape.hidden}"
        worker.log.event("note", says=says, seconds=seconds)
        worker.told(alone_loss(shape, embedding, learner.vector, windows), name)


def widened(shape: Shape, times: int) -> Shape:
    """The shape of as many layers whose trained parameters are nearest to so many times as many."""
    wanted = times * trained_parameters(shape)
    width = shape.hidden
    while trained_parameters(changed(shape, hidden=width + 1)) <= wanted:
        width += 1
    two = [changed(shape, hidden=one) for one in (width, width + 1)]
    return min(two, key=lambda one: abs(trained_parameters(one) - wanted))


def trained_parameters(shape: Shape) -> int:
    """Of an expert, without the frozen embedding."""
    return parameters(shape) - embedding_parameters(shape)


def measured(shape: Shape, part: Part, experts: Sequence[Any], windows: Sequence[Any], samples: int) -> Spread:
    """The variances of one probe of experts apart and of all by one loss, each expert on windows of its own."""
    import torch

    from shardmeter.lab import spsa
    from shardmeter.lab.variance import spread

    draw = torch.Generator().manual_seed(len(experts))
    slopes, along, squares = [], [], []
    for expert, of in zip(experts, windows, strict=True):
        losses = losses_on(shape, part.embedding, of)
        gradient = spsa.gradient(losses, expert)
        pairs = []
        for first in range(0, samples, PROBES):
            directions = spsa.signs(min(PROBES, samples - first), expert.numel(), draw)
            found, _ = spsa.slopes(losses, expert, directions, part.probe, 2 * PROBES)
            pairs.append((found.double(), directions.double() @ gradient.double()))
        slopes.append(torch.cat([one for one, _ in pairs]).numpy())
        along.append(torch.cat([one for _, one in pairs]).numpy())
        squares.append(float((gradient.double() ** 2).sum()))
    sizes = np.array([float(one.numel()) for one in experts])
    return spread(np.stack(slopes, axis=1), np.stack(along, axis=1), np.array(squares), sizes)


def told_spread(worker: Worker, found: Spread) -> None:
    """Log the ratio of variances."""
    worker.log.event(
        "figure", name="variance_ratio", value=found.value, expected=found.expected, error=found.error,
        samples=found.samples, apart=found.apart, together=found.together,
    )  # fmt: skip
