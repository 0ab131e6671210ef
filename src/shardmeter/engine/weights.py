"""*demand* of weights themselves: the traffic of casting them, of copying what was gathered, of adding up their gradients."""

from __future__ import annotations

from shardmeter.core.units import Count
from shardmeter.families.operations import is_layer
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies import data, fsdp, precision
from shardmeter.strategies.precision import WIDTH

ACCUMULATE = {"fp32": 10.0, "bf16": 6.0, "fp16": 6.0}
"""Bytes per parameter to add one micro-batch's 16-bit gradient into the accumulation buffer (read both, write one)."""
CAST = {"fp32": 6.0, "bf16": 2.0, "fp16": 2.0}
"""fsdp: bytes per parameter to bring a gradient into the reduction's dtype."""


def accumulation(trained: Count, plan: Plan, stack: Stack) -> tuple[Compute, ...]:
    """The gradients of one micro-batch, added to those before it or brought into the reduction's format."""
    if isinstance(trained, float) and trained == 0.0:
        return ()
    if stack.gradient_fused and not fsdp.applies(plan):
        return ()
    per_parameter = CAST[plan.reduce_dtype] if fsdp.applies(plan) else ACCUMULATE[stack.gradient_dtype]
    return (Compute(label="gradient accumulation", kind="traffic", phase=WEIGHT_GRAD, traffic=trained * per_parameter),)


def casts(held: Count, plan: Plan, block: str, keep: bool) -> tuple[Compute, ...]:
    """fsdp: weights are cast in every micro-batch — the rank's own shard where they are gathered in few bits, else all of
    them, after each gather. Other shardings cast them once a step (`optimizer_traffic`)."""
    traffic = precision.weight_casts(held, plan, block)
    if not fsdp.applies(plan) or precision.recipe(plan.precision).weight_cast == 0.0 or not is_layer(block):
        return ()
    traffic = traffic / data.shards(plan) if plan.gather_dtype in ("fp8", "fp4") else traffic * (1.0 if keep else 2.0)
    return (Compute(label="weight casts", kind="traffic", phase=FORWARD, traffic=traffic),)


def gathered_copies(held: Count, plan: Plan, stack: Stack, keep: bool) -> tuple[Compute, ...]:
    """Fsdp with sharding per parameter: every gather ends in a copy out of the gathered buffer, read and written once
    (PyTorch FSDP2, released code). Flat parameters are views into the buffer and need none (Zhao 2023 §3.2)."""
    if not (fsdp.applies(plan) and stack.gather_copy):
        return ()
    traffic = 2.0 * WIDTH[plan.gather_dtype] * held
    phases = (FORWARD,) if keep else (FORWARD, INPUT_GRAD)
    return tuple(Compute(label="gathered copies", kind="traffic", phase=phase, traffic=traffic) for phase in phases)
