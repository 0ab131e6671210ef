"""How the model is laid over the accelerators. Numbers broadcast; what sets the length of an axis (`pp`, `virtual_stages`) is an int."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction

AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")


@record
class Sync:
    """Synchronisation across islands; one island needs none."""

    method: str = "every_step"
    sync_every: Count = 1.0
    num_fragments: int = 1
    fragment_sync_delay: Count = 0.0
    fragment_update_alpha: Fraction = 0.0
    bits: Count = 16.0


@record
class Plan:
    """Degrees multiply to the accelerators of the island: tp · pp · cp · dp_shard · dp_replicate."""

    tp: Count = 1.0
    pp: int = 1
    cp: Count = 1.0
    ep: Count = 1.0
    etp: Count = 1.0
    dp_shard: Count = 1.0
    dp_replicate: Count = 1.0
    sharding: str = "fsdp"
    reshard: bool = True
    """fsdp: free gathered parameters after the forward pass and gather again for the backward."""
    micro_batch: Count = 1.0
    schedule: str = "1f1b"
    virtual_stages: int = 1
    recompute: str = "none"
    precision: str = "bf16"
    gather_dtype: str = "bf16"
    reduce_dtype: str = "fp32"
    optimizer: str = "adamw"
    master_dtype: str = "fp32"
    sequence_parallel: bool = True
    async_tp: bool = False
    """Tensor-parallel gathers and scatters pass in chunks behind the product they feed or empty (needs sequence_parallel)."""
    cp_kind: str = "ring"
    offload: tuple[str, ...] = ()
    trainable: str = "all"
    """all, lora(r=16), or blocks joined by +: embedding, layer, head, layer:24-31."""
    rank_order: tuple[str, ...] = AXES
    """Mesh axes, innermost (neighbouring ranks) first."""
    placement: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(axis, islands it crosses) pairs; empty inside one island."""
    sync: Sync = Sync()

    @property
    def dp(self) -> Count:
        """Data-parallel degree: replicas that see different sequences."""
        return self.dp_shard * self.dp_replicate

    @property
    def gpus(self) -> Count:
        """Product of the degrees."""
        return self.tp * self.pp * self.cp * self.dp_shard * self.dp_replicate

    def degree(self, axis: str) -> Count:
        """Size of one mesh axis."""
        return float(self.pp) if axis == "pp" else getattr(self, axis)

    def stride(self, axis: str) -> Count:
        """Distance between neighbouring ranks of one mesh axis: the product of the degrees inside it."""
        stride: Count = 1.0
        for inner in self.rank_order[: self.rank_order.index(axis)]:
            stride = stride * self.degree(inner)
        return stride
