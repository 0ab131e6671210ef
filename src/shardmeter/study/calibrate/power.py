"""What monitors and schedulers say of a run's electricity and hours: watts beside the rating, energy, accelerator-hours.

Readers of nvidia-smi and sacct make the records. No row of a catalog takes a draw; a cap that the monitor shows is one
(`power_limit`), and slows products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Fraction, Joules, Seconds, Watts
from shardmeter.physics.energy import EXPECTED
from shardmeter.specs import Accelerator

BUSY = 0.5
"""An accelerator computes in a sample in which kernels ran for half of it."""
LEVEL = 0.90
CAPPED = 0.98
"""A limit below this share of the rating is a cap, and no rounding."""


@record
class Draw:
    """One accelerator's samples."""

    gpu: str
    """Index, or what else the monitor names it by."""
    samples: int
    seconds: Seconds
    """That the samples stand for; gaps between them are left out."""
    energy: Joules
    mean: Watts
    computing: Watts | None
    """Mean of the samples in which it was busy; None where it never was."""
    peak: Watts
    busy: Fraction
    """Share of the samples in which it was."""
    memory: Bytes | None = None
    """The most that was allocated on it, by all processes."""
    limit: Watts | None = None
    name: str = ""


@record
class Job:
    """One job of a scheduler, restarts apart."""

    id: str
    state: str
    elapsed: Seconds
    gpus: Count
    nodes: Count
    kind: str = ""
    """Of accelerator, where the scheduler says it."""

    @property
    def gpu_seconds(self) -> Seconds:
        """Accelerators times the time they were held."""
        return self.gpus * self.elapsed


@record
class PowerFit:
    """What draws say of an accelerator."""

    accelerator: Accelerator
    draws: tuple[Draw, ...]
    computing: Fraction | None
    """Watts while busy over the rating; None where it is not known, or nothing was busy."""
    low: Fraction | None
    high: Fraction | None
    """90 % between accelerators."""
    limit: Watts | None
    """A cap below the rating, the lowest there is."""
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        share = "unknown" if self.computing is None else f"{100 * self.computing:.0f} %"
        return f"<PowerFit of {len(self.draws)} accelerators: {share} of the rating while computing>"

    @property
    def energy(self) -> Joules:
        """Of all accelerators over all samples."""
        return plain_sum(one.energy for one in self.draws)

    def to_dict(self) -> dict[str, Any]:
        """The JSON: watts, joules, seconds, fractions."""
        return {
            "accelerator": self.accelerator.name,
            "accelerators": len(self.draws),
            "energy": self.energy,
            "seconds": plain_sum(one.seconds for one in self.draws),
            "computing_share": self.computing,
            "low": self.low,
            "high": self.high,
            "expected_share": EXPECTED.computing,
            "power_limit": self.limit,
            "draws": [
                {"gpu": one.gpu, "mean": one.mean, "computing": one.computing, "peak": one.peak, "busy": one.busy, "memory": one.memory}
                for one in self.draws
            ],
            "warnings": list(self.warnings),
        }  # fmt: skip


def calibrate_power(draws: Sequence[Draw], accelerator: Accelerator) -> PowerFit:
    """What draws say of an accelerator's rating. Raises nothing: draws that never compute say nothing.

    Leaves out: what stands beside the accelerators in their nodes, which no monitor of them sees."""
    watts = np.array([one.computing for one in draws if one.computing is not None], dtype=float)
    rating = accelerator.power
    shares = watts / rating if rating else np.empty(0)
    between = float(shares.std(ddof=1)) if len(shares) > 1 else 0.0
    middle = float(shares.mean()) if len(shares) else None
    caps = [one.limit for one in draws if one.limit is not None and rating and one.limit < CAPPED * rating]
    return PowerFit(
        accelerator=accelerator, draws=tuple(draws), computing=middle,
        low=None if middle is None else middle - 1.645 * between, high=None if middle is None else middle + 1.645 * between,
        limit=min(caps, default=None), warnings=tuple(_doubts(draws, accelerator, middle)),
    )  # fmt: skip


def _doubts(draws: Sequence[Draw], accelerator: Accelerator, share: Fraction | None) -> list[str]:
    found = []
    if accelerator.power is None:
        found.append(f"the rating of {accelerator.name} is not known: watts are given, no share of it")
    if share is not None and share > 1.05:
        found.append(
            f"{100 * share:.0f} % of the rating of {accelerator.name}: another part, or one whose limit was raised"
        )
    if draws and all(one.computing is None for one in draws):
        found.append("no accelerator was busy in any sample: the monitor ran beside nothing")
    idle = [one.gpu for one in draws if one.computing is None]
    if idle and len(idle) < len(draws):
        found.append(
            f"{len(idle)} of {len(draws)} accelerators were never busy, the first is {idle[0]}: left out of the share"
        )
    return found
