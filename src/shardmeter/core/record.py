"""Frozen records: what every layer hands to the next."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a frozen, keyword-only, slotted dataclass. Records hold data; functions do the work."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def changed(instance: T, **fields_: Any) -> T:
    """A copy of a record with some fields replaced."""
    return replace(instance, **fields_)  # type: ignore[type-var]


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of a record's fields, in order."""
    return tuple(f.name for f in fields(cls))
