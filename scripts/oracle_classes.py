"""The published class of a row of `models.csv` that is no decoder, for `oracle.py`: of transformers, or of timm for images."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

Row = dict[str, str]


def sizes(row: Row) -> dict[str, Any]:
    """What most configurations call the numbers of a row."""
    wanted = {
        "hidden_size": "hidden", "num_hidden_layers": "layers", "num_attention_heads": "heads", "intermediate_size": "ffn",
        "num_key_value_heads": "kv_heads", "head_dim": "head_dim", "vocab_size": "vocab", "max_position_embeddings": "context",
        "image_size": "image_size", "patch_size": "patch", "type_vocab_size": "segments", "projection_dim": "projection",
    }  # fmt: skip
    found: dict[str, Any] = {name: int(row[column]) for name, column in wanted.items() if row[column]}
    return found | {
        "tie_word_embeddings": row["tied"] == "yes",
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def text(row: Row) -> dict[str, Any]:
    """The same of a text tower, without what is the whole's."""
    return {name: value for name, value in sizes(row).items() if name not in ("projection_dim", "head_dim")}


def published(row: Row, rows: dict[str, Row]) -> tuple[str, Any] | None:
    """(class, network) of a row; None where no package here has one. Builds on the default device."""
    tower = rows.get(row["vision"], {})
    build = {"encoder": _encoder, "encoder_decoder": _encoder_decoder}.get(row["family"])
    if build is not None:
        return build(row)
    if row["family"] == "vision":
        return _timm(row) or _tower(row)
    if row["family"] in ("dual_encoder", "multimodal"):
        return (_dual if row["family"] == "dual_encoder" else _multimodal)(row, tower)
    return None


def _made(config: str, network: str, **settings: Any) -> tuple[str, Any]:
    transformers = importlib.import_module("transformers")
    return network, getattr(transformers, network)(getattr(transformers, config)(**settings))


def _encoder(row: Row) -> tuple[str, Any]:
    kind = "Roberta" if row["name"].startswith("roberta") else "Bert"
    return _made(f"{kind}Config", f"{kind}ForMaskedLM", **sizes(row))


def _encoder_decoder(row: Row) -> tuple[str, Any]:
    layers, other = int(row["encoder_layers"]), int(row["layers"])
    tied = {"tie_word_embeddings": row["tied"] == "yes", "vocab_size": int(row["vocab"]), "d_model": int(row["hidden"])}
    heads, ffn = int(row["heads"]), int(row["ffn"])
    if row["name"].startswith("bart"):
        return _made(
            "BartConfig", "BartForConditionalGeneration", encoder_layers=layers, decoder_layers=other,
            encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn,
            max_position_embeddings=int(row["context"]) - 2, **tied,
        )  # fmt: skip
    title, made = _made(
        "T5Config", "T5ForConditionalGeneration", num_layers=layers, num_decoder_layers=other, num_heads=heads, d_ff=ffn,
        d_kv=int(row["head_dim"]), feed_forward_proj="gated-gelu" if row["mlp"] == "gated" else "relu", **tied,
    )  # fmt: skip
    made.tie_weights()
    if row["tied"] != "yes":  # the class ties whatever it is told; released 1.1 checkpoints have a head of their own
        made.lm_head = type(made.lm_head)(int(row["hidden"]), int(row["vocab"]), bias=False)
        made.tie_weights = lambda: None
    return title, made


def _timm(row: Row) -> tuple[str, Any] | None:
    """Timm's model of that name, where there is one."""
    if importlib.util.find_spec("timm") is None or row["head"] != "classifier":
        return None
    timm = importlib.import_module("timm")
    name = row["aliases"].partition("|")[0]
    return (f"timm {name}", timm.create_model(name, num_classes=int(row["vocab"]))) if timm.is_model(name) else None


def _tower(row: Row) -> tuple[str, Any] | None:
    """The image tower of CLIP or SigLIP; None for any other."""
    if row["name"].startswith("clip"):
        return _made(
            "CLIPVisionConfig",
            "CLIPVisionModelWithProjection" if row["projection"] else "CLIPVisionModel",
            **sizes(row),
        )
    if row["name"].startswith("siglip"):
        return _made("SiglipVisionConfig", "SiglipVisionModel", vision_use_head=row["head"] == "pooling", **sizes(row))
    return None


def _dual(row: Row, tower: Row) -> tuple[str, Any]:
    kind = "CLIP" if row["contrast"] == "softmax" else "Siglip"
    more = {"projection_dim": int(row["projection"])} if kind == "CLIP" else {}
    return _made(f"{kind}Config", f"{kind}Model", text_config=text(row), vision_config=sizes(tower),
                 tie_word_embeddings=False, **more)  # fmt: skip


def _multimodal(row: Row, tower: Row) -> tuple[str, Any]:
    inner = sizes(row) | {"tie_word_embeddings": row["tied"] == "yes"}
    tied = {"tie_word_embeddings": row["tied"] == "yes"}
    if row["name"].startswith("llava"):
        images = sizes(tower) | {"model_type": "clip_vision_model"}
        inner |= {"model_type": "llama"}
        return _made("LlavaConfig", "LlavaForConditionalGeneration", text_config=inner, vision_config=images, **tied)
    if row["name"].startswith("qwen2-vl"):
        images = {
            "depth": int(tower["layers"]), "embed_dim": int(tower["hidden"]), "num_heads": int(tower["heads"]),
            "hidden_size": int(row["hidden"]), "patch_size": int(tower["patch"]), "spatial_merge_size": int(row["merge"]),
            "mlp_ratio": int(tower["ffn"]) // int(tower["hidden"]),
        }  # fmt: skip
        inner = {name: value for name, value in inner.items() if name != "head_dim"}
        return _made(
            "Qwen2VLConfig", "Qwen2VLForConditionalGeneration", text_config=inner, vision_config=images, **tied
        )
    images = sizes(tower) | {"model_type": "siglip_vision_model", "vision_use_head": False}
    inner |= {"model_type": "gemma"}
    return _made(
        "PaliGemmaConfig", "PaliGemmaForConditionalGeneration", text_config=inner, vision_config=images,
        projection_dim=int(row["hidden"]), **tied,
    )  # fmt: skip
