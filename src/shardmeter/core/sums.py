"""Sums that are the same bits for numbers alone and in arrays, and under every Python."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def plain_sum(items: Iterable[T], start: Any = 0) -> T:
    """`items` added one after the other to `start`. The built-in `sum` does the same to arrays, but from Python 3.12 on it carries the
    rounding of floats along: a number alone would not be what it is inside an array, nor what it was under Python 3.11."""
    return cast("T", functools.reduce(operator.add, items, start))
