"""Workers of a run as a gloo group: they find each other by a file, not over the line, and a peer that is gone is told by name."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.lab.records import Task

SIGNS = (
    "gloo/transport",
    "gloo/rendezvous",
    "connection closed",
    "connection reset",
    "broken pipe",
    "timed out",
    "timeout",
)
"""What PyTorch's errors say where a peer is gone; their types do not tell it."""


class Lost(ShardMeterError):
    """A peer is gone, or cannot be reached: the collective that needed it has failed."""


def connect(task: Task, members: tuple[int, ...], generation: int = 0) -> None:
    """Open the group of these ranks, which all do the same; collectives fail after the task's patience. `generation` tells the groups
    of one run apart. Raises Lost where not all come."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = task.interface
    name = f"store-{generation}-{'-'.join(map(str, members))}"

    def opened() -> None:
        store = dist.FileStore(str(Path(task.folder) / name), len(members))
        patience = timedelta(seconds=float(task.patience))
        place = members.index(task.rank)
        dist.init_process_group("gloo", store=store, rank=place, world_size=len(members), timeout=patience)
        if len(members) > 1:
            dist.barrier()

    attempt(opened)


def disconnect() -> None:
    """Close the group, so that peers that wait for this worker in it learn that it has left."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()


def attempt(work: Callable[[], Any]) -> Any:
    """What `work` gives. Raises Lost where it fails because of a peer; nothing of the failed call is kept alive by it, or the group
    that it used could not be closed."""
    try:
        return work()
    except RuntimeError as error:
        says = told(error)
        if not says:
            raise
    raise Lost(says)


def told(error: BaseException) -> str:
    """What an error of a collective says of a lost peer, in one short line; empty where it is of another kind."""
    text = str(error)
    if not any(sign in text.lower() for sign in SIGNS):
        return ""
    line = re.sub(r"\[/?[\w./-]+:\d+\]\s*", "", text.strip().splitlines()[0])
    return line.partition(". This is typically")[0].strip()[:160]


def named(says: str, task: Task) -> str:
    """The same with islands by name in place of addresses, where each has one of its own."""
    if len(set(task.addresses)) == len(task.addresses):
        for site, address in zip(task.experiment.sites, task.addresses, strict=False):
            says = re.sub(rf"\[{re.escape(address)}\](:\d+)?", f"island {site.name}", says)
    return says


def gather(everybody: Any, own: Any, group: Any = None) -> None:
    """Fill `everybody` (members × the shape of `own`, both in one piece) with what each member has. Raises RuntimeError where a peer is
    gone."""
    import torch.distributed as dist

    call = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the name since PyTorch 2.13
    call(everybody.view(-1), own.view(-1), group=group)


def part(parts: Sequence[Sequence[int]], place: int) -> Any:
    """The group, of these parts of the members' places, that a place is of; all members ask for the same parts."""
    import torch.distributed as dist

    made = [(one, dist.new_group(list(one))) for one in parts]
    return next(group for one, group in made if place in one)
