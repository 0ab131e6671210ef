"""Steps without a backward: the loss is probed under perturbed weights, and a number a probe is all that ranks exchange (Spall 1992).

A pass runs the forward of every layer and keeps nothing for a backward. Perturbations come from seeds that all ranks know, so
that none crosses. `together` passes side by side have weights of their own: as many copies, as many times the products and the
traffic, the launches of one. A perturbation of low rank is multiplied beside the weights, as an adapter is, so that sequences of
one micro-batch may each have their own (Sarkar 2025); the update is the product of all factors, made again on every rank.
Leaves out: the generator's own arithmetic (a value a parameter and pass, beside 2 FLOPs a token); reading the factors of many
sequences of a micro-batch; what perturbs matrices outside products (an embedding's lookup) at low rank; that the stages of a
pipeline hand nothing back (their schedule charges an empty send: an upper bound).
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Fraction
from shardmeter.families import family, matrices, parameters
from shardmeter.families.operations import FLOP_PER_MAC, Block, matmul, streamed
from shardmeter.specs.demands import FORWARD, OPTIMIZER, Compute, Transfer
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.strategies import adapters, precision

LOSSES = "losses of the probes"
"""The term of the ledger."""
AXES = ("cp", "dp_shard", "dp_replicate", "pp")
"""Over which they meet: parts of a batch, parts of a sequence, and stages of which the last one has them."""
LOSS_WIDTH = 4.0
"""Bytes of one probe's loss."""
MOMENT_WIDTH = 4.0
ADDED = (2.0, 0.0)
"""Bytes per element to add a low-rank product to its layer's: what is there is read (the product writes the sum)."""
NUMBERS_MOVED = 2.0
"""A number is read and written."""
IN_PLACE = 3.0
"""Passes over the weights for a pair of probes in place: there, to the other side, back (Malladi 2023, Algorithm 1)."""


def applied(ops: tuple[Compute, ...], plan: Plan, block: Block) -> tuple[Compute, ...]:
    """The operations of a block for `together` passes at once, with the products of a low-rank perturbation beside the weights'."""
    if plan.probes is None:
        return ops
    one = plan.probes
    beside = () if one.whole or not share(plan, block) else _beside(ops, one.rank)
    return tuple(_times(op, one.together) for op in (*ops, *beside) if op.phase == FORWARD)


def _times(op: Compute, times: Count) -> Compute:
    """So many of it in one kernel. Scores of attention (`n`) grow with it; `repeats` of it says what its mask leaves."""
    more = {"flops": op.flops * times, "traffic": op.traffic * times}
    more |= {"gemm": {"repeats": op.repeats * times}, "attention": {"n": op.n * times}}.get(op.kind, {})
    return changed(op, **more)


ROWS = {"n": "n", "k": "m", "expert n": "expert n", "expert k": "expert m"}
"""How the weight of a product is divided → which dimension of its perturbation shrinks."""
CUT = {
    "n": ("none", "column", "heads"),
    "k": ("row", "none", "none"),
    "expert n": ("none", "expert column", "expert inner"),
    "expert k": ("expert row", "none", "expert rows"),
}
"""How the weight of a product is divided → how both factors of its perturbation are, and their sum."""


def _perturbed(ops: tuple[Compute, ...]) -> tuple[Compute, ...]:
    """The products whose weights are perturbed: all with a weight."""
    return tuple(op for op in ops if op.kind == "gemm" and op.phase == FORWARD and not op.split.startswith("batch"))


def _beside(ops: tuple[Compute, ...], rank: Count) -> tuple[Compute, ...]:
    """For every linear product m × k by k × n: m × k by k × r, that by r × n, and their sum."""
    found: list[Compute] = []
    for op in _perturbed(ops):
        down, up, added = CUT.get(op.split, ("none", "none", "none"))
        narrow = _narrow(op, rank)
        pair = (
            *matmul("perturbation", op.m, op.k, narrow, down, op.repeats),
            *matmul("perturbation", op.m, narrow, op.n, up, op.repeats),
        )
        found += (changed(one, serial=op.serial, launches=op.serial) for one in pair)
        found += streamed("perturbation", op.m * op.n * op.repeats, *ADDED, added)
    return tuple(found)


def _narrow(op: Compute, rank: Count) -> Count:
    """The rank of a perturbation, no more than its matrix has."""
    return np.minimum(rank, np.minimum(op.k, op.n))


def updates(ops: tuple[Compute, ...], plan: Plan, block: Block) -> tuple[Compute, ...]:
    """Products that add up the perturbations of low rank of one piece: k × r·members by r·members × n of every matrix."""
    if plan.probes is None or plan.probes.whole or not share(plan, block):
        return ()
    found: list[Compute] = []
    for op in _perturbed(ops):
        deep = _narrow(op, plan.probes.rank) * plan.probes.directions
        found.append(
            Compute(
                label="sum of perturbations", kind="gemm", phase=OPTIMIZER, split=ROWS.get(op.split, "none"), m=op.k, n=op.n, k=deep,
                repeats=op.repeats / op.serial, flops=FLOP_PER_MAC * op.k * op.n * deep * op.repeats / op.serial,
            )
        )  # fmt: skip
    return tuple(found)


def share(plan: Plan, block: Block) -> Fraction:
    """Share of a block's parameters that is perturbed: all or nothing; nothing under a backward."""
    return 0.0 if plan.probes is None else adapters.weight_share(plan.probes.of, block)


def dimension(model: Model, plan: Plan) -> Count:
    """Parameters of the whole model that are perturbed: the d of the estimate's variance. `model` is `sized`."""
    if plan.probes is None or plan.probes.of == "all":
        return parameters(model)
    blocks = family(model.family).blocks(changed(model, mtp=0))
    whole: Count = plain_sum((share(plan, one) * one.count * one.parameters for one in blocks), 0.0)
    return whole


def shapes(model: Model, plan: Plan) -> tuple[tuple[Count, Count, Count], ...]:
    """(rows, columns, how many) of the matrices that are perturbed. `model` is `sized`."""
    if plan.probes is None or plan.probes.of == "all":
        return matrices(model)
    blocks = family(model.family).blocks(model)
    return matrices(model, tuple(one.name for one in blocks if share(plan, one)))


def micro_batches(plan: Plan, passes: Count) -> Count:
    """Micro-batches of a step that has `passes` of them with a backward: every pass over every one, `together` at once."""
    return passes if plan.probes is None else passes * plan.probes.passes / plan.probes.together


def losses(plan: Plan) -> Transfer | None:
    """What ranks exchange at the end of a step: the sum of every pass's loss or, at low rank, the loss of every member."""
    if plan.probes is None:
        return None
    return Transfer(
        label=LOSSES, collective="all_reduce" if plan.probes.whole else "all_gather", size=plan.probes.losses * LOSS_WIDTH,
        axes=AXES, phase=OPTIMIZER, scope="step",
    )  # fmt: skip


def traffic(plan: Plan) -> Bytes:
    """Bytes through memory per perturbed parameter held and step: perturbing, and the update.

    One pass at a time is made in place, IN_PLACE passes over the weights for two probes; of several at once every one reads the
    weights and writes its own. The update reads and writes weights and moments once; its directions are made again from their
    seeds on the way. A perturbation of low rank is no copy."""
    if plan.probes is None:
        return 0.0
    one, width = plan.probes, precision.recipe(plan.precision).width
    update = NUMBERS_MOVED * (width + MOMENT_WIDTH * one.moments)
    if not one.whole:
        return update
    alone = np.less_equal(one.together, 1.0)
    return update + width * NUMBERS_MOVED * one.passes * np.where(alone, IN_PLACE / 2.0, 1.0)


def kept(plan: Plan) -> Bytes:
    """Bytes per perturbed parameter beside the weights: moments."""
    return 0.0 if plan.probes is None else MOMENT_WIDTH * plan.probes.moments


def copies(plan: Plan) -> Count:
    """Perturbed copies of the weights that lie beside them: none in place, none of low rank."""
    if plan.probes is None or not plan.probes.whole:
        return 0.0
    return np.where(np.less_equal(plan.probes.together, 1.0), 0.0, plan.probes.together)
