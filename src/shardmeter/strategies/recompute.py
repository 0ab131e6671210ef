"""Activation recomputation: what runs again in the backward pass, and what need not be kept (Chen 2016; Korthikanti 2022 §5).

none · full (keep a layer's input, run the layer again) · selective (what "selective" means is a fact of the stack: the core
attention of Megatron, or torchtitan's every second product) · every-K (full on one layer of K).
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.core.units import Fraction
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Compute, Transfer


def share(policy: str) -> Fraction:
    """Share of the layers that the policy touches."""
    return 1.0 / int(policy.split("-")[1]) if policy.startswith("every-") else 1.0


def replays(ops: tuple[Compute, ...], policy: str, selective: str) -> tuple[tuple[Compute, Fraction], ...]:
    """Forward operations of a layer that run again in its backward pass, each with the share of layers that replay it."""
    if policy == "none":
        return ()
    forward = [op for op in ops if op.phase == FORWARD]
    again: list[tuple[Compute, Fraction]] = []
    for op in forward:
        portion = share(policy)
        if policy == "selective":
            if selective == "attention":
                portion = 1.0 if op.kind == "attention" else 0.0
            else:  # every second product is kept, attention is kept, the rest runs again
                portion = {"gemm": 0.5, "attention": 0.0}.get(op.kind, 1.0)
        if portion > 0.0:
            again.append((changed(op, phase=INPUT_GRAD, replay=True), portion))
    return tuple(again)


def replayed_transfers(
    transfers: tuple[Transfer, ...], policy: str, selective: str
) -> tuple[tuple[Transfer, Fraction], ...]:
    """Forward collectives that recomputation repeats: all of a fully replayed layer's."""
    portion = share(policy) if policy not in ("none", "selective") else 0.0
    if policy == "selective" and selective != "attention":
        portion = 0.5
    if portion == 0.0:
        return ()
    return tuple((changed(t, phase=INPUT_GRAD), portion) for t in transfers if t.phase == FORWARD)


def kept(policy: str, selective: str) -> Fraction:
    """Share of a layer's activations that stay in memory until its backward (its input apart)."""
    if policy == "none":
        return 1.0
    if policy == "selective":
        return 1.0 if selective == "attention" else 0.5
    return 1.0 - share(policy)
