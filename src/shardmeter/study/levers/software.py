"""Numbers of the software: what was fitted of a stack, and what it waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.levers.lever import Lever

_NUMBERS = (
    ("gemm_factor", "matrix products against micro-benchmarks", "", math.inf),
    ("attention_factor", "attention against micro-benchmarks", "", math.inf),
    ("traffic_factor", "memory traffic against what must move", "", math.inf),
    ("launch_overhead", "launch of a kernel", "s", math.inf),
    ("launches_forward", "kernels of a layer in the forward pass", "", math.inf),
    ("launches_backward", "kernels of a layer in the backward pass", "", math.inf),
    ("nic_factor", "fabric against its plateau", "", math.inf),
    ("scale_up_factor", "scale-up link against its plateau", "", math.inf),
    ("contention", "compute lost under a second of communication", "", 1.0),
    ("chunk_loss", "loss of a chunked collective", "", 1.0),
    ("collective_overhead", "host's part of a tensor-parallel collective", "s", math.inf),
    ("dispatch_wait", "wait of dropless experts for the host", "s", math.inf),
    ("step_overhead", "host's part of a step", "s", math.inf),
    ("jitter", "jitter of a rank's step", "", 1.0),
    ("bucket", "bucket of gradients", "B", math.inf),
    ("whole_bytes", "bytes a token and hidden element that tensor parallelism leaves whole", "", math.inf),
    ("cut_bytes", "bytes a token and hidden element that tensor parallelism divides", "", math.inf),
    ("buffer_share", "buffers of collectives over the parameters", "", math.inf),
    ("context", "context of the device", "B", math.inf),
    ("fragmentation", "reserved over allocated, less one", "", 1.0),
)
"""(field of the stack, title, unit, largest value)."""


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of the stack, whatever it runs on."""
    for name, title, unit, most in _NUMBERS:
        yield Lever(
            name=f"stack.{name}", title=title, unit=unit, kind="software", value=float(getattr(scenario.stack, name)),
            whole=False, scaled=_scaled(scenario, name), most=most,
        )  # fmt: skip


def _scaled(scenario: Scenario, name: str) -> Callable[[float], Scenario]:
    return lambda factor: changed(
        scenario, stack=changed(scenario.stack, **{name: getattr(scenario.stack, name) * factor})
    )
