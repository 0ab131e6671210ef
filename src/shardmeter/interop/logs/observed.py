"""A log beside the scenario of its run: what calibration takes of it, once the two agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.interop.logs import read
from shardmeter.interop.logs.record import LogAccount
from shardmeter.interop.logs.scenario import DEVICES, known
from shardmeter.interop.logs.values import positive
from shardmeter.specs import Scenario
from shardmeter.study.calibrate.observation import Observation

APART = 0.01
"""Counts that are further apart are not the same."""
DEGREES = ("tp", "pp", "cp", "ep", "dp_shard", "dp_replicate", "micro_batch")


def observed(source: str | Path, scenario: Scenario, format: str | None = None, name: str = "") -> tuple[Observation, LogAccount]:  # noqa: A002  (as `read`)
    """The step time and the peak of a log as an observation of a scenario, and the account that they are from.

    What the log does not say (accelerators, batch, length) is the scenario's: a rate becomes a time so. Raises BadScenario with everything
    that the log's head contradicts the scenario in, or where it has no step time; BadData where it cannot be read."""
    account = read(source, format, known=known(scenario))
    label = name or (str(source) if isinstance(source, Path) or "\n" not in source else account.format)
    violations = tuple(_contradictions(account, scenario))
    if account.step_time is None:
        violations += (Violation(field="step_time", says=account.warnings[-1] if account.warnings else "no report has a time"),)
    if violations:
        raise BadScenario(f"{label} is no log of this scenario", violations)
    seen = Observation(
        id=label, scenario=scenario, step_time=account.step_time or 0.0, error=account.error or 0.0, memory=account.peak_allocated, source=label
    )  # fmt: skip
    return seen, account


def _contradictions(account: LogAccount, scenario: Scenario) -> Iterator[Violation]:
    said = {key: value for key, text in account.said if (value := positive(text)) is not None}
    expected = {
        **_expected(scenario), "gpus": float(scenario.fleet.gpus),
        "tokens_per_step": float(scenario.run.global_batch * scenario.run.seq_len),
    }  # fmt: skip
    found: dict[str, Any] = {**said, "gpus": account.gpus, "tokens_per_step": account.tokens_per_step}
    for field, ours in expected.items():
        theirs = found.get(field)
        if theirs is not None and abs(theirs / ours - 1) > APART:
            yield Violation(
                field=field, says=f"the log says {theirs:,.10g}, the scenario {ours:,.10g}",
                way_out=f"correct the scenario (--set {field}={theirs:.10g})" if "." in field else "correct the scenario",
            )  # fmt: skip
    device = DEVICES.get(dict(account.said).get("accelerator", ""))
    kinds = sorted({island.accelerator.name for island in scenario.fleet.islands})
    if device is not None and device not in kinds:
        yield Violation(field="accelerator", says=f"the log says {device}, the scenario {', '.join(kinds)}", way_out="correct the scenario")


def _expected(scenario: Scenario) -> dict[str, float]:
    """Counts of the run; degrees where one plan holds for all."""
    counts = {"run.seq_len": float(scenario.run.seq_len), "run.global_batch": float(scenario.run.global_batch)}
    if len(scenario.fleet.islands) > 1:
        return counts
    return counts | {f"plan.{name}": float(getattr(scenario.plan, name)) for name in DEGREES}
