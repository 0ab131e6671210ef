"""What is trained. `family` names a module of `families/`, which turns the numbers into blocks."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count

WORDS: dict[str, tuple[str, ...]] = {
    "mlp": ("gated", "plain"),
    "norm": ("rms", "layer", "layer_no_bias"),
    "positions": ("rope", "learned", "alibi", "none"),
    "qk_norm": ("none", "head", "full"),
}
"""The words each named field of a model may hold."""


@record
class Model:
    """Architecture numbers of a transformer; a row of `data/models.csv`, a file, or inline in a scenario."""

    name: str
    family: str = "decoder"
    layers: int
    hidden: Count
    ffn: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    context: Count = 0.0
    """Longest sequence the model was made for; 0 = not known. Learned positions have this many rows."""
    mlp: str = "gated"
    """gated (three matrices: SwiGLU, GeGLU) or plain (two: GELU, ReLU)."""
    norm: str = "rms"
    """rms (one vector) or layer (weight and bias) or layer_no_bias (weight only)."""
    positions: str = "rope"
    """rope, learned, alibi, none."""
    attention_bias: bool = False
    """Biases on the q, k, v projections."""
    output_bias: bool = False
    """Bias on the attention output projection."""
    mlp_bias: bool = False
    embedding_norm: bool = False
    """A norm right after the embedding (BLOOM)."""
    qk_norm: str = "none"
    """none, head (one vector of head_dim for q and one for k: Qwen3) or full (over all heads: OLMo 2)."""
    norms_per_layer: Count = 2.0
    """2 for pre-norm; 1 for parallel blocks that share one norm (Falcon, phi-2); 4 for sandwich norms (Gemma 2)."""
    experts: Count = 0.0
    """Routed experts of a mixture-of-experts layer; 0 = a dense model."""
    top_k: Count = 0.0
    """Experts that a token is sent to."""
    moe_ffn: Count = 0.0
    """Width of one expert; `ffn` is that of the dense layers."""
    shared_ffn: Count = 0.0
    """Width, all together, of the experts that every token passes."""
    shared_gate: bool = False
    """Whether a gate of one column weighs the shared experts (Qwen2-MoE)."""
    dense_first: int = 0
    """Layers at the start that are dense in a mixture-of-experts model."""
    tied: bool = False
    """Whether the head shares the embedding matrix."""
    head_bias: bool = False
    parameters: Count | None = None
    """Published count, where the catalog states one; used only as a check."""
    source: str = ""
    retrieved: str = ""
