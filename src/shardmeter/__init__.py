"""ShardMeter: how fast, how much memory, how long and how much, for a transformer on any GPUs and any sharding.

>>> import shardmeter
>>> answer = shardmeter.predict(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB", plan="fsdp")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as `typing` has it, without its import: a command that starts can be interrupted the sooner
if TYPE_CHECKING:
    from typing import Any

    from shardmeter.core.errors import BadData, BadQuantity, BadScenario, ShardMeterError, Unavailable, UnknownName
    from shardmeter.interop.exporting import export
    from shardmeter.interop.importing import import_config
    from shardmeter.interop.logs import read_log
    from shardmeter.render.page import page as page
    from shardmeter.render.reporting import report
    from shardmeter.scenario import load
    from shardmeter.specs import Scenario
    from shardmeter.study.api import (
        audit,
        diff,
        doctor,
        explain,
        front,
        infer,
        plan,
        predict,
        returns,
        scale_across,
        sensitivity,
        solve,
        sweep,
        tradeoffs,
        transitions,
    )
    from shardmeter.study.calibrate.calibration import calibrate
    from shardmeter.study.measure import measure
    from shardmeter.study.validate import validate

__all__ = [
    "BadData",
    "BadQuantity",
    "BadScenario",
    "Scenario",
    "ShardMeterError",
    "Unavailable",
    "UnknownName",
    "__version__",
    "audit",
    "calibrate",
    "diff",
    "doctor",
    "explain",
    "export",
    "front",
    "import_config",
    "infer",
    "load",
    "measure",
    "plan",
    "predict",
    "read_log",
    "report",
    "returns",
    "scale_across",
    "sensitivity",
    "solve",
    "sweep",
    "tradeoffs",
    "transitions",
    "validate",
]

__version__ = "0.1.0"

_HOMES = {
    "BadData": "shardmeter.core.errors",
    "BadQuantity": "shardmeter.core.errors",
    "BadScenario": "shardmeter.core.errors",
    "Scenario": "shardmeter.specs",
    "ShardMeterError": "shardmeter.core.errors",
    "Unavailable": "shardmeter.core.errors",
    "UnknownName": "shardmeter.core.errors",
    "audit": "shardmeter.study.api",
    "calibrate": "shardmeter.study.calibrate.calibration",
    "diff": "shardmeter.study.api",
    "doctor": "shardmeter.study.api",
    "explain": "shardmeter.study.api",
    "export": "shardmeter.interop.exporting",
    "front": "shardmeter.study.api",
    "import_config": "shardmeter.interop.importing",
    "infer": "shardmeter.study.api",
    "load": "shardmeter.scenario",
    "measure": "shardmeter.study.measure",
    "page": "shardmeter.render.page",
    "plan": "shardmeter.study.api",
    "predict": "shardmeter.study.api",
    "read_log": "shardmeter.interop.logs",
    "report": "shardmeter.render.reporting",
    "returns": "shardmeter.study.api",
    "scale_across": "shardmeter.study.api",
    "sensitivity": "shardmeter.study.api",
    "solve": "shardmeter.study.api",
    "sweep": "shardmeter.study.api",
    "tradeoffs": "shardmeter.study.api",
    "transitions": "shardmeter.study.api",
    "validate": "shardmeter.study.validate",
}
"""Where each public name lives (and `page`, with which an answer prints itself): it is imported when it is first asked for, so that `import shardmeter` costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
