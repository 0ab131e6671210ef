"""Numbers of a scenario that, if they were other than said, would change what is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Number
from shardmeter.physics.gemm import BEST_SHAPE_MARGIN
from shardmeter.specs import Scenario
from shardmeter.study.doctor import classes, usual
from shardmeter.study.doctor.cause import BOTH, Numeric, Usual
from shardmeter.study.doctor.measured import MEMORY, PACE
from shardmeter.study.doctor.world import World, rejoined, world
from shardmeter.study.levers import Lever, levers
from shardmeter.study.levers.machines import alike

SPEED, FULL = (PACE,), (MEMORY,)
FULLEST = 0.9
"""Share of the memory from which an allocator may have to empty its cache."""
WIDEST = 1e4
"""Factor up to which a number is moved."""


@record
class Knob:
    """A lever that is asked: how it is called, how far it is usually off, how far it can go (as factors of what is said)."""

    ending: str
    name: str
    title: str
    means: str
    touches: tuple[str, ...]
    usual: Callable[[], Usual]
    least: float = 1.0 / WIDEST
    most: float = WIDEST
    bound: str = ""
    unsaid: str = ""
    """How the assumption begins that says that it was left out."""


def _fixed(value: Usual) -> Callable[[], Usual]:
    return lambda: value


KNOBS = (
    Knob(ending=".fabric.bandwidth", name="fabric-bandwidth", title="network between nodes", touches=SPEED, usual=usual.of_fabrics,
         means="collectives between nodes run at this rate: another network or adapter than believed, TCP in place of RDMA, few adapters "
         "in use, or an oversubscribed or busy fabric", unsaid="fabric ", bound="more than any fabric of the catalog"),
    Knob(ending=".fabric.latency", name="fabric-latency", title="latency between nodes", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(4.0), basis="fabrics of the catalog differ by a factor of 3.5 in start, 12 in a step")),
         means="every collective between nodes waits this long: a path through the host, TCP, distance", least=0.25,
         bound="sooner than any fabric of the catalog"),
    Knob(ending=".scale_up_bandwidth", name="scale-up-bandwidth", title="links inside the node", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(2.0), basis="half of the links, or bridges between pairs, is a factor of two")),
         means="GPUs of a node reach each other at this rate: PCIe in place of NVLink, peer access off, links down", most=1.0,
         bound="more than the links are rated for"),
    Knob(ending=".accelerator.peak", name="clock", title="matrix rate of the device", touches=SPEED, usual=_fixed(usual.CLOCK),
         means="the GPU runs at this rate: throttled by heat or a power cap, another part than believed, or shared", most=1.0,
         bound="more than the dense peak"),
    Knob(ending=".memory_bandwidth", name="memory-bandwidth", title="memory bandwidth", touches=SPEED, usual=_fixed(usual.CLOCK),
         means="the device's memory streams at this rate: another part, a lower memory clock", most=1.0, bound="more than it is rated for"),
    Knob(ending=".host_link", name="host-link", title="link to the host", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(2.0), basis="half the lanes, or one generation less, is a factor of two")),
         means="copies between host and device run at this rate: fewer lanes, a shared switch, memory that is not pinned", most=1.0,
         bound="more than the link is rated for"),
    Knob(ending="stack.gemm_factor", name="matrix-products", title="kernels of matrix products", touches=SPEED,
         usual=_fixed(usual.SAID),
         means="matrix products reach this share of what the best shapes reach: small or odd shapes, an old library, no tensor cores",
         bound="more than the dense peak"),
    Knob(ending="stack.attention_factor", name="attention-kernel", title="attention kernel", touches=SPEED,
         usual=_fixed(usual.SAID),
         means="the attention kernel reaches this share of its benchmark", bound="more than its benchmark"),
    Knob(ending="stack.traffic_factor", name="pointwise-kernels", title="memory traffic of pointwise kernels", touches=SPEED,
         usual=_fixed(usual.SAID), means="norms, activations and losses move this many times what they must: nothing is fused",
         least=0.2, bound="less than has to be read and written"),
    Knob(ending="stack.launch_overhead", name="launches", title="launch of a kernel", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(2.0), basis="a host with slow or busy cores takes twice as long")),
         means="the host needs this long to launch a kernel: slow or oversubscribed cores, tracing, synchronising calls", least=0.08,
         bound="sooner than a launch of the driver (2 us)"),
    Knob(ending="stack.contention", name="contention", title="compute lost under communication", touches=SPEED,
         usual=_fixed(Usual(deviation=0.5, basis="stacks differ by a factor of 1.6")), means="a second of communication costs compute this share of it",
         bound="more than all of the compute beside it"),
    Knob(ending="plan.micro_batch", name="micro-batch", title="sequences a pass (micro-batch)", touches=BOTH, usual=_fixed(usual.SAID),
         means="a pass holds this many sequences", unsaid="micro_batch ="),
    Knob(ending="run.seq_len", name="sequence", title="tokens of a sequence", touches=BOTH, usual=_fixed(usual.SAID),
         means="sequences have this many tokens: shorter samples without padding, or padding that is counted", unsaid="seq_len ="),
    Knob(ending="run.global_batch", name="global-batch", title="sequences of a step (global batch)", touches=BOTH, usual=_fixed(usual.SAID),
         means="a step trains this many sequences: more or fewer passes accumulate", unsaid="global_batch ="),
    Knob(ending="plan.expert_skew", name="expert-skew", title="imbalance of experts", touches=BOTH,
         usual=_fixed(Usual(deviation=0.35, basis="a busiest rank of twice the mean is taken as two deviations")),
         means="the busiest expert rank has this many times the mean", least=1.0, bound="less than the mean"),
    Knob(ending="fleet.wan.bandwidth", name="wan-bandwidth", title="bandwidth between islands", touches=SPEED, usual=_fixed(usual.LINE),
         means="lines between islands carry this: a provider's cap, a busy path"),
    Knob(ending="fleet.wan.sites", name="site-bandwidth", title="bandwidth of sites (up and down)", touches=SPEED, usual=_fixed(usual.LINE),
         means="a site's own connection carries this"),
    Knob(ending="fleet.wan.rtt", name="round-trip", title="round trip between islands", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(2.0), basis="a detour doubles a round trip")), means="a path that goes another way, or queues"),
    Knob(ending="fleet.wan.loss", name="loss", title="loss between islands", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(10.0), basis="losses of lines span a decade (data/geo/links.csv)")),
         means="streams are held down by lost packets"),
    Knob(ending="fleet.wan.streams", name="streams", title="streams of a transfer", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(4.0), basis="libraries open 1 to 64")),
         means="a transfer has this many streams: a single one is held to its window a round trip"),
    Knob(ending="fleet.wan.window", name="window", title="window of a stream", touches=SPEED,
         usual=_fixed(Usual(deviation=math.log(4.0), basis="defaults of systems span 64 KiB to 16 MiB")), means="a stream has this much under way"),
    Knob(ending="stack.fragmentation", name="fragmentation", title="fragmentation (reserved over allocated, less one)", touches=FULL,
         usual=_fixed(Usual(deviation=math.log(2.0), basis="taken as a factor of two")),
         means="the allocator holds this much more than it has handed out: sizes that vary, no expandable segments",
         most=20.0, bound="more than the allocator would hold without emptying its cache"),
    Knob(ending="stack.context", name="context", title="context and communicators", touches=FULL,
         usual=_fixed(Usual(deviation=0.4, basis="0.5 to 3 GB are seen")), means="what lies outside the allocator: other processes, many communicators"),
)  # fmt: skip
"""Levers that are asked, as `study.levers` names them."""


KERNELS = {
    "matrix-products": "matrix products", "attention-kernel": "core attention", "pointwise-kernels": "memory-bound kernels",
}  # fmt: skip
"""The term of the ledger that a number of kernels rules."""
OF_ONE_ISLAND = ("micro-batch", "global-batch")
"""What several islands share out in whole passes, so that it does not move freely."""
OF_LIKE_ISLANDS = ("memory-bandwidth", "fabric-latency")
"""What is not asked of each of several kinds of islands."""


def numeric(scenario: Scenario, base: World) -> Iterator[Numeric]:
    """Every number that could explain something about a scenario."""
    several = len(alike(scenario.fleet.islands)) > 1
    for lever in levers(scenario):
        knob = next((one for one in KNOBS if lever.name.endswith(one.ending)), None)
        if knob is not None and not _idle(scenario, knob.name) and not (several and knob.name in OF_LIKE_ISLANDS):
            yield _of_lever(scenario, lever, knob, base)
    yield from _added(scenario, base)


def _idle(scenario: Scenario, name: str) -> bool:
    """Whether a number is there and nothing uses it, or it cannot be moved."""
    if name in OF_ONE_ISLAND and len(scenario.fleet.islands) > 1:
        return True
    if name == "host-link":
        return not scenario.plan.offload
    if name == "expert-skew":
        return scenario.plan.ep == 1.0
    return name == "attention-kernel" and scenario.stack.attention in ("unfused", "fused")


def _of_lever(scenario: Scenario, lever: Lever, knob: Knob, base: World) -> Numeric:
    unsaid = bool(knob.unsaid) and any(text.startswith(knob.unsaid) for text in scenario.assumptions)
    own = usual.UNSAID if unsaid and knob.name != "fabric-bandwidth" else knob.usual()
    own = usual.of_kernels(base.share(KERNELS[knob.name])) if knob.name in KERNELS else own
    least, most = max(knob.least, 1.0 / WIDEST), knob.most
    if knob.name == "matrix-products":
        most = _most_of_products(scenario)
    if knob.name == "fabric-bandwidth":
        most = max(classes.fastest(scenario.fleet.islands[_island(scenario, lever.name) or 0]) / lever.value, 1.0)
    if knob.name in ("attention-kernel", "contention"):
        most = max(1.0 / lever.value, 1.0)
    if lever.whole or knob.name == "streams":
        least = min(1.0 / lever.value, 1.0)
    bound = knob.bound
    if knob.name == "global-batch":
        least, bound = min(float(_one_pass(scenario)) / lever.value, 1.0), "less than one pass of every rank"

    def at(value: Number) -> World:
        moved = lever.scaled(cast("float", value / lever.value))  # of one island an array passes as well
        if moved is None:
            raise ValueError(f"{lever.name} has no value {value}")
        if lever.kind == "network":
            return rejoined(base, moved)
        if knob.name == "micro-batch":  # a step is no less than one pass
            batch = np.maximum(moved.run.global_batch, _one_pass(moved))
            moved = changed(moved, run=changed(moved.run, global_batch=batch))
        made = world(moved)
        return made.rated(base.estimate.peak_flops) if knob.name == "clock" else made

    where = _island(scenario, lever.name)
    of = "" if where is None else f":{scenario.fleet.islands[where].name}"
    return Numeric(
        name=f"{knob.name}{of}", title=knob.title if where is None else f"{knob.title} of {scenario.fleet.islands[where].name}",
        island=where or 0, means=knob.means, touches=knob.touches, basis=own.basis, field=lever.name, unit=lever.unit,
        said=lever.value, at=at, least=least * lever.value, most=most * lever.value, usual=own.deviation,
        far=lambda value: abs(math.log(value / lever.value)), whole=lever.whole, assumed=unsaid, bound=bound,
    )  # fmt: skip


def _one_pass(scenario: Scenario) -> Number:
    """Sequences of one pass of every rank."""
    return scenario.plan.dp * scenario.plan.micro_batch


def _island(scenario: Scenario, name: str) -> int | None:
    """The place of the island that a lever is of, where there are several kinds; None where there is one kind, or it is of no island."""
    if len(alike(scenario.fleet.islands)) == 1 or not name.startswith("fleet.islands."):
        return None
    names = [island.name for island in scenario.fleet.islands]
    return next((at for at, own in enumerate(names) if name.startswith(f"fleet.islands.{own}.")), None)


def _most_of_products(scenario: Scenario) -> float:
    """Factor at which the best shapes reach the dense peak."""
    dtype = "bf16" if scenario.plan.precision not in ("fp16", "fp32", "tf32") else scenario.plan.precision
    shares = [island.accelerator.matmul_share.get(dtype, 0.8) for island in scenario.fleet.islands]
    return max(1.0 / (float(max(shares)) * BEST_SHAPE_MARGIN * float(scenario.stack.gemm_factor)), 1.0)


def _added(scenario: Scenario, base: World) -> Iterator[Numeric]:
    """What there should be none of: a wait that no term has, overlap that fails, ranks that are slower than others."""
    step, full = float(base.step), float(base.estimate.memory_peak / base.estimate.memory_limit)
    retries = f"; {100 * full:.0f} % of the memory is in use, so that the allocator may retry" if full > FULLEST else ""
    yield Numeric(
        name="wait", title="wait that no term has", touches=SPEED, basis=usual.WAIT.basis + retries, field="", unit="s", said=0.0,
        means="the GPUs stand still for so long a step: the data loader, logging, checkpoints in the loop, allocator retries near the "
        "memory limit", at=lambda value: changed(base, extra=value), least=0.0, most=WIDEST * step,
        far=lambda value: math.log1p(value / step), usual=usual.WAIT.deviation,
    )  # fmt: skip
    hidden = float(base.hidden)
    if hidden > 0.0:
        yield Numeric(
            name="overlap-lost", title="overlap that fails", touches=SPEED, basis=usual.WHOLE.basis, chance=usual.SILENT.chance,
            means="communication that should pass behind compute shows: one stream, no prefetch, synchronising calls, "
            "CUDA_DEVICE_MAX_CONNECTIONS", field="", unit="%", said=0.0, at=lambda value: changed(base, extra=value * hidden),
            least=0.0, most=1.0, far=lambda _: 0.0, usual=1.0, bound="more than all of what is hidden",
        )  # fmt: skip
    if base.estimate.gpus > 1.0:
        yield Numeric(
            name="stragglers", title="jitter of a rank's step", touches=SPEED, basis=usual.JITTER.basis, field="stack.jitter", unit="%",
            said=float(scenario.stack.jitter), means="all wait for the slowest: one GPU that is slower, unequal sequences, noise of the host",
            at=lambda value: world(changed(scenario, stack=changed(scenario.stack, jitter=value))), least=0.0, most=1.0,
            far=lambda value: abs(value - float(scenario.stack.jitter)), usual=usual.JITTER.deviation,
            bound="more than the step itself",
        )  # fmt: skip
    if scenario.plan.offload:
        yield from _host_memory(scenario)


def _host_memory(scenario: Scenario) -> Iterator[Numeric]:
    """What the host's memory and cores give a GPU, where states live there."""
    rate = scenario.fleet.islands[0].accelerator.host_memory_bandwidth
    if rate is None or "optimizer" not in scenario.plan.offload:
        return

    def at(value: Number) -> World:
        islands = tuple(
            changed(one, accelerator=changed(one.accelerator, host_memory_bandwidth=value))
            for one in scenario.fleet.islands
        )
        return world(changed(scenario, fleet=changed(scenario.fleet, islands=islands)))

    said = float(rate)
    yield Numeric(
        name="host-memory", title="host's memory, for each GPU", touches=SPEED, field="fleet.islands.accelerator.host_memory_bandwidth",
        basis="cores that are not bound, or few, leave a quarter", unit="B/s", said=said, at=at, least=said / WIDEST, most=said * 4.0,
        means="the optimizer on the host streams at this rate: too few cores, cores not bound to ranks, one socket", usual=math.log(2.0),
        far=lambda value: abs(math.log(value / said)),
    )  # fmt: skip
