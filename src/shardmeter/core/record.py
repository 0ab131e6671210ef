"""Frozen records: what every layer hands to the next."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from shardmeter.core.frozen import METHODS

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a frozen, keyword-only, slotted dataclass. Records hold data; functions do the work."""
    own = METHODS.keys() - vars(cls).keys()
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    for name in own:
        setattr(made, name, METHODS[name])
    return made


def changed(instance: T, **fields_: Any) -> T:
    """A copy of a record with some fields replaced. Raises TypeError for a field it does not have.

    Faster than `dataclasses.replace`, which the engine calls too often for its price."""
    cls = type(instance)
    values, writers = _slots(cls)  # type: ignore[arg-type]
    copy = object.__new__(cls)
    for write, value in zip(writers.values(), values(instance), strict=True):
        write(copy, value)
    try:
        for name, value in fields_.items():
            writers[name](copy, value)
    except KeyError:
        raise TypeError(f"{cls.__name__} has no field {sorted(fields_.keys() - writers.keys())}") from None
    return copy


@functools.cache
def _slots(cls: type[Any]) -> tuple[Callable[[Any], Iterable[Any]], Mapping[str, Callable[[Any, Any], None]]]:
    """What reads all fields of a record, in order, and what writes each of them: past the lock of a frozen one, without a look-up."""
    names = field_names(cls)  # type: ignore[arg-type]
    values = (lambda one: (getattr(one, names[0]),)) if len(names) == 1 else attrgetter(*names)
    return values if names else (lambda _: ()), {name: getattr(cls, name).__set__ for name in names}


@functools.cache
def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of a record's fields, in order."""
    return tuple(f.name for f in fields(cls))


def field_types(cls: type[Any]) -> dict[str, str]:
    """The annotation of every field of a record, as written, in order."""
    return {f.name: str(f.type) for f in fields(cls)}


def stacked(records: Sequence[T]) -> T:
    """One record whose numeric fields are arrays over `records`; equal fields stay as they are.

    Nested records and tuples of records are stacked field by field. Raises ValueError where names (or ints, which set the
    length of an axis) differ: such records do not belong in one batch; `structure` tells which do."""
    first = records[0]
    merged: dict[str, Any] = {}
    for field in fields(first):  # type: ignore[arg-type]
        values = [getattr(one, field.name) for one in records]
        merged[field.name] = _stacked_value(field.name, values)
    return changed(first, **merged)


def _stacked_value(name: str, values: list[Any]) -> Any:
    head = values[0]
    if all(value is head or value == head for value in values):
        return head
    if is_dataclass(head):
        return stacked(values)
    if isinstance(head, tuple) and head and is_dataclass(head[0]):
        return tuple(stacked(list(column)) for column in zip(*values, strict=True))
    if all(isinstance(value, float) for value in values):
        return np.array(values)
    raise ValueError(f"{name} differs and is not a number: {values[0]!r} …")


def structure(instance: Any) -> tuple[Any, ...]:
    """Everything about a record that must be equal for it to be stacked with another: names, ints, lengths, presence."""
    cls: Any = type(instance)
    parts: list[Any] = [cls.__name__]
    for name in field_names(cls):
        value = getattr(instance, name)
        if isinstance(value, float):
            parts.append("number")
        elif hasattr(value, "__dataclass_fields__"):
            parts.append(structure(value))
        elif isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            parts.append(tuple(structure(one) for one in value))
        elif isinstance(value, Mapping):
            parts.append(tuple(sorted(value.items())))
        else:
            parts.append(value)
    return tuple(parts)
