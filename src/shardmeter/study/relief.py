"""What would relieve a plan, and what would make it fit: changes that are evaluated, never rules of thumb."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.units import GIB
from shardmeter.engine.constraints import violations
from shardmeter.engine.evaluate import evaluate, memory_peak
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Island
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.study import moves
from shardmeter.study.moves import Laid, Move

PLAN, HARDWARE = "plan", "hardware"
SET, BOUGHT, SUPPOSED = "set", "bought", "supposed"
"""How a change is had, the nearest first: it is set in the plan; it is bought (a faster fabric, a wider line); it is only supposed, as
nobody sells it alone (twice the memory bandwidth of an accelerator, half a round trip)."""
REACH = (SET, BOUGHT, SUPPOSED)
WORTH = 0.01
"""Share of a step below which a gain is not worth naming."""
UNSAID_BATCH, UNSAID_SHARES = "global_batch = micro_batch", "one micro-batch for every data-parallel rank (left out)"
"""How the assumption starts that a default global batch leaves behind, and how it ends where islands share it."""
WORDS = {
    "micro_batch": "micro-batch", "virtual_stages": "virtual stages", "reduce_dtype": "gradients reduced in",
    "recompute": "recompute", "optimizer": "optimizer", "sharding": "",
    "sync.together": "passes side by side",
}  # fmt: skip
WAYS, FAR_WAYS = 8, 3
"""Ways out that are listed: of one or two changes, and of all together."""


@record
class Outcome:
    """One change, evaluated."""

    reach: str
    """One of REACH."""
    says: str
    sets: tuple[str, ...]
    """`a.b=VALUE` texts that make the change in the scenario; empty where a line cannot say it."""
    step_time: float
    tokens_per_s: float
    peak: float
    gpus: float
    fits: bool
    gain: float
    """Share of the time per token that the change saves; negative where it costs."""
    trains_alike: bool = True
    """False where the change touches the arithmetic of the optimizer."""

    @property
    def kind(self) -> str:
        """Of the plan, or of the hardware."""
        return PLAN if self.reach == SET else HARDWARE

    def to_dict(self) -> dict[str, Any]:
        """The entry of the JSON answer."""
        return {
            "change": self.says,
            "set": list(self.sets),
            "kind": self.kind,
            "reach": self.reach,
            "step_time_s": self.step_time,
            "tokens_per_s": self.tokens_per_s,
            "gain": self.gain,
            "memory_peak_gib": self.peak / GIB,
            "gpus": self.gpus,
            "fits": self.fits,
        }


def relief(scenario: Scenario, estimate: Estimate) -> tuple[Outcome, ...]:
    """Every legal single change of the plan and of the hardware, in the order of REACH, the largest gain of each first."""
    plan_moves = (
        *(moves.micro_batch(factor) for factor in (2.0, 0.5)),
        *(moves.side_by_side(factor) for factor in (2.0, 0.5)),
        *moves.recompute_steps(scenario.plan),
        *(moves.sharding(name) for name in ("zero1", "zero2", "fsdp", "hsdp")),
        moves.keep_gathered,
        *(moves.degree(axis, factor) for axis in ("tp", "pp") for factor in (2.0, 0.5)),
        moves.chunks,
        moves.fewer_chunks,
        moves.narrow_reduction,
    )
    hardware = (
        (BOUGHT, "twice the fabric bandwidth", moves.twice_fabric),
        (SUPPOSED, "twice the scale-up bandwidth", moves.twice_scale_up),
        (SUPPOSED, "twice the memory bandwidth", moves.twice_memory),
    )
    trial = _Trial(scenario, estimate)
    found = [
        *trial.all((move,) for move in plan_moves),
        *(trial.one((move,), says, reach) for reach, says, move in hardware),
    ]
    return ordered(one for one in found if one is not None)


def ways_out(scenario: Scenario, estimate: Estimate) -> tuple[Outcome, ...]:
    """What makes a plan fit: single changes; pairs where no single one does; all savings together where no pair does.

    The fastest first; after them those with another optimizer, and those on more GPUs last."""
    trial = _Trial(scenario, estimate, fitting=True)
    singles = _savings(scenario.plan)
    found = _fitting(trial.all((move,) for move in singles))
    if not found:
        found = _fitting(trial.all(itertools.combinations(singles, 2)))
    most = WAYS
    for times, small in itertools.product((1.0, 2.0, 4.0, 8.0, 16.0, 32.0), (False, True)):
        if not found:
            found, most = _fitting(trial.all(_everything(times, small))), FAR_WAYS
    gpus = float(estimate.gpus)
    return tuple(sorted(found, key=lambda one: (max(one.gpus, gpus), not one.trains_alike, -one.gain)))[:most]


def advice(found: Sequence[Outcome], ways: Sequence[Outcome] = ()) -> str:
    """The best change of the plan as a sentence; of the hardware where no plan helps. What does not fit has to fit first."""
    if ways:
        return f"it does not fit: {ways[0].says} makes it fit ({_options(ways[0].sets)})"
    plans, machines = best(found, PLAN, 1), best(found, HARDWARE, 1)
    if plans:
        return _sentence(plans[0])
    tried = sum(1 for one in found if one.kind == PLAN)
    none = f"none of {tried} single changes of the plan that were tried saves 1 % and fits"
    return f"{none}; {_sentence(machines[0])}" if machines else none


def ordered(found: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """What is had the easiest first, and of what is had alike the largest gain."""
    return tuple(sorted(found, key=lambda one: (REACH.index(one.reach), -one.gain)))


def best(found: Iterable[Outcome], kind: str, most: int) -> tuple[Outcome, ...]:
    """The first of a kind that fit and are worth naming, of those that `ordered` gives."""
    return tuple(one for one in found if one.kind == kind and one.fits and one.gain >= WORTH)[:most]


def batch_unsaid(scenario: Scenario) -> bool:
    """Whether the global batch is a default, which follows the plan."""
    return any(text.startswith(UNSAID_BATCH) or text.endswith(UNSAID_SHARES) for text in scenario.assumptions)


def _sentence(one: Outcome) -> str:
    sets = f" ({_options(one.sets)})" if one.sets and one.kind == PLAN else ""
    return f"{one.says} {'saves' if one.kind == PLAN else 'would save'} {100 * one.gain:.1f} % of the step{sets}"


def _options(sets: tuple[str, ...]) -> str:
    return " ".join(f"--set {shlex.quote(text)}" for text in sets)


def _savings(plan: Plan) -> list[Move]:
    """Single changes that may lower the peak."""
    at = moves.LADDER.index(plan.recompute) if plan.recompute in moves.LADDER else 0
    found = [moves.recompute(policy) for policy in moves.LADDER[at + 1 :]]
    micro = float(plan.micro_batch)
    while micro >= 2.0 and micro % 2.0 == 0.0:
        micro /= 2.0
        found.append(moves.micro_batch(micro / float(plan.micro_batch)))
    found += moves.fewer_side_by_side(plan)
    found += [moves.sharding(name) for name in ("fsdp", "zero2", "zero1")]
    if not plan.reshard:
        found.append(moves.keep_gathered)
    found.append(moves.small_states)
    found += [moves.degree("tp", factor) for factor in (2.0, 4.0, 8.0)]
    found += [moves.degree("pp", factor) for factor in (2.0, 4.0)]
    found.append(moves.more_nodes(2.0))
    return found


def _everything(nodes: float, small: bool) -> Iterable[tuple[Move, ...]]:
    """All savings together, with larger tp and pp, on so many times the nodes; with `small` optimizer states of 8 bits."""
    base: tuple[Move, ...] = (moves.sharding("fsdp"), moves.recompute("full"), _smallest)
    base = (*base, moves.small_states) if small else base
    none: tuple[Move, ...] = ()
    wider = (moves.more_nodes(nodes),) if nodes > 1 else none
    for tp, pp in itertools.product((1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0)):
        cut = (moves.degree("tp", tp),) if tp > 1 else none
        cut += (moves.degree("pp", pp),) if pp > 1 else none
        yield (*wider, *cut, *base)


def _smallest(plan: Plan, island: Island) -> Laid | None:
    alone = moves.side_by_side(1.0 / float(plan.sync.together))(plan, island)
    least = changed(plan if alone is None else alone[0], micro_batch=1.0)
    return None if least == plan else (least, island)


def _fitting(found: Iterable[Outcome | None]) -> list[Outcome]:
    return [one for one in found if one is not None and one.fits]


class _Trial:
    """Evaluates moves on one scenario; a plan that was tried already, or is the scenario's own, gives None. So does one that does not fit
    where only those that do are asked for (`fitting`): its step is not priced."""

    def __init__(self, scenario: Scenario, estimate: Estimate, *, fitting: bool = False) -> None:
        self.fitting = fitting
        self.scenario, self.island = scenario, scenario.fleet.islands[0]
        self.per_token = float(estimate.step_time / estimate.tokens)
        self.follows = batch_unsaid(scenario)
        self.known = moves.catalog_row(self.island.accelerator)
        self.tried: set[tuple[Plan, float]] = {(scenario.plan, float(self.island.gpus))}

    def all(self, combinations: Iterable[tuple[Move, ...]]) -> Iterable[Outcome | None]:
        """Every combination of plan moves, in order."""
        return (self.one(combination) for combination in combinations)

    def one(self, combination: tuple[Move, ...], says: str = "", reach: str = SET) -> Outcome | None:
        """One combination; `says` names a change of the hardware, `reach` how it is had. A move that means nothing is left out of several."""
        plan, island = self.scenario.plan, self.island
        for move in combination:
            moved = move(plan, island)
            if moved is not None:
                plan, island = moved
        plan = moves.resolved(plan, float(self.scenario.plan.tp), self.scenario.stack)
        key = (plan, float(island.gpus))
        if (key in self.tried and not says) or (plan, island) == (self.scenario.plan, self.island):
            return None
        self.tried.add(key)
        run = self._run(plan)
        s = self.scenario
        if violations(s.model, island, plan, run, s.stack):
            return None
        if self.fitting and float(memory_peak(s.model, plan, run, s.stack)) > float(island.accelerator.memory):
            return None
        return self._outcome(plan, island, run, says, reach)

    def _run(self, plan: Plan) -> Run:
        run = self.scenario.run
        return changed(run, global_batch=float(plan.dp * plan.micro_batch)) if self.follows else run

    def _outcome(self, plan: Plan, island: Island, run: Run, says: str, reach: str) -> Outcome:
        s = self.scenario
        estimate = evaluate(s.model, island, plan, run, s.stack)
        step, peak = float(estimate.step_time), float(estimate.memory_peak)
        return Outcome(
            reach=reach,
            says=says or self._says(plan, island, run),
            sets=self._sets(plan, island),
            step_time=step,
            tokens_per_s=float(estimate.tokens) / step,
            peak=peak,
            gpus=float(island.gpus),
            fits=peak <= float(estimate.memory_limit),
            trains_alike=plan.optimizer == s.plan.optimizer,
            gain=1.0 - step / float(estimate.tokens) / self.per_token,
        )

    def _sets(self, plan: Plan, island: Island) -> tuple[str, ...]:
        own = moves.plan_fields(self.scenario.plan, plan)
        if island.gpus != self.island.gpus:  # dp_shard may be said in the scenario
            own |= {"dp_shard": f"{float(plan.dp_shard):g}"}
        texts = [f"plan.{name}={value}" for name, value in own.items()]
        if island != self.island:
            text = moves.island_text(island, self.known)
            if text is None:
                return ()
            texts.append(f"fleet.islands.0={text}")
        return tuple(texts)

    def _says(self, plan: Plan, island: Island, run: Run) -> str:
        own = moves.plan_fields(self.scenario.plan, plan)
        more = island.gpus != self.island.gpus
        words = [f"{float(island.gpus):,.0f} GPUs"] if more else []
        words += [f"{WORDS.get(name, name)} {value}".strip() for name, value in own.items()]
        if run.global_batch != self.scenario.run.global_batch:
            words.append(f"global batch {float(run.global_batch):,.0f}")
        return ", ".join(words)
