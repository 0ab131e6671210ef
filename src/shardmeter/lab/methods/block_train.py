"""BlockTrain: layers cut into blocks that are trained alone, copies of a block averaged in rounds that end on time, over HTTP.

Island i holds block i mod `blocks`, with an embedding and a head of its own; its loss is that of a denoiser of its band of noise
(`denoiser`). A round is H = `sync_every` steps of the fastest island; one of a lower pace takes so many fewer. At its end the block's
parameters go to the server of its copies (their first living island) while the next round trains, and the mean is taken over
when it has come, with what has been learnt since added: θ ← mean + (θ − what was sent). Nobody waits; a copy that is not back within a
round is late, and not averaged. After the rounds one worker fetches every block over the line, puts them together, and evaluates them on
held-out text beside a whole model trained end to end for as many tokens as every block has seen, in steps as large as all copies' of a
block together: as many FLOPs, but for the blocks' own embeddings and heads. Settings: `sync_every`, `blocks`, `bits` (32 or 16),
`reference` (false: none is trained).

A worker that dies is missed by its block's other copies; where it served them, the next island does. A block without any living
copy is named, and the others are assembled without it.

Leaves out: islands of several workers, copies weighted by their steps, optimizer moments of the copies, which stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.units import Nats
from shardmeter.lab.bands import bands
from shardmeter.lab.courier import Courier, Exchange, Peer, fetched, found, met, reached, told
from shardmeter.lab.parameter_server import FORMATS, PAUSE, Server
from shardmeter.lab.shapes import dealt
from shardmeter.sync import block_train, parts_of

if TYPE_CHECKING:
    from shardmeter.lab.denoiser import Denoiser
    from shardmeter.lab.worker import Worker

INNER = "the same steps on its block's own objective, nothing sent"
WINDOWS = 128
"""Held-out windows of a comparison."""
COLLECTED = "collected"


def run(worker: Worker) -> None:
    """Train, assemble, evaluate. Raises BadScenario where islands, layers and blocks do not go together."""
    blocks = int(worker.settings.get("blocks", block_train.DEFAULTS["blocks"]))
    refuse(worker, blocks)
    mine = worker.island % blocks
    block = built(worker, mine, blocks)
    if worker.task.alone:
        worker.ready()
        worker.alone(lambda: step(worker, block))
        return
    ranks = parts_of(worker.task.world, blocks)
    folder, everybody, patience = worker.task.folder, range(worker.task.world), float(worker.task.patience)
    server = Server(worker.task.address, ranks[mine], int(worker.settings.get("bits", 32)))
    told(folder, Peer(rank=worker.rank, address=worker.task.address, port=server.port))
    peers = found(folder, everybody, patience)
    worker.ready()
    if worker.rank == 0:
        untrained = [built(worker, at, blocks, keep=False) for at in range(blocks)]
        worker.told(assembled(worker, untrained)[-1])
    own_loss(worker, block, mine)
    courier = Courier(worker.rank, [peers[rank] for rank in ranks[mine]], server, patience)
    met(folder, worker.rank, everybody, patience)
    rounds(worker, block, courier)
    own_loss(worker, block, mine)
    server.publish(flat_of(block))
    finish(worker, peers, ranks, server)


def refuse(worker: Worker, blocks: int) -> None:
    """Raises BadScenario for what cannot be trained so, all of it at once."""
    experiment, shape = worker.experiment, worker.shape
    bits = worker.settings.get("bits", 32)
    wrong = []
    if shape.kind != "decoder":
        wrong.append(("model", f"block_train cuts a decoder, not an {shape.kind}", "kind: decoder"))
    if not 1 <= blocks <= min(len(experiment.sites), shape.layers):
        most = min(len(experiment.sites), shape.layers)
        says = f"{blocks} blocks of {shape.layers} layers on {len(experiment.sites)} islands: each needs a layer and an island"
        wrong.append(("sync.blocks", says, f"1 to {most}"))
    if any(site.workers != 1 for site in experiment.sites):
        wrong.append(("islands", "block_train trains with one worker an island", "workers: 1"))
    if bits not in FORMATS:
        wrong.append(("sync.bits", f"copies pass in 32 or 16 bits a number, not {bits}", "bits: 32"))
    if wrong:
        raise BadScenario(
            "block_train cannot train this",
            [Violation(field=name, says=says, way_out=out) for name, says, out in wrong],
        )


def built(worker: Worker, at: int, blocks: int, *, keep: bool = True) -> Denoiser:
    """A block as training begins; `keep` makes it the worker's own, with an optimizer."""
    from shardmeter.lab.denoiser import Denoiser, codes
    from shardmeter.lab.models import build, optimizer_of

    layers = dealt(worker.shape.layers, blocks)[at]
    part = build(worker.shape, worker.task.seed, worker.pace, layers=layers)
    block = Denoiser(part, bands(blocks)[at], codes(worker.shape, worker.task.seed))
    if keep:
        worker.model, worker.optimizer = block, optimizer_of(block, worker.experiment.learning_rate)
    return block


# ---- training -------------------------------------------------------------------------------------------------------------------


def step(worker: Worker, block: Denoiser) -> Nats:
    """An optimizer step on the block's own objective; its mean loss."""
    import torch

    count, total = worker.experiment.micro_batches, 0.0
    for micro_batch in range(count):
        draw = torch.Generator().manual_seed(seeded(worker, worker.steps, micro_batch))
        loss = block.loss(*worker.batch(micro_batch), draw)
        (loss / count).backward()
        total += float(loss.item()) / count
    worker.optimizer.step()
    worker.optimizer.zero_grad(set_to_none=True)
    return total


def seeded(worker: Worker, *more: int) -> int:
    """A seed of this worker's own, by the study's seed."""
    import numpy as np

    return int(np.random.SeedSequence((worker.task.seed, worker.rank, *more)).generate_state(1)[0])


def rounds(worker: Worker, block: Denoiser, courier: Courier) -> None:
    """Rounds of steps; what was sent at the end of one is on its way during the next."""
    every = float(worker.settings.get("sync_every", block_train.DEFAULTS["sync_every"]))
    speed = share(worker)
    worker.begin()
    begun, sent = time.monotonic(), None
    for at in range(-1, worker.experiment.rounds):
        until = max(1, int((at + 2) * every * speed))
        while worker.steps < until:
            worker.step(lambda: step(worker, block))
            taken_over(worker, block, courier.taken(), sent)
        now = time.monotonic()
        window, begun = now - begun, now
        taken_over(worker, block, courier.drop(), sent)
        sent = flat_of(block)
        courier.begin(at, sent, window)
        worker.through(at)
    last = courier.taken(window) or courier.drop()
    taken_over(worker, block, last, sent)
    courier.close()


def share(worker: Worker) -> float:
    """Steps of this island for each step of the fastest."""
    paces = [site.pace for site in worker.experiment.sites]
    if any(pace is None for pace in paces):
        return 1.0
    return float(worker.site.pace / max(paces))  # type: ignore[type-var, operator]


def taken_over(worker: Worker, block: Denoiser, exchange: Exchange | None, sent: Any) -> None:
    """Log what became of a copy; where a mean has come, go on from it with what has been learnt since."""
    if exchange is None:
        return
    if exchange.mean is not None:
        from shardmeter.lab.denoiser import moved

        moved(block, exchange.mean - sent)
    served, late = exchange.server == worker.rank, exchange.mean is None
    size = float(exchange.sent + exchange.received)
    worker.synced(
        exchange.round, float(exchange.seconds), size, "copies of a block", waited=0.0, late=late, copies=exchange.copies,
        server=exchange.server, serves=served,
    )  # fmt: skip
    for rank, says in exchange.gone:
        living = [one for one in range(worker.task.world) if one != rank]
        worker.log.event("lost", round=exchange.round, says=says, members=living)


def flat_of(block: Denoiser) -> Any:
    """All parameters of a block in one vector."""
    from shardmeter.lab.denoiser import flat

    return flat(block)


# ---- evaluation -----------------------------------------------------------------------------------------------------------------


def assembled(worker: Worker, blocks: Sequence[Denoiser]) -> tuple[Nats, ...]:
    """Loss on held-out text after each block of one traversal, unpaced."""
    import torch

    from shardmeter.lab.denoiser import assembled_loss

    worker.pace.off = True
    try:
        return assembled_loss(blocks, *worker.text.held_out(WINDOWS), torch.Generator().manual_seed(worker.task.seed))
    finally:
        worker.pace.off = False


def own_loss(worker: Worker, block: Denoiser, at: int) -> None:
    """Log the block's own objective on held-out text."""
    import torch

    worker.pace.off = True
    try:
        with torch.no_grad():
            draw = torch.Generator().manual_seed(worker.task.seed)
            loss = block.loss(*worker.text.held_out(WINDOWS), draw)
    finally:
        worker.pace.off = False
    worker.told(float(loss.item()), f"block {at}")


def finish(worker: Worker, peers: Mapping[int, Peer], ranks: Sequence[Sequence[int]], server: Server) -> None:
    """The lowest rank that lives collects the blocks; the others stay until it has them."""
    done, patience = Path(worker.task.folder) / COLLECTED, float(worker.task.patience)
    for rank in range(worker.rank):
        while not done.exists() and reached(peers[rank], patience):
            time.sleep(5.0 * PAUSE)
        if done.exists():
            return
    vectors = collected(worker, peers, ranks, server)
    done.touch()
    compare(worker, vectors, len(ranks))


def collected(
    worker: Worker, peers: Mapping[int, Peer], ranks: Sequence[Sequence[int]], server: Server
) -> dict[int, Any]:
    """The parameters of every block that some living worker has, fetched over the line."""
    vectors: dict[int, Any] = {}
    gone: list[int] = []
    names = [site.name for site in worker.experiment.sites]
    for at, holders in enumerate(ranks):
        for rank in holders:
            begun = time.monotonic()
            own = rank == worker.rank
            vector = server.final if own else fetched(peers[rank], float(worker.task.patience))
            if vector is None:
                gone.append(rank)
                continue
            vectors[at] = vector
            size, seconds = (0.0 if own else float(vector.nbytes)), time.monotonic() - begun
            says = f"block {at} from island {names[rank]}"
            worker.log.event("note", says=says, bytes=size, seconds=seconds)
            break
    living = [rank for rank in range(worker.task.world) if rank not in gone]
    for at in [at for at in range(len(ranks)) if at not in vectors]:
        says = f"block {at} has no living copy ({', '.join(names[rank] for rank in ranks[at])}): the others are assembled without it"
        worker.log.event("lost", round=worker.experiment.rounds - 1, says=says, members=living)
    return vectors


def compare(worker: Worker, vectors: Mapping[int, Any], blocks: int) -> None:
    """Evaluate the assembled blocks, and a whole model that was trained end to end."""
    from shardmeter.lab.denoiser import put

    parts = [built(worker, at, blocks, keep=False) for at in sorted(vectors)]
    for part, at in zip(parts, sorted(vectors), strict=True):
        put(part, vectors[at])
    losses = assembled(worker, parts)
    missing = [at for at in range(blocks) if at not in vectors]
    worker.told(losses[-1])
    worker.log.event("eval", step=worker.steps, loss=losses[-1], what="assembled", blocks=list(losses), missing=missing)
    if worker.settings.get("reference", True):
        worker.told(reference(worker, blocks), "reference")


def reference(worker: Worker, blocks: int) -> Nats:
    """Loss on held-out text of the whole model after as many steps end to end, each of as many sequences as all copies of a block
    read in theirs; unpaced."""
    import torch

    from shardmeter.lab.models import build, optimizer_of

    worker.pace.off = True
    model = build(worker.shape, worker.task.seed, worker.pace)
    optimizer = optimizer_of(model, worker.experiment.learning_rate)
    sequences = worker.experiment.batch * worker.experiment.micro_batches * worker.task.world / blocks
    begun = time.monotonic()
    for at in range(worker.steps):
        model(*worker.text.windows(at, 0, max(1, round(sequences)))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.monotonic() - begun
    says = f"reference: {worker.steps} steps of {max(1, round(sequences))} sequences, end to end"
    worker.log.event("note", says=says, seconds=seconds)
    with torch.no_grad():
        return float(model(*worker.text.held_out(WINDOWS)).item())
