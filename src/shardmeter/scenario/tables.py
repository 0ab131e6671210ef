"""The tables of the catalog: which record a row becomes, what names it, which columns it has and where the file lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.units import Fraction
from shardmeter.specs import (
    Accelerator,
    CriticalBatch,
    Egress,
    Fabric,
    Failures,
    Grid,
    Instance,
    Line,
    LossLaw,
    Model,
    Pair,
    Region,
    Stack,
    Storage,
    course,
    geography,
    model,
    stack,
)

KINDS = (
    "accelerators", "fabrics", "instances", "models", "stacks", "regions", "links", "pairs", "egress", "grids", "storage",
    "laws", "critical_batches", "failures",
)  # fmt: skip
"""The tables that have names of their own; `attention` and `citations` hang on to them."""
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""The dtypes of the `peak_*` columns, widest first."""


def singular(kind: str) -> str:
    """What one row of a kind is called: the accelerator of accelerators."""
    return {"egress": kind, "storage": kind, "critical_batches": "critical_batch", "failures": "failures"}.get(
        kind, kind.removesuffix("s")
    )


BUILT = ("peak", "matmul_share", "attention_share", "draws")
"""Fields that are no column: of an accelerator put together from several columns or rows, of a law made by a fit."""


@record
class Attention:
    """A row of `data/attention.csv`: the share of the dense peak that long-sequence attention reaches."""

    arch: str
    kernel: str
    forward: Fraction
    backward: Fraction
    notes: str = ""
    source: str = ""
    retrieved: str = ""


@record
class Citation:
    """A row of `data/citations.csv`: what the key in `@formula(cite=…)` stands for."""

    key: str
    authors: str = ""
    title: str = ""
    year: int = 0
    where: str = ""


@record
class Interval:
    """A row of a user profile's `intervals.csv`: how well a number of another row is known, its ends written as that row writes it."""

    kind: str
    name: str
    number: str
    """The column."""
    low: str
    high: str
    level: Fraction = 0.9
    basis: str = ""
    """What it rests on: rows, sizes, a date."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One table."""

    record: type[Any]
    key: tuple[str, ...] = ("name",)
    extra: tuple[str, ...] = ("aliases", "notes", "source", "retrieved")
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder: str = ""
    """Of the shipped file, inside `shardmeter.data`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, those of the record first."""
        own = [one.name for one in fields(self.record) if one.name not in BUILT]
        return tuple(dict.fromkeys((*own, *self.extra)))


_COMMON = ("aliases", "notes", "source", "retrieved")
LAYOUTS = {
    "accelerators": Layout(
        Accelerator,
        extra=(
            *_COMMON, "dense", "matmul_share_basis",
            *(f"peak_{dtype}" for dtype in DTYPES), *(f"matmul_share_{dtype}" for dtype in DTYPES),
        ),
    ),
    "fabrics": Layout(Fabric, extra=(*_COMMON, "latency_basis")),
    "instances": Layout(Instance),
    "models": Layout(Model, choices=model.WORDS),
    "stacks": Layout(Stack, choices=stack.WORDS),
    "regions": Layout(Region, folder="geo/"),
    "links": Layout(Line, choices=geography.WORDS, folder="geo/"),
    "pairs": Layout(Pair, folder="geo/"),
    "egress": Layout(Egress, extra=(*_COMMON, "least", "most"), folder="geo/"),
    "grids": Layout(Grid),
    "storage": Layout(Storage),
    "laws": Layout(LossLaw, choices={"counts": course.COUNTS}),
    "critical_batches": Layout(CriticalBatch, choices={"form": course.FORMS}),
    "failures": Layout(Failures, choices={"per": course.PER}),
    "attention": Layout(Attention, key=("arch", "kernel"), extra=()),
    "citations": Layout(Citation, key=("key",), extra=()),
    "intervals": Layout(Interval, key=("kind", "name", "number"), extra=()),
}  # fmt: skip
"""By kind, the plural of what a row is."""
