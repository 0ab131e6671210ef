"""Every number of a scenario that can be moved: of machines, lines, plan, run, software and prices. One record each, so that what an
answer hangs on (`sensitivity`) and what would explain a measured one (`doctor`) move the same things.

A lever scales a number of the resolved scenario; islands of the same machine are moved together.
"""

from __future__ import annotations

from shardmeter.specs import Scenario
from shardmeter.study.levers import layout, machines, money, network, software
from shardmeter.study.levers.lever import KINDS, Lever, answered

__all__ = ["KINDS", "Lever", "answered", "levers"]


def levers(scenario: Scenario) -> tuple[Lever, ...]:
    """Every number of a scenario that is there and not zero, by kind in the order of KINDS."""
    rooms = (machines, network, layout, software, money)
    return tuple(one for room in rooms for one in room.levers(scenario) if one.value)
