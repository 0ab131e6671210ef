"""Figures that were read as something else: per node for per GPU, one pass for a step, one device's peak for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from shardmeter.core.sums import plain_sum
from shardmeter.specs import Scenario
from shardmeter.study.doctor import usual
from shardmeter.study.doctor.cause import Misread
from shardmeter.study.doctor.measured import MEMORY, Measured
from shardmeter.study.doctor.world import World

SPARSE = 2.0
"""A peak with structured sparsity over the dense one."""


def misreadings(scenario: Scenario, base: World, measured: Measured) -> Iterator[Misread]:
    """Every way to misread a figure that multiplies it by more than one, once a factor."""
    seen: set[float] = set()
    for name, title, means, factor in _factors(scenario, base, measured):
        rounded = round(factor, 6)
        if rounded != 1.0 and rounded not in seen:
            seen.add(rounded)
            yield Misread(
                name=name, title=title, means=means, touches=(measured.quantity.kind,), chance=usual.MISCOUNTED.chance,
                basis=usual.MISCOUNTED.basis, factor=factor,
            )  # fmt: skip


Told: TypeAlias = tuple[str, str, str, float]
"""Name, title, meaning, what the figure is over the right one."""
RATES = ("tokens_per_s", "samples_per_s")
OF_GPUS = ("mfu", "hfu", "tflops_per_gpu", "tokens_per_s_per_gpu", "samples_per_s_per_gpu")


def _factors(scenario: Scenario, base: World, measured: Measured) -> Iterator[Told]:
    fleet, plan, name = scenario.fleet, scenario.plan, measured.quantity.name
    gpus, nodes = float(fleet.gpus), plain_sum(float(island.nodes) for island in fleet.islands)
    passes = float(scenario.run.global_batch) / float(plan.dp * plan.micro_batch)
    if measured.quantity.kind == MEMORY:
        yield "gb-for-gib", "GB read as GiB", "decimal gigabytes (or the other way round)", 2.0**30 / 1e9
        yield "memory-of-node", "memory of a node read as one GPU's", "the sum over the GPUs of a node", gpus / nodes
    if name in OF_GPUS:
        yield from _of_gpus(name, gpus, gpus / nodes)
    if name in RATES:
        says = "the log counts what its own rank sees, not all ranks"
        yield "one-rank-counted", "one data-parallel rank counted", says, 1.0 / float(plan.dp)
        says = "the log counts what its own node sees, or every node trains a copy of its own"
        yield "one-node-counted", "one node counted", says, 1.0 / nodes
    if name.startswith((*RATES, "mfu", "hfu", "tflops")):
        says = "tensor, context and pipeline ranks counted as if each had its own tokens"
        yield "ranks-of-one-sequence", "ranks that share a sequence counted once each", says, gpus / float(plan.dp)
        says = f"the tokens of one of {passes:g} passes over the time of all"
        yield "one-pass-counted", "one pass counted for a step", says, 1.0 / passes
    if name == "its_per_s":
        yield "passes-for-steps", "passes counted as steps", f"each of {passes:g} passes counted as a step", passes
    if name in ("mfu", "hfu"):
        yield "sparse-peak", "over the peak with sparsity", "the data sheet's larger number counts zeros", 1.0 / SPARSE
        times = _recomputed(base) if name == "mfu" else 1.0 / _recomputed(base)
        yield "mfu-for-hfu", "MFU and HFU mixed up", "what is recomputed counts in HFU only", times
    if name in ("step_time", "forward", "backward"):
        yield (
            "pass-for-step",
            "a pass read as a step",
            f"an iteration of the log is one of {passes:g} passes",
            1.0 / passes,
        )
        yield "step-for-pass", "several steps read as one", f"a line of the log is {passes:g} steps", passes


def _of_gpus(name: str, gpus: float, each: float) -> Iterator[Told]:
    """Of a figure of one GPU; a node has `each` of all `gpus`."""
    of = "over the peak of one GPU" if name in ("mfu", "hfu") else "not divided by the GPUs"
    yield "all-for-one-gpu", "the rate of all GPUs read as one's", f"the rate of all {gpus:g} GPUs {of}", gpus
    yield "node-for-gpu", "the rate of a node read as a GPU's", f"a node's {each:g} GPUs counted as one", each
    says = "a rate of one GPU, divided by all of them again"
    yield "divided-twice", "divided by the GPUs twice", says, 1.0 / gpus
    says = "a rate of one GPU, divided by a node's again"
    yield "divided-by-node", "divided by a node's GPUs twice", says, 1.0 / each


def _recomputed(base: World) -> float:
    e = base.estimate
    return float(e.hardware_flops / e.model_flops)
