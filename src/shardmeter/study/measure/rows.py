"""From timings to rows of the catalog: each number is the one with which the engine's own prices meet the timings.

A number that scales a price (a share of a peak, a factor on traffic) is moved until the engine, asked for the very tasks that were
timed, is as often above as below them. Formulas stay where they are. Its interval is that of the median over tasks and over what
single runs spread. Leaves out: numbers that two kinds of tasks would share (each kind fits its own), sizes between those timed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadData, Violation
from shardmeter.core.record import changed, record
from shardmeter.engine.price import Prices, prices
from shardmeter.families import decoder
from shardmeter.families.operations import core_attention, matmul
from shardmeter.specs import Accelerator, Island, Model, Plan, Stack
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.fleet import Tier
from shardmeter.strategies import loss, optimizer, precision
from shardmeter.study.measure.links import links, seconds_between
from shardmeter.study.measure.record import Measured, Timing

LEVEL = 0.9
ROUNDS = 60
"""Most corrections of a number until it stands: each brings the engine's median ratio closer to 1."""
KERNEL = "fa2"
"""The catalog's word for PyTorch's fused attention."""
BEYOND_CACHE = 1 << 26
"""Bytes from which a copy says what memory gives."""
HALVES = (0.0, 30.0, 60.0, 125.0, 250.0, 500.0, 1000.0)
"""Lengths at which attention may reach half its rate: finer steps move no price by more than its spread."""
PRICED = ("matmul", "attention", "pointwise")
"""Kinds of tasks that the engine is asked for."""
NEEDED = (("matmul", ""), ("copy", "in place"), ("pointwise", "norm"), ("launch", "kernel"))
"""(kind, name) of the timings without which there are no rows."""
Bounds = dict[str, tuple[float, float]]


@record
class Rows:
    """What the measurement says to the catalog, and how sure it is."""

    accelerator: Accelerator
    stack: Stack
    accelerator_bounds: Bounds
    """(low, high) by column of the accelerator's row, and of attention `forward` and `backward`."""
    stack_bounds: Bounds
    errors: Mapping[str, float]
    """Median absolute error of the engine over the timed tasks with these rows, by kind."""
    detail: tuple[tuple[Timing, float], ...]
    """Every timed kernel, and what the engine says with these rows."""


def slug(text: str) -> str:
    """A name that the catalog takes, out of what a device calls itself."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((?:r|tm)\)", "", text.lower())).strip("-")[:48]


def rows(measured: Measured, name: str, like: Accelerator | None = None) -> Rows:
    """The rows of a measurement. `like`: a row of the same part, from which comes what is not measured (peaks, power, links).

    Raises BadData where a kind of task that rows are made of was not timed."""
    lacking = [kind for kind, found in NEEDED if not measured.of(kind, found)]
    if lacking:
        missing = [
            Violation(field="timings", says=f"none of kind {kind}", way_out="measure all of them") for kind in lacking
        ]
        raise BadData("the measurements make no rows", missing)
    device, bounds = _device(measured, name, like)
    asked = [one.task for one in measured.timings if one.task.kind in PRICED and one.task.name != "update"]
    unpriced = {task.dtype for task in asked if _priced_as(task.dtype) not in device.peak}
    if unpriced:
        says = f"there is no product in {', '.join(sorted(unpriced))}, whose rate other kernels in it are priced by"
        raise BadData(
            "the measurements make no rows", [Violation(field="timings", says=says, way_out="measure all of them")]
        )
    stack = _stack(measured, name)
    for dtype in device.peak:
        timed = measured.of("matmul", dtype=dtype)
        if timed:
            share, span = _solved(timed, device, stack, _with_matmul_share(dtype), float(device.matmul_share[dtype]))
            device = _with_matmul_share(dtype)(device, stack, share)[0]
            bounds[f"matmul_share_{dtype}"] = span
    device, spans = _attention(measured, device, stack)
    bounds |= spans
    factor, span = _traffic_factor(measured, device, stack)
    stack = changed(stack, traffic_factor=factor)
    kernels = [one for kind in (*PRICED, "collective") for one in measured.of(kind)]
    detail = tuple((one, seconds_of(one, device, stack)) for one in kernels)
    errors = {
        kind: float(np.median([abs(said / one.seconds - 1.0) for one, said in detail if one.task.kind == kind]))
        for kind in dict.fromkeys(one.task.kind for one, _ in detail)
    }
    launched = measured.of("launch", "kernel")[0]
    return Rows(
        accelerator=device, stack=stack, accelerator_bounds=bounds,
        stack_bounds={"traffic_factor": span, "launch_overhead": (launched.low, launched.high)},
        errors=errors, detail=detail,
    )  # fmt: skip


def _device(measured: Measured, name: str, like: Accelerator | None) -> tuple[Accelerator, Bounds]:
    """The row before its shares are known: peaks (those of `like`, or the fastest run of a product), memory, links."""
    peak: dict[str, float] = {} if like is None else {dtype: float(rate) for dtype, rate in like.peak.items()}
    for one in measured.of("matmul"):
        if like is None or one.task.dtype not in like.peak:
            peak[one.task.dtype] = max(peak.get(one.task.dtype, 0.0), float(_compute(one).flops) / one.low)
    copies = [one for one in measured.of("copy", "in place") if one.task.sizes["bytes"] >= BEYOND_CACHE]
    rates = [(2.0 * one.task.sizes["bytes"] / one.seconds, 2.0 * one.task.sizes["bytes"] / one.low) for one in copies]
    top = max(best for _, best in rates) if like is None else float(like.memory_bandwidth)
    shares = [min(usual / top, 1.0) for usual, _ in rates]
    between, spans = links(measured, like)
    given: dict[str, Any] = {
        "name": name, "arch": name, "memory": measured.memory, "memory_bandwidth": top, "peak": peak,
        "memory_share": float(np.median(shares)), "processors": measured.processors, "host_ahead": measured.kind != "cpu",
        "matmul_share": dict.fromkeys(peak, 0.8) | ({} if like is None else dict(like.matmul_share)),
        "attention_share": {KERNEL: (0.5, 0.5)}, "source": f"shardmeter measure on {measured.device}, {measured.software}",
        "retrieved": measured.date, **between,
    }  # fmt: skip
    spans["memory_share"] = (min(shares), max(shares))
    if like is not None:
        return changed(like, **given), spans
    alone = {"scale_up_domain": 1.0, "node_size": 1.0, "scale_up_bandwidth": top} | given
    return Accelerator(**alone), spans


def _stack(measured: Measured, name: str) -> Stack:
    """Eager PyTorch with AdamW in one kernel, on one device: facts about the code that was timed; factors are the device's shares."""
    wide = next(iter(one.task.dtype for one in measured.of("pointwise", "norm")), "fp32")
    step = measured.of("launch", "step")
    return Stack(
        name=f"torch-{name}", title=f"eager PyTorch as measured on {measured.device}", framework="PyTorch",
        year=int(measured.date[:4]), attention=KERNEL, kernels="eager", loss="torch", reduce_dtype="fp32",
        gather_dtype=wide, gradient_dtype="fp32", gradient_fused=True, gemm_factor=1.0, traffic_factor=1.0,
        attention_factor=1.0, nic_factor=1.0, launch_overhead=measured.of("launch", "kernel")[0].seconds,
        step_overhead=step[0].seconds if step else 0.0, contention=1.0 if measured.kind == "cpu" else 0.4,
        context=3e8 if measured.kind == "cpu" else 1.5e9, fitted_on=f"{len(measured.timings)} micro-benchmarks",
        fitted_date=measured.date, source=f"shardmeter measure, {measured.software}",
    )  # fmt: skip


Apply = Callable[[Accelerator, Stack, float], tuple[Accelerator, Stack]]


def _with_matmul_share(dtype: str) -> Apply:
    return lambda device, stack, share: (
        changed(device, matmul_share={**device.matmul_share, dtype: share}), stack,
    )  # fmt: skip


def _with_attention_share(at: int) -> Apply:
    def apply(device: Accelerator, stack: Stack, share: float) -> tuple[Accelerator, Stack]:
        pair = list(device.attention_share[KERNEL])
        pair[at] = share
        return changed(device, attention_share={KERNEL: (pair[0], pair[1])}), stack

    return apply


def _solved(
    timed: Sequence[Timing], device: Accelerator, stack: Stack, apply: Apply, start: float
) -> tuple[float, tuple[float, float]]:
    """The share with which the engine's median ratio to the timings is 1, and where it would be at the ends of that median's interval."""
    share = start
    ratios = np.ones(len(timed))
    taken = np.array([one.seconds for one in timed])
    demands = [(_priced_as(one.task.dtype), _compute(one)) for one in timed]
    for _ in range(ROUNDS):
        moved = apply(device, stack, share)
        lists = {dtype: _prices(*moved, dtype) for dtype, _ in demands}
        ratios = np.array([float(lists[dtype].compute(op)) for dtype, op in demands]) / taken
        middle = float(np.median(ratios))
        share = min(max(share * middle, 1e-3), 1.0)
        if abs(middle - 1.0) < 1e-5:
            break
    low, high = _median_interval(ratios)
    return share, (share * low, min(share * high, 1.0))


def _attention(measured: Measured, device: Accelerator, stack: Stack) -> tuple[Accelerator, Bounds]:
    """The device with its shares of attention, forward and backward, and of `HALVES` the length with which they miss the least."""
    best, bounds, least = device, {}, np.inf
    for half in HALVES if measured.of("attention") else ():
        one, spans, missed = changed(device, attention_half=half), {}, []
        for phase, column, at in ((FORWARD, "forward", 0), (INPUT_GRAD, "backward", 1)):
            timed = measured.of("attention", phase=phase)
            share, spans[column] = _solved(timed, one, stack, _with_attention_share(at), 0.5)
            one = _with_attention_share(at)(one, stack, share)[0]
            missed += [abs(np.log(seconds_of(each, one, stack) / each.seconds)) for each in timed]
        if np.mean(missed) < least:
            best, bounds, least = one, spans, float(np.mean(missed))
    return best, bounds


def _median_interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Order statistics around the median that hold it at `LEVEL` (normal approximation of the binomial)."""
    ordered, count = np.sort(values), len(values)
    reach = 1.645 * np.sqrt(count) / 2.0
    low, high = int(max(np.floor(count / 2.0 - reach), 0)), int(min(np.ceil(count / 2.0 + reach), count - 1))
    return float(ordered[low]), float(ordered[high])


def _traffic_factor(measured: Measured, device: Accelerator, stack: Stack) -> tuple[float, tuple[float, float]]:
    """Seconds of the pointwise kernels of a layer over what the engine says of their bytes: each kind weighs what a layer has of it."""
    found = []
    for column in (None, "low", "high"):
        taken = said = 0.0
        for one in measured.of("pointwise"):
            if one.task.name in LAYER_OPS:
                per_row = (
                    one.task.sizes["rows"] * one.task.sizes["width"] / (4.0 if one.task.name == "activation" else 1.0)
                )
                taken += (one.seconds if column is None else getattr(one, column)) * LAYER_OPS[one.task.name] / per_row
                said += seconds_of(one, device, stack) * LAYER_OPS[one.task.name] / per_row
        found.append(taken / said)
    return found[0], (found[1], found[2])


LAYER_OPS = {"norm": 2.0, "activation": 1.0, "residual": 2.0}
"""Pointwise kernels of one layer of the plain kind (two norms, two residuals, one activation four times as wide)."""


def seconds_of(one: Timing, device: Accelerator, stack: Stack) -> float:
    """What the engine says of a task."""
    dtype = one.task.dtype
    if one.task.kind == "collective":
        return seconds_between(one, device, stack)
    if one.task.kind == "pointwise" and one.task.name == "update":
        elements = float(one.task.sizes["rows"] * one.task.sizes["width"])
        return float(
            _prices(device, stack, next(iter(device.peak))).streamed(elements * optimizer.traffic(_plan("fp32")))
        )
    return float(_prices(device, stack, _priced_as(dtype)).compute(_compute(one)))


def _priced_as(dtype: str) -> str:
    """The format of the activations around a product: those of fp8 are in 16 bits."""
    return "bf16" if dtype == "fp8" else dtype


def _plan(dtype: str) -> Plan:
    return Plan(sharding="none", precision=dtype)


def _prices(device: Accelerator, stack: Stack, dtype: str) -> Prices:
    """The engine's price list of one device alone."""
    alone = Tier(name="", size=1.0, bandwidth=device.scale_up_bandwidth, share=1.0, latency=0.0)
    island = Island(name="", accelerator=device, nodes=1.0, gpus_per_node=1.0, tiers=(alone,))
    recipe = precision.recipe(dtype)
    return prices(island, stack, _plan(dtype), recipe.width, recipe.base)


def _compute(one: Timing) -> Compute:
    """A task as the demand that a training step would make."""
    task, sizes = one.task, {name: float(value) for name, value in one.task.sizes.items()}
    if task.kind == "matmul":
        products = dict(zip((FORWARD, INPUT_GRAD, WEIGHT_GRAD),
                            matmul("product", sizes["tokens"], sizes["inputs"], sizes["outputs"], "none"), strict=True))  # fmt: skip
        return changed(products[task.phase], dtype=task.dtype, scaling="tensor" if task.dtype == "fp8" else "")
    if task.kind == "attention":
        tokens = sizes["batch"] * sizes["seq"]
        ops = core_attention(tokens, sizes["seq"], sizes["heads"], sizes["head_dim"], causal=True)
        return ops[task.phase != FORWARD]
    return _pointwise(task.name, task.phase, task.dtype, sizes["rows"], sizes["width"])


def _pointwise(name: str, phase: str, dtype: str, rows_: float, width: float) -> Compute:
    """One pointwise kernel, out of what the family demands of a layer (or head) of that width."""
    hidden = width / 4.0 if name == "activation" else width if name != "loss" else 64.0
    model = Model(
        name="", layers=1, hidden=hidden, ffn=4.0 * hidden, heads=1.0, kv_heads=1.0, head_dim=hidden, vocab=width,
        mlp="plain", norm="layer", positions="learned",
    )  # fmt: skip
    block = "head" if name == "loss" else decoder.LAYER
    label = {"norm": "norms", "residual": "residuals"}.get(name, name)
    ops = loss.applied(decoder.operations(model, block, rows_, rows_, "eager"), "torch")
    op = next(op for op in ops if op.label == label and op.phase == phase)
    op = precision.applied(op, _plan(dtype), block)[0][0]
    return changed(op, traffic=op.traffic / LAYER_OPS.get(name, 1.0))


__all__ = ["Rows", "rows", "seconds_of", "slug"]
