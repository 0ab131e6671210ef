"""States, parameters or activations kept on the host (Ren 2021, ZeRO-Offload §4-5; Rajbhandari 2021, ZeRO-Infinity §5).

optimizer: 16-bit gradients go down once a step, the host updates its share, 16-bit parameters come up while it does.
parameters: every unit's shard comes up before each of its gathers. activations: what a layer keeps goes down in the forward
pass and comes up before its backward. Bytes only; both directions of the link are separate channels.
With `offload_layers` only so many layers' activations go, spread evenly over the stages and in time. Leaves out: NVMe, states or
parameters offloaded in part, that chosen layers stand together, pinned-buffer limits, updates delayed by a step.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Fraction
from shardmeter.specs.plan import Plan
from shardmeter.strategies import optimizer, precision

KINDS = ("optimizer", "parameters", "activations")


@record
class HostMove:
    """Bytes of one rank between device and host: `down` leaves the device, `up` returns."""

    down: Bytes = 0.0
    up: Bytes = 0.0


def update(owned: Count, plan: Plan) -> tuple[HostMove, Bytes]:
    """One optimizer step for the `owned` parameters of a rank: bytes over the link, and through the host's memory."""
    if "optimizer" not in plan.offload:
        return HostMove(), 0.0
    width = precision.recipe(plan.precision).width
    return HostMove(down=owned * width, up=owned * width), owned * optimizer.traffic(plan)


def away(plan: Plan, layers: Count) -> Fraction:
    """Share of the model's `layers` whose activations go to the host."""
    if "activations" not in plan.offload:
        return 0.0
    asked = np.minimum(plan.offload_layers, layers) / layers
    return np.where(np.greater(plan.offload_layers, 0.0), asked, 1.0)


def layer(
    held: Count, kept: Bytes, plan: Plan, shards: Count, gather_width: Bytes, layers: Count
) -> tuple[HostMove, HostMove]:
    """One of `layers` for one micro-batch, (forward, backward): its shard of `held` parameters up, `kept` bytes down and up."""
    parameters = held / shards * gather_width if "parameters" in plan.offload else 0.0
    activations = kept * away(plan, layers)
    return HostMove(down=activations, up=parameters), HostMove(up=parameters + activations)
