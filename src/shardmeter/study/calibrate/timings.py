"""What a benchmark of collectives measured: seconds by size, and between whom. Readers of benchmarks make these, `fabric` fits them."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Seconds

PRICED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
"""Collectives that the engine has a price for, in its words."""


@record
class Timing:
    """One size of a table."""

    size: Bytes
    """The whole buffer: what every rank holds after a gather and before a scatter, what one rank sends otherwise."""
    seconds: Seconds
    in_place: bool = False
    line: int = 0
    """In the file; 0 where it has no lines."""


@record
class Benchmark:
    """One table: one collective over one group of ranks."""

    collective: str
    """A word of PRICED, or what the benchmark calls it where the engine has no price."""
    ranks: Count
    """In one group."""
    timings: tuple[Timing, ...]
    stride: Count = 1.0
    """Ranks from one member of a group to the next (more than 1 where groups lie across each other)."""
    per_host: Count | None = None
    """Ranks of the whole job on one host; None = the table does not say, then all of them on one."""
    hosts: Count = 1.0
    device: str = ""
    """As its driver calls it."""
    backend: str = ""
    """Software and version: `nccl-tests 2.19.6, NCCL 2.27.7`."""
    settings: tuple[tuple[str, str], ...] = ()
    """Of the library, that change how collectives run: (name, value), as `NCCL_ALGO`."""
    source: str = ""
    """File, and line where the table begins."""

    @property
    def said(self) -> str:
        """In one line: what, among whom, where."""
        where = "one host" if self.hosts == 1 else f"{self.hosts:g} hosts"
        return f"{self.collective} of {self.ranks:g} ranks on {where}"
