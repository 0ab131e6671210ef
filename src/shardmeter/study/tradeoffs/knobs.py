"""What can be turned, and over which values where nobody says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardmeter.core.record import record
from shardmeter.specs import Scenario
from shardmeter.sync import method

LADDER = ("none", "selective", "full")
"""Recomputation, from none to all."""


@record
class Knob:
    """One field and the values that it is turned to, in order; `now` is that of the scenario, None where it is no single number or word."""

    field: str
    title: str
    values: tuple[Any, ...]
    now: Any = None


TITLES = {
    "plan.sync.sync_every": "H", "plan.sync.num_fragments": "fragments", "plan.sync.bits": "bits", "plan.micro_batch": "micro-batch",
    "run.global_batch": "global batch", "run.seq_len": "sequence", "plan.recompute": "recompute",
}  # fmt: skip
"""Short names of the usual knobs; others are called by their field."""
SHARES = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


def usual(scenario: Scenario) -> tuple[Knob, ...]:
    """Those of the usual knobs that a scenario has, each around where it stands."""
    found = []
    for field, reads, values in _USUAL:
        if reads(scenario):
            now = _now(scenario, field)
            some = values(scenario)
            found.append(Knob(field=field, title=TITLES[field], values=_with(now, some), now=now))
    return tuple(found)


def asked(scenario: Scenario, field: str, values: tuple[Any, ...]) -> Knob:
    """A knob that somebody named, with the value of the scenario among its own where there is one."""
    now = _now(scenario, field) if field in TITLES else None
    return Knob(field=field, title=TITLES.get(field, field), values=_with(now, values), now=now)


def _now(scenario: Scenario, field: str) -> Any:
    part, _, name = field.rpartition(".")
    holder = {"plan": scenario.plan, "plan.sync": scenario.plan.sync, "run": scenario.run}[part]
    value = getattr(holder, name)
    return value if isinstance(value, str) else float(value)


def _with(now: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values with that of the scenario, in order where they are numbers."""
    if now is None or now in values:
        return values
    if not all(isinstance(one, int | float) for one in values):
        return (now, *values)
    return tuple(sorted((now, *values)))


def _reads(name: str) -> Callable[[Scenario], bool]:
    return lambda scenario: (
        len(scenario.fleet.islands) > 1 and name in method(scenario.plan.sync.method).FIELDS
    )  # fmt: skip


def _periods(scenario: Scenario) -> tuple[float, ...]:
    now = float(scenario.plan.sync.sync_every)
    least = max(1.0, float(scenario.plan.sync.fragment_sync_delay))
    return tuple(dict.fromkeys(max(float(round(now * share)), least) for share in SHARES))


def _doubled(now: float, least: float, most: float) -> tuple[float, ...]:
    """A quarter to eight times of a number, by doubling, whole and within bounds."""
    return tuple(
        one for share in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0) if least <= (one := now * share) <= most and one.is_integer()
    )


def _fragments(scenario: Scenario) -> tuple[float, ...]:
    return tuple(float(2**power) for power in range(6) if 2**power <= float(scenario.model.layers))


def _trained(scenario: Scenario) -> bool:
    """Whether there is a backward, for which anything is kept."""
    return scenario.plan.probes is None


_USUAL: tuple[tuple[str, Callable[[Scenario], bool], Callable[[Scenario], tuple[Any, ...]]], ...] = (
    ("plan.sync.sync_every", _reads("sync_every"), _periods),
    ("plan.sync.num_fragments", _reads("num_fragments"), _fragments),
    ("plan.sync.bits", _reads("bits"), lambda _: (4.0, 8.0, 16.0, 32.0)),
    ("plan.micro_batch", lambda _: True, lambda one: _doubled(float(one.plan.micro_batch), 1.0, 64.0)),
    ("run.global_batch", lambda one: not one.run.phases, lambda one: _doubled(float(one.run.global_batch), 1.0, 1e9)),
    ("run.seq_len", lambda one: not one.run.phases, lambda one: _doubled(float(one.run.seq_len), 128.0, 1_048_576.0)),
    ("plan.recompute", _trained, lambda _: LADDER),
)  # fmt: skip
"""(field, whether a scenario has it, values)."""
