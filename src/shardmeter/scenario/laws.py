"""A law of loss fitted to a user's own runs: a table of parameters, tokens and loss."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.errors import BadQuantity, BadScenario, shown
from shardmeter.core.files import at_home, csv_lines, file_name, read_text, refuse_closed
from shardmeter.core.quantity import quantity
from shardmeter.scenario.law_fit import EXPONENTS, FREE, SHAPE, Fit, fit, is_idle
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import LossLaw

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

COLUMNS = {"parameters": ("parameters", "params", "n"), "tokens": ("tokens", "d"), "loss": ("loss", "l")}
"""Columns of the table, with the words that a header may have for them."""
FEWEST, MOST = 5, 1000
"""Pairs of parameters and tokens that a fit needs, rows that it takes."""
RISING = 0.5
"""Share of the pairs of rows, one larger and longer than the other, whose loss may rise."""
FAR = 0.1
"""Log of the loss by which a row may miss the law before it is named."""
LARGEST_FILE = 10_000_000
"""Bytes."""
SAID = 3


def fitted(name: str, rows: Rows, path: Path, found: Findings) -> LossLaw | None:
    """The law of a file, or None after noting everything that is wrong with it. Leaves out: other forms than E + A/N^α + B/D^β."""
    file = at_home(FilePath(name))
    file = file if file.is_absolute() else found.document.folder / file
    try:
        refuse_closed(name, BadScenario)
        text = read_text(file, "a table of losses", LARGEST_FILE, BadScenario, (".csv",))
        lines = csv_lines(text, file_name(name), BadScenario)
    except BadScenario as error:
        found.note(path, error.message)
        return None
    noted = len(found.violations)
    table, numbers = _table(lines, name, path, found)
    if len(found.violations) > noted:
        return None
    made = fit(table, rows.law(SHAPE))
    if _falls(name, table, made, path, found):
        return _law(name, table, numbers, made, found)
    return None


def _table(lines: list[tuple[int, list[str]]], name: str, path: Path, found: Findings) -> tuple[Numbers, list[int]]:
    """(parameters, tokens, loss) of every row, and its line, after noting what is wrong with them."""
    header = [cell.lower() for cell in lines[0][1]] if lines else []
    places = {
        column: next((at for at, cell in enumerate(header) if cell in words), None) for column, words in COLUMNS.items()
    }
    if missing := [column for column, at in places.items() if at is None]:
        found.note(path, f"{name}: no column {', '.join(missing)}", "a header parameters,tokens,loss and a row a run")
        return np.empty((0, 3)), []
    if len(lines) - 1 > MOST:
        says = f"{name}: {len(lines) - 1:,} rows; a law is fitted to at most {MOST:,}"
        found.note(path, says, "one row a run, its last: rows along one run are no runs of their own")
        return np.empty((0, 3)), []
    noted = len(found.violations)
    made = [
        [_number(cells, at, column, f"{name}:{number}", path, found) for column, at in places.items()]
        for number, cells in lines[1:]
    ]
    table = np.array(made, dtype=float).reshape(-1, 3)
    if len(found.violations) == noted:
        _enough(table, name, path, found)
    return table, [number for number, _ in lines[1:]]


def _enough(table: Numbers, name: str, path: Path, found: Findings) -> None:
    """Note what a table lacks: sizes, lengths, pairs of the two (runs that were repeated tell their noise and nothing else), a loss that
    falls with them."""
    for column, values in zip(("parameters", "tokens"), table.T, strict=False):
        if len(set(values)) < 2:
            found.note(
                path, f"{name}: {len(set(values))} different {column}", f"a law needs runs of 2 or more {column}"
            )
    pairs = len(np.unique(table[:, :2], axis=0))
    if pairs < FEWEST:
        said = f"{len(table)} rows" + ("" if pairs == len(table) else f" of {pairs} different (parameters, tokens)")
        found.note(path, f"{name}: {said}", f"a law needs {FEWEST} different runs, and {FREE} to fit its exponents too")


def _number(cells: list[str], at: int | None, column: str, where: str, path: Path, found: Findings) -> float:
    """One cell, above zero; 1 after noting why it is no number."""
    text = cells[at] if at is not None and at < len(cells) else ""
    try:
        value = quantity(text, "count", ("tokens",))
    except BadQuantity as error:
        found.note(path, f"{where}: {column}: {error.message}")
        return 1.0
    if value <= 0.0:
        found.note(
            path,
            f"{where}: {column} = {shown(text)}, which is not above zero",
            "leave the row out, or write the loss in nats",
        )
        return 1.0
    return value


def _falls(name: str, table: Numbers, made: Fit, path: Path, found: Findings) -> bool:
    """Whether the losses fall with parameters and tokens as a law does, after noting that they do not, with the worst rows."""
    says = _rising(table)
    for column, idle in zip(("parameters", "tokens"), is_idle(made), strict=True):
        if idle and not says:
            says = f"the loss does not fall with {column} by any exponent from {EXPONENTS[0]:g} to {EXPONENTS[1]:g}"
    if says:
        rule = "a law of loss falls with parameters and with tokens"
        found.note(path, f"{name}: {says}", "loss in nats, not an accuracy; runs of more sizes and lengths", rule)
    return not says


def _rising(table: Numbers) -> str:
    """What rises where most losses do, with the pairs of rows that rise most; empty where they fall."""
    n, d, loss = table.T
    larger = (n[:, None] <= n) & (d[:, None] <= d) & ((n[:, None] < n) | (d[:, None] < d))
    more = np.where(larger, np.log(loss / loss[:, None]), -np.inf)
    rising = more > 0.0
    if not np.any(larger) or rising.sum() <= RISING * larger.sum():
        return ""
    worst = np.argsort(-more, axis=None)[: min(SAID, int(rising.sum()))]
    pairs = [f"{_row(table[one])} to {_row(table[other])}" for one, other in (divmod(int(at), len(n)) for at in worst)]
    return f"the loss rises in {rising.sum()} of {larger.sum()} pairs of rows with no fewer parameters and tokens: {'; '.join(pairs)}"


def _row(row: Numbers) -> str:
    return ",".join(f"{value:.6g}" for value in row)


def _law(name: str, table: Numbers, numbers: list[int], made: Fit, found: Findings) -> LossLaw:
    """The law of a fit, after saying how well it meets the rows and what its interval is worth."""
    e, a, alpha, b, beta, _ = made.best
    kept = "" if made.is_free else f", exponents those of {SHAPE} (fewer than {FREE} different runs)"
    off = np.abs(np.expm1(made.missed)) * table[:, 2]
    found.assumptions.append(
        f"run.law: fitted to {len(table)} rows of {name}{kept}; it misses them by at most {off.max():.3f}"
    )
    far = np.argsort(-np.abs(made.missed))[: min(SAID, int((np.abs(made.missed) > FAR).sum()))]
    if len(far):
        lines = ", ".join(f"line {numbers[at]} ({_row(table[at])})" for at in far)
        found.warnings.append(f"run.law: {name} is no table of one law: it misses {lines} by more than {100 * FAR:g} %")
    if np.all(np.ptp(made.draws, axis=0) <= 1e-6 * np.abs(np.mean(made.draws, axis=0))):
        says = "its rows lie on a law without any noise, so that the interval of the loss has no width"
        found.warnings.append(f"run.law: {name}: {says}: that is not how sure it is")
    return LossLaw(
        name=name, irreducible=e, a=a, alpha=alpha, b=b, beta=beta,
        unit="as in the table", data=name, parameters_least=float(table[:, 0].min()), parameters_most=float(table[:, 0].max()),
        tokens_least=float(table[:, 1].min()), tokens_most=float(table[:, 1].max()), source=f"fitted to {len(table)} rows of {name}",
        draws=made.draws,
    )  # fmt: skip
