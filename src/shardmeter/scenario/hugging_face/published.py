"""Decoders of code that is published beside checkpoints, with names of its own: one row a model type."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardmeter.scenario.hugging_face import experts
from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.decoder import Decoder, either, flag, unless, without
from shardmeter.scenario.hugging_face.decoders import ATTENTION, GPT, LLAMA
from shardmeter.scenario.hugging_face.hybrids import ALONE
from shardmeter.scenario.hugging_face.latents import predicting
from shardmeter.scenario.hugging_face.layers import Fields, above, mixers


def _chatglm(c: Config, found: Fields) -> Fields:
    """ChatGLM 2 to 4: key-value heads only where `multi_query_attention` says so; biases by two flags."""
    if "inner_hidden_size" in c.data:
        return _chatglm_first(c, found)
    shared = c.count("multi_query_group_num") if c.flag("multi_query_attention") else found["heads"]
    linear = c.flag("add_bias_linear")
    return {
        "kv_heads": shared, "attention_bias": linear or c.flag("add_qkv_bias"), "output_bias": linear, "mlp_bias": linear,
        "norm": "rms" if c.flag("rmsnorm", True) else "layer", "final_norm": c.flag("post_layer_norm", True),
    }  # fmt: skip


def _chatglm_first(c: Config, found: Fields) -> Fields:
    """ChatGLM of 2022, a GLM: layer norms, biases everywhere, a plain MLP of its own width, a head that is the embedding."""
    return {
        "ffn": c.count("inner_hidden_size"), "mlp": "plain", "norm": "layer", "attention_bias": True, "output_bias": True,
        "mlp_bias": True, "kv_heads": found["heads"], "tied": True,
    }  # fmt: skip


def _qwen1(c: Config, found: Fields) -> Fields:  # noqa: ARG001
    """Qwen of 2023: `intermediate_size` counts both halves of the gated MLP."""
    return {"ffn": c.count("intermediate_size") / 2.0, "tied": c.flag("tie_word_embeddings", False)}


def _baichuan(c: Config, found: Fields) -> Fields:
    """Baichuan: the 13B has a bias by distance in place of a rotation, and says its length otherwise."""
    wide = "model_max_length" in c.data and found["hidden"] >= 5120.0
    return {
        "positions": "alibi" if wide else "rope",
        "context": c.several(("max_position_embeddings", "model_max_length"), 0.0),
    }


def _untied(c: Config, found: Fields) -> bool:  # noqa: ARG001
    """Tied only where the file says so: code published beside checkpoints seldom leaves it to the base class."""
    return c.flag("tie_word_embeddings", False)


def _olmo_width(c: Config, found: Fields) -> float:
    """The first OLMo: `mlp_hidden_size` counts both halves of the gated MLP."""
    return c.count("mlp_hidden_size", c.count("mlp_ratio", 4.0) * found["hidden"], "mlp_ratio × d_model") / 2.0


def _padded(c: Config, found: Fields) -> float:  # noqa: ARG001
    """Rows of an embedding that is padded to a multiple."""
    step = c.count("pad_vocab_size_multiple", 8.0)
    rows = c.count("vocab_size")
    return math.ceil(rows / step) * step if known(rows) and known(step) else rows


def _state_spaces(c: Config, found: Fields) -> Fields:
    """Mamba and Mamba-2 as their makers write them: `ssm_cfg` names the layer and what is not usual in it."""
    inner = c.inside("ssm_cfg")
    if c.items("attn_layer_idx") or c.count("d_intermediate", 0.0, least=0.0):
        c.refuse("attn_layer_idx", "attention or MLPs between Mamba layers in the makers' own form are not modelled")
    made: Fields = {"mlps": "-", "conv_width": inner.count("d_conv", 4.0), "state_groups": inner.count("ngroups", 1.0)}
    wide = inner.count("expand", 2.0) * found["hidden"]
    if inner.word("layer", "Mamba1") == "Mamba2":
        each = inner.count("headdim", 64.0)
        return made | {
            "mixers": "m", "state_heads": wide // each, "state_head_dim": each, "state_dim": inner.count("d_state", 128.0),
            "state_chunk": inner.count("chunk_size", 256.0),
        }  # fmt: skip
    rank = inner.raw("dt_rank", "auto")
    return made | {
        "mixers": "s", "state_heads": wide, "state_head_dim": 1.0, "state_dim": inner.count("d_state", 16.0),
        "step_rank": math.ceil(found["hidden"] / 16.0) if rank == "auto" else inner.count("dt_rank"), "scan_norms": False,
    }  # fmt: skip


BAILING = {"attention_bias": flag("use_qkv_bias"), "output_bias": flag("use_bias"), "tied": _untied}
"""Ling of 2025."""

ROWS: Mapping[str, Decoder] = {
    "internlm": Decoder({"attention_bias": flag("bias", True), "output_bias": flag("bias", True), "tied": _untied}),
    "internlm2": Decoder({"attention_bias": flag("bias"), "output_bias": flag("bias"), "tied": _untied}),
    "baichuan": Decoder({"tied": _untied}, (_baichuan,)),
    "chatglm": Decoder({"tied": _untied, "vocab": lambda c, _: c.several(("padded_vocab_size", "vocab_size")),
                        "ffn": lambda c, _: c.several(("intermediate_size", "inner_hidden_size"))}, (_chatglm,)),
    "qwen": Decoder({"attention_bias": True, "output_bias": unless("no_bias", True), "kv_heads": lambda _, m: m["heads"]},
                    (_qwen1,)),
    "minicpm": Decoder(ATTENTION, (experts.routed(),)),
    "jais": Decoder({**GPT, "positions": "alibi", "mlp": either(lambda c: c.word("activation_function") == "swiglu", "gated", "plain")},
                    (without("position_embedding_type", ("alibi",), "positions that are learned"),)),
    "bailing_moe": Decoder({**BAILING}, (experts.routed("moe_intermediate_size", each="num_shared_experts"), experts.first())),
    "bailing_moe_v2": Decoder({**BAILING, "qk_norm": either(lambda c: c.flag("use_qk_norm", True), "head", "none")},
                              (experts.routed("moe_intermediate_size", each="num_shared_experts"), experts.first(), predicting)),
    "yi": Decoder(LLAMA),
    "aquila": Decoder({"tied": _untied}),
    "orion": Decoder({"norm": "layer", "tied": _untied}),
    "mimo": Decoder({"attention_bias": flag("attention_bias", True)}, (mixers(above), predicting)),
    "hf_olmo": Decoder({
        "vocab": lambda c, _: c.several(("embedding_size", "vocab_size")), "tied": flag("weight_tying"),
        "ffn": _olmo_width, "norm": either(lambda c: c.flag("layer_norm_with_affine"), "layer_no_bias", "layer_plain"),
    }, (without("block_type", ("sequential",), "another order of a layer's parts"),
        without("layer_norm_type", ("default", "rms"), "another norm"), without("activation_type", ("swiglu",), "another MLP"),
        without("include_bias", (False,), "biases on some projections alone"),
        without("attention_layer_norm", (False,), "norms of queries and keys of the first OLMo"),
        without("multi_query_attention", (False,), "one key-value head of the first OLMo"))),
    "state-spaces": Decoder({**ALONE, "vocab": _padded, "tied": flag("tie_embeddings", True)}, (_state_spaces,)),
    "xverse": Decoder({"tied": _untied}),
    "stablelm_epoch": Decoder({"norm": "layer", "tied": _untied, "attention_bias": flag("use_qkv_bias")}),
}  # fmt: skip
