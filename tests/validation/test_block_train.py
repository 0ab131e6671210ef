"""The BlockTrain section of docs/zoo.md, figure by figure: published shapes on hosts, training by blocks, one traversal against a pipeline.

Every test computes what the section says, and finds it there.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.core.units import GIB
from shardmeter.engine import demand
from shardmeter.families import block_of, family, parameters
from shardmeter.render.islands import loss_text
from shardmeter.specs import Plan, Replica
from shardmeter.specs.demands import FORWARD
from shardmeter.study.infer import Inference
from shardmeter.sync import defaults, effect

TEXT = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")
PAGE = " ".join(TEXT.split("## BlockTrain", 1)[1].split("\n## ", 1)[0].split())

PUBLISHED = 75.8e9
SHAPES = ((123, 7168), (96, 8192), (60, 10240))
"""(layers, width) that come to it: neither is published."""
HOSTS = {
    "1 × A100-SXM4-40GB": False,
    "1 × L40S": False,
    "1 × A100-SXM4-80GB": True,
    "2 × L40S": True,
    "2 × RTX 5090": True,
    "4 × RTX 4090": True,
}
"""What a host may have, and whether a third of the model fits."""
BYTES = {"layers": 24, "hidden": 2048, "ffn": 8192}
"""A model over bytes that is trained by blocks in homes."""
WORKERS = (4, 8, 16, 32, 64, 128)


def says(*texts: str) -> None:
    """The section has every text."""
    missing = [text for text in texts if text not in PAGE]
    assert not missing, f"docs/zoo.md does not say {missing}"


def bytewise(layers: int, hidden: int, ffn: int) -> dict[str, Any]:
    """A plain transformer over bytes."""
    heads = hidden // 128
    return {
        "name": "bytes", "family": "decoder", "layers": layers, "hidden": hidden, "ffn": ffn, "heads": heads,
        "kv_heads": heads, "head_dim": 128, "vocab": 256, "mlp": "plain", "norm": "layer", "context": 4096,
    }  # fmt: skip


def published(layers: int, hidden: int) -> dict[str, Any]:
    """75.8B parameters of so many layers and such a width."""
    ffn = (PUBLISHED / layers - 4 * hidden**2) / (2 * hidden)
    return bytewise(layers, hidden, round(ffn / 512) * 512)


def hosts(gpus: str, model: dict[str, Any], count: int = 3, plan: Any = ()) -> dict[str, Any]:
    """Hosts on lines of 1 Gbit/s and 30 ms."""
    fleet: dict[str, Any] = {
        "islands": [{"name": f"host-{at}", "gpus": gpus.replace(" × ", "x")} for at in range(count)]
    }
    if count > 1:
        fleet["wan"] = {"default": {"bandwidth": "1 Gbps", "rtt": "30 ms"}}
    return {"model": model, "fleet": fleet, "plan": {"precision": "fp16", **dict(plan)}, "run": {"seq_len": 1024}}


def traversed(gpus: str, model: dict[str, Any], count: int = 3) -> Inference:
    """512 bytes written after 512 that are given, in one traversal of a block on each host."""
    return shardmeter.infer(hosts(gpus, model, count), how="block_train", output=512, in_flight=1)


@functools.cache
def trained(workers: int, blocks: int = 4, batch: float = 1024, every: float = 500, slow: str = "") -> dict[str, Any]:
    """The prediction of so many homes with an RTX 4090 each; `slow` is the line of one of them."""
    wan: dict[str, Any] = {"default": {"preset": "home-cable"}}
    if slow:
        wan["sites"] = {"home-6": {"up": slow, "down": slow}}
    sync = {"method": "block_train", "blocks": blocks, "sync_every": every}
    scenario = {
        "model": bytewise(**BYTES), "stack": "titan-compile",
        "fleet": {"islands": [{"name": "home", "gpus": "1xRTX 4090", "count": workers}], "wan": wan},
        "plan": {"sharding": "none", "micro_batch": 2, "recompute": "full", "sync": sync},
        "run": {"seq_len": 2048, "global_batch": batch, "tokens": "10B"},
    }  # fmt: skip
    return shardmeter.predict(scenario).to_dict()


# ---- what fits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", HOSTS)
def test_a_third_of_75_8b_on_a_host(gpus: str) -> None:
    """Whatever the width, a host needs the same: memory is that of its weights."""
    peaks = []
    for shape in SHAPES:
        model = published(*shape)
        answer = traversed(gpus, model)
        whole = float(parameters(answer.scenario.model))
        assert whole == pytest.approx(PUBLISHED, rel=5e-3)
        assert answer.fits == HOSTS[gpus]
        found = answer.served.hosts
        assert {host.layers for host in found} == {shape[0] // 3}
        held = sum(float(host.memory[0].size * host.accelerators) for host in found)
        assert held == pytest.approx(2.0 * whole, rel=2e-3)
        peaks.append(max(float(host.peak) for host in found) / GIB)
    assert max(peaks) - min(peaks) < 0.01 * max(peaks)
    limit = float(found[0].limit) / GIB
    verdict = "fits" if HOSTS[gpus] else "does not fit"
    says(f"| {gpus} | {max(peaks):.1f} of {limit:.0f} GiB | {verdict} |")


def test_fewer_hosts_of_80_gb() -> None:
    """Two would do, one would not, not even with 141 GB."""
    two = traversed("1 × A100-SXM4-80GB", published(*SHAPES[1]), 2)
    one = traversed("1 × H200-SXM-141GB", published(*SHAPES[1]), 1)
    assert two.fits
    assert not one.fits
    says(*(f"{max(float(host.peak) for host in found.served.hosts) / GIB:.1f} GiB" for found in (two, one)))


def test_training_three_blocks_of_it_takes_nodes() -> None:
    """18 bytes a parameter and a copy: a third of 75.8B is trained on eight accelerators of 80 GB, not on four."""
    plan = {
        "precision": "bf16",
        "sharding": "fsdp",
        "recompute": "full",
        "sync": {"method": "block_train", "blocks": 3},
    }
    model = published(*SHAPES[1])
    eight, four = (shardmeter.predict(hosts(f"{count}xA100-SXM4-80GB", model, plan=plan)) for count in (8, 4))
    assert eight.fits
    assert not four.fits
    says(f"{eight.memory_peak_gib:.1f} GiB on each of 8", f"{four.memory_peak_gib:.1f} on each of 4")


# ---- training by blocks ----------------------------------------------------------------------------------------------------------


def test_a_worker_computes_three_forwards_of_its_block() -> None:
    """Products, by the operations of all phases; the layers of all blocks are those of the model."""
    scenario = shardmeter.load(hosts("1xRTX 4090", bytewise(**BYTES), 1))

    def products(model: Any, forward: bool) -> float:
        works = demand.collect(model, Plan(sharding="none"), scenario.run, scenario.stack).blocks
        return sum(
            float(op.flops * count)
            for name, count in family(model.family).order(model)
            for op, _ in works[name].ops if op.kind == "gemm" and (op.phase == FORWARD or not forward)
        )  # fmt: skip

    whole, block = scenario.model, block_of(scenario.model, 4)
    assert products(block, False) == pytest.approx(3.0 * products(block, True))
    assert 4.0 * products(block, True) == pytest.approx(products(whole, True))


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_memory_of_a_worker(blocks: int) -> None:
    """Weights, gradients and moments of one block, an embedding and a head of its own; with copies, their mean."""
    found = trained(8, blocks, batch=64)
    sizes = {term["term"]: term["gib"] * GIB for term in found["memory"]["terms"]}
    size = float(parameters(block_of(shardmeter.load(hosts("1xRTX 4090", bytewise(**BYTES))).model, blocks)))
    states = sum(sizes[name] for name in ("parameters", "gradients", "optimizer state"))
    assert states == pytest.approx(18.0 * size, rel=1e-3)
    assert sizes["mean of the copies"] == pytest.approx(2.0 * size if blocks < 8 else 0.0, rel=1e-3)
    loss = found["sync"]["loss_effect"]
    verdict = "fits" if found["fits"] else "does not fit"
    says(
        f"| {blocks} | {size / 1e6:,.0f}M | {states / GIB:.2f} GiB | {found['memory']['peak_gib']:.2f} GiB, {verdict} "
        f"| {loss_text(loss)}: {loss['basis']} |"
    )


@pytest.mark.parametrize("workers", WORKERS)
def test_traffic_and_what_more_workers_buy(workers: int) -> None:
    """All together, a round: twice the model for every copy of it but the servers'. In proportion until the servers' lines are full."""
    found, copies = trained(workers), workers // 4
    sync, alone = found["sync"], trained(WORKERS[0])
    whole = 4.0 * sync["crossings"][0]["bytes"]
    assert sync["sent_bytes"] == pytest.approx(2.0 * whole * (copies - 1.0))
    in_time = sync["crossings"][0]["seconds"] <= sync["round_s"]
    assert found["tokens_per_s"] / alone["tokens_per_s"] == pytest.approx(copies if in_time else 1.0, rel=0.02)
    assert sync["progress"]["replicas"] == copies
    assert in_time == (workers < 128)
    message = f"{sync['crossings'][0]['seconds']:,.0f} s" if copies > 1 else "nothing"
    says(
        f"| {workers} | {copies} | {found['tokens_per_s']:,.0f} | {sync['round_s']:,.0f} s | {message} "
        f"| {sync['sent_bytes'] / 1e9:.1f} GB | {found['run']['wall_clock_s'] / 86400:.2f} d |"
    )


def test_total_traffic_is_twice_the_model_a_copy_and_round() -> None:
    """10.23 and 15.22 GB: parameters × further copies × rounds, no more can be told."""
    for total in (10.23e9, 15.22e9):
        says(f"{total / 4.0 / 1e9:.2f}·10⁹")
    says(f"{10.23e9 / 4.0 / 25e6:.0f} rounds")


def test_late_copies_are_skipped() -> None:
    """A home of 5 Mbit/s: the round lasts no longer, and its tokens are lost, to a block of which there are two copies."""
    usual, slow = (trained(8, batch=64, every=100, slow=line) for line in ("", "5 Mbps"))
    counted = {island["name"]: island["counted"] for island in slow["islands"]}
    assert slow["sync"]["round_s"] == usual["sync"]["round_s"]
    assert [name for name, share in counted.items() if share < 1.0] == ["home-6"]
    assert slow["tokens_per_s"] == pytest.approx(usual["tokens_per_s"] / 2.0, rel=1e-3)
    says(f"{slow['sync']['round_s']:.0f} s", f"{slow['sync']['crossings'][0]['seconds']:,.0f} s")


@pytest.mark.parametrize("blocks", [2, 3, 4, 5, 16])
def test_the_penalty_is_published_at_four_blocks_only(blocks: int) -> None:
    """1.359 − 1.320 nats a byte there, one copy of each; a guess, and said to be one, at any other number."""
    replica = Replica(parameters=1e9, gradient_bytes=2.0, layers=32.0, cells=float(blocks))
    found = effect(replica, changed(defaults("block_train"), blocks=blocks))
    assert found.basis == ("published" if blocks == 4 else "guess")
    assert ("outside what was published" in found.text) == (blocks != 4)
    if blocks == 4:
        assert found.nats == pytest.approx(1.359 - 1.320)
    assert (found.per, found.factor) == ("byte", None)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_copies_of_a_block_cost_what_replicas_do(blocks: int) -> None:
    """As local SGD of as many cells, beside what the cuts cost; with one block it is local SGD."""
    replica = Replica(parameters=1e9, gradient_bytes=2.0, layers=32.0, cells=8.0 * blocks)
    found = effect(replica, changed(defaults("block_train"), blocks=blocks))
    copies = effect(changed(replica, cells=8.0), changed(defaults("local_sgd"), sync_every=100.0))
    assert found.factor == copies.factor == pytest.approx(8.0 ** (0.0116 * math.log(100.0) / math.log(30.0)))
    assert found.basis == "guess"
    assert found.nats == (None if blocks == 1 else pytest.approx(0.013 * (blocks - 1)))
    assert copies.text in found.text


# ---- one traversal against a pipeline --------------------------------------------------------------------------------------------


def test_crossover_of_75_8b_on_three_hosts() -> None:
    """Seconds of the pipeline over those of one traversal, and the length at which they are equal, for every round trip."""
    answer = shardmeter.infer(hosts("1 × A100-SXM4-80GB", published(*SHAPES[1])), crossover=True).to_dict()
    lengths = []
    for row in answer["crossover"]:
        if row["fleet"]:
            continue
        ratios = {cell["output"]: cell["ratio"] for cell in row["cells"]}
        shown = " | ".join(f"{ratios[length]:.3g}" for length in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0))
        lengths.append(row["output_at"])
        says(f"| {1e3 * row['rtt_s']:g} ms | {shown} | {row['output_at']:.3g} |")
    assert lengths == sorted(lengths, reverse=True)
