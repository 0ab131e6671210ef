"""The space of plans: what is named loops (`Variant`), what is a number broadcasts (the open mesh of a variant).

A point is a plan. Points that mean the same plan (a kind of context parallelism where cp = 1, a sharding where nothing is
sharded) exist once. What belongs to another axis later (islands, synchronisation) is one more field of a variant if it is a
name, one more entry of `NUMBERS` if it is a number.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, record
from shardmeter.engine.rules import Case, divisors
from shardmeter.engine.sharing import unit
from shardmeter.engine.split import in_sequences
from shardmeter.scenario.choices import ARITHMETIC
from shardmeter.specs import Choices, Island, Plan, Run, Scenario
from shardmeter.strategies.offload import KINDS
from shardmeter.study.planning import words

NUMBERS = ("tp", "cp", "dp_replicate", "ep", "etp", "micro_batch", "seq_len", "global_batch")
"""Axes of an open mesh, in order."""
Mask: TypeAlias = npt.NDArray[np.bool_]
Picked: TypeAlias = tuple[npt.NDArray[np.intp], ...]
"""For every axis of `NUMBERS` the positions of the values taken."""


@record
class Variant:
    """One point of the looped axes, with the open mesh of the others."""

    place: int
    """Which of the islands."""
    plan: Plan
    """Names, pp and virtual stages are set; numbers are placeholders."""
    inside: bool
    """hsdp: dp_shard fills the scale-up domain and dp_replicate is what is left; else dp_shard is."""
    first: int
    """Number of the first point of its mesh in the space."""
    axes: tuple[tuple[float, ...], ...]
    batches: npt.NDArray[np.float64]
    """Sequences of a step, by (sequence length, batch)."""
    others: Mapping[str, tuple[Any, ...]]
    """What the looped axes that decide which points exist could be: sharding, cp_kind, sequence_parallel, async_tp, reshard."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(map(len, self.axes))

    @property
    def size(self) -> int:
        """Points of the mesh, those that mean a plan twice among them."""
        return math.prod(self.shape)


@record
class Space:
    """All variants of a scenario's choices."""

    scenario: Scenario
    choices: Choices
    variants: tuple[Variant, ...]
    part: tuple[float, float] | None = None
    """Where a batch is shared among islands: about how many sequences are this one's, and the most that the least of a plan may
    be. Every plan takes the whole passes of its own that come nearest."""

    @property
    def size(self) -> int:
        """Points of all meshes."""
        last = self.variants[-1] if self.variants else None
        return 0 if last is None else last.first + last.size

    def island(self, variant: Variant) -> Island:
        """Where a variant runs."""
        return self.choices.islands[variant.place]

    def at(self, number: int) -> tuple[Variant, Picked]:
        """The variant and the one position on each axis of a point."""
        where = bisect.bisect_right([one.first for one in self.variants], number) - 1
        variant = self.variants[where]
        positions = np.unravel_index(number - variant.first, variant.shape)
        return variant, tuple(np.array([position]) for position in positions)

    def point(self, number: int) -> Scenario:
        """The scenario of one point, with plain numbers."""
        variant, picked = self.at(number)
        plan, run = laid(self, variant, picked)
        plan = changed(plan, **{name: float(getattr(plan, name)) for name in (*NUMBERS[:6], "dp_shard")})
        if plan.tp == 1.0 and plan.async_tp:
            plan = changed(plan, async_tp=False)
        return changed(
            self.scenario,
            fleet=changed(self.scenario.fleet, islands=(self.island(variant),)),
            plan=plan,
            run=changed(run, seq_len=float(run.seq_len), global_batch=float(run.global_batch)),
            choices=None,
        )


def laid(space: Space, variant: Variant, picked: Picked) -> tuple[Plan, Run]:
    """Plan and run over some values of every axis: an open mesh, in which an axis of one value is a plain number."""
    wide = [axis for axis, positions in enumerate(picked) if len(positions) > 1]
    values: dict[str, Any] = {}
    for axis, (name, positions) in enumerate(zip(NUMBERS, picked, strict=True)):
        some = np.array(variant.axes[axis])[positions]
        values[name] = _along(some, axis, wide) if len(some) > 1 else float(some[0])
    seq, batch = NUMBERS.index("seq_len"), NUMBERS.index("global_batch")
    batches = variant.batches[np.ix_(picked[seq], picked[batch])]
    shape = [len(picked[axis]) for axis in wide]
    both = [size if axis in (seq, batch) else 1 for axis, size in zip(wide, shape, strict=True)]
    values["global_batch"] = batches.reshape(both) if batches.size > 1 else float(batches[0, 0])
    gpus = float(space.island(variant).gpus)
    inner = values["tp"] * variant.plan.pp * values["cp"]
    if variant.inside:
        values["dp_shard"] = float(space.island(variant).tiers[0].size) / (values["tp"] * values["cp"])
        values["dp_replicate"] = gpus / (inner * values["dp_shard"])
    else:
        values["dp_shard"] = gpus / (inner * values["dp_replicate"])
    run = changed(
        space.scenario.run,
        seq_len=values.pop("seq_len"),
        global_batch=values.pop("global_batch"),
        reference=space.scenario.run.reference,
    )
    plan = changed(variant.plan, **values)
    if space.part is not None:
        step, least = unit(plan)
        run = changed(run, global_batch=np.maximum(np.round(space.part[0] / step) * step, least))
    return plan, run


def phased(run: Run) -> Iterator[Run]:
    """The run with the batch and the sequence of each of its phases that has others."""
    for one in run.phases:
        if (one.seq_len, one.global_batch) != (run.seq_len, run.global_batch):
            yield changed(run, seq_len=one.seq_len, global_batch=one.global_batch)


def _along(values: npt.NDArray[np.float64], axis: int, wide: Sequence[int]) -> npt.NDArray[np.float64]:
    return values.reshape([len(values) if one == axis else 1 for one in wide])


def exists(variant: Variant, plan: Plan) -> Any:
    """Where a point of the mesh is a plan of its own: the same plan under another name is a point of that name."""
    spread = np.greater(plan.dp_shard * plan.cp, 1.0)
    found = _sharding_exists(variant, plan, spread)
    several = variant.others
    if len(several["reshard"]) > 1 and plan.reshard != several["reshard"][0]:
        found = found & spread
    if len(several["cp_kind"]) > 1 and plan.cp_kind != several["cp_kind"][0]:
        found = found & np.greater(plan.cp, 1.0)
    for name in ("sequence_parallel", "async_tp"):
        if len(several[name]) > 1 and getattr(plan, name) != several[name][0]:
            found = found & np.greater(plan.tp, 1.0)
    if several["etp"] == ():
        found = found & (np.equal(plan.etp, 1.0) | np.equal(plan.etp, plan.tp))
    return found


def _sharding_exists(variant: Variant, plan: Plan, spread: Any) -> Any:
    """One replica has nothing to shard: then only `none` is a plan, or the first of the words that are asked for."""
    words_, word = variant.others["sharding"], variant.others["word"][0]
    if len(words_) == 1:
        return np.True_
    alone = next((one for one in ("none", "ddp") if one in words_), words_[0])
    if word == "none":
        return np.equal(plan.dp, 1.0)
    if word == "ddp":
        return np.greater(plan.dp, 1.0) | (np.True_ if alone == "ddp" else np.False_)
    if variant.inside:
        return spread & np.greater(plan.dp_replicate, 1.0) if "fsdp" not in words_ else np.False_
    return spread | (np.True_ if alone == word else np.False_)


def space_of(scenario: Scenario, part: tuple[float, float] | None = None) -> Space:
    """The space of a scenario's choices, for the whole batch or a `part` of it (as `Space.part`). Raises nothing: an empty one has no
    variants."""
    choices = scenario.choices
    if choices is None:
        raise ValueError("a scenario without choices has no space")
    made: list[Variant] = []
    first = 0
    for place, island in enumerate(choices.islands):
        axes = _axes(scenario, choices, island)
        batches = _batches(choices, _sized(scenario, choices, island))
        for plan, inside, others in _plans(scenario, choices, island):
            own = dict(axes)
            if inside or (not choices.plan.get("dp_replicate") and others["word"][0] not in ("fsdp", "zero3")):
                own["dp_replicate"] = (1.0,)
            variant = Variant(
                place=place, plan=plan, inside=inside, first=first, batches=batches, others=others,
                axes=tuple(own[name] for name in NUMBERS),
            )  # fmt: skip
            made.append(variant)
            first += variant.size
    return Space(scenario=scenario, choices=choices, variants=tuple(made), part=part)


def _axes(scenario: Scenario, choices: Choices, island: Island) -> dict[str, tuple[float, ...]]:
    """The values of every numeric axis on one island."""
    usual = words.degrees(scenario, island)
    axes = {name: tuple(choices.plan.get(name, ())) or usual[name] for name in usual}
    axes["seq_len"] = choices.seq_len
    axes["global_batch"] = tuple(float(place) for place in range(len(choices.global_batch)))
    pinned = tuple(choices.plan.get("micro_batch", ()))
    batches = () if pinned else np.unique(_batches(choices, _sized(scenario, choices, island)))
    axes["micro_batch"] = pinned or tuple(sorted({one for batch in batches for one in divisors(float(batch))}))
    return axes


def _sized(scenario: Scenario, choices: Choices, island: Island) -> float:
    """GPUs among which a batch in tokens is to divide well: those of each size by itself. Runs of so many steps keep one batch over all
    sizes, for another one is another number of tokens."""
    sizes = choices.islands if scenario.run.steps is not None else (island,)
    return max(float(one.gpus) for one in sizes)


def _batches(choices: Choices, gpus: float) -> npt.NDArray[np.float64]:
    """Sequences of a step by (sequence, batch): a batch in tokens is moved to a number that divides well among so many GPUs."""
    return np.array(
        [
            [
                amount if word == "sequences" else in_sequences(amount, float(seq), gpus)
                for amount, word in choices.global_batch
            ]
            for seq in choices.seq_len
        ]
    )


def batch_on(scenario: Scenario, choices: Choices, island: Island) -> float:
    """The global batch of one of the choices' runs, were this island all that there is: one in tokens depends on its GPUs."""
    run = scenario.run
    seq = choices.seq_len.index(float(run.seq_len))
    own = _batches(choices, _sized(scenario, choices, scenario.fleet.islands[0]))
    place = int(np.argmin(np.abs(own[seq] - float(run.global_batch))))
    return float(_batches(choices, float(island.gpus))[seq, place])


def _plans(
    scenario: Scenario, choices: Choices, island: Island
) -> Iterator[tuple[Plan, bool, Mapping[str, tuple[Any, ...]]]]:
    """Every point of the looped axes: the plan with its names, whether it is hsdp, and what else there was."""
    stack, base = scenario.stack, scenario.plan
    if choices.stated:
        base = changed(
            base, offload=(), recompute="none", schedule="1f1b", virtual_stages=1, cp_kind="ring", async_tp=False
        )

    def of(field: str, *usual: Any) -> tuple[Any, ...]:
        everything = words.everything(field, island) if field in words.NAMED else ()
        return words.pinned(choices, field, usual, everything)

    case = Case(model=scenario.model, island=island, plan=base, run=scenario.run, stack=stack)
    back = base.probes is None
    sharding = of("sharding", *(one for one in words.shardings(stack) if back or one not in words.OF_GRADIENTS))
    arithmetic = {field: of(field, getattr(base, field)) for field in ARITHMETIC}
    parallel = of("sequence_parallel", True)
    chunked = of("async_tp", stack.async_tp)
    kinds = of("cp_kind", "ring")
    reshard = of("reshard", *((True, False) if back else (True,)))
    looped = itertools.product(
        sharding,
        reshard,
        of("recompute", *(words.POLICIES if back else words.POLICIES[:1])),
        of("offload", ()),
        kinds,
        parallel,
        chunked,
        *arithmetic.values(),
    )
    for word, keeps, recompute, offload, kind, sequence, chunk, *rest in looped:
        sharded = word in ("fsdp", "zero3", "hsdp")
        if not sharded and keeps != reshard[0] and len(reshard) > 1:
            continue
        if chunk and not sequence and len(parallel) > 1:
            continue
        named = changed(
            base,
            sharding="fsdp" if word == "hsdp" else word,
            reshard=keeps if sharded else True,
            recompute=recompute,
            offload=tuple(one for one in KINDS if one in offload),
            cp_kind=kind,
            sequence_parallel=sequence,
            async_tp=chunk,
            **dict(zip(arithmetic, rest, strict=True)),
        )
        others = {
            "sharding": sharding, "word": (word,), "reshard": reshard if sharded else (True,), "cp_kind": kinds,
            "sequence_parallel": parallel, "async_tp": chunked, "etp": tuple(choices.plan.get("etp", ())),
        }  # fmt: skip
        for pp, schedule, chunks in _pipelines(choices, case):
            yield changed(named, pp=pp, schedule=schedule, virtual_stages=chunks), word == "hsdp", others


def _pipelines(choices: Choices, case: Case) -> Iterator[tuple[int, str, int]]:
    """Stages, schedule and virtual stages; one stage has no schedule."""
    asked = words.pinned(choices, "schedule", words.schedules(case.stack), words.everything("schedule", case.island))
    chunked = tuple(map(int, choices.plan.get("virtual_stages", ())))
    for pp in map(int, choices.plan.get("pp", ()) or words.stage_counts(case)):
        if pp == 1 and (not chunked or 1 in chunked):
            yield 1, "1f1b", 1
        for schedule in asked if pp > 1 else ():
            for chunks in chunked or words.chunk_counts(schedule, pp, case.slots):
                yield pp, schedule, chunks
