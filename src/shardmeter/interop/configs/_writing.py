"""What writers of settings share: reasons against an export, the file as a tree and as YAML, what a file need not or cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.interop.configs._saying import Saying, count, value_text
from shardmeter.specs import Plan, Scenario
from shardmeter.specs.plan import AXES

YAML_WORDS = ("no", "yes", "on", "off", "true", "false", "null", "none")
"""Texts that a reader of YAML 1.1 takes for something else where they stand without quotes."""


def tree(found: Saying, begun: dict[str, Any] | None = None) -> dict[str, Any]:
    """The settings by their dotted paths as nested mappings, put into those that a file begins with, if any."""
    made: dict[str, Any] = begun or {}
    for path, value in found.values.items():
        *sections, name = path.split(".")
        inner = made
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return made


def yaml(tree: Mapping[str, Any], indent: str = "") -> str:
    """Mappings of words, numbers and flags as YAML, the same for every reader of 1.1 and 1.2."""
    lines = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key}:\n{yaml(value, indent + '  ')}")
        else:
            quoted = isinstance(value, str) and value.lower() in YAML_WORDS
            lines.append(f"{indent}{key}: {repr(value) if quoted else value_text(value)}\n")
    return "".join(lines)


def steps_of(scenario: Scenario) -> int:
    """Micro-batches that one replica adds up in a step."""
    return max(1, count(scenario.run.global_batch / (scenario.plan.micro_batch * scenario.plan.dp)))


def refuse_islands(found: Saying, scenario: Scenario, title: str) -> None:
    """Reasons of several islands, and of steps without a backward."""
    plan = scenario.plan
    if len(scenario.fleet.islands) > 1:
        found.refuse(
            "fleet.islands",
            f"{len(scenario.fleet.islands)} islands, and {title} starts one cluster",
            "export each island by itself, or --to torchft",
        )
    if plan.probes is not None:
        found.refuse("plan.sync.method", f"{plan.sync.method} has no backward", "a method with one, such as every_step")


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


def leave_idle(found: Saying, plan: Plan) -> None:
    """Note fields that differ from what is read again where they change nothing of the plan."""
    usual = Plan()
    for field, is_idle, why in (
        ("cp_kind", plan.cp == 1, "cp = 1 cuts no sequence"), ("sequence_parallel", plan.tp == 1, "tp = 1 cuts no activations"),
        ("reshard", plan.sharding != "fsdp", f"{plan.sharding} frees nothing that fsdp does"),
        ("schedule", plan.pp == 1, "pp = 1 has no pipeline"), ("virtual_stages", plan.pp == 1, "pp = 1 has no pipeline"),
    ):  # fmt: skip
        if is_idle and getattr(plan, field) != getattr(usual, field):
            found.leave(f"plan.{field}", why)
