"""`@formula`: the only decorator. It registers a function (formula book, citations, dimension test), leaves it callable,
and records a step when a trace is open. `explain` is the same run with a trace open: there is no second implementation.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from shardmeter.core.units import Unit

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Formula:
    """A registered formula: its name, the function as written, and the key of its source in `data/citations.csv`."""

    name: str
    body: Callable[..., Any]
    cite: str

    @property
    def doc(self) -> str:
        """The docstring, dedented."""
        return inspect.getdoc(self.body) or ""

    @property
    def units(self) -> dict[str, str]:
        """Unit symbol of every parameter, and of the result under `return`."""
        hints = get_type_hints(self.body, include_extras=True)
        return {name: unit_of(hint) for name, hint in hints.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a formula, as recorded by an open trace."""

    formula: str
    arguments: dict[str, Any]
    value: Any
    cite: str
    term: str = ""
    """The ledger or memory term that the call belongs to, where whoever called said so (`under`)."""
    block: str = ""
    """The block of the model of which the call prices one piece (`within`); empty = of no piece."""
    portion: float = 1.0
    """Share of the block's pieces that do it."""
    pieces: float | None = None
    """Pieces of the block that count (filled in by whoever reads the trace)."""


REGISTRY: dict[str, Formula] = {}
_open_trace: list[Step] | None = None
_term = ""
_whole = False
_block = ""
_portion = 1.0
_UNTRACED: AbstractContextManager[None] = nullcontext()


def formula(*, cite: str) -> Callable[[F], F]:
    """Register the decorated function under its own name; `cite` is a key of `data/citations.csv`."""

    def decorate(body: F) -> F:
        name = body.__name__
        if name in REGISTRY and REGISTRY[name].body.__module__ != body.__module__:
            raise ValueError(f"two formulas are named {name!r}")
        REGISTRY[name] = Formula(name, body, cite)
        parameters = tuple(inspect.signature(body).parameters)

        @functools.wraps(body)
        def call(*args: Any, **kwargs: Any) -> Any:
            value = body(*args, **kwargs)
            if _open_trace is not None:
                arguments = dict(zip(parameters, args, strict=False)) | kwargs
                _open_trace.append(Step(name, arguments, value, cite, _term, _block, _portion))
            return value

        return call  # type: ignore[return-value]

    return decorate


@contextmanager
def trace() -> Iterator[list[Step]]:
    """Open a trace: every formula called inside is recorded, in order. Traces nest; the innermost records."""
    global _open_trace
    outer, steps = _open_trace, []  # type: ignore[var-annotated]
    _open_trace = steps
    try:
        yield steps
    finally:
        _open_trace = outer


def under(label: str, *, whole: bool = False, portion: Any = 1.0) -> AbstractContextManager[None]:
    """Tag every step recorded inside with the term it belongs to; the innermost label counts, unless one around it is for the
    `whole`. `portion` of the pieces of a block do it. Free when no trace is open."""
    return _UNTRACED if _open_trace is None else _tagged(label, whole, portion)


@contextmanager
def _tagged(label: str, whole: bool, portion: Any) -> Iterator[None]:
    global _term, _whole, _portion
    outer = _term, _whole, _portion
    _term, _whole, _portion = _term if _whole else label, _whole or whole, float(portion)
    try:
        yield
    finally:
        _term, _whole, _portion = outer


def within(block: str) -> AbstractContextManager[None]:
    """Tag every step recorded inside with the block of which it prices one piece. Free when no trace is open."""
    return _UNTRACED if _open_trace is None else _one_of(block)


@contextmanager
def _one_of(block: str) -> Iterator[None]:
    global _block
    outer, _block = _block, block
    try:
        yield
    finally:
        _block = outer


def tracing() -> bool:
    """Whether a trace is open: labels of chosen candidates are recovered only then."""
    return _open_trace is not None


def unit_of(hint: Any) -> str:
    """The unit symbol of an annotation; empty for what has none."""
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if isinstance(extra, Unit):
                return extra.symbol
    return ""
