"""What is asked of the run: sequence length, batch, budget of tokens or steps."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count, Nats, Seconds, Usd
from shardmeter.specs.course import Checkpoint, CriticalBatch, Evaluation, Failures, Haul, LossLaw, Phase, Stock
from shardmeter.specs.model import Model


@record
class Run:
    """`global_batch` counts the sequences of one optimizer step over the whole fleet."""

    seq_len: Count
    global_batch: Count
    document_len: Count | None = None
    """Mean tokens of the documents packed into one sequence, where attention does not cross from one to the next."""
    tokens: Count | None = None
    steps: Count | None = None
    stocks: tuple[Stock, ...] = ()
    """What is kept while the run lasts: checkpoints, copies of the data set."""
    hauls: tuple[Haul, ...] = ()
    """What is brought to islands once: the data set."""
    reference: Model | None = None
    """A frozen model beside the trained one, run forward over every micro-batch: DPO's reference, a teacher, a KL anchor."""

    target_loss: Nats | None = None
    """The loss to reach, in place of tokens or steps."""
    law: LossLaw | None = None
    """What the loss of so many parameters and tokens is; None = it is not asked."""
    other_laws: tuple[LossLaw, ...] = ()
    """Of a target: the other laws of the catalog that tell tokens, for how far they are apart."""
    critical_batch: CriticalBatch | None = None
    """None = what a large batch costs in tokens is left out."""
    loss_guesses: bool = False
    """Whether what is only guessed of the loss counts."""
    phases: tuple[Phase, ...] = ()
    """Parts of the run with batches and sequences of their own, which add to `tokens`; empty = one of the numbers above."""

    checkpoint: Checkpoint | None = None
    """None = no time is spent on checkpoints; what fails then begins anew."""
    failures: Failures | None = None
    """What strikes every island; None = nothing fails."""
    evaluation: Evaluation | None = None

    deadline: Seconds | None = None
    """Longest wall clock that is good enough; None = it is not asked."""
    budget: Usd | None = None
    """Most that the run may cost."""

    @property
    def attended(self) -> Count:
        """Tokens that attend to one another: a document's, or a whole sequence's."""
        return self.seq_len if self.document_len is None else self.document_len
