"""Single changes of a plan or of the hardware, as functions: a move gives the changed record, or None where it means nothing.

Whether what comes out is legal is the constraints' business, whether it helps the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from shardmeter.core.errors import ShardMeterError, quoted
from shardmeter.core.record import changed
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.fleet import Island
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.sync import laid, method

Laid: TypeAlias = tuple[Plan, Island]
Move: TypeAlias = Callable[[Plan, Island], Laid | None]

LADDER = ("none", "selective", "full")
SHOWN = (
    "sharding", "tp", "pp", "dp_shard", "dp_replicate", "reshard", "micro_batch", "schedule", "virtual_stages",
    "recompute", "reduce_dtype", "optimizer", "async_tp",
)  # fmt: skip
"""Fields that moves change, in the order in which a change is told."""
LAYOUT = frozenset({"sharding", "tp", "pp", "dp_shard", "dp_replicate"})


def micro_batch(factor: float) -> Move:
    """So many times the micro-batch."""
    return lambda plan, island: _whole(plan, island, micro_batch=float(plan.micro_batch) * factor)


def recompute(policy: str) -> Move:
    """Another recomputation; none without a backward, for which nothing is kept."""
    return lambda plan, island: (
        None if plan.recompute == policy or plan.probes is not None else (changed(plan, recompute=policy), island)
    )


def side_by_side(factor: float) -> Move:
    """So many times the passes without a backward that run together, each with a copy of the weights of its own."""

    def move(plan: Plan, island: Island) -> Laid | None:
        sync, probes = plan.sync, plan.probes
        if probes is None or "together" not in method(sync.method).FIELDS:
            return None
        together = float(sync.together) * factor
        if together < 1.0 or together > float(probes.passes) or float(probes.passes) % together:
            return None
        return laid(plan, changed(sync, together=together)), island

    return move


def fewer_side_by_side(plan: Plan) -> list[Move]:
    """Half of the passes side by side, a quarter, and so on down to one; nothing where there are none."""
    halvings = int(math.log2(max(float(plan.sync.together), 1.0))) if plan.probes is not None else 0
    return [side_by_side(0.5**time) for time in range(1, halvings + 1)]


def recompute_steps(plan: Plan) -> tuple[Move, ...]:
    """One step less and one step more of recomputation."""
    if plan.recompute not in LADDER:
        return tuple(recompute(policy) for policy in LADDER)
    at = LADDER.index(plan.recompute)
    return tuple(recompute(LADDER[other]) for other in (at - 1, at + 1) if 0 <= other < len(LADDER))


def sharding(name: str) -> Move:
    """Another sharding over the same data-parallel ranks; `hsdp` shards inside the scale-up domain and replicates outside."""

    def move(plan: Plan, island: Island) -> Laid | None:
        ranks = float(plan.dp)
        shard = float(island.tiers[0].size) / float(plan.tp) if name == "hsdp" else ranks
        copies = ranks / shard
        if ranks == 1.0 or (name == "hsdp" and (shard <= 1.0 or copies <= 1.0)):
            return None
        word = "fsdp" if name == "hsdp" else name
        return _whole(plan, island, sharding=word, dp_shard=shard, dp_replicate=copies)

    return move


def keep_gathered(plan: Plan, island: Island) -> Laid | None:
    """The other choice of `reshard`, where parameters are gathered for a backward."""
    gathers = plan.sharding in ("fsdp", "zero3") and plan.probes is None
    return (changed(plan, reshard=not plan.reshard), island) if gathers else None


def degree(axis: str, factor: float) -> Move:
    """So many times tp or pp, taken from or given to the data-parallel ranks; tp not wider than the scale-up domain, where the
    model is known to be wrong (docs/accuracy.md)."""

    def move(plan: Plan, island: Island) -> Laid | None:
        size = float(plan.degree(axis)) * factor
        if axis == "tp" and factor > 1.0 and size > float(island.tiers[0].size):
            return None
        shard, copies = float(plan.dp_shard) / factor, float(plan.dp_replicate)
        if shard < 1.0 or shard != int(shard):
            shard, copies = float(plan.dp_shard), copies / factor
        fields: dict[str, Any] = {axis: size, "dp_shard": shard, "dp_replicate": copies}
        if size == 1.0 and axis == "pp":
            fields |= {"schedule": "1f1b", "virtual_stages": 1.0}
        return _whole(plan, island, **fields)

    return move


def resolved(plan: Plan, tp: float, stack: Stack) -> Plan:
    """The plan as a scenario with a tp raised from 1 resolves it: whether gathers pass in chunks is the stack's default again."""
    if tp != 1.0 or plan.tp == 1.0:
        return plan
    return changed(plan, async_tp=plan.async_tp or (stack.async_tp and plan.sequence_parallel))


def chunks(plan: Plan, island: Island) -> Laid | None:
    """Twice the virtual stages."""
    if plan.pp == 1:
        return None
    return _whole(plan, island, schedule="interleaved", virtual_stages=2.0 * plan.virtual_stages)


def fewer_chunks(plan: Plan, island: Island) -> Laid | None:
    """One stage a rank again."""
    return _whole(plan, island, schedule="1f1b", virtual_stages=1.0) if plan.virtual_stages > 1 else None


def narrow_reduction(plan: Plan, island: Island) -> Laid | None:
    """Gradients reduced in 16 bits, where there are any."""
    narrow, wide = "fp16" if plan.precision == "fp16" else "bf16", plan.reduce_dtype == "fp32"
    return (changed(plan, reduce_dtype=narrow), island) if wide and plan.probes is None else None


def small_states(plan: Plan, island: Island) -> Laid | None:
    """Optimizer states of 8 bits; a method without a backward brings its own."""
    wide = plan.optimizer == "adamw" and plan.probes is None
    return (changed(plan, optimizer="adamw8bit"), island) if wide else None


def more_nodes(factor: float) -> Move:
    """So many times the nodes; the data-parallel ranks that shard take them. None where no such island is known."""

    def move(plan: Plan, island: Island) -> Laid | None:
        larger = resized(island, float(island.gpus) * factor)
        return None if larger is None else (changed(plan, dp_shard=float(plan.dp_shard) * factor), larger)

    return move


def node_size(island: Island) -> float:
    """GPUs of a whole node: what the nodes have where there are several, else what a node of that device has at least."""
    own = float(island.gpus_per_node)
    return own if island.nodes > 1 else max(own, float(island.accelerator.node_size))


def resized(island: Island, gpus: float) -> Island | None:
    """The island with so many GPUs: part of one node, or whole nodes. Its last tier ends with it, and tiers that nothing
    crosses fall away. Where it has no fabric, nodes are joined by what is known to lie outside; None where nothing is, and
    for GPUs that are no number of nodes, or of the units of nodes that it has."""
    if gpus == island.gpus:
        return island
    each = min(gpus, node_size(island))
    if gpus % each:
        return None
    if len(island.tiers) == 1:
        return _rebuilt(island, gpus / each, each)
    kept = [tier for tier in island.tiers[:-1] if tier.size < gpus]
    if any(gpus % tier.size for tier in kept[1:]):
        return None
    last = changed(island.tiers[len(kept)], size=gpus)
    return changed(island, nodes=gpus / each, gpus_per_node=each, tiers=(*kept, last))


def _rebuilt(island: Island, nodes: float, gpus_per_node: float) -> Island | None:
    """An island of one scale-up domain in another size, as a scenario that names it would build it."""
    from shardmeter.scenario.islands import build_island

    try:
        made = build_island(
            accelerator=island.accelerator,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            fabric=island.outside,
            name=island.name,
        )
    except ShardMeterError:
        return None
    own = {name: getattr(island, name) for name in ("price", "price_basis", "tariff", "power", "region")}
    return changed(made, **own)


def twice_fabric(plan: Plan, island: Island) -> Laid | None:
    """Twice the bandwidth of everything outside the scale-up domain."""
    outer = tuple(changed(tier, bandwidth=2.0 * tier.bandwidth) for tier in island.tiers[1:])
    return (plan, changed(island, tiers=(island.tiers[0], *outer))) if outer else None


def twice_scale_up(plan: Plan, island: Island) -> Laid | None:
    """Twice the bandwidth inside the scale-up domain."""
    inner = changed(island.tiers[0], bandwidth=2.0 * island.tiers[0].bandwidth)
    device = changed(island.accelerator, scale_up_bandwidth=2.0 * island.accelerator.scale_up_bandwidth)
    return (plan, changed(island, accelerator=device, tiers=(inner, *island.tiers[1:]))) if island.gpus > 1 else None


def twice_memory(plan: Plan, island: Island) -> Laid | None:
    """Twice the memory bandwidth."""
    device = island.accelerator
    return plan, changed(island, accelerator=changed(device, memory_bandwidth=2.0 * device.memory_bandwidth))


def _whole(plan: Plan, island: Island, **fields: Any) -> Laid | None:
    """The plan with these fields, if every number is whole and at least 1."""
    for name, value in fields.items():
        if isinstance(value, float):
            if value < 1.0 or value != int(value):
                return None
            fields[name] = int(value) if name in ("pp", "virtual_stages") else value
    made = changed(plan, **fields)
    return None if made == plan else (made, island)


def plan_fields(old: Plan, new: Plan) -> dict[str, str]:
    """What differs, as texts of a scenario; a changed layout names its degrees so that nothing is left to a default."""
    different = [name for name in SHOWN if getattr(old, name) != getattr(new, name)]
    if LAYOUT & set(different) and (old.dp_replicate != 1 or new.dp_replicate != 1):
        different = [name for name in SHOWN if name in different or name in ("dp_shard", "dp_replicate")]
    found = {name: _text(getattr(new, name)) for name in different}
    if new.sync.together != old.sync.together:
        found["sync.together"] = _text(new.sync.together)
    return found


def catalog_row(device: Accelerator) -> Accelerator | None:
    """The shipped row of a device, if the device is as shipped: then its name says all of it."""
    from shardmeter.scenario.catalog import load_catalog

    try:
        found = load_catalog().accelerator(device.name)
    except ShardMeterError:
        return None
    return found if found == device else None


def island_text(island: Island, known: Accelerator | None) -> str | None:
    """The island as one line of a scenario; None where it has more to it than such a line says."""
    from shardmeter.scenario.catalog import load_catalog

    device = island.accelerator
    if known is None or len(island.tiers) > 2:
        return None
    parts = {} if island.name == "island" else {"name": quoted(island.name)}
    parts["accelerator"] = _row_text(device, known, ("memory_bandwidth", "scale_up_bandwidth"))
    parts |= {"nodes": _text(island.nodes), "gpus_per_node": _text(island.gpus_per_node)}
    if len(island.tiers) == 2:
        tier = island.tiers[1]
        try:
            fabric = load_catalog().fabric(tier.name)
        except ShardMeterError:
            return None
        same = fabric.share == tier.share and fabric.latency == tier.latency and fabric.nics_per_node is None
        if not same:
            return None
        parts["fabric"] = (
            quoted(tier.name)
            if tier.bandwidth == fabric.bandwidth
            else f"{{base: {quoted(tier.name)}, bandwidth: {_rate(tier.bandwidth)}}}"
        )
    if island.price is not None and not island.tariff.owned:
        parts["price"] = f"${float(island.price) * 3600:.10g}/gpu/h"
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}"


def _row_text(device: Accelerator, known: Accelerator, names: tuple[str, ...]) -> str:
    own = {name: _rate(getattr(device, name)) for name in names if getattr(device, name) != getattr(known, name)}
    if not own:
        return quoted(device.name)
    return "{" + ", ".join(f"{key}: {value}" for key, value in {"base": quoted(device.name), **own}.items()) + "}"


def _rate(value: Any) -> str:
    return f"{float(value) / 1e9:.12g} GB/s"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{float(value):.15g}"
