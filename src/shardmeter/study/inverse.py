"""Inverse questions: what each of them varies, which values are legal, and where the memory ends.

Values are evaluated as whole arrays: all of them where they can be listed, else a grid that closes in on the last that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import BadScenario, ShardMeterError, Violation
from shardmeter.core.record import changed, record, stacked, structure
from shardmeter.core.units import Count
from shardmeter.engine.constraints import CONSTRAINTS, masks, violations
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.rules import Case, cut, divisors
from shardmeter.families import family, given_sequence
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.fleet import Fleet, Island
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.study import moves
from shardmeter.study.relief import batch_unsaid

Array: TypeAlias = npt.NDArray[np.float64]

LONGEST = 2.0**40
"""Tokens of the longest sequence that is tried."""
LARGEST = 2.0**40
"""Sequences of the largest micro-batch that is tried."""
MOST_LISTED = 2.0**16
"""Multiples of the unit that are tried where sequences have a least length."""
MOST_GPUS = 2.0**17
"""GPUs that are tried where no global batch says how many replicas there can be."""
GRID = 64
"""Values of one evaluation while a grid closes in."""
LISTED = 12
"""Legal values that a sentence names."""


@record
class Legal:
    """The legal values of a question, in words and in numbers: all of them, ascending, or the multiples of `unit` up to `most`."""

    says: str
    values: tuple[float, ...] | None = None
    unit: float = 1.0
    most: float = math.inf


@record
class Question:
    """What is asked: a number of the scenario, whether the largest or the fewest is wanted, and how it is set."""

    name: str
    noun: str
    unit: str
    fewest: bool
    laid: Callable[[Scenario, Any], Scenario]
    """The scenario at a value, or at an array of them. Its network is the scenario's own: memory does not know it."""
    legal: Callable[[Scenario], Legal]
    kept: Callable[[Scenario], tuple[str, ...]]
    """What stays as it is and what follows, a sentence each."""
    forgets: tuple[str, ...]
    """How assumptions of the scenario start that the question overrules."""
    begins: frozenset[str]
    """Rules that the scenario may break as it was given: what they look at is what is asked for."""


def peaks(question: Question, scenario: Scenario, values: Array) -> Array:
    """Bytes of the fullest accelerator at every value; without end where what is counted exactly is more than it has."""
    laid = question.laid(scenario, values)
    estimate = evaluate(laid.model, laid.fleet.islands[0], laid.plan, laid.run, laid.stack)
    held = np.where(np.greater(estimate.memory_exact, estimate.memory_limit), np.inf, estimate.memory_peak)
    return np.broadcast_to(np.asarray(held, dtype=float), values.shape)


def search(question: Question, scenario: Scenario, legal: Legal, limits: Array) -> list[float | None]:
    """For each limit in bytes, the largest (or fewest) legal value within it; None where there is none."""
    if legal.values is None:
        most = math.floor(legal.most / legal.unit)
        last = boundary(lambda steps: peaks(question, scenario, steps * legal.unit), limits, most)
        return [float(step) * legal.unit if step else None for step in last]
    values = np.array(legal.values)
    held = peaks(question, scenario, values)
    within = [values[held <= limit] for limit in limits]
    return [float(some[0 if question.fewest else -1]) if some.size else None for some in within]


def boundary(peak: Callable[[Array], Array], limits: Array, most: float) -> Array:
    """For each limit, the largest whole number from 1 to `most` whose peak is within it; 0 where that of 1 is not.

    `peak` does not fall. A grid over all magnitudes first, then grids between the last that fits and the first that does not,
    those of all limits in one call."""
    grid = np.unique(np.floor(np.geomspace(1.0, most, GRID)))
    within = peak(grid)[None, :] <= limits[:, None]
    low = np.max(np.where(within, grid, 0.0), axis=1)
    high = np.min(np.where(within, most + 1.0, grid), axis=1)
    parts = np.arange(1.0, GRID) / GRID
    while np.any(high - low > 1.0):
        between = np.floor(low[:, None] + (high - low)[:, None] * parts)
        within = (peak(np.maximum(between, 1.0)) <= limits[:, None]) | (between <= low[:, None])
        low, high = (
            np.max(np.where(within, between, low[:, None]), axis=1),
            np.min(np.where(within, high[:, None], between), axis=1),
        )
    return np.asarray(low)


def placed(question: Question, scenario: Scenario, value: float) -> Scenario:
    """The scenario at one value, its network included. Raises ShardMeterError for GPUs that no island has (no legal value does)."""
    laid = question.laid(scenario, value)
    island = moves.resized(scenario.fleet.islands[0], float(laid.fleet.islands[0].gpus))
    if island is None:
        raise ShardMeterError(f"no island of {float(laid.fleet.islands[0].gpus):g} GPUs can be built")
    return changed(laid, fleet=Fleet(islands=(island,)))


Row: TypeAlias = tuple[float, Scenario, Estimate]


def evaluated(question: Question, scenario: Scenario, values: Array) -> list[Row]:
    """(value, scenario, estimate with arrays cut to it) of every value: one evaluation for all whose network has equal tiers."""
    made = [placed(question, scenario, float(value)) for value in values]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, one in enumerate(made):
        groups.setdefault(structure(one.fleet.islands[0]), []).append(position)
    rows: dict[int, Row] = {}
    for positions in groups.values():
        some = [made[position] for position in positions]
        island: Island = stacked([one.fleet.islands[0] for one in some])
        plan: Plan = stacked([one.plan for one in some])
        run: Run = stacked([one.run for one in some])
        together = evaluate(scenario.model, island, plan, run, scenario.stack)
        for place, position in enumerate(positions):
            rows[position] = (float(values[position]), made[position], _at(together, place, len(some)))
    return [rows[position] for position in range(len(made))]


def _at(estimate: Estimate, place: int, count: int) -> Estimate:
    """One place of an estimate of arrays."""

    def one(value: Any) -> float:
        return float(np.broadcast_to(np.asarray(value, dtype=float), (count,))[place])

    numbers = (
        "step_time", "memory_allocated", "memory_peak", "memory_limit", "tokens", "samples", "model_flops", "hardware_flops",
        "compute_seconds", "gpus", "peak_flops",
    )  # fmt: skip
    return changed(
        estimate,
        terms=tuple(changed(t, seconds=one(t.seconds), hidden=one(t.hidden)) for t in estimate.terms),
        memory=tuple(changed(t, size=one(t.size)) for t in estimate.memory),
        **{name: one(getattr(estimate, name)) for name in numbers},
    )


def neighbours(legal: Legal, value: float) -> Array:
    """Legal values around one: three on either side, or, where they cannot be listed, the next ones and doublings."""
    if legal.values is not None:
        at = legal.values.index(value)
        return np.array(legal.values[max(at - 3, 0) : at + 4])
    unit = legal.unit
    power = unit * 2.0 ** math.floor(math.log2(value / unit))
    near = {power / 2.0, power, rounded(legal, value) or value, value, value + unit, 2.0 * power}
    return np.array(sorted(one for one in near if unit <= one <= legal.most))


def rounded(legal: Legal, value: float) -> float | None:
    """The largest legal multiple of 1024 up to a value; None where there is none."""
    step = float(math.lcm(int(legal.unit), 1024))
    return math.floor(value / step) * step or None


def beyond(question: Question, legal: Legal, value: float) -> float | None:
    """The next legal value that asks for more memory, as one names it: a round one where all multiples of a unit are legal.
    None where there is none."""
    if legal.values is None:
        step = 1024.0 if question.unit == "tokens" else 1.0
        step = float(math.lcm(int(legal.unit), int(step)))
        further = [math.floor(value / step) * step + step, value + legal.unit]
        return next((one for one in further if one <= legal.most), None)
    listed = [one for one in legal.values if (one < value if question.fewest else one > value)]
    return None if not listed else listed[-1] if question.fewest else listed[0]


def mildest(question: Question, legal: Legal) -> float:
    """The legal value that asks for the least memory."""
    if legal.values is None:
        return legal.unit
    return legal.values[-1 if question.fewest else 0]


def _laid(scenario: Scenario, plan: Plan) -> Scenario:
    """The scenario with a plan; a global batch that was not said follows it."""
    run = scenario.run
    if batch_unsaid(scenario):
        run = changed(run, global_batch=plan.dp * plan.micro_batch)
    return changed(scenario, plan=plan, run=run)


def _with_micro_batch(scenario: Scenario, value: Count) -> Scenario:
    return _laid(scenario, changed(scenario.plan, micro_batch=value))


def _with_seq(scenario: Scenario, value: Count) -> Scenario:
    return changed(scenario, run=changed(scenario.run, seq_len=value))


def _with_gpus(scenario: Scenario, value: Count) -> Scenario:
    plan, island = scenario.plan, scenario.fleet.islands[0]
    made = _laid(scenario, changed(plan, dp_shard=value / (plan.tp * plan.pp * plan.cp), dp_replicate=1.0))
    return changed(made, fleet=Fleet(islands=(changed(island, nodes=value, gpus_per_node=1.0),)))


def _held(question: Question, scenario: Scenario, values: Array) -> tuple[float, ...]:
    """Those of some values that keep every rule, ascending."""
    laid = question.laid(scenario, values)
    found = np.ones(values.shape, dtype=bool)
    for mask in masks(laid.model, laid.fleet.islands[0], laid.plan, laid.run, laid.stack).values():
        found = found & mask
    return tuple(float(value) for value in values[found])


def _must_hold(question: Question, scenario: Scenario, mildest: float) -> None:
    """Raises BadScenario with the rules of `begins` that even the mildest value breaks: a batch that no legal value divides."""
    bad = broken(question.laid(scenario, mildest), question.begins)
    if bad:
        raise BadScenario(f"solve {question.name}: no {question.noun} is legal", bad)


def broken(scenario: Scenario, names: Collection[str]) -> list[Violation]:
    """What of some rules a scenario breaks."""
    others = {one.name for one in CONSTRAINTS if one.name not in names}
    island = scenario.fleet.islands[0]
    return violations(scenario.model, island, scenario.plan, scenario.run, scenario.stack, skip=others)


def _micro_batches(scenario: Scenario) -> Legal:
    plan, batch = scenario.plan, float(scenario.run.global_batch)
    _must_hold(MICRO_BATCH, scenario, 1.0)
    if batch_unsaid(scenario):
        return Legal(says="every whole number (the global batch follows, as none was said)", most=LARGEST)
    each = batch / float(plan.dp)
    values = _held(MICRO_BATCH, scenario, np.array(_divisors(each, "global_batch/dp")))
    says = f"what divides global_batch/dp = {batch:g}/{float(plan.dp):g} = {each:g}"
    if len(values) < len(divisors(each)):
        says += f" and leaves schedule {plan.schedule} the micro-batches that it needs"
    return Legal(says=f"{says}: {_named(values)}", values=values)


def _has_no_sequence_of_its_own(scenario: Scenario) -> None:
    """Raises ShardMeterError for a model whose images give the sequence."""
    own = given_sequence(scenario.model)
    if own is not None:
        name = scenario.model.name
        raise ShardMeterError(
            f"solve seq: images give {name} its sequence of {float(own):g} tokens; another size is said of the model, as in "
            f"model: {{base: {name}, image_size: 384}}"
        )


def _seq_lens(scenario: Scenario) -> Legal:
    _has_no_sequence_of_its_own(scenario)
    model, plan = scenario.model, scenario.plan
    case = Case(model=model, island=scenario.fleet.islands[0], plan=plan, run=scenario.run, stack=scenario.stack)
    unit = float(cut(case))
    says = "every whole number" if unit == 1.0 else f"multiples of {unit:g}, by which tp and cp cut a sequence"
    if model.family == "multimodal":
        images = float(family("multimodal").inside(model))
        values = np.arange(images // unit + 1.0, MOST_LISTED) * unit
        return Legal(says=f"{says}, above the {images:g} tokens that images fill", values=tuple(values.tolist()))
    if model.positions == "learned" and model.context > 0:
        return Legal(
            says=f"{says}, up to the {model.context:g} learned positions", unit=unit, most=float(model.context)
        )
    return Legal(says=says, unit=unit, most=LONGEST)


def _sizes(scenario: Scenario) -> Legal:
    plan, island = scenario.plan, scenario.fleet.islands[0]
    inner, node = float(plan.tp * plan.pp * plan.cp), moves.node_size(island)
    says = f"tp·pp·cp = {inner:g} times a dp_shard"
    if batch_unsaid(scenario):
        step = math.lcm(int(inner), int(node))
        inside = np.arange(inner, node + 1.0, inner)
        sizes = np.union1d(inside, np.arange(step, max(MOST_GPUS, step) + 1.0, step))
    else:
        _must_hold(GPUS, scenario, inner)
        each = float(scenario.run.global_batch) / float(plan.micro_batch)
        sizes = inner * np.array(_divisors(each, "global_batch/micro_batch"))
        says += f" that divides global_batch/micro_batch = {each:g}"
    values = _held(GPUS, scenario, sizes[_buildable(island, sizes)])
    if not values:
        raise ShardMeterError(
            f"solve gpus: no number of GPUs is legal: {says}; part of one node of {node:g}, or whole nodes"
        )
    named = _named(values) if values[-1] < MOST_GPUS else f"{_named(values)} (tried)"
    return Legal(says=f"{says}; part of one node of {node:g}, or whole nodes: {named}", values=values)


def _buildable(island: Island, gpus: Array) -> npt.NDArray[np.bool_]:
    """Where `moves.resized` gives an island."""
    node = moves.node_size(island)
    found: npt.NDArray[np.bool_] = (gpus <= node) | (np.mod(gpus, node) == 0.0)
    for tier in island.tiers[1:-1]:
        found = found & ((gpus <= tier.size) | (np.mod(gpus, tier.size) == 0.0))
    if len(island.tiers) == 1 and island.outside is None:
        found = found & (gpus <= island.accelerator.scale_up_domain)
    return found


def _divisors(value: float, what: str) -> list[float]:
    found = divisors(value)
    if not found:
        raise ShardMeterError(f"{what} = {value:g} is too large to list what divides it; say a smaller global batch")
    return found


def _named(values: tuple[float, ...]) -> str:
    """Legal values as a reader lists them, the first of many."""
    if len(values) <= LISTED:
        return ", ".join(f"{value:,.0f}" for value in values)
    return f"{', '.join(f'{value:,.0f}' for value in values[:LISTED])}, … up to {values[-1]:,.0f}"


def _batch_kept(scenario: Scenario, where: str = "") -> str:
    """What becomes of the global batch; one that was said in tokens had to be rounded for the plan as it was given."""
    if batch_unsaid(scenario):
        return "global_batch follows as dp·micro_batch (none was said)"
    rounded = next((text for text in scenario.assumptions if text.startswith(_BATCH)), "").partition(": ")[2]
    kept = f"global_batch kept at {counted(float(scenario.run.global_batch), 'sequences')}{where}"
    return f"{kept}: {rounded}" if rounded else kept


def _kept_gpus(scenario: Scenario) -> tuple[str, ...]:
    plan = scenario.plan
    inner = f"tp·pp·cp = {float(plan.tp):g}·{plan.pp}·{float(plan.cp):g} kept, dp_shard follows the GPUs"
    fewer = (
        ()
        if plan.dp_replicate == 1
        else (f"dp_replicate = 1 instead of {float(plan.dp_replicate):g}: replicas save no memory",)
    )
    return (inner, *fewer, _batch_kept(scenario))


def counted(value: float, unit: str) -> str:
    """`2 sequences`, `1 sequence`."""
    return f"{value:,.0f} {unit.removesuffix('s') if value == 1 else unit}"


def memory_limit(scenario: Scenario) -> float:
    """Bytes of one accelerator."""
    return float(scenario.fleet.islands[0].accelerator.memory)


_BATCH = "global_batch ="
_OF_BATCH = frozenset({"global_batch", "interleaved_rounds"})
"""Rules that the number of micro-batches must keep."""
MICRO_BATCH = Question(
    name="micro-batch", noun="micro-batch", unit="sequences", fewest=False, laid=_with_micro_batch, legal=_micro_batches,
    kept=lambda scenario: (_batch_kept(scenario),), forgets=("micro_batch =", _BATCH), begins=_OF_BATCH,
)  # fmt: skip
SEQ = Question(
    name="seq", noun="sequence", unit="tokens", fewest=False, laid=_with_seq, legal=_seq_lens,
    kept=lambda scenario: (_batch_kept(scenario, ", whatever the length"),), forgets=("seq_len =", _BATCH),
    begins=frozenset({"sequence", "context"}),
)  # fmt: skip
GPUS = Question(
    name="gpus", noun="number of GPUs", unit="GPUs", fewest=True, laid=_with_gpus, legal=_sizes, kept=_kept_gpus,
    forgets=("dp_shard =", "dp_replicate =", "nodes =", "gpus_per_node =", _BATCH),
    begins=_OF_BATCH,
)  # fmt: skip
QUESTIONS = {question.name: question for question in (MICRO_BATCH, SEQ, GPUS)}
