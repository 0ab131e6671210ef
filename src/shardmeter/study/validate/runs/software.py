"""The software of a run: the stack of its framework by the rules of measured runs, or the usual one of its year and accelerator.

| accelerator | until 2022 | 2023 | from 2024 |
|---|---|---|---|
| GPUs, more than 16 | Megatron-LM of 2021, of 2022 | Megatron-LM of 2023 | Megatron-Core of 2024, of 2025 |
| GPUs, up to 16 | PyTorch FSDP, eager | PyTorch FSDP | PyTorch FSDP |
| TPU | MaxText | MaxText | MaxText |

What has no row of its own is stood in for as among measured runs (nearest lineage, then year), with what is published of its code laid over.
Attention, where the code's is not known: the fused softmax until late 2022, FlashAttention 1 until mid-2023, then 2. Two towers and
images run on eager PyTorch, `open_clip` and `timm`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import changed
from shardmeter.study.validate.rows import NotModelled
from shardmeter.study.validate.stack import StackReading, read_stack

OWN: tuple[tuple[str, str, str, str, str], ...] = (
    # framework                                   id               lineage          attention  kernels
    (r"llm\.c\b", "llm-c-2024", "fsdp", "cudnn", "fused"),
    (r"nanochat|modded-nanogpt", "nanochat-2025", "fsdp", "fa3", "compiled"),
    (r"hai-llm", "hai-llm-2024", "megatron", "", ""),
    (r"gpt-neox", "gpt-neox-2022", "megatron-like", "?", "fused"),
    (r"megatron-deepspeed|bigscience", "mds-2022", "megatron-like", "?", ""),
    (r"megatron|metaseq|gigatron|fast-llm|tensorrt|nemo", "", "megatron", "?", ""),
    (r"open_?clip", "openclip-2021", "eager", "", ""),
    (r"lit-?gpt.*flash", "fsdp-2024", "fsdp", "fa2", "fused"),
    (r"lit-?gpt|lit-?llama", "fsdp-2024", "fsdp", "fa2", "fused_norm"),
    (r"levanter|t5x|jax|pathways|big_vision|mesh transformer|maxtext|flax", "maxtext-2024", "jax", "", ""),
    (r"olmo-core|torch\.?compile", "fsdp-2024", "fsdp", "fa2", "compiled"),
    (r"olmo|megablocks|corenet|fsdp", "fsdp-2024", "fsdp", "fa2", "eager"),
    (r"foundry|composer|titan|nanotron|primus|internevo", "", "", "", ""),
    (r"deepspeed|hf trainer|axolotl|pytorch|accelerate|transformers", "ds-zero3-2022", "fsdp", "", ""),
)  # fmt: skip
"""(pattern in the framework, stack id or that of the year, lineage, attention, kernels); an empty lineage is `validate.stack`'s; `?`:
the attention of the time."""
FACTS: Mapping[str, Mapping[str, Any]] = {
    "hai-llm-2024": {"batch_overlap": True, "expert_copies": "nodes", "contention": 20.0 / 132.0},
}  # fmt: skip
"""What is published of a trainer that has no row, laid over its stand-in: DeepSeek-V3 report §3.2 (all-to-all behind another
micro-batch, a token sent once a node, 20 of 132 multiprocessors for communication)."""
BY_YEAR: tuple[tuple[float, str], ...] = (
    (2022.0, "mlm-2021"), (2023.0, "mlm-2022"), (2024.0, "mlm-2023"), (2025.0, "mcore-2024"), (2100.0, "mcore-2025"),
)  # fmt: skip
"""(until, the Megatron-LM of that time)."""
ATTENTION: tuple[tuple[float, str], ...] = ((2022.9, ""), (2023.6, "fa1"), (2024.0, "fa2"))
"""(until, kernel) of what the Megatron lineage ran; later ones have their own."""
ALONE = 16.0
"""Accelerators up to which a run without a framework is one team's, on PyTorch."""


def read_software(
    framework: str, when: float, accelerator: str, gpus: float | None, family: str
) -> tuple[StackReading, str]:
    """(the stack, what was taken for granted of it). Raises NotModelled."""
    plain = framework.lower()
    year = int(when)
    for pattern, id_, lineage, attention, kernels in OWN:
        if not re.search(pattern, plain):
            continue
        if not lineage:
            return read_stack(framework, year, ""), ""
        kernel = _flash(plain, when) or (attention_of(when) if attention == "?" else attention)
        reading = StackReading(id=id_ or by_year(when), lineage=lineage, year=year, attention=kernel, kernels=kernels)
        return reading, ""
    usual = _usual(when, accelerator, gpus, family)
    return usual, f"the framework is {'not known' if plain else 'not stated'}: {usual.id}, usual in {year}"


def known_framework(text: str) -> str:
    """The name of a trainer that a text holds as a word of its own; empty where it holds none."""
    found = re.search(r"llm\.c\b|nanochat|modded-nanogpt|open_?clip", text.lower())
    return found[0] if found else ""


def _flash(framework: str, when: float) -> str:
    """The version of FlashAttention that a framework's text names or, if none, the one of its time."""
    if "flash" not in framework:
        return ""
    stated = re.search(r"flash-?\s?attention-?\s?([123])", framework)
    return f"fa{stated[1]}" if stated else "fa1" if when < 2023.6 else "fa2"


def _usual(when: float, accelerator: str, gpus: float | None, family: str) -> StackReading:
    year = int(when)
    if accelerator.startswith("TPU"):
        return StackReading(id="maxtext-2024", lineage="jax", year=year)
    if accelerator.startswith(("Gaudi", "Trainium")):
        raise NotModelled(f"the software of {accelerator} is not stated")
    if family in ("dual_encoder", "vision"):
        return StackReading(id="openclip-2021", lineage="eager", year=year)
    if (gpus is not None and gpus <= ALONE) or family not in ("decoder", "encoder"):
        reading = StackReading(id="fsdp-2024", lineage="fsdp", year=year)
        return reading if when >= 2023.6 else changed(reading, attention="unfused", kernels="eager")
    return StackReading(id=by_year(when), lineage="megatron", year=year, attention=attention_of(when))


def by_year(when: float) -> str:
    """The Megatron-LM of a time."""
    return next(id_ for until, id_ in BY_YEAR if when < until)


def attention_of(when: float) -> str:
    """The attention kernel of a time; empty for the stack's own."""
    return next((kernel for until, kernel in ATTENTION if when < until), "")
