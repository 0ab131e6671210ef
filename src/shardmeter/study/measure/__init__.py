"""`measure`: micro-benchmarks of a device, and the catalog's rows that they give. `tasks` says what is timed, `run` times it,
`torch_device` and `collectives` are PyTorch (imported when asked for), `rows` makes the rows, `answer` holds all of it.
"""

from __future__ import annotations

from shardmeter.study.measure.answer import Measurement, measure, of
from shardmeter.study.measure.record import Measured, Task, Timing, read

__all__ = ["Measured", "Measurement", "Task", "Timing", "measure", "of", "read"]
