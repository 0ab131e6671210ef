"""Branch-Train-Merge: every cell trains an expert of its own on its own domain; nothing crosses (Li 2022).

Experts branch off a common seed model and are put together afterwards, as an ensemble or a mean of parameters: as many as there
are cells, so that the whole has M times the parameters of the model that is named.

Bytes: none.
Period: none. `split` says how the batch is shared among cells.
Window: none: nobody waits.
Memory: nothing beside inner training of one expert.
Compute: nothing beside inner training. Each token is trained on by one expert, that of its domain.
Convergence: every expert sees its own tokens only, one replica. Published: 64 experts of 22.4B parameters together, trained on 192B
    tokens, are as good as a dense model trained with 2.5 times the compute.
Source: Li 2022 (abstract).
Leaves out: training of the seed model, which all experts begin with; sorting of the data; merging; what several experts at once
    cost in use.
"""

from __future__ import annotations

from shardmeter.specs import Effect, Replica, Round, Sync
from shardmeter.sync import _alone, _loss

FIELDS = ("split",)
DEFAULTS: dict[str, object] = {}
SOURCE = "li2022"
SEVERAL = True
"""Whether training ends with several models."""


def effect(replica: Replica, sync: Sync) -> Effect:
    """Published as compute, not as a loss."""
    said = "64 experts of 350M, 192B tokens: as good as one dense model with 2.5 times the compute; no loss for other numbers"
    return _loss.unknown(said, SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round, and every cell takes it alone."""
    return _alone.every_step(
        "every island trains a model of its own: as many experts as islands, each of the parameters that are named",
        "a token is trained on by one expert, that of its domain",
    )
