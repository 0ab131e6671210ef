"""What would relieve a fleet, and what would make it fit: changes of the method, the network, the islands and their plans, evaluated."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.record import changed
from shardmeter.engine.constraints import OF_BATCH, violations
from shardmeter.engine.fleet import Part, Whole, evaluate_fleet, joined
from shardmeter.engine.sharing import IndivisibleBatch, least
from shardmeter.engine.wans import Networks
from shardmeter.specs import Plan, Run, Scenario, Sync
from shardmeter.study import moves
from shardmeter.study.moves import Move
from shardmeter.study.relief import BOUGHT, SET, SUPPOSED, WAYS, WORDS, Outcome, batch_unsaid, ordered
from shardmeter.sync import defaults, method

SyncMove: TypeAlias = Callable[[Sync], tuple[str, dict[str, str]] | None]
"""What a change of the method is called and the fields of `plan.sync` that make it; None where it means nothing."""
MOST_DISTINCT = 8
"""Islands of unlike plans or machines up to which changes of their plans are tried: each is evaluated anew."""


def relief(scenario: Scenario, whole: Whole) -> tuple[Outcome, ...]:
    """Single changes, in the order of REACH, the largest gain of each first. Those of the method and the network keep the islands' inner steps."""
    networks = Networks(scenario.fleet.islands, scenario.fleet.wan)
    found = [*_of_method(scenario, whole, networks), *_of_network(scenario, whole)]
    if len({(id(p.island.accelerator), p.island.nodes, p.plan) for p in whole.parts}) <= MOST_DISTINCT:
        plan = whole.parts[0].plan
        tried = (
            moves.micro_batch(2.0), moves.micro_batch(0.5), moves.side_by_side(2.0), moves.side_by_side(0.5),
            *moves.recompute_steps(plan), moves.degree("tp", 2.0), moves.degree("tp", 0.5), moves.narrow_reduction,
        )  # fmt: skip
        found += [one for move in tried if (one := _of_plans(scenario, whole, (move,), None, networks)) is not None]
    return ordered(found)


def ways_out(scenario: Scenario, whole: Whole) -> tuple[Outcome, ...]:
    """What makes every island fit: single changes of all islands' plans, or the outer state on the hosts; two of them together where
    no single one does. The fastest first, another optimizer last."""
    plan = whole.parts[0].plan
    tried: list[Move] = [
        *moves.recompute_steps(plan),
        moves.recompute("full"),
        moves.micro_batch(0.5),
        moves.micro_batch(0.25),
        *moves.fewer_side_by_side(plan),
    ]
    tried += [moves.sharding("fsdp"), moves.small_states, *(moves.degree("tp", factor) for factor in (2.0, 4.0, 8.0))]
    to_hosts, networks = _to_hosts(scenario.plan.sync), Networks(scenario.fleet.islands, scenario.fleet.wan)
    single = [_of_plans(scenario, whole, (move,), None, networks) for move in tried]
    if to_hosts is not None:
        single.append(_method(scenario, whole, _to_hosts, networks))
    found = _fitting(single)
    if not found and to_hosts is not None:
        found = _fitting(_of_plans(scenario, whole, (move,), to_hosts[1], networks) for move in tried)
    if not found:
        hosts = to_hosts[1] if to_hosts is not None else {}
        found = _fitting(_of_plans(scenario, whole, pair, hosts, networks) for pair in itertools.combinations(tried, 2))
    return tuple(sorted(found.values(), key=lambda one: (not one.trains_alike, -one.gain)))[:WAYS]


def _fitting(found: Iterable[Outcome | None]) -> dict[str, Outcome]:
    return {one.says: one for one in found if one is not None and one.fits}


# ---- the method -----------------------------------------------------------------------------------------------------------------


def _of_method(scenario: Scenario, whole: Whole, networks: Networks) -> list[Outcome]:
    streamed = functools.partial(_streamed, layers=int(scenario.model.layers))
    tried: tuple[SyncMove, ...] = (_rarely, _narrow, streamed, _later, _periodically)
    return [one for move in tried if (one := _method(scenario, whole, move, networks)) is not None]


def _method(scenario: Scenario, whole: Whole, move: SyncMove, networks: Networks) -> Outcome | None:
    """One change of the method."""
    found = move(scenario.plan.sync)
    if found is None:
        return None
    says, fields = found
    sync = _with(scenario.plan.sync, fields)
    inner = [changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True)]
    plan = changed(scenario.plan, sync=sync)
    after = joined(scenario.model, inner, scenario.fleet.wan, plan, networks=networks)
    sets = tuple(f"plan.sync.{name}={value}" for name, value in fields.items())
    return _outcome(whole, after, SET, says, sets, alike=set(fields) == {"outer_state"})


def _with(sync: Sync, fields: Mapping[str, str]) -> Sync:
    words = {"method", "outer_state", "topology", "release", "split"}
    numbers = {
        name: value if name in words
        else value == "true" if name == "hierarchical"
        else int(value) if name == "num_fragments"
        else float(value)
        for name, value in fields.items()
    }  # fmt: skip
    if sync.method == fields.get("method", sync.method):
        return changed(sync, **numbers)
    kept = {name: getattr(sync, name) for name in _shared(sync, fields["method"])}
    return changed(defaults(fields["method"]), **{**kept, **numbers})


def _shared(sync: Sync, name: str) -> list[str]:
    """Fields that two methods read."""
    return [field for field in method(name).FIELDS if _reads(sync, field)]


def _instead(sync: Sync, name: str, **fields: str) -> dict[str, str]:
    """Fields that put another method in place of one and leave alone what both read, whatever their own defaults are."""
    usual, kept = defaults(name), {}
    for field in _shared(sync, name):
        value = getattr(sync, field)
        if field not in fields and value != getattr(usual, field):
            kept[field] = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return {"method": name, **fields, **kept}


def _rarely(sync: Sync) -> tuple[str, dict[str, str]] | None:
    period = float(sync.sync_every) if _reads(sync, "sync_every") else 1.0
    return (f"a synchronisation every {2 * period:g} steps", {"sync_every": f"{2 * period:g}"}) if period > 1 else None


def _narrow(sync: Sync) -> tuple[str, dict[str, str]] | None:
    bits = float(sync.bits)
    if not _reads(sync, "bits") or bits <= 4.0:
        return None
    half = 8.0 if bits > 8.0 else 4.0
    return f"{half:g} bits a parameter across islands", {"bits": f"{half:g}"}


def _reads(sync: Sync, field: str) -> bool:
    return field in method(sync.method).FIELDS


def _streamed(sync: Sync, layers: int) -> tuple[str, dict[str, str]] | None:
    parts = min(STREAMED, layers)
    if sync.method != "diloco" or sync.sync_every < parts or parts < 2:
        return None
    fields = _instead(sync, "streaming_diloco", num_fragments=f"{parts}", fragment_sync_delay="1")
    return f"{parts} fragments, each one step behind (Streaming DiLoCo)", fields


STREAMED = 8


def _later(sync: Sync) -> tuple[str, dict[str, str]] | None:
    delay = float(sync.fragment_sync_delay)
    if sync.method != "streaming_diloco" or delay >= min(LATEST, float(sync.sync_every)):
        return None
    return f"{delay + 1:g} steps between sending and applying a fragment", {"fragment_sync_delay": f"{delay + 1:g}"}


LATEST = 5.0
"""Inner steps of delay up to which no loss was seen (Douillard 2025 §4)."""


def _periodically(sync: Sync) -> tuple[str, dict[str, str]] | None:
    if sync.method != "every_step":
        return None
    return "an outer step every 100 instead of gradients every step (DiLoCo)", _instead(
        sync, "diloco", sync_every="100"
    )


def _to_hosts(sync: Sync) -> tuple[str, dict[str, str]] | None:
    if not _reads(sync, "outer_state") or sync.outer_state == "host":
        return None
    return "outer state in the hosts' memory", {"outer_state": "host"}


# ---- network, islands, plans ------------------------------------------------------------------------------------------------


def _of_network(scenario: Scenario, whole: Whole) -> list[Outcome]:
    """Twice the streams, which costs nothing and says so where windows or loss bind; twice the bandwidth with streams to fill it;
    half the round trip."""
    wan = scenario.fleet.wan
    if wan is None:
        return []
    inner = [changed(part, estimate=e) for part, e in zip(whole.parts, whole.inner, strict=True)]
    more = changed(wan, streams=wan.streams * 2.0)
    wider = changed(wan, bandwidth=wan.bandwidth * 2.0, up=wan.up * 2.0, down=wan.down * 2.0, streams=wan.streams * 2.0)
    nearer = changed(wan, rtt=wan.rtt / 2.0)
    return [
        _outcome(whole, joined(scenario.model, inner, network, scenario.plan), reach, says, ())
        for reach, says, network in (
            (SET, "twice the streams between islands", more),
            (BOUGHT, "twice the bandwidth between islands", wider),
            (SUPPOSED, "half the round trip between islands", nearer),
        )
    ]


def _of_plans(
    scenario: Scenario, whole: Whole, together: Sequence[Move], fields: Mapping[str, str] | None, networks: Networks
) -> Outcome | None:
    """Moves made by every island's plan, and fields of the method that change with them; None where they mean nothing for one of
    the islands, or are illegal there."""
    plans = _moved(scenario, whole, together)
    if plans is None:
        return None
    sync, run = _with(plans[0].sync, fields or {}), _run(scenario, plans)
    try:
        plan = changed(plans[0], sync=sync)
        after = evaluate_fleet(scenario.model, scenario.fleet, plan, run, scenario.stack, plans, networks)
    except IndivisibleBatch:
        return None
    alike = plans[0].optimizer == whole.parts[0].plan.optimizer
    return _outcome(whole, after, SET, *_told(scenario, whole, plans, run, fields or {}), alike=alike)


def _moved(scenario: Scenario, whole: Whole, together: Sequence[Move]) -> list[Plan] | None:
    """Every island's plan after some moves; None where they mean nothing for one, or are illegal there."""
    plans: list[Plan] = []
    known: dict[tuple[Any, ...], Plan] = {}
    for part in whole.parts:
        key = _alike(part)
        if key not in known:
            plan = part.plan
            for move in together:
                moved = move(plan, part.island)
                if moved is None or moved[1] is not part.island:
                    return None
                plan = moved[0]
            plan = moves.resolved(plan, float(part.plan.tp), scenario.stack)
            broken = violations(scenario.model, part.island, plan, part.run, scenario.stack, skip=OF_BATCH)
            if plan == part.plan or broken:
                return None
            known[key] = plan
        plans.append(known[key])
    return plans


def _alike(part: Part) -> tuple[Any, ...]:
    """Equal for islands that a move means the same for; their runs differ in batches alone."""
    one = part.island
    machine = id(one.accelerator), one.nodes, one.gpus_per_node, one.tiers, id(one.outside)
    return *machine, part.plan, float(part.run.global_batch)


def _run(scenario: Scenario, plans: Sequence[Plan]) -> Run:
    """The run, with a batch that follows the plans where none was said."""
    if not batch_unsaid(scenario):
        return scenario.run
    return changed(scenario.run, global_batch=least(scenario.fleet.islands, scenario.plan, plans))


def _told(
    scenario: Scenario, whole: Whole, plans: Sequence[Plan], run: Run, method_fields: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """What moved plans are called, and the overrides that make them."""
    pairs = {(id(part.plan), id(plan)): (part.plan, plan) for part, plan in zip(whole.parts, plans, strict=True)}
    each = [moves.plan_fields(before, after) for before, after in pairs.values()]
    fields = {name: list(dict.fromkeys(one[name] for one in each if name in one)) for name in each[0]}
    named = {name: WORDS["sync.together"] if name == "sync.together" else name.replace("_", "-") for name in fields}
    says = ", ".join(f"{named[name]} {' or '.join(values)}" for name, values in fields.items())
    says += " everywhere" if all(len(values) == 1 for values in fields.values()) else ", by island"
    says += ", outer state on the hosts" if method_fields else ""
    if run.global_batch != scenario.run.global_batch:
        says += f", global batch {float(run.global_batch):,.0f}"
    return says, (*_sets(fields), *(f"plan.sync.{name}={value}" for name, value in method_fields.items()))


def _sets(fields: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Overrides that say it, which win over an island's own plan; none where islands would need unlike ones."""
    said = {name: values for name, values in fields.items() if name != "dp_shard"}
    if any(len(values) > 1 for values in said.values()):
        return ()
    return tuple(f"plan.{name}={values[0]}" for name, values in said.items())


def _outcome(
    before: Whole, after: Whole, reach: str, says: str, sets: Iterable[str], *, alike: bool = False
) -> Outcome:
    e, old = after.estimate, before.estimate
    step, rate, rate_before = float(e.step_time), float(e.tokens / e.step_time), float(old.tokens / old.step_time)
    fullest = max((p.estimate for p in after.parts), key=lambda one: float(one.memory_peak / one.memory_limit))
    return Outcome(
        reach=reach,
        says=says,
        sets=tuple(sets),
        step_time=step,
        tokens_per_s=rate,
        peak=float(fullest.memory_peak),
        gpus=float(e.gpus),
        fits=all(bool(p.estimate.memory_peak <= p.estimate.memory_limit) for p in after.parts),
        trains_alike=alike,
        gain=1.0 - rate_before / rate if rate else -1.0,
    )
