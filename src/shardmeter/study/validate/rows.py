"""One row of a file of runs as text, with readers that never guess: a cell is stated, empty, or unreadable."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from shardmeter.core.errors import printable, shown
from shardmeter.core.record import record

EMPTY = frozenset({"", "-", "--", "n/a", "na", "nan", "none stated", "not stated", "unknown", "null", "?"})
"""Cells that say nothing. `none` is not among them: it is a value of `sharding` and `recompute`."""


LEAST, MOST = 1e-9, 1e18
"""Sizes, times and rates outside of this are misprints."""
MOST_COUNTED = 1e9
"""Counts above this are misprints: tokens of a sequence, sequences of a batch, accelerators, entries of a vocabulary."""
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""How a number is written; Python reads more (`2_6`, digits of other scripts), which here is a misprint."""


class Unclear(Exception):
    """The row does not say enough, or contradicts itself: it does not count (excluded)."""


class NotModelled(Exception):
    """The row is clear, but this version cannot express it (skipped)."""


@record
class Row:
    """A line of a CSV file: cells by column name, and where it stands."""

    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell with outer and repeated blanks removed; empty if the column or the cell is missing or says nothing."""
        cell = " ".join(self.cells.get(column, "").split())
        return "" if cell.lower() in EMPTY else printable(cell)

    def number(self, column: str) -> float | None:
        """The cell as a plain number (`8.0`, `1e3`), or None where it says nothing."""
        text = self.text(column)
        if not text:
            return None
        if not NUMBER.fullmatch(text):
            if text.lower().lstrip("+-") in ("inf", "infinity"):
                raise Unclear(f"{column} is not finite")
            raise Unclear(f"{column} is not a number: {shown(text, 40)}")
        value = float(text)
        if math.isinf(value):
            raise Unclear(f"{column} is not finite")
        return value

    def positive(self, column: str) -> float | None:
        """The cell as a number above zero, or None where it says nothing."""
        value = self.number(column)
        if value is not None and value <= 0.0:
            raise Unclear(f"{column} is not above zero: {value:g}")
        if value is not None and not LEAST <= value <= MOST:
            raise Unclear(f"{column} is beyond reason: {value:g}")
        return value

    def count(self, column: str) -> float | None:
        """The cell as a whole number above zero, or None where it says nothing."""
        value = self.positive(column)
        if value is not None and value != int(value):
            raise Unclear(f"{column} is not a whole number: {value:g}")
        if value is not None and value > MOST_COUNTED:
            raise Unclear(f"{column} is beyond reason: {value:g}")
        return value

    @property
    def id(self) -> str:
        """The row's own id, else its line."""
        return self.text("id") or f"line-{self.line}"
