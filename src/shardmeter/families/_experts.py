"""The mixture-of-experts part of a decoder layer: router, permutation, routed experts, shared experts.

Plain top-k routing of every token, nothing dropped (Shazeer 2017 §2; Lepikhin 2020 §2.2; Jiang 2024 for Mixtral's form). A
routed expert is an MLP of width `moe_ffn`; experts that every token passes are one dense MLP of width `shared_ffn`. Experts of
a latent width (`moe_latent`, Nemotron-3 Super, 2025) have a projection down before they are dispatched to and one up after.
Leaves out: capacity limits and dropped tokens, auxiliary losses, routing limited to groups of experts, expert-choice routing.
"""

from __future__ import annotations

from shardmeter.core.units import Bytes, Count
from shardmeter.families.operations import matmul, streamed
from shardmeter.specs.demands import Compute
from shardmeter.specs.model import Model

PERMUTE_BYTES = (8.0, 8.0)
"""Bytes per element of the routed tokens at 2-byte activations, forward and backward: copied into the order of experts, and
weighed and summed back into the order of tokens. Leaves out: sorting again what came from several ranks."""
ROUTER_BYTES = (12.0, 16.0)
"""Per router logit: cast to fp32, softmax, top-k; backward through them."""


def gates(model: Model) -> float:
    """Matrices before the activation of an MLP."""
    return 2.0 if model.mlp == "gated" else 1.0


def expert_matrices(model: Model) -> Count:
    """Matrix parameters of one routed expert."""
    return model.expert_hidden * model.moe_ffn * (gates(model) + 1.0)


def expert_parameters(model: Model) -> Count:
    """Parameters of all routed experts of one layer, biases with them."""
    biases = gates(model) * model.moe_ffn + model.expert_hidden if model.mlp_bias else 0.0
    return model.experts * (expert_matrices(model) + biases)


def shared_matrices(model: Model) -> Count:
    """Matrix parameters of the shared experts of one layer."""
    return model.hidden * model.shared_ffn * (gates(model) + 1.0)


def router_matrices(model: Model) -> Count:
    """Router, the gate of the shared experts, the projections of latent experts: matrices that every rank holds whole."""
    return model.hidden * (model.experts + (1.0 if model.shared_gate else 0.0) + 2.0 * model.moe_latent)


def vectors(model: Model) -> Count:
    """The router's bias, and those of shared experts."""
    shared = gates(model) * model.shared_ffn + model.hidden if model.mlp_bias and has_shared(model) else 0.0
    return shared + (model.experts if model.router_bias else 0.0)


def active_matrices(model: Model) -> Count:
    """Matrix parameters that one token is multiplied with in place of a dense MLP."""
    return router_matrices(model) + shared_matrices(model) + model.top_k * expert_matrices(model)


def operations(model: Model, tokens: Count, activation: tuple[float, float]) -> tuple[Compute, ...]:
    """What stands in place of a dense MLP, for `tokens` tokens before any sharding; `activation` is bytes per element."""
    routed, wide = tokens * model.top_k, model.expert_hidden
    rows = routed / model.experts
    ops = (
        *matmul("router", tokens, model.hidden, model.experts, "tokens"),
        *streamed("routing", tokens * model.experts, *ROUTER_BYTES, "sequence"),
        *streamed("permutation", routed * wide, *PERMUTE_BYTES, "expert rows"),
        *matmul("expert up", rows, wide, gates(model) * model.moe_ffn, "expert column", model.experts),
        *streamed("expert activation", routed * model.moe_ffn, *activation, "expert inner"),
        *matmul("expert down", rows, model.moe_ffn, wide, "expert row", model.experts),
    )
    if wide is not model.hidden:
        ops = (
            *ops,
            *matmul("latent projection of experts", tokens, model.hidden, wide, "tokens"),
            *matmul("latent projection of experts", tokens, wide, model.hidden, "tokens"),
        )
    if has_shared(model):
        ops = (
            *ops,
            *matmul("shared up", tokens, model.hidden, gates(model) * model.shared_ffn, "column"),
            *streamed("shared activation", tokens * model.shared_ffn, *activation, "heads"),
            *matmul("shared down", tokens, model.shared_ffn, model.hidden, "row"),
        )
    if model.shared_gate:
        ops = (*ops, *matmul("shared gate", tokens, model.hidden, 1.0, "tokens"))
    return ops


def has_shared(model: Model) -> bool:
    """Whether any expert is shared. Structure, not a number: a batch has shared experts or has none."""
    return not (isinstance(model.shared_ffn, float) and model.shared_ffn == 0.0)


def routed_bytes(model: Model, products: float) -> tuple[Bytes, Bytes]:
    """Bytes kept for the backward per token at 2-byte activations: (as wide as the model, as wide as an expert).

    The dispatched tokens and what the experts return for them, which is weighed by the router; the experts' up products and
    activation (`products` of them per element)."""
    return 4.0 * model.top_k * model.expert_hidden, 2.0 * products * model.top_k * model.moe_ffn
