"""What the numbers of records and scenarios may be, beyond their dimension (`core.quantity.BOUNDS`): one table, for inline
parts, overrides, files and catalog rows alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from shardmeter import families
from shardmeter.core.errors import shown
from shardmeter.core.quantity import BOUNDS
from shardmeter.specs.model import LETTERS


class Bound(NamedTuple):
    """Least and most of a number in SI units, and whether it counts whole things."""

    least: float
    most: float
    whole: bool = False


GPUS = 1e7
"""Accelerators of the largest fleet."""
ISLANDS = 1_000.0
"""Islands of the largest fleet: what joins them is a table of pairs."""
STAGES = 10_000.0
"""Layers, pipeline stages and chunks set the length of an axis: there are no more."""

_SHARE = Bound(1e-3, 1.0)
_OF_LISTED = Bound(1e-3, 1.5)
"""A share of a listed rate, which a part passes that clocks above its listed boost."""
_LOSS = Bound(0.0, 1.0)
_FEW = Bound(0.0, 1e4)
FIELDS: Mapping[str, Bound] = {
    # what counts things
    "layers": Bound(1, STAGES, True),
    "hidden": Bound(1, 1e7, True),
    "ffn": Bound(1, 1e8, True),
    "heads": Bound(1, 1e6, True),
    "kv_heads": Bound(1, 1e6, True),
    "head_dim": Bound(1, 1e6, True),
    "vocab": Bound(0, 1e9, True),
    "image_size": Bound(0, 1e6, True),
    "patch": Bound(0, 1e5, True),
    "channels": Bound(1, 1e5, True),
    "class_tokens": Bound(0, 1e4, True),
    "segments": Bound(0, 1e4, True),
    "projection": Bound(0, 1e6, True),
    "merge": Bound(1, 100, True),
    "images": Bound(1, 1e4, True),
    "encoder_layers": Bound(0, STAGES, True),
    "target_length": Bound(0, 1e10, True),
    "source_length": Bound(0, 1e10, True),
    "context": Bound(0, 1e10, True),
    "experts": Bound(0, 1e6, True),
    "top_k": Bound(0, 1e6, True),
    "moe_ffn": Bound(0, 1e8, True),
    "shared_ffn": Bound(0, 1e8, True),
    "dense_first": Bound(0, STAGES, True),
    "window": Bound(0, 1e10, True),
    "q_lora_rank": Bound(0, 1e7, True),
    "kv_lora_rank": Bound(0, 1e7, True),
    "qk_rope_head_dim": Bound(0, 1e6, True),
    "v_head_dim": Bound(0, 1e6, True),
    "moe_latent": Bound(0, 1e7, True),
    "mtp": Bound(0, 100, True),
    "state_heads": Bound(0, 1e6, True),
    "state_head_dim": Bound(0, 1e6, True),
    "state_dim": Bound(0, 1e6, True),
    "state_groups": Bound(0, 1e6, True),
    "state_chunk": Bound(1, 1e6, True),
    "step_rank": Bound(0, 1e6, True),
    "conv_width": Bound(1, 1000, True),
    "norms_per_layer": Bound(0, 100, True),
    "parameters": Bound(1, 1e15, True),
    "processors": Bound(0, 1e6, True),
    "scale_up_domain": Bound(1, GPUS, True),
    "torus_axes": Bound(0, 3, True),
    "torus_closes": Bound(2, GPUS, True),
    "node_size": Bound(1, 1e4, True),
    "accelerators": Bound(1, 1e4, True),
    "nics_per_node": Bound(1, 1e4, True),
    "year": Bound(0, 9999, True),
    "whole_bytes": _FEW,
    "cut_bytes": _FEW,
    "buffer_share": _FEW,
    "launches_forward": Bound(0, 1e6),
    "launches_backward": Bound(0, 1e6),
    # shares of a rate: nothing reaches none of it
    "memory_share": _SHARE,
    "matmul_share": _OF_LISTED,
    "attention_share": _SHARE,
    "scale_up_share": _SHARE,
    "scale_up_reduce_share": Bound(1e-3, 2.0),
    "share": _SHARE,
    "forward": _SHARE,
    "backward": _SHARE,
    # what fails at once never runs
    "mtbf": Bound(1.0, 1e10),
    # a whole over a part of it
    "pue": Bound(1.0, 10.0),
    # shares that may be nothing
    "contention": _LOSS,
    "chunk_loss": _LOSS,
    "jitter": _LOSS,
    "fragmentation": _LOSS,
}
"""By the name of a field, which means the same in every record."""
ALWAYS = frozenset({"pue", "mtbf"})
"""Fields that are bounded whatever their dimension."""
SMALL = frozenset({"whole_bytes", "cut_bytes", "buffer_share"})
"""Sizes of one element of something, which may be nought."""
_POSITIVE = ("bandwidth", "size", "flops_rate", "power", "ratio", "money", "electricity", "storage")
"""Dimensions of which 0 makes no sense."""


def bound(field: str, dimension: str) -> Bound:
    """What the field of a record may be; `context` of a stack is a size, and bounded as one."""
    if field in FIELDS and (dimension in ("count", "fraction") or field in SMALL | ALWAYS):
        return FIELDS[field]
    least, most = BOUNDS[dimension]
    return Bound(least if dimension in _POSITIVE else 0.0, most)


def broken(value: float, limits: Bound) -> tuple[str, str]:
    """What is wrong with a number, and the way out; two empty texts if nothing is."""
    least, most = limits.least, limits.most
    if limits.whole and value != round(value):
        below = float(int(value))
        near = " or ".join(f"{one:g}" for one in (below, below + 1.0) if least <= one <= most)
        return f"{value:g} is no whole number", f"use {near}" if near else f"from {least:g} to {most:g}"
    if value < least:
        if value == 0.0:
            return "0 makes no sense here", f"at least {least:g}"
        return f"{value:g} is too small", f"at least {least:g}"
    if value > most:
        return f"{value:.15g} is beyond reason", f"at most {most:.15g}"
    return "", ""


def heads(fields: Mapping[str, Any]) -> tuple[str, str]:
    """What is wrong with the heads of a model, and the way out; two empty texts if nothing is."""
    whole, shared = fields.get("heads"), fields.get("kv_heads")
    if not whole or not shared or whole % shared == 0:
        return "", ""
    legal = [d for d in range(1, int(min(whole, 1e6)) + 1) if whole % d == 0]
    near = sorted({*[d for d in legal if d <= shared][-1:], *[d for d in legal if d >= shared][:1]})
    says = f"{whole:g} heads cannot share {shared:g} key-value heads evenly: kv_heads must divide heads"
    return says, f"kv_heads: {' or '.join(f'{d:g}' for d in near)}"


def experts(fields: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What no mixture of experts can be, as (field, what is wrong, way out): experts without a width, more experts chosen than
    there are, no layer of them."""
    found, chosen = fields.get("experts") or 0.0, fields.get("top_k") or 0.0
    if not found:
        named = [name for name in ("top_k", "moe_ffn", "shared_ffn", "dense_first") if fields.get(name)]
        return [(name, "is given, but experts is not", "say experts: N") for name in named]
    needed = [name for name in ("top_k", "moe_ffn") if not fields.get(name)]
    bad = [(name, "must be above zero in a model with experts", f"say {name}: N") for name in needed]
    if chosen > found:
        says = f"{chosen:g} experts for a token, but there are {found:g}"
        bad.append(("top_k", says, f"top_k: {found:g} or fewer"))
    layers = fields.get("layers")
    if layers and (fields.get("dense_first") or 0) >= layers:
        bad.append(("dense_first", "leaves no layer with experts", f"dense_first: {layers - 1} or fewer"))
    return bad


def layers(fields: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What no list of layers can be, as (field, what is wrong, way out): letters that mean nothing, layers of nothing, kinds
    whose numbers are missing."""
    bad = []
    for name, letters in LETTERS.items():
        wrong = sorted(set(fields.get(name) or "") - set(letters))
        if wrong:
            bad.append((name, f"{shown(''.join(wrong))} is no kind of layer", f"the letters are: {', '.join(letters)}"))
    mixers, mlps = fields.get("mixers") or "f", fields.get("mlps") or ""
    if bad:
        return bad
    count = int(fields.get("layers") or 0)
    empty = [at for at in range(count) if mlps and mixers[at % len(mixers)] == mlps[at % len(mlps)] == "-"]
    if empty:
        bad.append(("mlps", f"layer {empty[0]} has neither mixer nor MLP", "say a letter for one of them"))
    if "e" in mlps and not fields.get("experts"):
        bad.append(("mlps", "names layers with experts, but experts is not given", "say experts: N"))
    if {"w", "c"} & set(mixers) and not fields.get("window"):
        bad.append(("window", "is missing: there are layers that see a part of the sequence", "say window: N"))
    if {"m", "d", "s"} & set(mixers):
        bad += [
            (name, "must be above zero in a model with recurrent layers", f"say {name}: N")
            for name in ("state_heads", "state_head_dim", "state_dim", "state_groups", *["step_rank"] * ("s" in mixers))
            if not fields.get(name)
        ]
    if (fields.get("qk_rope_head_dim") or 0.0) > (fields.get("head_dim") or math.inf):
        says = f"{fields['qk_rope_head_dim']:g} rotated elements in a head of {fields['head_dim']:g}"
        bad.append(("qk_rope_head_dim", says, "head_dim is the whole width of a query head"))
    return bad


def model_faults(fields: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What no model can be, as (field, what is wrong, way out; both empty if nothing is)."""
    return [
        ("kv_heads", *heads(fields)), ("family", *family(fields.get("family") or "decoder")), *experts(fields),
        *layers(fields), *parts(fields),
    ]  # fmt: skip


NEEDED: Mapping[str, tuple[str, ...]] = {
    "vision": ("image_size", "patch"), "diffusion": ("image_size", "patch"), "dual_encoder": ("vision", "projection"),
    "multimodal": ("vision",), "encoder_decoder": ("encoder_layers",),
}  # fmt: skip
"""What a family cannot be without, by family."""


def parts(fields: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What no model of several parts, and none of images, can be."""
    kind = fields.get("family") or "decoder"
    bad = [
        (name, f"must be given in a model of family {kind}", f"say {name}")
        for name in NEEDED.get(kind, ())
        if not fields.get(name)
    ]
    size, patch, merge = fields.get("image_size"), fields.get("patch"), fields.get("merge") or 1.0
    tower = fields.get("vision")
    if size and patch and size % patch:
        below = size - size % patch
        bad.append(("image_size", f"patches of {patch:g} do not divide an image of {size:g}", f"image_size: {below:g}"))
    if tower is not None and kind not in ("dual_encoder", "multimodal"):
        bad.append(("vision", f"a model of family {kind} has no image tower", "family: multimodal, or dual_encoder"))
    if tower is not None and tower.family != "vision":
        bad.append(("vision", f"{tower.name} is of family {tower.family}", "name a row of family vision"))
    if tower is not None and tower.patch and (tower.image_size / tower.patch) % merge:
        says = f"{tower.image_size / tower.patch:g} patches a side are not merged by {merge:g}"
        bad.append(("merge", says, "an image_size that is a multiple of patch·merge"))
    if kind == "recurrent":
        others = [name for name in ("mixers", "experts", "mtp") if fields.get(name)]
        bad += [(name, "a model of family recurrent has LSTM layers, and MLPs by `mlps`", f"leave {name} out")
                for name in others]  # fmt: skip
    if not fields.get("vocab", 1.0) and kind not in ("vision", "diffusion"):
        bad.append(("vocab", "0 makes no sense here", "at least 1"))
    return bad


def family(name: str) -> tuple[str, str]:
    """What is wrong with the family of a model, and the way out; two empty texts if nothing is."""
    if name == "decoder":  # the usual one needs no look at the folder
        return "", ""
    built = families.names()
    if name in built:
        return "", ""
    listed = f"the families are: {', '.join(built)}"
    return f"unknown family {shown(name)}", listed
