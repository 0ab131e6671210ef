"""What writers of nested settings share: reasons against an export, the file as a tree, what no file of a trainer holds."""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs._saying import Saying, count
from shardmeter.specs import Scenario
from shardmeter.specs.plan import AXES


def refuse_if(wrong: bool, found: Saying, field: str, says: str, way_out: str) -> None:
    """One reason against the export, where something is wrong."""
    if wrong:
        found.refuse(field, says, way_out)


def tree(found: Saying) -> dict[str, Any]:
    """The settings by their dotted paths as nested mappings."""
    made: dict[str, Any] = {}
    for path, value in found.values.items():
        *sections, name = path.split(".")
        inner = made
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return made


def steps_of(scenario: Scenario) -> int:
    """Micro-batches that one replica adds up in a step."""
    return max(1, count(scenario.run.global_batch / (scenario.plan.micro_batch * scenario.plan.dp)))


def refuse_islands(found: Saying, scenario: Scenario, title: str) -> None:
    """Reasons of several islands, and of steps without a backward."""
    plan = scenario.plan
    refuse_if(
        len(scenario.fleet.islands) > 1,
        found,
        "fleet.islands",
        f"{len(scenario.fleet.islands)} islands, and {title} starts one cluster",
        "export each island by itself, or --to torchft",
    )
    refuse_if(
        plan.probes is not None,
        found,
        "plan.sync.method",
        f"{plan.sync.method} has no backward",
        "a method with one, such as every_step",
    )


def leave_the_run(found: Saying, scenario: Scenario, where: str) -> None:
    """What of a run and of its data no file of a trainer's settings holds; `where` it is said instead."""
    plan, run = scenario.plan, scenario.run
    found.leave("run.seq_len", f"{float(run.seq_len):g}: {where}")
    for name in ("tokens", "steps", "target_loss"):
        if getattr(run, name) is not None:
            found.leave(f"run.{name}", f"{float(getattr(run, name)):g}: {where}")
    if run.reference is not None:
        found.leave("run.reference", f"{run.reference.name}: {where}")
    if plan.trainable != "all":
        found.leave("plan.trainable", f"{plan.trainable}: {where} (PEFT, or requires_grad)")
    if float(plan.expert_skew) != 1.0:
        found.leave("plan.expert_skew", f"{float(plan.expert_skew):g}: how tokens are spread is no setting")
    if plan.sync.method != "every_step":
        found.leave("plan.sync", f"{plan.sync.method} changes nothing within one island")
    if plan.rank_order != AXES:
        found.leave("plan.rank_order", f"{', '.join(plan.rank_order)}: ranks lie in the trainer's own order")
