"""The host beside an accelerator: its link, and its memory where optimizer states live there."""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Fraction, Seconds

LINK_SHARE = 0.87
"""Share of the link's rate that copies from pinned memory reach: 55 of 63 GB/s on PCIe 5 (C2C: 0.80)."""
MEMORY_SHARE = 0.80
"""Share of the host's memory bandwidth that a vectorised optimizer step sustains."""


@formula(cite="hockney1994")
def copy_time(size: Bytes, link: BytesPerS, share: Fraction) -> Seconds:
    """Time to copy `size` bytes between device and host, one direction.

    Leaves out: several devices behind one switch, what both directions take from each other (C2C halves)."""
    return size / (link * share)


@formula(cite="williams2009")
def update_time(traffic: Bytes, bandwidth: BytesPerS, share: Fraction) -> Seconds:
    """Time of an optimizer step on the host, which is bound by its memory.

    Leaves out: cores too few to saturate it, memory of the other socket."""
    return traffic / (bandwidth * share)
