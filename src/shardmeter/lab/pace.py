"""An accelerator of a given speed, emulated by waiting: several workers then share a processor and do not slow each other.

A block's forward lasts its FLOPs over the pace, its backward twice that; what is computed sooner waits. Identity functions before and
after the block do it, so that neither values nor gradients change by a bit. In the backward the wait comes first, as long as the
block's last backward leaves of it, so that gradients are whole when the block is through and not before. What one block was late
(a sleep that overslept, a busy processor) is taken off the waits of those after it in the same step.

Leaves out: the embedding, which multiplies nothing, the loss and the optimizer: these take what they take.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from shardmeter.core.units import Flop, FlopPerS, Seconds


class Pace:
    """The clock of one worker's blocks; `rate` None = as fast as the processor is."""

    def __init__(self, rate: FlopPerS | None) -> None:
        self.rate, self.off = rate, False
        self.late: float = 0.0
        """Seconds by which the last block ended too late."""

    def restart(self) -> None:
        """A new step: nothing is late yet."""
        self.late = 0.0

    def wait(self, since: Seconds, seconds: Seconds) -> None:
        """Until `seconds` after `since`, less what is late."""
        until = since + seconds - self.late
        remaining = until - time.monotonic()
        if remaining > 0.0:
            time.sleep(remaining)
        self.late = max(0.0, time.monotonic() - float(until))


class Clock:
    """One block's passage: when it began, how long its last backward computed."""

    def __init__(self, pace: Pace) -> None:
        self.pace, self.spent = pace, 0.0

    def before(self, x: Any, flops: Flop) -> Any:
        """The block's input, unchanged; the forward begins here and the backward ends."""
        if self.pace.rate is None or self.pace.off:
            return x
        self.passage = Passage(self, flops / self.pace.rate)
        return _Before.apply(x, self.passage)

    def after(self, y: Any) -> Any:
        """The block's output, unchanged; the forward ends here and the backward begins."""
        if self.pace.rate is None or self.pace.off:
            return y
        return _After.apply(y, self.passage)


class Passage:
    """One forward and its backward."""

    def __init__(self, clock: Clock, seconds: Seconds) -> None:
        self.clock, self.seconds, self.began, self.turned, self.woke = clock, seconds, 0.0, 0.0, 0.0


class _Before(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, x: Any, passage: Passage) -> Any:
        ctx.passage = passage
        passage.began = time.monotonic()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        passage: Passage = ctx.passage
        clock = passage.clock
        clock.spent = time.monotonic() - passage.woke
        clock.pace.wait(passage.turned, 2.0 * passage.seconds)
        return gradients[0], None


class _After(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, y: Any, passage: Passage) -> Any:
        ctx.passage = passage
        passage.clock.pace.wait(passage.began, passage.seconds)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        passage: Passage = ctx.passage
        clock = passage.clock
        passage.turned = time.monotonic()
        remaining = 2.0 * passage.seconds - clock.pace.late - clock.spent
        if remaining > 0.0:
            time.sleep(remaining)
        passage.woke = time.monotonic()
        return gradients[0], None
