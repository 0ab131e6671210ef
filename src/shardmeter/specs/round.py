"""What a sync method demands of one round: messages between cells, memory and work of the outer update, progress.

A *cell* is what takes an inner step by itself: an island, or several that one placed axis joins. A method knows how many
cells there are and how large the model is, never a bandwidth or a second.
"""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Flop, Fraction, Nats, Ratio
from shardmeter.specs.demands import Progress, Resident
from shardmeter.specs.plan import Probes

COLLECTIVES = ("all_reduce", "all_gather", "exchange", "star", "sharded_star")
"""Over cells: all_reduce (every cell ends with the mean of all), all_gather (every cell ends with every other's message),
exchange (with one other cell, both ways), star (to one server and back), sharded_star (every cell serves its part)."""


@record
class Crossing:
    """One kind of message of a round, `messages` times, evenly spread over it.

    Released when the inner step ends (or `lead` of a step before, or layer by layer `behind` its backward) and due
    `window` inner steps after that end; what does not pass in time is waited for. A message that is not due before the
    next one's release takes turns with it on the wire."""

    label: str
    collective: str
    size: Bytes
    """What one cell holds of one message: the whole buffer of an all-reduce, its own part of an all-gather."""
    messages: Count = 1.0
    """In a round."""
    window: Count = 0.0
    """Inner steps after its release until it is needed; 0 = the next step waits for it."""
    lead: Fraction = 0.0
    """Share of the inner step behind which it may pass before that step ends."""
    behind: str = ""
    """"backward": released layer by layer as the gradients of the step become whole."""
    calls: Count = 1.0
    """Collectives that a message is cut into, one after the other (tensor by tensor, shard by shard)."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Cells among which it passes, group by group at the same time; empty = all of them together."""


@record
class Round:
    """One round of a method, as demands."""

    steps: Count
    """Inner steps of a round (H), of the fastest cell."""
    crossings: tuple[Crossing, ...] = ()
    residents: tuple[Resident, ...] = ()
    """Bytes for the whole model, beside what inner training keeps; every island shards them over the ranks of a replica."""
    host_residents: tuple[Resident, ...] = ()
    """The same in the memory of the hosts."""
    traffic: Bytes = 0.0
    """Bytes through device memory of the outer update, for the whole model and a round."""
    products: Flop = 0.0
    """FLOPs of the matrix products of the outer update, of fp32 numbers, likewise; their bytes are in `traffic`."""
    pace: str = "barrier"
    """barrier: all cells take the same steps and wait for the slowest; deadline: rounds end on time and slow cells count fewer
    steps; own: nobody waits."""
    parts: Count = 1.0
    """Parts of the model that cells train apart from one another, dealt out in turn: a token counts once every part has seen it."""
    progress: Progress = Progress()
    notes: tuple[str, ...] = ()
    """What was derived or taken for granted, one sentence each: said among the assumptions."""

    @property
    def alone(self) -> bool:
        """Whether cells never meet: each trains a model of its own, and the run lasts as long as the slowest."""
        return self.pace == "own" and not self.crossings


@record
class Inner:
    """How a method's inner step differs from a forward and a backward through the whole model."""

    blocks: int = 1
    """Equal parts that the layers are cut into; a cell trains one, with an embedding and a head of its own."""
    probes: Probes | None = None
    """The forward passes of a step without a backward."""


BASES = ("published", "derived", "extrapolated", "guess", "unknown")
"""How much is known of an effect on the loss: measured and published in this range; follows from what was; carried on beyond that
range; assumed; nothing."""


@record
class Effect:
    """What a method costs in loss beside synchronous training with backpropagation on the same tokens; a factor and nats both
    count."""

    basis: str
    """A word of BASES."""
    text: str
    """What is known, with the range in which it is, in a sentence."""
    nats: Nats | None = None
    """Added to the loss; None = not known as a sum."""
    per: str = "token"
    """What the nats are of: a token, or a byte (of text, however it is cut into tokens)."""
    factor: Ratio | None = None
    """By which the loss is multiplied; None = not known as a factor."""
    source: str = ""
    """Citation."""
    parts: tuple[Effect, ...] = ()
    """What it is made of, each with a basis of its own; empty where it is one thing."""


@record
class Replica:
    """What a method needs to know: the model in bytes and how it is trained, and how many cells train it."""

    parameters: Count
    """Trained parameters."""
    gradient_bytes: Bytes
    """Of one parameter's gradient on the wire."""
    layers: Count
    cells: Count
    matrices: tuple[tuple[Count, Count, Count], ...] = ()
    """(rows, columns, how many) of every kind of trained matrix."""
