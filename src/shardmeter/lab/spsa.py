"""Many copies of an LSTM of bytes side by side, and a gradient from their losses alone (Spall 1992; SOMA, arXiv 2609.37899).

An expert's parameters are one vector: of each layer norm, gates of the input and of the state, then norm and scores of the head, in the
order of `models.build`; the embedding is frozen and shared by all. Copies are its rows moved either way along random signs, run forward as
one batch of matrix products. Both sides of all probes see the same sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from shardmeter.core.units import Nats
from shardmeter.lab.models import SPREAD, build
from shardmeter.lab.records import VOCABULARY, Shape

EMBEDDING = 0.5
"""Standard deviation of the frozen embedding: it is not trained, and passes the layers by in the residuals."""

Losses = Callable[[Any], Any]
"""Copies × parameters to the mean loss of each, nats a byte."""


def sizes(shape: Shape) -> tuple[tuple[int, ...], ...]:
    """The shapes of an expert's tensors, in order."""
    hidden = shape.hidden
    layer = ((hidden,), (hidden,), (4 * hidden, hidden), (4 * hidden, hidden))
    return (*(one for _ in range(shape.layers) for one in layer), (hidden,), (hidden,), (VOCABULARY, hidden))


def begun(shape: Shape, seed: int) -> Any:
    """An expert's parameters as training begins, as a vector."""
    model = build(shape, seed)
    parts = [*model.layers.parameters(), *model.head.parameters()] if model.head is not None else []
    return torch.cat([one.detach().flatten() for one in parts])


def embedding_of(shape: Shape, seed: int) -> Any:
    """256 × hidden, never trained."""
    model = build(shape, seed)
    assert model.embedding is not None  # noqa: S101 - a whole model has one
    return model.embedding.tokens.weight.detach() * (EMBEDDING / SPREAD)


def log_likelihoods(shape: Shape, embedding: Any, copies: Any, tokens: Any, targets: Any) -> Any:
    """Log-probability that each copy (copies × parameters) gives each target: copies × batch × seq. Sequences (batch × seq) begin from an
    empty state."""
    many, (batch, seq), hidden = copies.shape[0], tokens.shape, shape.hidden
    forms = sizes(shape)
    parts = copies.split([torch.Size(form).numel() for form in forms], dim=1)
    tensors = [part.view(many, *form) for part, form in zip(parts, forms, strict=True)]
    x = embedding[tokens].expand(many, batch, seq, hidden)
    for at in range(shape.layers):
        x = x + _layer(x, *tensors[4 * at : 4 * at + 4])
    weight, bias, scores = tensors[-3:]
    x = _normed(x, weight, bias).reshape(many, batch * seq, hidden)
    raw = torch.bmm(x, scores.transpose(1, 2))
    wanted = raw.gather(-1, targets.reshape(1, -1, 1).expand(many, -1, 1)).squeeze(-1)
    return (wanted - raw.logsumexp(-1)).view(many, batch, seq)


def _normed(x: Any, weight: Any, bias: Any) -> Any:
    shape = (-1, 1, 1, x.shape[-1])
    return functional.layer_norm(x, (x.shape[-1],)) * weight.view(shape) + bias.view(shape)


def _layer(x: Any, weight: Any, bias: Any, incoming: Any, recurrent: Any) -> Any:
    """The LSTM of one layer for all copies: copies × batch × seq × hidden."""
    many, batch, seq, hidden = x.shape
    normed = _normed(x, weight, bias).reshape(many, batch * seq, hidden)
    gates = torch.bmm(normed, incoming.transpose(1, 2)).view(many, batch, seq, 4 * hidden)
    turned = recurrent.transpose(1, 2)
    state = cell = x.new_zeros(many, batch, hidden)
    outputs = []
    for at in range(seq):
        fed, kept, new, out = torch.baddbmm(gates[:, :, at], state, turned).chunk(4, dim=-1)
        cell = kept.sigmoid() * cell + fed.sigmoid() * new.tanh()
        state = out.sigmoid() * cell.tanh()
        outputs.append(state)
    return torch.stack(outputs, dim=2)


def losses_of(shape: Shape, embedding: Any, tokens: Any, targets: Any) -> Losses:
    """The mean loss of copies on these sequences."""
    return lambda copies: -log_likelihoods(shape, embedding, copies, tokens, targets).mean(dim=(1, 2))


def signs(count: int, size: int, draw: torch.Generator) -> Any:
    """Count × size random signs, float32."""
    return torch.randint(0, 2, (count, size), generator=draw, dtype=torch.int8).float().mul_(2.0).sub_(1.0)


def slopes(losses: Losses, at: Any, directions: Any, step: float, together: int) -> tuple[Any, Nats]:
    """(slope of the loss along every direction, mean loss of all probes): two passes a direction, `together` of them side by side."""
    moves = torch.cat((directions, -directions)) * step
    with torch.no_grad():
        found = torch.cat([losses(at + some) for some in moves.split(together)])
    there, back = found.chunk(2)
    return (there - back) / (2.0 * step), float(found.mean())


def estimate(losses: Losses, at: Any, directions: Any, step: float, together: int) -> tuple[Any, Nats]:
    """(the mean of slope × direction: an estimate of the gradient, mean loss of all probes)."""
    along, loss = slopes(losses, at, directions, step, together)
    return along @ directions / len(directions), loss


class Learner:
    """A vector that learns by Adam from estimates of its gradient."""

    def __init__(self, vector: Any, learning_rate: float) -> None:
        self.vector = torch.nn.Parameter(vector.clone(), requires_grad=False)
        self._optimizer = torch.optim.Adam([self.vector], lr=learning_rate)

    def step(self, losses: Losses, directions: Any, step: float, together: int) -> Nats:
        """One update; the mean loss of its probes."""
        self.vector.grad, loss = estimate(losses, self.vector.detach(), directions, step, together)
        self._optimizer.step()
        return loss

    def descend(self, losses: Losses) -> Nats:
        """One update by backpropagation, for comparison; its loss."""
        copy = self.vector.detach().clone().requires_grad_()
        loss = losses(copy[None])[0]
        (self.vector.grad,) = torch.autograd.grad(loss, copy)
        self._optimizer.step()
        return float(loss.item())


def gradient(losses: Losses, at: Any) -> Any:
    """By backpropagation, of one copy."""
    copy = at.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(losses(copy[None])[0], copy)
    return found
