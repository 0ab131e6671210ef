"""What is computed again in the backward pass instead of being kept."""

from __future__ import annotations

import re

from shardmeter.strategies.recompute import OPERATIONS
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
    (r"offload", "!offloading chosen products of a layer, and recomputing the others,"),
    (r"block,? ?(\d+) layers", r"first-\1"),
    (r"full block", "?how many layers are recomputed is not stated"),
    (r"^full", "full"),
    (r"minimal", "!the recompute policy of MaxText that keeps matrix products"),
    (r"every other|\(layer\)", "every-2"),
    (r"every n-th", "?every how many layers are recomputed is not stated"),
    (r"^selective|save sdpa|^op(-list)?: ?core_attn$", "selective"),
    (r"^op(-list)?: ?(.+)", r"=\2"),
)
"""(pattern in the lower-case text, word of `Plan.recompute`); `!` marks what cannot be expressed, `?` what says too little, `=` a
list of operations, `first-N` a number of layers in each stage. The first found decides."""


def read_recompute(text: str, layers: float = 1.0) -> str:
    """The word of `Plan.recompute` that `text` means; `layers` are those of one stage (one chunk of an interleaved one).

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
            return _listed(policy[1:]) if policy.startswith("=") else _first(policy, layers)
    raise NotModelled(f"recompute policy not known: {text}")


def _listed(text: str) -> str:
    """A list of operations in the order of `strategies.recompute`."""
    words = {word for word in re.split(r"[+,;\s]+", text) if word}
    strange = sorted(words - set(OPERATIONS))
    if strange or not words:
        raise NotModelled(f"recomputing {', '.join(strange) or 'an empty list'} by name is not modelled yet")
    return "+".join(word for word in OPERATIONS if word in words)


def _first(policy: str, layers: float) -> str:
    """The first N layers of each stage as N of its many; any other policy as it is."""
    if not policy.startswith("first-"):
        return policy
    count = int(policy.partition("-")[2])
    if not 1 <= count <= layers:
        raise Unclear(f"{count} layers are recomputed of {layers:g} in a stage")
    if layers != int(layers):
        raise NotModelled(f"recomputing {count} layers of stages of unequal length is not modelled yet")
    return f"{count}-of-{layers:.0f}"
