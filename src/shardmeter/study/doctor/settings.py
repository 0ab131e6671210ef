"""Words of a scenario that, if they were others, would change what is measured: each is the scenario with that word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.specs import Island, Plan, Scenario
from shardmeter.study.doctor import usual
from shardmeter.study.doctor.cause import BOTH, Named
from shardmeter.study.doctor.measured import MEMORY, PACE
from shardmeter.study.doctor.usual import Words
from shardmeter.study.doctor.world import World, world
from shardmeter.study.legal import checked


@record
class Word:
    """One word, and the scenario that has it."""

    name: str
    title: str
    field: str
    value: str
    means: str
    likely: Words
    touches: tuple[str, ...]
    scenario: Scenario


def named(scenario: Scenario) -> Iterator[Named]:
    """Every word that could explain something about a scenario and would be legal in it."""
    for word in (*_of_stack(scenario), *_of_plan(scenario), *_of_machines(scenario)):
        if _is_legal(word.scenario):
            yield Named(
                name=word.name, title=word.title, means=word.means, touches=word.touches, chance=word.likely.chance,
                basis=word.likely.basis, field=word.field, value=word.value, world=_later(word.scenario),
            )  # fmt: skip


def _later(scenario: Scenario) -> Callable[[], World]:
    return lambda: world(scenario)


def _is_legal(scenario: Scenario) -> bool:
    from shardmeter.core.errors import ShardMeterError

    try:
        checked(scenario)
    except ShardMeterError:
        return False
    return True


# ---- the software ----------------------------------------------------------------------------------------------------------------


def _of_stack(scenario: Scenario) -> Iterator[Word]:
    stack, plan = scenario.stack, scenario.plan

    def word(name: str, title: str, means: str, touches: tuple[str, ...] = (PACE,), **fields: Any) -> Word:
        ((field, value),) = fields.items()
        return Word(
            name=name, title=title, field=f"stack.{field}", value=_text(value), means=means, likely=usual.SILENT, touches=touches,
            scenario=changed(scenario, stack=changed(stack, **fields)),
        )  # fmt: skip

    if stack.attention != "unfused":
        yield word(
            "attention-eager", "eager attention in place of a fused kernel",
            "scores are written to memory: the flash kernel is not installed, not asked for, or does not take this mask or head", BOTH,
            attention="unfused",
        )  # fmt: skip
    if stack.attention in ("unfused", "fused"):
        yield word("attention-flash", "a flash kernel after all", "scores are never written", BOTH, attention="fa2")
    if stack.kernels in ("fused", "compiled", "fused_norm"):
        yield word(
            "kernels-eager",
            "eager kernels in place of fused ones",
            "the compiler fell back, or fused kernels are missing",
            BOTH,
            kernels="eager",
        )
    if stack.gradient_overlap and plan.sharding in ("none", "ddp", "zero1", "zero2") and plan.dp > 1.0:
        yield word(
            "gradients-not-overlapped", "gradients reduced after the backward",
            "the reduction of gradients does not begin before the backward ends", gradient_overlap=False,
        )  # fmt: skip
    if stack.pipeline_overlap and plan.pp > 1:
        yield word(
            "sends-not-overlapped",
            "sends between stages that show",
            "stages wait for what they are sent",
            pipeline_overlap=False,
        )
    micro_batches = float(scenario.run.global_batch) / (float(plan.dp) * float(plan.micro_batch))
    if micro_batches > 1.0 and plan.sharding in ("ddp", "zero1") and stack.accumulate != "every" and plan.dp > 1.0:
        yield word(
            "reduced-every-pass", "gradients reduced after every pass",
            "no_sync is missing: each of the passes that accumulate reduces all gradients", accumulate="every",
        )  # fmt: skip
    if stack.loss in ("fused", "compiled"):
        yield word("loss-in-memory", "logits in fp32 in memory", "the loss is not fused", BOTH, loss="torch")


# ---- the plan --------------------------------------------------------------------------------------------------------------------

_TIME_PLANS = (
    ("recompute-full", "everything recomputed", "activation checkpointing is on", {"recompute": "full"}),
    ("recompute-selective", "selective recomputation", "a part of every layer runs again", {"recompute": "selective"}),
    ("recompute-off", "nothing recomputed", "activation checkpointing is off", {"recompute": "none"}),
    ("reduced-wide", "gradients reduced in fp32", "twice the bytes pass", {"reduce_dtype": "fp32"}),
    ("regathered", "parameters gathered again for the backward", "reshard_after_forward is on", {"reshard": True}),
    ("kept-gathered", "parameters kept gathered until the backward", "reshard_after_forward is off", {"reshard": False}),
    ("offloaded", "optimizer on the host", "optimizer states are on the host", {"offload": ("optimizer",)}),
    ("resident", "nothing on the host", "offload is off", {"offload": ()}),
    ("unsharded", "parameters not sharded", "every GPU holds the whole model", {"sharding": "ddp"}),
    ("states-sharded", "optimizer states sharded only", "ZeRO-1: parameters and gradients are whole", {"sharding": "zero1"}),
    ("gradients-sharded", "states and gradients sharded only", "ZeRO-2: parameters are whole", {"sharding": "zero2"}),
    ("fully-sharded", "everything sharded", "FSDP or ZeRO-3: parameters travel", {"sharding": "fsdp"}),
    ("everything-trained", "all parameters trained", "nothing is frozen: adapters or frozen parts were not set up", {"trainable": "all"}),
)  # fmt: skip
_PRECISIONS = (("tf32", "tf32: fp32 tensors"), ("fp32", "fp32"), ("bf16", "bf16"))
_STATES = (
    ("states-narrow", "optimizer states of 8 bits", {"optimizer": "adamw8bit"}),
    ("states-wide", "optimizer states of fp32", {"optimizer": "adamw"}),
    ("master-narrow", "no fp32 copy of the parameters", {"master_dtype": "bf16"}),
    ("master-wide", "an fp32 copy of the parameters", {"master_dtype": "fp32"}),
)


def _of_plan(scenario: Scenario) -> Iterator[Word]:
    plan = scenario.plan
    if plan.probes is not None or plan.placement:
        return
    for name, title, means, fields in _TIME_PLANS:
        ((field, value),) = fields.items()
        if getattr(plan, field) == value or (field == "reshard" and plan.sharding not in ("fsdp", "zero3")):
            continue
        if {getattr(plan, field), value} == {"fsdp", "zero3"} or (
            field == "offload" and not plan.offload and not _hosted(scenario)
        ):
            continue
        if field == "sharding" and plan.dp == 1.0:
            continue
        yield _planned(scenario, name, title, means, usual.AGAINST, BOTH, field, value)
    for value, title in _PRECISIONS:
        if plan.precision != value and not (value == "bf16" and plan.precision == "fp16"):
            means = "products are done in another format than said: autocast off, or a recipe that is not applied"
            yield _planned(scenario, f"precision-{value}", title, means, usual.AGAINST, BOTH, "precision", value)
    for name, title, fields in _STATES:
        ((field, value),) = fields.items()
        if getattr(plan, field) != value:
            yield _planned(scenario, name, title, "what is kept for the update", usual.SILENT, (MEMORY,), field, value)


def _hosted(scenario: Scenario) -> bool:
    device = scenario.fleet.islands[0].accelerator
    return device.host_link is not None and device.host_memory_bandwidth is not None


def _planned(
    scenario: Scenario, name: str, title: str, means: str, likely: Words, touches: tuple[str, ...], field: str, value: Any
) -> Word:  # fmt: skip
    def moved(plan: Plan) -> Plan:
        return changed(plan, **{field: value})

    return Word(
        name=name, title=title, field=f"plan.{field}", value=_text(value), means=means, likely=likely, touches=touches,
        scenario=changed(scenario, plan=moved(scenario.plan), plans=tuple(moved(one) for one in scenario.plans)),
    )  # fmt: skip


# ---- machines --------------------------------------------------------------------------------------------------------------------


def _of_machines(scenario: Scenario) -> Iterator[Word]:
    """PCIe in the place of faster links inside nodes."""
    islands = scenario.fleet.islands
    if not any(_has_links(island) for island in islands):
        return
    slower = tuple(_over_pcie(island) if _has_links(island) else island for island in islands)
    yield Word(
        name="pcie", title="PCIe in place of the links inside the node", field="fleet.islands.accelerator.scale_up",
        value="PCIe", means="GPUs of a node pass their data through PCIe: no NVLink, or peer access disabled", likely=usual.SILENT,
        touches=(PACE,), scenario=changed(scenario, fleet=changed(scenario.fleet, islands=slower)),
    )  # fmt: skip


PCIE_SHARE = 0.5
"""What collectives reach of PCIe's rate through a host bridge that several GPUs share: as the accelerators' rows of PCIe cards (about
half of the wire)."""


def _has_links(island: Island) -> bool:
    device = island.accelerator
    if device.host_link is None or float(island.gpus_per_node) <= 1.0:
        return False
    return float(device.host_link) < 0.5 * float(device.scale_up_bandwidth)


def _over_pcie(island: Island) -> Island:
    device, inner = island.accelerator, island.tiers[0]
    rate = float(device.host_link or 0.0) * PCIE_SHARE
    slow = changed(inner, bandwidth=rate, reduce_share=None, pair_bandwidth=None)
    return changed(island, accelerator=changed(device, scale_up_bandwidth=rate), tiers=(slow, *island.tiers[1:]))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return str(value)
