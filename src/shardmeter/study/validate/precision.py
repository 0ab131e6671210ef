"""What is computed, gathered and reduced in which number format."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class PrecisionReading:
    """Formats of one recipe; an empty one is the stack's. `master` is what the optimizer keeps."""

    compute: str
    """A word of `Plan.precision`."""
    gather: str = ""
    reduce: str = ""
    master: str = "fp32"


UNSTATED: dict[str, str] = {
    "misc-small": "fp16",
    "mlm-2023": "fp16",
    "mlm-2021": "fp16",
    "mlm-2022": "fp16",
    "mds-2022": "fp16",
    "torchtune-2025": "bf16",
    "nanotron-2025": "bf16",
    "titan-eager": "bf16",
    "titan-compile": "bf16",
    "maxtext-2024": "bf16",
}
"""What a source that is silent most likely used, by stack: Megatron forks until 2023 trained in fp16."""


def read_precision(text: str, stack: str, notes: str = "") -> PrecisionReading:
    """The recipe that `text` names, with what `notes` say about gathers; where it is empty, the one usual for the stack."""
    plain = text.lower()
    if stack in PURE and (not plain or re.search(r"bf16|unknown", plain)):
        plain = "bf16 (pure)"
    if not plain or plain in {"(empty)", "unknown"}:
        if stack not in UNSTATED:
            raise Unclear("the precision is not stated")
        return PrecisionReading(compute=UNSTATED[stack])
    if re.search(r"fp4|float4", plain):
        return PrecisionReading(compute="nvfp4")
    if re.search(r"fp8|float8|mxfp8", plain):
        return _fp8(f"{plain}; {notes.lower()}" if "all-gather" in notes.lower() else plain, stack)
    if re.search(r"int8", plain):
        raise NotModelled("int8 is not modelled yet")
    if re.search(r"bf16|bfloat16", plain):
        return _bf16(plain, stack)
    if re.search(r"fp16|float16|half", plain) or plain == "amp":
        return PrecisionReading(compute="fp16")
    if re.search(r"fp32|float32|tf32", plain):
        raise NotModelled("training in fp32 is not modelled yet")
    raise NotModelled(f"precision not known: {text}")


DELAYED = frozenset({"foundry-t21", "nemo-2023", "mcore-2024", "mlperf-nemo"})
"""Stacks whose 8-bit recipe was delayed scaling where a text says fp8 alone: Transformer Engine's default until 2024."""
PURE = frozenset({"torchtune-2025"})
"""Stacks that keep parameters in 16 bits and no wider master: torchtune's recipes."""


def _fp8(plain: str, stack: str) -> PrecisionReading:
    """Which 8-bit recipe, and whether parameters are gathered in 8 bits."""
    word = next((word for pattern, word in RECIPES if re.search(pattern, plain)), "")
    word = word or ("fp8-delayed" if stack in DELAYED else "fp8")
    found = re.search(r"(float8|fp8|bf16) all-?gather", plain)
    gather = "" if found is None else "bf16" if found.group(1) == "bf16" else "fp8"
    return PrecisionReading(compute=word, gather=gather)


RECIPES: tuple[tuple[str, str], ...] = (
    (r"mxfp8", "mxfp8"),
    (r"row-?wise.*(gw_hp|-hp\b)", "fp8-rowwise-hp"),
    (r"row-?wise", "fp8-rowwise"),
    (r"block", "fp8-block"),
    (r"delayed|hybrid|amp_fp8", "fp8-delayed"),
    (r"current|fp8-cs|tensor-?wise|float8", "fp8"),
)
"""(pattern in the lower-case text, word of `Plan.precision`); the first that is found decides."""


def _bf16(plain: str, stack: str) -> PrecisionReading:
    if "pure" in plain:
        master = "bf16" if stack in PURE else "fp32"
        return PrecisionReading(compute="bf16", gather="bf16", reduce="bf16", master=master)
    if re.search(r"\+ ?sr\b|stochastic", plain):
        return PrecisionReading(compute="bf16", gather="bf16", reduce="bf16", master="bf16")
    if re.search(r"\(amp\)|fp32 grad accumulation|reduce=fp32", plain):
        return PrecisionReading(compute="bf16", gather="bf16", reduce="fp32")
    return PrecisionReading(compute="bf16")
