"""A pipeline whose stages lie on several islands: every stage at its own island's prices, every boundary with its own link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds, Usd
from shardmeter.engine.asked import BACKEND
from shardmeter.engine.demand import Work, copies_reduction
from shardmeter.engine.evaluate import Priced, assembled, ending, priced, timed
from shardmeter.engine.links import Links
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.engine.wans import entry
from shardmeter.physics import network
from shardmeter.schedules import Boundary, traits
from shardmeter.specs import Estimate, Island, Model, Plan, Run, Stack
from shardmeter.strategies import fsdp

if TYPE_CHECKING:
    from shardmeter.engine.cells import Cell


def piped(
    model: Model,
    islands: Mapping[int, Island],
    plans: Mapping[int, Plan],
    cell: Cell,
    lines: Lines,
    run: Run,
    stack: Stack,
    known: dict[tuple[Any, ...], Priced] | None = None,
) -> tuple[Estimate, ...]:
    """The step of a pipeline over islands, once per island of the cell: the time is that of all, memory the island's own.

    `islands` and `plans` by place in the fleet; the plans agree in all degrees but pp. `lines` with links of networks side by side give times of
    shape (networks,). `known` keeps what islands of equal prices, plans and batches have in common.
    Leaves out: reductions and optimizer steps that are slower on an island whose stages are not the slowest; of two copies of the model,
    which islands hold less than the fullest."""
    whole = len(cell.steps)
    laid = {at: changed(plans[at], pp=whole) for at in cell.islands}
    known = {} if known is None else known
    ready = {}
    for at in cell.islands:
        key = (*_prices(islands[at], laid[at]), float(run.global_batch))
        if key not in known:
            known[key] = priced(model, islands[at], laid[at], run, stack)
        ready[at] = known[key]
    work, stages, owners = mixed(ready, cell.steps)
    work = changed(work, ahead=_ahead(cell.steps, plans[cell.steps[0]]))
    slowest = owners[int(np.argmax([float(one.slot.whole) for one in stages]))]
    joined: Priced = (work, ready[slowest][1], ready[slowest][2], stages)
    sends = crossings(ready, cell, lines, laid[slowest])
    time = timed(joined, laid[slowest], run, stack, sends.links, sends.busiest, sends.meeting)
    found, ends = [], {}
    for at in cell.islands:
        plan = laid[at]
        if plan not in ends:
            ends[plan] = ending(model, joined, time[0], plan, sends.links)
        held = _held(work, owners, at) if traits(plan.schedule).copies == 1.0 else None
        one = assembled(model, islands[at], plan, run, stack, joined, time, ends[plan], held)
        found.append(changed(one, ends=changed(one.ends, sent=sends.sent[at], egress=sends.egress[at])))
    return tuple(found)


def _prices(island: Island, plan: Plan) -> tuple[Any, ...]:
    """Equal for islands of equal prices (an accelerator is the one object that its row made, or is not shared)."""
    return id(island.accelerator), island.nodes, island.gpus_per_node, island.tiers, plan


def mixed(ready: Mapping[int, Priced], steps: Sequence[int]) -> tuple[Work, list[MicroBatch], list[int]]:
    """One pipeline of stages of several islands: its work (every kind of stage of every island), their micro-batches, and the island
    of each kind. `steps` names the island of every stage."""
    first = ready[steps[0]][0]
    kinds = [kind for kind, _, count in first.runs for _ in range(count)]
    known: dict[tuple[int, int], int] = {}
    line = [known.setdefault(one, len(known)) for one in zip(steps, kinds, strict=True)]
    stages = [ready[at][3][kind] for at, kind in known]
    runs, position = [], 0
    for kind, group in groupby(line):
        count = len(list(group))
        runs.append((kind, position, count))
        position += count
    work = changed(first, stages=tuple(one.stage for one in stages), runs=tuple(runs))
    return work, stages, [at for at, _ in known]


def _held(work: Work, owners: Sequence[int], at: int) -> Work:
    """The stages of one island, where they are in the whole pipeline."""
    own = [run for run in work.runs if owners[run[0]] == at]
    stages = tuple(changed(work.stages[kind], first=first, count=count) for kind, first, count in own)
    return changed(work, stages=stages, runs=tuple((i, first, count) for i, (_, first, count) in enumerate(own)))


def _pairs(steps: Sequence[int]) -> list[tuple[int, int]]:
    """The islands before and behind every boundary, the last one's leading back to the first."""
    return list(zip(steps, (*steps[1:], steps[0]), strict=True))


def _ahead(steps: Sequence[int], plan: Plan) -> tuple[Count, ...]:
    """Micro-batches ahead of every boundary: of those between islands."""
    return tuple(plan.ahead if source != target else 0.0 for source, target in _pairs(steps))


@record
class Lines:
    """What joins the islands: as all pipelines that send at once have it, and, where they send in turn, as those do whose turn it is."""

    together: Links
    in_turn: Links
    """Of the network as many times as wide as pipelines send over it in turn (`wans.widened`)."""


@record
class Sends:
    """What passes between the stages of a pipeline: numbers of one network, (networks,) of many."""

    links: tuple[Boundary, ...]
    busiest: Seconds
    """Seconds of a step that the line is busy which most boundaries share: no step is shorter."""
    meeting: Seconds
    """How long two copies of the model take to sum their gradients, once a step."""
    sent: Mapping[int, Bytes]
    """What leaves each island in a step."""
    egress: Mapping[int, Usd]


def crossings(ready: Mapping[int, Priced], cell: Cell, lines: Lines, plan: Plan) -> Sends:
    """Every boundary's wire and way. Between islands all ranks of a stage send at once over the lanes that they have of the pair's
    link; inside one, as its own network has it. What several boundaries use, a link or a site, is busy with all of them. The boundary
    behind the last stage leads back to the first: schedules that lay v chunks in a ring pass it v − 1 times a micro-batch, the others v
    times.

    Leaves out: boundaries that wait for one another on a line which is not busy all the time (up to a quarter of a step);
    gradients of other cells on the same link at the end of a step."""
    steps, links = cell.steps, lines.together
    pairs, ahead = _pairs(steps), _ahead(steps, plan)
    rounds = float(plan.virtual_stages)
    often = [rounds] * (len(pairs) - 1) + [rounds - 1.0 if traits(plan.schedule).route == "ring" else 0.0]
    made: list[Boundary] = []
    moved = np.zeros(links.rate.shape[-2:])
    for (source, target), passes, more in zip(pairs, often, ahead, strict=True):
        work, price, _, _ = ready[source]
        if source == target:
            made.append(Boundary(wire=price.transfer(work.send).seconds))
            continue
        size = work.send.size * plan.tp * plan.cp * plan.dp
        stages, ranks = max(steps.count(source), steps.count(target)), plan.tp * plan.cp * plan.dp
        whole, own = (size / _rate(one, source, target, stages, ranks) for one in (links, lines.in_turn))
        delay = entry(links.delay, source, target) + links.waited(size, (source, target), plan.dp)
        sooner = _sooner(lines.in_turn, size, source, target, stages, ranks)
        asked = links.backend == BACKEND
        others = np.maximum(whole - own, 0.0)  # windows may hold both alike, and the wider network a little less well
        made.append(Boundary(wire=own, delay=delay - sooner, ahead=more, others=others, asked=asked))
        for way in ((source, target), (target, source)):
            moved[way] += float(passes * work.micro_batches * size)
    meeting, copied = _meeting(ready, cell, links, plan)
    pairs_busy = np.max(moved / links.capacity, axis=(-2, -1))
    sites_busy = np.maximum(moved.sum(axis=1) / links.up, moved.sum(axis=0) / links.down)
    moved = moved + copied
    paid = np.where(moved > 0.0, moved * links.egress, 0.0).sum(axis=-1)
    return Sends(
        links=tuple(made),
        busiest=entry(np.maximum(pairs_busy, np.max(sites_busy, axis=-1))),
        meeting=meeting,
        sent={at: float(moved[at].sum()) for at in cell.islands},
        egress={at: entry(paid, at) for at in cell.islands},
    )


def _meeting(
    ready: Mapping[int, Priced], cell: Cell, links: Links, plan: Plan
) -> tuple[Seconds, npt.NDArray[np.float64]]:
    """Of two copies of the model on one pipeline, whose mirrored stages sum their gradients once a step: the seconds of the slowest
    pair, all at once, and the bytes between islands. What replicas hold alike they reduce first and send once, each its part, or
    each of them all of it (`sync.hierarchical`). Leaves out: devices that have less to sum than the fullest."""
    work, price, _, _ = ready[cell.steps[0]]
    moved = np.zeros(links.rate.shape[-2:])
    longest: Seconds = 0.0
    copied = copies_reduction(work, plan)
    if copied is None:
        return longest, moved
    alike = plan.dp_replicate if fsdp.applies(plan) else plan.cp * plan.dp
    senders = plan.tp * plan.cp * plan.dp / (alike if plan.sync.hierarchical else 1.0)
    for pair in zip(cell.steps, cell.steps[::-1], strict=True):
        if pair[0] == pair[1]:
            longest = np.maximum(longest, price.transfer(copied).seconds)
        else:
            moved[pair] += float(copied.size * senders)
    for pair in zip(*np.nonzero(moved), strict=True):
        longest = np.maximum(longest, moved[pair] / entry(links.rate, *pair) + entry(links.delay, *pair))
    return longest, moved


def _sooner(links: Links, size: Bytes, source: int, target: int, stages: int, ranks: Count) -> Seconds:
    """How much sooner a message has come than windows let the next one go, the less of both directions; ranks and lanes as for `_rate`."""
    part = np.minimum(links.lanes, float(stages))
    held, line = links.lanes * links.held / part, links.lines / part
    most = ranks * np.minimum(entry(links.adapter, source), entry(links.adapter, target))
    there, back = (
        network.sooner(size, entry(held, *way), entry(links.rtt, *way), np.minimum(entry(line, *way), most))
        for way in ((source, target), (target, source))
    )
    less: Seconds = np.minimum(there, back)
    return less if np.ndim(less) else float(less)


def _rate(links: Links, source: int, target: int, stages: int, ranks: Count) -> BytesPerS:
    """B/s of a boundary with one stage's part of the lanes where an island holds several, and no more than the adapters of its `ranks`
    carry; the slower of both directions, as a boundary has one wire time."""
    used = links.sending / np.minimum(links.lanes, float(stages))
    slower: BytesPerS = np.minimum(entry(used, source, target), entry(used, target, source))
    return np.minimum(slower, ranks * np.minimum(entry(links.adapter, source), entry(links.adapter, target)))
