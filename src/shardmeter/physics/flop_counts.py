"""FLOPs of a token as they are counted in papers and logs: short forms that leave most of a model's shape out.

The count of mfu itself is a family's `training_flops`; these are what others divide by a peak. Legend: all counts are FLOPs of forward
and backward per token, a multiplication with its addition being two.
"""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Flop

FLOP_PER_PARAMETER: Flop = 2.0
"""One multiplication and one addition of every parameter and token that meet."""


@formula(cite="kaplan2020")
def parameter_flops(parameters: Count, passes: Count, flop_per_parameter: Flop = FLOP_PER_PARAMETER) -> Flop:
    """2·N for each pass of a token through N parameters: 3 passes train (6·N), 2 where all are frozen (4·N: forward and the gradient of
    inputs), 4 with a full recomputation (8·N), 1 is the forward alone.

    Leaves out: attention over the sequence."""
    return flop_per_parameter * passes * parameters


@formula(cite="chowdhery2022")
def attention_flops(
    layers: Count, width: Count, seen: Count, passes: Count, flop_per_parameter: Flop = FLOP_PER_PARAMETER
) -> Flop:
    """4·L·(H·Q)·T for each pass: scores and weighted sum of `seen` keys in `layers` layers whose heads are `width` wide together; 3
    passes are the 12·L·H·Q·T of PaLM's appendix B.

    Leaves out: causality, windows, the softmax."""
    return 2.0 * flop_per_parameter * passes * layers * width * seen


@formula(cite="narayanan2021")
def megatron_flops(
    layers: Count, hidden: Count, seq: Count, vocab: Count, passes: Count, flop_per_parameter: Flop = FLOP_PER_PARAMETER
) -> Flop:
    """24·passes·L·h²·(1 + s/6h + V/16hL): Megatron-LM of 2021 (eq. 3) at 4 passes, its full recomputation counted; at 3 passes as
    trainers print it without (72·L·h²…).

    Leaves out: any MLP but one of two matrices 4h wide, groups of keys and values, experts, windows, causality."""
    layer = 12.0 * flop_per_parameter * passes * layers * hidden * hidden
    return layer * (1.0 + seq / (6.0 * hidden) + vocab / (16.0 * layers * hidden))
