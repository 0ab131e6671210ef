"""A block of a decoder that is trained alone, and blocks put together.

A block is given the bytes before (through an embedding of its own), and a vector for each byte that is to come: that byte's code, of length
0.5, under Gaussian noise of a level σ in the block's band. It is scaled by 1/√(σ² + σ_data²/hidden) (EDM's input scale), weighted by a
learned gain a coordinate that begins at zero, and added to the embedding, with a learned vector times ln(σ)/4 for the level. Through its
layers and a head of its own the block gives scores of all bytes; its loss is their cross-entropy. Positions see those before
them only, and the vector of a position is noise about the byte that follows it.

In use the vectors begin as noise of the first block's loudest level. Each block in turn gives scores; the mean code under them is the estimate x̂, and an
Euler step of the probability flow takes the vectors to the band's other end: z ← x̂ + (σ'/σ)·(z − x̂). The last block's scores are the
answer. Whatever the vectors were, they knew only the bytes before, so that its cross-entropy is a likelihood: one traversal an output.

Codes are drawn once by the seed and equal for all blocks: nothing has to cross for blocks to understand each other. The paper denoises
in the space of learned embeddings; how blocks that have embeddings of their own share that space is not published.

Leaves out: EDM's skip of the input to the output, which the likelihood of a code would be in scores, and its weights of the loss, which
lie between 4.0 and 5.0 over all levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from shardmeter.core.units import Nats
from shardmeter.lab.bands import LENGTH, Band
from shardmeter.lab.models import Model, loss_of
from shardmeter.lab.records import VOCABULARY, Shape


def codes(shape: Shape, seed: int) -> Any:
    """256 × hidden: what stands for each byte."""
    draw = torch.Generator().manual_seed(seed)
    return LENGTH * functional.normalize(torch.randn(VOCABULARY, shape.hidden, generator=draw), dim=1)


class Denoiser(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """One block: a part of the model with both ends, and what it does with noise (2·hidden parameters more)."""

    def __init__(self, model: Model, band: Band, codes: Any) -> None:
        super().__init__()
        hidden = codes.shape[1]
        self.embedding: Any = model.embedding
        self.head: Any = model.head
        self.layers, self.band = model.layers, band
        self.gain = torch.nn.Parameter(torch.zeros(hidden))
        self.level = torch.nn.Parameter(torch.zeros(hidden))
        self.codes = codes

    def forward(self, tokens: Any, noisy: Any, level: Any) -> Any:
        """Scores (batch × seq × 256) from tokens (batch × seq), noisy codes of what follows them (batch × seq × hidden) and their
        levels (batch × 1 × 1)."""
        scale = torch.rsqrt(level**2 + LENGTH**2 / self.codes.shape[1])
        x = self.embedding(tokens) + self.gain * (scale * noisy) + self.level * (level.log() / 4.0)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def loss(self, tokens: Any, targets: Any, draw: torch.Generator) -> Any:
        """The block's own objective in nats a byte: sequences under noise of its band."""
        shares = torch.rand(tokens.shape[0], generator=draw).tolist()
        level = torch.tensor([self.band.level(share) for share in shares]).view(-1, 1, 1)
        clean = self.codes[targets]
        noisy = clean + level * torch.randn(clean.shape, generator=draw)
        return loss_of(self(tokens, noisy, level), targets)


def assembled_loss(blocks: Sequence[Denoiser], tokens: Any, targets: Any, draw: torch.Generator) -> tuple[Nats, ...]:
    """Cross-entropy in nats a byte of each block's scores in one traversal, in order: the last is that of the assembled model.

    Blocks may be missing: those that are there pass on to each other. Raises ValueError where there is none."""
    if not blocks:
        raise ValueError("no block to assemble")
    losses = []
    with torch.no_grad():
        level = blocks[0].band.loudest
        noisy = level * torch.randn((*tokens.shape, blocks[0].codes.shape[1]), generator=draw)
        for at, block in enumerate(blocks):
            after = blocks[at + 1].band.loudest if at + 1 < len(blocks) else block.band.softest
            scores = block(tokens, noisy, torch.full((tokens.shape[0], 1, 1), float(level)))
            losses.append(float(loss_of(scores, targets)))
            estimate = scores.softmax(-1) @ block.codes
            noisy = estimate + (float(after) / float(level)) * (noisy - estimate)
            level = after
    return tuple(losses)


def flat(block: Any) -> Any:
    """All parameters of a module in one vector, float32, a copy."""
    return torch.nn.utils.parameters_to_vector([one.detach() for one in block.parameters()]).numpy().copy()


def put(block: Any, vector: Any) -> None:
    """The other way round: parameters are overwritten. Raises ValueError where the numbers are not as many."""
    many = sum(one.numel() for one in block.parameters())
    if many != len(vector):
        raise ValueError(f"{len(vector)} numbers for {many} parameters")
    with torch.no_grad():
        at, whole = 0, torch.from_numpy(vector)
        for one in block.parameters():
            one.copy_(whole[at : at + one.numel()].view_as(one))
            at += one.numel()


def moved(block: Any, vector: Any) -> None:
    """Add a vector to all parameters."""
    put(block, flat(block) + vector)
