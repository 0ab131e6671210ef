"""Several knobs turned together: which points nothing beats in both throughput and loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import record
from shardmeter.scenario.parts import Rows
from shardmeter.scenario.read import Document
from shardmeter.study.sweep import space_of, sweep
from shardmeter.study.tradeoffs.knobs import Knob
from shardmeter.study.tradeoffs.turned import COLUMNS, Base, entry

MOST = 100_000
"""Points of a product."""
PRICES = (
    ("run.loss", "loss"),
    ("sync.loss_effect.factor", "loss_factor"),
    ("sync.loss_effect.nats", "loss_nats"),
    ("memory.peak_gib", "memory_peak_gib"),
)
"""(column, key of an entry) of what throughput is set against: the first that is known everywhere and differs."""


@record
class Joint:
    """The product of several knobs."""

    points: int
    fitting: int
    against: str
    """Key of an entry: what throughput is set against."""
    front: tuple[dict[str, Any], ...]
    """Points that fit and that none beats in both, the fastest first; `values` by field."""
    cloud: tuple[tuple[float, float], ...]
    """(that, tokens a second) of points that fit: all, or evenly picked ones of many."""


def refuse_many(knobs: Sequence[Knob]) -> None:
    """Raises BadScenario for a product of more than `MOST` points."""
    points = math.prod(len(knob.values) for knob in knobs)
    if points > MOST:
        sizes = " · ".join(f"{len(knob.values):,}" for knob in knobs)
        says, out = f"{sizes} = {points:,} points", "fewer values of some, or shardmeter sweep -o FILE"
        raise BadScenario("1 problem", [Violation(field="over", says=says, rule=f"at most {MOST:,}", way_out=out)])


def joint(document: Document, rows: Rows, knobs: Sequence[Knob], base: Base) -> Joint:
    """Every combination of the values of some knobs. Raises BadScenario for more than `MOST`."""
    refuse_many(knobs)
    fields = [knob.field for knob in knobs]
    space = space_of(
        document, rows, {knob.field: list(knob.values) for knob in knobs}, [one for one in COLUMNS if one not in fields]
    )
    columns = sweep(space).columns
    fits = columns["status"] == "ok"
    good = np.flatnonzero(fits)
    against = _against(columns, good)
    name = dict(PRICES)[against]
    speed = columns["tokens_per_s"][good].astype(float)
    if "run.tokens" not in fields:
        speed = speed * _left(columns, good)
    places = good[_front(speed, columns[against][good].astype(float))]
    found = []
    for at in places.tolist():
        row = {key: _plain(column[at]) for key, column in columns.items()}
        own = entry(None, row, base)
        del own["value"]
        found.append({"values": {field: row[field] for field in fields}} | own)
    step = max(1, len(good) // CLOUD)
    cloud = [(float(columns[against][at]), float(columns["tokens_per_s"][at])) for at in good[::step].tolist()]
    return Joint(points=space.points, fitting=len(good), against=name, front=tuple(found), cloud=tuple(cloud))


CLOUD = 2000
"""Points of a figure's background."""


GOODPUT_DIGITS = 9
"""Of what is left of a rate: beyond is the rounding of floats, which makes no point faster."""


def _left(columns: Any, good: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """What interruptions and checkpoints leave of tokens a second; 1 where the run has no length."""
    tokens, lasts, rate = (
        columns[name][good].astype(float) for name in ("run.tokens", "run.wall_clock_s", "tokens_per_s")
    )
    left = np.round(tokens / lasts / rate, GOODPUT_DIGITS)
    return np.where(np.isfinite(left), left, 1.0)


def _against(columns: Any, good: npt.NDArray[np.int64]) -> str:
    """The loss where it is known everywhere and differs; else the memory."""
    for name, _ in PRICES[:-1]:
        column = columns[name][good].astype(float)
        if len(good) and np.all(np.isfinite(column)) and np.ptp(column) > 0.0:
            return name
    return PRICES[-1][0]


def _front(speed: npt.NDArray[np.float64], price: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Places that none beats in both, the fastest first."""
    order: npt.NDArray[np.int64] = np.lexsort((price, -speed))
    least = np.minimum.accumulate(price[order])
    first = np.concatenate([[True], least[1:] < least[:-1]])[: len(order)]
    found: npt.NDArray[np.int64] = order[first]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    number = float(value)
    return number if math.isfinite(number) else None
