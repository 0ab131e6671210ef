"""Whether a record can be predicted: what a file is checked for on its way to a record, asked of the record itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import numpy as np

from shardmeter.core.errors import BadScenario, UnknownName, Violation, nearest, shown
from shardmeter.core.record import changed, field_names
from shardmeter.engine.constraints import violations, violations_of_island
from shardmeter.engine.sharing import unshared
from shardmeter.scenario.bounds import heads
from shardmeter.scenario.placement import ALONE
from shardmeter.specs import Fleet, Model, Plan, Scenario, Sync, Wan
from shardmeter.specs.assumed import RANGES
from shardmeter.specs.plan import AXES, OUTER_STATES, RELEASES, SPLITS, TOPOLOGIES
from shardmeter.specs.wan import BACKENDS, BALANCES, PACKETS, TRANSPORTS
from shardmeter.sync import defaults, faults, inner_of, method, names

SIZES = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab")
PAIRS: dict[str, tuple[float, float, bool]] = {
    "bandwidth": (1e-9, 1e30, True), "rtt": (0.0, 1e12, False), "loss": (0.0, 0.9, False),
    "window": (1e-9, 1e30, True), "streams": (1.0, 1e30, False), "lanes": (1.0, 1e30, False),
    "sends": (1e-9, math.inf, True), "hold": (0.0, 1e12, False), "redundancy": (0.0, 0.9, False),
    "mtu": (0.0, PACKETS[1], False),
}  # fmt: skip
"""Matrices of a network: least, largest, whether the least itself is too little. The largest are beyond all reason: what is more
only overflows."""
UPLINKS: dict[str, tuple[float, float]] = {
    "flows": (1.0, 1e30), "uplink": (1e-9, math.inf), "slowest": (0.0, 1.0), "buffer": (1e-9, math.inf), "planes": (1.0, 1e6),
}  # fmt: skip
"""Of every site: least and largest."""
MOST_EGRESS = 1e12
"""USD a byte, in the same sense."""
WHOLE = ("sync_every", "num_fragments", "fragment_sync_delay", "blocks", "levels", "rank", "perturbations", "together")
"""Numbers of a method that are counts."""
SYNC: dict[str, tuple[float, float]] = {
    "sync_every": (1.0, math.inf), "num_fragments": (1.0, math.inf), "fragment_sync_delay": (0.0, math.inf),
    "fragment_update_alpha": (0.0, 1.0), "bits": (1.0, 32.0), "top_k": (1e-9, 1.0), "lead": (0.0, 1.0),
    "grace": (0.0, math.inf), "blocks": (1.0, math.inf), "levels": (1.0, math.inf), "rank": (0.0, math.inf),
    "perturbations": (1.0, math.inf), "together": (1.0, math.inf),
}  # fmt: skip
WORDS = {"outer_state": OUTER_STATES, "topology": TOPOLOGIES, "release": RELEASES, "split": SPLITS}


def checked(scenario: Scenario, begins: Collection[str] = ()) -> Scenario:
    """The record itself, if it can be predicted: plain numbers, plans that are legal on their islands but for the rules of
    `begins`, and of several islands a network, a method and a batch that they can share.

    Raises BadScenario with every violation, as a file does; TypeError for arrays, which belong to the engine."""
    found = list(_numbers(scenario))
    if not found and scenario.fleet.islands:
        says, way_out = heads({"heads": scenario.model.heads, "kv_heads": scenario.model.kv_heads})
        found += [Violation(field="model.kv_heads", says=says, way_out=way_out)] if says else []
        found += _of_one(scenario, begins) if len(scenario.fleet.islands) == 1 else _of_several(scenario, begins)
    if found:
        count = len(found)
        raise BadScenario(f"{scenario.name}: {count} problem{'s' if count > 1 else ''}", found)
    return scenario


def _numbers(scenario: Scenario) -> Iterator[Violation]:
    """Numbers that are none, of every part but the network."""
    islands = scenario.fleet.islands
    if not islands:
        yield Violation(field="fleet.islands", says="there is none", way_out="one island or more")
    parts: dict[str, Any] = {
        "model": scenario.model,
        "plan": scenario.plan,
        "run": scenario.run,
        "stack": scenario.stack,
    }
    for at, island in enumerate(islands):
        before = "" if len(islands) == 1 else f"{at}."
        parts |= {f"{before}island": island, f"{before}accelerator": island.accelerator}
        parts |= {f"{before}tiers.{i}": one for i, one in enumerate(island.tiers)}
    parts |= {f"plans.{at}": plan for at, plan in enumerate(scenario.plans)}
    for name, part in parts.items():
        cls: Any = type(part)
        for field in field_names(cls):
            value = getattr(part, field)
            if getattr(value, "ndim", 0):
                raise TypeError(f"{name}.{field} is an array: predict answers one scenario, with plain numbers")
            if isinstance(value, float) and not (math.isfinite(value) and value >= 0.0):
                yield Violation(field=f"{name}.{field}", says=f"{value:g} is no number of 0 or more")
    for field in SIZES:
        if not getattr(scenario.model, field) >= 1.0:
            says = f"{getattr(scenario.model, field):g} is too small"
            yield Violation(field=f"model.{field}", says=says, way_out="at least 1")


def _of_one(scenario: Scenario, begins: Collection[str]) -> list[Violation]:
    island = scenario.fleet.islands[0]
    return violations(scenario.model, island, scenario.plan, scenario.run, scenario.stack, skip=begins)


# ---- several islands -------------------------------------------------------------------------------------------------------------


def _of_several(scenario: Scenario, begins: Collection[str]) -> list[Violation]:
    fleet, plan = scenario.fleet, scenario.plan
    plans = scenario.plans or (plan,) * len(fleet.islands)
    found = [*_names(fleet), *_sync(plan.sync, scenario.model), *_under(scenario, plans)]
    if len(plans) != len(fleet.islands):
        says = f"{len(plans)} plans for {len(fleet.islands)} islands"
        found.append(Violation(field="plans", says=says, way_out="one an island, or none: all have `plan`"))
        return [*found, *_network(fleet.wan, fleet)]
    trained = sorted({one.trainable if one.probes is None else one.probes.of for one in plans})
    if len(trained) > 1:
        says, rule = f"trainable = {', '.join(trained)}", "islands send each other what they train"
        found.append(Violation(field="plans", says=says, way_out="one trainable for all islands", rule=rule))
    steps = list(_placement(plan, fleet))
    found += [*steps, *_network(fleet.wan, fleet)]
    if steps:
        return found
    rules: dict[tuple[str, str], tuple[Violation, list[str]]] = {}
    told: dict[Any, Sequence[Violation]] = {}
    for island, own in zip(fleet.islands, plans, strict=True):
        crosses = any(axis == "pp" and any(island.name in cell for cell in cells) for axis, cells in plan.placement)
        whole = changed(own, pp=plan.pp) if crosses else None
        same = id(island.accelerator), island.tiers, island.nodes, island.gpus_per_node, own, crosses
        if same not in told:
            told[same] = violations_of_island(
                scenario.model, island, own, scenario.run, scenario.stack, whole=whole, skip=begins
            )
        for one in told[same]:
            rules.setdefault((one.field, one.says), (one, []))[1].append(island.name)
    for one, where in rules.values():
        found.append(one if len(where) == len(plans) else changed(one, field=f"{where[0]}: {one.field}"))
    batch = None if rules else unshared(fleet.islands, plan, plans, float(scenario.run.global_batch))
    return found if batch is None else [*found, batch]


def _names(fleet: Fleet) -> Iterator[Violation]:
    for name, count in Counter(island.name for island in fleet.islands).items():
        if count > 1:
            yield Violation(
                field="fleet.islands", says=f"{count} islands are named {name!r}", way_out="a name for each"
            )


def _placement(plan: Plan, fleet: Fleet) -> Iterator[Violation]:
    """Cells of islands that there are, each in one, all of one length."""
    known = [island.name for island in fleet.islands]
    given: Any = plan.placement
    if not isinstance(given, tuple) or not all(isinstance(one, tuple) and len(one) == 2 for one in given):
        says = f"{shown(given, 40)} is no placement"
        yield Violation(field="plan.placement", says=says, way_out='as in (("pp", (("oregon", "iowa"),)),)')
        return
    if len(plan.placement) > 1:
        says = f"{len(plan.placement)} axes across islands are not modelled yet"
        yield Violation(field="plan.placement", says=says, way_out="place one of them")
    for axis, cells in plan.placement:
        field = f"plan.placement.{axis}"
        for name in dict.fromkeys(name for cell in cells for name in cell if name not in known):
            yield Violation(field=field, says=f"unknown island {name!r}", way_out=", ".join(nearest(name, known)))
        yield from _crossed(axis, cells, field)
        if len({len(cell) for cell in cells}) != 1:
            yield Violation(field=field, says="cells of unlike lengths", rule="every cell has the whole axis")
        for name, count in Counter(name for cell in cells for name in set(cell)).items():
            if count > 1:
                yield Violation(field=field, says=f"{name} is in {count} cells", way_out="an island belongs to one")


def _crossed(axis: str, cells: Sequence[Sequence[str]], field: str) -> Iterator[Violation]:
    """An axis that may cross islands, and does in every cell."""
    if axis not in AXES:
        yield Violation(field=field, says=f"{axis!r} is no axis that crosses islands", way_out=", ".join(AXES))
    for cell in cells:
        if not cell or (len(set(cell)) == 1 and axis not in ALONE):
            says = f"joins {cell[0]} with no other island" if cell else "a cell of no islands"
            yield Violation(field=field, says=says, way_out="two islands or more in every cell")


def _sync(sync: Sync, model: Model) -> Iterator[Violation]:
    """Numbers and words of the method, and what contradicts it."""
    word, hierarchical = cast("Any", sync.method), cast("Any", sync.hierarchical)
    if not isinstance(word, str):
        yield Violation(field="plan.sync.method", says=f"{word!r} is no sync method", way_out=", ".join(names()))
        return
    if sync.method not in names():
        near = ", ".join(nearest(sync.method, names()))
        yield Violation(field="plan.sync.method", says=f"unknown sync method {sync.method!r}", way_out=near)
        return
    for name, (least, most) in SYNC.items():
        value = getattr(sync, name)
        if getattr(value, "ndim", 0):
            raise TypeError(f"plan.sync.{name} is an array: predict answers one scenario, with plain numbers")
        if not least <= value <= most:
            says, above = f"{name} = {value:g}", "or more" if most == math.inf else f"to {most:g}"
            yield Violation(field=f"plan.sync.{name}", says=says, way_out=f"{least:g} {above}")
        elif name in WHOLE and math.isfinite(value) and value != int(value):
            yield Violation(field=f"plan.sync.{name}", says=f"{name} = {value:g} is no whole number")
    if not isinstance(hierarchical, bool):
        says = f"{hierarchical!r} is neither true nor false"
        yield Violation(field="plan.sync.hierarchical", says=says, way_out="True or False")
    yield from _words(sync)
    if sync.num_fragments > model.layers:
        says = f"num_fragments = {sync.num_fragments}, but the model has {model.layers:g} layers"
        yield Violation(field="plan.sync.num_fragments", says=says, way_out=f"{model.layers:g} or fewer")
    if sync.fragment_sync_delay > sync.sync_every:
        says = f"fragment_sync_delay = {sync.fragment_sync_delay:g}, but a round has sync_every = {sync.sync_every:g} inner steps"
        yield Violation(field="plan.sync.fragment_sync_delay", says=says, way_out=f"{sync.sync_every:g} or less")


def _under(scenario: Scenario, plans: Sequence[Plan]) -> Iterator[Violation]:
    """Plans that do not train as the method does, and a fleet that it cannot join."""
    sync = scenario.plan.sync
    if sync.method not in names():
        return
    inner = inner_of(sync)
    if any((one.probes and changed(one.probes, of="all")) != inner.probes for one in plans):
        says = f"the plans' probes are not those of {sync.method}"
        yield Violation(field="plans", says=says, way_out="shardmeter.sync.laid(plan, sync), or a file")
    if inner.blocks > 1 and scenario.assembled is None:
        says = f"{sync.method} cuts the model into {inner.blocks} blocks, and no assembled model is named"
        way_out = "model = families.block_of(whole, blocks), assembled = whole, or a file"
        yield Violation(field="assembled", says=says, way_out=way_out)
    for field, says, way_out in faults(sync, len(scenario.fleet.islands)):
        yield Violation(field=f"plan.sync.{field}", says=says, way_out=way_out)


def _words(sync: Sync) -> Iterator[Violation]:
    """Words that are none, and fields that the method does not read."""
    for name, words in WORDS.items():
        if getattr(sync, name) not in words:
            says = f"{name} = {getattr(sync, name)!r} is no word for it"
            yield Violation(field=f"plan.sync.{name}", says=says, way_out=f"one of {', '.join(words)}")
    fields, usual = method(sync.method).FIELDS, defaults(sync.method)
    for name in field_names(Sync):
        if name not in ("method", *fields) and getattr(sync, name) != getattr(usual, name):
            says = f"{sync.method} does not read {name} = {getattr(sync, name)}"
            yield Violation(
                field=f"plan.sync.{name}", says=says, way_out="leave it as it is", rule=f"it reads {', '.join(fields)}"
            )


def _network(wan: Wan | None, fleet: Fleet) -> Iterator[Violation]:
    """The network between islands: its shape, and numbers of every pair."""
    known = tuple(island.name for island in fleet.islands)
    if wan is None:
        says = f"nothing joins {len(known)} islands"
        yield Violation(field="fleet.wan", says=says, way_out="specs.Wan, or a file with fleet.wan.default")
        return
    if wan.islands != known:
        says = f"joins {_brief(wan.islands)}, but the islands are {_brief(known)}"
        yield Violation(field="fleet.wan.islands", says=says, way_out="their names, in the order of the fleet")
        return
    count = len(known)
    for name, (least, most, above) in PAIRS.items():
        table = _table(getattr(wan, name), (count, count))
        if table is None:
            yield _shape(name, getattr(wan, name), (count, count))
            continue
        good = ((table > least) if above else (table >= least)) & (table <= most)
        wanted = f"more than {least:g}" if above else f"{least:g} or more"
        if name == "mtu":
            good &= (table == 0.0) | (table >= PACKETS[0])
            wanted = f"0 where it is not said, or {PACKETS[0]:g} or more"
        yield from _pairs(name, table, ~good, known, wanted if math.isinf(most) else f"{wanted}, at most {most:g}")
    table = _table(wan.egress, (count, count))
    if table is None:
        yield _shape("egress", wan.egress, (count, count))
    else:
        good = np.isnan(table) | ((table >= 0.0) & (table <= MOST_EGRESS))
        wanted = f"0 or more, at most {MOST_EGRESS:g}, or NaN where no price is known"
        yield from _pairs("egress", table, ~good, known, wanted)
    yield from _sites(wan, known)


def _sites(wan: Wan, known: Sequence[str]) -> Iterator[Violation]:
    for name in ("up", "down"):
        row = _table(getattr(wan, name), (len(known),))
        if row is None:
            yield _shape(name, getattr(wan, name), (len(known),))
            continue
        for at in np.flatnonzero(~(row > 0.0)).tolist():
            says, way_out = f"{known[at]}: {row[at]:g} is no rate", "more than 0; inf = no limit of its own"
            yield Violation(field=f"fleet.wan.{name}", says=says, way_out=way_out)
    yield from _uplinks(wan, known)
    yield from _vocabulary(wan, known)


def _uplinks(wan: Wan, known: Sequence[str]) -> Iterator[Violation]:
    """Numbers of uplinks, and what is assumed of networks."""
    for name, (least, most) in UPLINKS.items():
        row = _table(getattr(wan, name), (len(known),))
        if row is None:
            yield _shape(name, getattr(wan, name), (len(known),))
            continue
        for at in np.flatnonzero(~((row >= least) & (row <= most))).tolist():
            says = f"{known[at]}: {row[at]:g}"
            way_out = f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:g}"
            yield Violation(field=f"fleet.wan.{name}", says=says, way_out=way_out)
    for name, (least, most, _) in RANGES.items():
        value = getattr(wan.assumed, name)
        if not 0.0 <= value <= 1e12:
            says, way_out = f"{value:g}", f"{least:g} to {most:g} is what is known"
            yield Violation(field=f"fleet.wan.assumed.{name}", says=says, way_out=way_out)


def _vocabulary(wan: Wan, known: Sequence[str]) -> Iterator[Violation]:
    words = (
        ("transport", wan.transport, TRANSPORTS),
        ("balance", wan.balance or (BALANCES[1],) * len(known), BALANCES),
        ("backend", (wan.backend,) * len(known), BACKENDS),
    )
    for name, said, vocabulary in words:
        if len(said) != len(known):
            yield _shape(name, said, (len(known),))
        for word in dict.fromkeys(word for word in said if word not in vocabulary):
            says = str(UnknownName(name, word, vocabulary))
            yield Violation(field=f"fleet.wan.{name}", says=says, way_out=f"one of {', '.join(vocabulary)}")


def _table(value: Any, shape: tuple[int, ...]) -> Any:
    """Numbers at a shape; None where they have another."""
    try:
        return np.broadcast_to(np.asarray(value, dtype=float), shape)
    except (TypeError, ValueError):
        return None


def _shape(name: str, value: Any, wanted: tuple[int, ...]) -> Violation:
    try:
        found = " × ".join(map(str, np.shape(value))) or "one"
    except ValueError:
        found = "rows of unlike"
    return Violation(
        field=f"fleet.wan.{name}", says=f"{found} numbers", way_out=f"{' × '.join(map(str, wanted))}, one for all pairs or islands"
    )  # fmt: skip


def _pairs(name: str, table: Any, bad: Any, known: Sequence[str], wanted: str) -> Iterator[Violation]:
    """One violation for all pairs whose number is none; nothing is read of the diagonal."""
    bad = bad & ~np.eye(len(known), dtype=bool)
    if not bad.any():
        return
    source, target = (int(one) for one in np.argwhere(bad)[0])
    more = f" (and {int(bad.sum()) - 1} more pairs)" if bad.sum() > 1 else ""
    says = f"{known[source]} → {known[target]}: {table[source, target]:g}{more}"
    yield Violation(field=f"fleet.wan.{name}", says=says, way_out=wanted)


def _brief(names_: Sequence[str]) -> str:
    return ", ".join(names_[:4]) + ("" if len(names_) <= 4 else f" and {len(names_) - 4} more")
