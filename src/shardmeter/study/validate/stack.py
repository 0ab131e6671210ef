"""Which software a row ran: framework, year and kernel notes to a stack id; what stands in for an id without a row.

**Stand-in rule** (never by error): 1. of the catalog's stacks of the same lineage (frameworks that share code), the one
whose year is nearest, the older of two; 2. if the lineage has none, the lineages named after it in `LINEAGES`, in that
order; 3. the stand-in lends its numbers only: what is documented about the id itself (`FACTS`: attention kernel, fused or
compiled kernels, overlap) replaces the stand-in's. The accelerator plays no part: stacks hold no numbers of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmeter.core.errors import cut
from shardmeter.core.record import changed, record
from shardmeter.specs.stack import WORDS, Stack
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class StackReading:
    """A stack id, how to stand in for it, and what the row itself says about kernels (empty = the stack's)."""

    id: str
    lineage: str
    year: int
    attention: str = ""
    kernels: str = ""
    selective: str = ""
    """What selective recomputation keeps, where the row says."""
    batch_overlap: bool = False
    """Whether the row says that the expert all-to-all runs behind another micro-batch."""
    step_graphs: bool = False
    """Whether the row says that whole iterations are captured as CUDA graphs."""


RULES: tuple[tuple[str, str, str, str], ...] = (
    # pattern in "framework | year | notes" (lower case)     id                lineage      comment
    (r"aleph.?alpha|^aa-2023", "aa-2023", "megatron-like", "kernel is a field"),
    (r"nanotron", "nanotron-2025", "nanotron", ""),
    (r"foundry.*(torch 1\.13|may 2023)|foundry-t113", "foundry-t113", "fsdp", ""),
    (r"foundry|composer", "foundry-t21", "fsdp", ""),
    (r"torchtune", "torchtune-2025", "fsdp", ""),
    (r"titan.*(float8|fp8|async ?tp|torch\.compile)|titan-compile", "titan-compile", "fsdp", ""),
    (r"titan-eager|titan.*\|.*\|.*(eager|not stated)|titan.*\| 2024 \|$", "titan-eager", "fsdp", ""),
    (r"titan", "titan-compile", "fsdp", "compiled unless the row says otherwise"),
    (r"zero-bubble|megatron-llama|mlm-2023", "mlm-2023", "megatron", ""),
    (r"primus", "primus-2025", "megatron", ""),
    (r"sailor", "sailor-2025", "megatron-like", ""),
    (r"megatron-deepspeed|mds-2022", "mds-2022", "megatron-like", ""),
    (r"bridge.*(container 25|\| 2025)|bridge-2025", "bridge-2025", "megatron", ""),
    (r"bridge-2026-graphs", "bridge-2026-graphs", "megatron", "and what `GRAPHED` finds"),
    (r"bridge", "bridge-2026", "megatron", ""),
    (r"neuronx?|^:ref:|^nemo megatron \| 202[4-9]|fine-tuning( example)? \|", "neuron-nxd", "neuron", ""),
    (r"mlperf v\d", "misc-small", "megatron", ""),
    (r"automodel", "automodel-2025", "fsdp", ""),
    (r"llmboost|rocm|mlperf-amd|^pytorch 2[45]\.0[49] \||^pytorch \S+\+git", "mlperf-amd", "megatron", ""),
    (r"ngc|nvidia.*(release|nemo|ngc|pytorch)|release 2\d\.\d\d|^cuda|dgl|mxnet|^pytorch \| 2024|mlperf-nemo", "mlperf-nemo",
     "megatron", ""),
    (r"nemo megatron|nemo 23|nemo-2023", "nemo-2023", "megatron", ""),
    (r"nemo 24|nemo.*\| 2024|megatron-core (r0\.[5-8]|>=0\.9)|mcore-2024", "mcore-2024", "megatron", ""),
    (r"nemo|megatron-core|mcore-2025", "mcore-2025", "megatron", ""),
    (r"megatron-lm.*\| 2021|mlm-2021", "mlm-2021", "megatron", ""),
    (r"megatron-lm.*\| 2022|mlm-2022", "mlm-2022", "megatron", ""),
    (r"megatron-lm.*\| 2023", "mlm-2023", "megatron", ""),
    (r"megatron-lm.*\| 2024", "mcore-2024", "megatron", ""),
    (r"megatron-lm|mlm-2026", "mlm-2026", "megatron", ""),
    (r"deepspeed 0\.[5-9]", "ds-zero3-2022", "fsdp", ""),
    (r"internevo|internlm", "internevo-2024", "fsdp", ""),
    (r"(maxtext|paxml).*gpu|jax-gpu-2024", "jax-gpu-2024", "jax", ""),
    (r"^maxtext \||^pax \||mlperf-tpu", "mlperf-tpu", "jax", "the benchmark suite writes it without brackets"),
    (r"maxtext", "maxtext-2024", "jax", ""),
    (r"fms-fsdp|pytorch fsdp|fsdp-2024", "fsdp-2024", "fsdp", ""),
    (r"timm", "timm-2022", "eager", ""),
    (r"open_?clip", "openclip-2021", "eager", ""),
    (r"alpa|levanter", "misc-small", "jax", ""),
    (r"megascale|metaseq|hai-llm|meta internal|colossal", "misc-small", "megatron", ""),
    (r"flashattention|litgpt|thunder|deepspeed|paddle|plsc|pytorch|misc-small", "misc-small", "eager", ""),
)  # fmt: skip
"""(pattern, id, lineage, comment); the first that is found decides."""

LINEAGES: dict[str, tuple[str, ...]] = {
    "megatron": ("megatron", "megatron-like", "nanotron", "fsdp"),
    "megatron-like": ("megatron-like", "megatron", "nanotron", "fsdp"),
    "nanotron": ("nanotron", "megatron", "megatron-like"),
    "fsdp": ("fsdp", "eager"),
    "jax": ("jax", "fsdp"),
    "eager": ("eager", "fsdp"),
    "neuron": ("neuron", "jax", "fsdp"),
}
"""Lineages that may stand in for one another, nearest first."""

OF_FRAMEWORK: tuple[tuple[str, str], ...] = (
    (r"nanotron", "nanotron"),
    (r"foundry|composer|titan|fsdp|torchtune|deepspeed 0|internevo|automodel", "fsdp"),
    (r"aleph|megatron-deepspeed|sailor", "megatron-like"),
    (r"megatron|nemo|primus|bridge", "megatron"),
    (r"maxtext|jax|pax|alpa", "jax"),
    (r"timm|clip|pytorch|flash", "eager"),
    (r"neuron", "neuron"),
)
"""Lineage of a catalog row, by its framework."""

_NVIDIA: Mapping[str, str | bool] = {
    "attention": "cudnn", "kernels": "fused", "gradient_overlap": True, "gather_overlap": True, "reduce_dtype": "bf16",
}  # fmt: skip
FACTS: dict[str, Mapping[str, str | bool]] = {
    "mlm-2022": {"attention": "fused", "kernels": "fused"},
    "mds-2022": {"attention": "fused", "kernels": "fused"},
    "nemo-2023": {"attention": "fa1", "kernels": "fused"},
    "mcore-2024": _NVIDIA,
    "mcore-2025": _NVIDIA,
    "mlm-2026": _NVIDIA,
    "bridge-2025": _NVIDIA,
    "bridge-2026": _NVIDIA,
    "bridge-2026-graphs": _NVIDIA,
    "mlperf-nemo": _NVIDIA,
    "mlperf-amd": {"attention": "fa2", "kernels": "fused"},
    "primus-2025": {"attention": "fa2", "kernels": "fused"},
    "sailor-2025": {"attention": "fused", "kernels": "fused"},
    "internevo-2024": {"attention": "fa2"},
    "ds-zero3-2022": {"attention": "unfused", "kernels": "eager"},
    "fsdp-2024": {"attention": "fa2", "kernels": "compiled"},
    "automodel-2025": {"attention": "fa2"},
    "jax-gpu-2024": {"attention": "cudnn", "kernels": "compiled"},
    "mlperf-tpu": {"attention": "fa2", "kernels": "compiled"},
    "torchtune-2025": {"attention": "fa2"},
    "timm-2022": {"attention": "unfused", "kernels": "autocast"},
    "openclip-2021": {"attention": "unfused", "kernels": "autocast"},
    "misc-small": {"attention": "unfused"},
}
"""What is documented about the code behind an id, laid over the row that stands in for it."""

IDS = tuple(dict.fromkeys(id_ for _, id_, _, _ in RULES))

ATTENTION: tuple[tuple[str, str], ...] = (
    (r"attention=(\w+)", r"\1"),
    (r"no flash", "unfused"),
    (r"flash.?att\w*.?-?v?1|\bfa1\b|flashattention$|^flash_attention$", "fa1"),
    (r"flash.?attention.?-?3|\bfa3\b", "fa3"),
    (r"flash.?attention.?-?v?2|\bfa2\b", "fa2"),
    (r"cudnn.*attention|attention.*cudnn", "cudnn"),
    (r"^fused$", "fused"),
    (r"^torch$", "unfused"),
)
"""Attention kernels that notes state. "flash attention" alone names no version: the stack's stays."""


WHOLE_GRAPHS = r"cuda_graph_impl=full|cuda_graph_impl=local\W+cuda_graph_scope=\W*full"
"""Graphs of whole iterations; those of single modules (attention, router) change nothing that is modelled."""


GRAPHED = rf"({WHOLE_GRAPHS}|container 26\.(0[6-9]|1)(?!.*cuda_graph_impl).*\| g?b[23]00)"
"""Mixtures in Megatron-Bridge: from release 26.06 on their recipes for Blackwell capture whole iterations, send tokens behind
another micro-batch and fuse the kernels of experts."""


def read_stack(
    framework: str, year: float | None, notes: str, accelerator: str = "", *, experts: bool = False
) -> StackReading:
    """The stack id that the text is, or that the first rule finds, with the kernels that the notes state."""
    if not framework:
        raise Unclear("the framework is not stated")
    when = f"{year:.0f}" if year else ""
    text = " ".join(f"{framework} | {when} | {notes}".lower().split())
    own = framework.lower()
    if (
        experts
        and re.search(r"bridge(-2026$| .*container 26)", own)
        and re.search(GRAPHED, f"{text} | {accelerator.lower()}")
    ):
        own = "bridge-2026-graphs"
    for pattern, id_, lineage, _ in RULES:
        if id_ == own if own in IDS else re.search(pattern, text):
            dated = re.search(r"(20\d\d)$", id_)
            guess = int(year) if year else int(dated.group(1)) if dated else 2024
            return StackReading(
                id=id_, lineage=lineage, year=guess, attention=_attention(notes), kernels=_kernels(notes),
                batch_overlap="moe_a2a_overlap=true" in notes.lower(),
                step_graphs=re.search(WHOLE_GRAPHS, notes.lower()) is not None,
            )  # fmt: skip
    raise NotModelled(f"framework not known: {framework or '(empty)'}")


def choose_stack(reading: StackReading, catalog: Mapping[str, Stack]) -> tuple[Stack, str]:
    """The stack that predicts a row, and the id of the stand-in if the reading's own has no row ("" if it has)."""
    stack, stood_in = catalog.get(reading.id), ""
    if stack is None:
        stack = stand_in(reading, catalog)
        stood_in = stack.name
        stack = changed(stack, **FACTS.get(reading.id, {}))
    if reading.attention:
        stack = changed(stack, attention=reading.attention)
    if reading.kernels:
        stack = changed(stack, kernels=reading.kernels)
    if reading.selective:
        stack = changed(stack, selective=reading.selective)
    if reading.batch_overlap:
        stack = changed(stack, batch_overlap=True)
    if reading.step_graphs:
        stack = changed(stack, step_graphs=True)
    return stack, stood_in


def stand_in(reading: StackReading, catalog: Mapping[str, Stack]) -> Stack:
    """The stack of the nearest lineage and year (ties: the older, then the name)."""
    for lineage in LINEAGES[reading.lineage]:
        kin = [stack for stack in catalog.values() if lineage_of(stack) == lineage]
        if kin:
            return min(kin, key=lambda stack: (abs(stack.year - reading.year), stack.year, stack.name))
    raise NotModelled(f"no stack can stand in for {reading.id}")


def lineage_of(stack: Stack) -> str:
    """The lineage of a catalog row."""
    text = f"{stack.framework} {stack.name}".lower()
    return next((lineage for pattern, lineage in OF_FRAMEWORK if re.search(pattern, text)), "eager")


def _attention(notes: str) -> str:
    plain = notes.lower().strip()
    for pattern, name in ATTENTION:
        found = re.search(pattern, plain)
        if found:
            return _known("attention", found.expand(name))
    return ""


def _kernels(notes: str) -> str:
    plain = notes.lower()
    stated = re.search(r"kernels=(\w+)", plain)
    if stated:
        return _known("kernels", stated.group(1))
    return "fused_norm" if re.search(r"rms kernel|fused rmsnorm", plain) else ""


def _known(name: str, word: str) -> str:
    """A word that a stack may hold. Raises NotModelled for any other."""
    if word not in WORDS[name]:
        raise NotModelled(f"{name}={cut(word)} is none of {', '.join(WORDS[name])}")
    return word
