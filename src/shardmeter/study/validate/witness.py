"""Failed configurations that memory cannot have stopped, told without any prediction.

1. **Witness**: a configuration of the same model, sequence, kernels, recomputation and stages ran that needs at least as
   much: no more tensor or data parallelism, no smaller micro-batch, no stronger sharding. Then the failed one crashed.
2. **Empty stage**: the stack's rule cuts the model so that a stage holds no block at all; the trainer cannot build it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardmeter.engine.demand import layer_counts
from shardmeter.specs.scenario import Scenario
from shardmeter.study.validate.resolve import MappedRow

STRENGTH = {"none": 0, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
"""How much of the states a sharding divides."""
Kind = tuple[object, ...]


def crashed(failed: Sequence[MappedRow], ran: Iterable[MappedRow]) -> dict[int, str]:
    """By line, why a failed row says nothing of memory."""
    witnesses: dict[Kind, list[MappedRow]] = {}
    for row in ran:
        if row.scenario is not None:
            witnesses.setdefault(_kind(row.source_key, row.scenario), []).append(row)
    found: dict[int, str] = {}
    for row in failed:
        if row.scenario is None:
            continue
        if _has_empty_stage(row.scenario):
            found[row.line] = "a stage holds no block under the stack's rule: it could not be built"
            continue
        rivals = witnesses.get(_kind(row.source_key, row.scenario), [])
        needs = [other.id for other in rivals if other.scenario and _needs_as_much(other.scenario, row.scenario)]
        if needs:
            found[row.line] = f"no lack of memory: {needs[0]} ran, which needs at least as much"
    return found


def _kind(source: str, scenario: Scenario) -> Kind:
    """What must be equal for one configuration to bear witness on another."""
    s, plan = scenario, scenario.plan
    island = s.fleet.islands[0]
    same = (
        source,
        island.accelerator.name,
        s.model.layers,
        float(s.model.hidden),
        float(s.model.ffn),
        float(s.run.seq_len),
    )
    return (
        *same,
        s.stack.name,
        s.stack.attention,
        s.stack.kernels,
        plan.recompute,
        plan.pp,
        plan.schedule,
        float(plan.cp),
    )


def _needs_as_much(ran: Scenario, failed: Scenario) -> bool:
    one, other = ran.plan, failed.plan
    passes = ran.run.global_batch / (one.dp * one.micro_batch)
    return bool(
        one.tp <= other.tp
        and one.micro_batch >= other.micro_batch
        and one.dp <= other.dp
        and STRENGTH[one.sharding] <= STRENGTH[other.sharding]
        and passes >= min(failed.run.global_batch / (other.dp * other.micro_batch), float(one.pp))
    )


def _has_empty_stage(scenario: Scenario) -> bool:
    """Only where the last stage needs no layer of its own can one be empty: that one has the head."""
    counts = layer_counts(scenario.model, scenario.plan, scenario.stack)
    return scenario.stack.stage_cut == "cost" and 0 in counts[:-1]


__all__ = ["crashed"]
