"""What is computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re

from shardmeter.study.validate.rows import NotModelled, Unclear


def read_selective(text: str) -> str:
    """What the text says `selective` keeps (`Stack.selective`): alternate, attention, or empty where it does not say."""
    plain = text.lower()
    if re.search(r"\(op\)|save sdpa", plain):
        return "alternate"
    return "attention" if re.search(r"core.?att|attention core", plain) else ""


RULES: tuple[tuple[str, str], ...] = (
    (r"^$|^none", "none"),
    (r"^every-(\d+)$", r"every-\1"),
    (r"offload", "!offloading to the host"),
    (r"full block|block, ?\d+ layers", "!recomputing only the first layers of each stage"),
    (r"^full", "full"),
    (r"minimal", "!the recompute policy of MaxText that keeps matrix products"),
    (r"every other|\(layer\)", "every-2"),
    (r"every n-th", "?every how many layers are recomputed is not stated"),
    (r"^selective|save sdpa|^op(-list)?: ?core_attn$", "selective"),
    (r"^op(-list)?: ?(.+)", r"!recomputing a list of operations (\2)"),
)
"""(pattern in the lower-case text, word of `Plan.recompute`); `!` marks what cannot be expressed, `?` what says too little. The first found decides."""


def read_recompute(text: str) -> str:
    """The word of `Plan.recompute` that `text` means: none, selective, full or every-k.

    A silent source recomputed nothing: with fused attention Megatron's selective policy costs the same time. What
    selective means (core attention, or every second matrix product) is a fact of the stack.
    """
    plain = text.lower()
    for pattern, word in RULES:
        found = re.search(pattern, plain)
        if found:
            policy = found.expand(word)
            if policy.startswith("?"):
                raise Unclear(policy[1:])
            if policy.startswith("!"):
                raise NotModelled(f"{policy[1:]} is not modelled yet")
            return policy
    raise NotModelled(f"recompute policy not known: {text}")
