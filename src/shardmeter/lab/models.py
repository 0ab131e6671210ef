"""The small models in PyTorch: a decoder (LayerNorm, GELU, learned positions, no biases, an own head) and an LSTM of bytes.

A model is an embedding, layers and a head, any of which a part may lack: a stage of a pipeline, a block trained alone. All weights are
drawn for the whole model before a part is taken, so that parts and whole begin alike. Linear weights and tables are drawn with a
standard deviation of 0.02, those that end a residual with 0.02/√(2·layers) (GPT-2's).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional

from shardmeter.lab.pace import Clock, Pace
from shardmeter.lab.records import VOCABULARY, Shape
from shardmeter.lab.shapes import head_flops, layer_flops

SPREAD = 0.02
"""Standard deviation of weights when training begins."""


class Embedding(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Tokens (batch × seq, integers) to vectors (batch × seq × hidden), with learned positions in a decoder."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, shape.hidden)
        self.places = torch.nn.Embedding(shape.seq_len, shape.hidden) if shape.kind == "decoder" else None

    def forward(self, tokens: Any) -> Any:
        """Batch × seq × hidden."""
        x = self.tokens(tokens)
        return x if self.places is None else x + self.places.weight[: tokens.shape[1]]


class Layer(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A decoder layer: norm, causal attention, residual; norm, MLP four times as wide, residual."""

    def __init__(self, shape: Shape, pace: Pace) -> None:
        super().__init__()
        hidden = shape.hidden
        self.shape, self.clock = shape, Clock(pace)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
        self.qkv, self.out, self.up, self.down = (
            torch.nn.Linear(a * hidden, b * hidden, bias=False) for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))
        )

    def forward(self, x: Any) -> Any:
        """Batch × seq × hidden, as it came."""
        batch, seq, hidden = x.shape
        x = self.clock.before(x, layer_flops(self.shape, batch))
        heads = self.shape.heads
        parts = self.qkv(self.norms[0](x)).view(batch, seq, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return self.clock.after(x + self.down(functional.gelu(self.up(self.norms[1](x)))))


class Recurrence(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A layer of an LSTM: norm, LSTM without biases from an empty state, residual."""

    def __init__(self, shape: Shape, pace: Pace) -> None:
        super().__init__()
        self.shape, self.clock = shape, Clock(pace)
        self.norm = torch.nn.LayerNorm(shape.hidden)
        self.lstm = torch.nn.LSTM(shape.hidden, shape.hidden, bias=False, batch_first=True)

    def forward(self, x: Any) -> Any:
        """Batch × seq × hidden, as it came."""
        x = self.clock.before(x, layer_flops(self.shape, x.shape[0]))
        return self.clock.after(x + self.lstm(self.norm(x))[0])


class Head(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """The last norm, and scores of all bytes."""

    def __init__(self, shape: Shape, pace: Pace) -> None:
        super().__init__()
        self.shape, self.clock = shape, Clock(pace)
        self.norm = torch.nn.LayerNorm(shape.hidden)
        self.scores = torch.nn.Linear(shape.hidden, VOCABULARY, bias=False)

    def forward(self, x: Any) -> Any:
        """Batch × seq × 256."""
        x = self.clock.before(x, head_flops(self.shape, x.shape[0]))
        return self.clock.after(self.scores(self.norm(x)))


class Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A whole model, or a part of one."""

    def __init__(self, embedding: Embedding | None, layers: Iterable[Any], head: Head | None) -> None:
        super().__init__()
        self.embedding, self.layers, self.head = embedding, torch.nn.ModuleList(layers), head

    def forward(self, x: Any, targets: Any = None) -> Any:
        """What the part gives for what it is given (tokens or vectors; vectors or scores); the loss in nats a byte where targets are
        given to a part with a head."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        if self.head is not None:
            x = self.head(x)
        return x if targets is None else loss_of(x, targets)


def loss_of(scores: Any, targets: Any) -> Any:
    """Cross-entropy in nats a byte, the mean over all bytes."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def build(
    shape: Shape,
    seed: int,
    pace: Pace | None = None,
    *,
    layers: range | None = None,
    embedding: bool = True,
    head: bool = True,
) -> Model:
    """A model, or the part of it with these layers, with or without the ends. Equal seeds give equal weights, of parts too."""
    pace = pace or Pace(None)
    draw = torch.Generator().manual_seed(seed)
    ends = Embedding(shape), Head(shape, pace)
    kind = Recurrence if shape.kind == "lstm" else Layer
    whole = Model(ends[0], (kind(shape, pace) for _ in range(shape.layers)), ends[1])
    for name, weight in whole.named_parameters():
        if weight.dim() > 1:
            ending = name.endswith(("out.weight", "down.weight"))
            torch.nn.init.normal_(
                weight, 0.0, SPREAD / ((2.0 * shape.layers) ** 0.5 if ending else 1.0), generator=draw
            )
    if shape.kind == "lstm":
        for one in whole.layers:
            for weight in one.lstm.parameters():
                torch.nn.init.uniform_(weight, -(shape.hidden**-0.5), shape.hidden**-0.5, generator=draw)
    taken = range(shape.layers) if layers is None else layers
    return Model(ends[0] if embedding else None, (whole.layers[at] for at in taken), ends[1] if head else None)


def optimizer_of(model: Any, learning_rate: float) -> Any:
    """Fused AdamW with PyTorch's own betas and decay."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, fused=True)
