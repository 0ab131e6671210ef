"""Outer updates: the parameters as one vector, what they moved since the last exchange, Nesterov's step on the mean of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmeter.lab.worker import Worker

RATE, MOMENTUM = 0.7, 0.9
"""Outer learning rate and Nesterov momentum (Douillard 2023)."""


def vector(parameters: Iterable[Any]) -> Any:
    """A new vector of all numbers of the parameters, in order."""
    import torch

    return torch.cat([one.detach().reshape(-1) for one in parameters])


def spread(values: Any, parameters: Iterable[Any]) -> None:
    """The numbers of a vector back into the parameters."""
    start = 0
    for one in parameters:
        one.detach().copy_(values[start : start + one.numel()].view_as(one))
        start += one.numel()


class Outer:
    """Outer copy and outer momentum of some of a model's parameters."""

    def __init__(self, parameters: Iterable[Any], rate: float = RATE, momentum: float = MOMENTUM) -> None:
        import torch

        self.parameters = list(parameters)
        self.rate, self.momentum = rate, momentum
        self.copy = vector(self.parameters)
        self.velocity = torch.zeros_like(self.copy)

    def gradient(self) -> Any:
        """Parameters before the round less those now."""
        return self.copy - vector(self.parameters)

    def step(self, mean: Any) -> None:
        """Nesterov on the mean outer gradient: v ← μ·v + g; θ₀ ← θ₀ − rate·(g + μ·v)."""
        self.velocity.mul_(self.momentum).add_(mean)
        self.copy.sub_(mean + self.momentum * self.velocity, alpha=self.rate)

    def adopt(self, local: float = 0.0) -> None:
        """Give the outer copy to the model; `local` is the weight that its own parameters keep."""
        mixed = self.copy if local == 0.0 else (1.0 - local) * self.copy + local * vector(self.parameters)
        spread(mixed, self.parameters)


def of(worker: Worker, parameters: Iterable[Any]) -> Outer:
    """Outer state with the rate and momentum of the settings (`outer_rate`, `outer_momentum`)."""
    settings = worker.settings
    return Outer(parameters, float(settings.get("outer_rate", RATE)), float(settings.get("outer_momentum", MOMENTUM)))
