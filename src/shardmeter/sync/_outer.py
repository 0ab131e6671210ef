"""What outer updates have in common: the numbers they keep, their passes over memory, the messages under way.

All of it is for the whole model; the ranks of a cell share it out as they share its parameters.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.units import Bytes, Count
from shardmeter.specs import Replica, Resident, Sync

WIDTH = 4.0
"""Bytes of one number of the outer state, and of the inner master that it is compared with: fp32."""


def message(replica: Replica, sync: Sync) -> Bytes:
    """The whole model on the wire, one value of `bits` a parameter."""
    return replica.parameters * sync.bits / 8.0


def kept(replica: Replica, *labels: str) -> tuple[Resident, ...]:
    """Outer state: one fp32 number a parameter for every label."""
    return tuple(Resident(label=one, size=WIDTH * replica.parameters, exactness="exact") for one in labels)


def placed(sync: Sync, state: tuple[Resident, ...]) -> tuple[tuple[Resident, ...], tuple[Resident, ...]]:
    """(on devices, on hosts): outer state lies where `outer_state` says."""
    return ((), state) if sync.outer_state == "host" else (state, ())


def under_way(replica: Replica, sync: Sync, window: Count) -> Resident:
    """Fragments sent and not yet applied: ⌈window / spacing⌉ of them, at least one, at most all; one buffer each, as wide as
    on the wire, in which the mean arrives.

    Leaves out: a second buffer of collectives that cannot work in place; fragments that arrive later than they are due."""
    parts = float(sync.num_fragments)
    pending = np.clip(np.ceil(window * parts / sync.sync_every), 1.0, parts)
    return Resident(
        label="outer messages under way", size=message(replica, sync) / parts * pending, exactness="modelled"
    )


def passes(replica: Replica, numbers: Count) -> Bytes:
    """Bytes through device memory of a round: `numbers` fp32 numbers a parameter, read or written."""
    return numbers * WIDTH * replica.parameters


def traffic(replica: Replica, sync: Sync, numbers: Count) -> Bytes:
    """The same with the message written once and its mean read once. Where the outer state lies on hosts the parameters are
    read and written, and the rest is done there."""
    if sync.outer_state == "host":
        return passes(replica, 2.0)
    return passes(replica, numbers) + 2.0 * message(replica, sync)


COUNTED = "the outer update's passes over device memory are counted from its algorithm, not published"


def notes(sync: Sync, *said: str) -> tuple[str, ...]:
    """What a round takes for granted: what its method says, and how its outer update is counted."""
    if sync.outer_state == "host":
        return (*said, "the outer update on the hosts and its copies to and from them are not priced")
    return (*said, COUNTED)
