"""Decoders with latent attention: DeepSeek's, Kimi's and those after them. A key of width `qk_nope_head_dim` + `qk_rope_head_dim`."""

from __future__ import annotations

from collections.abc import Mapping

from shardmeter.scenario.hugging_face.config import Config
from shardmeter.scenario.hugging_face.decoder import Decoder, flag, without
from shardmeter.scenario.hugging_face.experts import first, routed
from shardmeter.scenario.hugging_face.layers import Fields, Part, layer_count, mlps, whole

PLAIN = without("attention_bias", (False,), "biases on the projections down to the latents")


def _head(c: Config, found: Fields) -> float:  # noqa: ARG001
    return c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim")


def _latent(c: Config, found: Fields) -> Fields:
    """Ranks of the two latents and the widths of a head's parts."""
    return {
        "q_lora_rank": c.count("q_lora_rank", 0.0), "kv_lora_rank": c.count("kv_lora_rank"),
        "qk_rope_head_dim": c.count("qk_rope_head_dim"),
        "v_head_dim": c.count("v_head_dim", found["hidden"] / found["heads"], "= hidden_size/heads"),
    }  # fmt: skip


def predicting(c: Config, found: Fields) -> Fields:  # noqa: ARG001
    """Prediction modules, where the file itself says that there are some: the library leaves them out."""
    if not any(name in c.data for name in c.names("num_nextn_predict_layers")):
        return {}
    modules = c.count("num_nextn_predict_layers", 0.0, least=0.0)
    if not modules > 0.0:
        return {}
    c.report.notes.append(
        f"{modules:g} multi-token-prediction module{'s' if modules > 1 else ''} trained beside the model "
        f"(num_nextn_predict_layers), not in its parameter count; --set model.mtp=0 without"
    )
    return {"mtp": int(modules)}


def listed(usual_dense: int) -> Part:
    """Dense and sparse layers as `mlp_layer_types` lists them; left out, the first few dense."""

    def read(c: Config, found: Fields) -> Fields:
        if not found.get("experts"):
            return {}
        count, words = layer_count(found), c.items("mlp_layer_types")
        if words is None:
            until = whole(c, "first_k_dense_replace", usual_dense)
            return mlps(range(min(until, count)), count)
        if len(words) != count or not set(words) <= {"dense", "sparse"}:
            c.refuse("mlp_layer_types", f"a list of {len(words)}, where {count} words dense or sparse belong")
        return mlps((place for place, word in enumerate(words) if word == "dense"), count)

    return read


LATENT = {"head_dim": _head, "kv_heads": lambda _, found: found["heads"]}
EXPERTS = routed("moe_intermediate_size", each="n_shared_experts")
DEEPSEEK = Decoder(
    LATENT,
    (_latent, PLAIN, without("mlp_bias", (False,), "biases of dense layers alone"), EXPERTS, first(), predicting),
)
LISTED = Decoder(LATENT, (_latent, PLAIN, EXPERTS, listed(1), predicting))

ROWS: Mapping[str, Decoder] = {
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "glm4_moe_lite": LISTED,
    "mistral4": DEEPSEEK,
    "youtu": Decoder(LATENT, (_latent, PLAIN)),
    "minicpm3": Decoder({**LATENT, "mlp_bias": flag("mlp_bias")}, (_latent, PLAIN)),
}
