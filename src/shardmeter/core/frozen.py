"""The methods of a frozen, keyword-only record. The standard library compiles six of them for every class when it is made, which took a
quarter of the start of a command; these are shared, and a class's own `__init__` is compiled when the first of its kind is made."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, fields
from reprlib import recursive_repr
from typing import Any

_write = object.__setattr__


def initialise(self: Any, **values: Any) -> None:
    """Compile the class's own `__init__`, put it in the place of this one, and call it."""
    cls = type(self)
    cls.__init__ = _compiled(cls)
    cls.__init__(self, **values)


def _compiled(cls: type[Any]) -> Callable[..., None]:
    """As a dataclass has it: keywords with defaults, each written into its slot; a factory is called for what is left out."""
    ours: dict[str, Any] = {"_write": _write, "_none": MISSING}  # no field begins so; its default is our_ and its name
    parameters, lines = [], []
    for field in fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            ours[f"our_{name}"] = field.default_factory
            value = f"our_{name}() if {name} is _none else {name}"
            parameters.append(f"{name}=_none")
        elif field.default is not MISSING:
            ours[f"our_{name}"] = field.default
            parameters.append(f"{name}=our_{name}")
        else:
            parameters.append(name)
        lines.append(f" _write(self, {name!r}, {value})")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):"
    exec("\n".join([head, *(lines or [" pass"])]), ours)  # noqa: S102  (names of fields, which are identifiers)
    made: Callable[..., None] = ours["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@functools.cache
def _values(cls: type[Any]) -> Callable[[Any], Any]:
    """All values of a record, in order."""
    names = [field.name for field in fields(cls)]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def equals(self: Any, other: Any) -> Any:
    """Equal records of one class have equal values."""
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values(self.__class__)
    return values(self) == values(other)


def hashed(self: Any) -> int:
    """As equal records are."""
    return hash(_values(self.__class__)(self))


@recursive_repr()
def shown(self: Any) -> str:
    """The class and every value by name."""
    cls = self.__class__
    names = (field.name for field in fields(cls))
    return f"{cls.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"


def refuse_to_set(self: Any, name: str, value: Any) -> None:
    """Records do not change. Raises FrozenInstanceError."""
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def refuse_to_delete(self: Any, name: str) -> None:
    """The same of deletion."""
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def state(self: Any) -> Any:
    """For pickle and copy: a frozen record is not set field by field."""
    return list(_values(self.__class__)(self))


def restored(self: Any, values: Any) -> None:
    """The other way round."""
    for field, value in zip(fields(self.__class__), values, strict=True):
        _write(self, field.name, value)


METHODS: Mapping[str, Callable[..., Any]] = {
    "__init__": initialise, "__eq__": equals, "__hash__": hashed, "__repr__": shown, "__setattr__": refuse_to_set,
    "__delattr__": refuse_to_delete, "__getstate__": state, "__setstate__": restored,
}  # fmt: skip
"""By name; a class that has its own keeps it."""
