"""How the chunks of a model are laid over the devices of a pipeline, and what else is true of a schedule by its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from shardmeter.core.record import record
from shardmeter.core.units import Count, Ratio

Spot = tuple[int, int]
"""(device, chunk)."""
Key = tuple[int, str, int, int]
"""A turn: (device, kind, micro-batch, chunk)."""


@record
class Traits:
    """What is true of a schedule whatever its numbers are."""

    route: str = "ring"
    """ring: every chunk runs from the first device to the last, then starts again at the first. vee: every second chunk runs
    backwards, so the last device goes on at once. crossing: two copies of the model, laid in opposite directions."""
    split: bool = False
    """Input and weight gradient are turns of their own."""
    copies: Count = 1.0
    """Copies of the parameters and gradients that the devices of one pipeline hold together."""
    least_chunks: int = 1
    most_chunks: int | None = 1
    """Legal virtual stages; None = no bound."""
    rounds: Ratio = 0.0
    """Micro-batches must be at least so many times pp."""
    groups: bool = False
    """Micro-batches must be a multiple of pp."""
    even: bool = False
    """pp and micro-batches must be even."""
    ending: bool = False
    """`makespan` knows that the last backward of a step is longer (`Slot.ending`); elsewhere every one takes the mean
    (interleaved: up to 30 % short where reductions outlast compute)."""
    own_clock: bool = False
    """Every device starts its next step when its own is done, not when the last device is: the optimizer step is validated
    afterwards (Qi 2024 §4). A step then takes the longest span of one device, from its first turn to its last."""
    blocking: bool = False
    """The code that introduced it sends and receives between turns, not beside them."""
    ahead: bool = False
    """It may hold more micro-batches than its own so that long links are filled (`order` and `in_flight` are then told how many
    more because of each boundary)."""


def previous(route: str, spot: Spot, pp: int) -> Spot | None:
    """Where the forward of a chunk comes from; None = from the data."""
    device, chunk = spot
    if _reversed(route, chunk):
        if device < pp - 1:
            return device + 1, chunk
        return (device, chunk - 1) if route == "vee" else None
    if device > 0:
        return device - 1, chunk
    if chunk == 0:
        return None
    return (device, chunk - 1) if route == "vee" else (pp - 1, chunk - 1)


def content(route: str, spot: Spot, pp: int) -> int:
    """Which stage of the model a chunk belongs to: its own device's, or the mirrored one of the second copy."""
    device, chunk = spot
    return pp - 1 - device if route == "crossing" and _reversed(route, chunk) else device


def crossed(route: str, source: int, target: int, *, forward: bool) -> int:
    """The boundary that a result crosses from one device to another: each lies behind its device, in a ring the last one's leads back
    to the first."""
    if route == "ring":
        return source if forward else target
    return min(source, target)


def further(ahead: Sequence[Count], position: int) -> Count:
    """Micro-batches more that the stage at `position` holds because of the boundaries from it to the end; `ahead` has those of
    every boundary, the last one's leading back to the first."""
    held: Count = 0.0
    for more in ahead[position:-1]:
        held = held + more
    return held


def needs(route: str, pp: int, turns: Collection[Key]) -> Callable[[Key], Iterator[Key]]:
    """What each of `turns` waits for, beside the turn before it: the chunk before (on the way back: after) it, and what its
    own micro-batch must have had on the same device."""
    spots = sorted({(device, chunk) for device, _, _, chunk in turns})
    after = {before: spot for spot in spots for before in [previous(route, spot, pp)] if before is not None}

    def of(key: Key) -> Iterator[Key]:
        device, kind, micro_batch, chunk = key
        if kind == "forward":
            before = previous(route, (device, chunk), pp)
            if before is not None:
                yield before[0], kind, micro_batch, before[1]
            return
        if kind == "weight_grad":
            yield device, "input_grad", micro_batch, chunk
            return
        yield device, "forward", micro_batch, chunk
        later = after.get((device, chunk))
        if later is not None:
            whole = (later[0], "backward", micro_batch, later[1])
            yield whole if whole in turns else (later[0], "input_grad", micro_batch, later[1])

    return of


def _reversed(route: str, chunk: int) -> bool:
    return route != "ring" and chunk % 2 == 1
