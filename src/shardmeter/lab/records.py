"""What a study asks and what comes of it. SI numbers; every record can be pickled and handed to a worker process."""

from __future__ import annotations

from typing import Any

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, BytesPerS, Count, FlopPerS, Fraction, Seconds

VOCABULARY = 256
"""Tokens are bytes."""


@record
class Shape:
    """A small model: a decoder (LayerNorm, GELU, learned positions, no biases, an own head), or an LSTM of bytes."""

    name: str
    layers: int
    hidden: int
    heads: int = 4
    seq_len: int = 64
    kind: str = "decoder"
    """decoder or lstm."""


@record
class Line:
    """What joins two islands, each direction by itself."""

    bandwidth: BytesPerS
    """Of everything on the wire, headers included."""
    rtt: Seconds
    jitter: Seconds = 0.0
    """Standard deviation of a packet's one-way delay; packets stay in order."""
    loss: Fraction = 0.0
    queue: Bytes = 1e6
    """Bytes that wait for the line at most; what comes beyond is dropped."""
    mtu: Bytes = 9000.0
    """Largest packet, its IP header included."""


@record
class Site:
    """One island: workers (processes, one thread each) that share a network namespace."""

    name: str
    workers: int = 1
    pace: FlopPerS | None = None
    """Speed of an emulated accelerator: a block of the model takes its FLOPs over this, what is computed sooner waits. None = as fast
    as the processor is."""


@record
class Fault:
    """What breaks: a worker is killed, or a line cut for good."""

    kind: str
    """worker (of the island `between[0]`) or line (both directions; `between` one island: all its lines)."""
    between: tuple[str, ...]
    after_round: int
    """Rounds that are through when it happens."""


@record
class Experiment:
    """One run: a model, islands, what joins them, and the method that keeps them together."""

    name: str
    method: str
    """A file of `lab/methods`."""
    sites: tuple[Site, ...]
    line: Line
    lines: tuple[tuple[tuple[str, str], Line], ...] = ()
    """Pairs with a line of their own, either order."""
    model: Shape
    batch: int = 8
    """Sequences that one worker takes in a micro-batch."""
    micro_batches: int = 1
    """Micro-batches a step: those in a pipeline, or accumulated."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Words of `plan.sync` (sync_every, num_fragments, bits, blocks …), or of the method (sizes of an all_reduce)."""
    learning_rate: float = 3e-3
    rounds: int = 4
    """Rounds that count; one more before them warms up and is thrown away."""
    fault: Fault | None = None

    def line_between(self, one: str, other: str) -> Line:
        """The line of a pair."""
        return next((line for pair, line in self.lines if set(pair) == {one, other}), self.line)

    @property
    def said(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(self.settings)

    @property
    def workers(self) -> int:
        """Of all islands."""
        return plain_sum(site.workers for site in self.sites)


@record
class Study:
    """Experiments that are run one after the other."""

    name: str
    experiments: tuple[Experiment, ...]
    seed: int = 0
    text: str = ""
    """A file to train on; empty = the topics of Python's own documentation."""
    alone_seconds: Seconds = 3.0
    """How long each kind of island runs by itself to be calibrated."""


@record
class Task:
    """What one worker process does. `alone`: its island by itself, nothing crosses, for so many seconds (0 = the whole run)."""

    experiment: Experiment
    rank: int
    """Over all workers, island by island."""
    world: int
    island: int
    """Place of its island in `experiment.sites`."""
    folder: str
    """Where `rank-K.jsonl` is written, and files by which workers find each other."""
    interface: str
    """Name of the network interface to the other islands, in the worker's own namespace."""
    address: str
    """Its island's address on it."""
    addresses: tuple[str, ...]
    """Of all islands."""
    seed: int = 0
    text: str = ""
    alone: Seconds = 0.0
    patience: Seconds = 30.0
    """A collective that takes longer has lost a peer."""


@record
class Traffic:
    """What an island's interface carried, as the kernel counts: bytes with IP headers."""

    sent_bytes: Count
    sent_packets: Count
    received_bytes: Count
    received_packets: Count
    dropped_packets: Count = 0.0
    """By the emulated line: queue overflow, and losses asked for, of what the island sent."""
