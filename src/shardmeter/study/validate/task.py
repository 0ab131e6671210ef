"""What is trained for what: only pretraining of decoders can be expressed so far, the rest is named."""

from __future__ import annotations

import re

from shardmeter.study.validate.rows import NotModelled

PRETRAIN = "pretrain"
TASKS: tuple[tuple[str, str, str], ...] = (
    (r"q-?lora", "qlora", "adapters on a quantised base"),
    (r"lora|adapter|peft", "lora", "adapters"),
    (r"clip|dual|contrastive", "dual_encoder", "dual encoders"),
    (r"vision|image|vit\b", "vision", "vision models"),
    (r"sft|fine-?tun|full finetune|instruct", "finetune", "fine-tuning on packed texts"),
    (r"diffusion|dit\b", "diffusion", "diffusion models"),
    (r"^$|pre-?train|^train$", PRETRAIN, ""),
)
"""(pattern in the lower-case text, task, what it needs). The first that is found decides."""

FAMILIES: tuple[tuple[str, str], ...] = (
    (r"mamba|nemotron[ -]?v?3(?!\d)|hybrid|jamba|zamba", "hybrid stacks of attention and state-space layers"),
    (r"deepseek|kimi", "multi-head latent attention with mixture of experts"),
    (r"gpt-oss", "attention in sliding windows"),
    (r"lora", "adapters"),
    (r"clip", "dual encoders"),
    (r"\bvit|deit|swin|beit|\bdino", "vision models"),
    (r"bert", "encoders"),
    (r"\bt5\b|t5-|\bbart\b|switch", "encoder-decoder models"),
    (r"\bdit\b|diffusion|flux", "diffusion models"),
)
"""Families that this version cannot express, by model name."""
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
    """Refuse, by name, the tasks that are not modelled yet."""
    needs = next(needs for _, name, needs in TASKS if name == task)
    if needs:
        raise NotModelled(
            f"{needs} are not modelled yet" if not needs.startswith("fine") else f"{needs} is not modelled yet"
        )


def check_family(model: str) -> None:
    """Refuse, by name, the families that are not modelled yet."""
    plain = model.lower()
    for pattern, family in FAMILIES:
        if re.search(pattern, plain):
            verb = "is" if family.startswith(("multi", "attention")) else "are"
            raise NotModelled(f"{family} {verb} not modelled yet: {model}")
