"""Iterations of the decentralised-pipeline runs (64 V100, emulated networks): a row of each system and network, and what must hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.study.validate.geo.constants import BOUNDS, FITTED
from shardmeter.study.validate.geo.links import network, shuffled
from shardmeter.study.validate.geo.pipelines import predict_row
from shardmeter.study.validate.rows import NotModelled

NOTES = {
    1: "case1_dc_ondemand: 8 x p3.16xlarge, 25 Gbps",
    2: "case2_dc_spot: 8 x p3.8xlarge + 32 x p3.2xlarge, 10 Gbps",
    3: "case3_two_universities: 2 sites x 32, inside 5 Gbps 1 ms, across 1.12 Gbps 11 ms",
    4: "case4_regional: 4 sites x 16, inside 2 Gbps 5 ms, across 1.02-1.25 Gbps 11-67 ms",
    5: "case5_worldwide: 8 regions x 8",
}
MEASURED = [
    # (case, system, layers, sequences, seconds, bar): two layer counts and batches of the systems
    (1, "Ours w scheduler", 24, 1024, 10.143, 0.15),
    (1, "Ours wo Scheduler", 32, 2048, 39.657, 0.12),
    (1, "Megatron-P8", 40, 4096, 111.58, 0.15),
    (1, "Megatron-T8", 24, 1024, 25.04, 0.15),
    (1, "Deepspeed PP", 32, 4096, 81.797, 0.2),
    (2, "Ours w scheduler", 24, 4096, 45.33, 0.08),
    (2, "Megatron-P8", 32, 2048, 43.9, 0.12),
    (2, "Megatron-T8", 24, 1024, 265.42, 0.15),
    (2, "Megatron-P2T4", 24, 1024, 118.99, 0.1),
    (2, "Deepspeed PP", 24, 2048, 35.35, 0.15),
    (3, "Ours w scheduler", 32, 2048, 37.18, 0.12),
    (3, "Ours wo Scheduler", 40, 4096, 100.15, 0.08),
    (3, "Megatron-P8 (Default)", 24, 4096, 81.4, 0.12),
    (3, "Deepspeed PP", 40, 1024, 51.77, 0.15),
    (4, "Ours w scheduler", 24, 1024, 21.97, 0.12),
    (4, "Ours wo Scheduler", 24, 4096, 105.97, 0.1),
    (4, "Megatron-P8 (Default)", 40, 2048, 85.65, 0.15),
    (4, "Megatron-P8 (wo Scheduler)", 24, 4096, 195.75, 0.1),
    (4, "ZeRO S3", 32, 1024, 552.99, 0.15),
]
THROTTLED = [
    # Megatron P8, every link 1 Gbit/s: (layers, milliseconds of round trip, seconds)
    (24, 20, 46.36),
    (40, 20, 49.01),
    (24, 100, 65.98),
    (40, 100, 78.16),
]


def asked(case: int, system: str, layers: int = 24, sequences: int = 1024) -> dict[str, str]:
    return {
        "method": system, "model": f"GPT-3-XL-like {layers}L d2048 seq2048 fp16, mbs 1", "n_layers": str(layers),
        "global_batch_tokens": str(sequences * 2048), "gpus_per_island": "64", "wan_gbps": "dtfm_links.csv", "rtt_ms": "",
        "notes": NOTES[case],
    }  # fmt: skip


def uniform(method: str, layers: int, gbps: str, rtt: float, sequences: int = 1024, gpus: int = 64) -> dict[str, str]:
    return {
        "method": method, "model": f"GPT3 {layers}L d2048 seq2048 fp16", "n_layers": "", "gpus_per_island": str(gpus),
        "global_batch_tokens": str(sequences * 2048), "wan_gbps": gbps, "rtt_ms": str(rtt), "notes": "every link alike",
    }  # fmt: skip


@pytest.mark.parametrize(("case", "system", "layers", "sequences", "seconds", "bar"), MEASURED)
def test_an_iteration_of_each_system(
    case: int, system: str, layers: int, sequences: int, seconds: float, bar: float
) -> None:
    assert predict_row(asked(case, system, layers, sequences)) == pytest.approx(seconds, rel=bar)


@pytest.mark.parametrize(("layers", "rtt", "seconds"), THROTTLED)
def test_the_same_1f1b_holds_where_every_link_is_throttled(layers: int, rtt: int, seconds: float) -> None:
    row = uniform("Megatron P8 T1 D8, micro-batch 1", layers, "1", rtt)
    assert predict_row(row) == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize("case", [3, 4, 5])
def test_scheduling_helps_and_zero_3_does_not(case: int) -> None:
    seconds = {
        system: predict_row(asked(case, system))
        for system in ("Ours w scheduler", "Ours wo Scheduler", "Megatron-P8 (wo Scheduler)", "Deepspeed PP", "ZeRO S3")
    }
    assert min(seconds, key=lambda system: seconds[system]) == "Ours w scheduler"
    assert seconds["ZeRO S3"] > 3 * seconds["Deepspeed PP"]


@pytest.mark.parametrize("method", ["Megatron P8 T1 D8", "GPipe 8 stages, DP8 (ours)", "Megatron TP4 PP2 DP8"])
def test_a_wider_or_nearer_network_is_never_slower(method: str) -> None:
    near = [predict_row(uniform(method, 24, "2", rtt)) for rtt in (1, 10, 60)]
    wide = [predict_row(uniform(method, 24, gbps, 10)) for gbps in ("8", "4", "1", "0.5")]
    assert near == sorted(near)
    assert wide == sorted(wide)


def test_assignments_are_those_of_the_experimenters_generator() -> None:
    assert list(shuffled(2022, 64))[:8] == [0, 2, 32, 33, 4, 10, 7, 45]
    assert sorted(shuffled(2024, 64)) == list(range(64))


def test_the_unbalanced_worldwide_network_is_scheduled_by_region() -> None:
    net = network("case5_2: 8 regions, not balanced", {})
    node = np.argsort(net.scheduled).reshape(8, 8)
    inside = [net.delay[one, other] == 10e-3 for row in node for one, other in itertools.pairwise(row)]
    assert sum(inside) > 40  # of 56 boundaries; at random about one in eight
    assert network("worldwide, 8 regions", {}).delay[0, 8] == 67e-3


def test_what_cannot_be_expressed_says_so() -> None:
    with pytest.raises(NotModelled, match="names none of the networks"):
        predict_row({**asked(1, "Megatron-P8"), "notes": "case9: the moon"})
    with pytest.raises(NotModelled, match="does not fit"):
        predict_row({**asked(3, "Megatron-P8"), "n_layers": "many"})
    with pytest.raises(NotModelled, match="no model of the system 'Varuna'"):
        predict_row(asked(3, "Varuna"))


def test_constants_are_few_and_within_what_is_possible() -> None:
    assert len(BOUNDS) == 8
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(FITTED, name) < high
    slow = changed(FITTED, layer=2 * FITTED.layer)
    assert predict_row(asked(1, "Ours w scheduler"), slow) > 1.5 * predict_row(asked(1, "Ours w scheduler"))
