"""What would explain a measured number: a number that is other than said, a word that is, or a figure that was misread."""

from __future__ import annotations

from collections.abc import Callable

from shardmeter.core.record import record
from shardmeter.core.units import Number
from shardmeter.study.doctor.measured import MEMORY, PACE
from shardmeter.study.doctor.world import World

NUMBER, SETTING, READING = "number", "setting", "reading"
BOTH = (PACE, MEMORY)


@record
class Usual:
    """How far a number is usually off: a standard deviation of its logarithm, and where that comes from."""

    deviation: float
    basis: str


@record
class Cause:
    """One explanation, before it is solved for."""

    name: str
    title: str
    """What it is that would be otherwise."""
    means: str
    """What it would mean, if it is so."""
    touches: tuple[str, ...]
    """What it moves: the pace, the memory."""
    chance: float = 1.0
    """How likely before anything is measured, beside how far it has to move."""
    basis: str = ""
    """Where that, or what is usual, comes from."""

    @property
    def kind(self) -> str:
        """Its name without that of an island."""
        return self.name.partition(":")[0]


@record
class Numeric(Cause):
    """A number that is other than said. Of one of several kinds of islands `name` says which, after a colon: `clock:oregon`."""

    field: str
    unit: str
    said: float
    """0 where there should be none of it: a wait, overlap that fails."""
    at: Callable[[Number], World]
    """The world with that value of it. Of one island the value may be an array."""
    least: float
    most: float
    """What is physically possible."""
    far: Callable[[float], float]
    """How far from what is said, as a logarithm."""
    usual: float
    island: int = 0
    """Place of the (first) island that it is of."""
    whole: bool = False
    assumed: bool = False
    """Whether nobody said it: what is there is a default."""
    bound: str = ""
    """Why it cannot be beyond `least` or `most`, in words."""


@record
class Named(Cause):
    """A word of the scenario that is other than said."""

    field: str
    value: str
    world: Callable[[], World]


@record
class Misread(Cause):
    """A figure that counts something else: the prediction of what was read is so many times the figure."""

    factor: float
