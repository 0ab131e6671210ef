"""In which order micro-batches pass, and when what crosses buildings leaves: the choices that a plan has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.schedules import names as built
from shardmeter.schedules import traits
from shardmeter.specs import Plan, Scenario
from shardmeter.study.planning.words import chunk_counts
from shardmeter.study.scale_across.placements import PP, Placement

MICRO_BATCHES = (1.0, 2.0, 4.0)
AHEAD = (0.0, 1.0, 2.0, 4.0)
"""Micro-batches more before a boundary between buildings; twice as many again and again where these hide no round trip (`aheads`)."""
MOST_AHEAD = 64.0
WORDS = ("1f1b", "interleaved", "interleaved-bf", "zb-h1", "zb-h2", "zb-v", "dualpipe")
"""Schedules that are tried; gpipe and zb-2p are no faster than one of them and keep more."""


@record
class Schedule:
    """The order of micro-batches and of what crosses."""

    word: str = "1f1b"
    virtual_stages: int = 1
    micro_batch: float = 1.0
    ahead: float = 0.0
    stagger: bool = False
    release: str = "layers"

    @property
    def says(self) -> str:
        """It in words."""
        chunks = f" of {self.virtual_stages} chunks" if self.virtual_stages > 1 else ""
        parts = [f"{self.word}{chunks}", f"micro-batches of {self.micro_batch:g}"]
        parts += [f"{self.ahead:g} more ahead of a boundary"] if self.ahead else []
        parts += ["pipelines in turn on the line"] if self.stagger else []
        parts += ["gradients at the end"] if self.release == "end" else []
        return ", ".join(parts)


def orders(plan: Plan, layers: float) -> Iterator[Schedule]:
    """What orders micro-batches, for a plan with the whole of its pipeline: schedule, chunks and micro-batch."""
    words = [word for word in WORDS if word in built()] if plan.pp > 1 else ["1f1b"]
    for micro_batch in MICRO_BATCHES:
        for word in words:
            for chunks in chunk_counts(word, int(plan.pp), layers):
                yield Schedule(word=word, virtual_stages=chunks, micro_batch=micro_batch)


def aheads(trip: Seconds, each: Seconds) -> Sequence[float]:
    """Micro-batches ahead that are tried where a round trip takes `trip` and a stage computes a micro-batch in `each`: so many that no
    more can gain. (compute + 2·wire + trip) / (2 + e) is at e = 2 + trip/each no more than the stage, or its wire, takes."""
    found = [*AHEAD]
    while found[-1] < min(2.0 + trip / each, MOST_AHEAD):
        found.append(2.0 * found[-1])
    return found


def crossings(one: Schedule, placement: Placement, ahead: Sequence[float] = ()) -> Iterator[Schedule]:
    """An order with every way in which what a pipeline sends across may leave, where one crosses; `ahead` other micro-batches than usual.

    Leaves out: gradients that leave at the end of a step, which is never sooner than as they become whole."""
    pipes = placement.axis == PP
    for more in ahead or AHEAD if pipes and traits(one.word).ahead else (0.0,):
        for stagger in (False, True) if pipes else (False,):
            yield changed(one, ahead=more, stagger=stagger)


def scheduled(scenario: Scenario, one: Schedule) -> Scenario:
    """The scenario with another schedule."""
    own: dict[str, Any] = {
        "schedule": one.word, "virtual_stages": one.virtual_stages, "micro_batch": one.micro_batch,
        "ahead": one.ahead, "stagger": one.stagger,
    }  # fmt: skip

    def laid(plan: Plan) -> Plan:
        return changed(plan, **own, sync=changed(plan.sync, release=one.release))

    return changed(scenario, plan=laid(scenario.plan), plans=tuple(laid(plan) for plan in scenario.plans))


def production(plan: Plan, layers: float) -> tuple[Sequence[Schedule], ...]:
    """Schedules of which production has the best: interleaved 1F1B of every number of chunks that the layers allow or, where none of
    these is legal, 1F1B."""
    found = list(orders(plan, layers))
    return tuple([one for one in found if one.word == word] for word in ("interleaved", "1f1b"))
