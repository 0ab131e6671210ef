"""The loss over the vocabulary: bytes through memory per logit, by the code that computes it.

A family emits one byte per logit in each direction; the stack's word says how many there are. Counted from the reads and
writes of each kernel on 16-bit logits:

* torch: cast to fp32 (2 + 4), log-softmax that reads a row three times and writes it (16); backward: a gradient of zeros with
  one entry a row (4), log-softmax's gradient (16 + 4), cast back (4 + 2). PyTorch 2 `cross_entropy` on `logits.float()`.
* parallel: cast (2 + 4), maximum (4), subtracted in place (8), exponentials in place (8), sum (4), divided in place (8);
  backward: scaled in place (8), cast back (4 + 2). Vocabulary-parallel cross entropy of Megatron-LM (Shoeybi 2019 §3; code).
* fused: one kernel reads the logits and writes their gradient over them (2 + 2 and a second read); backward scales it (2 + 2).
  FlashAttention's, Apex's, Liger's (Hsu 2024 §3.2) and Transformer Engine's cross entropy.
* compiled: casts, maximum and sum fused into two reading passes; backward reads and writes once.

Leaves out: a loss that never writes its logits, because it is joined with the head's product; label smoothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardmeter.core.record import changed
from shardmeter.specs.demands import FORWARD, Compute

BYTES: dict[str, tuple[float, float]] = {
    #           forward, backward
    "torch": (22.0, 30.0),
    "parallel": (38.0, 14.0),
    "fused": (6.0, 4.0),
    "compiled": (4.0, 4.0),
}
"""Bytes per logit through memory by the word of `Stack.loss`."""
KEPT: dict[str, float] = {"torch": 14.0, "parallel": 10.0, "fused": 4.0, "compiled": 6.0}
"""Bytes per logit that lie in memory at the peak. torch: 16-bit logits, their fp32 copy, log-softmax, its gradient; parallel:
16-bit logits, the fp32 copy that becomes its own gradient, its 16-bit cast and a part of one more; fused: logits, overwritten
by their gradient, and one more copy of them; compiled: logits, their gradient, and one of them while it is cast."""

KEPT_FORWARD: dict[str, float] = {"torch": 10.0, "parallel": 6.0, "fused": 4.0, "compiled": 2.0}
"""The same where no gradient is made: what of `KEPT` the forward pass alone has (of fused, both copies)."""


def applied(ops: Iterable[Compute], word: str) -> tuple[Compute, ...]:
    """Operations of a block with the loss at the bytes per logit of `word`. Raises KeyError for no word of `BYTES`."""
    forward, backward = BYTES[word]
    return tuple(
        changed(op, traffic=op.traffic * (forward if op.phase == FORWARD else backward)) if op.label == "loss" else op
        for op in ops
    )
