"""What a run is paid and powered by: how an island is paid, what surrounds its accelerators, what is kept and what is brought; what
it learns: the law of its loss, the phases of its batch; and what interrupts it: failures, checkpoints, evaluation."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import (
    Bytes,
    BytesPerS,
    Count,
    Fraction,
    KilogramsPerJoule,
    Nats,
    Number,
    Ratio,
    Seconds,
    UsdPerByte,
    UsdPerByteS,
    UsdPerJoule,
)

COUNTS = ("total", "non-embedding")
"""Which parameters a law counts."""
FORMS = ("tokens", "loss")
"""What a critical batch follows: the tokens of the run, or the loss that is reached."""


PER = ("gpu", "node", "island")
"""Of what an MTBF is."""
AUTO, STEPS, TIME = "auto", "steps", "time"
"""What a distance between two checkpoints is said in."""


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


@record
class Failures:
    """How often something fails, and what one failure takes: a row of `data/failures.csv`."""

    name: str
    mtbf: Seconds
    """Mean time between failures of one unit; of capacity on the spot market, how long it stays."""
    per: str = "node"
    """Of what: gpu, node or island."""
    detect: Seconds | None = None
    """Until somebody knows; left out: 5 min, of what is announced nothing."""
    restart: Seconds | None = None
    """From then until the run goes on; left out: 5 min and the time to read a checkpoint."""
    wait: Seconds = 0.0
    """Before that, until there is a machine again."""
    notice: Seconds = 0.0
    """So long before, it is announced: a checkpoint that takes no longer is still written, and no work is lost."""
    data: str = ""
    """What was counted."""
    date: str = ""
    notes: str = ""
    source: str = ""


@record
class Checkpoint:
    """When the state of a run is written, and how fast."""

    every: Number = 0.0
    """Steps or seconds of training between two of them; unused where `unit` is auto."""
    unit: str = AUTO
    """auto (Daly's interval), steps or time."""
    size: Bytes
    bandwidth: BytesPerS | None = None
    """Of the store, or of the line to it; None = `BANDWIDTH_EACH` of `engine.course` for each accelerator."""
    blocking: bool = True
    """Whether training waits for it; else it is written behind the next steps."""


@record
class Evaluation:
    """What training stops for in between."""

    every: Number
    """Steps or seconds of training."""
    unit: str = STEPS
    """steps or time."""
    lasts: Seconds
