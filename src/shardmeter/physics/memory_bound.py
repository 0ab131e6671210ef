"""Kernels that move more bytes than they compute, and the host that launches them all."""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Ratio, Seconds


@formula(cite="williams2009")
def traffic_time(traffic: Bytes, factor: Ratio, bandwidth: BytesPerS) -> Seconds:
    """Time of memory-bound kernels: bytes × the stack's traffic factor over the sustained bandwidth.

    Leaves out: cache hits between neighbouring kernels."""
    return traffic * factor / bandwidth


@formula(cite="shardmeter")
def serial_time(streaming: Seconds, steps: Count, start: Seconds) -> Seconds:
    """Time of memory-bound kernels that wait for one another, `steps` of them: each starts when the one before is done.

    Leaves out: programmatic launches that prepare the next kernel behind the last."""
    return streaming + steps * start


@formula(cite="shardmeter")
def host_time(launches: Count, overhead: Seconds) -> Seconds:
    """Time the host needs to issue `launches` kernels.

    Leaves out: garbage collection, data loading, host synchronisation."""
    return launches * overhead


@formula(cite="shardmeter")
def launch_floor(device: Seconds, host: Seconds) -> Seconds:
    """Duration of a piece of work that the device runs and the host issues: a smooth maximum (8-norm) of the two.

    The host runs ahead while the device is busy, so the slower one sets the pace. Leaves out: how far ahead it may run."""
    longer = np.maximum(device, host)
    ratio = np.minimum(device, host) / longer
    square = ratio * ratio
    fourth = square * square
    smooth: Seconds = longer * np.sqrt(np.sqrt(np.sqrt(1.0 + fourth * fourth)))
    return smooth


@formula(cite="shardmeter")
def launches_in_line(device: Seconds, host: Seconds) -> Seconds:
    """Duration of a piece of work on a device that is its own host (a CPU): it issues a kernel, runs it, and issues the next.

    Leaves out: threads that sleep between kernels and wake late."""
    return device + host
