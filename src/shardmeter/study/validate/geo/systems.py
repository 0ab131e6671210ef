"""Iteration times of pipelines, tensor-parallel groups and ZeRO-3 whose traffic crosses long links: one function a system.

The schedules do the adding; here stands what each system asks of the network. What was read in the experimenters' code and in
NCCL's, Megatron's and DeepSpeed's of the time:

* A send returns when what is left of its message fits into NCCL's buffers: at once for one sequence. Megatron's 1F1B is then the
  plain schedule, in which a stage waits for what it needs; what it exchanges with a neighbour travels both ways at once.
* Megatron's loss is averaged over the data-parallel group after every micro-batch: a small all-reduce at the last stage.
* That all-reduce keeps Megatron's pipelines in step, so that they meet at a shared adapter; DeepSpeed's drift apart.
* DeepSpeed receives an activation before it sends the last gradient: each exchange is one way after the other.
* One asynchronous pipeline (GPipe) has one communicator: receive, compute and send of a stage partly stand in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.physics import crossing as collective
from shardmeter.physics.jitter import expected_largest
from shardmeter.schedules import Boundary, Slot, _long
from shardmeter.study.validate.geo.constants import TENSOR, Fitted
from shardmeter.study.validate.geo.links import BOX, Array, Network, Ranks

CHUNK = collective.RING_CHUNK * 8.0
"""Bits that a ring moves per step and rank."""
MESSAGE = 2048 * 2048 * 16.0
"""Bits of the message that the constants speak of: one sequence of 2048, d 2048, two bytes."""
BUFFERED = 2 * CHUNK
"""Bits that a send leaves in NCCL's buffers: two channels, 4 MiB each (its defaults on one TCP adapter)."""
WIRE = 1514.0 / 1448.0
"""Bytes on the wire for one of payload, in packets of 1,500 bytes: what the emulated links counted."""
DRIFTING = 0.5
"""Of the other pipelines, those that use a shared adapter at the same time where nothing keeps the pipelines in step (halfway
between none and all; not fitted)."""
LIVE = 1e9
"""Parameters that DeepSpeed keeps gathered (stage3_max_live_parameters, its default)."""


@record
class Work:
    """What is trained."""

    layers: int
    width: int
    sequence: int
    bytes: float
    """Of an activation or a gradient."""
    layer: float
    """Seconds of one layer and sequence, forward to backward."""
    recompute: bool = True

    @property
    def message(self) -> float:
        """Bits of one sequence's activations."""
        return self.sequence * self.width * self.bytes * 8.0

    @property
    def layer_size(self) -> float:
        """Parameters of a layer."""
        return 12.0 * self.width**2 + 13.0 * self.width

    @property
    def embedding(self) -> float:
        """Parameters of the first stage beside its layers: 28,996 words and 2,048 places."""
        return (28_996.0 + 2_048.0) * self.width

    def forward(self) -> float:
        """Part of a layer's seconds that is its forward."""
        return 0.25 if self.recompute else 1.0 / 3.0


def line(
    network: Network, ranks: Ranks, fitted: Fitted, bits: float, *, answer: float = 0.0, at_once: float = 1.0
) -> tuple[Boundary, ...]:
    """The boundaries of pipelines that run at once: `ranks` is (stages, pipelines) nodes; seconds are (pipelines,)."""
    stages, pipelines = ranks.shape
    rate, delay = network.hops(ranks[:-1].ravel(), ranks[1:].ravel(), at_once)
    apart = network.apart(ranks[:-1].ravel(), ranks[1:].ravel())
    late = slowest_of(pipelines, fitted.spread)
    wire = np.where(apart, WIRE * late, 1.0) * bits / rate
    wait = delay + np.where(apart, answer, 0.0)
    shape = stages - 1, pipelines
    return tuple(
        Boundary(wire=own, delay=way, buffered=own * min(BUFFERED / bits, 1.0))
        for own, way in zip(wire.reshape(shape), wait.reshape(shape), strict=True)
    )


def slowest_of(pipelines: int, spread: float) -> float:
    """Time of the slowest of so many over the mean: an expected maximum."""
    return float(1.0 + spread * expected_largest(float(pipelines)))


def slots(layers: Sequence[float], seconds: float, forward: float) -> list[Slot]:
    """A stage for each number of layers, at so many seconds a layer."""
    return [
        Slot(
            first=at,
            count=1,
            forward=own * seconds * forward,
            input_grad=own * seconds * (1.0 - forward),
            weight_grad=0.0,
        )
        for at, own in enumerate(layers)
    ]


def gpipe(network: Network, ranks: Ranks, work: Work, fitted: Fitted, micro_batches: int) -> float:
    """One flush of asynchronous GPipe, of the slowest pipeline; micro-batches of one sequence."""
    stages, hop = _asynchronous(network, ranks, work, fitted)
    return float(np.max(_long.gpipe(stages, float(micro_batches), hop)))


def one_f_one_b(network: Network, ranks: Ranks, work: Work, fitted: Fitted, micro_batches: int) -> float:
    """One flush of the same runtime's 1F1B."""
    stages, hop = _asynchronous(network, ranks, work, fitted)
    return float(np.max(_long.one_f_one_b(stages, float(micro_batches), hop)))


def _asynchronous(
    network: Network, ranks: Ranks, work: Work, fitted: Fitted
) -> tuple[list[Slot], tuple[Boundary, ...]]:
    """Stages that handle sockets beside their compute and do not hide all of a transfer, and what joins them."""
    hop = line(network, ranks, fitted, work.message)
    stages = slots([work.layers / len(ranks)] * len(ranks), work.layer, work.forward())
    apart = network.apart(ranks[:-1].ravel(), ranks[1:].ravel()).reshape(len(ranks) - 1, -1)
    for at, slot in enumerate(stages):
        sides = [side for side in (at - 1, at) if 0 <= side < len(hop)]
        longest = np.max([hop[side].wire * apart[side] for side in sides], axis=0)
        over = np.max([apart[side] for side in sides], axis=0) * fitted.handling * work.message / MESSAGE
        stages[at] = changed(
            slot,
            forward=slot.forward + over + fitted.unhidden * np.minimum(slot.forward, longest),
            input_grad=slot.input_grad + over + fitted.unhidden * np.minimum(slot.input_grad, longest),
        )
    return stages, hop


def megatron(
    network: Network,
    ranks: Ranks,
    work: Work,
    fitted: Fitted,
    micro_batches: int,
    tensor: int = 1,
    loss: Ranks | None = None,
) -> float:
    """1F1B of Megatron-LM, of the slowest pipeline. `ranks` (stages, pipelines) are the first ranks of the tensor groups, the
    others follow, each with its share of a message; `loss` are the nodes over which the last stage averages the loss of every
    micro-batch."""
    seconds = work.layer / tensor + (_tensor_parallel(network, ranks, work, tensor) if tensor > 1 else 0.0)
    stages = slots([work.layers / len(ranks)] * len(ranks), seconds, work.forward())
    if loss is not None:
        stages[-1] = changed(stages[-1], forward=stages[-1].forward + tree(network, loss))
    hop = line(network, ranks, fitted, work.message, answer=fitted.answer / tensor)
    return float(np.max(_long.one_f_one_b(stages, float(micro_batches), hop)))


def deepspeed(network: Network, ranks: Ranks, work: Work, fitted: Fitted, micro_batches: int, size: int) -> float:
    """1F1B of DeepSpeed, of the slowest pipeline: micro-batches of `size` sequences. Embedding, layers and head are cut
    evenly by number, and the last stage takes what is left over."""
    pieces = (work.layers + 2) // len(ranks)
    layers = [float(pieces)] * len(ranks)
    layers[0], layers[-1] = pieces - 1.0, work.layers + 1.0 - pieces * (len(ranks) - 1.0)
    stages = slots(layers, size * work.layer, work.forward())
    hop = line(network, ranks, fitted, size * work.message, at_once=DRIFTING)
    return float(np.max(_long.one_f_one_b(stages, float(micro_batches), hop, serial=True)))


def zero_3(network: Network, ranks: Ranks, work: Work, fitted: Fitted, size: int) -> float:
    """One micro-step of ZeRO-3 over all ranks: gradients are reduced to their owners; parameters beyond what stays gathered are
    gathered forward and backward, each layer a trip around the ring."""
    rate, delay = network.hops(ranks, np.roll(ranks, -1))
    parameters = work.layers * work.layer_size + work.embedding
    anew = max(parameters - LIVE, 0.0)
    bits = 8.0 * work.bytes * (parameters + 2.0 * anew)
    seconds = WIRE * bits / float(rate.min()) + fitted.gathers * anew / work.layer_size * float(delay.sum())
    return seconds + size * work.layers * work.layer


def _tensor_parallel(network: Network, ranks: Ranks, work: Work, tensor: int) -> float:
    """Seconds a layer that its all-reduces take: two forward, two backward, two again where the forward is done again."""
    times = 6.0 if work.recompute else 4.0
    slowest = 0.0
    groups = ranks.ravel()[:, None] + np.arange(tensor)
    ordered = np.roll(groups, -1, axis=1)
    rate, delay = network.hops(groups.ravel(), ordered.ravel())
    for own, way in zip(rate.reshape(groups.shape), delay.reshape(groups.shape), strict=True):
        share = 2.0 * (tensor - 1.0) / tensor
        inside = share * work.message / 8.0 / TENSOR
        wire = share * WIRE * work.message / own.min() if own.min() < BOX else 0.0
        slowest = max(slowest, inside, wire + 2.0 * (tensor - 1.0) * float(way.max()))
    return times * slowest


def tree(network: Network, nodes: Ranks) -> float:
    """A small all-reduce over nodes in order: up and down NCCL's binary tree, propagation only."""
    longest = 0.0
    for leaf in range(1, len(nodes)):
        at, way = leaf, 0.0
        while at:
            bit = at & -at
            up = (at ^ bit) | (bit << 1)
            up = at ^ bit if up >= len(nodes) else up
            apart = network.instance[nodes[at]] != network.instance[nodes[up]]
            way, at = way + apart * float(network.delay[nodes[at], nodes[up]]), up
        longest = max(longest, way)
    return 2.0 * longest


def all_reduce(network: Network, groups: Ranks, bits: Sequence[float] | Array) -> float:
    """A ring over each row of `groups` (groups, ranks) at once, of so many bits each; the slowest of them.

    Bound by the slowest link, or by steps that wait for each other; less than a step's chunk may go by a tree."""
    load = np.repeat(bits, groups.shape[1])
    rate, delay = network.hops(groups.ravel(), np.roll(groups, -1, axis=1).ravel(), load=load)
    members = float(groups.shape[1])
    longest = 0.0
    for own, way, size in zip(rate.reshape(groups.shape), delay.reshape(groups.shape), bits, strict=True):
        loops = collective.ring_loops(size, members, CHUNK)
        part = size / (members * loops)
        hop = collective.ring_hop(part, CHUNK, own.min(), way.mean())
        step = collective.ring_step(part, own.min(), collective.ring_factor(1.0), hop)
        ring = collective.ring_time(members, loops, 1.0, step, way.mean())
        least = 4.0 * np.log2(members) * way.max() + 2.0 * size / own.min() if size <= CHUNK else np.inf
        longest = max(longest, min(float(ring), float(least)))
    return longest


def central(network: Network, groups: Ranks, bits: Sequence[float] | Array) -> float:
    """A reduction to the first rank of each row of `groups` and a broadcast from it, both along a chain; the slowest row."""
    load = np.repeat(bits, groups.shape[1] - 1)
    rate, delay = network.hops(groups[:, :-1].ravel(), groups[:, 1:].ravel(), load=load)
    shape = groups.shape[0], groups.shape[1] - 1
    each = np.asarray(bits) / rate.reshape(shape).min(axis=1) + delay.reshape(shape).sum(axis=1)
    return float(2.0 * each.max())


def stage_bits(work: Work, stages: int) -> Array:
    """Bits of each stage's gradients."""
    parameters = np.full(stages, work.layers / stages * work.layer_size)
    parameters[0] += work.embedding
    return np.asarray(parameters * work.bytes * 8.0)


__all__ = ["Work", "all_reduce", "central", "deepspeed", "gpipe", "megatron", "one_f_one_b", "stage_bits", "zero_3"]
