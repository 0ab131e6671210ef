"""What passes between islands, against what was measured: collectives under emulated links, and RDMA over hundreds of kilometres."""

import csv

import numpy as np
import pytest

from shardmeter import data
from shardmeter.engine.links import rates
from shardmeter.physics import wan as physics
from shardmeter.specs.wan import Wan
from shardmeter.study.validate.geo.collectives import predict_row
from shardmeter.study.validate.rows import Damaged, NotModelled, Unclear

FAULTY = {"TCC-181": "below the time that its bytes need", "TCC-194": "longer than with twice the nodes"}
FIBRE = {50: 632e-6, 100: 1131e-6, 200: 2138e-6, 300: 3158e-6, 400: 4145e-6, 500: 5179e-6}
"""Round trips over so many kilometres of fibre (HPE 2026)."""


def rows():
    with data.open_text("geo/rows.csv") as lines:
        return [row for row in csv.DictReader(lines) if row["id"].startswith("TCC-")]


def errors(kind, *, slow=None, default=None):
    """Relative errors of a kind of collective; `slow`: delays of 50 ms, `default`: no rate set."""
    found = []
    for row in rows():
        if row["method"] != f"NCCL/TCP {kind}" or row["id"] in FAULTY:
            continue
        if slow in {None, row["rtt_ms"] == "100"} and default in {None, not row["rtt_ms"]}:
            found.append(predict_row(row) / float(row["value"]) - 1.0)
    return np.array(found)


@pytest.mark.parametrize(
    ("kind", "only", "count", "bar", "worst"),
    [
        ("allreduce", {"default": False}, 24, 0.005, 0.03),
        ("allreduce", {}, 32, 0.05, 0.2),
        ("dp_sync_allreduce", {"slow": True}, 6, 0.04, 0.06),
        ("dp_sync_allreduce", {"slow": False}, 24, 0.1, 0.3),
        ("dp_sync_centralized_ps", {}, 29, 0.08, 0.2),
        ("dp_sync_sharded_ps", {}, 29, 0.08, 0.2),
        ("p2p", {}, 20, 0.02, 0.08),
    ],
)
def test_collectives_keep_their_bars(kind, only, count, bar, worst):
    found = np.abs(errors(kind, **only))
    assert len(found) == count
    assert found.mean() <= bar
    assert found.max() <= worst


def test_the_faulty_rows_are_those_that_cannot_be():
    by_id = {row["id"]: row for row in rows()}
    central, sharded = (by_id[one] for one in FAULTY)
    assert float(central["value"]) < 2 * 1024 * 2**20 / (float(central["wan_gbps"]) * 1e9 / 8)
    twice = by_id["TCC-195"]
    assert (twice["gpus_per_island"], sharded["gpus_per_island"]) == ("16", "8")
    assert float(sharded["value"]) > 1.3 * float(twice["value"])


def test_a_prediction_does_not_read_the_measured_value():
    for row in rows():
        assert predict_row(row) == predict_row({**row, "value": ""})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"method": "Gloo/TCP allreduce"}, NotModelled),
        ({"quantity": "iteration time"}, NotModelled),
        ({"quantity": "alltoall time 128 MB"}, NotModelled),
        ({"gpus_per_island": ""}, Unclear),
        ({"gpus_per_island": "1"}, Damaged),
        ({"wan_gbps": "fast"}, Damaged),
        ({"rtt_ms": "-1"}, Damaged),
    ],
)
def test_rows_that_cannot_be_read_say_so(change, error):
    with pytest.raises(error):
        predict_row({**rows()[0], **change})


@pytest.mark.parametrize("kilometres", FIBRE)
def test_round_trips_over_fibre(kilometres):
    found = physics.rtt_of_distance(kilometres, 1.0, physics.PER_KILOMETRE, physics.EQUIPMENT)
    assert found == pytest.approx(FIBRE[kilometres], rel=0.008)


def long_haul(window, queue_pairs, kilometres, loss=0.0):
    """Bit/s of RDMA writes over a line of 100 Gbit/s."""
    wan = Wan(
        islands=("here", "there"), bandwidth=12.5e9, rtt=FIBRE[kilometres], loss=loss, window=window, streams=queue_pairs,
        lanes=1.0, egress=0.0, up=np.full(2, np.inf), down=np.full(2, np.inf), transport=("rdma", "rdma"),
    )  # fmt: skip
    return rates(wan)[0, 1] * 8.0


@pytest.mark.parametrize(("queue_pairs", "messages", "measured"), [(16.0, 64.0, 99.99e9), (8.0, 208.0, 99.5e9)])
def test_a_line_is_full_where_its_round_trip_is_under_way(queue_pairs, messages, measured):
    window = messages * 64 * 1024.0
    assert long_haul(window, queue_pairs, 500) == pytest.approx(measured, rel=0.006)
    assert long_haul(window / 4.0, queue_pairs, 500) < measured / 2.0


def test_go_back_n_pays_for_what_is_under_way():
    healthy, bad = (long_haul(1e9, 1.0, 100, loss) for loss in (1e-8, 1e-5))
    assert healthy == pytest.approx(100e9, rel=1e-3)
    packets = 12.5e9 * FIBRE[100] / physics.PACKET
    assert bad == pytest.approx(100e9 / (1.0 + 1e-5 * packets), rel=1e-4)
