"""What is paid: rent, electricity, loss of value, bytes sent and bytes kept; and how long a run of steps lasts."""

from __future__ import annotations

from shardmeter.core.formula import formula
from shardmeter.core.units import (
    Bytes,
    Count,
    Joules,
    Seconds,
    Usd,
    UsdPerByte,
    UsdPerByteS,
    UsdPerJoule,
    UsdPerS,
)


@formula(cite="shardmeter")
def run_time(steps: Count, step: Seconds) -> Seconds:
    """Wall-clock of `steps` optimizer steps.

    Leaves out: failures, checkpoints, evaluation, start-up."""
    return steps * step


@formula(cite="shardmeter")
def rent(gpus: Count, duration: Seconds, price: UsdPerS) -> Usd:
    """Rent of `gpus` accelerators for `duration` at `price` per accelerator.

    Leaves out: minimum terms, egress, storage, taxes; that a spot price moves while the run lasts."""
    return gpus * duration * price


@formula(cite="shardmeter")
def depreciation(value: Usd, life: Seconds) -> UsdPerS:
    """What an owned accelerator loses in value a second, in equal parts over its `life`.

    Leaves out: what it is sold for at the end, interest, what it loses while it is not used."""
    return value / life


@formula(cite="shardmeter")
def electricity(energy: Joules, price: UsdPerJoule) -> Usd:
    """What the electricity of owned hardware costs.

    Leaves out: charges for the connection and for peaks, prices that change by the hour."""
    return energy * price


@formula(cite="shardmeter")
def traffic(size: Bytes, price: UsdPerByte) -> Usd:
    """What bytes cost that leave a place.

    Leaves out: tiers of volume, charges for requests and for what comes in."""
    return size * price


@formula(cite="shardmeter")
def storage(size: Bytes, duration: Seconds, price: UsdPerByteS) -> Usd:
    """What bytes cost that are kept for `duration`.

    Leaves out: charges for requests, tiers of volume, what is kept after the run and what is not yet there at its start."""
    return size * duration * price


@formula(cite="shardmeter")
def checkpoint_size(parameters: Count, each: Bytes, kept: Count) -> Bytes:
    """Bytes of the `kept` latest full states of a run, at `each` bytes a parameter: weights, master weights, moments.

    Leaves out: what a store compresses or shares between checkpoints, the state of data loaders."""
    return parameters * each * kept
