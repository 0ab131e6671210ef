"""A fleet as it may be taken: of every island no node, some or all, on demand or spot; as scenarios that a planner joins to teams."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName, Violation
from shardmeter.core.record import changed, record
from shardmeter.scenario import open_fleet
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.grammar import AUTO
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.ranges import is_range, values
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Choices, Fleet, Island, Joint, Plan, Run, Scenario, Wan
from shardmeter.study.planning import subsets
from shardmeter.study.planning.scenarios import FIELDS, plan_document
from shardmeter.study.planning.subsets import Named

FEW = 4
"""Nodes up to which every number of them is tried; of more, all, a half, a quarter and so on."""
MOST = 4_096
"""Teams that are tried."""
FREE = ("dp_shard", "trainable", "rank_order")
"""Fields of a plan that follow from the number of nodes, or have one value anyway."""


@record
class Offer:
    """One way to take an island: so many nodes, at this price."""

    place: int
    """Of the island in the fleet as it was said."""
    island: Island
    fields: Mapping[str, Any]
    """What its item in the document says then; None = nothing."""


@dataclass(slots=True)
class Fleets:
    """A document and every fleet that can be made of it."""

    document: Document
    rows: Rows
    base: Scenario = field(init=False)
    """All islands whole, as they were said, with what is open of plans and synchronisation."""
    offers: tuple[Offer, ...] = field(init=False)
    teams: tuple[tuple[int, ...], ...] = field(init=False)
    """Places among the offers, one of an island at most."""
    notes: list[str] = field(default_factory=list)
    """What was taken to be so."""

    def __post_init__(self) -> None:
        """Read the document once for every size and price. Raises BadScenario as reading does."""
        sizes = self._sizes()
        self.base = self._settled()
        self.offers = tuple(self._offers(sizes))
        self.teams = self._teams()

    @property
    def scenario(self) -> Scenario:
        """The offers as islands of one fleet, for the planner."""
        choices, plans = self.base.choices, self.base.plans or (self.base.plan,)
        if choices is None or choices.joint is None:
            raise ValueError("nothing is open")
        islands = tuple(changed(one.island, name=self._name(at)) for at, one in enumerate(self.offers))
        joint = changed(
            choices.joint, pins=tuple(choices.joint.pins[one.place] for one in self.offers), items=(),
            counts=tuple(range(1, len(self.base.fleet.islands) + 1)),
        )  # fmt: skip
        return changed(
            self.base, fleet=Fleet(islands=islands), plans=tuple(plans[one.place] for one in self.offers),
            choices=changed(choices, islands=islands, joint=joint, deadline=None, budget=None),
        )  # fmt: skip

    @property
    def named(self) -> Named:
        """The teams, each with the run and the network that its document has."""
        return Named(teams=self.teams, of=self._joined)

    def document_of(self, team: Sequence[int], plans: Sequence[Plan], sync: Mapping[str, Any] | None) -> dict[str, Any]:
        """The scenario of some offers with their plans (those of the document where none are given): what `predict` takes."""
        said = copy.deepcopy(self._said)
        items, used = said["fleet"]["islands"], [self.offers[at] for at in team]
        for number, one in enumerate(used):
            item = items[self._items[one.place]]
            item.update(one.fields)
            items[self._items[one.place]] = {name: value for name, value in item.items() if value is not None}
            if plans:
                items[self._items[one.place]]["plan"] = plan_document(plans[number])
        if len(used) < len(self.base.fleet.islands):
            said["fleet"]["use"] = [one.island.name for one in used]
        plan = {"sync": dict(sync)} if sync is not None else plan_document(plans[0]) if plans else AUTO
        return {**said, "plan": plan}

    # ---- reading ------------------------------------------------------------------------------------------------------------------

    @property
    def _said(self) -> dict[str, Any]:
        choices = self.base.choices
        return {} if choices is None else dict(choices.said[0])

    @property
    def _items(self) -> tuple[int, ...]:
        joint = None if self.base.choices is None else self.base.choices.joint
        return (0,) if joint is None or not joint.items else joint.items

    def _read(self, data: Mapping[str, Any]) -> Scenario:
        made = Document(copy.deepcopy(dict(data)), self.document.name, self.document.folder, self.document.places)
        return resolve(made, self.rows, left_open(made, planning=True))

    def _joined(self, team: tuple[int, ...]) -> tuple[Run, Wan | None]:
        run = dict(self.document.data.get("run") or {})
        read = self._read({**self.document_of(team, (), None), "run": run})
        wan = read.fleet.wan
        if wan is None:
            return read.run, None
        return read.run, changed(wan, islands=tuple(self._name(at) for at in team), basis=(), prices=())

    def _name(self, at: int) -> str:
        """Of an offer among all of them."""
        return f"{self.offers[at].island.name} {at}"

    def _sizes(self) -> list[tuple[int | None, ...]]:
        """Numbers of nodes of every item, the whole first; the document keeps that. None = as it is said."""
        fleet = self.document.data.get("fleet")
        items = fleet.get("islands") if isinstance(fleet, dict) else None
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items) or not items:
            bad = Violation(
                field="fleet.islands", says="no list of islands", rule="a front chooses among islands and their nodes",
                way_out="say fleet: {islands: [{name: a, instance: p5.48xlarge, nodes: 4}]}",
            )  # fmt: skip
            raise BadScenario(f"{self.document.name}: 1 problem", [bad])
        found = []
        for at, item in enumerate(items):
            given = item.get("nodes")
            if isinstance(given, str) and is_range(given):
                given = list(values(given, f"fleet.islands.{at}.nodes"))
            if isinstance(given, list) and given and all(isinstance(one, int) and one > 0 for one in given):
                item["nodes"] = max(given)
                found.append(tuple(sorted(set(given), reverse=True)))
            else:
                found.append(_parts_of(given) if str(item.get("count", 1)) == "1" else (None,))
        return found

    def _settled(self) -> Scenario:
        """The document read as a planner reads it, what it states of plans as pins, what it leaves open of synchronisation open."""
        read = self._read(self.document.data)
        choices = read.choices
        if choices is None:
            raise ShardMeterError("nothing of a plan can be read")
        sync = {} if choices.joint is None else choices.joint.sync
        if not choices.stated:
            data = copy.deepcopy(self.document.data)
            plan = data.get("plan")
            if isinstance(plan, dict) and isinstance(plan.get("sync"), dict):
                plan["sync"] = {name: _first(value) for name, value in plan["sync"].items()}
                again = self._read(data)
                read = again if again.choices is not None and again.choices.stated else read
        plans = read.plans or (read.plan,)
        stated = read.choices is not None and read.choices.stated
        own = choices.joint.pins if choices.joint is not None else (choices.plan,)
        pins = tuple(map(_pins, plans)) if stated else own
        batch = ((float(read.run.global_batch), "sequences"),) if stated else choices.global_batch
        joint = Joint(
            pins=pins, sync=sync, counts=tuple(range(1, len(plans) + 1)),
            items=() if choices.joint is None else choices.joint.items,
        )  # fmt: skip
        kept: Choices = changed(choices, joint=joint, global_batch=batch, stated=False)
        return changed(read, choices=kept)

    def _offers(self, sizes: Sequence[tuple[int | None, ...]]) -> Iterator[Offer]:
        """Every size of every island, as it is paid and as it could be."""
        open_ = {**self.document.data, "plan": AUTO}
        open_["fleet"] = open_fleet.bare(open_["fleet"])
        by_size = []
        for number in range(max(map(len, sizes))):
            data = copy.deepcopy(open_)
            for item, some in zip(data["fleet"]["islands"], sizes, strict=True):
                if some[min(number, len(some) - 1)] is not None:
                    item["nodes"] = some[min(number, len(some) - 1)]
            by_size.append(self._read(data).fleet.islands)
        otherwise = {at: self._other(open_, at) for at in range(len(sizes))}
        for place, island in enumerate(self.base.fleet.islands):
            item = self._items[place]
            for number, nodes in enumerate(sizes[item]):
                size: dict[str, Any] = {} if nodes is None else {"nodes": nodes}
                made = by_size[number][place]
                yield Offer(place=place, island=made, fields=size)
                other = otherwise[item]
                if other is not None:
                    islands, fields = other
                    paid = islands[place]
                    told = {name: getattr(paid, name) for name in ("price", "price_basis", "tariff", "preemption")}
                    yield Offer(place=place, island=changed(made, name=island.name, **told), fields=size | fields)

    def _other(self, data: Mapping[str, Any], at: int) -> tuple[tuple[Island, ...], dict[str, Any]] | None:
        """An item paid the other way, spot or on demand, and what it says then; None where no such price is known, or not how often
        spot capacity is taken away."""
        item = data["fleet"]["islands"][at]
        if not item.get("instance") or any(item.get(name) for name in ("price", "reserved", "owned")):
            return None
        fields: dict[str, Any] = {"spot": None, "preemption": None}
        name = item.get("name") or item["instance"]
        if not item.get("spot"):
            taken = item.get("preemption") or self._taken_away(item["instance"])
            if not taken:
                self.notes.append(
                    f"{name} on demand only: how often spot capacity is taken away there is not known (say spot: true, preemption: …)"
                )
                return None
            fields = {"spot": True, "preemption": taken}
        made = copy.deepcopy(dict(data))
        made["fleet"]["islands"][at] = {key: value for key, value in {**item, **fields}.items() if value is not None}
        try:
            islands = self._read(made).fleet.islands
        except (BadScenario, UnknownName):
            return None
        place = self._items.index(at)
        if islands[place].price is None:
            return None
        how = f"spot, taken away as {fields['preemption']} says" if fields["spot"] else "on demand, too"
        self.notes.append(f"{name} may be taken {how}")
        return islands, fields

    def _taken_away(self, instance: str) -> str:
        """The row of failures of a provider's spot capacity; "" where there is none."""
        provider = self.rows.instance(instance).provider if self.rows.knows("instances", instance) else ""
        row = f"{provider.lower()}-spot"
        return row if provider and self.rows.knows("failures", row) else ""

    def _teams(self) -> tuple[tuple[int, ...], ...]:
        """At most one offer of every island; islands that may change places are counted, not told apart."""
        own: dict[int, list[int]] = {}
        for at, one in enumerate(self.offers):
            own.setdefault(one.place, []).append(at)
        islands = self.base.fleet.islands

        def kind(place: int) -> Any:
            i, said = islands[place], [self.offers[at].fields for at in own[place]]
            return (
                id(i.accelerator),
                i.nodes,
                i.gpus_per_node,
                i.tiers,
                i.region,
                [sorted(one.items(), key=str) for one in said],
            )

        classes = subsets.classes(self.base, kind, range(len(islands)))
        each = [
            list(itertools.combinations_with_replacement(range(-1, len(own[members[0]])), len(members)))
            for members in classes
        ]
        found: list[tuple[int, ...]] = []
        for chosen in itertools.product(*each):
            ordered = (sorted(some, key=lambda size: (size < 0, size)) for some in chosen)
            pairs = (
                pair for some, members in zip(ordered, classes, strict=True) for pair in zip(some, members, strict=True)
            )
            team = tuple(sorted(own[place][size] for size, place in pairs if size >= 0))
            if team:
                found.append(team)
            if len(found) > MOST:
                raise ShardMeterError(
                    f"more than {MOST:,} fleets can be made of these islands: say fewer numbers of nodes (nodes: [2, 8]), or price: of an island"
                )
        return tuple(found)


def _parts_of(nodes: Any) -> tuple[int | None, ...]:
    """All nodes and fewer."""
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 2:
        return (None,)
    if nodes <= FEW:
        return tuple(range(nodes, 0, -1))
    return tuple(nodes >> halved for halved in range(nodes.bit_length()))


def _first(value: Any) -> Any:
    """One of several values."""
    if isinstance(value, list) and value:
        return value[0]
    if isinstance(value, str) and is_range(value):
        return values(value, "plan.sync")[0]
    return "every_step" if value == "any" else value


def _pins(plan: Plan) -> dict[str, tuple[Any, ...]]:
    """What a stated plan keeps whatever the number of nodes: all but one degree of data parallelism."""
    hybrid = plan.sharding == "fsdp" and plan.dp_replicate > 1
    free = {*FREE, "dp_replicate"} - {"dp_shard"} if hybrid else set(FREE)
    return {name: (getattr(plan, name),) for name in FIELDS if name not in free}
