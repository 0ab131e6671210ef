"""What a run is paid and powered by: how an island is paid, what surrounds its accelerators, what is kept and what is brought; and what
it learns: the law of its loss, the phases of its batch."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import (
    Bytes,
    Count,
    Fraction,
    KilogramsPerJoule,
    Nats,
    Ratio,
    UsdPerByte,
    UsdPerByteS,
    UsdPerJoule,
)

COUNTS = ("total", "non-embedding")
"""Which parameters a law counts."""
FORMS = ("tokens", "loss")
"""What a critical batch follows: the tokens of the run, or the loss that is reached."""


@record
class Tariff:
    """How an island is paid, beside its price: rented by the hour, or owned, and then its electricity is paid."""

    kind: str = "given"
    """on demand, spot, reserved, given or owned."""
    electricity: UsdPerJoule | None = None
    """Of what is owned; None where the price covers it."""

    @property
    def owned(self) -> bool:
        """Whether nobody is paid for the hours."""
        return self.kind == "owned"


@record
class Power:
    """What surrounds an island's accelerators: its hall and its grid."""

    pue: Ratio = 1.0
    """Energy of the hall over that of the machines in it."""
    pue_basis: str = ""
    carbon: KilogramsPerJoule | None = None
    """None where the grid is not known."""
    carbon_basis: str = ""


@record
class Stock:
    """Bytes that are kept as long as the run lasts."""

    name: str
    size: Bytes = 0.0
    each: Bytes = 0.0
    """More of them for every token of the run."""
    copies: Count = 1.0
    price: UsdPerByteS | None
    """None where it is not known: so is the cost then."""
    basis: str = ""


@record
class Haul:
    """Bytes that are sent to an island once."""

    name: str
    each: Bytes
    """For every token of the run."""
    price: UsdPerByte | None
    basis: str = ""


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
