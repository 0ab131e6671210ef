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
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Number
from shardmeter.specs import Island, Model, Plan, Run, Stack
from shardmeter.strategies import adapters, precision


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


def _width_slack(case: Case) -> Any:
    """Tp must divide every MLP that it cuts: that of the dense layers, if there are any, and of shared experts."""
    m = case.model
    dense = (np.asarray(m.experts) == 0) | (np.asarray(m.dense_first) > 0)
    return np.minimum(np.where(dense, _rest(m.ffn, case.plan.tp), 0.0), _rest(m.shared_ffn, case.plan.tp))


def _width(case: Case) -> Any:
    """The MLP width that tp does not divide (the dense one, unless it is not there)."""
    m = case.model
    return m.ffn if m.experts == 0 or (m.dense_first > 0 and m.ffn % case.plan.tp) else m.shared_ffn


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
        t
        for t in _divisors(m.heads)
        if t <= gpus
        and _width_slack(changed(case, plan=changed(case.plan, tp=t))) >= 0.0
        and (m.kv_heads % t == 0 or t % m.kv_heads == 0)
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


def _interleaved_slack(case: Case) -> Any:
    stages = np.asarray(case.plan.virtual_stages, dtype=float)
    return stages - 2.0 if case.plan.schedule == "interleaved" else 1.0 - stages


def _interleaved_says(case: Case) -> tuple[str, str, str]:
    if case.plan.schedule == "interleaved":
        return (
            "plan.virtual_stages",
            "schedule interleaved with virtual_stages = 1",
            "virtual_stages: 2, or schedule: 1f1b",
        )
    says = f"virtual_stages = {case.plan.virtual_stages} with schedule {case.plan.schedule}"
    return "plan.virtual_stages", says, "schedule: interleaved, or virtual_stages: 1"


def _rounds_slack(case: Case) -> Any:
    return _rest(case.micro_batches, case.plan.pp) if case.plan.schedule == "interleaved" else 0.0


def _rounds_says(case: Case) -> tuple[str, str, str]:
    unit = case.per_pass * case.plan.pp
    says = f"global_batch/(dp·micro_batch) = {case.micro_batches:g} micro-batches for pp = {case.plan.pp}"
    return "run.global_batch", says, f"global_batch {listed(_multiples(case.run.global_batch, unit))}"


def _batch_says(case: Case) -> tuple[str, str, str]:
    dp, micro, unit = case.plan.dp, case.plan.micro_batch, case.per_pass
    says = f"global_batch = {case.run.global_batch:g} is no multiple of dp·micro_batch = {dp:g}·{micro:g} = {unit:g}"
    return "run.global_batch", says, f"the nearest are {listed(_multiples(case.run.global_batch, unit))}"


def _cut(case: Case) -> Any:
    """What the sequence is cut by: cp (2·cp where causal work is balanced by halves), and tp where activations are cut along
    it (sequence parallel)."""
    cp = np.asarray(case.plan.cp, dtype=float)
    if case.plan.cp_kind != "ulysses":
        cp = np.where(cp > 1.0, 2.0 * cp, cp)
    return cp * case.plan.tp if case.plan.sequence_parallel else cp


def _sequence_says(case: Case) -> tuple[str, str, str]:
    cut = float(_cut(case))
    cp = "" if case.plan.cp == 1 else "·cp" if case.plan.cp_kind == "ulysses" else "·2·cp"
    parts = f"tp{cp}" if case.plan.sequence_parallel else cp[1:]
    says = f"seq_len = {case.run.seq_len:g} is no multiple of {parts} = {cut:g}"
    way_out = f"the nearest are {listed(_multiples(case.run.seq_len, cut))}"
    return "run.seq_len", says, f"{way_out}; or sequence_parallel: false" if case.plan.tp > 1 else way_out


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


def _expert_count_slack(case: Case) -> Any:
    """Ep divides the experts; without experts there is nothing to divide."""
    experts, ep = np.asarray(case.model.experts, dtype=float), np.asarray(case.plan.ep, dtype=float)
    return np.where(experts > 0.0, _rest(experts, ep), 1.0 - ep)


def _expert_count_says(case: Case) -> tuple[str, str, str]:
    m, ep = case.model, case.plan.ep
    if m.experts == 0:
        return "plan.ep", f"ep = {ep:g}, but {m.name} has no experts", "ep: 1"
    says = f"ep = {ep:g} does not divide the {m.experts:g} experts of {m.name}"
    return "plan.ep", says, f"the nearest legal ep: {listed(near(_divisors(m.experts), ep))}"


def _expert_width_says(case: Case) -> tuple[str, str, str]:
    says = f"etp = {case.plan.etp:g} does not divide {case.model.moe_ffn:g} columns of an expert"
    return "plan.etp", says, "etp: 1"


def _expert_tokens_slack(case: Case) -> Any:
    """Without sequence parallelism all ranks of tp hold the same tokens: experts that tp does not cut would do them again."""
    if case.plan.sequence_parallel:
        return 0.0
    etp, tp = np.asarray(case.plan.etp, dtype=float), np.asarray(case.plan.tp, dtype=float)
    return np.where(np.asarray(case.model.experts) > 0, etp - tp, 0.0)


def _expert_tokens_says(case: Case) -> tuple[str, str, str]:
    tp = case.plan.tp
    says = f"etp = {case.plan.etp:g} with tp = {tp:g} and no sequence parallelism"
    return "plan.etp", says, f"sequence_parallel: true, or etp: {tp:g}"


def _heads_of_cp_slack(case: Case) -> Any:
    return _rest(case.model.heads, case.plan.tp * case.plan.cp) if case.plan.cp_kind == "ulysses" else 0.0


def _heads_of_cp_says(case: Case) -> tuple[str, str, str]:
    heads, tp, cp = case.model.heads, case.plan.tp, case.plan.cp
    says = f"tp·cp = {tp:g}·{cp:g} does not divide {heads:g} attention heads"
    own = heads / tp
    legal = near(_divisors(own), cp)
    nearest = f"the nearest legal cp: {listed(legal)}; or " if legal else ""
    return "plan.cp", says, f"{nearest}cp_kind: ring"


def _lacking(case: Case) -> list[str]:
    """Number formats that the precision needs and the accelerator has no rate for."""
    return [dtype for dtype in precision.recipe(case.plan.precision).needs if dtype not in case.island.accelerator.peak]


def _precision_says(case: Case) -> tuple[str, str, str]:
    device = case.island.accelerator
    fits = [word for word in precision.names() if set(precision.recipe(word).needs) <= set(device.peak)]
    says = f"precision {case.plan.precision} needs {' and '.join(_lacking(case))} units, of which {device.name} has no known rate"
    return "plan.precision", says, f"it can do {', '.join(fits)}" if fits else "give it a peak"


def _gather_slack(case: Case) -> Any:
    narrow = case.plan.gather_dtype == "fp8"
    return -1.0 if narrow and precision.recipe(case.plan.precision).linear != "fp8" else 0.0


def _gather_says(case: Case) -> tuple[str, str, str]:
    p = case.plan
    return "plan.gather_dtype", f"gather_dtype {p.gather_dtype} with precision {p.precision}", "gather_dtype: bf16"


def _missing_rates(case: Case) -> list[str]:
    """Rates of the host that offloading needs and the accelerator's row leaves blank."""
    wanted = ["host_link"] if case.plan.offload else []
    wanted += ["host_memory_bandwidth"] if "optimizer" in case.plan.offload else []
    return [name for name in wanted if getattr(case.island.accelerator, name) is None]


def _offload_says(case: Case) -> tuple[str, str, str]:
    device, missing = case.island.accelerator, _missing_rates(case)
    given = ", ".join(f"{name}: ... GB/s" for name in missing)
    way_out = f"say accelerator: {{base: {device.name}, {given}}}, or offload: none"
    return "plan.offload", f"offloading needs {' and '.join(missing)} of {device.name}, not known", way_out


def _parameters_slack(case: Case) -> Any:
    away = "parameters" in case.plan.offload and case.plan.sharding not in ("fsdp", "zero3")
    return -1.0 if away else 0.0


def _parameters_says(case: Case) -> tuple[str, str, str]:
    return "plan.offload", f"offload: [parameters] with sharding {case.plan.sharding}", "sharding: fsdp"


def _async_slack(case: Case) -> Any:
    alone = case.plan.async_tp and not case.plan.sequence_parallel
    return 1.0 - np.asarray(case.plan.tp, dtype=float) if alone else 0.0


def _async_says(case: Case) -> tuple[str, str, str]:  # noqa: ARG001  (a rule's sentence takes the case)
    return "plan.async_tp", "async_tp without sequence_parallel", "sequence_parallel: true"


def _trainable_slack(case: Case) -> Any:
    found = adapters.trained(case.plan.trainable)
    return case.model.layers - 1.0 - (found.last or 0)


def _trainable_says(case: Case) -> tuple[str, str, str]:
    return (
        "plan.trainable",
        f"{case.plan.trainable} with {case.model.layers} layers",
        f"layers 0 to {case.model.layers - 1}",
    )


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
        slack=_width_slack,
        says=_tp_says("feed-forward columns", _width),
    ),
    Constraint(name="stages", rule="every stage holds a layer", slack=_stages_slack, says=_stages_says),
    Constraint(
        name="virtual_stages",
        rule="more than one virtual stage is what interleaved means",
        slack=_interleaved_slack,
        says=_interleaved_says,
    ),
    Constraint(
        name="global_batch",
        rule="every replica takes whole micro-batches",
        slack=lambda c: _rest(c.run.global_batch, c.per_pass),
        says=_batch_says,
    ),
    Constraint(
        name="interleaved_rounds",
        rule="interleaved needs micro-batches in multiples of pp",
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
    Constraint(name="expert_count", rule="ep divides the experts", slack=_expert_count_slack, says=_expert_count_says),
    Constraint(
        name="expert_width",
        rule="etp divides the width of an expert",
        slack=lambda c: _rest(c.model.moe_ffn, c.plan.etp),
        says=_expert_width_says,
    ),
    Constraint(
        name="expert_tokens",
        rule="experts are sent each token once",
        slack=_expert_tokens_slack,
        says=_expert_tokens_says,
    ),
    Constraint(
        name="context_heads",
        rule="ulysses gives every rank whole heads",
        slack=_heads_of_cp_slack,
        says=_heads_of_cp_says,
    ),
    Constraint(
        name="precision",
        rule="the accelerator multiplies in the precision",
        slack=lambda c: -float(len(_lacking(c))),
        says=_precision_says,
    ),
    Constraint(
        name="gather_dtype",
        rule="only what is multiplied in 8 bits is gathered in 8 bits",
        slack=_gather_slack,
        says=_gather_says,
    ),
    Constraint(
        name="offload",
        rule="rates of the host are never guessed",
        slack=lambda c: -float(len(_missing_rates(c))),
        says=_offload_says,
    ),
    Constraint(
        name="offloaded_parameters",
        rule="parameters that are whole on every rank stay there",
        slack=_parameters_slack,
        says=_parameters_says,
    ),
    Constraint(
        name="async_tp",
        rule="chunks pass behind gathers and scatters, which sequence parallelism has",
        slack=_async_slack,
        says=_async_says,
    ),
    Constraint(name="trainable", rule="trained layers exist", slack=_trainable_slack, says=_trainable_says),
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
