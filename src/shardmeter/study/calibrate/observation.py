"""What was measured of a run, as calibration takes it: a scenario that was known before, and a step time with its error."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Fraction, Seconds
from shardmeter.specs import Scenario

MOST = 200
"""Runs that one calibration takes."""


@record
class Observation:
    """One measured run. The scenario holds nothing that was measured of it."""

    id: str
    """How pages name it: a file, `file:line`, or what the user called it."""
    scenario: Scenario
    step_time: Seconds
    """Median over the steps that count."""
    error: Fraction = 0.0
    """Standard error of the step time over itself, as far as the log tells; the spread between releases and runs comes on top."""
    memory: Bytes | None = None
    """Allocated peak of the fullest accelerator."""
    source: str = ""
    """Where it comes from, for the row that is written: a file, a table, a date."""
