"""Rules of steps without a backward: what shards, copies and offloads there is something of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardmeter.engine.rules import Case, divisors, near, rest
from shardmeter.schedules import traits
from shardmeter.strategies import fsdp


def sharding_slack(case: Case) -> Any:
    """ZeRO-1 and -2 shard what such a step has not; perturbed copies are of whole weights."""
    one = case.plan.probes
    if one is None:
        return 0.0
    if case.plan.sharding in ("zero1", "zero2"):
        return -1.0
    return 1.0 - np.asarray(one.together) if one.whole and fsdp.applies(case.plan) else 0.0


def sharding_says(case: Case) -> tuple[str, str, str]:
    plan = case.plan
    method = plan.sync.method
    if plan.sharding in ("zero1", "zero2"):
        says = f"sharding {plan.sharding}, but {method} has no gradients, and every rank makes the whole step from the losses"
        return "plan.sharding", says, "ddp, or fsdp to shard the weights"
    together = 0.0 if plan.probes is None else plan.probes.together
    says = f"together = {together:g} copies of weights that {plan.sharding} shards"
    return "plan.sync.together", says, "together: 1, or sharding ddp"


def offload_slack(case: Case) -> Any:
    return -1.0 if case.plan.probes is not None and case.plan.offload else 0.0


def offload_says(case: Case) -> tuple[str, str, str]:
    says = f"offload {' and '.join(case.plan.offload)}, but {case.plan.sync.method} keeps nothing for a backward or an optimizer"
    if "parameters" in case.plan.offload:
        says = f"offload parameters under {case.plan.sync.method}: perturbing weights on the host is not modelled"
    return "plan.offload", says, "leave it out"


def schedule_slack(case: Case) -> Any:
    kind = traits(case.plan.schedule)
    return -1.0 if case.plan.probes is not None and case.plan.pp > 1 and (kind.split or kind.copies != 1.0) else 0.0


def schedule_says(case: Case) -> tuple[str, str, str]:
    says = f"schedule {case.plan.schedule} arranges a backward, of which {case.plan.sync.method} has none"
    return "plan.schedule", says, "gpipe, 1f1b or interleaved"


def members_slack(case: Case) -> Any:
    return 0.0 if case.plan.probes is None else rest(case.run.global_batch, case.plan.probes.members)


def members_says(case: Case) -> tuple[str, str, str]:
    plan, batch = case.plan, float(case.run.global_batch)
    members = 1.0 if plan.probes is None else float(plan.probes.members)
    says = f"{members:g} members share a batch of {batch:g} sequences"
    whole = float(math.lcm(int(members), int(plan.dp * plan.micro_batch)))
    more = whole * max(1.0, float(np.ceil(batch / whole)))
    fewer = " or ".join(f"{one:g}" for one in near(divisors(batch), members))
    return "plan.sync.perturbations", says, f"{f'perturbations: {fewer}, or ' if fewer else ''}global_batch: {more:g}"
