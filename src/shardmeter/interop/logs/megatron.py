"""Megatron-LM's console, that of its forks (BigScience, Megatron-DeepSpeed) and of Megatron-Bridge."""

from __future__ import annotations

import re

from shardmeter.core.sums import plain_sum
from shardmeter.interop.logs.lines import Line, Log, joined
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import MIB, clock, number, positive, times, whole, word

NAME = "megatron"
TITLE = "Megatron-LM's console, its forks' and Megatron-Bridge's"
CLUES = ("elapsed time per iteration",)
SIGN = re.compile(r"iteration\s+\d+/\s*\d+ \|.{0,400}?elapsed time per iteration", re.DOTALL)
BEGINS = re.compile(r"iteration\s+(\d{1,12})/\s*(\d{1,12}) \|")
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
    lines = list(joined(log, BEGINS, "iteration", _is_whole))
    steps = tuple(_step(line, found) for line, found in lines if "elapsed time" in line.text or "loss:" in line.text)
    peaks = [found for line in log.having("max reserved") if (found := MEMORY.search(line.text)) is not None]
    said = _head(log)
    if lines:
        said.setdefault("run.steps", lines[0][1][2])
    return Reading(
        steps=steps, version=_age(log, lines[0][0].text) if lines else "", said=said, averaged=True,
        allocated=max((value for found in peaks if (value := times(found[1], MIB)) is not None), default=None),
        reserved=max((value for found in peaks if (value := times(found[2], MIB)) is not None), default=None),
        pauses=tuple(sorted(line.number for mark in PAUSES for line in log.having(mark))), notes=_notes([line.text for line, _ in lines]),
    )  # fmt: skip


def _is_whole(text: str) -> bool:
    return text.count("|") > 4 and text.rstrip().endswith("|")


def _step(line: Line, begins: re.Match[str]) -> Step:
    text = line.text
    samples, length = positive(word(text, "global batch size:")), positive(word(text, "actual seqlen:"))
    seconds = times(word(text, "per iteration (ms):"), 1e-3) or positive(word(text, "per iteration (s):"))
    return Step(
        number=int(begins[1]), seconds=seconds, samples=samples, tokens=samples * length if samples and length else None,
        samples_per_s=positive(word(text, "samples per second:")), tokens_per_s_per_gpu=positive(word(text, "per second (tgs):")),
        loss=number(word(text, "lm loss:")), samples_seen=whole(word(text, "consumed samples:")), tokens_seen=whole(word(text, "consumed tokens:")),
        at=clock(text), line=line.number, rank=line.rank,
    )  # fmt: skip


def _age(log: Log, first: str) -> str:
    if "Step Time :" in log.text:
        return "Megatron-Bridge"
    if "per iteration (s):" in first:
        return "BigScience's fork"
    if "(tgs):" in first or "curriculum seqlen:" in first:
        return "Megatron-DeepSpeed"
    if "consumed samples:" not in first:
        return "before 2020-12"
    return "2024-01 or later" if clock(first) is not None else "2020-12 to 2024-01"


def _head(log: Log) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in log.lines:
        if " ..." in line.text and (found := ARGUMENT.match(line.text)) is not None:
            if (field := ARGUMENTS.get(found[1])) is not None and positive(found[2]) is not None:
                said[field] = found[2]
        elif "using world size" in line.text:
            said |= {
                key: found[1] for key, pattern in WORLD.items() if (found := re.search(pattern, line.text)) is not None
            }
    return said


def _notes(reports: list[str]) -> tuple[str, ...]:
    counts = (
        whole(word(text, "number of skipped iterations:")) for text in reports if "skipped iterations:   0" not in text
    )
    skipped = plain_sum(count for count in counts if count is not None)
    return (
        (f"{skipped:,} iterations were skipped (the loss scale overflowed): their optimizer did no step.",)
        if skipped
        else ()
    )
