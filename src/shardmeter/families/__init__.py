"""Model families: one file each, found by name. A family turns a Model's numbers into blocks of operations.

A family module offers `blocks(model)`, `operations(model, block, tokens, seq, kernels)`, `training_flops(model, tokens, seq)`,
`activation_bytes(…)` and, if it has blocks with routed experts, `routed_bytes(model, kernels)`; nothing here knows a bandwidth.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from types import ModuleType

from shardmeter.core.errors import UnknownName

PLANNED = ("encoder", "vision", "dual_encoder", "multimodal", "encoder_decoder", "diffusion")
"""Families that are named but not modelled yet; they are refused by name."""
UNBUILT: tuple[tuple[str, str], ...] = (
    (r"nemotron[ -]?v?3[ -]?ultra", "hybrid stacks whose order of layers is not published"),
    (r"zamba", "stacks of recurrences that share their attention"),
    (r"deepseek-?v3\.2|deepseek-?v4|glm-?5", "sparse attention with an indexer"),
    (r"minimax-?(text-?)?0?1", "stacks with lightning attention"),
    (r"clip", "dual encoders"),
    (r"\bvit|deit|swin|beit|\bdino", "vision models"),
    (r"bert", "encoders"),
    (r"\bt5\b|t5-|\bbart\b|switch", "encoder-decoder models"),
    (r"\bdit\b|diffusion|flux", "diffusion models"),
)
"""(pattern in the lower-case name of a model, the family it tells of): what this version cannot express."""


def names() -> tuple[str, ...]:
    """The families built, in alphabetical order."""
    return tuple(
        sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_") and m.name != "operations")
    )


@functools.cache
def family(name: str) -> ModuleType:
    """The module of a family. Raises UnknownName."""
    if name not in names():
        raise UnknownName("family", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def unbuilt(model: str) -> str:
    """What is not modelled yet of a model, going by its name: `vision models are not modelled yet`; empty if nothing is."""
    plain = model.lower()
    for pattern, kind in UNBUILT:
        if re.search(pattern, plain):
            return f"{kind} {'is' if kind.startswith('sparse') else 'are'} not modelled yet"
    return ""
