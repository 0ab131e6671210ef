"""Inference: what is asked of a trained model, and what comes back."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Fraction, PerSecond, Seconds
from shardmeter.specs.estimate import MemoryTerm, Term

METHODS = ("pipeline", "block_train", "soma", "local")
"""pipeline: layers cut over islands, token by token; block_train: blocks on islands, all tokens in one traversal; soma: an ensemble
of small experts, their distributions mixed for each token; local: every island holds the whole model."""


@record
class Serving:
    """What is asked: `batch` sequences pass together, each of `prompt` tokens that are given and `output` that are written."""

    how: str = "pipeline"
    prompt: Count = 512.0
    output: Count = 256.0
    batch: Count = 1.0
    in_flight: Count | None = None
    """Sequences under way at once; None = as many as keep the busiest place at work and fit into memory."""
    experts: int = 0
    """soma: independent models of the scenario's size; 0 = one on every island."""
    top_k: int = 0
    """soma: experts that a sequence is routed to; 0 = 4, or all where there are fewer."""
    blocks: int = 0
    """block_train: equal parts of the stack; 0 = one on every island."""
    traversals: Count = 1.0
    """block_train: passes through all blocks for one output."""
    together: bool = False
    """soma: every island holds all experts, so that an ensemble never crosses; else each lies on one island."""


@record
class Host:
    """An island as it serves: what one of its copies holds, and what that takes of memory on its fullest accelerator."""

    name: str
    accelerator: str
    accelerators: Count
    """Of one copy."""
    copies: Count
    layers: int = 0
    blocks: int = 0
    experts: int = 0
    busy: Seconds = 0.0
    """That one copy works for one batch's whole answer."""
    memory: tuple[MemoryTerm, ...]
    peak: Bytes
    limit: Bytes

    @property
    def fits(self) -> bool:
        """Whether it all lies in memory."""
        return bool(self.peak <= self.limit)


@record
class Served:
    """One way to serve. Terms are those of one batch alone."""

    how: str
    hosts: tuple[Host, ...]
    fits: bool
    terms: tuple[Term, ...]
    """Of its whole answer: they add to `output_time`."""
    first: tuple[Term, ...]
    """Of its first token, back at the first host."""
    token: tuple[Term, ...] | None
    """Of each further token; None where all come at once."""
    in_flight: Count
    """Sequences under way for `flight_rate`."""
    flight_rate: PerSecond
    """Tokens of all of them, a second."""
    busiest: str
    """The host or line that bounds it."""
    busiest_share: Fraction
    """Share of the time that it works then."""
    notes: tuple[str, ...] = ()
    """What was laid out how: one sentence each."""

    @property
    def output_time(self) -> Seconds:
        """From the prompt at the first host until the last token is back there."""
        return _total(self.terms)

    @property
    def first_time(self) -> Seconds:
        """Until the first token is."""
        return _total(self.first)

    @property
    def token_time(self) -> Seconds | None:
        """Of each further token; None where all come at once."""
        return None if self.token is None else _total(self.token)


def _total(terms: tuple[Term, ...]) -> Seconds:
    total: Seconds = 0.0
    for term in terms:
        total = total + term.seconds
    return total
