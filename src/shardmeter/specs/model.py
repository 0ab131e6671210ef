"""What is trained. `family` names a module of `families/`, which turns the numbers into blocks."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count

WORDS: dict[str, tuple[str, ...]] = {
    "mlp": ("gated", "plain"),
    "norm": ("rms", "layer", "layer_no_bias", "layer_plain"),
    "positions": ("rope", "learned", "alibi", "relative", "none"),
    "qk_norm": ("none", "head", "full"),
    "head": ("usual", "classifier", "projection", "pooling", "pooler", "none"),
    "projector": ("none", "linear", "mlp", "merger", "mean", "pooled", "adapter"),
    "contrast": ("none", "softmax", "sigmoid"),
}
"""The words each named field of a model may hold."""

LETTERS: dict[str, str] = {"mixers": "fwcmds-", "mlps": "de-"}
"""The letters of fields that say one thing a layer."""


@record
class Model:
    """Architecture numbers of a model; a row of `data/models.csv`, a file, or inline in a scenario."""

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
    """rms (one vector) or layer (weight and bias) or layer_no_bias (weight only) or layer_plain (neither)."""
    positions: str = "rope"
    """rope, learned, alibi, relative (a bias by distance: T5), none."""
    attention_bias: bool = False
    """Biases on the q, k, v projections; of an LSTM, on its gates."""
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
    mixers: str = ""
    """What mixes the tokens, one letter a layer, repeated to the last layer: f full attention, w attention in a sliding window,
    c attention in chunks, m Mamba-2, d gated delta rule, s the first Mamba's selective scan, - nothing. Left out: full attention
    everywhere."""
    mlps: str = ""
    """What follows the mixer, one letter a layer, repeated: d dense MLP, e routed experts, - nothing. Left out: experts where the
    model has them (after `dense_first`), else a dense MLP."""
    window: Count = 0.0
    """Tokens that a query of a w layer sees, itself among them; tokens in one chunk of a c layer."""
    sinks: bool = False
    """A learned logit for each head beside the scores (GPT-OSS)."""
    attention_gate: bool = False
    """A gate as wide as the queries on what attention gives out (Qwen3-Next)."""
    q_lora_rank: Count = 0.0
    """Latent attention: width of the latent that queries are made from; 0 = queries come straight from the layer's input."""
    kv_lora_rank: Count = 0.0
    """Latent attention: width of the latent that keys and values are made from; 0 = plain attention."""
    qk_rope_head_dim: Count = 0.0
    """Latent attention: part of `head_dim` that is rotated; its key is one for all heads."""
    v_head_dim: Count = 0.0
    """Width of a value head; 0 = `head_dim`, which is that of a query and a key."""
    router_bias: bool = False
    """A trained bias on the router (GPT-OSS). DeepSeek's balancing bias is not trained."""
    moe_latent: Count = 0.0
    """Width that routed experts work in, with a projection down to it and one up again; 0 = `hidden` (Nemotron-3 Super)."""
    mtp: int = 0
    """Multi-token-prediction modules trained beside the model (DeepSeek-V3): a layer, a projection, the shared head once more."""
    state_heads: Count = 0.0
    """Recurrent layers (Mamba-2, gated delta rule): heads of values."""
    state_head_dim: Count = 0.0
    """Width of a value head of a recurrent layer."""
    state_dim: Count = 0.0
    """State of a recurrent layer per value element: the width of one of its keys (B) and queries (C)."""
    state_groups: Count = 0.0
    """Groups of keys and queries of a recurrent layer, each shared by as many heads."""
    state_chunk: Count = 128.0
    """Tokens that a recurrent layer's kernels take at a time."""
    step_rank: Count = 0.0
    """Selective scan: width of the latent that the step of every channel is made from (Jamba: `mamba_dt_rank`)."""
    scan_norms: bool = True
    """Selective scan: norms of the step's latent, of keys and of queries (Jamba has them, Mamba has not)."""
    conv_width: Count = 4.0
    """Tokens that the short convolution of a recurrent layer spans."""
    extra: Count = 0.0
    """Small parameters that no other field names and no product uses (a mask token, the end of an image's row, learned
    activations); held with the embedding."""
    tied: bool = False
    """Whether the head shares the embedding matrix."""
    head_bias: bool = False
    vision: Model | None = None
    """The image tower of a model of several parts: a catalog name, or its numbers; the model's own numbers are its text part."""
    image_size: Count = 0.0
    """Pixels (or latents) of one side of an image."""
    patch: Count = 0.0
    """Pixels (or latents) of one side of a patch, which is one token."""
    channels: Count = 3.0
    """Of an image, or of its latents; twice as many where a patch is made of two frames."""
    class_tokens: Count = 0.0
    """Tokens of an image that are no patches."""
    class_position: bool = True
    """Whether class tokens have rows of the learned positions."""
    patch_bias: bool = True
    final_norm: bool = True
    """A norm after the last layer; after layers with their norms at the end there is none (BERT)."""
    layer_scale: bool = False
    """A vector that weighs the output of each half of a layer (DeiT III)."""
    segments: Count = 0.0
    """Rows of the segment embedding (BERT: 2)."""
    head: str = "usual"
    """What stands at the end: usual (of the family), classifier (of an image: `vocab` classes; of a text: a dense layer and
    `classes`), projection (into the joint space), pooling (attention with one learned query: SigLIP), pooler (a dense layer on one
    token: BERT alone), none."""
    classes: Count = 0.0
    """Classes of a text that an encoder's classifier tells apart."""
    projection: Count = 0.0
    """Width of the space that two towers share."""
    causal: bool = True
    """Two towers: whether a text sees only what came before (CLIP), or all of itself (SigLIP)."""
    contrast: str = "none"
    """Contrastive loss over the batch of all replicas: softmax (CLIP), sigmoid (SigLIP), none."""
    projector: str = "none"
    """From the image tower into the text: linear, mlp (two matrices: LLaVA), merger (patches side by side, a norm, then two:
    Qwen-VL), mean (patches averaged, then one: Gemma 3), pooled (a matrix merges patches, then two: Mistral 3), adapter (three:
    Llama 4)."""
    projector_ffn: Count = 0.0
    """Width between the matrices of a projector of kind mlp or adapter; 0 = `hidden`."""
    projector_bias: bool = True
    projector_vectors: Count = 0.0
    """Parameters of the projector's norms, beside that of a merger."""
    projectors: Count = 1.0
    """Projectors of that kind: more than one where deeper layers are fed too (Qwen3-VL's deepstack)."""
    merge: Count = 1.0
    """Patches of one side that the projector makes one token of."""
    images: Count = 1.0
    """Images in one sample of a multimodal model."""
    encoder_layers: int = 0
    """Layers of the encoder of an encoder-decoder model; `layers` are the decoder's."""
    target_length: Count = 0.0
    """Tokens of the decoder's sequence of an encoder-decoder model; 0 = as many as the encoder's, which the run says."""
    source_length: Count = 0.0
    """Tokens of the encoder's sequence, or of a recurrence's: the run's (filled in by the engine)."""
    parameters: Count | None = None
    """Published count, where the catalog states one; used only as a check, against the model without prediction modules."""
    source: str = ""
    retrieved: str = ""

    @property
    def value_dim(self) -> Count:
        """Width of a value head. Structure, not a number: a batch states it or does not."""
        unstated = isinstance(self.v_head_dim, float) and self.v_head_dim == 0.0
        return self.head_dim if unstated else self.v_head_dim

    @property
    def expert_hidden(self) -> Count:
        """Width of what routed experts take in and give out."""
        unstated = isinstance(self.moe_latent, float) and self.moe_latent == 0.0
        return self.hidden if unstated else self.moe_latent
