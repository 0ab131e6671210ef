"""One fleet and plan on many networks at once: what does not depend on the network is evaluated once, the rest as arrays over them.

Each number comes out as `evaluate_fleet` has it with that network: this is the same code, run on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed, field_names, record
from shardmeter.core.units import Bytes, Count, Number, Seconds, Usd
from shardmeter.engine.cells import cells_of
from shardmeter.engine.chosen import chosen
from shardmeter.engine.fleet import critical_step, first_of, holding, meet, parts_of, told_of
from shardmeter.engine.lines import Lines, along
from shardmeter.engine.links import Array
from shardmeter.engine.sharing import shared_by_part
from shardmeter.specs import Estimate, Fleet, Model, Plan, Run, Stack, Wan
from shardmeter.sync import round_of


@record
class Overall:
    """A fleet's answers on several networks, arrays of shape (networks,) in their order."""

    estimate: Estimate
    """Of one inner step of the fleet; memory is that of the fullest island, and a number if no network changes it. A term that some
    networks do not have is zero there. Without `ends`, which are an island's."""
    round: Seconds
    """From one synchronisation to the next."""
    critical: Count
    """Place of the island that sets the pace."""
    sent: Bytes
    """(networks, islands): bytes that each island sends to others in a round."""
    paid: Usd
    """(networks, islands): what they cost each; NaN where a price is not known."""
    narrowest: tuple[tuple[str, ...], ...]
    """Of every crossing of a round (those between cells; a placed axis has none), on every network: the pair that is slowest, and why."""
    batches: tuple[tuple[float, ...], ...]
    """Of every network, the sequences that each cell takes."""


def over_networks(
    model: Model, fleet: Fleet, plan: Plan, run: Run, stack: Stack, networks: Sequence[Wan] | Lines, plans: Sequence[Plan] = ()
) -> Overall:  # fmt: skip
    """Predict one inner step of a fleet, and the round around it, on each of several networks; `fleet.wan` is not asked. A search that
    asks the same networks of many plans makes one `Lines` of them, which remembers what it is asked.

    Raises what `evaluate_fleet` raises, and ValueError for a fleet of one island, for no network, and where numbers of plan, run or
    stack are arrays. Leaves out: what the method costs in loss, which no network changes (`evaluate_fleet` has it)."""
    lines = networks if isinstance(networks, Lines) else Lines(fleet.islands, networks)
    if len(fleet.islands) < 2 or not len(lines):
        raise ValueError(f"{len(fleet.islands)} islands and {len(lines)} networks: two islands and one network at least")
    own, cells = tuple(plans) or (plan,) * len(fleet.islands), cells_of(plan, fleet.islands)
    runs = shared_by_part(model, fleet, cells, own, run, stack, lines)
    alike: dict[tuple[float, ...], list[int]] = {}
    for row, some in enumerate(runs):
        alike.setdefault(tuple(float(one.global_batch) for one in some), []).append(row)
    found = []
    for rows in alike.values():
        here = lines.some(rows)
        parts = parts_of(model, fleet, cells, own, runs[rows[0]], stack, here)
        found.append(_met(model, parts, here, plan, tuple(alike)[len(found)]))
    return found[0] if len(found) == 1 else _united(found, [row for rows in alike.values() for row in rows])
