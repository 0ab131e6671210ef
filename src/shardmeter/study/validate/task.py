"""What is trained for what: pretraining and fine-tuning of decoders, whole or by adapters; the rest is named."""

from __future__ import annotations

import re

from shardmeter import families
from shardmeter.study.validate.rows import NotModelled

PRETRAIN = "pretrain"
TASKS: tuple[tuple[str, str, str], ...] = (
    (r"\brl|reinforce|\bppo|\bgrpo|rollout", "reinforcement", "rollouts of reinforcement learning are out of scope"),
    (r"q-?lora", "qlora", "adapters on a quantised base are not modelled yet"),
    (r"lora|adapter|peft", "lora", ""),
    (r"clip|dual|contrastive", "dual_encoder", ""),
    (r"vision|image|vit\b", "vision", ""),
    (r"sft|fine-?tun|full finetune|instruct|\bdpo\b", "finetune", ""),
    (r"diffusion|dit\b", "diffusion", ""),
    (r"^$|pre-?train|^train$", PRETRAIN, ""),
)
"""(pattern in the lower-case text, task, why it cannot be expressed). The first that is found decides."""

USUAL_RANK = 16
"""Of NVIDIA's recipes (16 or 32; torchtune's have 8): what the rank costs is small beside what freezing saves."""

PACKED_DOCUMENT = 190.0
"""Tokens of a document where fine-tuning packs question answering into sequences: SQuAD's passages have 120 words and its
questions 10 (Rajpurkar 2016 §4), about 1.35 tokens a word, with a template around them."""

MIXTURE = re.compile(r"mixtral|moe|\d+x\d+b|\ba\d+b\b|-a\d+b|grok|dbrx|qwen2-57b")
"""Names of models with routed experts."""


def read_task(text: str) -> str:
    """The canonical task of a text; an empty one is pretraining, an unknown one cannot be expressed."""
    plain = text.lower()
    for pattern, task, _ in TASKS:
        if re.search(pattern, plain):
            return task
    raise NotModelled(f"task not known: {text}")


def check_task(task: str) -> None:
    """Refuse, by name, the tasks that cannot be expressed."""
    why = next(why for _, name, why in TASKS if name == task)
    if why:
        raise NotModelled(why)


def has_reference(text: str) -> bool:
    """Whether a task trains beside a frozen copy of its own model: direct preference optimisation."""
    return re.search(r"\bdpo\b", text.lower()) is not None


def read_trainable(task: str, model: str, lineage: str) -> str:
    """The word of `Plan.trainable`: adapters of the stated rank (`LoRA r16`), else the usual one; NVIDIA's recipes of the
    Megatron lineage put them beside the q k v projection alone."""
    if task != "lora" and "lora" not in model.lower():
        return "all"
    stated = re.search(r"lora.*?\br ?=? ?(\d+)", model.lower())
    rank = int(stated.group(1)) if stated else USUAL_RANK
    return f"lora(r={rank}{',on=qkv' if lineage == 'megatron' else ''})"


def read_document(task: str, lineage: str) -> float | None:
    """Mean length of packed documents: fine-tuning tables of the Megatron lineage pack SQuAD; None = whole sequences attend."""
    return PACKED_DOCUMENT if task in ("lora", "finetune") and lineage == "megatron" else None


def check_family(model: str) -> None:
    """Refuse, by name, the families that are not modelled yet."""
    refused = families.unbuilt(model)
    if refused:
        raise NotModelled(f"{refused}: {model}")
