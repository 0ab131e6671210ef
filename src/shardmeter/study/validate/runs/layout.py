"""How a run was laid out: the degrees that its row publishes, and the plans among which the rest is chosen.

What a row publishes (`TP8 PP16 DP128`, `ZeRO-1`, `FSDP`, `HSDP`, `PP16 EP64`) is kept; a degree that stands beside others and is not
named is 1; the data-parallel degree is what is left. What is open is a narrow planner's: of a few plans of the lineage the fastest
that fits. Leaves out: context parallelism of a late stage, interleaving that no row counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardmeter.core.record import changed, record
from shardmeter.engine.rules import divisors
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan

TENSOR = (1.0, 2.0, 4.0, 8.0)
STAGES = (1, 2, 4, 8, 16, 32)
DEPTHS = 3
"""Numbers of stages that are tried, from the fewest with which parameters and gradients fit."""
HELD = 6.0
"""Bytes a parameter that every replica holds: 16 bits, and gradients of 32."""
MICRO_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
RECOMPUTE = ("none", "selective", "full")
SOME = ("none", "selective", "every-4", "every-2", "full")
"""The same where the degrees are published, so that there are few plans."""
WHOLE_OR_NOTHING = ("none", "full")
SELECTIVE_FROM = 2023.0
"""Since when the Megatron lineage recomputes less than whole layers and shards activations over the tensor axis (Korthikanti, May
2022, and what was published of runs begun after it)."""
CHECKPOINTING = re.compile(r"\b(grad(ient)?|activation) checkpointing|full (recompute|recomputation)")
"""Words that say that every layer is recomputed."""
ALWAYS = frozenset({"gpt-neox-2022"})
"""Trainers whose shipped configurations all recompute every layer."""
LATENT = ("layernorm+mla_up_proj+moe_act",)
"""What latent attention with experts recomputes under DualPipe (DeepSeek-V3 report §3.2.3)."""
CHUNKS = (8, 4, 3, 2)
SHORT = 4.0
"""Micro-batches a stage below which chunks are interleaved."""
LARGE = 8e9
"""Parameters from which tensor parallelism and pipelines are tried."""
SPLIT_FROM = 30e9
"""The same where parameters are gathered layer by layer."""
ZERO1_FROM = 2023.0
"""Since when Megatron shards the optimizer's state over replicas by habit."""


@record
class Published:
    """What a row says of its layout. None and empty: nothing."""

    tp: float | None = None
    pp: int | None = None
    ep: float | None = None
    sharding: str = ""
    schedule: str = ""
    recompute: str = ""


def read_published(layout: str, framework: str, notes: str = "") -> Published:
    """The degrees and the sharding that the two columns name, and whether notes say that layers are recomputed. Raises nothing: what is not understood is open."""
    text, words = layout.lower(), f"{layout} {framework}".lower()
    tp, pp, dp = (_degree(text, axis) for axis in ("tp", "pp", "dp"))
    if tp is None and (found := re.search(r"\b([1-9][0-9]{0,5})[- ]?way (?:model|tensor)", text)):
        tp = float(found[1])
    stated = tp is not None or pp is not None or dp is not None
    open_stages = re.search(r"\bpp\b(?!\s*[0-9=x])", text) is not None and not re.search(r"no (tp/)?pp", text)
    if (tp is None and stated) or re.search(r"no tp", text):
        tp = 1.0
    if (pp is None and stated and not open_stages) or re.search(r"no (tp/)?pp", text):
        pp = 1.0
    return Published(
        tp=tp, pp=None if pp is None else int(pp), ep=_degree(text, "ep"), sharding=_sharding(words, text),
        schedule=next((word for word in ("dualpipe", "interleaved") if word in words), ""),
        recompute="full" if CHECKPOINTING.search(f"{words} {notes}".lower()) else "",
    )  # fmt: skip


def _degree(text: str, axis: str) -> float | None:
    """The last degree of a chain (`DP 96 -> 192 -> 384`), the larger of `64/128`."""
    found = re.search(rf"\b{axis}\s*[=x]?\s*([0-9]{{1,6}}(?:\s*(?:->|→|/)\s*[0-9]{{1,6}})*)(?![0-9])", text)
    degree = max(map(float, re.findall(r"[0-9]+", found[1]))) if found else 0.0
    return degree or None


def _sharding(words: str, layout: str) -> str:
    """fsdp, hsdp, zero1, zero2, zero3, ddp, or empty. What the layout says goes before the framework."""
    for text in (layout, words):
        for pattern, name in (
            (r"hsdp|fsdp hybrid|hybrid fsdp|hybrid shard", "hsdp"), (r"zero-?\s?3", "zero3"), (r"zero-?\s?2", "zero2"),
            (r"zero", "zero1"), (r"ddp/fsdp", ""), (r"fsdp", "fsdp"), (r"ddp|data parallel", "ddp"),
        ):  # fmt: skip
            if re.search(pattern, text):
                return name
    return ""


@record
class Machine:
    """What plans are laid over."""

    gpus: float
    node: float
    """Accelerators of a scale-up domain, or of a node."""
    memory: float
    """Bytes of one."""
    lineage: str
    when: float
    stack: str


def candidates(
    base: Plan, model: Model, size: float, machine: Machine, said: Published, batch: float
) -> Iterator[tuple[Plan, float]]:
    """(plan, sequences of a step) of everything that the row leaves open; `size`: parameters, `batch`: sequences that are wanted.

    A batch is moved to the nearest number that the replicas divide."""
    for tp in _tensor(model, size, machine, said):
        for pp in _stages(model, size, machine, said):
            replicas = machine.gpus / (tp * pp)
            if replicas != int(replicas):
                continue
            each = _even(batch / replicas)
            laid = (
                changed(base, tp=tp, pp=pp, dp_shard=shard, dp_replicate=replicas / shard, sharding=sharding, ep=ep, etp=1.0,
                        sequence_parallel=tp > 1.0 and machine.when >= SELECTIVE_FROM)
                for sharding, shard in _shardings(machine, said, replicas, tp, pp)
                for ep in _experts(model, said, machine, tp * shard)
            )  # fmt: skip
            for plan in laid:
                for micro in _micro_batches(model, each, pp):
                    for schedule, chunks in _schedules(model, said, pp, each / micro):
                        for recompute in _recompute(model, machine, said, schedule):
                            yield (
                                changed(
                                    plan,
                                    micro_batch=micro,
                                    recompute=recompute,
                                    schedule=schedule,
                                    virtual_stages=chunks,
                                ),
                                each * replicas,
                            )


def _even(sequences: float) -> float:
    """Sequences of one replica, moved by at most a tenth to a number that divides well."""
    step = next(step for least, step in ((40.0, 8.0), (20.0, 4.0), (10.0, 2.0), (0.0, 1.0)) if sequences >= least)
    return max(1.0, step * round(sequences / step))


def _schedules(model: Model, said: Published, pp: int, turns: float) -> Sequence[tuple[str, int]]:
    """(schedule, virtual stages): interleaved too where a stage has few micro-batches."""
    if pp == 1:
        return (("1f1b", 1),)
    if said.schedule == "dualpipe":
        return (("dualpipe", 1),)
    if said.pp is None or turns % pp or (turns >= SHORT * pp and said.schedule != "interleaved"):
        return (("1f1b", 1),)
    chunks = next((one for one in CHUNKS if not model.layers % (pp * one) or not (model.layers + 2) % (pp * one)), 1)
    return (("1f1b", 1), ("interleaved", chunks)) if chunks > 1 else (("1f1b", 1),)


def _recompute(model: Model, machine: Machine, said: Published, schedule: str) -> Sequence[str]:
    if machine.stack in ALWAYS or said.recompute:
        return ("full",)
    if schedule == "dualpipe" and model.experts and model.kv_lora_rank:
        return LATENT
    whole = machine.lineage.startswith("megatron") and machine.when < SELECTIVE_FROM
    return WHOLE_OR_NOTHING if whole else SOME if said.tp is not None else RECOMPUTE


def _tensor(model: Model, size: float, machine: Machine, said: Published) -> Sequence[float]:
    if said.tp is not None:
        return (said.tp,)
    if model.family != "decoder" or size < (LARGE if machine.lineage.startswith("megatron") else SPLIT_FROM):
        return (1.0,)
    return [
        tp
        for tp in TENSOR
        if tp <= machine.node and model.heads % tp == 0.0 and model.kv_heads % min(tp, model.kv_heads) == 0.0
    ]


def _stages(model: Model, size: float, machine: Machine, said: Published) -> Sequence[int]:
    if said.pp is not None:
        return (said.pp,)
    if model.family != "decoder" or size < LARGE or not machine.lineage.startswith("megatron"):
        return (1,)
    room = [pp for pp in STAGES if pp <= model.layers and HELD * size / (machine.node * pp) <= machine.memory]
    return room[:DEPTHS] or [max(pp for pp in STAGES if pp <= model.layers)]


def _shardings(machine: Machine, said: Published, replicas: float, tp: float, pp: int) -> Iterator[tuple[str, float]]:
    """(sharding, ranks over which parameters or states are shared).

    FSDP under a pipeline gathers parameters once a step and shards states and gradients (Llama 3 §3.3.2): zero1 or zero2."""
    inside = machine.node / tp
    hybrid = inside if replicas % inside == 0.0 and 1.0 < inside < replicas else replicas
    if said.sharding in ("fsdp", "hsdp") and pp > 1:
        yield "zero1", replicas
        yield "zero2", replicas
    elif said.sharding == "hsdp":
        yield "fsdp", hybrid
    elif said.sharding:
        yield said.sharding, replicas
    elif replicas == 1.0:
        yield "none", 1.0
    elif machine.lineage.startswith("megatron"):
        yield ("zero1" if machine.when >= ZERO1_FROM else "ddp"), replicas
        if machine.when < ZERO1_FROM:
            yield "zero1", replicas
    else:
        yield "fsdp", replicas
        if hybrid != replicas:
            yield "fsdp", hybrid
        if machine.lineage == "eager":
            yield "ddp", replicas


def _experts(model: Model, said: Published, machine: Machine, ranks: float) -> Sequence[float]:
    """Expert-parallel degrees: as said, else 1 and those inside a node."""
    if not model.experts:
        return (1.0,)
    if said.ep is not None:
        return (said.ep,)
    return [
        ep for ep in (1.0, machine.node, 8.0 * machine.node) if ranks % ep == 0.0 and model.experts % ep == 0.0
    ] or [1.0]


def _micro_batches(model: Model, each: float, pp: int) -> Sequence[float]:
    """Divisors of a replica's samples, up to 64; pipelines take up to 4; a contrast needs all of them at once."""
    if model.family == "dual_encoder":
        return (each,)
    most = 4.0 if pp > 1 else MICRO_BATCHES[-1]
    found = [one for one in divisors(each) if one <= most]
    return [one for one in found if one in MICRO_BATCHES] if len(found) > len(MICRO_BATCHES) else found
