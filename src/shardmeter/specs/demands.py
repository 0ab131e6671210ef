"""What strategies emit: demands. A demand never holds a bandwidth, a rate or a second."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Flop, Fraction

FORWARD, INPUT_GRAD, WEIGHT_GRAD, OPTIMIZER = "forward", "input_grad", "weight_grad", "optimizer"
PHASES = (FORWARD, INPUT_GRAD, WEIGHT_GRAD, OPTIMIZER)


@record
class Compute:
    """Arithmetic and memory traffic of one kernel (or family of kernels) on one rank, once per scope.

    kind: gemm (shape m × k by k × n, `repeats` times), attention (flops, by the stack's kernel), traffic (bytes through
    device memory). `split` tells the strategies how the op divides. Over tp: the dimension of a product (n, k, m), heads,
    sequence, none; "tokens m" and "tokens k": that dimension, where activations are cut along the sequence. Over the
    expert mesh: "expert n", "expert k", "expert m" (the dimension that etp cuts), "expert rows" and "expert inner" (traffic
    as wide as the model, or as wide as an expert).
    """

    label: str
    kind: str
    phase: str
    split: str = "none"
    flops: Flop = 0.0
    m: Count = 0.0
    n: Count = 0.0
    k: Count = 0.0
    repeats: Count = 1.0
    serial: Count = 1.0
    """Steps that wait for one another (of a recurrence), each with a start of its own: the repeats of a product are shared out among
    them, repeats/serial run at a time; traffic is that of all steps."""
    traffic: Bytes = 0.0
    seq: Count = 0.0
    head_dim: Count = 0.0
    dtype: str = ""
    """gemm: number format of the operands; empty = that of the plan's activations."""
    scaling: str = ""
    """gemm: what one scale of a narrow format covers (tensor, row, block, mx)."""
    launches: Count = 0.0
    """Kernels that the host launches for it beyond those that the stack counts for every layer."""
    replay: bool = False
    """Whether the op is a recomputation (counts in hfu, not in mfu)."""


@record
class Transfer:
    """A collective over mesh axes. `size` is the whole buffer (what every rank holds after a gather)."""

    label: str
    collective: str
    """all_reduce, all_gather, reduce_scatter, all_to_all (`size` is what one rank holds before), send (to the next rank of
    the axis)."""
    size: Bytes
    axes: tuple[str, ...]
    phase: str
    scope: str
    """layer, micro_batch, step."""
    hides_under: str = ""
    """The named compute it may run behind; empty = serial."""
    messages: Count = 1.0
    """How many such collectives: `size` is that of one."""
    window: Fraction = 1.0
    """Share of the named compute that one message may run behind."""
    copies: Count = 0.0
    """all_to_all: receivers of one token, which a unit of neighbours is sent once and shares out among themselves; 0 = each
    receiver is sent its own."""
    chunks: Count = 1.0
    """Pieces of one collective that pass one by one while what it hides under works on the others."""


@record
class Resident:
    """Bytes that lie in device memory at the peak of one rank."""

    label: str
    size: Bytes
    exactness: str
    """exact, modelled, estimated."""


@record
class Progress:
    """What the optimizer sees: the numbers that convergence prices."""

    replicas: Count = 1.0
    """Cells that step apart between two syncs; 1 = one batch, one optimizer."""
    period: Count = 1.0
    """Inner steps from one sync of a parameter to its next (H)."""
    delay: Count = 0.0
    """Inner steps by which what is applied is older than the parameters that it is applied to (τ)."""
    bits: Count = 32.0
    """On the wire, a parameter and sync."""
