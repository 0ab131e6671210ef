"""Which mesh axis crosses buildings, and how the axes lie inside one: the choices that a set of degrees has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.specs import Island, Plan, Scenario
from shardmeter.specs.plan import AXES

DP, PP, DP_SHARD = "dp", "pp", "dp_shard"
TURNED = ("tp", "cp", "pp", "dp_shard", "dp_replicate")
"""Mesh axes with the stages of a pipeline nearer to one another than its replicas are; AXES has them the other way round."""


@record
class Placement:
    """Where every axis of the mesh lies."""

    axis: str = DP
    """What crosses buildings: dp (gradients, once a step), pp (activations), dp_shard (shards, gathered and reduced)."""
    together: int = 1
    """Buildings that one copy of the axis joins; over the groups of them gradients cross."""
    buildings: int = 1
    turned: bool = False
    """Whether stages are nearer than replicas inside a building."""

    @property
    def word(self) -> str:
        """Its short name."""
        whole = self.together == self.buildings
        word = self.axis if self.axis != PP or whole else f"{PP}{self.together}×{DP}"
        return f"{word} turned" if self.turned else word

    @property
    def says(self) -> str:
        """It in words."""
        what = {
            DP: f"replicas: gradients cross {self.buildings} buildings once a step",
            PP: f"pipelines over {self.together} buildings",
            DP_SHARD: f"shards over {self.buildings} buildings",
        }[self.axis]
        if self.axis == PP and self.together < self.buildings:
            what += f", replicas over {self.buildings // self.together} of them"
        return f"{what}; stages of a pipeline next to each other" if self.turned else what

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Buildings that each copy of the axis joins, neighbours of the scenario's order; none where replicas cross."""
        if self.axis == DP:
            return ()
        return tuple(tuple(names[at : at + self.together]) for at in range(0, len(names), self.together))


MET = ("tp", "cp", "pp", "dp_replicate", "sharding", "sequence_parallel")
"""What buildings have alike whose pipelines or shards are one."""


def placements(
    islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], steps: Sequence[int]
) -> tuple[Placement, ...]:
    """The placements of a plan (with the whole degree of its axes), replicas first; replicas alone where the buildings' own `plans` do not
    meet. `steps` as `steps_of` has them for all buildings.

    Leaves out: groups of buildings that are no neighbours in the scenario's order; groups of unlike buildings."""
    found = tuple(_placements(islands, plan, steps))
    meet = len({tuple(getattr(one, name) for name in MET) for one in plans}) == 1
    return found if meet else tuple(one for one in found if one.axis == DP)


def _placements(islands: Sequence[Island], plan: Plan, steps: Sequence[int]) -> Iterator[Placement]:
    count = len(islands)
    orders = (False, True) if _order_matters(islands, plan) else (False,)
    alike = len({(id(one.accelerator), one.tiers, one.nodes) for one in islands}) == 1
    for turned in orders:
        yield Placement(buildings=count, turned=turned)
        for together in (one for one in range(count, 1, -1) if count % one == 0):
            if plan.pp > 1 and (plan.pp % together == 0 if alike else together == count and bool(steps)):
                yield Placement(axis=PP, together=together, buildings=count, turned=turned)
    if plan.sharding not in ("none", "ddp"):
        yield Placement(axis=DP_SHARD, together=count, buildings=count)


def _order_matters(islands: Sequence[Island], plan: Plan) -> bool:
    """Whether a building has networks of several rates above the node, so that what is near matters."""
    return plan.pp > 1 and any(len(one.tiers) > 2 for one in islands)


def steps_of(islands: Sequence[Island], pp: int) -> tuple[int, ...]:
    """Stages of every building where one pipeline joins all of them, as many as it has accelerators; none where they do not come out."""
    whole = plain_sum(float(one.gpus) for one in islands)
    found = [float(one.gpus) * pp / whole for one in islands]
    return tuple(int(one) for one in found) if all(one >= 1.0 and one == int(one) for one in found) else ()


def placed(scenario: Scenario, placement: Placement) -> Scenario:
    """A scenario whose replicas cross buildings, with another placement of the same degrees."""
    islands, plan = scenario.fleet.islands, scenario.plan
    whole: dict[str, Any] = {"rank_order": TURNED if placement.turned else AXES}
    if placement.axis == DP:
        plans = tuple(changed(one, **whole) for one in scenario.plans)
        return changed(scenario, plan=changed(plan, **whole), plans=plans)
    names = [one.name for one in islands]
    groups = placement.groups(names)
    if placement.axis == PP:
        some = steps_of(islands, int(plan.pp)) if placement.together == len(islands) else ()
        steps = some or (int(plan.pp) // placement.together,) * len(islands)
        own = dict(zip(names, steps, strict=True))
        cells = tuple(tuple(name for name in group for _ in range(own[name])) for group in groups)
        each = [
            changed(one, pp=step, dp_shard=one.dp_shard * plan.pp / step)
            for one, step in zip(scenario.plans, steps, strict=True)
        ]
        whole |= {"dp_shard": each[0].dp_shard}
    else:
        cells = groups
        each = list(scenario.plans)
        whole |= {"dp_shard": plain_sum(float(one.dp_shard) for one in each)}
    whole |= {"placement": ((placement.axis, cells),)}
    order = {name: whole[name] for name in ("rank_order", "placement")}
    return changed(scenario, plan=changed(plan, **whole), plans=tuple(changed(one, **order) for one in each))
