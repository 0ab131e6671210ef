"""What of the lab works on this machine, and what is missing for the rest."""

from __future__ import annotations

from typing import Any

from shardmeter.lab import scenarios
from shardmeter.lab.machine import INSTALL, cores, machine, torch_version

ENOUGH_CORES = 2
"""With fewer, workers of the studies that ship slow each other, whatever their pace."""


def checked() -> dict[str, Any]:
    """`works`, `emulation` (how lines would be emulated; empty without PyTorch), `machine`, `missing` (a sentence each), `so` (what
    follows), as the JSON of `lab check`."""
    from shardmeter.lab import network

    lines = list(network.missing())
    torch = [] if torch_version() else [f"PyTorch is not installed: {INSTALL}"]
    few = [f"{cores()} core, and the studies that ship need {ENOUGH_CORES}"] if cores() < ENOUGH_CORES else []
    missing = [*torch, *lines, *few]
    emulation = (
        "" if torch else scenarios.LOOPBACK if lines else scenarios.TUN if network.missing("netem") else scenarios.NETEM
    )
    so = []
    if torch:
        so.append("no study runs")
    elif lines:
        so.append("studies run over plain loopback: losses and bytes of messages are scored, times are not")
    return {
        "works": not missing,
        "emulation": emulation,
        "machine": machine(emulation),
        "missing": missing,
        "so": so,
        "warnings": [],
    }
