"""Steps without a backward: the loss is probed under perturbed weights, and a number a probe is all that ranks exchange (Spall 1992).

A pass runs the forward of every layer and keeps nothing for a backward. Perturbations come from a seed that all ranks know, so
that none crosses. `together` passes side by side have weights of their own: as many copies, as many times the products and the
traffic, the launches of one. A perturbation of low rank is multiplied beside the weights, as an adapter is (Sarkar 2025).
Leaves out: the generator's own arithmetic (it is hidden behind the traffic of what it perturbs), losses that are compared across
ranks before all are there.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import matmul, streamed
from shardmeter.specs.demands import FORWARD, OPTIMIZER, Compute, Transfer
from shardmeter.specs.plan import Plan
from shardmeter.strategies import precision

LOSS_WIDTH = 4.0
"""Bytes of one probe's loss."""
MOMENT_WIDTH = 4.0
ADDED = (6.0, 0.0)
"""Bytes per element to add a low-rank product to its layer's: both read, one written."""
NUMBERS_MOVED = 2.0
"""A number is read and written."""
IN_PLACE = 3.0
"""Passes over the weights for a pair of probes in place: there, to the other side, back (Malladi 2023, Algorithm 1)."""


def applied(ops: tuple[Compute, ...], plan: Plan) -> tuple[Compute, ...]:
    """The operations of a block for `together` passes at once, with the products of a low-rank perturbation beside the weights'."""
    if plan.probes is None:
        return ops
    times, rank = plan.probes.together, plan.probes.rank
    beside = () if isinstance(rank, float) and rank == 0.0 else _beside(ops, rank)
    return tuple(_times(op, times) for op in (*ops, *beside) if op.phase == FORWARD)


def _times(op: Compute, times: Count) -> Compute:
    """So many of it in one kernel. Scores of attention (`n`) grow with it; `repeats` of it says what its mask leaves."""
    more = {"flops": op.flops * times, "traffic": op.traffic * times}
    more |= {"gemm": {"repeats": op.repeats * times}, "attention": {"n": op.n * times}}.get(op.kind, {})
    return changed(op, **more)


def _beside(ops: tuple[Compute, ...], rank: Count) -> tuple[Compute, ...]:
    """For every linear product m × k by k × n: m × k by k × r, that by r × n, and their sum."""
    found: list[Compute] = []
    for op in ops:
        if op.kind == "gemm" and op.phase == FORWARD and not op.split.startswith("batch"):
            narrow = np.minimum(rank, np.minimum(op.k, op.n))
            found += matmul("perturbation", op.m, op.k, narrow, "none", op.repeats)
            found += matmul("perturbation", op.m, narrow, op.n, "none", op.repeats)
            found += streamed("perturbation", op.m * op.n * op.repeats, *ADDED, "none")
    return tuple(found)


def micro_batches(plan: Plan, passes: Count) -> Count:
    """Micro-batches of a step that has `passes` of them with a backward: every pass over every one, `together` at once."""
    return passes if plan.probes is None else passes * plan.probes.passes / plan.probes.together


def losses(plan: Plan) -> Transfer | None:
    """What ranks that see different sequences exchange: a loss for every pass."""
    if plan.probes is None:
        return None
    return Transfer(
        label="losses of the probes", collective="all_reduce", size=plan.probes.passes * LOSS_WIDTH,
        axes=("dp_shard", "dp_replicate"), phase=OPTIMIZER, scope="step",
    )  # fmt: skip


def traffic(plan: Plan) -> Bytes:
    """Bytes through memory per parameter held and step: perturbing, and the update.

    One pass at a time is made in place, IN_PLACE passes over the weights for two probes; of several at once every one reads the
    weights and writes its own. The update reads and writes weights and moments once; its directions are made again from their
    seeds on the way. A perturbation of low rank is no copy."""
    if plan.probes is None:
        return 0.0
    one, width = plan.probes, precision.recipe(plan.precision).width
    update = NUMBERS_MOVED * (width + MOMENT_WIDTH * one.moments)
    if not (isinstance(one.rank, float) and one.rank == 0.0):
        return update
    alone = np.less_equal(one.together, 1.0)
    return update + width * NUMBERS_MOVED * one.passes * np.where(alone, IN_PLACE / 2.0, 1.0)


def kept(plan: Plan) -> Bytes:
    """Bytes per parameter beside the weights: moments."""
    return 0.0 if plan.probes is None else MOMENT_WIDTH * plan.probes.moments


def copies(plan: Plan) -> Count:
    """Perturbed copies of the weights that lie beside them: none in place, none of low rank."""
    if plan.probes is None or not (isinstance(plan.probes.rank, float) and plan.probes.rank == 0.0):
        return 0.0
    return np.where(np.less_equal(plan.probes.together, 1.0), 0.0, plan.probes.together)
