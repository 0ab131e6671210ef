"""Many scenarios together: those that differ in numbers of the plan and the run alone are laid out as arrays.

What a number does to the rest of a scenario (what is left for dp_shard, a global batch that was not said) is said here once
for arrays and in `scenario.resolve` for one scenario; both are held to each other bit for bit, reasons too
(`tests/law/test_sweep.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from shardmeter.core.errors import ShardMeterError, Violation
from shardmeter.core.record import changed, field_names, record
from shardmeter.engine.constraints import CONSTRAINTS
from shardmeter.engine.rules import Case
from shardmeter.families import given_sequence
from shardmeter.scenario.layout import LOOKS_AT, Parts, laid_plan, laid_run, whole_batch
from shardmeter.scenario.schema import PlanInput, RunInput
from shardmeter.specs import Plan, Run

Array: TypeAlias = npt.NDArray[np.float64]
T = TypeVar("T")

_PLAN = ("tp", "cp", "ep", "etp", "expert_skew", "dp_shard", "dp_replicate", "micro_batch")
_RUN = ("seq_len", "global_batch", "tokens", "steps")
MOVING = (*(f"plan.{name}" for name in _PLAN), *(f"run.{name}" for name in _RUN))
"""Numbers that change no other part of a scenario than the plan and the run."""


def numbers(field: str, values: Sequence[Any]) -> Array | None:
    """The values of a field as it reads them (NaN = auto); None where the field, or one of the values, cannot be in an
    array."""
    if field not in MOVING:
        return None
    part, _, name = field.partition(".")
    shape: type[PlanInput | RunInput] = PlanInput if part == "plan" else RunInput
    made = np.empty(len(values))
    for position, value in enumerate(values):
        try:
            number = getattr(shape.model_validate({name: value}), name)
        except ValidationError:
            return None
        if isinstance(number, tuple):
            number = number[0] if number[1] == ("sequences" if name == "global_batch" else name) else None
        if number == "auto":
            number = np.nan
        if not isinstance(number, float):
            return None
        made[position] = number
    return made


def reason(error: ShardMeterError) -> str:
    """The first thing that is wrong with a scenario, in one line."""
    return _says(error.violations[0]) if error.violations else error.message


def _says(violation: Violation) -> str:
    return f"{violation.field}: {violation.says}" if violation.field else violation.says


@record
class Together:
    """Plans and runs of `count` scenarios: numbers are arrays of that length, or one number for all of them."""

    plan: Plan
    run: Run
    reasons: npt.NDArray[np.object_]
    """Why each is illegal; "" where it is legal."""


def lay_out(parts: Parts, moving: Mapping[str, Array]) -> Together | None:
    """Scenarios of the same parts (without a fault) whose `moving` numbers are these; tp is 1 in all of them or in
    none.

    None where a number does more than arrays can follow (several islands, hsdp, an image's own sequence, documents that a
    sequence must hold): such scenarios are resolved one by one."""
    own = {name: moving[f"plan.{name}"] for name in _PLAN if f"plan.{name}" in moving}
    asked = {name: moving[f"run.{name}"] for name in _RUN if f"run.{name}" in moving}
    said = parts.said | {name: _first(values) for name, values in own.items()}
    if _follows_more(parts, said, asked):
        return None
    count = len(next(iter(moving.values()))) if moving else 1
    first, whole, found = laid_plan(parts, dict(said))
    run, before, after = laid_run(parts, said, first)
    plan, left_over = _degrees(parts, said, own, first)
    run, few = _batches(parts, asked, run, plan)
    at_once = found.violations[:1] if len(found.violations) > (0 if whole else 1) else []
    if few is None:
        at_once = at_once or before.violations[:1]
        few = np.asarray(False)
    reasons = np.full(count, _says(at_once[0]) if at_once else "", dtype=object)
    if not at_once:
        left_over, few = np.broadcast_to(left_over, count), np.broadcast_to(few, count) & ~left_over
        broken = np.where(left_over | few, -1, _broken(parts, plan, run, count))
        for rule in np.unique(broken[broken >= 0]):
            _explain(reasons, np.flatnonzero(broken == rule), moving, parts, plan, run, int(rule))
        _explain_rest(reasons, np.flatnonzero(left_over), parts, said, own)
        _explain_few(reasons, np.flatnonzero(few), parts, plan, run)
        reasons[reasons == ""] = _says(after.violations[0]) if after.violations else ""
    return Together(plan=plan, run=run, reasons=reasons)


def _first(values: Array) -> float | str:
    return "auto" if np.isnan(values[0]) else float(values[0])


def _follows_more(parts: Parts, said: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether numbers of the plan and the run decide more than `lay_out` follows."""
    sequence = "seq_len" in asked and (
        parts.run.document_len is not None or (parts.model is not None and given_sequence(parts.model) is not None)
    )
    return not parts.is_one or said.get("sharding") == "hsdp" or sequence or parts.run.phases is not None


def _degrees(
    parts: Parts, said: Mapping[str, Any], own: Mapping[str, Array], first: Plan
) -> tuple[Plan, npt.NDArray[np.bool_]]:
    """The plan with its numbers, dp_shard filled where it is auto; and where that leaves no whole number."""
    plan = changed(first, **{name: values for name, values in own.items() if name != "dp_shard"})
    rest = np.asarray(float(parts.island.gpus) / (plan.tp * plan.pp * plan.cp * plan.dp_replicate))
    if "dp_shard" in own:
        given, auto = own["dp_shard"], np.isnan(own["dp_shard"])
    else:
        auto = np.asarray(said.get("dp_shard", "auto") == "auto")
        given = np.asarray(first.dp_shard, dtype=float)
    whole = (rest >= 1.0) & (rest == np.round(rest))
    shard = np.where(auto, np.where(whole, rest, 1.0), given)
    return changed(plan, dp_shard=shard if shard.ndim else float(shard)), auto & ~whole


def _batches(
    parts: Parts, asked: Mapping[str, Array], run: Run, plan: Plan
) -> tuple[Run, npt.NDArray[np.bool_] | None]:
    """The run with its numbers, the global batch filled where it follows the plan; where its batch in tokens is too few
    (None: it is given in sequences, or not at all)."""
    run, said = changed(run, **asked), parts.run.global_batch
    if "global_batch" in asked or (said is not None and said[1] == "sequences"):
        return run, None
    unit = plan.dp * plan.micro_batch
    if said is None:
        return changed(run, global_batch=unit), None
    few = np.asarray(said[0] / run.seq_len < unit / 2)
    return changed(run, global_batch=whole_batch(said[0], run.seq_len, unit)), few


def _broken(parts: Parts, plan: Plan, run: Run, count: int) -> npt.NDArray[np.int64]:
    """The position in CONSTRAINTS of the first rule that each scenario breaks; −1 where it keeps all."""
    case = _case(parts, plan, run)
    found = np.full(count, -1)
    with np.errstate(all="ignore"):
        for position, constraint in enumerate(CONSTRAINTS):
            bad = ~(np.asarray(constraint.slack(case)) >= 0.0)
            if np.any(bad):
                found[np.broadcast_to(bad, count) & (found < 0)] = position
    return found


def _case(parts: Parts, plan: Plan, run: Run) -> Case:
    if parts.model is None or parts.stack is None:
        raise ValueError("parts with a fault cannot be laid out")
    return Case(model=parts.model, island=parts.island, plan=plan, run=run, stack=parts.stack)


def _explain(
    reasons: npt.NDArray[np.object_],
    rows: npt.NDArray[np.int64],
    moving: Mapping[str, Array],
    parts: Parts,
    plan: Plan,
    run: Run,
    rule: int,
) -> None:
    """Say of some rows which rule they break with which numbers; once for all that are alike in what the rule looks
    at."""
    constraint = CONSTRAINTS[rule]
    paths = LOOKS_AT.get(constraint.name)
    fields = [field for field in moving if not paths or tuple(field.split(".")) in paths]
    for some in _alike(rows, [moving[field] for field in fields]):
        at = int(some[0])
        field, says, _ = constraint.says(_case(parts, _one(plan, at), _one(run, at)))
        reasons[some] = _says(Violation(field=field, says=says))


def _one(instance: T, at: int) -> T:
    """A plan or a run with one number in the place of every array."""
    values = {name: getattr(instance, name) for name in field_names(type(instance))}  # type: ignore[arg-type]
    return changed(instance, **{n: float(value[at]) for n, value in values.items() if isinstance(value, np.ndarray)})


def _explain_rest(
    reasons: npt.NDArray[np.object_],
    rows: npt.NDArray[np.int64],
    parts: Parts,
    said: Mapping[str, Any],
    own: Mapping[str, Array],
) -> None:
    """Say of some rows that their degrees leave no whole dp_shard."""
    fields = [name for name in ("tp", "cp", "dp_replicate") if name in own]
    for some in _alike(rows, [own[name] for name in fields]):
        one = dict(said) | {name: float(own[name][some[0]]) for name in fields} | {"dp_shard": "auto"}
        reasons[some] = _says(laid_plan(parts, one)[2].violations[0])


def _explain_few(
    reasons: npt.NDArray[np.object_], rows: npt.NDArray[np.int64], parts: Parts, plan: Plan, run: Run
) -> None:
    """Say of some rows that their batch in tokens is less than one pass."""
    numbers_ = (run.seq_len, plan.dp_shard, plan.dp_replicate, plan.micro_batch)
    columns = [np.broadcast_to(np.asarray(number, dtype=float), reasons.shape) for number in numbers_]
    for some in _alike(rows, columns):
        seq_len, shard, replicate, micro_batch = (float(column[some[0]]) for column in columns)
        one = changed(parts, run=parts.run.model_copy(update={"seq_len": seq_len}))
        laid = changed(plan, dp_shard=shard, dp_replicate=replicate, micro_batch=micro_batch)
        reasons[some] = _says(laid_run(one, {}, laid)[1].violations[0])


def _alike(rows: npt.NDArray[np.int64], columns: Sequence[Array]) -> list[npt.NDArray[np.int64]]:
    """The rows in groups of equal columns."""
    if not rows.size:
        return []
    if not columns:
        return [rows]
    _, group = np.unique(np.stack([column[rows] for column in columns]), axis=1, return_inverse=True)
    order = np.argsort(group, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1)
