"""What joins the islands of one fleet: one network or many side by side, of which each question is worked out once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from shardmeter.core.formula import tracing
from shardmeter.core.record import changed, record
from shardmeter.core.units import BytesPerS, Count, Number, Seconds, UsdPerByte
from shardmeter.engine import abreast, crossing
from shardmeter.engine.asked import BACKEND as GLOO
from shardmeter.engine.crossing import Crossed
from shardmeter.engine.links import Array, Links, bounded, fewest, links_of
from shardmeter.engine.ring import ring_order
from shardmeter.engine.uplinks import pairs
from shardmeter.specs import Crossing, Island, Wan
from shardmeter.specs.plan import Sync

T = TypeVar("T")


@record
class Tour:
    """The ring over some islands, that whose narrowest link is widest or, over gloo, as they are numbered: numbers of one network,
    (networks,) of many."""

    rate: BytesPerS
    """Of its narrowest link."""
    delay: Seconds
    """One way, on the average of its links."""
    egress: UsdPerByte
    """The same of what they cost; NaN where a price is not known."""
    backend: str = "nccl"
    """Software of the collectives that go round it."""


TOUR, CROSSED = ("rate", "delay", "egress"), ("seconds", "caused", "charged", "start")
"""Fields of what is answered that are numbers."""


class Networks:
    """Networks of one fleet. What it answers is a number for one `Wan`, and begins with the axis (networks,) for a sequence of them.
    `idle` too may have that axis. Raises ValueError for networks of unlike backends.

    Everything is remembered for as long as the object lives: a search that asks the same networks of many plans makes one."""

    def __init__(self, islands: Sequence[Island], wans: Wan | Sequence[Wan] | None) -> None:
        self.islands = tuple(islands)
        self.many = not isinstance(wans, Wan) and wans is not None
        self.wans: tuple[Wan, ...] = () if wans is None else (wans,) if isinstance(wans, Wan) else tuple(wans)
        self.gpus = [island.gpus for island in self.islands]
        self._known: dict[Any, Any] = {}
        if len(self.backends) > 1:
            raise ValueError(f"networks side by side have one backend, not {' and '.join(sorted(self.backends))}")

    def __len__(self) -> int:
        return len(self.wans)

    def links(self, sending: Sequence[Count], turns: Count = 1.0) -> Links:
        """The price list's matrices where so many accelerators of every island send at once, of networks `widened` by `turns`. Raises
        ValueError without a network."""
        counts, wide = _counts(sending), float(turns)

        def of(wan: Wan) -> Links:
            return links_of(bounded(widened(wan, wide), self.islands, counts))

        def made() -> Links:
            if not self.many:
                return of(self._given()[0])
            groups = self._once("groups", lambda: abreast.groups(self._given()))
            return abreast.merged([(places, of(wan)) for places, wan in groups])

        return self._once(("links", counts, wide), made)

    def among(self, sending: Sequence[Count], members: Sequence[int], turns: Count = 1.0) -> tuple[bytes, ...]:
        """Equal for islands that see equal `links` of one another."""
        key = ("among", _counts(sending), tuple(members), float(turns))
        return self._once(key, lambda: self.links(sending, turns).among(list(members)).tables)

    def tour(self, sending: Sequence[Count], members: Sequence[int]) -> Tour:
        """The ring over some islands. Raises ValueError without a network."""
        counts = _counts(sending)

        def made() -> Tour:
            links = self.links(sending).among(list(members))
            tables = links.rate, links.rtt, links.egress
            if not self.many:
                return _tour(*tables, links.backend)
            each = [_tour(*one, links.backend) for one in zip(*tables, strict=True)]
            return changed(each[0], **{name: np.array([getattr(one, name) for one in each]) for name in TOUR})

        return self._once(("tour", counts, tuple(members)), made)

    def crossed(
        self, one: Crossing, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool, weights: Sequence[float] = (),
        idle: Seconds = 0.0,
    ) -> Crossed:  # fmt: skip
        """One message between cells, as `crossing.price` has it; of many networks `narrowest` is left empty (`narrowest` has them).

        Sizes may be arrays for one network only; raises ValueError otherwise, and without a network."""
        if not self.many and (tracing() or np.ndim(one.size) or np.ndim(one.calls)):
            return self._prices(one, cells, sync, own=own, weights=weights, idle=idle)[0]
        if np.ndim(one.size) or np.ndim(one.calls):
            raise ValueError(
                "numbers of the synchronisation may be arrays where one network joins the islands, not many"
            )
        asked = *_asked(one, cells, sync, own=own), *weights, np.asarray(idle, dtype=float).tobytes()
        if not self.many:
            made = functools.partial(self._prices, one, cells, sync, own=own, weights=weights, idle=idle)
            return self._once(("alone", *asked), lambda: made()[0])
        key = "stacked", *asked
        return self._once(key, lambda: self._abreast(one, cells, sync, own=own, weights=weights, idle=idle))

    def narrowest(
        self, one: Crossing, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool, weights: Sequence[float] = (),
        idle: Seconds = 0.0,
    ) -> tuple[str, ...]:  # fmt: skip
        """The pair that is slowest, and why, of every network."""
        key = ("crossed", *_asked(one, cells, sync, own=own), *weights, np.asarray(idle, dtype=float).tobytes())
        return tuple(
            found.narrowest
            for found in self._once(key, lambda: self._prices(one, cells, sync, own=own, weights=weights, idle=idle))
        )

    def lanes(self, sync: Sync) -> tuple[float, ...]:
        """Lanes that the stages of a pipeline leave by at once, on every network: the fewest of a pair, or one where a single ring
        passes through all. Raises ValueError without a network."""
        found = self._once(
            "lanes", lambda: tuple(float(fewest(pairs(wan.lanes, len(self.islands)))) for wan in self._given())
        )
        return found if sync.hierarchical else (1.0,) * len(found)

    def _prices(
        self, one: Crossing, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool, weights: Sequence[float] = (),
        idle: Seconds = 0.0,
    ) -> list[Crossed]:  # fmt: skip
        """A message on each network by itself."""
        links = self.links(self.gpus if sync.hierarchical else ())
        each = [links.some(at, wan.balance) for at, wan in enumerate(self._given())] if self.many else [links]
        return [
            crossing.crossed(
                one,
                here,
                cells,
                sync,
                own=own,
                accelerators=self.gpus,
                weights=weights,
                idle=_of(idle, at) if self.many else idle,
            )
            for at, here in enumerate(each)
        ]

    def _abreast(
        self, one: Crossing, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool, weights: Sequence[float],
        idle: Seconds,
    ) -> Crossed:  # fmt: skip
        """The same of all networks, those that it passes alike at once."""
        links = self.links(self.gpus if sync.hierarchical else ())
        shape = len(self), len(cells), len(self.islands)
        axes = {"seconds": 1 + own, "start": 1}
        made = {name: np.empty(shape[: axes.get(name, len(shape))]) for name in CROSSED}
        for places in crossing.ways(one, links, cells, sync):
            some = places if len(places) > 1 else places[0]
            found = crossing.crossed(
                one,
                links.some(some),
                cells,
                sync,
                own=own,
                accelerators=self.gpus,
                weights=weights,
                idle=_of(idle, some),
            )
            for name, numbers in made.items():
                numbers[places] = getattr(found, name)
        return Crossed(narrowest="", **made)

    @property
    def backends(self) -> frozenset[str]:
        """Software of the collectives, of any of the networks."""
        return frozenset(wan.backend for wan in self.wans)

    def _given(self) -> tuple[Wan, ...]:
        if not self.wans:
            raise ValueError("several islands and no network between them")
        return self.wans

    def _once(self, key: Any, made: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = made()
        found: T = self._known[key]
        return found


def widened(wan: Wan, turns: Count) -> Wan:
    """The network so many times as wide: what pipelines that send over it in turn see of it. One of K in turn has a Kth of all flows and
    adapters: what it gets is a Kth of what all would get of a network K times as wide through the same adapters."""
    if turns == 1.0:
        return wan
    return changed(wan, **{name: np.asarray(getattr(wan, name)) * turns for name in ("bandwidth", "up", "down")})


def _asked(one: Crossing, cells: Sequence[Sequence[int]], sync: Sync, *, own: bool) -> tuple[Any, ...]:
    """All that the price of a message depends on, beside the network."""
    message = one.collective, float(one.size), float(one.calls), one.groups, bool(one.behind)
    return (*message, tuple(map(tuple, cells)), sync.topology, sync.hierarchical, own)


def _of(idle: Seconds, places: Any) -> Seconds:
    """Of some networks side by side, where each has its own."""
    return np.asarray(idle)[places] if np.ndim(idle) else idle


def _counts(sending: Sequence[Count]) -> tuple[float, ...]:
    """How many accelerators of every island send, as what is remembered is found by."""
    return tuple(float(np.max(one)) for one in sending)


def _tour(rates: Array, trips: Array, prices: Array, backend: str) -> Tour:
    """Of one network. gloo goes round as members are numbered: reductions one way, gathers the other, of which the slower is taken."""
    members = range(len(rates))
    order = members if backend == GLOO else ring_order(rates, trips)
    pairs = list(zip(order, (*order[1:], order[0]), strict=True))
    if backend == GLOO:
        pairs += [(b, a) for a, b in pairs]
    apart = [(a, b) for a, b in pairs if a != b]
    return Tour(
        rate=min(float(rates[pair]) for pair in apart),
        delay=float(np.mean([trips[pair] for pair in apart])) / 2.0,
        egress=float(np.mean([prices[pair] for pair in pairs])),
        backend=backend,
    )


def entry(numbers: Number, *place: int) -> Number:
    """One place of the last axes: a plain number of one network, (networks,) of many."""
    where: Any = (..., *place)
    found = np.asarray(numbers)[where]
    return found if np.ndim(found) else float(found)


def along(values: Sequence[Number]) -> Number:
    """Numbers and (networks,) arrays side by side, as the last axis."""
    together: Number = np.stack(np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in values)), axis=-1)
    return together
