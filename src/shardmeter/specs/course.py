"""What is asked of a run from its first to its last step: the law of its loss, the phases of its batch."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction, Nats, Ratio

COUNTS = ("total", "non-embedding")
"""Which parameters a law counts."""
FORMS = ("tokens", "loss")
"""What a critical batch follows: the tokens of the run, or the loss that is reached."""


@record
class LossLaw:
    """L(N, D) = E + (A/N^α + B/D^β)^γ with the constants of one fit: they belong to its data and its tokenizer."""

    name: str
    irreducible: Nats = 0.0
    """E: what no model and no data takes away."""
    a: Count = 0.0
    alpha: Ratio = 1.0
    b: Count = 0.0
    """0 where the fit says nothing of tokens apart from parameters."""
    beta: Ratio = 1.0
    gamma: Ratio = 1.0
    unit: str = "nats/token"
    data: str = ""
    """What the models were trained and evaluated on; the tokenizer goes with it."""
    counts: str = "total"
    """A word of COUNTS."""
    parameters_least: Count | None = None
    parameters_most: Count | None = None
    tokens_least: Count | None = None
    tokens_most: Count | None = None
    """Ranges of the fit; None = not stated."""
    tokens_per_parameter: Ratio | None = None
    """The only ratio at which the law holds; None = it is a law of both."""
    notes: str = ""
    date: str = ""
    source: str = ""
    draws: tuple[tuple[float, ...], ...] = ()
    """(E, A, α, B, β, γ) of refits to resampled rows, where the law was fitted here: what its interval is made of."""


@record
class CriticalBatch:
    """How the batch grows beyond which more sequences a step stop saving steps: c·D^e, or c·L^(−1/e), in tokens."""

    name: str
    form: str
    """A word of FORMS."""
    coefficient: Count
    exponent: Ratio
    overhead: Fraction = 1.0
    """Share by which examples exceed the least at the batch that was fitted; 1 = the hyperbola's own."""
    tokens_least: Count | None = None
    tokens_most: Count | None = None
    """Range of the fit."""
    data: str = ""
    notes: str = ""
    source: str = ""


@record
class Phase:
    """A part of a run with a batch and a sequence length of its own."""

    tokens: Count
    seq_len: Count
    global_batch: Count
    """In sequences."""
