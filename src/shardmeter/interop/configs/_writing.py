"""A scenario on its way into a file of settings: what is said, what cannot be said, and what makes another run of it."""

from __future__ import annotations

import json
from typing import Any

from shardmeter.core.errors import Violation
from shardmeter.core.units import Count
from shardmeter.interop.configs.record import Inexpressible, Setting
from shardmeter.specs import Scenario
from shardmeter.specs.plan import AXES


class Sayings:
    """Settings by their dotted paths, and what is found on the way."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.said: list[Setting] = []
        self.unsaid: list[str] = []
        self.reasons: list[Violation] = []

    def say(self, key: str, value: Any, means: str) -> None:
        """One setting, and what of the scenario it says."""
        self.settings[key] = value
        text = value if isinstance(value, str) else json.dumps(value)
        self.said.append(Setting(key=key, value=text, means=means))

    def leave(self, field: str, why: str) -> None:
        """What the format cannot say: the field, and where it is said instead."""
        self.unsaid.append(f"{field}: {why}")

    def refuse(self, wrong: bool, field: str, says: str, way_out: str) -> None:
        """One reason against the export, where something is wrong."""
        if wrong:
            self.reasons.append(Violation(field=field, says=says, way_out=way_out))

    def stop(self, title: str) -> None:
        """Raise Inexpressible with every reason, if there is one."""
        if self.reasons:
            raise Inexpressible(f"{title} cannot run this plan as it is", self.reasons)

    def tree(self) -> dict[str, Any]:
        """The settings as nested mappings."""
        made: dict[str, Any] = {}
        for path, value in self.settings.items():
            *sections, name = path.split(".")
            inner = made
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[name] = value
        return made


def whole(number: Count) -> int:
    """A count as files write it."""
    return round(float(number))


def steps_of(scenario: Scenario) -> int:
    """Micro-batches that one replica adds up in a step."""
    return max(1, whole(scenario.run.global_batch / (scenario.plan.micro_batch * scenario.plan.dp)))


def refuse_islands(found: Sayings, scenario: Scenario, title: str) -> None:
    """Reasons of several islands, and of steps without a backward."""
    plan = scenario.plan
    found.refuse(
        len(scenario.fleet.islands) > 1,
        "fleet.islands",
        f"{len(scenario.fleet.islands)} islands, and {title} starts one cluster",
        "export each island by itself, or --to torchft",
    )
    found.refuse(
        plan.probes is not None,
        "plan.sync.method",
        f"{plan.sync.method} has no backward",
        "a method with one, such as every_step",
    )


def leave_the_run(found: Sayings, scenario: Scenario, where: str) -> None:
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
