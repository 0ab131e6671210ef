"""The shape of a decoder as Megatron-LM's options, both ways."""

from __future__ import annotations

import ast
import math
from typing import Any

from shardmeter.interop.configs._reading import Reading

POSITIONS = {
    "learned_absolute": "learned", "rope": "rope", "yarn": "rope", "mrope": "rope", "relative": "relative", "none": "none",
}  # fmt: skip
NORMS = {"LayerNorm": "layer", "RMSNorm": "rms"}
BIASES = {(False, False, False): ("--disable-bias-linear",), (True, True, True): (), (True, False, False): ("--disable-bias-linear", "--add-qkv-bias")}  # fmt: skip
"""(attention, output, MLP) biases, and the options that say so."""
HYBRID = (
    "--hybrid-layer-pattern",
    "--hybrid-override-pattern",
    "--heterogeneous-layers-config-path",
    "--encoder-num-layers",
)
"""Options that make another model than a plain decoder of it."""
GPT2 = 50257
"""Words of the tokenizer GPT2BPETokenizer."""
LONGEST = 10_000
LAYERS = {"e": "experts", "d": "dense", "w": "of a window", "f": "of full attention"}
"""Letters of layers, as a report says them."""


def read_model(reading: Reading, tp: int) -> dict[str, Any] | None:
    """The fields of an inline decoder; None where the options do not tell its shape."""
    for key in HYBRID:
        reading.ignore(key, "layers of several kinds are not read from it: say --model")
    shape = {
        "layers": reading.whole("--num-layers", "model.layers"),
        "hidden": reading.whole("--hidden-size", "model.hidden"),
        "heads": reading.whole("--num-attention-heads", "model.heads"),
    }
    layers, hidden, heads = shape["layers"], shape["hidden"], shape["heads"]
    gated = reading.given("--swiglu", "model.mlp = gated") or reading.given("--quick-geglu", "model.mlp = gated")
    ffn = reading.whole("--ffn-hidden-size", "model.ffn")
    model: dict[str, Any] = {**_attention(reading, hidden, heads), **_vectors(reading), **_ends(reading, tp)}
    model["mlp"] = "gated" if gated else "plain"
    if layers is None or hidden is None or heads is None or any(key in reading.said for key in HYBRID):
        reading.assume("model: the options do not tell its shape; say --model")
        return None
    if ffn is None:
        ffn = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        reading.assume(f"model.ffn = {ffn}: the trainer's rule without --ffn-hidden-size")
    experts = _experts(reading, layers, ffn)
    return {"name": "megatron-model", "family": "decoder", **shape, "ffn": ffn, **model, **experts}


def _attention(reading: Reading, hidden: int | None, heads: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"kv_heads": heads}
    if reading.given("--group-query-attention", "model.kv_heads by --num-query-groups"):
        found["kv_heads"] = reading.whole("--num-query-groups", "model.kv_heads", 1)
    channels = reading.whole("--kv-channels", "model.head_dim")
    found["head_dim"] = channels or (hidden // heads if hidden and heads else None)
    if reading.given("--multi-latent-attention", "latent attention"):
        rotated = reading.whole("--qk-pos-emb-head-dim", "model.qk_rope_head_dim", 64)
        plain = reading.whole("--qk-head-dim", "model.head_dim - qk_rope_head_dim", 128)
        found |= {"kv_heads": None, "head_dim": plain + rotated, "qk_rope_head_dim": rotated}
        found["kv_lora_rank"] = reading.whole("--kv-lora-rank", "model.kv_lora_rank", 32)
        found["q_lora_rank"] = reading.whole("--q-lora-rank", "model.q_lora_rank", 0)
        found["v_head_dim"] = reading.whole("--v-head-dim", "model.v_head_dim", 128)
    window = reading.text("--window-size", "model.window: as many tokens behind, and itself")
    if window is not None:
        behind = window.strip("() ").partition(",")[0].strip()
        if behind.isdecimal() and len(behind) < 10:
            found |= {
                "window": int(behind) + 1,
                "mixers": _pattern(reading, "--window-attn-skip-freq", "w", "f", True) or "w",
            }
        else:
            reading.refuse("--window-size", f"{behind[:20]!r} is no number of tokens")
    if reading.text("--softmax-type", "model.sinks, where learnable") == "learnable":
        found["sinks"] = True
    if reading.given("--attention-output-gate", "model.attention_gate = true"):
        found["attention_gate"] = True
    return {name: value for name, value in found.items() if value is not None}


def _vectors(reading: Reading) -> dict[str, Any]:
    """Norms, biases, positions."""
    bare, of_qkv = (
        reading.given("--disable-bias-linear", "no biases"),
        reading.given("--add-qkv-bias", "model.attention_bias = true"),
    )
    positions = reading.word("--position-embedding-type", POSITIONS, "model.positions", "learned")
    if reading.given("--use-rotary-position-embeddings", "model.positions = rope"):
        positions = "rope"
    return {
        "norm": reading.word("--normalization", NORMS, "model.norm", "layer"),
        "positions": positions,
        "attention_bias": of_qkv or not bare,
        "output_bias": not bare,
        "mlp_bias": not bare,
        "qk_norm": "head" if reading.given("--qk-layernorm", "model.qk_norm = head") else "none",
    }


def _ends(reading: Reading, tp: int) -> dict[str, Any]:
    """Vocabulary, context, head, prediction modules."""
    found: dict[str, Any] = {"context": reading.whole("--max-position-embeddings", "model.context")}
    found["tied"] = not reading.given("--untie-embeddings-and-output-weights", "model.tied = false")
    found["mtp"] = reading.whole("--mtp-num-layers", "model.mtp")
    unit = tp * (reading.whole("--make-vocab-size-divisible-by", "model.vocab, a multiple of it", 128))
    vocab = reading.whole("--padded-vocab-size", "model.vocab")
    unpadded = reading.whole("--vocab-size", "model.vocab, before padding")
    if vocab is None and unpadded is None and reading.said.get("--tokenizer-type") == "GPT2BPETokenizer":
        unpadded = GPT2
        reading.assume(f"model.vocab: {GPT2} words of GPT2BPETokenizer")
    if vocab is None and unpadded is not None:
        vocab = math.ceil(unpadded / unit) * unit
    if vocab is None:
        reading.assume(
            "model.vocab: the tokenizer's, which the options do not tell; say --model or --set model.vocab=N"
        )
    found["vocab"] = vocab
    return {name: value for name, value in found.items() if value is not None}


def _experts(reading: Reading, layers: int, ffn: int) -> dict[str, Any]:
    experts = reading.whole("--num-experts", "model.experts")
    if experts is None:
        return {}
    found: dict[str, Any] = {"experts": experts, "top_k": reading.whole("--moe-router-topk", "model.top_k", 2)}
    found["moe_ffn"] = reading.whole("--moe-ffn-hidden-size", "model.moe_ffn", ffn)
    found["shared_ffn"] = reading.whole("--moe-shared-expert-intermediate-size", "model.shared_ffn")
    found["moe_latent"] = reading.whole("--moe-latent-size", "model.moe_latent")
    found["shared_gate"] = reading.given("--moe-shared-expert-gate", "model.shared_gate = true") or None
    kinds = _pattern(reading, "--moe-layer-freq", "e", "d", False)
    first = len(kinds) - len(kinds.lstrip("d"))
    if kinds and (kinds * layers)[:layers] == "d" * first + "e" * (layers - first):
        found["dense_first"] = first or None
    elif kinds:
        found["mlps"] = kinds
    return {name: value for name, value in found.items() if value is not None}


def _pattern(reading: Reading, key: str, one: str, zero: str, last: bool) -> str:
    """Letters of layers (the shortest row of which they are repeats) from a frequency, or a list of ones and zeros; `last`: a frequency of N is a zero after N − 1 ones, else a one
    and then N − 1 zeros. Empty where nothing is said."""
    value = reading.text(key, f"layers of a 1 are {LAYERS[one]}, of a 0 {LAYERS[zero]}")
    if value is None:
        return ""
    if value.isdecimal() and 0 < int(value[:9]) <= LONGEST:
        others = int(value) - 1
        return (one * others + zero if others else zero) if last else one + zero * others
    try:
        listed = _evaluated(ast.parse(value.strip(), mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        listed = None
    if not isinstance(listed, list) or not listed:
        reading.refuse(
            key, f"{value[:40]!r} is neither a number nor a list of ones and zeros", "write it as [0]*3+[1]*58"
        )
        return ""
    kinds = "".join(one if item else zero for item in listed)
    lengths = range(1, len(kinds) + 1)
    return next(kinds[:n] for n in lengths if (kinds[:n] * (len(kinds) // n + 1)).startswith(kinds))


def _evaluated(node: ast.expr) -> Any:
    """A list of whole numbers, sums and multiples of such. Raises ValueError for anything else, or one that is too long."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) <= LONGEST:
        return node.value
    if isinstance(node, ast.List):
        made = [_evaluated(item) for item in node.elts]
        if all(isinstance(item, int) for item in made):
            return made
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return (left + right)[: LONGEST + 1]
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
            row, times = (left, right) if isinstance(left, list) else (right, left)
            if len(row) * times <= LONGEST:
                return row * times
    raise ValueError
