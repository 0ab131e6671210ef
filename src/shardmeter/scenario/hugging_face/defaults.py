"""Classes of the library: what each calls a key, and what it takes for a key left out (`data/config_classes.json`, written by
`scripts/config_classes.py` from transformers itself, with version and date)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_decoder_layers"),
    "hidden_size": ("n_embd", "n_embed", "d_model", "dim", "model_dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num", "num_query_groups"),
    "head_dim": ("kv_channels", "attention_head_dim", "d_kv", "d_head"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "d_inner", "hidden_dim", "encoder_ffn_dim"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": ("n_positions", "n_ctx", "seq_length", "max_seq_len", "max_sequence_length"),
    "num_local_experts": ("num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_k", "moe_topk", "moe_top_k", "top_k_experts"),
    "num_nextn_predict_layers": ("num_mtp_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_modules"),
    "layer_types": ("layers_block_type", "layer_type"),
}
"""Other names of a key, whatever the class: the library's own names of one thing, and those of code outside it."""


class Class(NamedTuple):
    """One configuration class."""

    known: bool
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str]
    """What the class calls a key, by its usual name."""
    inside: Mapping[str, str]
    """Model types of nested mappings, by key."""


NOTHING = Class(known=False, defaults={}, aliases={}, inside={})


@functools.cache
def table() -> dict[str, Any]:
    """The shipped table: `source`, `retrieved`, `refused` (every model type of the library that is not read), `types`."""
    text = resources.files("shardmeter.data").joinpath("config_classes.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def class_of(kind: str) -> Class:
    """The class of a model type; an empty one for a type that the library does not have."""
    row = table()["types"].get(kind)
    if row is None:
        return NOTHING
    return Class(True, row.get("defaults", {}), row.get("aliases", {}), row.get("inside", {}))
