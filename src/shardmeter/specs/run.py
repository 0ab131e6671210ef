"""What is asked of the run: sequence length, batch, budget of tokens or steps."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count


@record
class Run:
    """`global_batch` counts the sequences of one optimizer step over the whole fleet."""

    seq_len: Count
    global_batch: Count
    tokens: Count | None = None
    steps: Count | None = None
