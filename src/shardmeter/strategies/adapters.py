"""What is trained: everything, some blocks, or low-rank adapters on frozen weights (Hu 2022; Howard 2018 on frozen blocks).

A frozen linear layer has no weight gradient; its input gradient is needed only where something before it is trained. Frozen
parameters have no gradient, master or moments, are reduced by nobody and, where parameters are sharded, still travel. lora(r=N)
freezes the model and puts a pair of products, k × N and N × n, beside every linear layer of the blocks, or those of `on`.
Layers before everything trained run no backward and keep nothing. Leaves out: where in a pipeline the frozen layers lie (every
stage takes the mean layer), inputs that a frozen layer with a backward need not keep, quantised frozen weights, adapters on routed experts.
"""

from __future__ import annotations

import functools
import re

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Fraction
from shardmeter.families.operations import Block, is_layer, matmul, streamed
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute

NOTHING = ""
"""The word of a plan that trains nothing: a model that runs forward only. No scenario can say it."""
BLOCKS = ("embedding", "layer", "head")
PARTS = ("vision", "projector", "text", "encoder", "decoder")
"""Words of the parts that a model of several may have; which it has is a rule's business."""
ADD = (6.0, 6.0)
"""Bytes per element to add an adapter's output to its layer's, and its input gradient to its layer's."""
_QKV = ("qkv projection", "latent projection", "query projection", "key and value projection")
BESIDE: dict[str, tuple[str, ...]] = {
    "qkv": _QKV,
    "attention": (*_QKV, "output projection", "state projection", "state output", "gate projection", "recurrence"),
    "mlp": ("mlp up", "mlp down", "shared up", "shared down"),
}
"""Linear layers that have adapters, by the word of `on`; without it, every one."""
_LORA = re.compile(rf"lora\(r=([1-9][0-9]{{0,5}})(?:,on=({'|'.join(BESIDE)}))?\)")
_RANGE = re.compile(r"layer:([0-9]{1,5})(?:-([0-9]{1,5}))?")


@record
class Trained:
    """What a word of `Plan.trainable` means. `rank` > 0: adapters of that rank and nothing else."""

    rank: int = 0
    beside: tuple[str, ...] = ()
    """Labels of the products that have adapters; empty = all."""
    blocks: tuple[str, ...] = BLOCKS
    whole: bool = False
    """Everything."""
    spans: tuple[tuple[int, int], ...] = ()
    """Ranges of trained layers, (first, last), ascending and apart; empty = all layers or none, as `blocks` says."""


@functools.cache
def trained(text: str) -> Trained:
    """The meaning of `all`, `lora(r=16)`, `lora(r=16,on=qkv)`, or names joined by +: embedding, layer, head, layer:24-31; of a
    model of several parts those too.

    Raises UnknownName."""
    if text == "all":
        return Trained(whole=True)
    if text == NOTHING:
        return Trained(blocks=())
    lora = _LORA.fullmatch(text)
    if lora:
        return Trained(rank=int(lora.group(1)), beside=BESIDE.get(lora.group(2), ()), blocks=())
    blocks: list[str] = []
    spans: list[tuple[int, int]] = []
    for name in text.split("+"):
        span = _RANGE.fullmatch(name)
        if span:
            first, last = int(span.group(1)), int(span.group(2) or span.group(1))
            if last < first:
                raise UnknownName("trainable", name, (f"layer:{last}-{first}",))
            spans.append((first, last))
        elif name not in (*BLOCKS, *PARTS):
            raise UnknownName("trainable", name, ("all", "lora(r=16)", *BLOCKS, *PARTS, "layer:0-7"))
        else:
            blocks.append(name)
    if "layer" in blocks:  # all of them, whatever else is said
        spans = []
    elif spans:
        blocks.append("layer")
    return Trained(blocks=tuple(blocks), spans=_united(spans))


def _united(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same layers as ascending ranges that neither overlap nor touch."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def weight_share(text: str, block: Block) -> Fraction:
    """Share of a block's pieces whose own parameters are trained."""
    found = trained(text)
    if not block.trainable or not (found.whole or set(block.words) & set(found.blocks)):
        return 0.0
    if not is_layer(block.name) or not found.spans or block.of in found.blocks:
        return 1.0
    places = block.places or range(block.count)
    return sum(any(first <= place <= last for first, last in found.spans) for place in places) / block.count


def input_share(text: str, block: Block) -> Fraction:
    """Share of a block's pieces that must hand a gradient back: those with something trained in them or before them.

    Nothing lies before the embedding: its backward work is its own gradient."""
    found = trained(text)
    if block.before is not None:
        return 1.0 if weight_share(text, block) or (found.rank and is_layer(block.name)) or _fed(found, block) else 0.0
    if block.name == "embedding":
        return 1.0 if "embedding" in found.blocks else 0.0
    if found.rank or "embedding" in found.blocks:
        return 1.0
    if block.name == "head":
        return 1.0 if "layer" in found.blocks or "head" in found.blocks else 0.0
    if "layer" not in found.blocks:
        return 0.0
    first = found.spans[0][0] if found.spans else 0
    return sum(place >= first for place in block.places or range(block.count)) / block.count


def _fed(found: Trained, block: Block) -> bool:
    """Whether something before a block of a model of several parts is trained: adapters lie in every layer."""
    before = set(block.before or ())
    return bool(before) and (found.whole or bool(before & set(found.blocks)) or (found.rank > 0 and "layer" in before))


def backward(
    ops: tuple[tuple[Compute, Fraction], ...], text: str, block: Block
) -> tuple[tuple[Compute, Fraction], ...]:
    """Operations of a block with those that nothing trained needs left out, or done by a share of the pieces."""
    if text == "all":
        return ops
    shares = {FORWARD: 1.0, INPUT_GRAD: input_share(text, block), WEIGHT_GRAD: weight_share(text, block)}
    return tuple((op, portion * shares[op.phase]) for op, portion in ops if shares[op.phase] > 0.0)


def adapters(ops: tuple[Compute, ...], text: str, block: str) -> tuple[Compute, ...]:
    """Products of the adapters beside every linear layer of a block: in 16 bits, cut as the layer is."""
    rank = float(trained(text).rank)
    if not rank or not is_layer(block):
        return ()
    found: tuple[Compute, ...] = ()
    for op in _adapted(ops, text):
        if op.phase == FORWARD:
            row = op.split == "k"
            down = matmul("adapter", op.m, op.k, rank, "row" if row else "none")
            up = matmul("adapter", op.m, rank, op.n, "column" if op.split == "n" else "none")
            pair = tuple(
                changed(one, repeats=op.repeats, serial=op.serial, launches=op.launches, flops=one.flops * op.repeats)
                for one in (*down, *up)
            )
            cut = "heads" if op.split == "n" else "none"
            found = (*found, *pair, *streamed("adapter", op.m * op.n * op.repeats, *ADD, cut))
    return found


def _adapted(ops: tuple[Compute, ...], text: str) -> list[Compute]:
    beside = trained(text).beside
    linear = [
        op for op in ops if op.kind == "gemm" and op.label != "router" and not op.split.startswith(("expert ", "batch"))
    ]
    return [op for op in linear if not beside or op.label in beside]


def adapter_parameters(ops: tuple[Compute, ...], text: str, tp: Count) -> Count:
    """Parameters of one layer's adapters on one tensor-parallel rank: the side that meets the cut is cut, the other whole."""
    rank = float(trained(text).rank)
    total: Count = 0.0
    for op in _adapted(ops, text):
        if rank and op.phase == FORWARD:
            ways = {"n": (1.0, tp), "k": (tp, 1.0)}.get(op.split, (1.0, 1.0))
            total = total + rank * op.repeats / op.serial * (op.k / ways[0] + op.n / ways[1])
    return total
