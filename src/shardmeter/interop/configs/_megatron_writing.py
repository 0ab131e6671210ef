"""Settings of an export while they are written: what is said, what cannot be, and what would make another run of it."""

from __future__ import annotations

from typing import Any

from shardmeter.core.errors import Violation
from shardmeter.interop.configs.record import Inexpressible, Setting
from shardmeter.specs import Plan


class Writing:
    """The settings of one export, in groups with a title each."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.groups: dict[str, list[Setting]] = {}
        self.unsaid: list[str] = []
        self.reasons: list[Violation] = []
        self._group = ""

    def begin(self, group: str) -> None:
        """Whatever is said next belongs to this group."""
        self._group = group

    def say(self, key: str, value: Any, means: str) -> None:
        """Write a setting; numbers without a fraction that is nothing, true and false in small letters."""
        text = f"{value:g}" if isinstance(value, float) and not value.is_integer() else _plain(value)
        self.groups.setdefault(self._group, []).append(Setting(key=key, value=text, means=means))

    def leave(self, field: str, sentence: str) -> None:
        """Note what the scenario has and the format cannot say."""
        self.unsaid.append(f"{field}: {sentence}")

    def cannot(self, field: str, says: str, way_out: str = "") -> None:
        """Note what would make another run of it."""
        self.reasons.append(Violation(field=field, says=says, way_out=way_out))

    @property
    def said(self) -> tuple[Setting, ...]:
        """Every setting written, in order."""
        return tuple(setting for group in self.groups.values() for setting in group)

    def stop(self) -> None:
        """Raise Inexpressible with every reason; nothing where there is none."""
        if self.reasons:
            raise Inexpressible(f"{self.title} cannot run this scenario as it is", self.reasons)


def leave_idle(plan: Plan, out: Writing) -> None:
    """Note fields that differ from what is read again where they change nothing of the plan."""
    usual = Plan()
    for field, is_idle, why in (
        ("cp_kind", plan.cp == 1, "cp = 1 cuts no sequence"), ("sequence_parallel", plan.tp == 1, "tp = 1 cuts no activations"),
        ("reshard", plan.sharding != "fsdp", f"{plan.sharding} frees nothing that fsdp does"),
        ("schedule", plan.pp == 1, "pp = 1 has no pipeline"), ("virtual_stages", plan.pp == 1, "pp = 1 has no pipeline"),
    ):  # fmt: skip
        if is_idle and getattr(plan, field) != getattr(usual, field):
            out.leave(f"plan.{field}", why)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) else str(value)
