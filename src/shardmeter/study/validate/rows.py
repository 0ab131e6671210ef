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
MOST_OF = {"n_layers": 10_000.0, "pp": 1024.0, "parallel_pp": 1024.0}
"""Columns of which less is a misprint already: layers, pipeline stages."""
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""How a number is written; Python reads more (`2_6`, digits of other scripts), which here is a misprint."""


INFINITE = ("inf", "infinity")


class Unclear(Exception):
    """The row does not say enough, or contradicts itself: it does not count (excluded)."""


class Damaged(Unclear):
    """A cell says something that its column cannot hold."""

    def __init__(self, column: str, says: str, rule: str) -> None:
        super().__init__(f"{column} {says}")
        self.column = column
        self.rule = rule
        """What the column holds."""


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
            if text.lower().lstrip("+-") in INFINITE:
                raise Damaged(column, "is not finite", "a finite number")
            raise Damaged(column, f"is not a number: {shown(text, 40)}", "a plain number, as in 8 or 1e3")
        value = float(text)
        if math.isinf(value):
            raise Damaged(column, "is not finite", "a finite number")
        return value

    def positive(self, column: str) -> float | None:
        """The cell as a number above zero, or None where it says nothing."""
        value = self.number(column)
        if value is not None and value <= 0.0:
            raise Damaged(column, f"is not above zero: {value:g}", "a number above zero")
        if value is not None and not LEAST <= value <= MOST:
            raise Damaged(column, f"is beyond reason: {value:g}", f"a number from {LEAST:g} to {MOST:g}")
        return value

    def count(self, column: str) -> float | None:
        """The cell as a whole number above zero, or None where it says nothing."""
        value = self.positive(column)
        if value is not None and value != int(value):
            raise Damaged(column, f"is not a whole number: {value:g}", "a whole number")
        most = MOST_OF.get(column, MOST_COUNTED)
        if value is not None and value > most:
            raise Damaged(column, f"is beyond reason: {value:g}", f"at most {most:.15g}")
        return value

    @property
    def id(self) -> str:
        """The row's own id, else its line."""
        return self.text("id") or f"line-{self.line}"
