"""The inputs in which two scenarios differ, field by field, as they were resolved: with defaults and catalog rows in their places."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_type_hints

import numpy as np

from shardmeter.core.formula import unit_of
from shardmeter.core.record import field_names
from shardmeter.specs.fleet import Island
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.wan import Wan
from shardmeter.study.diff.change import OF_SCENARIO, Change, Plain, group_of
from shardmeter.study.diff.names import settable

GROUPS = ("model", "stack", "fleet", "plan", "run", "prices")
"""Parts of a scenario that can be taken from one or the other."""
UNSAID = frozenset(
    {"aliases", "source", "retrieved", "notes", "date", "data", "draws", "basis", "price_basis", "pue_basis"}
    | {"carbon_basis", "prices"}
)
"""Fields that explain others and enter no formula."""


def rows(a: Scenario, b: Scenario, groups: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """`said` of the answer. An input `follows` where nothing was said differently of its part: it is derived from others."""
    apart = {name for group in groups for name in group}
    return [
        {
            "field": one.field, "group": one.group, "unit": one.unit, "a": one.a, "b": one.b,
            "follows": one.follows or one.group not in apart,
        }
        for one in settable(differences(a, b))
    ]  # fmt: skip


def differences(a: Scenario, b: Scenario) -> tuple[Change, ...]:
    """Every input that differs, in the order of a scenario."""
    found = [change for name in OF_SCENARIO for change in _of(getattr(a, name), getattr(b, name), name, "")]
    names = [island.name for island in (a if len(a.plans) >= len(b.plans) else b).fleet.islands]
    common = {(one.field.partition(".")[2], str(one.a), str(one.b)) for one in found if one.field.startswith("plan.")}
    for at, (own, other) in enumerate(zip(a.plans, b.plans, strict=False)):
        each = _of(own, other, f"plans.{names[at]}", "")
        found += [one for one in each if (one.field.split(".", 2)[2], str(one.a), str(one.b)) not in common]
    return tuple(found)


def _of(a: Any, b: Any, path: str, unit: str) -> Iterator[Change]:
    """The differences of two values of one field."""
    if a is b or _same(a, b):
        return
    whole = [one for one in (a, b) if one is not None]
    if all(hasattr(one, "__dataclass_fields__") for one in whole) and len({type(one) for one in whole}) == 1:
        yield from _of_records(a, b, path)
    elif all(isinstance(one, tuple) for one in whole) and any(
        hasattr(one, "__dataclass_fields__") for some in whole for one in some
    ):
        yield from _of_several(a or (), b or (), path)
    else:
        yield Change(field=path, group=group_of(path), unit=unit, a=_plain(a), b=_plain(b))


def _of_records(a: Any, b: Any, path: str) -> Iterator[Change]:
    """Two records, one of which may not be there: their names where these differ, else the fields that differ."""
    cls: Any = type(b if a is None else a)
    if "name" in field_names(cls) and (a is None or b is None or a.name != b.name):
        yield Change(field=path, group=group_of(path), a=_name(a), b=_name(b))
        return
    units = _units(cls)
    for name in field_names(cls):
        if name not in UNSAID and (cls, name) != (Wan, "islands"):  # the fleet says them
            yield from _of(getattr(a, name, None), getattr(b, name, None), f"{path}.{name}", units[name])


def _name(one: Any) -> str | None:
    """What a record is called; of an island that only one of the two has what it consists of."""
    if isinstance(one, Island):
        return f"{float(one.gpus):,.0f} × {one.accelerator.name}"
    return None if one is None else str(one.name)


def _of_several(a: tuple[Any, ...], b: tuple[Any, ...], path: str) -> Iterator[Change]:
    """Two rows of records: those of one name beside each other, those without by their places."""
    named = [{getattr(one, "name", str(at + 1)): one for at, one in enumerate(some)} for some in (a, b)]
    for name in dict.fromkeys([*named[0], *named[1]]):
        yield from _of(named[0].get(name), named[1].get(name), f"{path}.{name}", "")


@functools.cache
def _units(cls: type[Any]) -> dict[str, str]:
    """The unit of every field of a record; empty for what has none, and for numbers without dimension."""
    symbols = {name: _unit(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    return {name: "" if symbol == "1" else symbol for name, symbol in symbols.items()}


def _unit(hint: Any) -> str:
    return unit_of(hint) or next(filter(None, map(_unit, get_args(hint))), "")


def _same(a: Any, b: Any) -> bool:
    """Whether two values are, as far as that is told at once: records are compared field by field."""
    if hasattr(a, "ndim") or hasattr(b, "ndim"):
        return bool(np.shape(a) == np.shape(b) and np.array_equal(a, b, equal_nan=True))
    return not hasattr(a, "__dataclass_fields__") and bool(a == b)


def _plain(value: Any) -> Plain:
    """A value as JSON has it: what has no name of its own as the text of its parts."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "tolist"):
        made: Plain = value.tolist()
        return made
    if isinstance(value, tuple | list | frozenset):
        return [_plain(one) for one in value]
    return str(getattr(value, "name", value))
