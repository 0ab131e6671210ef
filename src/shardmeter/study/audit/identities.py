"""What joins the quantities of a run: products that are what they are by definition, each said once."""

from __future__ import annotations

import csv
from collections.abc import Mapping

from shardmeter import data
from shardmeter.core.record import record
from shardmeter.physics.collectives import shard_traffic
from shardmeter.physics.flop_counts import parameter_flops

BEYOND_STEPS = 1.35
"""A run lasts as long as its steps, or up to so many times: checkpoints, restarts, evaluation. Published ones lose 5 to 30 %."""
BELOW_LINK = 1.6
"""An all-reduce takes as long as its bytes over the link, or up to so many times: start-up, and a plateau of 65 to 95 % of the wire."""

REPLAYED = 1.34
"""An HFU is an MFU, or up to so many times: every forward again is four thirds."""
FILE = "audit_identities.csv"


@record
class Identity:
    """Π quantityᵖᵒʷᵉʳ = constant; the product may be up to `slack` times as large where one side only bounds the other."""

    says: str
    powers: Mapping[str, float]
    constant: float = 1.0
    slack: float = 1.0
    because: str = ""
    """What the slack is."""
    counts: bool = False
    """Whether it counts FLOPs, which conventions do differently."""


SLACK = {"": 1.0, "beyond_steps": BEYOND_STEPS, "below_link": BELOW_LINK, "replayed": REPLAYED}
"""The words of the column `slack`."""


def _product(
    says: str, result: str, factors: str, over: str = "", constant: str = "", slack: str = "", because: str = ""
) -> Identity:
    """`result` = constant × Π factors / Π over; names stand apart by blanks."""
    powers = {result: 1.0}
    for names, power in ((factors, -1.0), (over, 1.0)):
        for name in names.split():
            powers[name] = powers.get(name, 0.0) + power
    size = float(constant) if constant else 1.0
    return Identity(says=says, powers=powers, constant=size, slack=SLACK[slack], because=because)


def _rows() -> tuple[Identity, ...]:
    with data.open_text(FILE) as file:
        return tuple(_product(**row) for row in csv.DictReader(file))


IDENTITIES = _rows()
DENSE = Identity(says="every parameter is active", powers={"active_parameters": 1.0, "parameters": -1.0})
"""Where nothing is said of experts."""
TRAINED = Identity(says="every parameter is trained", powers={"trainable_parameters": 1.0, "parameters": -1.0})
"""Where nothing is said of frozen ones."""
SIX_N = Identity(
    says="FLOPs of a token = 6 × active parameters", powers={"flops_per_token": 1.0, "active_parameters": -1.0},
    constant=float(parameter_flops(1.0, 3.0)), counts=True,
)  # fmt: skip
"""Where no model says more."""


SHARED = {
    "memory_shards": ("zero3", "fsdp"),
    "gradient_shards": ("zero2", "zero3", "fsdp"),
    "optimizer_shards": ("zero1", "zero2", "zero3", "fsdp"),
}
"""Shardings that cut each part of the states over data parallel ranks."""


def sharded(sharding: str) -> tuple[Identity, ...]:
    """Ranks that share weights, gradients and optimizer states: tensor ranks and stages, and those of the sharding."""
    found = []
    for name, own in SHARED.items():
        ranks = "tp pp dp" if sharding in own else "tp pp"
        found.append(_product(f"{name.replace('_', ' ')} = {ranks.replace(' ', ' × ')}", name, ranks))
    return tuple(found)


def ring_factor(ranks: float, *, gathers: bool = False) -> float:
    """Bytes that pass every rank of a ring all-reduce over its size: 2(n − 1)/n; half of that where it only gathers, scatters or
    exchanges."""
    return (1.0 if gathers else 2.0) * float(shard_traffic(1.0, ranks, 1.0))
