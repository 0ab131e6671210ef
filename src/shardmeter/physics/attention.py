"""Core attention: scores, softmax, weighted sum. The kernel of the stack decides what it costs."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Flop, FlopPerS, Fraction, Ratio, Seconds

NARROW_HEAD = {"fa1": 1.0, "fa2": 0.87, "fa3": 0.77, "cudnn": 0.71}
"""Rate of heads narrower than 128 over that of 128: published kernel sweeps of FA2 (A100, H100), FA3 and cuDNN (H100); the
first FlashAttention has no such sweep among our sources, and the LLM-Foundry rows show no loss."""
SCORE_BYTES = {"unfused": (16.0, 22.0), "fused": (8.0, 11.0)}
"""Bytes through memory per score element, forward and backward, where scores are materialised."""
BACKWARD_FLOPS = 2.5
"""Flash kernels recompute the scores: the backward does 2.5 × the forward's operations."""
UNFUSED_SHARE = 0.60
"""Share of the matmul rate that batched products of depth head_dim reach."""


@formula(cite="dao2023")
def flash_attention_time(
    flops: Flop, seq: Count, head_dim: Count, narrow: Ratio, half: Count, peak: FlopPerS, share: Fraction, factor: Ratio
) -> Seconds:
    """Time of a fused attention kernel for `flops` operations that it really does (causal counted as half).

    rate = peak × share × factor × seq/(seq + half) × (narrow if head_dim < 128). Leaves out: batch × heads too few to fill
    the device, head_dim above 128, variable-length packing."""
    rate = peak * share * factor * np.where(np.less(head_dim, 128.0), narrow, 1.0)
    return flops * ((seq + half) / seq) / rate


@formula(cite="korthikanti2022")
def unfused_attention_time(flops: Flop, traffic: Bytes, rate: FlopPerS, bandwidth: BytesPerS) -> Seconds:
    """Time of attention that writes its score matrix: batched products plus the passes over the scores.

    `flops` counts the full square (no causal saving). Leaves out: overlap between the two."""
    return flops / (rate * UNFUSED_SHARE) + traffic / bandwidth
