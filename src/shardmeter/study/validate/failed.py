"""Configurations that did not run: their rows in the columns of measured runs, and what they failed of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from shardmeter.core.record import changed, record
from shardmeter.study.validate.rows import Row

OUT_OF_MEMORY = re.compile(r"\boom\b|out.of.memory|memory")
SWEEP_SHARDING = {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}


@record
class Form:
    """A published table of failures: the columns that tell it, and what its rows mean in the columns of measured runs."""

    told_by: tuple[str, ...]
    constants: Mapping[str, str]
    columns: Mapping[str, Callable[[Row], str]]


def _whole(text: str) -> str:
    """`2.0` and `2` alike as `2`."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


FORMS: tuple[Form, ...] = (
    Form(
        told_by=("model_size", "nodes", "mbs", "gbs", "zero"),
        constants={
            "source_key": "nanotron/ultrascale-playbook", "framework": "nanotron-2025", "year": "2025",
            "accelerator": "H100-SXM5-80GB", "accelerators_per_node": "8", "inter_node_link": "efa", "precision": "bf16",
            "seq_len": "4096", "cp": "1", "recompute": "none", "task": "pretrain", "sequence_parallel": "yes if tp>1",
        },
        columns={
            "model": lambda row: row.text("model_size"),
            "n_accelerators": lambda row: f"{(row.count('nodes') or 0.0) * 8.0:g}",
            "micro_batch": lambda row: row.text("mbs"),
            "global_batch": lambda row: row.text("gbs"),
            "parallel_tp": lambda row: row.text("tp"),
            "sharding": lambda row: SWEEP_SHARDING.get(_whole(row.text("zero")), ""),
            "status": lambda row: row.text("note"),
            "id": lambda row: f"failed-{row.line}",
        },
    ),
    Form(
        told_by=("trial", "kernel", "status"),
        constants={
            "source_key": "Aleph Alpha layouts sweep (arXiv 2311.05610)", "framework": "aa-2023", "year": "2023",
            "accelerator": "A100-SXM4-80GB", "accelerators_per_node": "8", "precision": "bf16", "cp": "1",
            "task": "pretrain",
        },
        columns={
            "kernel_notes": lambda row: row.text("kernel"),
            "parallel_tp": lambda row: row.text("tp"),
            "id": lambda row: f"trial-{row.text('trial')}",
        },
    ),
)  # fmt: skip
"""Tables that leave out what is common to all their rows (`facts` of the sources, in the words of this package)."""


def as_measured(row: Row) -> Row:
    """The row in the columns of measured runs; one that is so already stays as it is, but for `tp` and `note`."""
    for form in FORMS:
        if all(column in row.cells for column in form.told_by):
            cells = {**row.cells, **form.constants, **{name: read(row) for name, read in form.columns.items()}}
            return changed(row, cells=cells)
    status = row.text("status") or row.text("note") or "failed"
    tp = row.text("parallel_tp") or row.text("tp")
    return changed(row, cells={**row.cells, "status": status, "parallel_tp": tp})


def other_cause(row: Row) -> str:
    """Why a failed row says nothing about memory; empty if it ran out of memory (or may have: "crashed/oom")."""
    status = row.text("status")
    return (
        ""
        if OUT_OF_MEMORY.search(status.lower())
        else f"failed of something else than memory: {status or 'not stated'}"
    )
