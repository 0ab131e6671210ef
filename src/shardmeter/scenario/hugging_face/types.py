"""Model types: which function reads each, which are the same thing under another name, which are refused and why."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from shardmeter.scenario.hugging_face.config import Config
from shardmeter.scenario.hugging_face.defaults import table

Reader = Callable[[Config], dict[str, Any]]

SAME: Mapping[str, str] = {
    "gpt-sw3": "gpt2", "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "gemma3n_text_only": "gemma3_text",
    "kimi_k2": "deepseek_v3", "moonlight": "deepseek_v3", "phi-msft": "phi", "stablelm-epoch": "stablelm_epoch",
    "Yi": "yi", "InternLM": "internlm", "OLMo": "hf_olmo", "bailing_moe_lite": "bailing_moe",
    "mixformer-sequential": "phi", "codellama": "llama", "qwen2_5": "qwen2",
}  # fmt: skip
"""Model types that are another one under an older or a vendor's name."""


@functools.cache
def readers() -> Mapping[str, Reader]:
    """What reads each model type."""
    from shardmeter.scenario.hugging_face import (
        decoders,
        diffusers,
        encoders,
        hybrids,
        images,
        latents,
        mixtures,
        multimodal,
        published,
    )

    found: dict[str, Reader] = {}
    for group in (decoders, published, mixtures, latents, hybrids, encoders, images, multimodal, diffusers):
        found |= group.ROWS
    return found


def named(data: Mapping[str, Any], said: str) -> str:
    """The model type under which a file is read that says `said`: another one where that name stands for several things, or where
    the file's own form has no name."""
    if "ssm_cfg" in data and not said:
        return "state-spaces"  # Mamba as its makers write it
    if said == "hunyuan":
        experts = data.get("num_experts", 1)
        return "hunyuan_v1_moe" if isinstance(experts, int) and experts > 1 else "hunyuan_v1_dense"
    if said == "git" and data.get("residual_moe"):
        return "grok-2"  # its file has the type of another model
    return SAME.get(said, said)


_ENDS = re.compile(r"(For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|WithLMHead\w*|Model|Backbone)$")


def by_architecture(data: Mapping[str, Any]) -> str:
    """The model type that an architecture's name tells, where the file names no type: `Qwen2MoeForCausalLM` is qwen2_moe."""
    named = data.get("architectures")
    name = named[0] if isinstance(named, list) and named else named
    if not isinstance(name, str):
        return ""
    wanted = _plain(_ENDS.sub("", name))
    spelled = {_plain(kind): kind for kind in readers()}
    if name.endswith("ForCausalLM") and f"{wanted}text" in spelled:
        return spelled[f"{wanted}text"]
    return spelled.get(wanted, "")


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def in_library(kind: str) -> bool:
    """Whether the library has a class of a model type that nothing here reads."""
    return kind in table()["others"] or kind in table()["types"]


def library_types() -> tuple[str, ...]:
    """Model types whose classes the table of defaults should have."""
    from shardmeter.scenario.hugging_face.images import TOWERS

    return tuple(sorted({*readers(), *TOWERS, "clip_text_model", "siglip_text_model"}))
