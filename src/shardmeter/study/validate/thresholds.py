"""Published thresholds of being compute-bound, each beside the crossing that `transitions` finds: on a machine and a stack that are as
ideal as the formula takes them, and on real ones.

The formulas compare the time of matrix products with that of one collective at full rate, and nothing else (scaling book, the chapters on
training and on GPUs). Ideal here means: products at the peak (no tiles, waves or power limit), memory that costs nothing, launches and
the host's part of a step likewise, links at their wire rate with latencies of a nanosecond, rings only, bf16 on the wire, nothing lost to
overlap, no recomputation, a vocabulary of 128. What stays of a real step: 2 us that every kernel takes to start, core attention, and that
a rank holds one part of what it gathers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.scenario import opened
from shardmeter.study.transitions import transitions
from shardmeter.study.transitions.crossings import BALANCE

STACK = {
    "base": "titan-compile", "loss": "fused", "reduce_dtype": "bf16", "gather_dtype": "bf16", "gemm_factor": 1.0,
    "attention_factor": 1.0, "launch_overhead": "0s", "nic_factor": 1.0, "scale_up_factor": 1.0, "contention": 0.0,
    "step_overhead": "0s", "jitter": 0.0, "collectives": ["ring"],
}  # fmt: skip
MODEL = {"base": "llama-3.1-70b", "vocab": 128}
SQUARE = {**MODEL, "hidden": 14336, "heads": 112, "kv_heads": 112, "ffn": 28672, "mlp": "plain"}
"""A model whose attention block has as many products for a collective as its MLP: two matrices of D by F = 2 D in each."""
SEQUENCE = 8.0
"""Tokens of a sequence: micro-batches then move the tokens of a device in small steps, and attention costs nothing."""
TOKENS, LENGTHS = "plan.micro_batch=16..2048:x2", "run.seq_len=128..16384:x2"
SCALE_UP = "fleet.islands.0.accelerator.scale_up_bandwidth"


@record
class Threshold:
    """One statement of the book."""

    slug: str
    says: str
    book: float
    """The number that it gives: tokens of a device, or B/s of a link."""
    exact: float
    """The same where what a rank keeps of its own is not left out, and, of tensor parallelism, the backward is counted too."""
    unit: str
    ideal: Mapping[str, Any]
    axis: str
    each: float
    """What one unit of the axis is in `unit`."""
    real: Mapping[str, Any] | None = None
    real_says: str = ""
    real_axis: str = LENGTHS


def found(scenario: Mapping[str, Any], axis: str, each: float = 1.0) -> float | None:
    """Where communication, hidden and exposed, begins to take less than compute along an axis; None where it does not."""
    document, rows = opened(dict(scenario), overrides=(), catalog=None, options={})
    line = transitions(document, rows, axis).lines[0]
    places = [one.crossing.above.value * each for one in line.found if one.crossing.kind == BALANCE]
    return places[-1] if places else None


def ideal(
    devices: int, domain: int, peak: float, inside: float, outside: float, model: Mapping[str, Any] = MODEL, **plan: Any
) -> dict[str, Any]:
    """Devices of `peak` FLOP/s in domains of links of `inside` B/s each, joined by `outside` B/s each."""
    accelerator = {
        "base": "H100-SXM5-80GB", "peak": {"bf16": f"{peak / 1e12} TFLOP/s"}, "matmul_share": {"bf16": 1.0}, "processors": 0,
        "memory": "1 PB", "memory_bandwidth": "900000 TB/s", "scale_up_bandwidth": f"{inside / 1e9} GB/s", "scale_up_share": 1.0,
        "scale_up_latency": "1ns", "scale_up_step": "1ns", "scale_up_domain": domain, "node_size": domain,
    }  # fmt: skip
    island: dict[str, Any] = {"accelerator": accelerator, "nodes": devices // domain, "gpus_per_node": domain}
    if devices > domain:
        delays = dict.fromkeys(("latency", "latency_base", "latency_step"), "1ns")
        island["fabric"] = {"bandwidth": f"{outside / 1e9} GB/s", "share": 1.0, **delays}
    return {
        "model": dict(model), "stack": STACK, "fleet": {"islands": [island]}, "run": {"seq_len": SEQUENCE},
        "plan": {"sharding": "fsdp", "recompute": "none", **plan},
    }  # fmt: skip


def _real(model: str, gpus: str, stack: str, **plan: Any) -> dict[str, Any]:
    return {
        "model": model,
        "stack": stack,
        "gpus": gpus,
        "plan": {"sharding": "fsdp", "recompute": "none", **plan},
        "run": {"seq_len": 4096},
    }


def _data_parallel(
    slug: str,
    says: str,
    peak: float,
    rate: float,
    devices: int,
    domain: int,
    units: int,
    real: Mapping[str, Any] | None,
    real_says: str,
) -> Threshold:
    """Tokens of a device from which sharded data parallelism is compute-bound: C/W; over few units of ranks times (X − 1)/X."""
    kept = 1.0 - 1.0 / units
    book = peak / rate * (kept if units == 2 else 1.0)
    inside, outside = (rate, 0.0) if devices == domain else (BOUNDLESS, rate / domain)
    return Threshold(
        slug=slug, says=says, book=book, exact=peak / rate * kept, unit="tokens", ideal=ideal(devices, domain, peak, inside, outside),
        axis=TOKENS, each=SEQUENCE, real=real, real_says=real_says,
    )  # fmt: skip


BOUNDLESS = 1e14
"""B/s inside a node where the formula knows only the rate out of it."""
V5P, H100, B200 = 459e12, 990e12, 2250e12
TP = 8.0
THRESHOLDS = (
    _data_parallel(
        "v5p-one-axis", "TPU v5p, data parallel or FSDP over one axis: 2,550 tokens a chip", V5P, 180e9, 512, 512, 512, None, ""
    ),
    _data_parallel(
        "v5p-three-axes", "TPU v5p over all three axes: 850", V5P, 540e9, 512, 512, 512,
        _real("llama-3.1-70b", "512xTPU-v5p", "maxtext-2024"), "512 TPU v5p, maxtext-2024, Llama 70B",
    ),
    _data_parallel(
        "h100-node", "H100 within a node: 2,200 tokens a GPU", H100, 450e9, 512, 512, 512,
        _real("llama-3.1-8b", "8xH100-SXM5-80GB", "titan-compile"), "8 H100, titan-compile, Llama 8B",
    ),
    _data_parallel(
        "h100-nodes", "H100 across nodes: 2,475", H100, 400e9, 1024, 8, 128,
        _real("llama-3.1-70b", "1024xH100-SXM5-80GB", "titan-compile"), "1,024 H100, titan-compile, Llama 70B",
    ),
    _data_parallel(
        "h100-two-nodes", "H100 over two nodes: 1,237", H100, 400e9, 16, 8, 2,
        _real("llama-3.1-8b", "16xH100-SXM5-80GB", "titan-compile"), "16 H100, titan-compile, Llama 8B",
    ),
    _data_parallel(
        "b200-nodes", "B200 across nodes: 5,625", B200, 400e9, 1024, 8, 128,
        _real("llama-3.1-70b", "1024xB200-SXM", "titan-compile"), "1,024 B200, titan-compile, Llama 70B",
    ),
    Threshold(
        slug="tensor-parallel", says="Tensor parallelism over Y = 8 with F = 28,672 is compute-bound while Y < F W/C (forward pass)",
        book=TP * H100 / 28672.0, exact=TP * H100 / 28672.0 * (1.0 - 1.0 / TP) * 2.0 / 3.0, unit="B/s",
        ideal=ideal(8, 8, H100, 450e9, 0.0, SQUARE, tp=8, micro_batch=1024), axis=f"{SCALE_UP}=20GB/s..2000GB/s:log9", each=1.0,
        real={
            "model": "llama-3.1-70b", "stack": "mcore-2024", "fleet": {"islands": [{"accelerator": {"base": "H100-SXM5-80GB"}, "nodes": 1}]},
            "plan": {"sharding": "zero1", "tp": 8}, "run": {"seq_len": 4096},
        }, real_says="8 H100, mcore-2024, Llama 70B",
        real_axis=f"{SCALE_UP}=20GB/s..2000GB/s:log9",
    ),
)  # fmt: skip
