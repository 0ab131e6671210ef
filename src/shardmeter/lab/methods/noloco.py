"""NoLoCo, gossip: after `sync_every` steps alone workers meet in pairs, drawn anew each round by a seed that all know; each sends its
outer gradient and its outer parameters to the other and takes in theirs, both ways at once (Kolehmainen 2025).

v ← μ·v + ḡ; θ₀ ← θ₀ − rate·(ḡ + μ·v) − pull·(θ₀ − θ̄₀), bars the pair's means. `pull` of the settings, 1 by default: the pair then steps
from the mean of its parameters. `bits` 32 (default) or 16 of every value. Where their number is odd, one has no partner and steps by
its own gradient. Workers never agree: the loss told is the first one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter.lab import outer, rounds

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

INNER = "steps of one worker by itself"


def run(worker: Worker) -> None:
    """Train all rounds, with those who are left. Raises Lost where this worker is left behind."""
    state = outer.of(worker, worker.build().parameters())
    worker.connect()
    if not worker.task.alone:
        worker.evaluate()
    rounds.train(worker, lambda at: _exchange(worker, state, at), ())
    if not worker.task.alone:
        worker.evaluate()


def partner(members: tuple[int, ...], rank: int, seed: int, at: int) -> int | None:
    """Whom a rank meets in a round; None where it is the one too many."""
    order = [members[place] for place in np.random.default_rng((seed, at + 1)).permutation(len(members))]
    place = order.index(rank) ^ 1
    return order[place] if place < len(order) else None


def _exchange(worker: Worker, state: outer.Outer, at: int) -> None:
    import torch

    gradient, other = state.gradient(), partner(worker.members, worker.rank, worker.task.seed, at)
    bits = int(worker.settings.get("bits", 32))
    width = torch.float16 if bits == 16 else torch.float32
    own = torch.cat([gradient, state.copy]).to(width)
    if other is None:
        came = own
        worker.synced(at, 0.0, 0, "no partner")
    else:
        size = own.numel() * own.element_size()
        came = rounds.timed(worker, at, f"with rank {other}", size, lambda: _swapped(worker, own, other))
    their_gradient, their_copy = came.to(torch.float32).split(len(gradient))
    pulled = state.copy - (state.copy + their_copy) / 2.0
    state.step((gradient + their_gradient) / 2.0)
    state.copy.sub_(pulled, alpha=float(worker.settings.get("pull", 1.0)))
    state.adopt()


def _swapped(worker: Worker, own: Any, other: int) -> Any:
    import torch
    import torch.distributed as dist

    place, came = worker.members.index(other), torch.empty_like(own)
    # asked for first: gloo would queue the word that this worker is ready behind what it sends, and the two would take turns
    both = [dist.P2POp(dist.irecv, came, place), dist.P2POp(dist.isend, own, place)]
    for one in dist.batch_isend_irecv(both):
        one.wait()
    return came
