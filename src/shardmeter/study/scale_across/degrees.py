"""How many accelerators every axis of the mesh has: what the scenario says or, where it is open, what production would take."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.record import changed, record
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import active_parameters, parameters
from shardmeter.scenario.grammar import parse_plan
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Island, Model, Scenario, Wan
from shardmeter.study.scale_across.networks import PRODUCTION, networked
from shardmeter.study.scale_across.schedules import Schedule, production, scheduled
from shardmeter.study.scale_across.steps import Stopped, between, fits, legal, whole_of

WanOf: TypeAlias = Callable[[Wan, Island], Wan]
Stop: TypeAlias = Callable[[], bool]
SHARDING = "zero1"
"""Where a plan with a pipeline says none: what Megatron calls its distributed optimizer."""
RECOMPUTES = ("none", "selective", "full")
STATE = 6.0
"""Bytes that a parameter takes at least: the weights and their gradients, before the optimizer."""
CHOSEN = ("placement", "schedule", "virtual_stages", "micro_batch", "ahead", "stagger", "rank_order")
"""Fields of a plan that a search chooses, whatever is said of them."""
NONE_FITS = "no set of degrees is legal and fits into memory"
REFINED = 3
"""Sets of degrees whose schedules are all tried."""


@record
class Degrees:
    """One set of degrees with the best of production's schedules."""

    scenario: Scenario
    """Replicas cross the buildings, in production's schedule."""
    schedule: Schedule
    step: float
    """Seconds, on production's network."""
    pinned: bool
    """Whether the scenario says them."""

    def to_dict(self) -> dict[str, Any]:
        """Its part of the JSON."""
        plan, count = self.scenario.plan, len(self.scenario.fleet.islands)
        replicas = float(plan.dp) * count
        return {
            "tp": int(plan.tp), "cp": int(plan.cp), "pp": int(plan.pp), "ep": int(plan.ep), "dp": int(plan.dp * count),
            "sharding": plan.sharding, "recompute": plan.recompute, "micro_batch": int(self.schedule.micro_batch),
            "micro_batches": float(self.scenario.run.global_batch) / (replicas * float(self.schedule.micro_batch)),
        }  # fmt: skip


def degrees_of(
    document: Document, rows: Rows, wan_of: WanOf, stop: Stop | None = None
) -> tuple[tuple[Degrees, ...], str]:
    """The sets of degrees of a case that fit, the fastest in production's way first, and why there is none.

    `wan_of` makes the network of the case's own point from that of the document."""
    said = plan_said(document.data.get("plan"))
    found: list[tuple[float, Scenario]] = []
    why, pinned = NONE_FITS, True
    model, island = sizes(document, rows)
    for some in sets(said, model, island):
        if stop is not None and stop():
            raise Stopped
        pinned = pinned and len(some) == 0
        try:
            one = _fitting(document, rows, said | some)
        except UnknownName:
            raise
        except BadScenario as error:
            if not some:
                why = error.violations[0].says if error.violations else error.message
            continue
        if one is not None:
            found.append(one)
    ranked = sorted(found, key=lambda one: one[0])[:REFINED]
    words = tuple(said[name] for name in ("recompute",) if name in said) or RECOMPUTES
    refined = [
        _refined(scenario, wan_of, words[words.index(scenario.plan.recompute) :], pinned, stop)
        for _, scenario in ranked
    ]
    return tuple(sorted((one for one in refined if one is not None), key=lambda one: one.step)), "" if refined else why


def plan_said(given: Any) -> dict[str, Any]:
    """What a document says of its plan, without what a search chooses: placement, schedule, micro-batch."""
    said = parse_plan(given) if isinstance(given, str) and given != "auto" else given
    kept = dict(said) if isinstance(said, Mapping) else {}
    return {name: value for name, value in kept.items() if name not in CHOSEN and value != "auto"}


def chosen_anew(given: Any) -> tuple[str, ...]:
    """Fields of a document's plan of which a search has its own choice."""
    said = parse_plan(given) if isinstance(given, str) else given
    kept = dict(said) if isinstance(said, Mapping) else {}
    sync = kept.get("sync")
    release = ("sync.release",) if isinstance(sync, Mapping) and "release" in sync else ()
    return (*(name for name in CHOSEN if name in kept), *release)


def sets(said: Mapping[str, Any], model: Model, island: Island) -> Iterator[dict[str, Any]]:
    """What is open of a plan, as powers of two: tp inside the scale-up domain, stages that the layers and a building hold, experts over
    8 ranks or more. Sets whose weights and gradients alone are beyond the memory are left out.

    Leaves out: context parallelism where none is said; degrees that are no powers of two."""
    gpus, domain = float(island.gpus), float(island.tiers[0].size)
    mixture = float(model.experts) > 0.0
    open_: dict[str, Sequence[int]] = {}
    if "tp" not in said:
        open_["tp"] = _powers(1, min(domain, 4.0 if mixture else 8.0))
    if "pp" not in said:
        open_["pp"] = _powers(1, min(float(model.layers), gpus, 32.0))
    if mixture and "ep" not in said:
        open_["ep"] = [one for one in _powers(8, 64) if float(model.experts) % one == 0.0] or [1]
    weights, active = parameters(model), active_parameters(model)
    for some in itertools.product(*open_.values()):
        made = dict(zip(open_, some, strict=True))
        tp, pp, ep = (float({**said, **made}.get(name, 1)) for name in ("tp", "pp", "ep"))
        dense = min(float(active), float(weights)) / tp + max(float(weights) - float(active), 0.0) / max(ep, 1.0)
        if STATE * dense / pp <= island.accelerator.memory:
            yield made


def _powers(least: int, most: float) -> list[int]:
    return [2**n for n in range(20) if least <= 2**n <= most]


def sizes(document: Document, rows: Rows) -> tuple[Model, Island]:
    """What a case is made of. Raises BadScenario where its document cannot be read, UnknownName."""
    from shardmeter.scenario.parts import Findings
    from shardmeter.scenario.resolve import read_parts

    found = Findings(copy.deepcopy(document))
    read = read_parts(found, rows)
    found.stop()
    if read.model is None:  # pragma: no cover  (a scenario without a model has violations)
        raise AssertionError
    return read.assembled or read.model, read.island


def _fitting(document: Document, rows: Rows, said: Mapping[str, Any]) -> tuple[float, Scenario] | None:
    """(seconds of a building's inner step, scenario) of a plan with 1F1B and the least recomputation with which it fits."""
    words = (said["recompute"],) if "recompute" in said else RECOMPUTES
    for word in words:
        own = {"sharding": SHARDING} | dict(said) | {"recompute": word, "micro_batch": 1}
        made = copy.deepcopy(document)
        made.data["plan"] = own
        scenario = resolve(made, rows)
        share = scenario.run.global_batch / len(scenario.fleet.islands)
        one = evaluate(
            scenario.model,
            scenario.fleet.islands[0],
            scenario.plans[0],
            changed(scenario.run, global_batch=share),
            scenario.stack,
        )
        if fits(one):
            return float(one.step_time), scenario
    return None


def production_wan(scenario: Scenario, wan_of: WanOf) -> Wan:
    """Production's network at the case's own point."""
    return networked(wan_of(between(scenario), scenario.fleet.islands[0]), PRODUCTION)


def _refined(
    scenario: Scenario, wan_of: WanOf, words: Sequence[str], pinned: bool, stop: Stop | None
) -> Degrees | None:
    """The best of production's schedules under some degrees, each with the least recomputation of `words` with which it fits. Raises
    Stopped."""
    wan = production_wan(scenario, wan_of)
    for some in production(scenario.plan, float(scenario.model.layers)):
        held = []
        for one in some:
            if stop is not None and stop():
                raise Stopped
            held.append(_held(scenario, one, wan, words, pinned))
        found = [one for one in held if one is not None]
        if found:
            return min(found, key=lambda one: one.step)
    return None


def _held(scenario: Scenario, one: Schedule, wan: Wan, words: Sequence[str], pinned: bool) -> Degrees | None:
    """A schedule with the least recomputation with which it fits; None for an illegal one, and where it does not fit."""
    for word in words:
        made = scheduled(_recomputed(scenario, word), one)
        if not legal(made):
            return None
        found = whole_of(made, wan).estimate
        if fits(found):
            return Degrees(scenario=made, schedule=one, step=float(found.step_time), pinned=pinned)
    return None


def _recomputed(scenario: Scenario, word: str) -> Scenario:
    plans = tuple(changed(one, recompute=word) for one in scenario.plans)
    return changed(scenario, plan=changed(scenario.plan, recompute=word), plans=plans)
