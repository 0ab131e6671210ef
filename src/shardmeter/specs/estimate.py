"""What the engine returns: numbers of the broadcast shape, with the terms that add to them."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Flop, Number, Seconds, Usd


@record
class Term:
    """One line of the ledger: exposed seconds per step (they sum to the step), hidden ones beside."""

    label: str
    seconds: Seconds
    hidden: Seconds = 0.0
    cause: str
    """compute, memory bandwidth, launch, scale-up link, fabric, pipeline, optimizer, software."""


@record
class MemoryTerm:
    """One line of the memory ledger of the worst rank."""

    label: str
    size: Bytes
    exactness: str


@record
class Ends:
    """The end of a step: what gradients on their way to other islands pass behind."""

    stages: tuple[tuple[Seconds, Count], ...] = ()
    """Of every pipeline stage of the island that works its last micro-batch after the next one's, the first, which ends last, first:
    seconds of that backward, and layers, in which the stage's gradients leave one by one. Only the first stage where all end at
    once."""
    late: Seconds = 0.0
    """What of the island's own reduction of that backward shows after it."""
    shard: Count = 0.0
    """Trained parameters that the fullest rank updates."""
    trained: Count = 0.0
    """Trained parameters of the whole model."""
    sent: Bytes = 0.0
    """What leaves the island in a step through an axis that is placed across islands; NaN where it is not counted."""
    egress: Usd = 0.0
    """What that costs."""
    spread: Seconds = 0.0
    """What it takes inside the island to bring one byte of every trained parameter from the rank that received it from outside to
    all ranks that hold that parameter too."""


@record
class Estimate:
    """One island's answer, per optimizer step. `step_time` is the left fold of `terms`; nothing else computes it."""

    step_time: Seconds
    terms: tuple[Term, ...]
    memory: tuple[MemoryTerm, ...]
    memory_allocated: Bytes
    """What the allocator has handed out at the peak."""
    memory_first: Bytes
    """The same on the first pipeline stage."""
    memory_peak: Bytes
    """Reserved + context + collective buffers: the left fold of `memory`."""
    memory_limit: Bytes
    tokens: Number
    """Tokens of one step over the whole island."""
    samples: Number
    model_flops: Flop
    """FLOPs of one step by mfu's count: 6 × active matmul parameters × tokens + full attention, of the trained model alone. What
    a reference model computes beside it is in no ratio."""
    hardware_flops: Flop
    """The same plus recomputation of the trained model."""
    compute_seconds: Seconds
    """Device-busy compute of the critical rank, a reference model's too."""
    gpus: Number
    peak_flops: Number
    """Sum of dense bf16 peaks."""
    ends: Ends
    """How the step ends, for what leaves the island then."""

    @property
    def memory_exact(self) -> Bytes:
        """Those terms of the peak that are counted, not modelled: parameters, gradients, states."""
        total: Bytes = 0.0
        for term in self.memory:
            if term.exactness == "exact":
                total = total + term.size
        return total
