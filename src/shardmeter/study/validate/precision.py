"""What is computed, gathered and reduced in which number format."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class PrecisionReading:
    """Formats of one recipe; an empty one is the stack's. `master` is what the optimizer keeps."""

    compute: str
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


def read_precision(text: str, stack: str) -> PrecisionReading:
    """The recipe that `text` names; where it is empty, the one usual for the stack."""
    plain = text.lower()
    if not plain or plain in {"(empty)", "unknown"}:
        if stack not in UNSTATED:
            raise Unclear("the precision is not stated")
        return PrecisionReading(compute=UNSTATED[stack])
    if re.search(r"fp4|float4", plain):
        raise NotModelled("fp4 is not modelled yet")
    if re.search(r"fp8|float8|mxfp8", plain):
        raise NotModelled("fp8 is not modelled yet")
    if re.search(r"int8", plain):
        raise NotModelled("int8 is not modelled yet")
    if re.search(r"bf16|bfloat16", plain):
        return _bf16(plain)
    if re.search(r"fp16|float16|half", plain) or plain == "amp":
        return PrecisionReading(compute="fp16")
    if re.search(r"fp32|float32|tf32", plain):
        raise NotModelled("training in fp32 is not modelled yet")
    raise NotModelled(f"precision not known: {text}")


def _bf16(plain: str) -> PrecisionReading:
    if "pure" in plain:
        return PrecisionReading(compute="bf16", gather="bf16", reduce="bf16")
    if re.search(r"\+ ?sr\b|stochastic", plain):
        return PrecisionReading(compute="bf16", gather="bf16", reduce="bf16", master="bf16")
    if re.search(r"\(amp\)|fp32 grad accumulation|reduce=fp32", plain):
        return PrecisionReading(compute="bf16", gather="bf16", reduce="fp32")
    return PrecisionReading(compute="bf16")
