"""A law of loss fitted to a user's own runs: a table of parameters, tokens and loss."""

from __future__ import annotations

import csv
import io
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.errors import BadQuantity, BadScenario, shown
from shardmeter.core.files import at_home, read_text
from shardmeter.core.quantity import quantity
from shardmeter.physics.convergence import law_loss
from shardmeter.scenario.parts import Findings, Rows
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import LossLaw

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

COLUMNS = {"parameters": ("parameters", "params", "n"), "tokens": ("tokens", "d"), "loss": ("loss", "l")}
"""Columns of the table, with the words that a header may have for them."""
FEWEST, FREE = 5, 8
"""Rows that a fit needs, and from which on its exponents are fitted too; below them they are those of `SHAPE`."""
SHAPE = "besiroglu-2024"
DRAWS, SEED = 100, 0
"""Refits to rows drawn with replacement."""
ROBUST = 1e-3
"""Log of the loss beyond which a residual counts by its size and not by its square (Hoffmann 2022, approach 3)."""
EXPONENTS = (0.02, 1.5)
"""Least and most of α and β."""
LARGEST_FILE = 10_000_000
"""Bytes."""


def fitted(name: str, rows: Rows, path: Path, found: Findings) -> LossLaw | None:
    """The law of a file, or None after noting everything that is wrong with it. Leaves out: other forms than E + A/N^α + B/D^β."""
    file = at_home(FilePath(name))
    file = file if file.is_absolute() else found.document.folder / file
    try:
        text = read_text(file, "a table of losses", LARGEST_FILE, BadScenario, (".csv",))
    except BadScenario as error:
        found.note(path, error.message)
        return None
    table = _table(text, name, path, found)
    if table is None:
        return None
    try:
        import scipy.optimize  # noqa: F401  (asked before any row is fitted)
    except ImportError:
        found.note(path, "a law is fitted by scipy, which is not installed", "pip install 'shardmeter[fit]'")
        return None
    return _law(name, table, rows.law(SHAPE), found)


def _table(text: str, name: str, path: Path, found: Findings) -> Numbers | None:
    """(parameters, tokens, loss) of every row; None after noting what is wrong."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    header = [cell.strip().lower() for cell in next(reader, [])]
    places = {
        column: next((at for at, cell in enumerate(header) if cell in words), None) for column, words in COLUMNS.items()
    }
    if missing := [column for column, at in places.items() if at is None]:
        found.note(path, f"{name}: no column {', '.join(missing)}", "a header parameters,tokens,loss and a row a run")
        return None
    noted = len(found.violations)
    made = [
        [_number(cells, at, column, f"{name}:{reader.line_num}", path, found) for column, at in places.items()]
        for cells in reader
        if any(cell.strip() for cell in cells)
    ]
    if len(found.violations) > noted:
        return None
    table = np.array(made, dtype=float).reshape(-1, 3)
    for column, values in zip(("parameters", "tokens"), table.T, strict=False):
        if len(set(values)) < 2:
            found.note(
                path, f"{name}: {len(set(values))} different {column}", f"a law needs runs of 2 or more {column}"
            )
    if len(table) < FEWEST:
        found.note(
            path, f"{name}: {len(table)} rows", f"a law needs {FEWEST} runs, and {FREE} to fit its exponents too"
        )
    return table if len(found.violations) == noted else None


def _number(cells: list[str], at: int | None, column: str, where: str, path: Path, found: Findings) -> float:
    """One cell, above zero; 1 after noting why it is no number."""
    text = cells[at].strip() if at is not None and at < len(cells) else ""
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


def _law(name: str, table: Numbers, shape: LossLaw, found: Findings) -> LossLaw:
    """The fit of all rows, with refits to rows drawn again."""
    start = np.log([max(0.5 * float(table[:, 2].min()), 1e-3), float(shape.a), float(shape.b)])
    exponents = np.array([float(shape.alpha), float(shape.beta)])
    is_free = len(table) >= FREE
    best = _fit(table, np.concatenate([start, exponents]), is_free=is_free)
    rng, draws = np.random.default_rng(SEED), []
    for _ in range(DRAWS):
        again = table[rng.integers(0, len(table), len(table))]
        if min(len(set(again[:, 0])), len(set(again[:, 1]))) >= 2:
            e, a, b, alpha, beta = _fit(again, best, is_free=is_free)
            draws.append((float(np.exp(e)), float(np.exp(a)), float(alpha), float(np.exp(b)), float(beta), 1.0))
    e, a, b, alpha, beta = best
    kept = "" if is_free else f", exponents those of {SHAPE} (fewer than {FREE} rows)"
    off = np.abs(np.log(_predicted(table, best) / table[:, 2])).max() * float(table[:, 2].mean())
    found.assumptions.append(
        f"run.law: fitted to {len(table)} rows of {name}{kept}; it misses them by at most {off:.3f}"
    )
    return LossLaw(
        name=name, irreducible=float(np.exp(e)), a=float(np.exp(a)), alpha=float(alpha), b=float(np.exp(b)), beta=float(beta),
        unit="as in the table", data=name, parameters_least=float(table[:, 0].min()), parameters_most=float(table[:, 0].max()),
        tokens_least=float(table[:, 1].min()), tokens_most=float(table[:, 1].max()), source=f"fitted to {len(table)} rows of {name}",
        draws=tuple(draws),
    )  # fmt: skip


def _predicted(table: Numbers, x: Numbers) -> Numbers:
    """The losses of a table by a law of (ln E, ln A, ln B, α, β)."""
    e, a, b = np.exp(x[:3])
    made: Numbers = np.asarray(law_loss(table[:, 0], table[:, 1], e, a, x[3], b, x[4], 1.0))
    return made


def _fit(table: Numbers, start: Numbers, *, is_free: bool) -> Numbers:
    """(ln E, ln A, ln B, α, β) with the least robust sum of squares of log residuals, from one start."""
    from scipy.optimize import least_squares

    low = np.array([np.log(1e-6), -40.0, -40.0, EXPONENTS[0], EXPONENTS[0]])
    high = np.array([np.log(table[:, 2].min()), 80.0, 80.0, EXPONENTS[1], EXPONENTS[1]])
    free = np.arange(5 if is_free else 3)

    def off(x: Numbers) -> Numbers:
        whole = start.copy()
        whole[free] = x
        missed: Numbers = np.log(_predicted(table, whole) / table[:, 2])
        return missed

    inside = np.clip(start, low + 1e-9, high - 1e-9)
    made = least_squares(off, inside[free], bounds=(low[free], high[free]), loss="huber", f_scale=ROBUST, x_scale="jac")
    whole = start.copy()
    whole[free] = made.x
    return whole
