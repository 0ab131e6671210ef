"""Models of several parts in config.json: two towers (CLIP, SigLIP), and images inside a text (LLaVA, Qwen-VL and their like)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmeter.core.errors import shown
from shardmeter.scenario.hugging_face import decoders, hybrids, latents, mixtures, published
from shardmeter.scenario.hugging_face.config import ABSENT, Config, known
from shardmeter.scenario.hugging_face.decoder import without
from shardmeter.scenario.hugging_face.decoders import GPT
from shardmeter.scenario.hugging_face.images import TOWERS, clip_tower, siglip_tower
from shardmeter.scenario.hugging_face.layers import Fields
from shardmeter.specs import Model

TEXTS = {**decoders.ROWS, **published.ROWS, **mixtures.ROWS, **latents.ROWS, **hybrids.ROWS}
SAME_TEXT = {
    "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2",
}  # fmt: skip
"""Decoders inside a model of images that are those of another model type."""
NAMED_ONLY = (
    "an image tower that is named, not described: the form of LLaVA's own code",
    "name a checkpoint in the library's form (…-hf), which has a vision_config",
)
"""(what is wrong, the way out) where a file leaves its image tower to another checkpoint."""
Projector = Callable[[Config, Config, Fields, Fields], Fields]
"""(whole, image tower's config, tower, text) → fields of the projector."""


def tower_of(c: Config, fields: Fields, name: str) -> Model | None:
    """The record of an image tower; None where something in it is wrong already."""
    if c.report.violations:
        return None
    return Model(name=f"{name} image tower", **fields)


def _texts(c: Config, **own: object) -> Fields:
    """The text tower of a pair: a plain transformer with learned positions."""
    found: Fields = {
        "family": "dual_encoder", **{k: v for k, v in GPT.items() if not callable(v)}, "hidden": c.count("hidden_size"),
        "heads": c.count("num_attention_heads"), "ffn": c.count("intermediate_size"), "vocab": c.count("vocab_size"),
        "context": c.count("max_position_embeddings"),
    }  # fmt: skip
    layers = c.count("num_hidden_layers")
    if found["hidden"] % found["heads"]:
        c.refuse("num_attention_heads", f"{found['heads']:g} heads do not divide hidden_size = {found['hidden']:g}")
    return found | {
        "layers": int(layers) if known(layers) else 1, "kv_heads": found["heads"],
        "head_dim": max(1.0, found["hidden"] // found["heads"]), **own,
    }  # fmt: skip


def _clip(c: Config) -> Fields:
    """CLIP: a projection of each tower, softmax over the batch."""
    images, texts = c.inside("vision_config", kind="clip_vision_model"), c.inside("text_config", kind="clip_text_model")
    width = c.count("projection_dim")
    tower = clip_tower(images) | {"head": "projection", "projection": width}
    found = _texts(texts, projection=width, contrast="softmax")
    return found | {"vision": tower_of(c, tower, "CLIP")}


def _siglip(c: Config) -> Fields:
    """SigLIP: attention pooling of images, a projection with a bias of texts that see all of themselves, a sigmoid."""
    images, texts = (
        c.inside("vision_config", kind="siglip_vision_model"),
        c.inside("text_config", kind="siglip_text_model"),
    )
    tower = siglip_tower(images)
    found = _texts(texts, contrast="sigmoid", causal=False, head_bias=True)
    width = texts.count("projection_size", found["hidden"], "= hidden_size")
    return found | {"projection": width, "vision": tower_of(c, tower, "SigLIP")}


def _whole(projector: Projector, text: str = "", images: str = "") -> Callable[[Config], Fields]:
    """A reader of images inside a text: its two configs, and what joins them. `text` and `images` are the model types where the
    file names none."""

    def read(c: Config) -> Fields:
        if "mm_vision_tower" in c.data:
            c.refuse("mm_vision_tower", *NAMED_ONLY)
            return {}
        inner = c.inside("vision_config", kind=images)
        nested = next((key for key in ("text_config", "llm_config", "language_config") if key in c.data), "")
        words = c.inside(nested, kind=text) if nested or "hidden_size" not in c.data else _flat(c, text)
        if nested:  # what the whole says once more
            c.asked |= {"vocab_size", "hidden_size", "num_hidden_layers", *words.data}
        inner.asked |= {"vocab_size", "tie_word_embeddings"}
        kind = SAME_TEXT.get(words.kind, words.kind)
        reader, sight = TEXTS.get(kind), TOWERS.get(inner.kind)
        if reader is None:
            words.refuse("model_type", f"texts of type {shown(words.kind)} inside a model of images are not modelled")
        if sight is None:
            inner.refuse("model_type", f"image towers of type {shown(inner.kind)} are not modelled")
        if reader is None or sight is None:
            return {}
        found, tower = reader(words), sight(inner)
        found["tied"] = _tied(c, words)
        if c.data.get("tie_word_embeddings") is not None:
            c.report.assumed.pop(words.label("tie_word_embeddings"), None)
        joined = projector(c, inner, tower, found)
        record = tower_of(c, tower, c.kind)
        if found.get("mtp"):
            found["mtp"] = 0  # the modules are beside the text alone
        return {**found, "family": "multimodal", **joined, "vision": record}

    return read


def _flat(c: Config, kind: str) -> Config:
    """The text's keys where they stand at the top beside the images' (Qwen2-VL as it was published)."""
    made = Config(c.data, kind, c.report, c.path)
    made.asked = c.asked
    return made


def _tied(c: Config, text: Config) -> bool:
    """Whether the head is tied: if the whole or its text says so; where neither says anything, as the whole's class has it."""
    said = [one.flag("tie_word_embeddings") for one in (c, text) if one.data.get("tie_word_embeddings") is not None]
    if said:
        return any(said)
    return c.flag("tie_word_embeddings", text.raw("tie_word_embeddings", True) is not False)


def _llava(newline: bool = False) -> Projector:
    """Two matrices; a vector at the end of an image's row in those of several tiles."""

    def join(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
        layer = c.raw("vision_feature_layer", -2)
        if isinstance(layer, list) and len(layer) != 1:
            c.refuse("vision_feature_layer", f"{len(layer)} layers side by side: only one is modelled")
        kept = found.get("extra", 0.0) + (found["hidden"] if newline else 0.0)
        return {"projector": "mlp", "projector_bias": c.flag("multimodal_projector_bias", True), "extra": kept}

    return join


def _linear(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """One matrix with a bias, as wide as `projection_dim` (PaliGemma)."""
    width = inner.raw("projection_dim", ABSENT)
    wide = c.count("projection_dim", found["hidden"]) if width in (ABSENT, None) else inner.count("projection_dim")
    if wide != found["hidden"]:
        c.refuse("projection_dim", f"{wide:g}, but the text is {found['hidden']:g} wide")
    return {"projector": "linear"}


def _shuffled(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """Patches side by side, then one matrix (Idefics 3, SmolVLM)."""
    return {"projector": "linear", "projector_bias": False, "merge": c.count("scale_factor")}


def _merger(extra_norms: bool = False) -> Projector:
    """Qwen-VL's merger; with `deepstack_visual_indexes` one more for each of those layers, each with a wider norm."""

    def join(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
        merge = inner.count("spatial_merge_size")
        named = "hidden_size" if "embed_dim" in inner.model_class.defaults else "out_hidden_size"
        out = inner.count(named)
        if out != found["hidden"]:
            inner.refuse(named, f"{out:g}, but the text is {found['hidden']:g} wide", "the two are one number")
        deep = len(inner.items("deepstack_visual_indexes") or []) if extra_norms else 0
        wider = 2.0 * tower["hidden"] * (merge**2 - 1.0)
        return {"projector": "merger", "merge": merge, "projectors": 1.0 + deep, "projector_vectors": deep * wider}

    return join


def _inverse(c: Config, key: str) -> float:
    """Patches a side that become one: one over a ratio of 1/64 to 1, a half where it is left out; 1 after noting that it is none."""
    ratio = c.number(key, 0.5)
    if 1.0 / 64.0 <= ratio <= 1.0:
        return 1.0 / ratio
    if known(ratio):
        c.refuse(key, f"{ratio:g} is no ratio of a side", "0.5", "more than 1/64, 1 at most")
    return 1.0


def _intern(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """A norm of patches side by side, then two matrices (InternVL)."""
    merge = float(round(_inverse(c, "downsample_ratio")))
    return {"projector": "mlp", "merge": merge, "projector_vectors": 2.0 * tower["hidden"] * merge**2}


def _intern_chat(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:
    """The same in InternVL's own form, which may leave out the last layers of its tower."""
    layer = c.raw("select_layer", -1)
    if layer != -1:
        c.refuse("select_layer", f"{shown(layer)} is not modelled: the tower's last layer is taken", "-1")
    without("ps_version", ("v2", "v1"), "another shuffle of patches")(c, found)
    return _intern(c, inner, tower, found)


def _mean(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """Patches averaged to `mm_tokens_per_image`, a norm, one matrix (Gemma 3)."""
    side, tokens = tower["image_size"] / tower["patch"], c.count("mm_tokens_per_image") ** 0.5
    merge = side / tokens
    if merge != int(merge):
        c.refuse("mm_tokens_per_image", f"{side:g} patches a side are not averaged to {tokens:g}")
    return {"projector": "mean", "projector_bias": False, "merge": merge, "projector_vectors": tower["hidden"]}


def _pooled(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """A norm, a matrix that merges patches, then two (Mistral 3)."""
    return {
        "projector": "pooled", "projector_bias": c.flag("multimodal_projector_bias"), "merge": c.count("spatial_merge_size"),
        "projector_vectors": tower["hidden"],
    }  # fmt: skip


def _adapter(c: Config, inner: Config, tower: Fields, found: Fields) -> Fields:  # noqa: ARG001
    """Patches side by side, two matrices, and one into the text (Llama 4)."""
    merge = _inverse(inner, "pixel_shuffle_ratio")
    wide = inner.count("projector_input_dim")
    others = inner.count("projector_output_dim"), inner.count("vision_output_dim")
    if any(other != wide for other in others) or tower["ffn"] != tower["hidden"] * merge**2:
        inner.refuse("projector_output_dim", "an adapter of unlike widths is not modelled")
    return {"projector": "adapter", "projector_bias": False, "projector_ffn": wide, "merge": merge}


ROWS: Mapping[str, Callable[[Config], Fields]] = {
    "clip": _clip, "siglip": _siglip, "metaclip_2": _clip,
    "llava": _whole(_llava(), "llama", "clip_vision_model"),
    "llava_next": _whole(_llava(newline=True), "llama", "clip_vision_model"),
    "llava_onevision": _whole(_llava(newline=True), "qwen2", "siglip_vision_model"),
    "paligemma": _whole(_linear, "gemma", "siglip_vision_model"),
    "idefics3": _whole(_shuffled, "llama", "idefics3_vision"), "smolvlm": _whole(_shuffled, "llama", "smolvlm_vision"),
    "qwen2_vl": _whole(_merger(), "qwen2_vl_text", "qwen2_vl_vision"),
    "qwen2_5_vl": _whole(_merger(), "qwen2_5_vl_text", "qwen2_5_vl_vision"),
    "qwen3_vl": _whole(_merger(extra_norms=True), "qwen3_vl_text", "qwen3_vl_vision"),
    "qwen3_vl_moe": _whole(_merger(extra_norms=True), "qwen3_vl_moe_text", "qwen3_vl_moe_vision"),
    "qwen3_5": _whole(_merger(), "qwen3_5_text", "qwen3_5_vision"),
    "qwen3_5_moe": _whole(_merger(), "qwen3_5_moe_text", "qwen3_5_moe_vision"),
    "internvl": _whole(_intern, "qwen2", "internvl_vision"),
    "internvl_chat": _whole(_intern_chat, "internlm2", "intern_vit_6b"),
    "gemma3": _whole(_mean, "gemma3_text", "siglip_vision_model"),
    "mistral3": _whole(_pooled, "mistral", "pixtral"),
    "llama4": _whole(_adapter, "llama4_text", "llama4_vision_model"),
}  # fmt: skip
