"""Vision transformers of config.json: models of images alone, and the image towers of others (`TOWERS`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.encoders import architecture, labels
from shardmeter.scenario.hugging_face.layers import Fields, places, repeated

IMAGENET = 1000.0
QWEN_IMAGE = 448.0
"""Side of an image, in pixels, that a tower without a size of its own is taken to see."""


def square(c: Config, key: str, usual: float | None = None, why: str = "") -> float:
    """A side in pixels: a number, or a pair of the same number."""
    value = c.raw(key)
    if isinstance(value, list) and len(value) == 2 and value[0] != value[1]:
        c.refuse(key, f"{value[0]} × {value[1]}: only squares are modelled")
        return 1.0
    return c.count(key, usual, why)


def sizes(c: Config, **own: Any) -> Fields:
    """Fields of a tower whose file has the usual names."""
    heads = c.count("num_attention_heads")
    layers, hidden = c.count("num_hidden_layers"), c.count("hidden_size")
    if hidden % heads:
        c.refuse("num_attention_heads", f"{heads:g} heads do not divide hidden_size = {hidden:g}")
    found: Fields = {
        "family": "vision", "layers": int(layers) if known(layers) else 1, "hidden": hidden, "heads": heads,
        "kv_heads": heads, "head_dim": max(1.0, hidden // heads), "vocab": 0.0, "mlp": "plain", "norm": "layer",
        "positions": "learned", "attention_bias": True, "output_bias": True, "mlp_bias": True, "head": "none",
        "patch": square(c, "patch_size"), "channels": c.count("num_channels", 3.0), "image_size": 0.0,
    }  # fmt: skip
    if "ffn" not in own:
        found["ffn"] = c.count("intermediate_size")
    if "image_size" not in own:
        found["image_size"] = square(c, "image_size")
    found |= own
    _whole_patches(c, found)
    return found


def _whole_patches(c: Config, found: Fields) -> None:
    """Pixels that no patch covers are left out, as a convolution does."""
    size, patch = found["image_size"], found["patch"]
    if known(size) and known(patch) and size % patch:
        found["image_size"] = size - size % patch
        c.report.notes.append(f"images of {size:g} pixels in patches of {patch:g}: {found['image_size']:g} are used")


def _classified(c: Config, usual: str) -> Fields:
    """The head of a vision transformer: a classifier, or the bare model's (`usual`)."""
    named = architecture(c)
    if named.endswith("ForImageClassification") or (not named and usual == "classifier"):
        return {"head": "classifier", "vocab": labels(c, IMAGENET if not named else 2.0), "head_bias": True}
    if named.endswith(("Model", "Backbone")) or not named:
        return {"head": "pooler" if usual == "classifier" and named else "none"}
    c.refuse("architectures", f"{named}: this head is not modelled", "…ForImageClassification, …Model")
    return {}


def _vit(tokens: float, pooled: str = "classifier") -> Callable[[Config], Fields]:
    def read(c: Config) -> Fields:
        found = sizes(c, class_tokens=tokens, attention_bias=c.flag("qkv_bias", True))
        return found | _classified(c, pooled)

    return read


def _dinov2(c: Config) -> Fields:
    """DINOv2: an MLP of a multiple of the width, gated in the giant; each half weighed by a vector; a mask token."""
    hidden, ratio = c.count("hidden_size"), c.count("mlp_ratio")
    gated = c.flag("use_swiglu_ffn")
    wide = hidden * ratio
    registers = c.count("num_register_tokens", 0.0, least=0.0)
    masked = c.flag("use_mask_token", True)
    found = sizes(
        c, ffn=(wide * 2.0 / 3.0 + 7.0) // 8.0 * 8.0 if gated else wide, mlp="gated" if gated else "plain",
        layer_scale=True, attention_bias=c.flag("qkv_bias", True), class_tokens=1.0 + registers,
        class_position=registers == 0.0, extra=(hidden if masked else 0.0) + (hidden if registers else 0.0),
    )  # fmt: skip
    if architecture(c).endswith("ForImageClassification"):
        c.refuse("architectures", f"{architecture(c)}: a classifier on two tokens is not modelled", "Dinov2Model")
    return found


def clip_tower(c: Config) -> Fields:
    """CLIP's: a norm before the layers, a class token, patches without a bias."""
    return sizes(c, class_tokens=1.0, embedding_norm=True, patch_bias=False)


def siglip_tower(c: Config) -> Fields:
    """SigLIP's: no class token, attention pooling at the end where `vision_use_head` says so."""
    return sizes(c, class_tokens=0.0, head="pooling" if c.flag("vision_use_head", True) else "none")


def idefics_tower(c: Config) -> Fields:
    """That of Idefics 3 and SmolVLM: SigLIP's without a head."""
    return sizes(c, class_tokens=0.0)


def _qwen(c: Config, **own: Any) -> Fields:
    """A tower of Qwen-VL: patches of two frames, no class token, no norm at the end."""
    frames = c.count("temporal_patch_size")
    channels = c.several(("in_channels", "in_chans"), 3.0)
    return sizes(c, **{"class_tokens": 0.0, "final_norm": False, "channels": channels * frames, **own})


def qwen2_tower(c: Config) -> Fields:
    """Qwen2-VL's: as wide as `embed_dim`; `hidden_size` is the text's."""
    wide = c.count("embed_dim")
    c.report.assume(c.label("image_size"), QWEN_IMAGE, "any size: that many pixels a side are taken")
    found = _qwen(
        _renamed(c, wide), ffn=wide * c.count("mlp_ratio"), positions="rope", patch_bias=False, image_size=QWEN_IMAGE
    )
    c.asked.add("hidden_size")
    return found


def _renamed(c: Config, hidden: float) -> Config:
    """The same config with another width, where `hidden_size` means something else."""
    made = Config({**c.data, "hidden_size": hidden}, c.kind, c.report, c.path)
    made.asked = c.asked
    return made


def qwen2_5_tower(c: Config) -> Fields:
    """Qwen2.5-VL's: gated MLPs, windows of `window_size` pixels in all layers but a few."""
    patch, window = c.count("patch_size"), c.count("window_size")
    layers = c.count("num_hidden_layers")
    count = int(layers) if known(layers) else 1
    full = places(c, "fullatt_block_indexes", count)
    letters = "".join("f" if place in full else "c" for place in range(count))
    c.report.assume(c.label("image_size"), QWEN_IMAGE, "any size: that many pixels a side are taken")
    return _qwen(
        c, mlp="gated", norm="rms", positions="rope", patch_bias=False, image_size=QWEN_IMAGE, mixers=repeated(letters),
        window=(window // patch) ** 2,
    )  # fmt: skip


def qwen3_tower(c: Config) -> Fields:
    """Qwen3-VL's: a table of positions for a square image, which is taken for the image's size."""
    rows = c.count("num_position_embeddings")
    side = round(rows**0.5) if known(rows) else 1
    if side * side != rows:
        c.refuse("num_position_embeddings", f"{rows:g} is no square number")
    size = side * c.count("patch_size")
    c.report.assume(c.label("image_size"), size, "any size: that of the table of positions is taken")
    return _qwen(c, image_size=size)


def intern_tower(c: Config) -> Fields:
    """InternViT: each half weighed by a vector; norms of queries and keys in the largest."""
    hidden = c.count("hidden_size")
    return sizes(
        c, class_tokens=1.0, layer_scale=True, attention_bias=c.flag("attention_bias"),
        qk_norm="full" if c.flag("use_qk_norm") else "none", norm="rms" if c.word("norm_type") == "rms_norm" else "layer",
        final_norm=not c.flag("use_mean_pooling", True), extra=hidden if c.flag("use_mask_token") else 0.0,
        positions="learned" if c.flag("use_absolute_position_embeddings", True) else "none",
    )  # fmt: skip


def intern_vit(c: Config) -> Fields:
    """InternViT in its own form: biases on queries, keys and values by `qkv_bias`, norms of queries and keys in the largest."""
    return sizes(
        c, class_tokens=1.0, layer_scale=True, attention_bias=c.flag("qkv_bias"), final_norm=False,
        qk_norm="full" if c.flag("qk_normalization", True) else "none",
        norm="layer" if c.word("norm_type", "rms_norm") == "layer_norm" else "rms",
    )  # fmt: skip


def pixtral_tower(c: Config) -> Fields:
    """Pixtral's: a decoder's layers without biases, a norm before them and none after."""
    own = {"head_dim": c.count("head_dim")} if c.data.get("head_dim") is not None else {}
    return sizes(
        c, **own, class_tokens=0.0, mlp="gated", norm="rms", positions="rope", attention_bias=False, output_bias=False,
        mlp_bias=False, patch_bias=False, embedding_norm=True, final_norm=False,
    )  # fmt: skip


def llama4_tower(c: Config) -> Fields:
    """Llama 4's: a class token, learned positions and rotations, norms before and after. Where the file leaves the whole tower
    out, the one that all released models share: the class's own sizes do not fit together."""
    if not c.data:
        c.take(LLAMA4, "as in all released Llama 4")
    return sizes(c, class_tokens=1.0, embedding_norm=True, patch_bias=False)


LLAMA4 = {
    "hidden_size": 1408, "num_hidden_layers": 34, "num_attention_heads": 16, "intermediate_size": 5632, "patch_size": 14,
    "image_size": 336, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 4096, "projector_output_dim": 4096,
    "vision_output_dim": 4096,
}  # fmt: skip
"""The image tower of Scout and Maverick."""

TOWERS: Mapping[str, Callable[[Config], Fields]] = {
    "clip_vision_model": clip_tower, "siglip_vision_model": siglip_tower, "idefics3_vision": idefics_tower,
    "smolvlm_vision": idefics_tower, "qwen2_vl_vision": qwen2_tower, "qwen2_vl": qwen2_tower,
    "qwen2_5_vl_vision": qwen2_5_tower, "qwen2_5_vl": qwen2_5_tower, "qwen3_vl_vision": qwen3_tower, "qwen3_vl": qwen3_tower,
    "qwen3_vl_moe_vision": qwen3_tower, "qwen3_vl_moe": qwen3_tower, "qwen3_5_vision": qwen3_tower,
    "qwen3_5_moe_vision": qwen3_tower, "qwen3_5": qwen3_tower, "qwen3_5_moe": qwen3_tower, "internvl_vision": intern_tower,
    "intern_vit_6b": intern_vit,
    "pixtral": pixtral_tower, "llama4_vision_model": llama4_tower, "mlcd_vision_model": clip_tower,
}  # fmt: skip
"""What reads an image tower, by its model type."""

ROWS: Mapping[str, Callable[[Config], Fields]] = {
    "vit": _vit(1.0), "deit": _vit(2.0), "ijepa": _vit(0.0, "none"), "vit_msn": _vit(1.0, "none"),
    "dinov2": _dinov2, "dinov2_with_registers": _dinov2, "siglip_vision_model": siglip_tower,
    "clip_vision_model": clip_tower,
}  # fmt: skip
