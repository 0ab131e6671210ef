"""Collectives under emulated wide-area links (Yuan 2022): NCCL over TCP sockets between nodes of one adapter each.

`quantity` reads "allreduce time 128 MB", the method "NCCL/TCP allreduce"; MB there are MiB. Only what was set is read: nodes,
rate, round trip. Never `value`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds
from shardmeter.engine.crossing import price
from shardmeter.physics import crossing as collective
from shardmeter.specs.plan import Sync
from shardmeter.specs.round import Crossing
from shardmeter.specs.wan import Wan
from shardmeter.study.validate.rows import Damaged, NotModelled, Row, Unclear

QUANTITY = re.compile(r"(\w+) time ([0-9.]+) MB")
LIBRARY = "NCCL/TCP"
UP_TO_TEN = 9.75e9 / 8.0
"""Bytes per second of an adapter of "up to 10 Gbit/s": NCCL between two p3.2xlarge. The 10 of these rows is no set rate."""
LOCAL_RTT = 0.2e-3
"""Round trip where no delay was set: two nodes in one zone (a round number)."""
SOCKETS = 16.0
"""Streams that NCCL opens to a neighbour on AWS: 2 threads with 8 sockets each."""
JUMBO = 8949.0
"""Payload of a segment where packets have 9,001 bytes (inside a zone of AWS)."""


def predict_row(row: Mapping[str, str]) -> float:
    """Seconds of a row of such a table. Raises NotModelled for other libraries and collectives, Unclear where it says too little."""
    cells = Row(line=0, cells=row)
    found = QUANTITY.fullmatch(cells.text("quantity"))
    if found is None:
        raise NotModelled("no time of a collective")
    kind, size = found[1], float(found[2]) * 2.0**20
    if not cells.text("method").startswith(LIBRARY):
        raise NotModelled(f"the collectives of {cells.text('method') or 'an unnamed library'}")
    nodes, rate = cells.count("gpus_per_island"), cells.positive("wan_gbps")
    rtt = cells.number("rtt_ms")
    if nodes is None or rate is None:
        raise Unclear("gpus_per_island or wan_gbps is empty")
    if nodes < 2.0 or (rtt is not None and rtt < 0.0):
        raise Damaged("gpus_per_island" if nodes < 2.0 else "rtt_ms", "is too small", "two nodes, no negative time")
    capacity = UP_TO_TEN if rate == 10.0 else rate * 1e9 / 8.0
    return _seconds(kind, size, nodes, capacity, LOCAL_RTT if rtt is None else rtt * 1e-3)


def _seconds(kind: str, size: Bytes, nodes: Count, rate: BytesPerS, rtt: Seconds) -> float:
    if kind == "dp_sync_centralized_ps":  # NCCL's reduce and broadcast: a chain, not n − 1 transfers at once
        return float(collective.relay_time(size, rate, nodes - 1.0, rtt / 2.0))
    if kind not in SHAPES:
        raise NotModelled(f"{kind} as a collective")
    shape, calls = SHAPES[kind]
    message = Crossing(label=kind, collective=shape, size=size, calls=nodes if calls else 1.0)
    count = int(nodes)
    return float(price(message, _wan(count, rate, rtt), [(at,) for at in range(count)], Sync(), segment=JUMBO).seconds)


SHAPES = {
    "allreduce": ("all_reduce", False),
    "dp_sync_allreduce": ("all_reduce", True),
    "dp_sync_sharded_ps": ("sharded_star", False),
    "p2p": ("exchange", False),
}
"""Collective, and whether it is cut into as many calls as there are nodes: the test issues n all-reduces of size/n."""


def _wan(nodes: int, rate: BytesPerS, rtt: Seconds) -> Wan:
    """Nodes whose adapters are limited, each in both directions."""
    return Wan(
        islands=tuple(f"node-{at}" for at in range(nodes)), bandwidth=rate, rtt=rtt, loss=0.0, window=np.inf,
        streams=SOCKETS, lanes=1.0, egress=0.0, up=np.full(nodes, rate), down=np.full(nodes, rate),
        transport=("tcp",) * nodes,
    )  # fmt: skip
