"""The two scenarios of a comparison, each with the text that it was read from, where there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName, Violation
from shardmeter.core.record import changed, record
from shardmeter.scenario import opened
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.named import rooted
from shardmeter.scenario.override import Overrides, apply_overrides
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.resolve import resolve
from shardmeter.specs.scenario import Scenario
from shardmeter.study.legal import checked

Source: TypeAlias = Scenario | Mapping[str, Any] | str | Path
Settle: TypeAlias = Callable[[Scenario], Scenario]
"""What finds the plan that a scenario leaves open."""
ONLY_B = "--set-b"
"""The option that changes only one of the two."""


@record
class Side:
    """A scenario, and what it was read from."""

    scenario: Scenario
    said: Mapping[str, Any] | None = None
    """Its document, with files named from anywhere; None for a record, and where the plan was left open and found."""
    rows: Rows | None = None
    """The catalog that names are looked up in; None where there is no document."""


def sides(
    a: Source,
    b: Source,
    overrides: Overrides = (),
    overrides_b: Overrides = (),
    *,
    catalog: Any = None,
    settle: Settle,
) -> tuple[Side, Side]:
    """Both scenarios; `overrides` are of both, `overrides_b` of B and win. Raises BadScenario with everything that is wrong with either,
    UnknownName, TypeError for overrides of a record."""
    found: list[Side | ShardMeterError] = []
    for source, more in ((a, ()), (b, overrides_b)):
        try:
            found.append(_side(source, overrides, more, catalog, settle))
        except (BadScenario, UnknownName) as error:
            found.append(error)
    one, other = found
    if isinstance(one, Side) and isinstance(other, Side):
        return one, other
    raise _refusal(one, other)


def _refusal(one: Side | ShardMeterError, other: Side | ShardMeterError) -> ShardMeterError:
    """What is wrong with one of them, or with both at once; what is wrong with both alike is said once."""
    errors = {name: error for name, error in (("A", one), ("B", other)) if isinstance(error, ShardMeterError)}
    texts = {str(error) for error in errors.values()}
    if len(errors) == 1 or len(texts) == 1:
        return next(iter(errors.values()))
    each = {name: error.violations or (Violation(field="", says=error.message),) for name, error in errors.items()}
    both = [one for one in each["A"] if one in each["B"]]
    alone = [
        changed(one, field=f"{name}: {one.field}" if one.field else name)
        for name, some in each.items() for one in some if one not in both
    ]  # fmt: skip
    return BadScenario("both scenarios are refused", [*both, *alone])


def _side(source: Source, overrides: Overrides, more: Overrides, catalog: Any, settle: Settle) -> Side:
    if isinstance(source, Scenario):
        if any(one if isinstance(one, Mapping) else tuple(one) for one in (overrides, more)):
            raise TypeError("a resolved Scenario takes no overrides: change the record, or give the file or mapping")
        return Side(scenario=checked(source if source.choices is None else settle(source)))
    document, rows = opened(source, overrides=overrides, catalog=catalog)
    apply_overrides(document, (more,) if isinstance(more, str) else more, ONLY_B, rows)
    said = copy.deepcopy(document.data)
    scenario = resolve(document, rows, left_open(document, planning=False))
    if scenario.choices is not None:
        return Side(scenario=settle(scenario))
    return Side(scenario=scenario, said=rooted(said, document.folder, rows), rows=rows)
