"""Cells of files of runs across islands: numbers with remarks, bounds and ranges, as collected tables write them.

`2 (default; not stated)` is 2; `0.5-4 between nodes` and `4 -> 14` are ranges; `>20`, `up to 17`, `40+`, `8 (>=)` are bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from shardmeter.core.errors import shown
from shardmeter.core.record import record
from shardmeter.study.validate.rows import LEAST, MOST, Damaged, NotModelled, Row, Unclear

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_BEFORE = r"(?P<before>up to|at least|at most|about|[<>]=?|[≤≥~≈])?"
_CELL = re.compile(
    rf"{_BEFORE}\s*(?P<low>{_NUMBER}|inf(?:inity)?)\s*(?:(?:-|–|—|\.\.|to|->|→)\s*(?P<high>{_NUMBER}))?"
    r"\s*(?P<scale>[kKMBT](?![A-Za-z]))?(?P<plus>\+)?(?P<remark>(?:[\s(;]|,\s).*)?",
    re.IGNORECASE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"\S+\.(csv|json|yaml)")
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_BOUND = {"up to": "at most", "at most": "at most", "<": "below", "<=": "at most", "≤": "at most", "at least": "at least",
          ">": "above", ">=": "at least", "≥": "at least"}  # fmt: skip


@record
class Stated:
    """A number as a cell states it: from `low` to `high`, which are equal for a plain number; `bound` where it is one."""

    low: float
    high: float
    bound: str = ""

    @property
    def exact(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high and not self.bound

    @property
    def text(self) -> str:
        """The shortest way to write it."""
        before = {"at least": ">=", "at most": "<=", "above": ">", "below": "<"}.get(self.bound, "")
        return f"{before}{self.low:.12g}" + (f"-{self.high:.12g}" if self.high != self.low else "")


def stated(row: Row, column: str) -> Stated | None:
    """The number of a cell, None where the cell says nothing or names a file that holds it. Raises Damaged."""
    text = row.text(column)
    if not text or _ELSEWHERE.fullmatch(text):
        return None
    found = _CELL.fullmatch(text)
    if found is None:
        raise Damaged(column, f"is not a number: {shown(text, 40)}", "a number, a range (0.5-4) or a bound (>20)")
    scale = _SCALE[(found["scale"] or "").lower()]
    low = float(found["low"]) * scale
    high = float(found["high"]) * scale if found["high"] else low
    if low > high or not (low == 0.0 or LEAST <= low <= MOST or math.isinf(low)):
        raise Damaged(column, f"is beyond reason: {shown(text, 40)}", f"0, or a number from {LEAST:g} to {MOST:g}")
    remark = (found["remark"] or "").strip(" ();")
    bound = _BOUND.get((found["before"] or "").lower(), "") or ("at least" if found["plus"] or remark == ">=" else "")
    return Stated(low=low, high=high, bound=bound)


def written(row: Row, column: str) -> str:
    """The number of a cell in its shortest form, so that equal numbers are equal texts; the cell itself where it holds none."""
    try:
        found = stated(row, column)
    except Damaged:
        return row.text(column)
    return "" if found is None else found.text


def number(row: Row, column: str) -> float | None:
    """A plain number above zero; None where the cell says nothing, or only a range or a bound. Raises Damaged."""
    found = stated(row, column)
    if found is not None and not (found.low > 0.0 and found.high < math.inf):
        raise Damaged(column, f"is not above zero and finite: {shown(row.text(column), 40)}", "a number above zero")
    return found.low if found is not None and found.exact else None


def link(row: Row) -> Stated:
    """The link in Gbit/s, infinity included. Raises NotModelled where none is stated, Damaged where it carries nothing."""
    found = stated(row, "wan_gbps")
    if found is None:
        raise NotModelled("the link is not stated")
    if found.low <= 0.0:
        raise Damaged("wan_gbps", "carries nothing", "a number above zero")
    return found


def value_of(row: Row) -> Stated:
    """What was measured. Raises Unclear where nothing is stated, Damaged where it is no number above zero."""
    found = stated(row, "value")
    if found is None:
        raise Unclear("no value is stated")
    if found.low <= 0.0 or math.isinf(found.low):
        raise Damaged("value", f"is not above zero and finite: {row.text('value')}", "a number above zero")
    return found


def first(text: str, pattern: str) -> float | None:
    """The first number that a pattern finds in a text, None where it finds none above zero."""
    found = re.search(pattern, text, re.IGNORECASE)
    return float(found[1]) if found and re.fullmatch(_NUMBER, found[1]) and float(found[1]) > 0.0 else None


def delay(row: Row, column: str) -> float | None:
    """The overlap column: a number, the least of a bound, or None; `H` is the whole round, said as infinity."""
    if row.text(column).casefold() == "h":
        return math.inf
    found = stated(row, column)
    return None if found is None else found.low


COLUMNS = (
    "id", "source", "kind", "method", "model", "params_b", "n_layers", "tokens_b", "global_batch_tokens", "islands_m",
    "gpus_per_island", "gpu", "h", "bits_per_param", "fragments_p", "overlap_tau_steps", "wan_gbps", "rtt_ms", "compute_step_s",
    "quantity", "value", "unit", "notes",
)  # fmt: skip
"""The columns of the layout, in its published order."""

READERS: Mapping[str, Callable[[Row, str], object]] = {
    **dict.fromkeys(
        ("params_b", "n_layers", "tokens_b", "global_batch_tokens", "islands_m", "gpus_per_island", "h", "bits_per_param",
         "fragments_p", "compute_step_s"),
        number,
    ),
    "wan_gbps": stated,
    "rtt_ms": stated,
    "overlap_tau_steps": delay,
    "value": lambda row, _: stated(row, "value"),
}  # fmt: skip
"""Columns that hold numbers, each with how it is read: what they cannot hold is a damaged cell."""
