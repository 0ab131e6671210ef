"""Megatron-LM's console, that of its forks (BigScience, Megatron-DeepSpeed) and of Megatron-Bridge."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmeter.interop.logs.lines import Line, Log, joined
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import MIB, clock, number, positive, times, whole

NAME = "megatron"
TITLE = "Megatron-LM's console, its forks' and Megatron-Bridge's"
CLUES = ("elapsed time per iteration",)
SIGN = re.compile(r"iteration\s+\d+/\s*\d+ \|.{0,400}?elapsed time per iteration", re.DOTALL)
BEGINS = re.compile(r"\biteration\s+(\d{1,12})/\s*(\d{1,12}) \|")
WHOLE = re.compile(r"number of (?:skipped|nan) iterations:\s*\d+ \|\s*$|TFLOPs:\s*\S+ \|\s*$")
PAIR = re.compile(r"\|\s*([^|:]+?):\s*([^|]+?)\s*(?=\|)")
MEMORY = re.compile(r"memory \(MB\).*?max allocated: ([\d.]+).*?max reserved: ([\d.]+)")
ARGUMENT = re.compile(r"^\s+([a-z][\w]*) \.{2,} (.*?)\s*$")
WORLD = {
    "gpus": r"using world size: (\d+)", "plan.tp": r"tensor-model-parallel size: (\d+)", "plan.pp": r"pipeline-model-parallel size: (\d+)",
    "plan.cp": r"(?<!hierarchical )context-parallel size: (\d+)", "plan.dp": r"data-parallel[ -]size: (\d+)",
}  # fmt: skip
ARGUMENTS = {
    "world_size": "gpus", "tensor_model_parallel_size": "plan.tp", "pipeline_model_parallel_size": "plan.pp", "context_parallel_size": "plan.cp",
    "expert_model_parallel_size": "plan.ep", "data_parallel_size": "plan.dp", "global_batch_size": "run.global_batch",
    "micro_batch_size": "plan.micro_batch", "seq_length": "run.seq_len", "train_iters": "run.steps", "num_layers": "model.layers",
    "hidden_size": "model.hidden", "num_attention_heads": "model.heads", "virtual_pipeline_model_parallel_size": "plan.virtual_stages",
}  # fmt: skip
PAUSES = ("validation loss at", "saving checkpoint at", "successfully saved checkpoint")


def reading(log: Log) -> Reading:
    """The reports, the memory that ranks print once, and what is said before them."""
    lines = [(line, found, _pairs(line.text)) for line, found in joined(log, BEGINS, "iteration", WHOLE)]
    steps = tuple(_step(line, found, pairs) for line, found, pairs in lines if any(key.startswith("elapsed") or "loss" in key for key in pairs))
    peaks = [found for line in log.having("max reserved") if (found := MEMORY.search(line.text)) is not None]
    said = _head(log)
    if lines:
        said.setdefault("run.steps", lines[0][1][2])
    return Reading(
        steps=steps, version=_age(log, *lines[0][::2]) if lines else "", said=said, averaged=True,
        allocated=max((value for found in peaks if (value := times(found[1], MIB)) is not None), default=None),
        reserved=max((value for found in peaks if (value := times(found[2], MIB)) is not None), default=None),
        pauses=tuple(sorted(line.number for word in PAUSES for line in log.having(word))), notes=_notes([pairs for _, _, pairs in lines]),
    )  # fmt: skip


def _pairs(text: str) -> Mapping[str, str]:
    return dict(PAIR.findall(text if text.rstrip().endswith("|") else f"{text}|"))


def _step(line: Line, begins: re.Match[str], pairs: Mapping[str, str]) -> Step:
    samples = positive(pairs.get("global batch size"))
    length = positive(pairs.get("actual seqlen"))
    seconds = times(pairs.get("elapsed time per iteration (ms)"), 1e-3) or positive(pairs.get("elapsed time per iteration (s)"))
    return Step(
        number=int(begins[1]), seconds=seconds, samples=samples, tokens=samples * length if samples and length else None,
        samples_per_s=positive(pairs.get("samples per second")), tokens_per_s_per_gpu=positive(pairs.get("tokens per gpu per second (tgs)")),
        loss=number(pairs.get("lm loss")), samples_seen=whole(pairs.get("consumed samples")), tokens_seen=whole(pairs.get("consumed tokens")),
        at=clock(line.text), line=line.number, rank=line.rank,
    )  # fmt: skip


def _age(log: Log, line: Line, pairs: Mapping[str, str]) -> str:
    if "Step Time :" in log.text:
        return "Megatron-Bridge"
    if "elapsed time per iteration (s)" in pairs:
        return "BigScience's fork"
    if "tokens per gpu per second (tgs)" in pairs or "curriculum seqlen" in pairs:
        return "Megatron-DeepSpeed"
    if "consumed samples" not in pairs:
        return "before 2020-12"
    return "2024-01 or later" if clock(line.text) is not None else "2020-12 to 2024-01"


def _head(log: Log) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in log.lines:
        if " ..." in line.text and (found := ARGUMENT.match(line.text)) is not None:
            if (field := ARGUMENTS.get(found[1])) is not None and positive(found[2]) is not None:
                said[field] = found[2]
        elif "using world size" in line.text:
            said |= {key: found[1] for key, pattern in WORLD.items() if (found := re.search(pattern, line.text)) is not None}
    return said


def _notes(reports: list[Mapping[str, str]]) -> tuple[str, ...]:
    counts = (whole(pairs.get("number of skipped iterations")) for pairs in reports)
    skipped = sum(count for count in counts if count is not None)
    return (f"{skipped:,} iterations were skipped (the loss scale overflowed): their optimizer did no step.",) if skipped else ()
