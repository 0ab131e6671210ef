"""Activation recomputation: what runs again in the backward pass, and what need not be kept (Chen 2016; Korthikanti 2022 §5).

none · full (keep a layer's input, run the layer again) · every-K (full on one layer of K) · N-of-M (full on N layers of every M) ·
selective (what "selective" means is a fact of the stack: the core attention of Megatron, or torchtitan's every second product) ·
operations by name, joined by + (Megatron-Core's `recompute_modules`: each runs again where its outputs are needed).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Fraction
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, Compute, Transfer

SHARED = ("shared up", "shared activation", "shared down", "shared gate")
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "core_attn": ("core attention",),
    "layernorm": ("norms",),
    "mla_up_proj": ("query projection", "key and value projection", "heads put together", "rotation"),
    "mlp": ("mlp up", "activation", "mlp down"),
    "moe": (
        "router", "routing", "permutation", "expert up", "expert activation", "expert down",
        "latent projection of experts", *SHARED,
    ),
    "moe_act": ("expert activation",),
    "shared_experts": SHARED,
}  # fmt: skip
"""Words of a list, with the operations of a layer that each runs again. `mla_up_proj` is latent attention's."""
SPECIFIC = {"mla_up_proj": "key and value projection"}
"""The operation without which a word does not apply, where it is not the first of `OPERATIONS`."""


def listed(policy: str) -> tuple[str, ...]:
    """The words of a list of operations; empty for any other policy."""
    words = tuple(policy.split("+"))
    return words if set(words) <= set(OPERATIONS) else ()


def partial(policy: str) -> bool:
    """Whether some layers run again as a whole and the others do not."""
    return policy.startswith("every-") or "-of-" in policy


def share(policy: str) -> Fraction:
    """Share of the layers that run again as a whole: all of full, 1/K of every-K, N/M of N-of-M, none of other policies."""
    if policy.startswith("every-"):
        return 1.0 / int(policy.split("-")[1])
    some = re.fullmatch(r"(\d+)-of-(\d+)", policy)
    if some:
        return int(some.group(1)) / int(some.group(2))
    return 1.0 if policy == "full" else 0.0


def _again(op: Compute, policy: str, selective: str) -> Fraction:
    """Share of the layers in which one forward operation runs again."""
    words = listed(policy)
    if words:
        return float(any(op.label in OPERATIONS[word] for word in words))
    if policy != "selective":
        return share(policy)
    if selective == "attention":
        return float(op.kind == "attention")
    return {"gemm": 0.5, "attention": 0.0}.get(
        op.kind, 1.0
    )  # every second product is kept, attention is, the rest is not


def replays(ops: tuple[Compute, ...], policy: str, selective: str) -> tuple[tuple[Compute, Fraction], ...]:
    """Forward operations of a layer that run again in its backward pass, each with the share of layers that replay it."""
    forward = ((op, _again(op, policy, selective)) for op in ops if op.phase == FORWARD)
    return tuple((changed(op, phase=INPUT_GRAD, replay=True), portion) for op, portion in forward if portion > 0.0)


def dispatched(ops: tuple[Compute, ...], policy: str) -> Fraction:
    """Share of a layer's forward kernels that recomputation launches again: of a list, that of its operations."""
    if policy == "selective":
        return 0.25
    if not listed(policy):
        return share(policy)
    forward = [op for op in ops if op.phase == FORWARD]
    return plain_sum(_again(op, policy, "") for op in forward) / max(len(forward), 1)


def routes(policy: str) -> Fraction:
    """Share of the layers that send their tokens to the experts again."""
    return 1.0 if "moe" in listed(policy) else share(policy)


def replayed_transfers(
    transfers: tuple[Transfer, ...], again: tuple[tuple[Compute, Fraction], ...], policy: str, selective: str
) -> tuple[tuple[Transfer, Fraction], ...]:
    """Forward collectives that recomputation repeats: all of a fully replayed layer's; of a list, the experts' if they run again,
    and the gather of the sequence before an MLP that does. `again`: the operations that run again."""
    found: list[tuple[Transfer, Fraction]] = []
    alternate = policy == "selective" and selective != "attention"
    for transfer in (one for one in transfers if one.phase == FORWARD):
        portion = 0.5 if alternate else share(policy)
        if listed(policy):
            portion = _repeated(transfer, {op.label for op, _ in again})
        if portion > 0.0:
            found.append((changed(transfer, phase=INPUT_GRAD), portion))
    return tuple(found)


def _repeated(transfer: Transfer, labels: set[str]) -> Fraction:
    """Share of one collective of a layer that operations of these labels need once more; outputs are not reduced again."""
    if "expert" in transfer.label:
        return float("expert up" in labels)
    gathered = transfer.label == "tensor gather" and bool(labels & {"mlp up", "shared up"})
    return 1.0 / float(transfer.messages) if gathered else 0.0


def kept(policy: str, selective: str) -> Fraction:
    """Share of a layer's activations that stay in memory until its backward (its input apart), before what a list frees."""
    if policy == "selective":
        return 1.0 if selective == "attention" else 0.5
    return 1.0 - share(policy)
