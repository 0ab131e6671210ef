"""How parameters, gradients and optimizer states lie over the data-parallel ranks."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class ShardingReading:
    """A strategy and its two degrees. `kind` is a word of `Plan.sharding`."""

    kind: str
    shard: float
    replicate: float
    reshard: bool = True


UNSTATED: dict[str, str] = {
    "aa-2023": "zero1",
    "mlm-2023": "ddp",
    "mlm-2026": "zero1",
    "nemo-2023": "zero1",
    "mcore-2024": "zero1",
    "mcore-2025": "zero1",
    "bridge-2025": "zero1",
    "bridge-2026": "zero1",
    "bridge-2026-graphs": "zero1",
    "mlperf-nemo": "zero1",
    "misc-small": "ddp",
    "torchtune-2025": "fsdp",
    "titan-eager": "fsdp",
    "titan-compile": "fsdp",
    "fsdp-2024": "fsdp",
    "automodel-2025": "fsdp",
    "maxtext-2024": "fsdp",
}
"""What a source that is silent most likely used, by stack: NVIDIA's recipes run the distributed optimizer."""


def read_sharding(text: str, dp: float, stack: str, scale_up: float) -> ShardingReading:
    """The strategy that `text` names over `dp` replicas; `scale_up` is the node that hsdp shards over by default."""
    plain = text.lower()
    if not plain:
        if dp == 1.0:
            return ShardingReading(kind="none", shard=1.0, replicate=1.0)
        if stack not in UNSTATED:
            raise Unclear("the sharding is not stated")
        plain = UNSTATED[stack]
    if "group sizes not in the table" in plain:
        raise Unclear("the sizes of the sharding groups are not stated")
    kind = _kind(plain)
    if kind == "none":
        if dp > 1.0:
            raise Unclear(f"sharding none with {dp:g} replicas")
        return ShardingReading(kind="none", shard=1.0, replicate=1.0)
    if kind == "ddp":
        return ShardingReading(kind="ddp", shard=1.0, replicate=dp)
    reshard = not re.search(r"shard_grad_op|not resharded|reshard=no", plain)
    shard = _group(plain, dp, scale_up)
    if shard > dp or dp % shard:
        raise Unclear(f"a sharding group of {shard:g} does not divide {dp:g} replicas")
    return ShardingReading(kind=kind, shard=shard, replicate=dp / shard, reshard=reshard)


def _kind(plain: str) -> str:
    """The word of `Plan.sharding`. FSDP wins over the ZeRO stage that a bracket explains it with."""
    if re.search(r"ddp/zero1|zero1/ddp|ddp/distributed", plain):
        return "zero1"
    if re.search(r"fsdp|full_shard|hsdp|full shard", plain):
        return "fsdp"
    if re.search(r"distributed ?optimizer|distributed_fused_adam|zero-?1", plain):
        return "zero1"
    for stage in ("2", "3"):
        if re.search(rf"zero-?{stage}", plain):
            return f"zero{stage}"
    if re.search(r"\bddp\b|zero-?0|data parallel", plain):
        return "ddp"
    if re.search(r"\bnone\b", plain):
        return "none"
    raise NotModelled(f"sharding not known: {plain}")


def _group(plain: str, dp: float, scale_up: float) -> float:
    """The size of the sharding group: as printed (`over 8`, `group 64`, `within slice (16)`), else all replicas."""
    slices = re.search(r"within slice \((\d*)\).*?(\d+) slice", plain)
    if slices:
        return float(slices.group(1)) if slices.group(1) else dp / float(slices.group(2))
    group = re.search(r"(?:over|group) (\d+)", plain)
    if group:
        return float(group.group(1))
    if re.search(r"hsdp|hybrid", plain):
        return min(dp, max(scale_up, 1.0))
    return dp
