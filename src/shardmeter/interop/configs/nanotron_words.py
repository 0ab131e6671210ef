"""nanotron's words, as ours."""

SHARDINGS = {"0": "ddp", "1": "zero1"}
ENGINES = {"afab": "gpipe", "1f1b": "1f1b"}
TP_MODES = {"REDUCE_SCATTER": "true", "reduce_scatter": "true", "ALL_REDUCE": "false", "all_reduce": "false"}
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
OPTIMIZERS = {"adamW": "adamw", "sgd": "sgd"}
ATTENTION = {
    "flash_attention_2": "ring", "ring": "ring", "ring_flash_triton": "ring", "llama3_ring_attention": "all-gather",
    "flex_attention": "ring", "sdpa": "ring",
}  # fmt: skip
"""Kinds of attention, as what they do with a sequence that is cut."""
RECIPE = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "vocab": "vocab_size", "context": "max_position_embeddings",
}  # fmt: skip
"""Fields of a model, and what a configuration calls them."""
STACK = "nanotron-2025"
