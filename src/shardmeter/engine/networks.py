"""One fleet and plan on many networks at once: what does not depend on the network is evaluated once, the rest as arrays over them.

Each number comes out as `evaluate_fleet` has it with that network: it is the same code, run on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Number, Seconds, Usd
from shardmeter.engine.cells import Cell, cells_of, taken
from shardmeter.engine.chosen import FIGURES, chosen
from shardmeter.engine.fleet import (
    Met,
    Part,
    critical_step,
    first_of,
    grouped,
    held_by,
    holding,
    meet,
    messages_of,
    parts_of,
    told_of,
)
from shardmeter.engine.links import Array
from shardmeter.engine.sharing import shared_by_part
from shardmeter.engine.wans import Networks, along
from shardmeter.specs import Estimate, Fleet, Model, Plan, Run, Stack, Wan
from shardmeter.specs.estimate import Ends
from shardmeter.sync import round_of


@record
class Overall:
    """A fleet's answers on several networks: arrays of shape (networks,), in their order."""

    estimate: Estimate
    """Of one inner step of the fleet. A term that some networks do not have is zero there. Without `ends`, which are an island's."""
    round: Seconds
    """From one synchronisation to the next."""
    critical: Count
    """Place of the island that sets the pace."""
    sent: Bytes
    """(networks, islands): bytes that each island sends to others in a round."""
    paid: Usd
    """(networks, islands): what they cost each; NaN where a price is not known."""
    narrowest: tuple[tuple[str, ...], ...]
    """Of every network, for every message between cells: the pair that is slowest, and why. Empty where it was not asked."""
    batches: tuple[tuple[float, ...], ...] = ()
    """Of every network, the sequences that each cell takes."""


def over_networks(
    model: Model, fleet: Fleet, plan: Plan, run: Run, stack: Stack, networks: Sequence[Wan] | Networks, plans: Sequence[Plan] = (),
    *, says: bool = True,
) -> Overall:  # fmt: skip
    """Predict one inner step of a fleet, and the round around it, on each of several networks; `fleet.wan` is not asked. A search that
    asks the same networks of many plans makes one `Networks` of them, which remembers what it has worked out; one that does not ask
    which pair is slowest (`says` false) has the rest sooner.

    Raises what `evaluate_fleet` raises, and ValueError for a fleet of one island, for no network, and where numbers of the plan, the
    run or the stack are arrays. Leaves out: what the method costs in loss, which no network changes (`evaluate_fleet` has it)."""
    networks, own, cells = _asked(fleet, plan, run, stack, networks, plans)
    ways, way = shared_by_part(model, fleet, cells, own, run, stack, networks)
    kinds = list(zip(way, networks.lanes(plan.sync), strict=True))
    found: dict[tuple[int, float], Met] = {}
    for at, runs in enumerate(ways):
        parts = parts_of(model, fleet, cells, own, runs, stack, networks)
        asked = round_of(told_of(model, parts), plan.sync)
        held = holding(parts, asked)
        lanes = dict.fromkeys(lanes for one, lanes in kinds if one == at)
        found |= {(at, count): meet(held, asked, networks, plan, count) for count in lanes}
    owner = np.array([list(found).index(kind) for kind in kinds])
    batches = [tuple(float(one.global_batch) for one in runs) for runs in ways]
    return changed(
        _united([*found.values()], owner, networks, plan, says=says), batches=tuple(batches[at] for at in way)
    )


def parts_over(
    model: Model, fleet: Fleet, plan: Plan, run: Run, stack: Stack, networks: Sequence[Wan] | Networks, plans: Sequence[Plan] = ()
) -> list[tuple[Part, ...]]:  # fmt: skip
    """The islands of a fleet with their inner steps on each of several networks, before a round adds to their memory: the fleet's part
    of `over_networks`, network by network, where a placed axis crosses islands. Raises and leaves out what that does."""
    networks, own, cells = _asked(fleet, plan, run, stack, networks, plans)
    ways, way = shared_by_part(model, fleet, cells, own, run, stack, networks)
    every = [parts_of(model, fleet, cells, own, runs, stack, networks) for runs in ways]
    return [
        tuple(changed(part, estimate=taken(part.estimate, at)) for part in every[one]) for at, one in enumerate(way)
    ]


def _asked(
    fleet: Fleet, plan: Plan, run: Run, stack: Stack, networks: Sequence[Wan] | Networks, plans: Sequence[Plan]
) -> tuple[Networks, tuple[Plan, ...], tuple[Cell, ...]]:
    """The networks, the plan of every island, and the cells."""
    networks = networks if isinstance(networks, Networks) else Networks(fleet.islands, networks)
    own = tuple(plans) or (plan,) * len(fleet.islands)
    _refuse(fleet, networks, (plan, plan.sync, run, stack, *own))
    return networks, own, cells_of(plan, fleet.islands)


def _refuse(fleet: Fleet, networks: Networks, said: Sequence[Any]) -> None:
    """Raises ValueError for what arrays over networks do not answer."""
    if len(fleet.islands) < 2 or not len(networks) or not networks.many:
        count = f"{len(fleet.islands)} islands and {len(networks)} networks"
        raise ValueError(f"{count}: it takes two islands at least, and a list of networks")
    arrays = {
        f"{type(one).__name__}.{name}"
        for one in said
        for name in type(one).__slots__
        if isinstance(getattr(one, name), np.ndarray)
    }
    if arrays:
        raise ValueError(f"{', '.join(sorted(arrays))}: an array, where networks are the axis; ask once for each value")


def _united(some: Sequence[Met], owner: Array, networks: Networks, plan: Plan, *, says: bool) -> Overall:
    """The answer of every network from rounds whose batch is shared in several ways, or whose lanes are several; `owner` (networks,)
    says which of them it has."""
    count, islands = len(networks), len(networks.islands)

    def of_each(numbers: Sequence[Number], *shape: int) -> Array:
        return np.stack([np.broadcast_to(one, (count, *shape)) for one in numbers])[owner, np.arange(count)]

    critical = of_each([_critical(one) for one in some])
    each = list(zip(owner.tolist(), critical.tolist(), strict=True))
    pairs = list(dict.fromkeys(each))
    steps = [critical_step(some[at], first) for at, first in pairs]
    said = [_narrowest(one, networks, plan) for one in some] if says else []
    return Overall(
        estimate=_over(chosen(steps, np.array([pairs.index(pair) for pair in each])), count),
        round=of_each([one.folded.seconds for one in some]),
        critical=critical,
        sent=of_each([along(one.sent) for one in some], islands),
        paid=of_each([along(one.paid) for one in some], islands),
        narrowest=tuple(said[at][network] for network, at in enumerate(owner) if says),
    )


def _critical(met: Met) -> Array:
    """The first island of the cell that sets the pace."""
    firsts: Array = np.array([first_of(met.parts, cell) for cell in range(len(grouped(met.parts)))])
    return np.asarray(firsts[np.asarray(met.folded.critical)])


def _narrowest(met: Met, networks: Networks, plan: Plan) -> list[tuple[str, ...]]:
    """Of every network, for every crossing."""
    cells, own = grouped(met.parts), met.round.pace != "barrier"
    weights = held_by(met.parts)
    said = [
        networks.narrowest(one, cells, plan.sync, own=own, weights=weights, idle=idle)
        for one, idle in messages_of(met.parts, met.round, networks, met.pace)
    ]
    return [tuple(one[network] for one in said) for network in range(len(networks))]


def _over(one: Estimate, count: int) -> Estimate:
    """An estimate of which every figure has the axis of the networks."""

    def spread(number: Number) -> Array:
        return np.broadcast_to(np.asarray(number, dtype=float), (count,))

    terms = tuple(changed(term, seconds=spread(term.seconds), hidden=spread(term.hidden)) for term in one.terms)
    memory = tuple(changed(term, size=spread(term.size)) for term in one.memory)
    figures = {name: spread(getattr(one, name)) for name in ("step_time", *FIGURES)}
    return changed(one, terms=terms, memory=memory, ends=Ends(), **figures)
