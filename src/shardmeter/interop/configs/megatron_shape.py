"""A decoder written as Megatron-LM's options."""

from __future__ import annotations

import math

from shardmeter.interop.configs._saying import Saying
from shardmeter.interop.configs.megatron_model import BIASES, NORMS, POSITIONS
from shardmeter.specs import Model


def write_model(model: Model, tp: float, seq_len: float, out: Saying) -> None:
    """Say a model's shape; what would be another model goes to the reasons."""
    if model.family != "decoder":
        out.refuse("model.family", f"{model.family}: pretrain_gpt.py trains decoders", "another trainer")
        return
    out.begin("model")
    out.say("--num-layers", model.layers, "model.layers")
    out.say("--hidden-size", model.hidden, "model.hidden")
    out.say("--ffn-hidden-size", model.ffn, "model.ffn")
    out.say("--num-attention-heads", model.heads, "model.heads")
    _attention(model, out)
    _vectors(model, out)
    _experts(model, out)
    out.say("--max-position-embeddings", max(model.context, seq_len), "model.context")
    if not model.tied:
        out.say("--untie-embeddings-and-output-weights", True, "model.tied = false")
    if model.mtp:
        out.say("--mtp-num-layers", model.mtp, "model.mtp")
    out.say("--vocab-size", model.vocab, "model.vocab")
    out.say("--make-vocab-size-divisible-by", 1, "model.vocab is not padded further than tp asks")
    if model.vocab % tp:
        out.leave("model.vocab", f"padded to {math.ceil(model.vocab / tp) * tp:g}, a multiple of tp = {tp:g}")


def _attention(model: Model, out: Saying) -> None:
    if model.kv_lora_rank:
        out.say("--multi-latent-attention", True, "latent attention")
        if model.q_lora_rank:
            out.say("--q-lora-rank", model.q_lora_rank, "model.q_lora_rank")
        out.say("--kv-lora-rank", model.kv_lora_rank, "model.kv_lora_rank")
        out.say("--qk-head-dim", model.head_dim - model.qk_rope_head_dim, "model.head_dim - qk_rope_head_dim")
        out.say("--qk-pos-emb-head-dim", model.qk_rope_head_dim, "model.qk_rope_head_dim")
        out.say("--v-head-dim", model.value_dim, "model.v_head_dim")
    else:
        if model.kv_heads != model.heads:
            out.say("--group-query-attention", True, "model.kv_heads")
            out.say("--num-query-groups", model.kv_heads, "model.kv_heads")
        out.say("--kv-channels", model.head_dim, "model.head_dim")
        if model.value_dim != model.head_dim:
            out.refuse(
                "model.v_head_dim", f"{model.value_dim:g} beside head_dim = {model.head_dim:g} without latent attention"
            )
    if set(model.mixers) - set("fw"):
        out.refuse("model.mixers", f"{model.mixers[:40]}: only full attention and sliding windows are written")
    elif "w" in model.mixers:
        kinds = (model.mixers * model.layers)[: model.layers]
        out.say("--window-size", f"({model.window - 1:g},0)", "model.window")
        out.say("--window-attn-skip-freq", _list(kinds, "w"), "model.mixers: 1 = in a window")
    if model.sinks:
        out.say("--softmax-type", "learnable", "model.sinks")
    if model.attention_gate:
        out.say("--attention-output-gate", True, "model.attention_gate")


def _vectors(model: Model, out: Saying) -> None:
    """Norms, biases, positions, the kind of MLP."""
    norms, positions = _reversed(NORMS), _reversed(POSITIONS)
    if model.norm in norms:
        out.say("--normalization", norms[model.norm], f"model.norm = {model.norm}")
    else:
        out.refuse("model.norm", f"{model.norm}: norms have a weight (RMSNorm), or weight and bias (LayerNorm)")
    if model.positions in positions:
        out.say("--position-embedding-type", positions[model.positions], f"model.positions = {model.positions}")
    else:
        out.refuse("model.positions", f"{model.positions} is none of {', '.join(positions)}")
    if model.mlp == "gated":
        out.say("--swiglu", True, "model.mlp = gated")
    _biases(model, out)
    if model.qk_norm == "head":
        out.say("--qk-layernorm", True, "model.qk_norm = head")
    elif model.qk_norm == "full":
        out.refuse("model.qk_norm", "full: --qk-layernorm is one vector a head")
    if model.norms_per_layer != 2.0:
        out.refuse("model.norms_per_layer", f"{model.norms_per_layer:g}: layers have 2 norms")
    for field in ("embedding_norm", "head_bias", "router_bias"):
        if getattr(model, field):
            out.leave(f"model.{field}", "there is no option for it")


def _biases(model: Model, out: Saying) -> None:
    biases = (model.attention_bias, model.output_bias, model.mlp_bias)
    if biases in BIASES:
        for key in BIASES[biases]:
            out.say(key, True, "model.attention_bias, output_bias, mlp_bias")
    else:
        words = "attention_bias = {}, output_bias = {}, mlp_bias = {}".format(*map(str, biases)).lower()
        out.leave("model.mlp_bias", f"{words}: all or none or those of q, k, v alone; written without")
        out.say("--disable-bias-linear", True, "model.mlp_bias")


def _experts(model: Model, out: Saying) -> None:
    if not model.experts:
        return
    out.say("--num-experts", model.experts, "model.experts")
    out.say("--moe-router-topk", model.top_k, "model.top_k")
    out.say("--moe-ffn-hidden-size", model.moe_ffn, "model.moe_ffn")
    if model.shared_ffn:
        out.say("--moe-shared-expert-intermediate-size", model.shared_ffn, "model.shared_ffn")
    if model.shared_gate:
        out.say("--moe-shared-expert-gate", True, "model.shared_gate")
    if model.moe_latent:
        out.say("--moe-latent-size", model.moe_latent, "model.moe_latent")
    kinds = (model.mlps * model.layers)[: model.layers] if model.mlps else ""
    if "-" in kinds:
        out.refuse("model.mlps", "layers without an MLP")
    elif kinds or model.dense_first:
        kinds = kinds or "d" * model.dense_first + "e" * (model.layers - model.dense_first)
        out.say("--moe-layer-freq", _list(kinds, "e"), "model.dense_first, model.mlps: 1 = experts")
    out.say("--moe-token-dispatcher-type", "alltoall", "tokens are exchanged, not gathered")
    out.say("--moe-grouped-gemm", True, "experts of a rank in one product")


def _reversed(words: dict[str, str]) -> dict[str, str]:
    """Our words as the trainer's, the first of several."""
    return {ours: theirs for theirs, ours in reversed(words.items())}


def _list(kinds: str, one: str) -> str:
    """Runs of letters as a sum of lists: ddde → ([0]*3+[1]*1)."""
    runs: list[list[int]] = []
    for kind in kinds:
        value = int(kind == one)
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return f"({'+'.join(f'[{value}]*{times}' for value, times in runs)})"
