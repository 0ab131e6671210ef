"""Dense decoders of the library: one row a model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.decoder import Decoder, count, either, flag, times, without
from shardmeter.scenario.hugging_face.layers import Fields, above, alternate, every, everywhere, layer_count, mixers


def even(c: Config, found: Fields) -> float:
    """Width of a head where it is hidden/heads and nothing else is possible."""
    each = found["hidden"] / found["heads"]
    if known(each) and each != int(each):
        says = f"{found['heads']:g} heads do not divide a hidden size of {found['hidden']:g}"
        c.refuse("num_attention_heads", says, rule="a head is hidden_size/heads wide")
    return each if known(each) and each == int(each) else 1.0


LLAMA = {
    "attention_bias": flag("attention_bias"),
    "output_bias": flag("attention_bias"),
    "mlp_bias": flag("mlp_bias"),
}
"""Biases as Llama has them: one flag for all four projections, one for the MLP."""
ATTENTION = {"attention_bias": flag("attention_bias"), "output_bias": flag("attention_bias")}
QUERY_BIAS = {"attention_bias": flag("attention_bias")}
"""One flag for queries, keys and values; no bias on the output (GLM)."""
GPT = {
    "mlp": "plain", "norm": "layer", "positions": "learned", "attention_bias": True, "output_bias": True, "mlp_bias": True,
    "kv_heads": lambda _, found: found["heads"], "head_dim": even, "ffn": times(4.0),
}  # fmt: skip
"""GPT-2 and what follows it."""
ROTATED = {**GPT, "positions": "rope"}
SANDWICH = {"norms_per_layer": 4.0}
HEADS = {"qk_norm": "head"}


def _square(c: Config, found: Fields) -> Fields:
    """Refuses heads that are not as wide together as the model, where the output projection takes that for granted."""
    if found["heads"] * found["head_dim"] != found["hidden"]:
        says = f"{found['heads']:g} heads of {found['head_dim']:g} are not {found['hidden']:g}, as the output projection needs"
        c.refuse("head_dim", says)
    return {}


def _embedding(c: Config, found: Fields) -> Fields:
    """Refuses an embedding narrower than the model (OPT-350m, small ELECTRA)."""
    width = c.several(("word_embed_proj_dim", "embedding_size"), found["hidden"])
    if width != found["hidden"]:
        says = (
            f"an embedding {width:g} wide in a model of {found['hidden']:g}: projections between them are not modelled"
        )
        c.refuse("word_embed_proj_dim" if "word_embed_proj_dim" in c.data else "embedding_size", says)
    return {}


def _offset(rows: float) -> Callable[[Config, Fields], float]:
    """Rows of a table of learned positions that keeps some in front (OPT)."""
    return lambda c, _: c.count("max_position_embeddings") + rows


def _falcon(c: Config, found: Fields) -> Fields:
    """Key-value heads, norms and positions of Falcon's three architectures."""
    new = c.flag("new_decoder_architecture") or c.data.get("model_type") == "RefinedWeb"  # the 40B, as first published
    heads = found["heads"]
    one = not new and c.flag("multi_query")
    shared = 1.0 if one else c.several(("num_kv_heads", "n_head_kv"), heads) if new else heads
    beside = c.count("num_ln_in_parallel_attn", 2.0 if new else 1.0)
    norms = 2.0 if beside == 2.0 or not c.flag("parallel_attn") else 1.0
    bias = c.flag("bias")
    return {
        "kv_heads": shared, "norms_per_layer": norms, "attention_bias": bias, "output_bias": bias, "mlp_bias": bias,
        "positions": "alibi" if c.flag("alibi") else "rope",
    }  # fmt: skip


def _mpt(c: Config, found: Fields) -> Fields:
    """What MPT keeps in `attn_config`."""
    inside = c.inside("attn_config")
    learned, alibi = c.flag("learned_pos_emb"), inside.flag("alibi", True)
    if not c.flag("no_bias", True) or c.number("expansion_ratio", 4.0) != 4.0:
        c.refuse(
            "no_bias", "MPT with biases or another expansion_ratio than 4: transformers builds it without and with 4"
        )
    kind = inside.word("attn_type", "multihead_attention")
    several = inside.count("kv_n_heads", found["heads"]) if kind == "grouped_query_attention" else found["heads"]
    norms = inside.flag("qk_ln") or inside.flag("qk_gn")
    if norms:
        inside.refuse("qk_ln", "norms of queries and keys of MPT are not modelled")
    return {
        "positions": "alibi" if alibi or not learned else "learned", "kv_heads": 1.0 if kind == "multiquery_attention" else several,
    }  # fmt: skip


def _neo(c: Config, found: Fields) -> Fields:
    """GPT-Neo: layers by turns, as `attention_types` says: [[["global", "local"], 12]]."""
    given = c.items("attention_types")
    if given is None:
        c.report.assume(c.label("attention_types"), "global and local by turns", "class default")
        return {"mixers": "fw", "window": c.count("window_size")}
    try:
        most = layer_count(found) + 1
        letters = "".join(
            "".join("w" if kind == "local" else "f" for kind in kinds) * min(times, most) for kinds, times in given
        )
    except (TypeError, ValueError):
        c.refuse("attention_types", "is no list of [kinds of layers, how many times]")
        return {}
    if len(letters) != found["layers"]:
        c.refuse("attention_types", f"{len(letters)} layers listed, but num_layers is {found['layers']:g}")
    return {"mixers": letters, "window": c.count("window_size")} if "w" in letters else {}


def _normed(c: Config, found: Fields) -> Fields:
    """Norms of queries and keys with biases, where `qk_layernorm` says so (Phi, Persimmon)."""
    if not c.flag("qk_layernorm"):
        return {}
    return {"qk_norm": "head", "extra": 2.0 * found["layers"] * found["head_dim"]}


def _stablelm(c: Config, found: Fields) -> Fields:  # noqa: ARG001
    """Norms of StableLM: one where attention and MLP run side by side, weights alone for each head's."""
    parallel = c.flag("use_parallel_residual")
    return {"norms_per_layer": 1.0 if parallel else 2.0, "attention_bias": c.flag("use_qkv_bias")}


ROWS: Mapping[str, Decoder] = {
    # Llama and its like
    "llama": Decoder(LLAMA),
    "mistral": Decoder({}, (mixers(everywhere),)),
    "ministral": Decoder({}, (mixers(everywhere),)),
    "ministral3": Decoder({}, (mixers(everywhere),)),
    "qwen2": Decoder({"attention_bias": True}, (mixers(above),)),
    "qwen3": Decoder({**ATTENTION, **HEADS}, (mixers(above),)),
    "smollm3": Decoder(LLAMA, (mixers(above),)),
    "seed_oss": Decoder({"attention_bias": flag("attention_bias"), "output_bias": flag("attention_out_bias"),
                         "mlp_bias": flag("mlp_bias")}),
    "granite": Decoder(LLAMA),
    "cwm": Decoder({"mlp_bias": flag("mlp_bias")}, (mixers(every("sliding_window_pattern", 4)),)),
    "iquestcoder": Decoder(LLAMA),
    "helium": Decoder({"attention_bias": flag("attention_bias"), "mlp_bias": flag("mlp_bias")}, (_square,)),
    "arcee": Decoder({**LLAMA, "mlp": "plain"}),
    "apertus": Decoder({**ATTENTION, **HEADS, "mlp": "plain", "extra": lambda _, found: 2.0 * found["layers"]},
                       (without("qk_norm", (True,), "attention without norms"), without("post_norm", (False,), "another order"))),
    "ernie4_5": Decoder({"attention_bias": flag("use_bias"), "output_bias": flag("use_bias"), "mlp_bias": flag("use_bias")}),
    "hunyuan_v1_dense": Decoder({**ATTENTION, "qk_norm": either(lambda c: c.flag("use_qk_norm", True), "head", "none")},
                                (without("use_cla", (False,), "keys and values that neighbouring layers share"),
                                 without("num_experts", (1,), "experts of a dense model"), without("norm_type", ("rms",), "other norms than RMS"))),
    "internlm3": Decoder({"attention_bias": flag("qkv_bias"), "output_bias": flag("bias"), "mlp_bias": flag("bias")}),
    "exaone": Decoder(LLAMA),
    "exaone4": Decoder(HEADS, (mixers(every("sliding_window_pattern", 4)),)),
    "jais2": Decoder({**LLAMA, "mlp": "plain", "norm": "layer"}),
    "nanochat": Decoder({"mlp": "plain", "norm": "layer_plain", **ATTENTION}),
    # Gemma
    "gemma": Decoder(ATTENTION),
    "gemma2": Decoder({**ATTENTION, **SANDWICH}, (mixers(alternate),)),
    "gemma3_text": Decoder({**ATTENTION, **HEADS, **SANDWICH}, (mixers(every("sliding_window_pattern", 6)),)),
    "vaultgemma": Decoder(ATTENTION, (mixers(alternate),)),
    # OLMo, Cohere, GLM, Phi
    "olmo": Decoder({**ATTENTION, "norm": "layer_plain"}),
    "olmo2": Decoder({**ATTENTION, "qk_norm": "full"}),
    "olmo3": Decoder({**ATTENTION, "qk_norm": "full"}, (mixers(every("sliding_window_pattern", 4)),)),
    "cohere": Decoder({**ATTENTION, "norm": "layer_no_bias", "norms_per_layer": 1.0,
                       "qk_norm": either(lambda c: c.flag("use_qk_norm"), "full", "none")}),
    "cohere2": Decoder({**ATTENTION, "norm": "layer_no_bias", "norms_per_layer": 1.0},
                       (mixers(every("sliding_window_pattern", 4)),)),
    "glm": Decoder(QUERY_BIAS),
    "glm4": Decoder({**QUERY_BIAS, **SANDWICH}),
    "phi": Decoder({"mlp": "plain", "norm": "layer", "attention_bias": True, "output_bias": True, "mlp_bias": True,
                    "norms_per_layer": 1.0, "head_bias": True, "ffn": times(4.0)}, (_normed,)),
    "phi3": Decoder({}, (mixers(everywhere),)),
    "nemotron": Decoder({**LLAMA, "mlp": "plain", "norm": "layer"}),
    "stablelm": Decoder({"norm": "layer", "qk_norm": either(lambda c: c.flag("qk_layernorm"), "full", "none")}, (_stablelm,)),
    "starcoder2": Decoder({"mlp": "plain", "norm": "layer", "attention_bias": flag("use_bias"),
                           "output_bias": flag("use_bias"), "mlp_bias": flag("use_bias")}, (mixers(everywhere),)),
    "persimmon": Decoder({**ROTATED, "ffn": count("intermediate_size")}, (_normed,)),
    # GPT and its like
    "gpt2": Decoder(GPT, (without("add_cross_attention", (False,), "attention over an encoder"),)),
    "openai-gpt": Decoder({**GPT, "final_norm": False}),
    "gpt_bigcode": Decoder({**GPT, "kv_heads": lambda c, found: 1.0 if c.flag("multi_query") else found["heads"]}),
    "gpt_neo": Decoder({**GPT, "attention_bias": False}, (_neo,)),
    "gptj": Decoder({**ROTATED, "attention_bias": False, "output_bias": False, "norms_per_layer": 1.0, "head_bias": True}),
    "codegen": Decoder({**ROTATED, "attention_bias": False, "output_bias": False, "norms_per_layer": 1.0, "head_bias": True}),
    "gpt_neox": Decoder({**ROTATED, "ffn": count("intermediate_size"), **ATTENTION}),
    "opt": Decoder({**GPT, "ffn": count("intermediate_size"), "context": _offset(2.0),
                    "attention_bias": flag("enable_bias", True), "output_bias": flag("enable_bias", True),
                    "mlp_bias": flag("enable_bias", True),
                    "norm": either(lambda c: c.flag("layer_norm_elementwise_affine", True), "layer", "layer_plain")},
                   (_embedding, without("do_layer_norm_before", (True,), "norms after each part, and none at the end"))),
    "biogpt": Decoder({**GPT, "ffn": count("intermediate_size"), "context": _offset(2.0)}),
    "xglm": Decoder({**GPT, "ffn": count("ffn_dim"), "positions": "none", "heads": count("attention_heads")}),
    "bloom": Decoder({**GPT, "ffn": lambda _, found: 4.0 * found["hidden"], "positions": "alibi", "embedding_norm": True,
                      "context": lambda c, _: c.count("seq_length", 2048.0, least=0.0)}),
    "falcon": Decoder({**ROTATED, "ffn": times(4.0, key="ffn_hidden_size")}, (_falcon,)),
    "mpt": Decoder({**GPT, "ffn": lambda _, found: 4.0 * found["hidden"], "norm": "layer_no_bias", "attention_bias": False,
                    "output_bias": False, "mlp_bias": False}, (_mpt,)),
}  # fmt: skip
