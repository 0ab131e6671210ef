"""How the flows of a site find its uplinks, what transports keep over loss and distance, what buffers and planes take.

Every number that is a default with a range comes in as an argument; `specs.assumed` holds them. Loads are of equal flows.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Fraction, PerSecond, Ratio, Seconds

FALLING = 0.45
"""Exponent by which more flows help the mean adapter: fits 0.66, 0.74, 0.82, 0.87, 0.91, 0.93 for 1, 2, 4 … 32 flows within 0.01."""
HEADER = 0.975
"""Payload of what an adapter sends: RoCE packets of 4 KiB, gaps between packets included; 0.93 (1 KiB) to 0.98."""
MANY_DOWN, SPRAY_DOWN = 0.05, 0.95
"""From this share of links down on, spraying keeps so much of what it had: 0.90 for 0.95 (packets meet where paths are missing)."""
ROUNDS = 12
"""Repeated rounds that are summed up."""


# ---- how flows find uplinks ------------------------------------------------------------------------------------------------------


@formula(cite="shardmeter")
def hashed_slowest(flows: Count, links: Count, hashing: Ratio) -> Fraction:
    """Mean over most loaded of `links` onto which `flows` each were hashed: 1/(1 + hashing·√(2·ln links/flows)).

    A collective waits for the slowest. More uplinks than adapters could fill are cut off by these: min(1, s·…). Against simulations of
    2-tier networks with 64 to 2,048 adapters, 1 to 256 flows each: within 0.07 (0.8 fitted there). Leaves out: hashes that agree from tier to
    tier, flows of unlike size."""
    return 1.0 / (1.0 + hashing * np.sqrt(2.0 * np.log(np.maximum(links, 1.0)) / flows))


@formula(cite="shardmeter")
def hashed_mean(flows: Count, collisions: Fraction) -> Fraction:
    """What the mean adapter gets of its rate: 1 − collisions·flows^−0.45.

    Between two simulations (64 adapters, 1, 4, 16 flows): transfers that are done with their slowest flow (0.62, 0.68, 0.78), and flows
    that take over what others leave (0.62, 0.89, 0.98). Twice as many uplinks as adapters: it says 1 where 0.74 (1 flow) and 1.0 (4) come
    out. Leaves out: how many uplinks there are."""
    return 1.0 - collisions * np.maximum(flows, 1.0) ** -FALLING


@formula(cite="shardmeter")
def hashed_share(slowest: Fraction, mean: Fraction, weight: Fraction) -> Fraction:
    """Of the uplinks' rate: of the slowest where all wait for it (rings in step), of the mean where many rings or pairs go at once.

    The mean is never the worse. Leaves out: what a schedule hides of the difference."""
    return weight * slowest + (1.0 - weight) * np.maximum(mean, slowest)


@formula(cite="mrc2026")
def spray_share(spray: Fraction, down: Fraction) -> Fraction:
    """Of the uplinks' rate where packets are sprayed over all of them, `down` of which are missing.

    Leaves out: paths of unlike length, which want receivers that reorder more."""
    return spray * np.where(np.greater(down, MANY_DOWN), SPRAY_DOWN, 1.0)


@formula(cite="shardmeter")
def uplink_rate(adapters: Count, wire: BytesPerS, header: Fraction, oversubscription: Ratio) -> BytesPerS:
    """What leaves a site all of whose adapters send at once: adapters × wire rate × payload of a packet / oversubscription.

    Leaves out: tiers inside the site that are narrower."""
    return adapters * wire * header / oversubscription


# ---- windows and loss ------------------------------------------------------------------------------------------------------------


@formula(cite="shardmeter")
def held_rate(window: Bytes, rtt: Seconds, hold: Seconds) -> BytesPerS:
    """What one stream of RDMA carries whose buffers are free again `hold` after the data came: window/(rtt + hold).

    Leaves out: buffers that are freed in larger pieces than they are filled."""
    return window / (rtt + hold)


@formula(cite="shardmeter")
def sooner(size: Bytes, window: Bytes, rtt: Seconds, line: BytesPerS) -> Seconds:
    """How much sooner a message has left than `size` at the rate of its windows, a window a round trip: what the last window holds of it
    leaves at the rate of the line. As long as windows bind; 0 where they do not.

    Equal to a stream simulated piece by piece (128 KiB), as is what follows at once: a window a round trip. Leaves out: buffers that are
    free only some time after the data came."""
    bound = np.greater(window, 0.0 * window)
    held = np.where(bound, window, size)
    last = np.where(bound, size - held * (np.ceil(size / held) - 1.0), 0.0 * size)
    return last * np.maximum(rtt / held - 1.0 / line, 0.0)


@formula(cite="shardmeter")
def resent(packets: Count, stall: Ratio) -> Count:
    """Packets' worth of time that one loss costs a stream with `packets` under way: all of them times `stall`, which is 1 for the ideal
    go-back-N, about 0.2 for selective repeat, 0 where redundancy makes up for it.

    Leaves out: timeouts, several losses in one round trip."""
    return packets * stall


@formula(cite="shardmeter")
def extra_rounds(loss: Fraction, packets: Count) -> Count:
    """Round trips that a message needs beyond the first, each lost packet being sent again alone: the mean of the longest,
    Σ 1 − (1 − loss^j)^packets over j ≥ 1, of rare losses 1 − e^(−packets·loss^j).

    Leaves out: that packets before the last round trip are sent again while others go (of long messages it says up to a round trip or
    two too much); timeouts where the last packet is lost unseen."""
    late: Count = 0.0
    for tries in range(1, ROUNDS + 1):
        late = late - np.expm1(-packets * loss**tries)
    return late


@formula(cite="shardmeter")
def coded_share(loss: Fraction, redundancy: Fraction) -> Fraction:
    """Payload of a transport that sends `redundancy` of its packets to make up for lost ones: 1 − redundancy, or what arrives.

    Leaves out: losses that come in bursts longer than a stripe."""
    return 1.0 - np.maximum(redundancy, loss)


# ---- buffers ---------------------------------------------------------------------------------------------------------------------


@formula(cite="hpe2026")
def lossless_rate(buffer: Bytes, packet: Bytes, rtt: Seconds) -> BytesPerS:
    """What one uplink carries on which nothing may be lost: a pause takes a round trip to work, so headroom for rate·rtt and 2 packets
    must be free where the line ends.

    Leaves out: several classes that share the buffer."""
    return np.maximum(buffer - 2.0 * packet, packet) / rtt


@formula(cite="hpe2026")
def buffer_wanted(rate: BytesPerS, rtt: Seconds, oversubscription: Ratio, incast: Ratio) -> Bytes:
    """Of an uplink whose senders slow down when it marks (ECN, DCQCN): rate·rtt·(1 + incast·(o − 1)).

    2.5 round trips were measured to suffice at 4:1, over 50 to 500 km. Leaves out: senders that are not in step and need less."""
    return rate * rtt * (1.0 + incast * (oversubscription - 1.0))


@formula(cite="shardmeter")
def buffer_loss(buffer: Bytes, wanted: Bytes, drops: Fraction) -> Fraction:
    """Packets lost for want of buffer: `drops` without any, nothing with what is `wanted`, in proportion between.

    Leaves out: marking earlier, which keeps 96 to 98 % without loss."""
    return drops * np.maximum(1.0 - buffer / wanted, 0.0)


# ---- planes ----------------------------------------------------------------------------------------------------------------------


@formula(cite="hpn2024")
def down_share(failures: PerSecond, repair: Seconds) -> Fraction:
    """Share of the time that one link is down.

    Leaves out: links that are taken out on suspicion."""
    return failures * repair / (1.0 + failures * repair)


@formula(cite="hpn2024")
def plane_share(links: Count, planes: Count, down: Fraction) -> Fraction:
    """What the slowest adapter of a job keeps, on the mean over time: 1 − 1/planes of its rate while any of its `links` is down.

    Leaves out: work moved away from an adapter that lost a port (the job then slows by less), switches, adapters with two down."""
    any_down = -np.expm1(-links * down)
    return 1.0 - any_down / planes


@formula(cite="hpn2024")
def link_interruptions(links: Count, failures: PerSecond) -> PerSecond:
    """Times a second that a job stops whose adapters have one port each: any link's failure is all of its node.

    Leaves out: switches, whose failures stop more nodes at once (0.051 % a month)."""
    return links * failures


@formula(cite="hpn2024")
def flap_share(links: Count, flaps: PerSecond, stall: Seconds) -> Fraction:
    """Share of the time that such a job stands still for links that are gone for a moment.

    Leaves out: flaps that end in a timeout and stop the job."""
    return links * flaps * stall / (1.0 + links * flaps * stall)
