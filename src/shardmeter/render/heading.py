"""The question in one line: what is trained, on what, how laid out, with which software."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shardmeter.core.units import Count
from shardmeter.specs import Island, Plan, Scenario, Sync
from shardmeter.sync import method

USUAL = {"precision": "bf16", "optimizer": "adamw", "trainable": "all"}
"""Words that are said where they differ."""
DEGREES = ("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate")


def heading(scenario: Scenario) -> str:
    """`llama-3.1-8b on 64 × H100-SXM5-80GB · fsdp, dp_shard 64, micro-batch 1 · seq 8,192, batch 64 · titan-compile`."""
    fleet = islands_of(scenario.fleet.islands)
    run = f"seq {_count(scenario.run.seq_len)}, batch {_count(scenario.run.global_batch)}"
    if scenario.run.document_len is not None:
        run = f"{run}, documents of {_count(scenario.run.document_len)}"
    if scenario.run.reference is not None:
        run = f"{run}, reference {scenario.run.reference.name}"
    plans = dict.fromkeys(scenario.plans or (scenario.plan,))
    laid = plan_text(scenario.plan)
    more = len(plans) - 1
    laid = f"{laid} (and {more} more plan{'' if more == 1 else 's'})" if more else laid
    joined = f" · {sync_text(scenario.plan.sync)}" if scenario.plans or scenario.plan.probes is not None else ""
    return f"{scenario.model.name} on {fleet} · {laid}{joined} · {run} · {scenario.stack.name}"


def islands_of(islands: Sequence[Island]) -> str:
    """`64 × H100`, and of several islands how many of each kind: `14 islands of 8 × H100`, `3 islands: 2 of 8 × H100 + 1 of 8 × H200`."""
    kinds = Counter(f"{_count(island.gpus)} × {island.accelerator.name}" for island in islands)
    if len(kinds) == len(islands):
        return " + ".join(kinds)
    if len(kinds) == 1:
        return f"{len(islands)} islands of {next(iter(kinds))}"
    return f"{len(islands)} islands: {' + '.join(f'{count} of {kind}' for kind, count in kinds.items())}"


def sync_text(sync: Sync) -> str:
    """`diloco, every 100 steps, 8 bits`: the method, and what of it is not as in every step."""
    if sync.method == "every_step":
        return sync.method + (", gradients at the end" if sync.release == "end" else "")
    read = method(sync.method).FIELDS
    words = {
        "blocks": f"{sync.blocks} blocks",
        "perturbations": f"{_count(sync.perturbations)} {'member' if 'rank' in read else 'perturbation'}"
        f"{'' if _is_one(sync.perturbations) else 's'}",
        "together": f"{_count(sync.together)} together" if not _is_one(sync.together) else "",
        "sync_every": f"every {_count(sync.sync_every)} steps",
        "num_fragments": f"{sync.num_fragments} fragments" if sync.num_fragments > 1 else "",
        "levels": f"{sync.levels} levels",
        "rank": f"rank {_count(sync.rank)}" if not _is_zero(sync.rank) else "",
        "bits": f"{_count(sync.bits)} bits",
    }
    return ", ".join([sync.method, *(text for field, text in words.items() if field in read and text)])


def plan_text(plan: Plan) -> str:
    """The sharding, the degrees that are not 1, the micro-batch, and what is not as usual."""
    degrees = [f"{name} {_count(getattr(plan, name))}" for name in DEGREES if not _is_one(getattr(plan, name))]
    rest = [f"micro-batch {_count(plan.micro_batch)}"]
    if plan.recompute != "none":
        rest.append(f"recompute {plan.recompute}")
    if plan.pp > 1:
        rest.append(plan.schedule + (f" of {plan.virtual_stages}" if plan.virtual_stages > 1 else ""))
    if plan.placement:
        rest += [f"{_count(plan.ahead)} ahead"] if not _is_zero(plan.ahead) else []
        rest += ["sends in turn"] if plan.stagger else []
    if plan.probes is not None and plan.probes.of != USUAL["trainable"]:
        rest.append(f"perturbed {plan.probes.of}")
    for name, usual in USUAL.items():
        if getattr(plan, name) not in (usual, ""):
            rest.append(f"{name} {getattr(plan, name)}")
    if plan.offload:
        rest.append(f"offload {' and '.join(plan.offload)}")
    return ", ".join([plan.sharding, *degrees, *rest])


def _is_one(value: Count) -> bool:
    return isinstance(value, int | float) and value == 1


def _is_zero(value: Count) -> bool:
    return isinstance(value, int | float) and value == 0


def _count(value: Count) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "(several)"
