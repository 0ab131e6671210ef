"""What is asked of the run: sequence length, batch, budget of tokens or steps."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count
from shardmeter.specs.course import Haul, Stock
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

    @property
    def attended(self) -> Count:
        """Tokens that attend to one another: a document's, or a whole sequence's."""
        return self.seq_len if self.document_len is None else self.document_len
