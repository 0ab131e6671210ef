"""Cells of a row about a whole run: amounts as people write them (`4M`, `12Mi`, `1T`), ramps, sequences in parts, dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from shardmeter.core.errors import BadQuantity, shown
from shardmeter.core.quantity import counted
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.study.validate.rows import INFINITE, NUMBER, Damaged, Row, Unclear

COLUMNS = (
    "run_id", "model", "org", "kind", "params_total", "params_active", "arch_notes", "data_seen", "data_unit", "seq_len",
    "global_batch", "global_batch_unit", "steps", "accelerator", "n_accel", "framework", "parallel_layout", "precision",
    "accel_hours", "accel_hours_kind", "wall_days", "tok_s_per_accel", "tflops_per_accel", "mfu_pct", "mfu_note", "cost_usd",
    "cost_basis", "energy_mwh", "energy_note", "co2_t", "final_metric", "date", "source", "where_seen", "verified", "tier",
    "implied_6nd_mfu_pct", "memory_fields", "notes",
)  # fmt: skip
"""Columns of the published layout."""
SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30}
AMOUNT = re.compile(
    r"(?<![\w.])([0-9]+(?:,[0-9]{3})*(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*(ki|mi|gi|[kmbt])?(?![a-z0-9])", re.IGNORECASE
)
EARLIEST, LATEST = 2012.0, 2100.0
LONGEST = 1e7
"""Tokens of a sequence, and accelerators of an island, beyond which a number is a misprint."""


@record
class Part:
    """A part of a run with a sequence length of its own."""

    share: float
    """Of the run's tokens."""
    seq_len: float


def amount(row: Row, column: str) -> float | None:
    """A cell as a number above zero, written as in every other file: `82432`, `1e12`, `8.03B`, `1.5T`, `1.5T tokens`; None where it says
    nothing. Raises Damaged."""
    text = row.text(column)
    if not text or NUMBER.fullmatch(text) or text.lower().lstrip("+-") in INFINITE:
        return row.positive(column)
    try:
        value, word = counted(text)
    except BadQuantity:
        value, word = 0.0, ""
    if value == 0.0 or (word and WORDS.get(column) != word):
        raise Damaged(column, f"is not a number: {shown(text, 40)}", "a number above zero, as in 8, 1e3, 8.03B or 1.5T")
    return Row(line=row.line, cells={column: repr(value)}).positive(column)


def count(row: Row, column: str) -> float | None:
    """The same of what comes in whole ones."""
    value = amount(row, column)
    return None if value is None else Row(line=row.line, cells={column: repr(value)}).count(column)


WORDS = {"data_seen": "tokens", "steps": "steps"}
"""Words that may follow a number of a column."""
READERS: Mapping[str, Callable[[Row, str], object]] = {
    **dict.fromkeys(("params_total", "params_active", "data_seen", "steps", "accel_hours", "tok_s_per_accel", "tflops_per_accel"), amount),
    "n_accel": count,
}  # fmt: skip
"""Columns that hold numbers, each with how it is read."""


def run_id(row: Row) -> str:
    """The row's name: its `run_id`, its `id`, or its line."""
    return row.text("run_id") or row.id


def amounts(text: str) -> list[float]:
    """Every amount of a text, in order: `3.456M-4.096M` are two."""
    spaced = re.sub(r"(?<=[0-9a-z])\s*(?:->|→|–|-|/|\bto\b)\s*(?=[0-9])", " ", text.lower())
    return [float(found[1].replace(",", "")) * SCALES[found[2] or ""] for found in AMOUNT.finditer(spaced)]


def year(row: Row) -> float | None:
    """When a run was published, as a year with its months: `2023-07` is 2023.5; None where nothing is said."""
    found = re.match(r"(\d{4})(?:-(\d{1,2}))?", row.text("date"))
    if found is None:
        return None
    when = float(found[1]) + (float(found[2]) - 1.0 if found[2] else 6.0) / 12.0
    if not EARLIEST <= when <= LATEST:
        raise Damaged("date", f"is beyond reason: {row.text('date')}", f"a date from {EARLIEST:.0f} on")
    return when


def parts(row: Row) -> tuple[Part, ...]:
    """Sequence lengths with their shares of the run; empty where none is stated.

    `128 (90 %) / 512 (10 %)` and `2048 (1T) then 8192 (50B)` say shares; of several without shares the first is the run's;
    `256 image + 128 text` is one sequence of both."""
    text = row.text("seq_len").lower()
    if not text:
        return ()
    if "+" in text:
        return (Part(share=1.0, seq_len=_length(plain_sum(amounts(text)), row)),)
    weighed = re.findall(r"([0-9][0-9.,]*\s*k?)\s*\(\s*([0-9.]+)\s*([%kmbt])", text)
    if len(weighed) > 1:
        sizes = [float(size) * (0.01 if unit == "%" else SCALES[unit]) for _, size, unit in weighed]
        total = plain_sum(sizes)
        if total > 0.0:
            return tuple(
                Part(share=size / total, seq_len=_length(amounts(length)[0], row))
                for (length, _, _), size in zip(weighed, sizes, strict=True)
            )
    found = amounts(text)
    if not found:
        raise Damaged("seq_len", f"is not a length: {text[:40]}", "a number of tokens, as in 4096")
    return (Part(share=1.0, seq_len=_length(found[0], row)),)


def _length(value: float, row: Row) -> float:
    """A stated length, `8k` as 8192."""
    whole = value
    if value % 1000.0 == 0.0 and re.search(r"[0-9]\s*k\b", row.text("seq_len").lower()):
        whole = value * 1.024
    if not 1.0 <= whole <= LONGEST or whole != int(whole):
        raise Damaged("seq_len", f"is beyond reason: {value:g}", f"a whole number of tokens up to {LONGEST:g}")
    return whole


def batch(row: Row) -> tuple[float, str] | None:
    """(largest stated batch, "tokens" or "sequences"); None where none is stated. A ramp is taken at its end: what comes before
    is a few per cent of the run."""
    text, unit = row.text("global_batch").lower(), row.text("global_batch_unit").lower()
    if not text:
        return None
    found = amounts(text)
    if not found:
        raise Damaged("global_batch", f"is not an amount: {text[:40]}", "a number, as in 4M, and its unit")
    size = max(found)
    if not 1.0 <= size <= 1e12:
        raise Damaged("global_batch", f"is beyond reason: {size:g}", "an amount from 1 to 1e12")
    words = f"{unit} {text}"
    if "token" in words:
        return size, "tokens"
    if re.search(r"seq|image|pair|sample|example|row", words):
        return size, "sequences"
    return size, "tokens" if size >= TOKENS_FROM else "sequences"


TOKENS_FROM = 262_144
"""A batch without a unit counts tokens from here on."""


def samples_or_tokens(row: Row) -> tuple[float, str]:
    """(amount, "tokens" or "samples") that a run went through: as stated, else steps × batch. Raises Unclear."""
    seen, unit = amount(row, "data_seen"), row.text("data_unit").lower()
    if seen is not None and "unique" in unit:
        raise Unclear("the data set's size is stated and not how often it was gone through")
    if seen is not None and re.search(r"token|^$", unit):
        return seen, "tokens"
    if seen is not None and re.search(r"pair|sample|image|sequence|example", unit):
        return seen, "samples"
    if seen is not None:
        raise Unclear(f"the amount of data is stated in {unit}")
    steps, size = amount(row, "steps"), batch(row)
    if steps is None or size is None:
        raise Unclear("the amount of data is not stated")
    return steps * size[0], "tokens" if size[1] == "tokens" else "samples"
