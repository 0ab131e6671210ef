"""Decoders with routed experts and plain attention: one row a model type."""

from __future__ import annotations

from collections.abc import Mapping

from shardmeter.scenario.hugging_face import experts
from shardmeter.scenario.hugging_face.config import Config
from shardmeter.scenario.hugging_face.decoder import Decoder, either, flag, without
from shardmeter.scenario.hugging_face.decoders import ATTENTION, HEADS, LLAMA, QUERY_BIAS
from shardmeter.scenario.hugging_face.latents import listed, predicting
from shardmeter.scenario.hugging_face.layers import (
    Fields,
    Part,
    above,
    alternate,
    every,
    every_nth,
    everywhere,
    layer_count,
    mixers,
    mlps,
    whole,
)

SHARED = experts.routed("moe_intermediate_size", each="n_shared_experts")


def _dbrx(c: Config, found: Fields) -> Fields:  # noqa: ARG001
    """What DBRX keeps in `attn_config` and `ffn_config`."""
    attention, inner = c.inside("attn_config", kind="dbrx.attn_config"), c.inside("ffn_config", kind="dbrx.ffn_config")
    width = inner.count("ffn_hidden_size")
    return {
        "kv_heads": attention.count("kv_n_heads"), "ffn": width, "moe_ffn": width,
        "experts": inner.count("moe_num_experts"), "top_k": inner.count("moe_top_k"),
    }  # fmt: skip


def _limited(c: Config, found: Fields) -> Fields:
    """Chunks where a layer rotates, full attention where it does not (Llama 4)."""
    given = c.items("no_rope_layers")
    step = every_nth(c, "no_rope_layer_interval", 4)
    count = layer_count(found)
    rotated = given or [int((place + 1) % step != 0) for place in range(count)]
    letters = "".join("c" if rotates else "f" for rotates in rotated)
    return mixers(lambda _, place: letters[place] if place < len(letters) else "f")(c, found)


def _arctic(c: Config, found: Fields) -> Fields:
    """Arctic: a residual MLP as wide as the model beside the experts, with a norm of its own."""
    step = every_nth(c, "moe_layer_frequency", 2)
    made = experts.routed("intermediate_size")(c, found)
    if step != 1:
        c.refuse("moe_layer_frequency", f"{step}: only layers that all have experts are modelled", "1")
    residual = c.flag("use_residual", True)
    return made | ({"shared_ffn": found["hidden"], "norms_per_layer": 3.0} if residual else {})


def _hunyuan(c: Config, found: Fields) -> Fields:
    """Experts as wide as `moe_intermediate_size`, else `intermediate_size`; one shared beside them."""
    without("use_cla", (False,), "keys and values that neighbouring layers share")(c, found)
    without("norm_type", ("rms",), "other norms than RMS")(c, found)
    made = experts.routed("moe_intermediate_size" if c.data.get("moe_intermediate_size") else "intermediate_size")(
        c, found
    )
    shared = c.count("num_shared_expert", 1.0, least=0.0) if c.flag("use_mixed_mlp_moe", True) else 0.0
    return {**made, "shared_ffn": shared * made["moe_ffn"]} if made else {}


def _residual(c: Config, found: Fields) -> Fields:
    """Grok 2: a dense MLP beside the experts, which are of a width of their own."""
    return experts.routed("moe_intermediate_size")(c, found) | {"shared_ffn": found["ffn"]}


QK = {"qk_norm": either(lambda c: c.flag("use_qk_norm", True), "head", "none")}
"""Norms of queries and keys that a flag may take away (Hunyuan)."""


def _prefix(key: str) -> Part:
    """The first layers dense, as many as a key says."""

    def read(c: Config, found: Fields) -> Fields:
        return (
            mlps(range(min(whole(c, key, 0), layer_count(found))), layer_count(found)) if found.get("experts") else {}
        )

    return read


def _unused(c: Config, found: Fields) -> float:  # noqa: ARG001
    """A dense width that no layer uses: that of an expert stands in."""
    return c.count("moe_intermediate_size")


ROWS: Mapping[str, Decoder] = {
    "mixtral": Decoder({}, (experts.routed(), mixers(everywhere))),
    "qwen2_moe": Decoder({"attention_bias": flag("qkv_bias", True)}, (
        experts.routed("moe_intermediate_size", shared="shared_expert_intermediate_size", gate=True), experts.sparse,
        mixers(above))),
    "qwen3_moe": Decoder({**ATTENTION, **HEADS}, (experts.routed("moe_intermediate_size"), experts.sparse, mixers(above))),
    "olmoe": Decoder({**ATTENTION, "qk_norm": "full"}, (experts.routed(),)),
    "flex_olmo": Decoder({**ATTENTION, "qk_norm": "full"}, (experts.routed(),)),
    "phimoe": Decoder({**ATTENTION, "norm": "layer", "head_bias": flag("lm_head_bias")},
                      (experts.routed(), mixers(everywhere))),
    "minimax_m2": Decoder({"qk_norm": either(lambda c: c.flag("use_qk_norm", True), "full", "none")},
                          (experts.routed(), predicting)),
    "gpt_oss": Decoder({**ATTENTION, "mlp_bias": True, "router_bias": True, "sinks": True},
                       (experts.routed(), mixers(alternate))),
    "dbrx": Decoder({"norm": "layer_no_bias", "ffn": 1.0, "kv_heads": lambda _, found: found["heads"]}, (_dbrx,)),
    "granitemoe": Decoder(ATTENTION, (experts.routed(),)),
    "granitemoeshared": Decoder(ATTENTION, (experts.routed(shared="shared_intermediate_size"),)),
    "glm4_moe": Decoder({**QUERY_BIAS, "qk_norm": either(lambda c: c.flag("use_qk_norm"), "head", "none")},
                        (SHARED, experts.first(), predicting)),
    "dots1": Decoder({**ATTENTION, **HEADS}, (SHARED, experts.first(), mixers(None))),
    "solar_open": Decoder({"ffn": _unused, **QUERY_BIAS}, (SHARED,)),
    "sarvam_moe": Decoder({**QUERY_BIAS, "qk_norm": either(lambda c: c.flag("use_qk_norm"), "head", "none")},
                          (SHARED, experts.first(), predicting)),
    "exaone_moe": Decoder(HEADS, (experts.routed("moe_intermediate_size", each="num_shared_experts"), listed(1),
                                  mixers(every("sliding_window_pattern", 4)))),
    "afmoe": Decoder({**HEADS, "norms_per_layer": 4.0, "attention_gate": True},
                     (experts.routed("moe_intermediate_size", each="num_shared_experts"), _prefix("num_dense_layers"),
                      mixers(every("global_attn_every_n_layers", 4)),
                      without("attention_bias", (False,), "biases of queries without one of their gate"))),
    "hy_v3": Decoder({**ATTENTION, **HEADS}, (experts.routed("moe_intermediate_size", each="num_shared_experts"), listed(1),
                                              without("mlp_bias", (False,), "biases of dense layers alone"))),
    "ernie4_5_moe": Decoder({"attention_bias": flag("use_bias"), "output_bias": flag("use_bias")},
                            (predicting, experts.routed("moe_intermediate_size", each="moe_num_shared_experts"), experts.between,
                             without("use_bias", (False,), "biases of some projections alone"))),
    "hunyuan_v1_moe": Decoder({**ATTENTION, **QK}, (_hunyuan,)),
    "llama4_text": Decoder(ATTENTION, (experts.interleaved, _limited)),
    # code published beside checkpoints
    "deepseek": Decoder(LLAMA, (SHARED, experts.first())),
    "arctic": Decoder({}, (_arctic,)),
    "grok-1": Decoder({"norms_per_layer": 4.0}, (experts.routed(),)),
    "grok-2": Decoder({"norms_per_layer": 4.0, "tied": flag("tie_word_embeddings")}, (_residual,)),
}  # fmt: skip
