"""Diffusion transformers as the library diffusers writes them: `_class_name` in place of a model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.decoder import without
from shardmeter.scenario.hugging_face.layers import Fields

FREQUENCIES = 256.0


def _dit(c: Config) -> Fields:
    """DiT: every layer with a time-step and class embedding of its own, which the released code shares."""
    heads, each = (
        c.count("num_attention_heads", 16.0, "class default"),
        c.count("attention_head_dim", 72.0, "class default"),
    )
    layers, classes = (
        c.count("num_layers", 28.0, "class default"),
        c.count("num_embeds_ada_norm", 1000.0, "class default"),
    )
    channels = c.count("in_channels", 4.0, "class default")
    hidden = heads * each
    out = c.count("out_channels", channels, "= in_channels")
    for check in (
        without("attention_bias", (True,), "attention without biases"),
        without("norm_type", ("ada_norm_zero",), "another modulation"),
        without("norm_elementwise_affine", (False,), "norms with weights"),
    ):
        check(c, {})
    if out != 2.0 * channels:
        c.refuse("out_channels", f"{out:g}, where {2.0 * channels:g} are modelled: noise and its variance")
    own = FREQUENCIES * hidden + hidden * hidden + 2.0 * hidden + (classes + 1.0) * hidden
    c.asked |= {"activation_fn", "norm_num_groups"}
    c.report.notes.append(
        f"diffusers gives every layer a time-step and class embedding of its own: {(layers - 1.0) * own:,.0f} parameters more "
        f"than the released DiT, which shares one (--set model.extra=0)"
    )
    return {
        "family": "diffusion", "layers": int(layers) if known(layers) else 1, "hidden": hidden, "heads": heads,
        "kv_heads": heads, "head_dim": each, "ffn": 4.0 * hidden, "vocab": classes, "mlp": "plain", "norm": "layer_plain",
        "positions": "none", "attention_bias": True, "output_bias": True, "mlp_bias": True,
        "image_size": c.count("sample_size", 32.0, "class default"), "patch": c.count("patch_size", 2.0, "class default"),
        "channels": channels, "extra": (layers - 1.0) * own,
    }  # fmt: skip


def _older(c: Config) -> Fields:
    """The class that DiT was published with, which is also a piece of U-Nets."""
    if c.raw("norm_type", "layer_norm") != "ada_norm_zero" or c.raw("cross_attention_dim", None) is not None:
        c.refuse(
            "_class_name",
            "only DiT's own layers are modelled of this class (norm_type ada_norm_zero, no cross-attention)",
        )
        return {}
    return _dit(c)


ROWS: Mapping[str, Callable[[Config], Fields]] = {"DiTTransformer2DModel": _dit, "Transformer2DModel": _older}
