"""Numbers of networks that no scenario says of a line or a site: each with a default, the range in which it lies, and its basis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Fraction, PerSecond, Ratio, Seconds

MONTH = 365.25 * 86400.0 / 12.0


@record
class Assumed:
    """What the network layer takes where nothing is measured; the place of every default. Ranges are in RANGES."""

    hashing: Ratio = 0.8
    """Of the most loaded of M uplinks with k flows each: 1 + hashing·√(2·ln M/k) times the mean load."""
    collisions: Fraction = 0.35
    """What hashing of one flow an uplink takes from the mean adapter; k flows take collisions·k^−0.45."""
    spray: Fraction = 0.95
    """Of the uplinks' rate where every packet takes its own."""
    planned: Fraction = 1.0
    """Where flows are laid out and none shares: nothing is taken, what a line was measured with stays."""
    go_back: Ratio = 1.0
    """Windows that a loss costs go-back-N: 1 is the ideal one, real ones have lost NAKs and timeouts too."""
    selective: Ratio = 0.2
    """The same of selective repeat (SACK, SRD, MRC)."""
    drops: Fraction = 3e-4
    """Packets lost where an uplink has no buffer of those that its congestion control needs; in proportion to what is missing."""
    incast: Ratio = 0.5
    """Round trips of buffer more for each adapter's rate that an uplink is short of: 1 + incast·(o − 1) at o:1."""
    failures: PerSecond = 5.7e-4 / MONTH
    """Lasting failures of one link between an adapter and its switch."""
    repair: Seconds = 86400.0
    """Until such a link is back."""
    flaps: PerSecond = 1e-3 / 86400.0
    """Short losses of one such link."""
    flap_stall: Seconds = 9.0
    """What a flap stops a job whose adapters have one port."""


RANGES: dict[str, tuple[float, float, str]] = {
    "hashing": (0.7, 1.2, "simulations of 2-tier networks, 64 to 2,048 adapters, 1 to 256 flows each; 1 is the textbook's"),
    "collisions": (0.2, 0.6, "flows that take over what others leave, and flows of fixed bytes; +40 % from 1 to 16 (Meta, SIGCOMM 2024)"),
    "spray": (0.90, 0.98, "0.92 at 42,000 GPUs and 0.96 point to point (MRC 2026), 0.98 (Spectrum-X 2026)"),
    "planned": (0.95, 1.0, "no hash; 0.97 where headers and gaps are not in the rate"),
    "go_back": (1.0, 10.0, "1 % of loss leaves 0 to 60 % (error recovery of RDMA), unusable (MRC 2026)"),
    "selective": (0.0, 1.0, "1 % of loss leaves a third, 0.1 % little (MRC 2026)"),
    "drops": (1e-4, 1e-3, "judgement; marking early instead leaves 96 to 98 % (HPE 2026)"),
    "incast": (0.0, 0.5, "2.5 round trips suffice at 4:1 (HPE 2026), about 1 up to 2:1"),
    "failures": (2.85e-4 / MONTH, 1.71e-3 / MONTH, "0.057 % a month (HPN 2024); Llama 3: 1.2e-3 a GPU and month with switches"),
    "repair": (3600.0, 604800.0, "judgement: an hour to a week"),
    "flaps": (0.3e-3 / 86400.0, 4e-3 / 86400.0, "5,000 to 60,000 a day in a fleet of unknown size (HPN 2024): a guess"),
    "flap_stall": (1.0, 60.0, "more than 9 s with one port (HPN 2024)"),
}  # fmt: skip
"""(least, most, basis) of every number of Assumed."""
HOLD = (20e-6, 50e-6)
"""Seconds from the arrival of data until its buffer is free again, where a line says that it takes any (judgement)."""
REDUNDANCY = (0.02, 0.25)
"""Share of the packets that make up for lost ones, where a transport codes (judgement; the default is 0.1)."""
HEADER = (0.93, 0.98)
"""Payload of what an adapter sends: packets of 1 to 9 KiB; the default 0.975 is that of RoCE packets of 4 KiB."""

_READ = {
    "hashing": ("balance", "ecmp"), "collisions": ("balance", "ecmp"), "spray": ("balance", "spray"), "planned": ("balance", "planned"),
    "go_back": ("transport", "rdma"), "selective": ("transport", "selective"),
}  # fmt: skip
"""The word of a network without which nothing reads a number."""


def ends(wan: Any) -> Iterator[tuple[str, Any, Any]]:
    """Of every assumed number that a network (a `specs.Wan`) may be read with, its name and the network with the least and with the
    largest value of its range: an answer lies between those of the two, as far as this number goes. Lines that hold buffers, and coded
    ones, have ends too.

    Leaves out: HEADER, which is in the rates of an oversubscription already (1.005 to 0.954 times); numbers that move together."""
    for name, (least, most, _) in RANGES.items():
        field, word = _READ.get(name, ("", ""))
        said = getattr(wan, field) if field else ()
        used = word in said if field else _used(wan, name)
        if used:
            yield name, *(changed(wan, assumed=changed(wan.assumed, **{name: one})) for one in (least, most))
    if np.any(np.greater(wan.hold, 0.0)):
        yield "hold", *(changed(wan, hold=np.where(np.greater(wan.hold, 0.0), one, wan.hold)) for one in HOLD)
    if "coded" in wan.transport:
        yield "redundancy", *(changed(wan, redundancy=one) for one in REDUNDANCY)


def _used(wan: Any, name: str) -> bool:
    """Whether buffers or planes read a number."""
    if name in ("drops", "incast"):
        return bool(np.any(np.isfinite(wan.buffer)))
    return name in ("failures", "repair") and bool(np.any(np.greater(wan.planes, 1.0)))
