"""What is read from the settings of a trainer, and what is written for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import record


@record
class Setting:
    """One setting of a file, and what it is to us."""

    key: str
    """As the file writes it: a dotted path, or a flag with its dashes."""
    value: str
    means: str
    """What it became (`plan.tp = 8`); of an ignored one, why; of an unknown one, the nearest names."""


@record
class Imported:
    """A file of settings, read as a scenario. Nothing in it is dropped in silence: every setting is in exactly one list."""

    format: str
    version: str
    """Of the trainer whose settings these are, as far as the file tells."""
    document: Mapping[str, Any]
    """A scenario as YAML would say it; parts that the file does not tell are missing (often the model, or the fleet)."""
    understood: tuple[Setting, ...]
    assumed: tuple[str, ...] = ()
    """What the file does not say and the scenario had to, one sentence each: the trainer's own defaults, with their values."""
    ignored: tuple[Setting, ...] = ()
    """Settings that no figure of ours depends on, or that we cannot express, with the reason."""
    accumulated: int = 1
    """Micro-batches that every replica adds up in a step, where the file tells that and neither the batch nor how many replicas there are."""
    micro_batch_left: bool = False
    """Whether the file tells the batch and `accumulated`, and leaves the size of a micro-batch to the number of replicas."""
    unknown: tuple[Setting, ...] = ()
    """Settings that the trainer itself does not have in this version: most often a mistyped name."""


@record
class Written:
    """One file of an export."""

    name: str
    """Relative, without folders above it."""
    text: str
    executable: bool = False


@record
class Exported:
    """A scenario as the settings of a trainer."""

    format: str
    version: str
    files: tuple[Written, ...]
    launch: str
    """The command that starts the run with these files; empty where a launcher is written by another format."""
    said: tuple[Setting, ...]
    """Every setting written: its key and value, and what of the scenario it says."""
    unsaid: tuple[str, ...] = ()
    """What the scenario has that this format cannot say, one sentence each."""
    notes: tuple[str, ...] = ()
    """What a person has to fill in or to know: paths of data, names of partitions."""


class Inexpressible(BadScenario):
    """A scenario that a format cannot say without making another run of it; carries every reason."""
