"""How an answer prints itself: `print` shows the page of the command, without what was assumed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from shardmeter.render import terminal
from shardmeter.render.heading import heading


class Answer(Protocol):
    """What a study gives: its class has a page in PAGES."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the answer."""


def page(answer: Answer) -> str:
    """An answer of any study as plain text, short: no assumptions, warnings at the end."""
    name, titled = PAGES[type(answer).__name__]
    module = importlib.import_module(f"shardmeter.render.{name}")
    return terminal.text(module.document(answer.to_dict(), titled(module, answer), short=True)).rstrip("\n")


def _headed(_: ModuleType, answer: Any) -> str:
    return heading(answer.scenario)


def _titled(module: ModuleType, answer: Any) -> str:
    return str(module.title(answer.scenario))


PAGES: Mapping[str, tuple[str, Callable[[ModuleType, Any], Any]]] = {
    "Prediction": ("prediction", _headed),
    "Plans": ("planning", _titled),
    "FleetPlans": ("planning_fleet", _titled),
    "Solution": ("solution", lambda _, answer: heading(answer.prediction.scenario)),
    "Inference": ("inference", lambda module, answer: module.title(answer.scenario, answer.asked.how)),
    "Difference": ("difference", lambda _, answer: (heading(answer.a.scenario), heading(answer.b.scenario))),
    "Report": ("report", _headed),
    "Returns": ("returns", _headed),
    "ScaleAcross": ("scale_across", lambda module, answer: module.title(answer.scenario, answer.answer["question"])),
    "Sensitivity": ("sensitivity", _headed),
    "Tradeoffs": ("tradeoffs", _headed),
    "Transitions": ("transitions", _headed),
    "Diagnosis": ("doctor", _headed),
    "Measurement": ("measuring", lambda module, answer: module.title(answer)),
    "Audit": ("audit", lambda *_: ""),
    "LogAccount": ("reading_log", lambda *_: ""),
    "Import": ("importing", lambda *_: ""),
    "Export": ("exporting", _headed),
    "FabricFit": ("calibration_fabric", lambda *_: ""),
    "Calibration": ("calibration", lambda module, answer: module.title(answer.to_dict())),
    "Front": ("front", lambda module, answer: module.title(answer.fleets.base)),
}
"""By the class of an answer: the module of its page, and the title above it."""
