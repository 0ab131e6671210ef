"""Writes the measured runs that ship with the package, from the collected tables: numbers and canonical words, no prose.

    python scripts/condense_measured.py TABLES    from a directory with measured-dev.csv and the failed-*.csv
    python scripts/condense_measured.py           only the digests, from the rows that ship already

Composed rows stay out. A condensed row must mean exactly what its original means: both are mapped and compared, and the
digest of every source's readings is stored, so that a test can tell when a rule changes what a shipped row means.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardmeter.core.record import changed
from shardmeter.study.validate.accelerator import LOW_POWER_H100, accelerator_name
from shardmeter.study.validate.digest import digests
from shardmeter.study.validate.failed import as_measured
from shardmeter.study.validate.layout import read_table
from shardmeter.study.validate.mapping import Verdict, read_rows, stack_of
from shardmeter.study.validate.offload import NAMED, ON_TOP
from shardmeter.study.validate.precision import RECIPES
from shardmeter.study.validate.rows import NotModelled, Row
from shardmeter.study.validate.stack import read_stack
from shardmeter.study.validate.task import read_task
from shipping import write

OUT = Path(__file__).parent.parent / "src" / "shardmeter" / "data" / "measured"
COMPOSED = "vTrain single-node"
LIMIT = 1_500_000
NUMBERS = (
    "year", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "head_dim", "vocab", "n_experts", "seq_len",
    "n_accelerators", "accelerators_per_node", "parallel_tp", "pp", "virtual_pp", "cp", "ep", "dp", "micro_batch",
    "global_batch", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "tflops_per_gpu", "step_time_s", "peak_memory_gib",
)  # fmt: skip
WORDS = (
    "accelerator",
    "intra_node_link",
    "inter_node_link",
    "precision",
    "sharding",
    "sequence_parallel",
    "recompute",
    "kernel_notes",
    "framework",
    "task",
)
COLUMNS = ("id", "source_key", "model", *WORDS, *NUMBERS)
CITATIONS: Mapping[str, str] = {
    "AI-Hypercomputer/maxtext TPU tables": "MaxText repository: tables of TPU v5e configurations (2024)",
    "AMD Primus blogs": "AMD ROCm blogs: pipeline schedules in Primus (2025)",
    "Aleph Alpha layouts sweep (arXiv 2311.05610)": "Efficient Parallelization Layouts for Large-Scale Distributed Model Training, arXiv 2311.05610: data sheets at e13c2cb5",
    "Alpa benchmark README": "Alpa repository: benchmark README (2022)",
    "FlashAttention-2 (arXiv 2307.08691) Table 1": "FlashAttention-2, arXiv 2307.08691, table 1",
    "Megatron SC21 Table 1 (arXiv 2104.04473)": "Efficient Large-Scale Language Model Training on GPU Clusters (SC21), arXiv 2104.04473, table 1",
    "NVIDIA Megatron-Bridge performance summary": "NVIDIA Megatron-Bridge: performance summary, releases 25.09 to 26.08",
    "NVIDIA Megatron-LM README (H100 2024)": "NVIDIA Megatron-LM repository: README, weak scaling on H100 (2024)",
    "NVIDIA NeMo 24.07 performance page": "NVIDIA NeMo Framework: performance page of container 24.07",
    "NVIDIA NeMo 25.04 performance page (GB200)": "NVIDIA NeMo Framework: performance summary of container 25.04",
    "NVIDIA NeMo-Framework-Launcher tables": "NVIDIA NeMo-Framework-Launcher repository: performance tables (2023 to 2024)",
    "NeMo docs CLIP/ViT scaling (A100, H100)": "NVIDIA NeMo Framework user guide: ViT and CLIP scaling (2023)",
    "PLSC ViT, nvSubquadratic ViT-5 (misc vision)": "PaddlePaddle PLSC ViT README (2022); nvSubquadratic ViT-5 (2025)",
    "Zero Bubble PP (arXiv 2401.10241) Table 4": "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 4",
    "alibaba/Megatron-LLaMA README": "Alibaba Megatron-LLaMA repository: README (2023)",
    "litgpt/thunder, ColossalAI, misc READMEs": "READMEs of LitGPT with Thunder, Megatron-DeepSpeed and Colossal-AI (2023 to 2025)",
    "mosaicml/llm-foundry": "MosaicML LLM-Foundry repository: training benchmark tables (2023 to 2024)",
    "nanotron/ultrascale-playbook": "The Ultra-Scale Playbook (Hugging Face, 2025): data of the scaling sweep",
    "open_clip PRETRAINED.md": "open_clip repository: notes on pretrained models (LAION-400M runs)",
    "pytorch/ao + torchtitan float8/mxfp8 tables": "PyTorch torchao repository: float8 and MX training tables (2025)",
    "pytorch/torchtitan": "PyTorch torchtitan repository: benchmark pages (2024 to 2025)",
    "pytorch/torchtune README": "PyTorch torchtune repository: README, memory and speed (2025)",
    "timm train benchmark RTX3090": "timm repository: training benchmark on RTX 3090 (2022)",
}  # fmt: skip


def condensed(row: Row) -> dict[str, str]:
    """One row in canonical words."""
    cells = {name: number(row.cells.get(name, "")) for name in NUMBERS}
    notes = row.text("kernel_notes")
    return cells | {
        "id": row.text("id"),
        "source_key": row.text("source_key"),
        "model": row.text("model"),
        "accelerator": accelerator(row.text("accelerator")),
        "intra_node_link": link(row.text("intra_node_link")),
        "inter_node_link": fabric(row.text("inter_node_link")),
        "precision": precision(row.text("precision"), notes),
        "sharding": sharding(row.text("sharding")),
        "sequence_parallel": (re.findall(r"^(yes if tp>1|yes|no)", row.text("sequence_parallel")) or [""])[0],
        "recompute": recompute(row.text("recompute")),
        "kernel_notes": kernels(notes),
        "framework": framework(row),
        "task": read_task(row.text("task")),
        "status": "oom"
        if row.text("status") and re.search(r"oom|memory", row.text("status").lower())
        else row.text("status"),
    }


def number(text: str) -> str:
    """A number without the zeros that a spreadsheet adds."""
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return ""


def accelerator(text: str) -> str:
    """The catalog name, with the few words that change its meaning."""
    try:
        name = accelerator_name(text)
    except NotModelled:
        return text
    if LOW_POWER_H100.search(text.lower()):
        return f"{name}; HBM2e"
    doubt = "?" if "?" in text else "; power limited" if "power limited" in text.lower() else ""
    return f"{name}{doubt}"


def link(text: str) -> str:
    """The link inside a node, where it is not the accelerator's own."""
    plain = text.lower()
    found = re.search(r"slice of \d+|\d+-way.*bridge", plain)
    return found.group(0) if found else "pcie" if plain.startswith("pcie") else ""


def fabric(text: str) -> str:
    """Kind and rate in the shortest words that the reader knows."""
    plain = text.lower()
    rules = (
        (r"^n/a|^$", ""), (r"\befa\b", "efa"), (r"dcn", "dcn"), (r"superpod", "superpod ib"),
        (r"roce (\d+) gbps node-node", r"roce \1 Gb/s per node"), (r"roce rdma", "roce"),
        (r"rdma (\d+) gb/s per gpu", r"roce \1 Gb/s"), (r"(\d+) gb/s per gpu cx-7", r"ib \1 Gb/s"),
        (r"(\d+)x ?(\d+)gb hdr|(\d+)x hdr ib (\d+)", r"ib \1\3x\2\4 Gb/s"), (r"(\d+)x(\d+) gbps rdma", r"roce \1x\2 Gb/s"),
    )  # fmt: skip
    for pattern, word in rules:
        found = re.search(pattern, plain)
        if found:
            return found.expand(word)
    return text


def precision(text: str, notes: str) -> str:
    """The recipe in the words that the reader tells apart."""
    plain = text.lower()
    eight = next((word for pattern, word in RECIPES if re.search(pattern, plain)), "")
    eight = "" if eight == "fp8" and not re.search("current|fp8-cs|tensor|float8", plain) else eight
    if re.search(r"fp8|float8", plain) and "fp4" not in plain:
        said = {"": "fp8", "fp8": "fp8 (tensorwise)"}.get(eight, eight)
        gathered = re.search("(float8|bf16) all-gather", f"{plain} {notes.lower()}")
        return f"{said}; {gathered.group(0)}" if gathered else said
    for pattern, word in (
        (r"fp4", "fp4"), (r"bf16.*pure", "bf16 (pure)"), (r"bf16.*\(amp\)", "bf16 (amp)"), (r"bf16", "bf16"),
        (r"fp16|^amp$", "fp16"),
    ):  # fmt: skip
        if re.search(pattern, plain):
            return word
    return text


def sharding(text: str) -> str:
    """The strategy in the words that the reader tells apart, without brackets that explain it."""
    plain = text.lower()
    slices = re.search(r"within slice \(\d*\), data parallel across \d+ slice", plain)
    if slices:
        return f"fsdp {slices.group(0)}"
    group = re.search(r"(?:over|group) (\d+)", plain)
    over = f" over {group.group(1)}" if group else ""
    for pattern, word in (
        (r"offload", "zero3 offload"), (r"shard_grad_op", "fsdp shard_grad_op"), (r"ddp/dist", "zero1"), (r"fsdp", "fsdp"),
        (r"distributed ?optimizer|zero1", "zero1"), (r"zero2", "zero2"), (r"zero3", "zero3"), (r"ddp|zero0", "ddp"),
        (r"none", "none"),
    ):  # fmt: skip
        if re.search(pattern, plain):
            return word + over
    return text


def recompute(text: str) -> str:
    """The policy in the words that the reader tells apart."""
    plain = text.lower()
    for pattern, word in (
        (r"^none", "none"), (r"offload", "offload"), (r"^full$", "full"), (r"every other|\(layer\)", "every-2"),
    ):  # fmt: skip
        if re.search(pattern, plain):
            return word
    return plain


def kernels(notes: str) -> str:
    """What kernel notes say that changes a reading, as `key=value` and flags."""
    plain = notes.lower()
    reading = read_stack("misc-small", 2025, notes)
    said = [f"attention={reading.attention}"] if reading.attention else []
    said += [f"kernels={reading.kernels}"] if reading.kernels else []
    schedule = re.search(r"(?:schedule|algorithm) ([\w.-]+(?: 1f1b)?)", plain)
    said += [f"schedule={schedule.group(1)}"] if schedule else []
    said += [
        flag
        for flag in ("async tp", "tp-comm-overlap", "optimizer in backward", "8-bit")
        if flag in plain.replace("asynctp", "async tp")
    ]
    said += ["moe_a2a_overlap=True"] if reading.batch_overlap else []
    said += ["cuda_graph_impl=full"] if reading.step_graphs else []
    if "offload" in plain:
        kinds = (re.search(pattern, plain) for _, pattern in NAMED)
        said += [found.group(0) for found in kinds if found] or ["offload"]
        said += ["cumulative"] if re.search(ON_TOP, plain) else []
    return "; ".join(said)


def framework(row: Row) -> str:
    """The stack's id; for those without one of their own, the first words of the framework."""
    found, text = stack_of(row).id, row.text("framework")
    return found if found != "misc-small" else re.split(r"[,(]| repo", text.lower())[0].strip()


def meaning(verdict: Verdict) -> str:
    """A verdict without its wording: what was assumed of a text is not assumed of its canonical reading."""
    reading = "" if verdict.reading is None else repr(changed(verdict.reading, assumptions=()))
    kind = "skip" if verdict.skip else "exclude" if verdict.exclude else reading
    return (
        f"{verdict.id} {verdict.source_key} {verdict.stack} {verdict.task} {verdict.regime} {verdict.measured} {kind}"
    )


def check(original: Sequence[Row], name: str) -> None:
    """Stop if a condensed row means something else than its original."""
    table = read_table(OUT / name)
    pairs = list(zip(read_rows(original), read_rows(table.rows), strict=True))
    wrong = [(a, b) for a, b in pairs if meaning(a) != meaning(b)]
    for a, b in wrong[:5]:
        print(f"{a.id}:\n  {meaning(a)} {a.skip}{a.exclude}\n  {meaning(b)} {b.skip}{b.exclude}", file=sys.stderr)
    if wrong:
        sys.exit(f"{name}: {len(wrong)} of {len(pairs)} rows change their meaning")


def condense(tables: Path) -> None:
    """Write the shipped tables from the collected ones."""
    runs = [row for row in read_table(tables / "measured-dev.csv").rows if row.text("source_key") != COMPOSED]
    write(OUT / "runs.csv", map(condensed, runs), COLUMNS)
    check(runs, "runs.csv")
    failed = [as_measured(row) for path in sorted(tables.glob("failed-*.csv")) for row in read_table(path).rows]
    columns = [c for c in COLUMNS if not re.search(r"step_time|_per_s_|tflops|peak_memory", c)]
    write(OUT / "failed.csv", map(condensed, failed), [*columns, "status"])
    check(failed, "failed.csv")
    keys = dict.fromkeys(row.text("source_key") for row in runs)
    write(
        OUT / "sources.csv",
        ({"source_key": key, "citation": CITATIONS[key]} for key in keys),
        ("source_key", "citation"),
    )


def main() -> None:
    """Condense, if a directory of tables is named, and write the digests."""
    if len(sys.argv) > 1:
        condense(Path(sys.argv[1]))
    rows = [
        {"file": name, "source_key": source, "rows": str(count), "digest": digest}
        for name in ("runs.csv", "failed.csv")
        for source, (count, digest) in digests(read_rows(read_table(OUT / name).rows)).items()
    ]
    write(OUT / "digests.csv", rows, ("file", "source_key", "rows", "digest"))
    size = sum(path.stat().st_size for path in OUT.glob("*.csv"))
    print(f"{size:,} bytes in {OUT.name}")
    if size > LIMIT:
        sys.exit(f"more than {LIMIT:,} bytes")


if __name__ == "__main__":
    main()
