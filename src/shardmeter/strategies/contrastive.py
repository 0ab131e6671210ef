"""Contrastive loss of two towers: every replica compares its own pairs with those of all replicas (Radford 2021 §2.3).

Features of images and texts are gathered over the data-parallel ranks, and their gradients are scattered back to where they
came from. Each rank computes its own rows of the matrix of logits, images against texts and, for a softmax, texts against
images; over all ranks a matrix has the square of the batch (Zhai 2023 §3.3 does the sigmoid's in as many parts as ranks: as
many products). Pairs of different micro-batches never meet. Leaves out: features kept from earlier micro-batches, gathers
without gradients, the ring of the sigmoid's parts.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import matmul, streamed
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan

AXES = ("dp_shard", "dp_replicate")
DIRECTIONS = {"none": 0.0, "softmax": 2.0, "sigmoid": 1.0}
"""Matrices of logits that a loss looks at."""
LOSS_BYTES = (12.0, 18.0)
"""Per logit, as in any other loss: cast to fp32, maximum, exponentials, sum; gradient written and cast back."""
LOGIT_BYTES = 10.0
"""Kept per logit: 16-bit logits, fp32 copy, fp32 gradient."""
LABEL = "contrastive logits"


def applies(model: Model) -> bool:
    """Whether the loss compares the samples of a batch."""
    return model.contrast != "none"


def pairs(plan: Plan) -> Count:
    """Samples that are compared with one another: one micro-batch of every replica."""
    return plan.micro_batch * plan.dp


def operations(model: Model, plan: Plan) -> tuple[Compute, ...]:
    """Logits of one micro-batch and their loss, on one rank: both factors are features, and both have gradients."""
    times, mine, all_ = DIRECTIONS[model.contrast], plan.micro_batch, pairs(plan)
    products = matmul(LABEL, mine, model.projection, all_, "none", times)
    loss = streamed("contrastive loss", times * mine * all_, *LOSS_BYTES, "none")
    return (*products, *loss)


def transfers(model: Model, plan: Plan, width: Bytes) -> tuple[Transfer, ...]:
    """Gather of the features of both towers, and the way back of their gradients; `width` is bytes per feature. None for any
    other loss."""
    if not applies(model):
        return ()
    gather = Transfer(
        label="contrastive gather", collective="all_gather", size=2.0 * pairs(plan) * model.projection * width, axes=AXES,
        phase=FORWARD, scope="micro_batch",
    )  # fmt: skip
    return gather, changed(gather, label="contrastive scatter", collective="reduce_scatter", phase=INPUT_GRAD)


def matrix(model: Model, plan: Plan) -> Bytes:
    """Bytes of one rank's rows of the matrices of logits."""
    return DIRECTIONS[model.contrast] * plan.micro_batch * pairs(plan) * LOGIT_BYTES
