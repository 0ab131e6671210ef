"""Numbers of the software: what was fitted of a stack, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shardmeter.core.record import changed
from shardmeter.specs import Scenario
from shardmeter.study.levers.lever import Lever

_NUMBERS = (
    ("gemm_factor", "matrix products against micro-benchmarks", ""),
    ("attention_factor", "attention against micro-benchmarks", ""),
    ("traffic_factor", "memory traffic against what must move", ""),
    ("launch_overhead", "launch of a kernel", "s"),
    ("nic_factor", "fabric against its plateau", ""),
    ("scale_up_factor", "scale-up link against its plateau", ""),
    ("contention", "compute lost under a second of communication", ""),
    ("chunk_loss", "loss of a chunked collective", ""),
    ("dispatch_wait", "wait of dropless experts for the host", "s"),
    ("step_overhead", "host's part of a step", "s"),
    ("jitter", "jitter of a rank's step", ""),
    ("context", "context of the device", "B"),
    ("fragmentation", "reserved over allocated, less one", ""),
)


def levers(scenario: Scenario) -> Iterator[Lever]:
    """Of the stack, whatever it runs on."""
    for name, title, unit in _NUMBERS:
        yield Lever(
            name=f"stack.{name}", title=title, unit=unit, kind="software", value=float(getattr(scenario.stack, name)),
            whole=False, scaled=_scaled(scenario, name),
        )  # fmt: skip


def _scaled(scenario: Scenario, name: str) -> Callable[[float], Scenario]:
    return lambda factor: changed(
        scenario, stack=changed(scenario.stack, **{name: getattr(scenario.stack, name) * factor})
    )
