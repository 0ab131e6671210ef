"""Collectives of gloo over emulated lines, timed on 2026-11-30, against the price that the engine has for them.

PyTorch 2.13 (gloo), two to four processes in network namespaces, lines of a user-space forwarder (rate, delay, no loss, deep queue),
TCP Reno; a row is the median of one to three runs over warm connections, or after `idle_s` of silence. Nothing was fitted to them: the
times follow from the order of sends, receives and notices in gloo's source. The forwarder adds 0.6 ms to a round trip, measured with
four bytes.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from shardmeter.engine.crossing import price
from shardmeter.physics.wan import HEADERS, wire_share
from shardmeter.specs import Crossing, Wan
from shardmeter.specs.plan import Sync

FORWARDER = 0.6e-3
"""Seconds that the forwarder adds to a round trip."""
Row = Mapping[str, str]
RECORDED = (Path(__file__).parent / "recorded" / "transport.csv").read_text(encoding="utf-8")
ROWS = tuple(csv.DictReader(RECORDED.splitlines()))


def predicted(row: Row) -> float:
    """Seconds of a row's collective."""
    count = int(row["members"])
    wan = Wan(
        islands=tuple("abcd"[:count]), bandwidth=float(row["bandwidth_bit_s"]) / 8.0, rtt=float(row["rtt_s"]) + FORWARDER, loss=0.0,
        window=4.0 * 2**20, streams=1.0, lanes=1.0, egress=np.nan, up=np.full(count, np.inf), down=np.full(count, np.inf),
        transport=("tcp",) * count, mtu=np.full((count, count), float(row["mtu"])), backend="gloo",
    )  # fmt: skip
    message = Crossing(label="probe", collective=row["collective"], size=float(row["bytes"]))
    found = price(message, wan, [(at,) for at in range(count)], Sync(), idle=float(row["idle_s"]))
    return float(found.seconds)


def errors(collective: str) -> dict[str, float]:
    """Predicted over measured − 1 by row."""
    return {
        f"{row['members']} x {row['bytes']} B, {row['bandwidth_bit_s']} bit/s, {row['rtt_s']} s, idle {row['idle_s']}": predicted(
            row
        )
        / float(row["seconds"])
        - 1.0
        for row in ROWS
        if row["collective"] == collective
    }


def test_the_record_covers_what_is_claimed() -> None:
    rows = [row for row in ROWS if row["collective"] == "all_reduce"]
    assert len(rows) >= 80
    assert {row["members"] for row in rows} == {"2", "3", "4"}
    assert {float(row["bytes"]) for row in rows} >= {1e6, 4e6, 16e6, 64e6}
    assert {float(row["rtt_s"]) for row in rows} == {0.005, 0.02, 0.1}


@pytest.mark.parametrize(
    ("collective", "median", "worst"), [("all_reduce", 0.01, 0.18), ("all_gather", 0.03, 0.21), ("exchange", 0.06, 0.42)]
)  # fmt: skip
def test_collectives_take_what_they_took(collective: str, median: float, worst: float) -> None:
    """Worst all-reduces: 64 MB, where send buffers fill; worst exchange: 4 MB over 100 ms, two of three runs of which lost packets."""
    found = errors(collective)
    assert statistics.median(map(abs, found.values())) <= median
    assert max(map(abs, found.values())) <= worst, max(found.items(), key=lambda one: abs(one[1]))


def test_bytes_on_the_wire_are_those_of_the_ring_and_its_headers() -> None:
    for row in ROWS:
        if row["wire_bytes"]:
            count, size = float(row["members"]), float(row["bytes"])
            sent = 2.0 * (count - 1.0) / count * size * float(wire_share(float(row["mtu"]), HEADERS))
            assert sent == pytest.approx(float(row["wire_bytes"]), rel=0.01)
