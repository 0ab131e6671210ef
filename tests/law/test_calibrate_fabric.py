"""Links from benchmarks: planted numbers come back inside their intervals, which shrink; what is strange is told and left."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from shardmeter.core.errors import BadData
from shardmeter.core.record import changed
from shardmeter.engine.price import prices
from shardmeter.render.calibration_fabric import figures
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Plan, Stack, Transfer
from shardmeter.study.calibrate.curves import Rows, likeness
from shardmeter.study.calibrate.fabric import FabricFit, calibrate_fabric
from shardmeter.study.calibrate.fabric_rows import put_fabric
from shardmeter.study.calibrate.timings import Benchmark, Timing

CATALOG = load_catalog()
DEVICE, FABRIC = CATALOG.accelerator("H100-SXM5-80GB"), CATALOG.fabric("ib-ndr400")
PLANTED = {
    "scale_up_share": 0.70, "scale_up_reduce_share": 0.95, "scale_up_latency": 30e-6, "scale_up_step": 3e-6, "share": 0.62,
    "latency": 150e-6, "latency_base": 40e-6, "latency_step": 9e-6,
}  # fmt: skip
KINDS = (("all_reduce", 1), ("all_gather", 1), ("all_reduce", 4), ("all_gather", 4))
MANY, FEW = 2.0 ** np.arange(13, 34), 2.0 ** np.arange(18, 34, 5)


def planted(sizes, seed: int = 1, noise: float = 0.03) -> list[Benchmark]:
    """What a machine of the planted numbers would print: the engine's price, about which runs scatter."""
    chance = np.random.default_rng(seed)
    device = changed(DEVICE, **{name: value for name, value in PLANTED.items() if name.startswith("scale_up")})
    fabric = changed(FABRIC, **{name: value for name, value in PLANTED.items() if not name.startswith("scale_up")})
    stack = Stack(name="plain", nic_factor=1.0, scale_up_factor=1.0)
    found = []
    for collective, hosts in KINDS:
        island = build_island(accelerator=device, nodes=float(hosts), gpus_per_node=8.0, fabric=fabric)
        demand = Transfer(
            label="x", collective=collective, size=sizes, axes=("dp_shard",), phase="forward", scope="step"
        )
        seconds = prices(island, stack, Plan(dp_shard=8.0 * hosts), 2.0).transfer(demand).seconds
        seconds = seconds * np.exp(noise * chance.standard_normal(len(sizes)))
        timings = tuple(Timing(size=float(size), seconds=float(one)) for size, one in zip(sizes, seconds, strict=True))
        found.append(Benchmark(collective=collective, ranks=8.0 * hosts, hosts=float(hosts), per_host=8.0, timings=timings,
                               device="NVIDIA H100 80GB HBM3", backend="made up", source=f"{collective}-{hosts}"))  # fmt: skip
    return found


@cache
def fit(count: int) -> FabricFit:
    return calibrate_fabric(planted(MANY if count == len(MANY) else FEW), DEVICE, FABRIC)


def test_planted_numbers_come_back_inside_their_intervals() -> None:
    held = [
        one.low <= PLANTED[one.number.column] <= one.high
        for found in (fit(len(FEW)), fit(len(MANY))) for one in found.learned
    ]  # fmt: skip
    assert len(held) == 2 * 8
    assert np.mean(held) >= 0.8, "intervals are of 90 %"
    told = fit(len(MANY)).numbers("accelerators") | fit(len(MANY)).numbers("fabrics")
    for name in (
        "scale_up_share",
        "scale_up_reduce_share",
        "scale_up_latency",
        "scale_up_step",
        "share",
        "latency_step",
    ):
        assert told[name] == pytest.approx(PLANTED[name], rel=0.08), name
    assert fit(len(MANY)).error(calibrated=True) < 0.04 < fit(len(MANY)).error(calibrated=False)


def test_more_rows_make_intervals_narrower() -> None:
    def widths(found: FabricFit) -> dict[str, float]:
        return {one.number.column: np.log(one.high / one.low) for one in found.learned}

    few, many = widths(fit(len(FEW))), widths(fit(len(MANY)))
    for name in (
        "scale_up_share",
        "scale_up_reduce_share",
        "scale_up_latency",
        "scale_up_step",
        "share",
        "latency_step",
    ):
        assert many[name] < 0.8 * few[name], name


def test_rows_that_miss_a_curve_alike_count_as_fewer() -> None:
    doublings = np.arange(20.0)
    rows = Rows(curve=np.zeros(20, dtype=np.int64), doublings=doublings, seconds=doublings)
    assert likeness(rows, np.sin(doublings * np.pi / 10.0)) > 4.0
    assert likeness(rows, (-1.0) ** doublings) == 1.0


def test_spikes_are_told_and_change_nothing_much() -> None:
    benchmarks = planted(MANY)
    spiked = changed(benchmarks[0], timings=tuple(
        changed(one, seconds=one.seconds * (8.0 if at in (4, 15) else 1.0)) for at, one in enumerate(benchmarks[0].timings)
    ))  # fmt: skip
    found = calibrate_fabric([spiked], DEVICE, None)
    plain = calibrate_fabric([benchmarks[0]], DEVICE, None)
    assert [one.what for one in found.left] == [f"all_reduce of 8 on 1 host, {MANY[at]:g} bytes" for at in (4, 15)]
    assert "where its neighbours say about" in found.left[0].why
    assert found.numbers("accelerators")["scale_up_reduce_share"] == pytest.approx(
        plain.numbers("accelerators")["scale_up_reduce_share"], rel=0.02
    )
    assert found.fabric is None, "one host tells nothing of the network"
    assert found.bounds("fabrics") == {}


def test_what_cannot_be_used_is_refused_with_a_reason_each() -> None:
    one = planted(FEW)[2]
    with pytest.raises(BadData) as told:
        calibrate_fabric([one, changed(one, collective="broadcast"), changed(one, ranks=1.0)], DEVICE, None)
    reasons = [violation.says for violation in told.value.violations]
    assert reasons == [
        "several hosts, and no fabric is named between them",
        "the engine has no price for broadcast",
        "one rank sends nothing",
    ]


def test_a_network_faster_than_its_row_says_is_doubted() -> None:
    fast = [
        changed(one, timings=tuple(changed(t, seconds=t.seconds / 3.0) for t in one.timings))
        for one in planted(MANY)[2:]
    ]
    found = calibrate_fabric(fast, changed(DEVICE, name="B200"), FABRIC)
    assert any("as fast as the wires of B200 over ib-ndr400 could be" in text for text in found.warnings)
    assert any("it ran on NVIDIA H100" in text for text in found.warnings)


EFA_B200 = (
    (1, 5.37),
    (4, 18.9),
    (16, 64.43),
    (64, 156.74),
    (256, 229.09),
    (1024, 361.99),
    (4096, 377.34),
    (16384, 381.8),
)
"""(MiB, GB/s of bus bandwidth) of an all-reduce over four p6-b200 nodes, published in ml-engineering 744d01e (network pages)."""


def test_a_published_benchmark_is_met() -> None:
    """Four nodes are no witness of the starts for every doubling; of the plateau and of what the times come to, they are."""
    factor = 2.0 * 31.0 / 32.0
    timings = tuple(Timing(size=mib * 2.0**20, seconds=mib * 2.0**20 * factor / (rate * 1e9)) for mib, rate in EFA_B200)
    one = Benchmark(collective="all_reduce", ranks=32.0, hosts=4.0, per_host=8.0, timings=timings, source="four nodes")
    found = calibrate_fabric([one], CATALOG.accelerator("B200"), CATALOG.fabric("efa-v4"))
    assert found.error(calibrated=False) > 0.3, "the row has a start that is too short"
    assert found.error(calibrated=True) < 0.15
    low, high = found.bounds("fabrics")["share"]
    assert low < 0.79 < high, (
        "381.8 GB/s · (4 − 1)/(32 − 1) of 50 GB/s is 0.74; the phase inside the nodes takes its share"
    )


def test_the_profile_is_a_catalog_of_the_same_names(tmp_path: Path) -> None:
    found = fit(len(MANY))
    files = put_fabric(tmp_path, found, "2026-11-30", CATALOG)
    assert {file.name for file in files} == {"accelerators.csv", "fabrics.csv", "intervals.csv"}
    own = load_catalog((tmp_path,))
    assert own.fabric("InfiniBand NDR").share == pytest.approx(found.numbers("fabrics")["share"], rel=1e-5)
    assert own.accelerator("H100-SXM").scale_up_step == pytest.approx(
        found.numbers("accelerators")["scale_up_step"], rel=1e-5
    )
    assert own.accelerator("H100-SXM").peak == DEVICE.peak
    assert own.fabric("ib-ndr400").source == "calibrated from made up"


def test_the_page_says_before_and_after() -> None:
    text = str(fit(len(MANY)))
    assert "tell" in text.splitlines()[1]
    assert "scale_up_reduce_share" in text
    drawn = figures(fit(len(MANY)).to_dict())
    assert len(drawn) == len(KINDS)
    assert drawn[2].title.startswith("all_reduce of 32 on 4 hosts: off by 2 % after calibration")
