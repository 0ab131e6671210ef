"""Model families: one file each, found by name. A family turns a Model's numbers into blocks of operations.

A family module offers `blocks(model)`, `operations(model, block, tokens, seq, kernels)`, `training_flops(model, tokens, seq)`,
`activation_bytes(…)` and, if it has blocks with routed experts, `routed_bytes(model, kernels)`; nothing here knows a bandwidth.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName

PLANNED = ("encoder", "vision", "dual_encoder", "multimodal", "encoder_decoder", "diffusion", "hybrid")
"""Families that are named but not modelled yet; they are refused by name."""


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
