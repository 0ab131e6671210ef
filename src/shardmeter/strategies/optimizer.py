"""Optimizers: what one step reads, writes, multiplies and gathers, and what it keeps (Kingma 2015; Shazeer 2018; Jordan 2024).

adamw: two moments. adamw8bit: two moments of 8 bits with a scale a block (Dettmers 2022). adafactor: a row and a column of
second moments a matrix, which is nothing beside it. sgd: one momentum. muon: one momentum; the update of every matrix of a
layer is orthogonalised by five Newton–Schulz iterations, for which whole matrices are gathered where they are sharded (Liu
2025 §2.3); embedding, head and vectors take adamw. Moments have the master's format, those of 8 bits apart.
Leaves out: gradient clipping apart from its reading of the gradient, weight decay masks, learning-rate schedules; the second
moment that embedding and head keep beside a muon of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import FLOP_PER_MAC
from shardmeter.specs.demands import FORWARD, OPTIMIZER, Compute, Transfer
from shardmeter.specs.plan import Plan
from shardmeter.strategies.precision import WIDTH, recipe

ITERATIONS = 5.0
"""Newton–Schulz iterations of an update (Jordan 2024)."""
GATHER = ("cp", "dp_shard")
UPDATE_WIDTH = 2.0
"""Bytes per element of a momentum that is gathered and orthogonalised: 16 bits (Liu 2025 §2.3)."""


@record
class Optimizer:
    """Per parameter that a rank owns: moments, and passes over the gradient besides."""

    moments: Count
    """Numbers kept per parameter."""
    moment_width: Bytes | None = None
    """Bytes of one of them; None = the master's."""
    update_passes: Count = 0.0
    """Times an update is written and read again (fp32) because a norm of all of it is needed first."""
    whole_matrices: bool = False
    """Whether an update needs the whole matrix of a layer."""


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer(moments=2.0),
    "adamw8bit": Optimizer(moments=2.0, moment_width=1.0),
    "adafactor": Optimizer(moments=0.0, update_passes=1.0),  # its step is scaled by the update's own norm (Shazeer 2018 §6)
    "sgd": Optimizer(moments=1.0),
    "muon": Optimizer(moments=1.0, whole_matrices=True),
}  # fmt: skip


def optimizer(name: str) -> Optimizer:
    """The optimizer of a word. Raises UnknownName."""
    if name not in OPTIMIZERS:
        raise UnknownName("optimizer", name, tuple(OPTIMIZERS))
    return OPTIMIZERS[name]


def state(plan: Plan) -> Bytes:
    """Bytes of moments per parameter, the master apart."""
    chosen = optimizer(plan.optimizer)
    return chosen.moments * _width(chosen, plan)


def traffic(plan: Plan) -> Bytes:
    """Bytes through memory per parameter owned: the gradient twice (its norm, the update), moments and master read and
    written, the copy that is multiplied with written, if it is narrower. adamw: 8 + 16 + 8 + 2 = 34."""
    chosen = optimizer(plan.optimizer)
    master = WIDTH[plan.master_dtype]
    width = recipe(plan.precision).width
    copy = width if master > width else 0.0
    return 2.0 * master + 2.0 * state(plan) + 8.0 * chosen.update_passes + 2.0 * master + copy


def _width(chosen: Optimizer, plan: Plan) -> Bytes:
    return WIDTH[plan.master_dtype] if chosen.moment_width is None else chosen.moment_width


def orthogonalisation(ops: Sequence[Compute], plan: Plan) -> tuple[Compute, ...]:
    """Products of five iterations for every matrix of one layer, whole: X·Xᵀ, its square, and both times X.

    The matrices are those of the layer's linear products, k × n each, those of one step; the shorter side is squared. Each
    rank does its share of the matrices. Leaves out: fused projections that a trainer orthogonalises apart."""
    if not optimizer(plan.optimizer).whole_matrices:
        return ()
    found = []
    for op in ops:
        if op.kind == "gemm" and op.phase == FORWARD and op.split != "batch":
            short, long = _sides(op)
            times = ITERATIONS * op.repeats / op.serial

            def product(m: Count, n: Count, k: Count, repeats: Count) -> Compute:
                return Compute(
                    label="orthogonalisation", kind="gemm", phase=OPTIMIZER, m=m, n=n, k=k, repeats=repeats,
                    flops=FLOP_PER_MAC * m * n * k * repeats,
                )  # fmt: skip

            found += [
                product(short, short, long, times), product(short, short, short, times), product(short, long, short, times),
            ]  # fmt: skip
    return tuple(found)


def _sides(op: Compute) -> tuple[Count, Count]:
    """The shorter and the longer side of an operation's weight."""
    return np.minimum(op.k, op.n), np.maximum(op.k, op.n)


def update_gathers(parameters: Count, plan: Plan) -> tuple[Transfer, ...]:
    """Gathers of whole momenta for `parameters` matrix parameters of one rank: over tensor ranks, which cut every matrix,
    and over the ranks that shard the optimizer."""
    if not optimizer(plan.optimizer).whole_matrices:
        return ()
    size = parameters * UPDATE_WIDTH

    def over(axes: tuple[str, ...], size: Bytes) -> Transfer:
        return Transfer(
            label="momentum gather", collective="all_gather", size=size, axes=axes, phase=OPTIMIZER, scope="step"
        )

    sharded = plan.sharding in ("zero1", "zero2", "zero3", "fsdp")
    return (over(("tp",), size * plan.tp), *((over(GATHER, size),) if sharded else ()))
