"""Parameters and FLOPs of the small models, block by block: what a pace is counted in. Nothing here needs PyTorch."""

from __future__ import annotations

from shardmeter.core.units import Count, Flop
from shardmeter.lab.records import VOCABULARY, Shape


def embedding_parameters(shape: Shape) -> int:
    """Of the table of tokens, and of that of positions where there is one."""
    places = shape.seq_len if shape.kind == "decoder" else 0
    return (VOCABULARY + places) * shape.hidden


def layer_parameters(shape: Shape) -> int:
    """Of one layer: decoder: queries, keys, values, output, an MLP four times as wide, two norms with a shift; LSTM: four gates of
    the input and of the state, one norm."""
    if shape.kind == "lstm":
        return 8 * shape.hidden**2 + 2 * shape.hidden
    return 12 * shape.hidden**2 + 4 * shape.hidden


def head_parameters(shape: Shape) -> int:
    """Of the last norm and of the head, which shares nothing with the embedding."""
    return shape.hidden * VOCABULARY + 2 * shape.hidden


def parameters(shape: Shape) -> int:
    """Of the whole model."""
    return embedding_parameters(shape) + shape.layers * layer_parameters(shape) + head_parameters(shape)


def layer_flops(shape: Shape, sequences: Count) -> Flop:
    """Forward through one layer: 2 for each number of its matrices and token; attention on the keys up to the query's own.

    Leaves out: norms, activations, residuals."""
    tokens = sequences * shape.seq_len
    if shape.kind == "lstm":
        return 2.0 * tokens * 8.0 * shape.hidden**2
    return 2.0 * tokens * (12.0 * shape.hidden**2 + shape.hidden * (shape.seq_len + 1.0))


def head_flops(shape: Shape, sequences: Count) -> Flop:
    """Forward through the head.

    Leaves out: the norm, the loss."""
    return 2.0 * sequences * shape.seq_len * shape.hidden * VOCABULARY


def forward_flops(shape: Shape, sequences: Count) -> Flop:
    """Forward through the whole model. An embedding multiplies nothing."""
    return shape.layers * layer_flops(shape, sequences) + head_flops(shape, sequences)


def dealt(layers: int, parts: int) -> tuple[range, ...]:
    """Layers dealt out evenly, in order; the first parts get one more where it does not come out even."""
    each, more = divmod(layers, parts)
    starts = [part * each + min(part, more) for part in range(parts + 1)]
    return tuple(range(starts[part], starts[part + 1]) for part in range(parts))
