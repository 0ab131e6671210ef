"""Model families: one file each, found by name. A family turns a Model's numbers into blocks of operations.

A family module offers `blocks(model)`, `parameters(model)`, `operations(model, block, tokens, seq, kernels)`, `training_flops(model, tokens, seq)`,
`activation_bytes(…)` and, if it has blocks with routed experts, `routed_bytes(model, kernels)`; if it writes token by token,
`cached(model, block, seen)`. Nothing here knows a bandwidth.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import re
from types import ModuleType

import numpy as np

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count
from shardmeter.specs.demands import FORWARD
from shardmeter.specs.model import Model

UNBUILT: tuple[tuple[str, str], ...] = (
    (r"nemotron[ -]?v?3[ -]?ultra", "hybrid stacks whose order of layers is not published"),
    (r"zamba", "stacks of recurrences that share their attention"),
    (r"deepseek-?v3\.2|deepseek-?v4|glm-?5", "sparse attention with an indexer"),
    (r"minimax-?(text-?)?0?1", "stacks with lightning attention"),
    (r"swin|convnext|resnet", "vision models of windows, pyramids or convolutions"),
    (r"modernbert|deberta", "encoders with attention in windows or by distance"),
    (r"switch", "encoder-decoder models with routed experts"),
    (r"stable[ -]?diffusion|sdxl|\bsd3|flux", "diffusion models with a text inside"),
)
"""(pattern in the lower-case name of a model, the family it tells of): what this version cannot express."""


@functools.cache
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


def sized(model: Model, seq: Count) -> Model:
    """The model with the lengths that only the run knows, for families that ask for them (`sized(model, seq)`)."""
    own = getattr(family(model.family), "sized", None)
    found: Model = model if own is None else own(model, seq)
    return found


def given_sequence(model: Model) -> Count | None:
    """Tokens of a sequence, where the model gives them and not the run (`sequence(model)` of its family); None elsewhere."""
    own = getattr(family(model.family), "sequence", None)
    found: Count | None = None if own is None else own(model)
    return found


def sample(model: Model) -> str:
    """What one sample of a model is called, in the plural (`SAMPLE` of its family): sequences, images, pairs."""
    return str(getattr(family(model.family), "SAMPLE", "sequences"))


def writes(model: Model) -> bool:
    """Whether a model writes its output token by token (`cached(model, block, seen)` of its family): what it keeps meanwhile."""
    return hasattr(family(model.family), "cached")


def assumed(model: Model) -> tuple[str, ...]:
    """What is taken for granted of every model of a family (`ASSUMED`), one sentence each."""
    found: tuple[str, ...] = getattr(family(model.family), "ASSUMED", ())
    return found


def parameters(model: Model) -> Count:
    """All parameters, a tied matrix counted once, without prediction modules: the count that models are known by."""
    blocks = family(model.family).blocks(changed(model, mtp=0))
    whole: Count = plain_sum((block.count * block.parameters for block in blocks), 0.0)
    return whole


def active_parameters(model: Model) -> Count:
    """Parameters that one token passes, the embedding whole: those of the same model with no other experts than the token is sent
    to. So the rows that the router keeps for the others are not counted, though they are multiplied (some 0.1 %)."""
    return parameters(changed(model, experts=model.top_k))


def image_tokens(model: Model) -> Count | None:
    """Tokens of one image of a model, or of its image tower; None where it has none."""
    return given_sequence(model if model.vision is None else model.vision)


def unbuilt(model: str) -> str:
    """What is not modelled yet of a model, going by its name: `vision models are not modelled yet`; empty if nothing is."""
    plain = model.lower()
    for pattern, kind in UNBUILT:
        if re.search(pattern, plain):
            return f"{kind} {'is' if kind.startswith('sparse') else 'are'} not modelled yet"
    return ""


def matrices(model: Model, of: tuple[str, ...] | None = None) -> tuple[tuple[Count, Count, Count], ...]:
    """(rows, columns, how many) of every kind of matrix, read off the products of one token; the embedding's among them. `of`: only
    those of the blocks with such names. Leaves out: vectors, learned positions and whatever else lies in no product."""
    model = sized(model, 1.0)
    try:
        return _matrices(model, of)
    except TypeError:  # arrays among its numbers: it has no hash
        return _matrices.__wrapped__(model, of)


@functools.lru_cache(maxsize=64)
def _matrices(model: Model, of: tuple[str, ...] | None) -> tuple[tuple[Count, Count, Count], ...]:
    kind = family(model.family)
    found: dict[tuple[Count, Count], Count] = {}
    for block in kind.blocks(model):
        if of is not None and block.name not in of:
            continue
        part = block.part or model
        for op in kind.operations(model, block.name, 1.0, 1.0, "eager"):
            if op.kind == "gemm" and op.phase == FORWARD and not op.split.startswith("batch"):
                found[op.k, op.n] = found.get((op.k, op.n), 0.0) + float(block.count) * op.repeats
        if block.name == "embedding" and not part.tied and np.all(block.parameters >= part.vocab * part.hidden):
            found[part.vocab, part.hidden] = found.get((part.vocab, part.hidden), 0.0) + 1.0
    return tuple((rows, columns, many) for (rows, columns), many in found.items())


CUTTABLE = ("decoder", "encoder", "diffusion", "recurrent")
"""Families that are one row of layers: `block_of` cuts it."""


def block_of(model: Model, blocks: int) -> Model:
    """One of so many blocks of a model's layers, with an embedding and a head of its own: the largest, where they are unlike.
    Layers that are dense first go to the first block; the others have none."""
    if blocks == 1:
        return model
    layers = math.ceil(model.layers / blocks)
    dense = 0 if model.dense_first < model.layers - layers else model.dense_first
    return changed(model, layers=layers, dense_first=dense, parameters=None, mtp=0)
