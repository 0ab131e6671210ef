"""Which micro-benchmarks are run: the products, copies, attention, pointwise kernels and launches of training, over their sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shardmeter.core.record import record
from shardmeter.specs.demands import FORWARD, INPUT_GRAD
from shardmeter.study.measure.record import PHASES, Task


@record
class Ranges:
    """The sizes over which a kind of device is measured: small enough for it to be quick, large enough to keep it busy."""

    tokens: tuple[int, ...]
    layers: tuple[tuple[int, int], ...]
    """(inputs, outputs) of linear layers."""
    work: float
    """FLOPs of the largest product: wider ones are left out."""
    attention: tuple[tuple[int, int, int, int], ...]
    """(batch, heads, seq, head_dim)."""
    pointwise: tuple[tuple[int, int], ...]
    """(rows, width) of the norms and residuals; an activation is four times as wide."""
    logits: tuple[int, int]
    copies: tuple[int, ...]
    """Bytes; the largest are beyond every cache."""


WIDTHS = ((256, 256), (256, 1024), (1024, 256), (512, 512), (512, 2048), (2048, 512), (768, 2304), (256, 8192))
RANGES = {
    "cpu": Ranges(
        tokens=(256, 1024), layers=(*WIDTHS, (128, 128), (128, 512), (768, 768), (3072, 768), (512, 8192), (1024, 1024)),
        work=6e9,
        attention=((8, 4, 128, 64), (4, 8, 256, 64), (2, 8, 512, 64), (1, 8, 1024, 64), (4, 4, 256, 128), (1, 4, 1024, 128)),
        pointwise=((1024, 256), (1024, 512), (1024, 1024)), logits=(512, 8192),
        copies=(1 << 16, 1 << 20, 1 << 26, 1 << 27),
    ),
    "cuda": Ranges(
        tokens=(1024, 4096, 16384),
        layers=((1024, 1024), (1024, 4096), (4096, 1024), (2048, 2048), (4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192),
                (4096, 65536)),
        work=1e13,
        attention=((8, 32, 1024, 64), (8, 32, 1024, 128), (4, 32, 2048, 128), (2, 32, 4096, 64), (2, 32, 4096, 128),
                   (1, 32, 8192, 128)),
        pointwise=((8192, 2048), (8192, 4096)), logits=(4096, 65536),
        copies=(1 << 16, 1 << 20, 1 << 28, 1 << 30),
    ),
}  # fmt: skip
"""By kind of device."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
MESSAGES = {"cpu": (1 << 12, 1 << 16, 1 << 20, 1 << 24), "cuda": (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)}
"""Bytes of the whole buffer of a collective."""


def tasks(kind: str, dtypes: Collection[str], *, quick: bool = False) -> tuple[Task, ...]:
    """The tasks of a kind of device in the given number formats. `quick`: one number of tokens, every second size of the others."""
    ranges = RANGES[kind]
    return (
        *_matmuls(ranges, dtypes, quick=quick),
        *_attention(ranges, _wide(dtypes), quick=quick),
        *_streamed(ranges, _wide(dtypes), quick=quick),
        Task(kind="launch", name="kernel", sizes={}),
        Task(kind="launch", name="step", sizes={}),
    )


def _wide(dtypes: Collection[str]) -> str:
    """The format of what is no product: the first that activations lie in."""
    return next((dtype for dtype in ("bf16", "fp16", "fp32") if dtype in dtypes), "fp32")


def _matmuls(ranges: Ranges, dtypes: Collection[str], *, quick: bool) -> Iterator[Task]:
    for dtype in dtypes:
        for tokens in ranges.tokens[-1:] if quick else ranges.tokens:
            for inputs, outputs in ranges.layers[: len(WIDTHS)] if quick else ranges.layers:
                if 2.0 * tokens * inputs * outputs > ranges.work:
                    continue
                sizes = {"tokens": tokens, "inputs": inputs, "outputs": outputs}
                for phase in PHASES:
                    yield Task(kind="matmul", phase=phase, dtype=dtype, sizes=sizes)


def _attention(ranges: Ranges, dtype: str, *, quick: bool) -> Iterator[Task]:
    for batch, heads, seq, head_dim in ranges.attention[:: 2 if quick else 1]:
        sizes = {"batch": batch, "heads": heads, "seq": seq, "head_dim": head_dim}
        for phase in (FORWARD, INPUT_GRAD):
            yield Task(kind="attention", phase=phase, dtype=dtype, sizes=sizes)


def _streamed(ranges: Ranges, dtype: str, *, quick: bool) -> Iterator[Task]:
    for size in ranges.copies:
        for name in ("to another", "in place"):
            yield Task(kind="copy", name=name, dtype=dtype, sizes={"bytes": size})
    for rows, width in ranges.pointwise[:: 2 if quick else 1]:
        for name, wider in (("norm", 1), ("activation", 4), ("residual", 1)):
            for phase in (FORWARD, INPUT_GRAD):
                yield Task(
                    kind="pointwise", name=name, phase=phase, dtype=dtype, sizes={"rows": rows, "width": wider * width}
                )
    for phase in (FORWARD, INPUT_GRAD):
        yield Task(
            kind="pointwise", name="loss", phase=phase, dtype=dtype,
            sizes=dict(zip(("rows", "width"), ranges.logits, strict=True)),
        )  # fmt: skip
    yield Task(kind="pointwise", name="update", dtype="fp32", sizes={"rows": 16, "width": 1 << 20})
