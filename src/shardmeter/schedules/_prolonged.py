"""Long steps from short runs: the first micro-batches turn by turn, all others as the steady state repeats.

Neighbours that hold n micro-batches between them, far apart, pass n of them a round trip: the steady state repeats every n, not every
one, and a step of another number ends in another part of it. So what repeats is looked for in the times at which micro-batches come
back, and the run that is prolonged is as long as the step but for whole repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shardmeter.core.record import changed, field_names
from shardmeter.core.units import Number, Seconds
from shardmeter.schedules._links import Boundary
from shardmeter.schedules._replay import Replayed
from shardmeter.schedules._slots import Slot

ALIKE = 1e-9
"""What two times may differ by, as a part of a step, and be the same."""
T = TypeVar("T", Slot, Boundary)
Array = npt.NDArray[np.float64]


def prolonged(run: Callable[[int], Replayed], micro_batches: int, first: int, unit: int, least: Seconds) -> Seconds:
    """Duration of a step of so many micro-batches, of which not many more than `first` are run. `run` is asked for whole multiples
    of `unit` beyond `first`; no micro-batch takes less than `least` in the long run.

    Exact once the steady state has set in. Leaves out: paths that begin so late, or rise so little more steeply than what rules the run,
    that it does not show them."""
    if micro_batches <= first + unit:
        return run(micro_batches).seconds
    begun = run(first)
    period, each = _repeats(begun.returns, unit)
    each = np.maximum(each, least)
    found: Seconds = begun.seconds
    for own in np.unique(period):
        more = (micro_batches - first) % int(own)
        start = run(first + more).seconds if more else begun.seconds
        found = np.where(period == own, start + (micro_batches - first - more) * each, found)
    return found if np.ndim(found) else float(found)


def _repeats(returns: Array, unit: int) -> tuple[Array, Array]:
    """(after how many micro-batches the steady state repeats, seconds of each); where nothing has repeated, the mean of the later
    half of a run, as if every `unit` took that."""
    count = len(returns)
    half = count // 2 // unit * unit or max(count // 2, 1)
    period = np.full(returns.shape[1:], float(unit))
    each = (returns[-1] - returns[-1 - half]) / half
    open_ = np.ones(returns.shape[1:], dtype=bool)
    for own in range(unit, count // 2 + 1, unit):
        grown = returns[own:] - returns[:-own]
        same = np.all(np.abs(grown[-max(own, count // 3) :] - grown[-1]) <= ALIKE * returns[-1], axis=0) & open_
        period, each = np.where(same, float(own), period), np.where(same, grown[-1] / own, each)
        open_ = open_ & ~same
        if not np.any(open_):
            break
    return period, each


def apart(
    run: Callable[[Sequence[Slot], tuple[Boundary, ...]], Number], slots: Sequence[Slot], links: tuple[Boundary, ...]
) -> Number:
    """A run for each of many networks by itself, with plain numbers: what it answers, a number or some, with their axis behind it."""
    numbers = [getattr(slot, name) for slot in slots for name in _names(slot)]
    numbers += [getattr(link, name) for link in links for name in _names(link)]
    shape = np.broadcast_shapes(*(np.shape(value) for value in numbers))
    each = [
        run([_taken(slot, shape, at) for slot in slots], tuple(_taken(link, shape, at) for link in links))
        for at in np.ndindex(shape)
    ]
    found = np.stack([np.asarray(one) for one in each], axis=-1)
    return found.reshape(*found.shape[:-1], *shape) if shape else each[0]


def _names(one: Any) -> tuple[str, ...]:
    """Its fields that may be arrays."""
    return tuple(name for name in field_names(type(one)) if name not in ("first", "count", "chunks"))  # type: ignore[arg-type]


def _taken(one: T, shape: tuple[int, ...], at: tuple[int, ...]) -> T:
    values = {name: float(np.broadcast_to(getattr(one, name), shape)[at]) for name in _names(one)}
    return changed(one, **values)


__all__ = ["apart", "prolonged"]
