"""The rules a plan must keep: for each, its slack (below zero = violated) and what to say, with numbers and a way out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardmeter.core.errors import quoted
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Number
from shardmeter.schedules import holds_all, names, traits
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
        """Layers that a pipeline can cut, prediction modules among them: the embedding and the head count as one each under
        stage_cut edges."""
        return self.model.layers + self.model.mtp + (2.0 if self.stack.stage_cut == "edges" else 0.0)

    @property
    def per_pass(self) -> Count:
        """Sequences that all replicas take in one pass: dp · micro_batch."""
        return self.plan.dp * self.plan.micro_batch

    @property
    def micro_batches(self) -> Count:
        """Passes of one optimizer step; NaN or infinite where a batch is 0."""
        return np.true_divide(self.run.global_batch, self.per_pass)


def rest(value: Any, divisor: Any) -> Any:
    """−(remainder): 0 where `divisor` divides `value`, negative elsewhere; NaN for a divisor of 0."""
    return -np.mod(np.asarray(value, dtype=float), np.asarray(divisor, dtype=float))


def width_slack(case: Case) -> Any:
    """Tp must divide every MLP that it cuts: that of the dense layers, if there are any, and of shared experts."""
    m = case.model
    dense = (np.asarray(m.experts) == 0) | (np.asarray(m.dense_first) > 0) | ("d" in m.mlps)
    return np.minimum(np.where(dense, rest(m.ffn, case.plan.tp), 0.0), rest(m.shared_ffn, case.plan.tp))


def width(case: Case) -> Any:
    """The MLP width that tp does not divide (the dense one, unless it is not there)."""
    m = case.model
    return m.ffn if m.experts == 0 or ((m.dense_first > 0 or "d" in m.mlps) and m.ffn % case.plan.tp) else m.shared_ffn


WHOLE = ("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "micro_batch", "virtual_stages")


def numbers(case: Case) -> dict[str, Any]:
    found = {f"plan.{name}": getattr(case.plan, name) for name in WHOLE}
    return found | {"run.seq_len": case.run.seq_len, "run.global_batch": case.run.global_batch}


def whole_slack(case: Case) -> Any:
    slack: Any = 0.0
    for value in numbers(case).values():
        number = np.asarray(value, dtype=float)
        slack = np.minimum(slack, np.minimum(number - 1.0, rest(number, 1.0)))
    return slack


def whole_says(case: Case) -> tuple[str, str, str]:
    bad = {n: v for n, v in numbers(case).items() if not (v >= 1 and v == np.floor(v) and np.isfinite(v))}
    return ", ".join(bad), " and ".join(f"{n.split('.')[1]} = {v:g}" for n, v in bad.items()), "use 1 or more"


def degrees_says(case: Case) -> tuple[str, str, str]:
    p, gpus = case.plan, case.island.gpus
    says = (
        f"tp·pp·cp·dp_shard·dp_replicate = {p.tp:g}·{p.pp:g}·{p.cp:g}·{p.dp_shard:g}·{p.dp_replicate:g} = {p.gpus:g}, "
        f"but island {case.island.name} has {gpus:g} GPUs"
    )
    rest = float(np.asarray(gpus / (p.tp * p.pp * p.cp * p.dp_replicate)))
    if rest >= 1 and rest == round(rest):
        return "plan", says, f"dp_shard={rest:g} (or auto) makes it {gpus:g}"
    legal = near(divisors(gpus), p.tp * p.pp * p.cp * p.dp_replicate)
    return (
        "plan",
        says,
        f"make tp·pp·cp·dp_replicate a divisor of {gpus:g}, such as {listed(legal)}, with dp_shard: auto",
    )


def state_slack(case: Case) -> Any:
    """Tp must divide the heads and the groups of recurrent layers, if there are any."""
    m = case.model
    if not {"m", "d", "s"} & set(m.mixers):
        return 0.0
    heads = rest(m.state_heads, case.plan.tp)
    return heads if "s" in m.mixers else np.minimum(heads, rest(m.state_groups, case.plan.tp))


def kv_slack(case: Case) -> Any:
    tp, kv = case.plan.tp, case.model.kv_heads
    return np.maximum(rest(kv, tp), rest(tp, kv))


def tp_way_out(case: Case) -> str:
    m, gpus = case.model, float(np.max(np.asarray(case.island.gpus)))
    legal = [
        t
        for t in divisors(m.heads)
        if t <= gpus
        and width_slack(changed(case, plan=changed(case.plan, tp=t))) >= 0.0
        and state_slack(changed(case, plan=changed(case.plan, tp=t))) >= 0.0
        and (m.kv_heads % t == 0 or t % m.kv_heads == 0)
    ]
    return f"the nearest legal tp: {listed(near(legal, case.plan.tp))}"


def tp_says(what: str, size: Callable[[Case], Any]) -> Callable[[Case], tuple[str, str, str]]:
    def says(case: Case) -> tuple[str, str, str]:
        return "plan.tp", f"tp = {case.plan.tp:g} does not divide {size(case):g} {what}", tp_way_out(case)

    return says


def stages_slack(case: Case) -> Any:
    return case.slots - np.asarray(case.plan.pp) * np.asarray(case.plan.virtual_stages)


def stages_says(case: Case) -> tuple[str, str, str]:
    p, slots = case.plan, case.slots
    most = math.floor(slots / p.virtual_stages)
    way_out = f"pp ≤ {most}" if most >= 1 else f"virtual_stages ≤ {slots:g}"
    says = f"pp·virtual_stages = {p.pp}·{p.virtual_stages} = {p.pp * p.virtual_stages} stages for {slots:g} layers"
    return "plan.pp", says, way_out


def chunks_slack(case: Case) -> Any:
    stages, kind = np.asarray(case.plan.virtual_stages, dtype=float), traits(case.plan.schedule)
    most = math.inf if kind.most_chunks is None else float(kind.most_chunks)
    return np.minimum(stages - kind.least_chunks, np.minimum(most - stages, 0.0))


def chunks_says(case: Case) -> tuple[str, str, str]:
    least, name = traits(case.plan.schedule).least_chunks, case.plan.schedule
    if least > 1:
        says = f"schedule {name} with virtual_stages = {case.plan.virtual_stages}"
        return "plan.virtual_stages", says, f"virtual_stages: {least}, or schedule: 1f1b"
    says = f"virtual_stages = {case.plan.virtual_stages} with schedule {name}"
    return "plan.virtual_stages", says, "schedule: interleaved, or virtual_stages: 1"


def ahead_slack(case: Case) -> Any:
    ahead, kind = np.asarray(case.plan.ahead, dtype=float), traits(case.plan.schedule)
    able = kind.ahead or holds_all(case.plan.schedule)
    return np.minimum(np.minimum(ahead, rest(ahead, 1.0)), 0.0 if able else -ahead)


def ahead_says(case: Case) -> tuple[str, str, str]:
    ahead, name = case.plan.ahead, case.plan.schedule
    if traits(name).ahead or holds_all(name):
        return "plan.ahead", f"ahead = {ahead:g}", "0 or a whole number of micro-batches"
    able = ", ".join(one for one in names() if traits(one).ahead)
    return "plan.ahead", f"ahead = {ahead:g} with schedule {name}", f"ahead: 0, or schedule: one of {able}"


def rounds_slack(case: Case) -> Any:
    """Micro-batches in groups of pp, in even numbers, and enough of them, as the schedule needs."""
    kind, passes, pp = traits(case.plan.schedule), case.micro_batches, float(case.plan.pp)
    slack = np.minimum(passes - kind.rounds * pp, 0.0) if pp > 1.0 else np.zeros_like(passes)
    if kind.groups:
        slack = np.minimum(slack, rest(passes, pp))
    return np.minimum(slack, rest(passes, 2.0)) if kind.even else slack


def rounds_says(case: Case) -> tuple[str, str, str]:
    kind, pp, passes = traits(case.plan.schedule), case.plan.pp, case.micro_batches
    least = case.per_pass * kind.rounds * pp
    unit = case.per_pass * (pp if kind.groups else 2.0 if kind.even else 1.0)
    needs = []
    if kind.rounds and pp > 1:
        times = "pp" if kind.rounds == 1.0 else f"{kind.rounds:g}·pp"
        needs.append(f"at least {times} = {kind.rounds * pp:g} micro-batches")
    if kind.groups:
        needs.append(f"a multiple of pp = {pp} micro-batches")
    if kind.even:
        needs.append("an even number of them" if needs else "an even number of micro-batches")
    says = f"{case.plan.schedule} needs {' and '.join(needs)}, but global_batch/(dp·micro_batch) = {passes:g}"
    least = math.ceil(least / unit) * unit
    near_by = [batch for batch in multiples(case.run.global_batch, unit) if batch >= least]
    return "run.global_batch", says, f"global_batch {listed(near_by or [float(least)])}"


def even_says(case: Case) -> tuple[str, str, str]:
    way_out = f"pp {listed([float(p) for p in (case.plan.pp - 1, case.plan.pp + 1) if p > 0])}"
    return "plan.pp", f"pp = {case.plan.pp} with schedule {case.plan.schedule}", f"{way_out}, or schedule: 1f1b"


def batch_says(case: Case) -> tuple[str, str, str]:
    dp, micro, unit = case.plan.dp, case.plan.micro_batch, case.per_pass
    says = f"global_batch = {case.run.global_batch:g} is no multiple of dp·micro_batch = {dp:g}·{micro:g} = {unit:g}"
    return "run.global_batch", says, f"the nearest are {listed(multiples(case.run.global_batch, unit))}"


def cut(case: Case) -> Any:
    """What the sequence is cut by: cp (2·cp where causal work is balanced by halves), and tp where activations are cut along
    it (sequence parallel)."""
    cp = np.asarray(case.plan.cp, dtype=float)
    if case.plan.cp_kind != "ulysses":
        cp = np.where(cp > 1.0, 2.0 * cp, cp)
    return cp * case.plan.tp if case.plan.sequence_parallel else cp


def sequence_says(case: Case) -> tuple[str, str, str]:
    ways = float(cut(case))
    cp = "" if case.plan.cp == 1 else "·cp" if case.plan.cp_kind == "ulysses" else "·2·cp"
    parts = f"tp{cp}" if case.plan.sequence_parallel else cp[1:]
    says = f"seq_len = {case.run.seq_len:g} is no multiple of {parts} = {ways:g}"
    way_out = f"the nearest are {listed(multiples(case.run.seq_len, ways))}"
    return "run.seq_len", says, f"{way_out}; or sequence_parallel: false" if case.plan.tp > 1 else way_out


def context_slack(case: Case) -> Any:
    limited = case.model.positions == "learned" and bool(np.all(np.asarray(case.model.context) > 0))
    return case.model.context - np.asarray(case.run.seq_len) if limited else 0.0


def context_says(case: Case) -> tuple[str, str, str]:
    says = f"seq_len = {case.run.seq_len:g}, but {case.model.name} has {case.model.context:g} learned positions"
    return "run.seq_len", says, f"seq_len ≤ {case.model.context:g}"


def none_says(case: Case) -> tuple[str, str, str]:
    return "plan.sharding", f"sharding none with {case.plan.dp:g} data-parallel replicas", "sharding: ddp or fsdp"


def etp_slack(case: Case) -> Any:
    etp, tp = np.asarray(case.plan.etp, dtype=float), np.asarray(case.plan.tp, dtype=float)
    return np.maximum(-np.abs(etp - 1.0), -np.abs(etp - tp))


def etp_says(case: Case) -> tuple[str, str, str]:
    return "plan.etp", f"etp = {case.plan.etp:g} with tp = {case.plan.tp:g}", f"etp: 1 or etp: {case.plan.tp:g}"


def legal_ep(case: Case) -> str:
    """The nearest ep that divides the experts and, with etp, tp·cp·dp_shard."""
    ranks, experts = case.plan.tp * case.plan.cp * case.plan.dp_shard, case.model.experts
    legal = [d for d in divisors(ranks) if (ranks / d) % case.plan.etp == 0 and (experts or 1.0) % d == 0]
    return f"the nearest legal ep: {listed(near(legal, case.plan.ep))}"


def expert_says(case: Case) -> tuple[str, str, str]:
    p = case.plan
    ranks = p.tp * p.cp * p.dp_shard
    says = f"etp·ep = {p.etp:g}·{p.ep:g} does not divide tp·cp·dp_shard = {ranks:g}"
    return "plan.ep", says, legal_ep(case)


def expert_count_slack(case: Case) -> Any:
    """Ep divides the experts; without experts there is nothing to divide."""
    experts, ep = np.asarray(case.model.experts, dtype=float), np.asarray(case.plan.ep, dtype=float)
    return np.where(experts > 0.0, rest(experts, ep), 1.0 - ep)


def expert_count_says(case: Case) -> tuple[str, str, str]:
    m, ep = case.model, case.plan.ep
    if m.experts == 0:
        return "plan.ep", f"ep = {ep:g}, but {m.name} has no experts", "ep: 1"
    says = f"ep = {ep:g} does not divide the {m.experts:g} experts of {m.name}"
    return "plan.ep", says, legal_ep(case)


def expert_width_says(case: Case) -> tuple[str, str, str]:
    says = f"etp = {case.plan.etp:g} does not divide {case.model.moe_ffn:g} columns of an expert"
    return "plan.etp", says, "etp: 1"


def expert_tokens_slack(case: Case) -> Any:
    """Without sequence parallelism all ranks of tp hold the same tokens: experts that tp does not cut would do them again."""
    if case.plan.sequence_parallel:
        return 0.0
    etp, tp = np.asarray(case.plan.etp, dtype=float), np.asarray(case.plan.tp, dtype=float)
    return np.where(np.asarray(case.model.experts) > 0, etp - tp, 0.0)


def expert_tokens_says(case: Case) -> tuple[str, str, str]:
    tp = case.plan.tp
    says = f"etp = {case.plan.etp:g} with tp = {tp:g} and no sequence parallelism"
    return "plan.etp", says, f"sequence_parallel: true, or etp: {tp:g}"


def heads_of_cp_slack(case: Case) -> Any:
    """Where tp alone does not divide the heads, that is said of tp; cp = 1 asks for nothing more."""
    if case.plan.cp_kind != "ulysses":
        return 0.0
    heads, tp, cp = case.model.heads, case.plan.tp, case.plan.cp
    return np.where((rest(heads, tp) >= 0.0) & (np.asarray(cp) > 1.0), rest(heads, tp * cp), 0.0)


def heads_of_cp_says(case: Case) -> tuple[str, str, str]:
    heads, tp, cp = case.model.heads, case.plan.tp, case.plan.cp
    says = f"tp·cp = {tp:g}·{cp:g} does not divide {heads:g} attention heads"
    own = heads / tp
    legal = near(divisors(own), cp)
    nearest = f"the nearest legal cp: {listed(legal)}; or " if legal else ""
    return "plan.cp", says, f"{nearest}cp_kind: ring"


def lacking(case: Case) -> list[str]:
    """Number formats that the precision needs and the accelerator has no rate for."""
    return [dtype for dtype in precision.recipe(case.plan.precision).needs if dtype not in case.island.accelerator.peak]


def precision_says(case: Case) -> tuple[str, str, str]:
    device = case.island.accelerator
    fits = [word for word in precision.names() if set(precision.recipe(word).needs) <= set(device.peak)]
    says = f"precision {case.plan.precision} needs {' and '.join(lacking(case))} units, of which {device.name} has no known rate"
    return "plan.precision", says, f"it can do {', '.join(fits)}" if fits else "give it a peak"


def gather_slack(case: Case) -> Any:
    narrow = case.plan.gather_dtype == "fp8"
    return -1.0 if narrow and precision.recipe(case.plan.precision).linear != "fp8" else 0.0


def gather_says(case: Case) -> tuple[str, str, str]:
    p = case.plan
    return "plan.gather_dtype", f"gather_dtype {p.gather_dtype} with precision {p.precision}", "gather_dtype: bf16"


def missing_rates(case: Case) -> list[str]:
    """Rates of the host that offloading needs and the accelerator's row leaves blank."""
    wanted = ["host_link"] if case.plan.offload else []
    wanted += ["host_memory_bandwidth"] if "optimizer" in case.plan.offload else []
    return [name for name in wanted if getattr(case.island.accelerator, name) is None]


def offload_says(case: Case) -> tuple[str, str, str]:
    device, missing = case.island.accelerator, missing_rates(case)
    given = ", ".join(f"{name}: ... GB/s" for name in missing)
    way_out = (
        f"say accelerator: {{base: {quoted(device.name)}, {given}}}, or offload: none "
        "(an accelerator is said of an island of fleet.islands with its nodes, in the place of gpus)"
    )
    return "plan.offload", f"offloading needs {' and '.join(missing)} of {device.name}, not known", way_out


def parameters_slack(case: Case) -> Any:
    away = "parameters" in case.plan.offload and case.plan.sharding not in ("fsdp", "zero3")
    return -1.0 if away else 0.0


def parameters_says(case: Case) -> tuple[str, str, str]:
    return "plan.offload", f"offload: [parameters] with sharding {case.plan.sharding}", "sharding: fsdp"


def async_slack(case: Case) -> Any:
    alone = case.plan.async_tp and not case.plan.sequence_parallel
    return 1.0 - np.asarray(case.plan.tp, dtype=float) if alone else 0.0


def async_says(case: Case) -> tuple[str, str, str]:  # noqa: ARG001  (a rule's sentence takes the case)
    return "plan.async_tp", "async_tp without sequence_parallel", "sequence_parallel: true"


def trainable_slack(case: Case) -> Any:
    spans = adapters.trained(case.plan.trainable).spans
    return case.model.layers - 1.0 - (spans[-1][1] if spans else 0)


def trainable_says(case: Case) -> tuple[str, str, str]:
    return (
        "plan.trainable",
        f"{case.plan.trainable} with {case.model.layers} layers",
        f"layers 0 to {case.model.layers - 1}",
    )


def adapted_slack(case: Case) -> Any:
    """Adapters lie beside dense linear layers: on=mlp needs a layer with a dense MLP, or shared experts; on=qkv, attention."""
    m, beside = case.model, adapters.trained(case.plan.trainable).beside
    if m.family == "recurrent" and beside == adapters.BESIDE["qkv"]:
        return -1.0
    if beside != adapters.BESIDE["mlp"]:
        return 0.0
    if m.family == "recurrent" and "d" not in (m.mlps or "d"):
        return -1.0
    routed = (np.asarray(m.experts) > 0) & (np.asarray(m.dense_first) <= 0) & (np.asarray(m.shared_ffn) <= 0)
    routed = routed & ("d" not in m.mlps)
    return np.where(routed, -1.0, 0.0)


def adapted_says(case: Case) -> tuple[str, str, str]:
    rank = adapters.trained(case.plan.trainable).rank
    if case.model.family == "recurrent":
        says = f"{case.plan.trainable} trains nothing: {case.model.name} has no such layers"
        return "plan.trainable", says, f"lora(r={rank},on=attention) for its gates, or lora(r={rank})"
    says = (
        f"{case.plan.trainable} trains nothing: the MLPs of {case.model.name} are {case.model.experts:g} routed "
        f"experts a layer, beside which adapters are not modelled"
    )
    return "plan.trainable", says, f"lora(r={rank},on=attention), or lora(r={rank})"


def narrowest(case: Case) -> Any:
    """The smallest side of the matrices that have adapters: the model's width, that of its queries, of a dense MLP."""
    beside, m = adapters.trained(case.plan.trainable).beside, case.model
    side = np.asarray(m.hidden, dtype=float)
    if not beside or "output projection" in beside:
        side = np.minimum(side, np.asarray(m.heads * m.head_dim))
    if not beside or "mlp up" in beside:
        dense = (np.asarray(m.experts) == 0) | (np.asarray(m.dense_first) > 0)
        side = np.where(dense, np.minimum(side, m.ffn), side)
        side = np.where(np.asarray(m.shared_ffn) > 0, np.minimum(side, m.shared_ffn), side)
    return side


def rank_slack(case: Case) -> Any:
    rank = adapters.trained(case.plan.trainable).rank
    return narrowest(case) - float(rank) if rank else 0.0


def rank_says(case: Case) -> tuple[str, str, str]:
    rank, side = adapters.trained(case.plan.trainable).rank, float(narrowest(case))
    says = f"rank {rank} with matrices of {case.model.name} that are {side:g} narrow"
    return "plan.trainable", says, f"r ≤ {side:g}, or train the layers themselves: [layer]"


def skew_slack(case: Case) -> Any:
    """The busiest of ep ranks has at least the mean and at most everything; one rank, or no experts, has the mean."""
    skew, m = np.asarray(case.plan.expert_skew, dtype=float), case.model
    most = np.where(np.asarray(m.experts) > 0, np.asarray(case.plan.ep, dtype=float), 1.0)
    return np.minimum(skew - 1.0, most - skew)


def skew_says(case: Case) -> tuple[str, str, str]:
    skew, ep, m = case.plan.expert_skew, case.plan.ep, case.model
    if m.experts == 0:
        return "plan.expert_skew", f"expert_skew = {skew:g}, but {m.name} has no experts", "expert_skew: 1"
    if ep == 1:
        says = f"expert_skew = {skew:g} with ep = 1: one rank has all the experts, and all their tokens"
        return "plan.expert_skew", says, "expert_skew: 1, or ep: 2 or more"
    says = f"expert_skew = {skew:g} with ep = {ep:g}: the busiest rank would have more than all tokens"
    says = says if skew > ep else f"expert_skew = {skew:g}: the busiest rank has at least the mean"
    return "plan.expert_skew", says, f"1 (balanced) to {ep:g} (all on one rank)"


def divisors(value: Any) -> list[float]:
    """Divisors of a whole number, ascending; of anything else, none."""
    number = int(value)
    if number < 1 or number != value or number > 10**9:
        return []
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return [float(d) for d in sorted({*small, *(number // d for d in small)})]


def multiples(value: Any, unit: Any) -> list[float]:
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
