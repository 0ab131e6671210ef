"""What makes a plan structurally legal: signed constraints over (model, island, plan, run, stack), numbers or arrays.

A constraint has a slack (negative = violated, at whatever broadcast shape the numbers have) and says what is wrong when it
is. One list serves a single plan, as sentences (`violations`), and a batch, as masks (`masks`). Whether a legal plan fits
into memory is no constraint: that is an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import Violation
from shardmeter.core.record import record
from shardmeter.core.units import Count, Number
from shardmeter.schedules import traits
from shardmeter.specs import Island, Model, Plan, Run, Stack


@record
class Case:
    """One question of legality: the five records that every constraint may look at."""

    model: Model
    island: Island
    plan: Plan
    run: Run
    stack: Stack

    @property
    def slots(self) -> Number:
        """Layers that a pipeline can cut: the embedding and the head count as one each under stage_cut edges."""
        return self.model.layers + (2.0 if self.stack.stage_cut == "edges" else 0.0)

    @property
    def per_pass(self) -> Count:
        """Sequences that all replicas take in one pass: dp · micro_batch."""
        return self.plan.dp * self.plan.micro_batch

    @property
    def micro_batches(self) -> Count:
        """Passes of one optimizer step; NaN or infinite where a batch is 0."""
        return np.true_divide(self.run.global_batch, self.per_pass)


@record
class Constraint:
    """A rule: `slack` < 0 (or NaN) breaks it, `says` names the numbers and the nearest way out."""

    name: str
    rule: str
    slack: Callable[[Case], Any]
    says: Callable[[Case], tuple[str, str, str]]
    """(field, what is wrong with its numbers, way out)."""


def violations(
    model: Model, island: Island, plan: Plan, run: Run, stack: Stack, *, skip: Collection[str] = ()
) -> list[Violation]:
    """Every rule that one plan (plain numbers, no arrays) breaks, in the order of `CONSTRAINTS`; empty = legal.

    `skip` names constraints that are not asked.
    """
    case = Case(model=model, island=island, plan=plan, run=run, stack=stack)
    found: list[Violation] = []
    with np.errstate(all="ignore"):
        for constraint in CONSTRAINTS:
            if constraint.name in skip:
                continue
            if not np.all(np.asarray(constraint.slack(case)) >= 0.0):
                field, says, way_out = constraint.says(case)
                found.append(Violation(field=field, says=says, rule=constraint.rule, way_out=way_out))
                if constraint.name == "whole":  # the other rules divide by these numbers
                    break
    return found


def masks(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> dict[str, npt.NDArray[np.bool_]]:
    """Per constraint, where it holds (True = legal), at the broadcast shape of the numbers it looks at. Raises nothing."""
    case = Case(model=model, island=island, plan=plan, run=run, stack=stack)
    with np.errstate(all="ignore"):
        return {c.name: np.asarray(c.slack(case)) >= 0.0 for c in CONSTRAINTS}


def _rest(value: Any, divisor: Any) -> Any:
    """−(remainder): 0 where `divisor` divides `value`, negative elsewhere; NaN for a divisor of 0."""
    return -np.mod(np.asarray(value, dtype=float), np.asarray(divisor, dtype=float))


_WHOLE = ("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "micro_batch", "virtual_stages")


def _numbers(case: Case) -> dict[str, Any]:
    found = {f"plan.{name}": getattr(case.plan, name) for name in _WHOLE}
    return found | {"run.seq_len": case.run.seq_len, "run.global_batch": case.run.global_batch}


def _whole_slack(case: Case) -> Any:
    slack: Any = 0.0
    for value in _numbers(case).values():
        number = np.asarray(value, dtype=float)
        slack = np.minimum(slack, np.minimum(number - 1.0, _rest(number, 1.0)))
    return slack


def _whole_says(case: Case) -> tuple[str, str, str]:
    bad = {n: v for n, v in _numbers(case).items() if not (v >= 1 and v == np.floor(v) and np.isfinite(v))}
    return ", ".join(bad), " and ".join(f"{n.split('.')[1]} = {v:g}" for n, v in bad.items()), "use 1 or more"


def _degrees_says(case: Case) -> tuple[str, str, str]:
    p, gpus = case.plan, case.island.gpus
    says = (
        f"tp·pp·cp·dp_shard·dp_replicate = {p.tp:g}·{p.pp:g}·{p.cp:g}·{p.dp_shard:g}·{p.dp_replicate:g} = {p.gpus:g}, "
        f"but island {case.island.name} has {gpus:g} GPUs"
    )
    rest = float(np.asarray(gpus / (p.tp * p.pp * p.cp * p.dp_replicate)))
    if rest >= 1 and rest == round(rest):
        return "plan", says, f"dp_shard={rest:g} (or auto) makes it {gpus:g}"
    legal = near(_divisors(gpus), p.tp * p.pp * p.cp * p.dp_replicate)
    return (
        "plan",
        says,
        f"make tp·pp·cp·dp_replicate a divisor of {gpus:g}, such as {listed(legal)}, with dp_shard: auto",
    )


def _kv_slack(case: Case) -> Any:
    tp, kv = case.plan.tp, case.model.kv_heads
    return np.maximum(_rest(kv, tp), _rest(tp, kv))


def _tp_way_out(case: Case) -> str:
    m, gpus = case.model, float(np.max(np.asarray(case.island.gpus)))
    legal = [
        t for t in _divisors(m.heads) if t <= gpus and m.ffn % t == 0 and (m.kv_heads % t == 0 or t % m.kv_heads == 0)
    ]
    return f"the nearest legal tp: {listed(near(legal, case.plan.tp))}"


def _tp_says(what: str, size: Callable[[Case], Any]) -> Callable[[Case], tuple[str, str, str]]:
    def says(case: Case) -> tuple[str, str, str]:
        return "plan.tp", f"tp = {case.plan.tp:g} does not divide {size(case):g} {what}", _tp_way_out(case)

    return says


def _stages_slack(case: Case) -> Any:
    return case.slots - np.asarray(case.plan.pp) * np.asarray(case.plan.virtual_stages)


def _stages_says(case: Case) -> tuple[str, str, str]:
    p, slots = case.plan, case.slots
    most = math.floor(slots / p.virtual_stages)
    way_out = f"pp ≤ {most}" if most >= 1 else f"virtual_stages ≤ {slots:g}"
    says = f"pp·virtual_stages = {p.pp}·{p.virtual_stages} = {p.pp * p.virtual_stages} stages for {slots:g} layers"
    return "plan.pp", says, way_out


def _chunks_slack(case: Case) -> Any:
    stages, kind = np.asarray(case.plan.virtual_stages, dtype=float), traits(case.plan.schedule)
    most = math.inf if kind.most_chunks is None else float(kind.most_chunks)
    return np.minimum(stages - kind.least_chunks, np.minimum(most - stages, 0.0))


def _chunks_says(case: Case) -> tuple[str, str, str]:
    least, name = traits(case.plan.schedule).least_chunks, case.plan.schedule
    if least > 1:
        says = f"schedule {name} with virtual_stages = {case.plan.virtual_stages}"
        return "plan.virtual_stages", says, f"virtual_stages: {least}, or schedule: 1f1b"
    says = f"virtual_stages = {case.plan.virtual_stages} with schedule {name}"
    return "plan.virtual_stages", says, "schedule: interleaved, or virtual_stages: 1"


def _rounds_slack(case: Case) -> Any:
    """Micro-batches in groups of pp, in even numbers, and enough of them, as the schedule needs."""
    kind, passes, pp = traits(case.plan.schedule), case.micro_batches, float(case.plan.pp)
    slack = np.minimum(passes - kind.rounds * pp, 0.0) if pp > 1.0 else np.zeros_like(passes)
    if kind.groups:
        slack = np.minimum(slack, _rest(passes, pp))
    return np.minimum(slack, _rest(passes, 2.0)) if kind.even else slack


def _rounds_says(case: Case) -> tuple[str, str, str]:
    kind, pp = traits(case.plan.schedule), case.plan.pp
    least = case.per_pass * kind.rounds * pp
    unit = case.per_pass * (pp if kind.groups else 2.0 if kind.even else 1.0)
    says = f"global_batch/(dp·micro_batch) = {case.micro_batches:g} micro-batches for pp = {pp}"
    near_by = [batch for batch in _multiples(case.run.global_batch, unit) if batch >= least]
    return "run.global_batch", says, f"global_batch {listed(near_by or [float(least)])}"


def _even_says(case: Case) -> tuple[str, str, str]:
    way_out = f"pp {listed([float(p) for p in (case.plan.pp - 1, case.plan.pp + 1) if p > 0])}"
    return "plan.pp", f"pp = {case.plan.pp} with schedule {case.plan.schedule}", f"{way_out}, or schedule: 1f1b"


def _batch_says(case: Case) -> tuple[str, str, str]:
    dp, micro, unit = case.plan.dp, case.plan.micro_batch, case.per_pass
    says = f"global_batch = {case.run.global_batch:g} is no multiple of dp·micro_batch = {dp:g}·{micro:g} = {unit:g}"
    return "run.global_batch", says, f"the nearest are {listed(_multiples(case.run.global_batch, unit))}"


def _cut(case: Case) -> Any:
    """What the sequence is cut by: cp, and tp where activations are cut along it (sequence parallel)."""
    return case.plan.cp * case.plan.tp if case.plan.sequence_parallel else case.plan.cp


def _sequence_says(case: Case) -> tuple[str, str, str]:
    cut = _cut(case)
    parts = "tp·cp" if case.plan.cp > 1 else "tp"
    says = f"seq_len = {case.run.seq_len:g} is no multiple of {parts} = {cut:g}"
    return (
        "run.seq_len",
        says,
        f"the nearest are {listed(_multiples(case.run.seq_len, cut))}; or sequence_parallel: false",
    )


def _context_slack(case: Case) -> Any:
    limited = case.model.positions == "learned" and bool(np.all(np.asarray(case.model.context) > 0))
    return case.model.context - np.asarray(case.run.seq_len) if limited else 0.0


def _context_says(case: Case) -> tuple[str, str, str]:
    says = f"seq_len = {case.run.seq_len:g}, but {case.model.name} has {case.model.context:g} learned positions"
    return "run.seq_len", says, f"seq_len ≤ {case.model.context:g}"


def _none_says(case: Case) -> tuple[str, str, str]:
    return "plan.sharding", f"sharding none with {case.plan.dp:g} data-parallel replicas", "sharding: ddp or fsdp"


def _etp_slack(case: Case) -> Any:
    etp, tp = np.asarray(case.plan.etp, dtype=float), np.asarray(case.plan.tp, dtype=float)
    return np.maximum(-np.abs(etp - 1.0), -np.abs(etp - tp))


def _etp_says(case: Case) -> tuple[str, str, str]:
    return "plan.etp", f"etp = {case.plan.etp:g} with tp = {case.plan.tp:g}", f"etp: 1 or etp: {case.plan.tp:g}"


def _expert_says(case: Case) -> tuple[str, str, str]:
    p = case.plan
    ranks = p.tp * p.cp * p.dp_shard
    legal = near([d for d in _divisors(ranks) if (ranks / d) % p.etp == 0], p.ep)
    says = f"etp·ep = {p.etp:g}·{p.ep:g} does not divide tp·cp·dp_shard = {ranks:g}"
    return "plan.ep", says, f"the nearest legal ep: {listed(legal)}"


def _precision_says(case: Case) -> tuple[str, str, str]:
    known = ", ".join(case.island.accelerator.peak)
    return "plan.precision", f"{case.island.accelerator.name} has no {case.plan.precision} peak", f"it has {known}"


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint(
        name="whole", rule="degrees and batches are positive whole numbers", slack=_whole_slack, says=_whole_says
    ),
    Constraint(
        name="degrees",
        rule="the degrees multiply to the GPUs of the island",
        slack=lambda c: -np.abs(np.asarray(c.plan.gpus - c.island.gpus)),
        says=_degrees_says,
    ),
    Constraint(
        name="heads",
        rule="tp divides the attention heads",
        slack=lambda c: _rest(c.model.heads, c.plan.tp),
        says=_tp_says("attention heads", lambda c: c.model.heads),
    ),
    Constraint(
        name="kv_heads",
        rule="tp divides the key-value heads, or is a multiple of them (replicated)",
        slack=_kv_slack,
        says=_tp_says("key-value heads, nor is it a multiple of them", lambda c: c.model.kv_heads),
    ),
    Constraint(
        name="ffn",
        rule="tp divides the feed-forward width",
        slack=lambda c: _rest(c.model.ffn, c.plan.tp),
        says=_tp_says("feed-forward columns", lambda c: c.model.ffn),
    ),
    Constraint(name="stages", rule="every stage holds a layer", slack=_stages_slack, says=_stages_says),
    Constraint(
        name="virtual_stages",
        rule="interleaved cuts a stage into virtual ones (zb-v into two), no other schedule does",
        slack=_chunks_slack,
        says=_chunks_says,
    ),
    Constraint(
        name="even_stages",
        rule="two directions meet in the middle: pp is even",
        slack=lambda c: _rest(c.plan.pp, 2.0) if traits(c.plan.schedule).even else 0.0,
        says=_even_says,
    ),
    Constraint(
        name="global_batch",
        rule="every replica takes whole micro-batches",
        slack=lambda c: _rest(c.run.global_batch, c.per_pass),
        says=_batch_says,
    ),
    Constraint(
        name="interleaved_rounds",
        rule="interleaved takes micro-batches in multiples of pp, dualpipe an even number; zero-bubble schedules need "
        "their warm-up full",
        slack=_rounds_slack,
        says=_rounds_says,
    ),
    Constraint(
        name="sequence",
        rule="the sequence is cut into equal parts",
        slack=lambda c: _rest(c.run.seq_len, _cut(c)),
        says=_sequence_says,
    ),
    Constraint(name="context", rule="learned positions end at the context", slack=_context_slack, says=_context_says),
    Constraint(
        name="unsharded",
        rule="sharding none needs one replica",
        slack=lambda c: 1.0 - np.asarray(c.plan.dp) if c.plan.sharding == "none" else 0.0,
        says=_none_says,
    ),
    Constraint(name="etp", rule="etp is 1 or tp", slack=_etp_slack, says=_etp_says),
    Constraint(
        name="experts",
        rule="etp·ep divides tp·cp·dp_shard",
        slack=lambda c: _rest(c.plan.tp * c.plan.cp * c.plan.dp_shard, c.plan.etp * c.plan.ep),
        says=_expert_says,
    ),
    Constraint(
        name="precision",
        rule="the accelerator multiplies in the precision",
        slack=lambda c: 0.0 if c.plan.precision in c.island.accelerator.peak else -1.0,
        says=_precision_says,
    ),
)
"""Every structural rule, in the order in which violations are listed."""


def _divisors(value: Any) -> list[float]:
    """Divisors of a whole number, ascending; of anything else, none."""
    number = int(value)
    if number < 1 or number != value or number > 10**9:
        return []
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [float(d) for d in sorted({*small, *(number // d for d in small)})]


def _multiples(value: Any, unit: Any) -> list[float]:
    """The multiples of `unit` next below and next above `value`, none of them 0."""
    below = math.floor(value / unit) * unit
    return [m for m in (below, below + unit) if m > 0]


def near(legal: list[float], value: Any) -> list[float]:
    """The nearest legal number on each side of `value` (itself, if it is legal)."""
    below, above = [x for x in legal if x <= value], [x for x in legal if x >= value]
    return sorted({*below[-1:], *above[:1]})


def listed(numbers: list[float]) -> str:
    """Numbers as a reader lists them: `4 and 8`; `none` for an empty list."""
    return " and ".join(f"{x:.15g}" for x in numbers) or "none"
