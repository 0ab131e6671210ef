"""What a scenario leaves to the planner: the values it may choose from, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.record import record
from shardmeter.core.units import Count, Seconds, Usd
from shardmeter.specs.fleet import Island


@record
class Joint:
    """What is open of a fleet of several islands, beside `Choices.plan`."""

    pins: tuple[Mapping[str, tuple[Any, ...]], ...]
    """Of every island: the values of plan fields that it may choose from, its own before those of all."""
    sync: Mapping[str, tuple[Any, ...]]
    """Values of fields of `Plan.sync`; a field that is not there is as the method has it."""
    counts: tuple[int, ...]
    """How many of the islands may take part."""
    items: tuple[int, ...] = ()
    """Of every island: its item among the document's `fleet.islands`; empty for a record."""
    placement: bool = False
    """Whether it is open which islands form pipelines."""


@record
class Choices:
    """The open part of a scenario. A plan field that is not in `plan` is chosen freely; one that is, from its values."""

    plan: Mapping[str, tuple[Any, ...]]
    seq_len: tuple[Count, ...]
    global_batch: tuple[tuple[float, str], ...]
    """(amount, "sequences" or "tokens"); every plan is tried with each of them, whatever its degrees."""
    islands: tuple[Island, ...]
    """The island in every size (or kind) that may be taken."""
    said: tuple[Mapping[str, Any], ...]
    """The document of the scenario with each of the islands, without plan, sequence and batch; empty for a record."""
    stated: bool = False
    """Whether the scenario has a plan of its own, beside the open ones: it is compared, and pins nothing."""
    objectives: tuple[str, ...] = ()
    """What to minimise or maximise; empty: not said."""
    deadline: Seconds | None = None
    """Longest run that counts as feasible."""
    budget: Usd | None = None
    """Most that a feasible run costs."""
    joint: Joint | None = None
    """Of several islands; None where there is one."""
