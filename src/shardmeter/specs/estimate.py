"""What the engine returns: numbers of the broadcast shape, with the terms that add to them."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Flop, Fraction, Number, Seconds, Usd


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
class Leaving:
    """Gradients that become whole in one turn, the last backward of a stage or of one of its chunks: `pieces` equal
    ones, one after the other while it lasts."""

    left: Seconds = 0.0
    """From the end of that turn to the end of all backwards of a step."""
    due: Seconds = 0.0
    """From that end to when the stage waits for them; later where its devices keep their own clocks."""
    window: Seconds = 0.0
    """What the turn lasts."""
    pieces: Count = 1.0
    share: Fraction = 1.0
    """Of all gradients that leave."""
    stage: int = 0
    """Which of an island's stages has them."""


@record
class Ends:
    """The end of a step: what gradients on their way to other islands pass behind."""

    leaving: tuple[Leaving, ...] = (Leaving(),)
    """When its gradients are whole, in the order in which they are; layers have equal shares."""
    stages: int = 1
    """Of the pipeline, that the island holds."""
    late: Seconds = 0.0
    """What of the island's own reduction shows after the last backward."""
    shard: Count = 0.0
    """Trained parameters that the fullest rank updates."""
    trained: Count = 0.0
    """Trained parameters of the whole model."""
    collectives: Count = 1.0
    """Into which its gradients are cut: one for every layer that is sharded, and one for the rest; else one a bucket."""
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
    ends: Ends = Ends()
    """How the step ends, for what leaves the island then: of one of several islands."""

    @property
    def memory_exact(self) -> Bytes:
        """Those terms of the peak that are counted, not modelled: parameters, gradients, states."""
        total: Bytes = 0.0
        for term in self.memory:
            if term.exactness == "exact":
                total = total + term.size
        return total
