"""What joins the quantities of a run: products that are what they are by definition, each said once."""

from __future__ import annotations

from collections.abc import Mapping

from shardmeter.core.record import record
from shardmeter.physics.collectives import shard_traffic
from shardmeter.physics.flop_counts import parameter_flops

BEYOND_STEPS = 1.35
"""A run lasts as long as its steps, or up to so many times: checkpoints, restarts, evaluation. Published ones lose 5 to 30 %."""
BELOW_LINK = 1.6
"""An all-reduce takes as long as its bytes over the link, or up to so many times: start-up, and a plateau of 65 to 95 % of the wire."""


@record
class Identity:
    """Π quantityᵖᵒʷᵉʳ = constant; the product may be up to `slack` times as large where one side only bounds the other."""

    says: str
    powers: Mapping[str, float]
    constant: float = 1.0
    slack: float = 1.0
    because: str = ""
    """What the slack is."""
    counts: bool = False
    """Whether it counts FLOPs, which conventions do differently."""


def _product(says: str, result: str, factors: str, over: str = "", constant: float = 1.0, slack: float = 1.0, because: str = "") -> Identity:
    """result = constant × Π factors / Π over."""
    powers = {result: 1.0}
    for name in factors.split():
        powers[name] = powers.get(name, 0.0) - 1.0
    for name in over.split():
        powers[name] = powers.get(name, 0.0) + 1.0
    return Identity(says=says, powers=powers, constant=constant, slack=slack, because=because)


LOST = "checkpoints, restarts and evaluation, which steps do not show"
PLATEAU = "start-up, and a rate below the wire's"

IDENTITIES: tuple[Identity, ...] = (
    _product("tokens of a step = global batch × sequence", "tokens_per_step", "global_batch seq_len"),
    _product("global batch = micro-batch × accumulation × dp", "global_batch", "micro_batch accumulation dp"),
    _product("accelerators = dp × tp × pp × cp", "gpus", "dp tp pp cp"),
    _product("accelerators = nodes × accelerators of a node", "gpus", "nodes gpus_per_node"),
    _product("tokens/s = tokens of a step / step time", "tokens_per_s", "tokens_per_step", "step_time"),
    _product("tokens/s = sequences/s × sequence", "tokens_per_s", "samples_per_s seq_len"),
    _product("tokens/s = tokens/s of one accelerator × accelerators", "tokens_per_s", "tokens_per_s_per_gpu gpus"),
    _product("sequences/s = those of one accelerator × accelerators", "samples_per_s", "samples_per_s_per_gpu gpus"),
    _product("tokens/s of a node = those of one accelerator × its accelerators", "tokens_per_s_per_node", "tokens_per_s_per_gpu gpus_per_node"),
    _product("tokens/s of an accelerator = those of one core × its cores", "tokens_per_s_per_gpu", "tokens_per_s_per_core cores_per_gpu"),
    _product("tokens = steps × tokens of a step", "tokens", "steps tokens_per_step"),
    _product("tokens = epochs × tokens of an epoch", "tokens", "epochs dataset_tokens"),
    _product("time of the run = steps × step time", "wall_clock", "steps step_time", slack=BEYOND_STEPS, because=LOST),
    _product("time of the run = tokens / (tokens/s)", "wall_clock", "tokens", "tokens_per_s", slack=BEYOND_STEPS, because=LOST),
    _product("accelerator-hours = time × accelerators", "gpu_hours", "wall_clock gpus"),
    _product("accelerator-hours = tokens / (tokens/s of one)", "gpu_hours", "tokens", "tokens_per_s_per_gpu", slack=BEYOND_STEPS, because=LOST),
    _product("cost = rent × accelerator-hours", "cost", "price gpu_hours"),
    _product("rent of a node = rent of an accelerator × its accelerators", "price_per_node", "price gpus_per_node"),
    _product("cost = rent of a node × nodes × time", "cost", "price_per_node nodes wall_clock"),
    _product("FLOP/s = tokens/s × FLOPs of a token", "tflops_per_gpu", "tokens_per_s_per_gpu flops_per_token"),
    _product("FLOP/s of the job = those of one accelerator × accelerators", "tflops", "tflops_per_gpu gpus"),
    _product("FLOP/s of the job = tokens/s × FLOPs of a token", "tflops", "tokens_per_s flops_per_token"),
    _product("MFU = FLOP/s / peak", "mfu", "tflops_per_gpu", "peak"),
    _product("HFU = tokens/s × executed FLOPs of a token / peak", "hfu", "tokens_per_s_per_gpu executed_flops_per_token", "peak"),
    _product("FLOPs of the run = tokens × FLOPs of a token", "flops", "tokens flops_per_token"),
    _product("accelerator-hours = FLOPs / (FLOP/s of one)", "gpu_hours", "flops", "tflops_per_gpu", slack=BEYOND_STEPS, because=LOST),
    _product("a third of the FLOPs is forward", "flops_per_token", "forward_flops_per_token", constant=3.0),
    _product("states = parameters × bytes of each", "memory_states", "parameters bytes_per_parameter", "memory_shards"),
    _product("weights = copies × parameters × bytes of each / ranks", "memory_parameters", "copies parameters parameter_bytes", "memory_shards"),
    _product("gradients = parameters × bytes of each / ranks", "memory_gradients", "parameters gradient_bytes", "gradient_shards"),
    _product("optimizer states = parameters × bytes of each / ranks", "memory_optimizer", "parameters optimizer_bytes", "optimizer_shards"),
    _product("message = values × bits / 8", "message", "values bits", constant=1.0 / 8.0),
    _product("algbw = size / time", "algbw", "message", "allreduce_time"),
    _product("busbw = algbw × 2(n − 1)/n", "busbw", "algbw ring_factor"),
    _product("busbw ≤ link", "link", "busbw", slack=BELOW_LINK, because=PLATEAU),
    _product("time of a ring ≥ size × 2(n − 1)/n / link", "allreduce_time", "message ring_factor", "link", slack=BELOW_LINK, because=PLATEAU),
)  # fmt: skip
DENSE = Identity(says="every parameter is active", powers={"active_parameters": 1.0, "parameters": -1.0})
"""Where nothing is said of experts."""
SIX_N = Identity(
    says="FLOPs of a token = 6 × active parameters", powers={"flops_per_token": 1.0, "active_parameters": -1.0},
    constant=float(parameter_flops(1.0, 3.0)), counts=True,
)  # fmt: skip
"""Where no model says more."""


SHARED = {"memory_shards": ("zero3", "fsdp"), "gradient_shards": ("zero2", "zero3", "fsdp"), "optimizer_shards": ("zero1", "zero2", "zero3", "fsdp")}
"""Shardings that cut each part of the states over data parallel ranks."""


def sharded(sharding: str) -> tuple[Identity, ...]:
    """Ranks that share weights, gradients and optimizer states: tensor ranks and stages, and those of the sharding."""
    return tuple(
        _product(f"{name.replace('_', ' ')} = tp × pp{' × dp' if sharding in own else ''}", name, "tp pp dp" if sharding in own else "tp pp")
        for name, own in SHARED.items()
    )  # fmt: skip


def ring_factor(ranks: float) -> float:
    """Bytes that pass every rank of a ring all-reduce over its size: 2(n − 1)/n."""
    return 2.0 * float(shard_traffic(1.0, ranks, 1.0))
