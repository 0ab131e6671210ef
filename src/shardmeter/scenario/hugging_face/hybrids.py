"""Decoders with recurrent layers: Mamba, Mamba-2, the gated delta rule, and their mixtures with attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import shown
from shardmeter.scenario.hugging_face import experts
from shardmeter.scenario.hugging_face.config import MOST, Config, known
from shardmeter.scenario.hugging_face.decoder import Decoder, either, without
from shardmeter.scenario.hugging_face.decoders import ATTENTION, HEADS, LLAMA
from shardmeter.scenario.hugging_face.latents import predicting
from shardmeter.scenario.hugging_face.layers import (
    Fields,
    every,
    every_nth,
    layer_count,
    mixers,
    places,
    repeated,
    whole,
)

CONVOLUTION = without("use_conv_bias", (True,), "a short convolution without biases")
UNBIASED = without("use_bias", (False,), "biases on the projections of a recurrence")
MAMBA_UNBIASED = without("mamba_proj_bias", (False,), "biases on the projections of a recurrence")
MAMBA_CONVOLUTION = without("mamba_conv_bias", (True,), "a short convolution without biases")
PATTERN = {"M": "m-", "*": "f-", "-": "-d", "E": "-e"}
"""Letters of `hybrid_override_pattern`: mixer and MLP of a layer that has one of the two."""
WORDS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
"""The library's words for the same layers, older ones first."""


def _delta(c: Config, found: Fields) -> Fields:
    """The gated delta rule and its full-attention layers (Qwen3-Next)."""
    interval = "full_attention_interval"
    made = mixers(lambda d, place: "d" if every(interval, 4)(d, place) == "w" else "f")(c, found)
    return made | {
        "state_heads": c.count("linear_num_value_heads"), "state_head_dim": c.count("linear_value_head_dim"),
        "state_groups": c.count("linear_num_key_heads"), "state_dim": c.count("linear_key_head_dim"),
        "state_chunk": 64.0, "conv_width": c.count("linear_conv_kernel_dim"),
    }  # fmt: skip


def _mamba2(c: Config, found: Fields) -> Fields:
    """A stack of Mamba-2 alone."""
    wide = _wide(c, found, "expand")
    heads, each = c.count("num_heads"), c.count("head_dim")
    if heads * each != wide:
        c.refuse("num_heads", f"{heads:g} heads of {each:g} are not expand × hidden_size = {wide:g}")
    return {
        "mixers": "m", "mlps": "-", "state_heads": heads, "state_head_dim": each,
        "state_dim": c.count("state_size"), "state_groups": c.count("n_groups"), "state_chunk": c.count("chunk_size"),
        "conv_width": c.count("conv_kernel"),
    }  # fmt: skip


def _scan(c: Config, found: Fields) -> Fields:
    """A stack of the first Mamba: a state for every channel."""
    return {
        "mixers": "s", "mlps": "-", "state_heads": _wide(c, found, "expand", "intermediate_size"), "state_head_dim": 1.0,
        "state_dim": c.count("state_size"), "state_groups": 1.0, "conv_width": c.count("conv_kernel"),
        "step_rank": _rank(c, found, "time_step_rank"), "scan_norms": False,
    }  # fmt: skip


def _wide(c: Config, found: Fields, factor: str, stated: str = "") -> float:
    if stated and stated in c.data:
        return c.count(stated)
    expand = c.number(factor, 2.0)
    wide = expand * found["hidden"]
    if known(wide) and not (wide == int(wide) and 0.0 < wide < MOST):
        c.refuse(factor, f"{expand:g} × hidden_size = {wide:g} is no size")
        return 1.0
    return wide if known(wide) else 1.0


def _rank(c: Config, found: Fields, key: str) -> float:
    if c.raw(key, "auto") == "auto":
        rank = math.ceil(found["hidden"] / 16.0) if known(found["hidden"]) else 1
        c.report.assume(c.label(key), rank, "auto: hidden_size/16")
        return float(rank)
    return c.count(key)


def _state(c: Config, found: Fields) -> Fields:
    """Mamba-2 beside attention, as Bamba and Granite 4 write it."""
    heads = c.count("mamba_n_heads")
    wide = _wide(c, found, "mamba_expand")
    each: Any = c.raw("mamba_d_head", "auto")
    if each == "auto" and wide % heads:
        c.refuse("mamba_n_heads", f"{heads:g} heads do not divide mamba_expand × hidden_size = {wide:g}")
    return {
        "state_heads": heads, "state_head_dim": wide / heads if each == "auto" else c.count("mamba_d_head"),
        "state_dim": c.count("mamba_d_state"), "state_groups": c.count("mamba_n_groups"),
        "state_chunk": c.count("mamba_chunk_size"), "conv_width": c.count("mamba_d_conv"),
    }  # fmt: skip


def _bamba(c: Config, found: Fields) -> Fields:
    full = places(c, "attn_layer_indices", layer_count(found))
    return mixers(lambda _, place: "f" if place in full else "m", linear="m")(c, found) | _state(c, found)


def _granite(c: Config, found: Fields) -> Fields:
    """Granite 4: Mamba-2 and attention; experts with a shared one, or that one alone as a dense MLP."""
    made = mixers(lambda _, place: "m", linear="m")(c, found)  # noqa: ARG005
    routed = experts.routed(shared="shared_intermediate_size")(c, found)
    dense: Fields = {} if routed else {"ffn": c.count("shared_intermediate_size")}
    states = _state(c, found) if set(made.get("mixers", "")) & {"m"} else {}
    return {**made, **routed, **dense, **states}


def _jamba(c: Config, found: Fields) -> Fields:
    period, offset = every_nth(c, "attn_layer_period", 8), whole(c, "attn_layer_offset", 4)
    letters = "".join("f" if (place - offset) % period == 0 else "s" for place in range(layer_count(found)))
    return {
        "mixers": repeated(letters), "state_heads": _wide(c, found, "mamba_expand"), "state_head_dim": 1.0,
        "state_dim": c.count("mamba_d_state"), "state_groups": 1.0, "conv_width": c.count("mamba_d_conv"),
        "step_rank": _rank(c, found, "mamba_dt_rank"),
    }  # fmt: skip


def _pattern(c: Config) -> str:
    """One letter a layer, from the pattern or the list of kinds of layers; empty after noting that there is neither."""
    listed = c.items("layer_types") if any(c.data.get(name) for name in c.names("layer_types")) else None
    if listed is not None:
        bad = [word for word in listed if word not in WORDS]
        if bad:
            c.refuse(
                "layers_block_type", f"layers of kind {shown(bad[0])} are not modelled", f"kinds: {', '.join(WORDS)}"
            )
            return ""
        return "".join(WORDS[word] for word in listed)
    pattern = c.word("hybrid_override_pattern")
    wrong = sorted(set(pattern) - set(PATTERN))
    if wrong:
        c.refuse(
            "hybrid_override_pattern", f"{shown(''.join(wrong))} is no kind of layer", f"letters: {' '.join(PATTERN)}"
        )
        return ""
    if not pattern:
        says = "is missing: the order of mixers and MLPs of a hybrid stack is not to be guessed"
        c.refuse("hybrid_override_pattern", says, "write one letter a layer: M Mamba-2, * attention, - MLP, E experts")
    return pattern


def _nemotron(c: Config, found: Fields) -> Fields:
    """Nemotron-H: layers of one part each."""
    pattern = _pattern(c) or "M"
    if "num_hidden_layers" in c.data and len(pattern) != found["layers"] and len(pattern) > 1:
        c.refuse("num_hidden_layers", f"is {found['layers']:g}, but the pattern has {len(pattern)} layers")
    made: Fields = {
        "layers": len(pattern), "mixers": repeated("".join(PATTERN[one][0] for one in pattern)),
        "mlps": repeated("".join(PATTERN[one][1] for one in pattern)),
        "state_heads": c.count("mamba_num_heads"), "state_head_dim": c.count("mamba_head_dim"),
        "state_dim": c.count("ssm_state_size"), "state_groups": c.count("n_groups"), "state_chunk": c.count("chunk_size"),
        "conv_width": c.count("conv_kernel"),
    }  # fmt: skip
    if "E" in pattern:
        made |= {
            "experts": c.count("num_local_experts"), "top_k": c.count("num_experts_per_tok"),
            "moe_ffn": c.count("moe_intermediate_size"), "moe_latent": c.count("moe_latent_size", 0.0),
            "shared_ffn": c.count("moe_shared_expert_intermediate_size", 0.0, least=0.0)
            * c.count("n_shared_experts", 1.0, least=0.0),
        }  # fmt: skip
    return made


DELTA = {**ATTENTION, **HEADS, "attention_gate": True}
GATED = experts.routed("moe_intermediate_size", shared="shared_expert_intermediate_size", gate=True)
ALONE = {
    "heads": 1.0, "kv_heads": 1.0, "head_dim": 1.0, "ffn": 1.0, "positions": "none",
    "context": lambda c, _: c.count("max_position_embeddings", 0.0, least=0.0),
}  # fmt: skip
"""Sizes of attention and MLP in a model that has neither."""

ROWS: Mapping[str, Decoder] = {
    "qwen3_next": Decoder(DELTA, (GATED, experts.sparse, _delta, predicting)),
    "qwen3_5_text": Decoder(DELTA, (_delta, predicting)),
    "qwen3_5_moe_text": Decoder({**DELTA, "ffn": lambda c, _: c.count("moe_intermediate_size")}, (GATED, _delta, predicting)),
    "mamba2": Decoder(ALONE, (_mamba2, CONVOLUTION, UNBIASED)),
    "mamba": Decoder(ALONE, (_scan, CONVOLUTION, UNBIASED)),
    "falcon_mamba": Decoder(ALONE, (_scan, CONVOLUTION, UNBIASED)),
    "jamba": Decoder({"positions": "none"}, (experts.periodic, _jamba, MAMBA_UNBIASED, MAMBA_CONVOLUTION)),
    "bamba": Decoder(LLAMA, (_bamba, MAMBA_UNBIASED, MAMBA_CONVOLUTION)),
    "granitemoehybrid": Decoder({**ATTENTION, "positions": either(
        lambda c: c.word("position_embedding_type", "nope") == "rope", "rope", "none")},
        (_granite, MAMBA_UNBIASED, MAMBA_CONVOLUTION)),
    "nemotron_h": Decoder({**LLAMA, "mlp": "plain", "positions": "none",
                           "layers": lambda c, _: int(c.count("num_hidden_layers", 1.0)),
                           "ffn": lambda c, _: c.count("intermediate_size")},
                          (_nemotron, MAMBA_UNBIASED, CONVOLUTION, UNBIASED, predicting)),
}  # fmt: skip
