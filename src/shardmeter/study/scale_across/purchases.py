"""What could be bought for the network of a fleet, and what a fleet that has it would choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.core.units import Ratio
from shardmeter.physics.network import buffer_wanted
from shardmeter.specs import Wan
from shardmeter.study.scale_across.networks import PRODUCTION, WINDOWS, Network, networks, widened
from shardmeter.study.scale_across.search import Row

TIMES = 2.0
"""Lines that are bought, of those that there are."""
PLANES = 4.0


@record
class Purchase:
    """Something that changes a network, and the network with it (`backwards`: without it, as it is had already)."""

    what: str
    says: str
    before: str
    after: str
    row: Row
    free: bool = False
    backwards: bool = False


def purchases(wan: Wan, over: Ratio) -> tuple[Purchase, ...]:
    """What may be had for the lines of a fleet that are oversubscribed `over` to 1."""
    return tuple(_purchases(wan, over))


def _purchases(wan: Wan, over: Ratio) -> Iterator[Purchase]:
    usual = tuple(one for one in networks() if (one.streams, one.window, one.sends) == WINDOWS[0])
    yield Purchase(
        what="windows", says="windows that fill the line", before="2 × 4 MiB", after="up to 16 × 128 MiB", free=True,
        backwards=True, row=Row(wan=wan, networks=usual, whole=False),
    )  # fmt: skip
    yield Purchase(
        what="spray", says="adapters that spray packets and sort them again", before="one path a flow", after="all paths",
        row=Row(wan=wan, networks=(PRODUCTION, *_sprayed()), whole=False),
    )  # fmt: skip
    if over > 1.0:
        yield Purchase(
            what="oversubscription", says="lines as wide as all adapters", before=f"{over:.3g}:1", after="1:1",
            row=Row(wan=widened(wan, over), networks=networks(), whole=False),
        )  # fmt: skip
    yield Purchase(
        what="dci", says="twice the lines between buildings", before=f"{over:.3g}:1", after=f"{max(over / TIMES, 1.0):.3g}:1",
        row=Row(wan=widened(wan, TIMES), networks=networks(), whole=False),
    )  # fmt: skip
    if bool(np.any(np.isfinite(wan.buffer))):
        deep = float(np.max(buffer_wanted(np.max(wan.uplink), np.max(wan.rtt), over, wan.assumed.incast)))
        yield Purchase(
            what="buffers", says="buffers of a round trip and what congestion control needs", before=show(float(np.min(wan.buffer)), "B"),
            after=show(deep, "B"), row=Row(wan=changed(wan, buffer=deep), networks=networks(), whole=False),
        )  # fmt: skip
    if bool(np.all(np.asarray(wan.planes) < PLANES)):
        yield Purchase(
            what="planes", says=f"adapters of {PLANES:g} ports: a failed link costs a part and no restart",
            before=f"{float(np.min(wan.planes)):g}", after=f"{PLANES:g}",
            row=Row(wan=changed(wan, planes=PLANES), networks=networks(), whole=False),
        )  # fmt: skip


def _sprayed() -> Iterator[Network]:
    """Every window with packets on all paths, and those that are lost sent again alone."""
    for streams, window, sends in WINDOWS:
        yield Network(
            balance="spray", flows=PRODUCTION.flows, transport="selective", streams=streams, window=window, sends=sends
        )
    yield from (one for one in networks() if one != PRODUCTION)


def worth(speedup: Ratio, price: float | None) -> float | None:
    """USD a GPU-hour that so much more work in it is worth; `price` in USD a GPU and second."""
    return None if price is None else 3600.0 * price * float(speedup - 1.0)


def bought(
    one: Purchase, step: float, choice: Mapping[str, Any], interval: Mapping[str, float], price: float | None
) -> dict[str, Any]:
    """Its entry of the JSON."""
    return {
        "what": one.what, "says": one.says, "from": one.before, "to": one.after, "free": one.free, "step_s": step, "choice": dict(choice),
        "speedup": dict(interval), "worth_usd_per_gpu_h": None if one.free else worth(float(interval["value"]), price),
    }  # fmt: skip
