"""Readings to scenarios: every name of a reading becomes a row of the catalog, with what the text says differs from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.record import changed, record
from shardmeter.families import decoder
from shardmeter.scenario.catalog import Catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.fleet import Fabric, Fleet, Island
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.strategies.precision import recipe
from shardmeter.study.validate.fabric import GBPS, FabricReading
from shardmeter.study.validate.mapping import Reading, Verdict, read_rows
from shardmeter.study.validate.measured import ALLOCATED
from shardmeter.study.validate.regimes import NORMAL
from shardmeter.study.validate.rows import NotModelled, Row
from shardmeter.study.validate.stack import choose_stack

FABRICS: Mapping[str, Mapping[float, str]] = {
    "infiniband": {100.0: "ib-edr100", 200.0: "ib-hdr200", 400.0: "ib-ndr400", 800.0: "ib-xdr800"},
    "roce": {100.0: "roce-100", 200.0: "roce-200", 400.0: "roce-400"},
    "slingshot": {200.0: "slingshot-11"},
    "omni-path": {100.0: "omni-path-100", 400.0: "omni-path-400"},
    "ethernet": {10.0: "ethernet-10g-tcp", 25.0: "ethernet-25g-tcp", 100.0: "ethernet-100g-tcp"},
    "dcn": {100.0: "tpu-v5e-dcn"},
}
"""Catalog rows by kind and rate of one adapter in Gb/s."""
EFA: tuple[tuple[str, str], ...] = (
    (r"^(v100|a100)", "efa-v1"), (r"^h100", "efa-v2"), (r"^h200|^trainium", "efa-v3"), (r"^b300|^gb300", "efa-v4-b300"),
    (r"", "efa-v4"),
)  # fmt: skip
"""The generation of EFA that an accelerator's instances have."""
ROCE_UNSTATED: tuple[tuple[str, str, float | None], ...] = ((r"^(v100|a100)", "roce-200", 4.0), (r"", "roce-400", None))
"""(accelerator, row, adapters a node) where a text says RoCE and no rate."""


CUT_WITH_EDGES = ("megatron", "megatron-like")
"""Lineages that can count the embedding and the head as one layer each: done where only then the stages come out even."""
ACHIEVABLE = 0.90
"""Share of a dense peak that no training step reaches with its matrix products alone."""
OVERFULL = 1.02
"""A report above the device's memory by more than this is a wrong label or unit."""


@record
class MappedRow:
    """One row of a file: what it means, or why it is left out, and what was measured.

    Exactly one of `scenario`, `skip` and `exclude` is set; an identity has a scenario and is never scored.
    """

    id: str
    source_key: str
    line: int = 0
    scenario: Scenario | None = None
    skip: str = ""
    exclude: str = ""
    identity: bool = False
    step_time: float | None = None
    """Measured seconds of a step."""
    memory: float | None = None
    """Measured bytes of device memory, of the kind that `memory_reading` names."""
    memory_reading: str = ALLOCATED
    stack: str = ""
    """The stack id that the row is mapped to, whether or not it has a row in the catalog."""
    stand_in: str = ""
    """The catalog's stack that predicts it, where that id has no row."""
    task: str = ""
    regime: str = NORMAL

    @property
    def memory_gib(self) -> float | None:
        """Measured memory in GiB."""
        return None if self.memory is None else self.memory / 2.0**30


def map_rows(rows: Sequence[Row], catalog: Catalog) -> tuple[MappedRow, ...]:
    """Every row of a file with its scenario or the reason why it has none, in order."""
    stacks = {name: catalog.stack(name) for name in catalog.names("stacks")}
    return tuple(map_verdict(verdict, catalog, stacks) for verdict in read_rows(rows))


def map_verdict(verdict: Verdict, catalog: Catalog, stacks: Mapping[str, Stack]) -> MappedRow:
    """One verdict with its scenario, if it has a reading that the catalog can name."""
    found = verdict.measured
    mapped = MappedRow(
        id=verdict.id, source_key=verdict.source_key, line=verdict.line, skip=verdict.skip, exclude=verdict.exclude,
        step_time=found.step_time, memory=found.memory, memory_reading=found.memory_reading, stack=verdict.stack,
        task=verdict.task, regime=verdict.regime,
    )  # fmt: skip
    if verdict.reading is None:
        return mapped
    try:
        scenario, stand_in = resolve(verdict.reading, catalog, stacks, verdict.id)
    except NotModelled as limit:
        return changed(mapped, skip=str(limit))
    device = scenario.fleet.islands[0].accelerator
    if mapped.memory is not None and mapped.memory > OVERFULL * float(np.max(device.memory)):
        return changed(mapped, exclude=f"{mapped.memory_gib:.1f} GiB are reported on a device of less: {device.name}")
    done, peak = _least_rate(scenario, mapped.step_time)
    if done > ACHIEVABLE * peak:
        says = f"{done / 1e12:.0f} TFLOP/s a device at least, of a peak of {peak / 1e12:.0f}"
        return changed(mapped, exclude=f"faster than the device can: {says}: a rate of several devices, or a misprint")
    return changed(mapped, scenario=scenario, stand_in=stand_in)


def _least_rate(scenario: Scenario, step_time: float | None) -> tuple[float, float]:
    """(FLOP/s a device that the matrix products alone need, its dense peak): forward and one gradient where most is frozen. Of a
    decoder; nought for others."""
    island, plan = scenario.fleet.islands[0], scenario.plan
    formats = recipe(plan.precision)
    peak = float(island.accelerator.peak.get(formats.linear or formats.base, np.inf))
    if not step_time or scenario.model.family != "decoder":
        return 0.0, peak
    tokens = scenario.run.global_batch * scenario.run.seq_len
    passes = 6.0 if plan.trainable == "all" else 4.0
    model = scenario.model
    matrices = decoder.active_matrices(model) + model.vocab * model.hidden
    return float(passes * matrices * tokens / (step_time * island.gpus)), peak


def resolve(reading: Reading, catalog: Catalog, stacks: Mapping[str, Stack], name: str) -> tuple[Scenario, str]:
    """The scenario of a reading, and the stack that stands in for its own ("" if none had to)."""
    stack, stand_in = choose_stack(reading.stack, stacks)
    try:
        island = _island(reading, catalog)
    except UnknownName as error:
        raise NotModelled(f"the catalog has no {error.kind} {error.name}") from None
    except BadScenario as error:
        raise NotModelled(f"the island cannot be expressed: {error.violations[0].says}") from None
    device = island.accelerator
    formats = recipe(reading.plan.precision)
    lacking = [dtype for dtype in formats.needs if dtype not in device.peak]
    if lacking:
        raise NotModelled(f"{device.name} has no known {lacking[0]} peak")
    gather = reading.gather_dtype or stack.gather_dtype
    plan = changed(
        reading.plan,
        gather_dtype=formats.base if gather in ("bf16", "fp16") else gather,
        reduce_dtype=reading.reduce_dtype or stack.reduce_dtype,
        async_tp=reading.plan.async_tp or (stack.async_tp and reading.plan.sequence_parallel),
    )
    stages, layers = plan.pp * plan.virtual_stages, reading.model.layers + reading.model.mtp
    if reading.stack.lineage in CUT_WITH_EDGES and layers % stages and not (layers + 2) % stages:
        stack = changed(stack, stage_cut="edges")
    stood = (f"stack {reading.stack.id} has no row yet: {stand_in} stands in",) if stand_in else ()
    scenario = Scenario(
        name=name, model=reading.model, stack=stack, fleet=Fleet(islands=(island,)), plan=plan, run=reading.run,
        assumptions=(*reading.assumptions, *stood),
    )  # fmt: skip
    return scenario, stand_in


def _island(reading: Reading, catalog: Catalog) -> Island:
    device = _accelerator(reading, catalog)
    nodes = reading.gpus / reading.gpus_per_node
    if nodes != int(nodes):
        raise NotModelled(f"{reading.gpus:g} accelerators are no whole number of nodes of {reading.gpus_per_node:g}")
    fabric = choose_fabric(reading.fabric, device, reading.gpus_per_node, catalog)
    return build_island(accelerator=device, nodes=nodes, gpus_per_node=reading.gpus_per_node, fabric=fabric)


def _accelerator(reading: Reading, catalog: Catalog) -> Accelerator:
    said = reading.accelerator
    device = catalog.accelerator(said.name)
    overrides: Iterable[tuple[str, float | None]] = (
        ("memory", said.memory), ("memory_bandwidth", said.memory_bandwidth), ("power_limit", said.power_limit),
    )  # fmt: skip
    device = changed(device, **{field: value for field, value in overrides if value is not None})
    if reading.link.domain is not None:
        device = changed(device, scale_up_domain=reading.link.domain)
    if reading.link.kind == "pcie" and device.scale_up_bandwidth != device.host_link:
        if device.host_link is None:
            raise NotModelled(f"the PCIe rate of {device.name} is not known")
        device = changed(device, scale_up="PCIe", scale_up_bandwidth=device.host_link, pair_bandwidth=None)
    return device


def choose_fabric(said: FabricReading, device: Accelerator, gpus_per_node: float, catalog: Catalog) -> Fabric | None:
    """The catalog's fabric of the stated kind and nearest rate, at the stated rate; the accelerator's if nothing is stated."""
    if not said.kind and said.adapter is None and said.node is None:
        return catalog.fabric(device.fabric) if device.fabric else None
    plain = device.name.lower()
    if said.kind == "efa":
        return catalog.fabric(next(row for pattern, row in EFA if re.search(pattern, plain)))
    rate = said.adapter if said.node is None else said.node / gpus_per_node
    if rate is None:
        return _unstated_rate(said, device, plain, catalog)
    choices = FABRICS.get(said.kind) or FABRICS["infiniband"]
    nearest = min(choices, key=lambda gbps: abs(gbps * GBPS - rate))
    return changed(catalog.fabric(choices[nearest]), bandwidth=rate, nics_per_node=said.adapters)


def _unstated_rate(said: FabricReading, device: Accelerator, plain: str, catalog: Catalog) -> Fabric:
    """The kind is stated and the rate is not: the accelerator's own fabric if of that kind, else the usual one."""
    if said.kind == "roce":
        row, nics = next((row, nics) for pattern, row, nics in ROCE_UNSTATED if re.search(pattern, plain))
        return changed(catalog.fabric(row), nics_per_node=nics)
    choices = FABRICS.get(said.kind) or FABRICS["infiniband"]
    if device.fabric in choices.values():
        return catalog.fabric(device.fabric)
    return catalog.fabric(choices[max(choices)] if said.kind != "infiniband" else "ib-ndr400")
