"""What rules a step: the terms of its ledger under the names of regimes, for one point or for arrays of them.

Every second of the step is in exactly one regime: that of its term, but for what communication shows that no bandwidth would buy,
which is latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Number, Seconds
from shardmeter.engine.fleet import CROSSING, GRADIENTS, UPDATE
from shardmeter.specs import Fleet, Island, Scenario, Tier, Wan
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.plan import Plan
from shardmeter.study.causes import crosses

Seconds_by: TypeAlias = dict[str, Seconds]
COMPUTE, MEMORY, LAUNCH = "compute", "memory-bound", "launch floor"
GATHER, TP, CP, EP, PP, WAN = "exposed gather", "TP", "CP", "EP", "PP", "WAN"
BUBBLE, LATENCY, WAIT, OPTIMIZER, HOST = "bubble", "latency", "wait", "optimizer", "software and host"
REGIMES: Mapping[str, str] = {
    COMPUTE: "matrix products and attention, recomputed ones and a reference model's too",
    MEMORY: "kernels at the pace of the device's memory",
    LAUNCH: "the device stands still until the host has launched a kernel, or has read what experts were sent",
    GATHER: "parameters, gradients and numbers of data-parallel ranks inside an island, as far as compute does not hide them",
    TP: "collectives of tensor parallelism",
    CP: "keys and values of context parallelism",
    EP: "tokens on their way to experts and back",
    PP: "activations from stage to stage, and a matrix that two stages share",
    WAN: "messages between islands",
    LATENCY: "what communication would show if no link had a limit of bandwidth",
    BUBBLE: "stages of a pipeline without a micro-batch",
    WAIT: "ranks wait for the slowest of them",
    OPTIMIZER: "the update of an optimizer, an outer one too",
    HOST: "the host's part of a step, and copies to and from its memory",
}
"""Every regime and what is in it, in the order in which they are listed and in which ties are broken."""
OF_TERM: Mapping[str, str] = {
    "matrix products": COMPUTE,
    "core attention": COMPUTE,
    "recompute": COMPUTE,
    "reference model": COMPUTE,
    "memory-bound kernels": MEMORY,
    "launch overhead": LAUNCH,
    "dispatch wait": LAUNCH,
    "tensor parallel": TP,
    "expert all-to-all": EP,
    "context parallel": CP,
    "contrastive gather": GATHER,
    "parameter gather": GATHER,
    "gradient reduction": GATHER,
    "losses of the probes": GATHER,
    "tied matrix": PP,
    "stage sends": PP,
    "pipeline bubble": BUBBLE,
    "host offload": HOST,
    "software": HOST,
    "optimizer": OPTIMIZER,
    UPDATE: OPTIMIZER,
    "stragglers": WAIT,
    "wait": WAIT,
    GRADIENTS: WAN,
    CROSSING: WAN,
}
"""The regime of every term of a ledger but CONTENTION, as long as its axis lies inside an island."""
CONTENTION = "contention"
"""Compute lost to communication behind it: it belongs to whatever is hidden, in proportion."""
COMMUNICATION = (GATHER, TP, CP, EP, PP, WAN)
"""Regimes of bytes that move between accelerators."""
BOUNDLESS = 1e24
"""B/s of a link without a limit."""


def regime_of(label: str, plan: Plan) -> str:
    """The regime of one term: communication over an axis that is placed across islands is the network's between them. Raises KeyError
    on a term that has none."""
    own = OF_TERM[label]
    return WAN if own in COMMUNICATION and crosses(label, plan) else own


def by_term(estimate: Estimate, plan: Plan) -> tuple[Seconds_by, Seconds_by]:
    """(exposed, hidden) seconds of a step by regime, before latency is told apart: the exposed ones add up to the step."""
    shown: Seconds_by = {}
    hidden: Seconds_by = {}
    lost: Seconds = 0.0
    for term in estimate.terms:
        if term.label == CONTENTION:
            lost = lost + term.seconds
            continue
        name = regime_of(term.label, plan)
        shown[name] = shown.get(name, 0.0) + term.seconds
        hidden[name] = hidden.get(name, 0.0) + term.hidden
    moved = {name: np.maximum(hidden[name], 0.0) for name in COMMUNICATION if name in hidden}
    total: Number = plain_sum(moved.values(), start=np.asarray(0.0))
    for name, seconds in moved.items():
        shown[name] = shown[name] + lost * np.where(total > 0.0, seconds / np.where(total > 0.0, total, 1.0), 0.0)
    if np.any(np.logical_and(np.asarray(lost) > 0.0, total <= 0.0)):
        shown[GATHER] = shown.get(GATHER, 0.0) + np.where(total > 0.0, 0.0, lost)
    return shown, hidden


def seconds(estimate: Estimate, boundless: Estimate, plan: Plan) -> Seconds_by:
    """Seconds of a step by regime; they add up to the step. `boundless` is the same point on links `without_limits`.

    Latency: of every kind of communication the lesser of what it shows and of what it would show if every link had a bandwidth of
    BOUNDLESS. That is starts and steps of collectives, round trips, and what windows and loss leave of a stream of any capacity; what
    compute would hide of it then is not in it."""
    shown, _ = by_term(estimate, plan)
    least, _ = by_term(boundless, plan)
    latency: Seconds = 0.0
    for name in COMMUNICATION:
        if name in shown:
            stays = np.clip(least.get(name, 0.0), 0.0, np.maximum(shown[name], 0.0))
            shown[name] = shown[name] - stays
            latency = latency + stays
    return {
        name: shown.get(name, 0.0) if name != LATENCY else latency
        for name in REGIMES
        if name in shown or name == LATENCY
    }


def ruling(found: Mapping[str, Seconds], count: int) -> tuple[Any, Any]:
    """The regime that takes most of each of `count` steps, and its seconds: arrays, the names of dtype object. A tie is that of the
    earlier in REGIMES."""
    every = np.stack([np.broadcast_to(np.asarray(one, dtype=float), (count,)) for one in found.values()])
    names = np.array(list(found), dtype=object)
    return names[np.argmax(every, axis=0)], np.max(every, axis=0)


def communication(estimate: Estimate, plan: Plan) -> tuple[Seconds, Seconds]:
    """Of one step: (seconds that communication is under way, hidden and exposed; those that it shows, with what compute loses to it).

    Leaves out: that some of it may be under way at the same time on links of unlike kinds."""
    shown, hidden = by_term(estimate, plan)
    exposed: Seconds = 0.0
    under_way: Seconds = 0.0
    lost: Seconds = 0.0
    for name in COMMUNICATION:
        exposed = exposed + shown.get(name, 0.0)
        under_way = under_way + shown.get(name, 0.0) + hidden.get(name, 0.0)
    for term in estimate.terms:
        lost = lost + (term.seconds if term.label == CONTENTION else 0.0)
    return under_way - lost, exposed


def without_limits(scenario: Scenario) -> Scenario:
    """The scenario with a bandwidth of BOUNDLESS on every link between accelerators and islands; latencies, windows of streams and
    losses stay, and so do links to hosts and everything on a device."""
    fleet = scenario.fleet
    wan = None if fleet.wan is None else wide_network(fleet.wan)
    return changed(scenario, fleet=Fleet(islands=tuple(wide_island(island) for island in fleet.islands), wan=wan))


def wide_network(wan: Wan) -> Wan:
    """A network whose links and sites have no limit."""
    return changed(
        wan, **{name: np.full(np.shape(getattr(wan, name)), BOUNDLESS) for name in ("bandwidth", "up", "down")}
    )


def wide_island(island: Island) -> Island:
    """An island whose links have no limit."""
    outside = island.outside
    if outside is not None:
        outside = changed(outside, bandwidth=BOUNDLESS)
    return changed(island, tiers=tuple(_wide_tier(tier) for tier in island.tiers), outside=outside)


def _wide_tier(tier: Tier) -> Tier:
    rates = ("bandwidth", "pair_bandwidth", "exchange_bandwidth", "adapter")
    return changed(tier, **{name: BOUNDLESS for name in rates if getattr(tier, name) is not None})
