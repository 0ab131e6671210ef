"""Frozen records: what a user describes (Accelerator … Scenario), what strategies emit (demands), what the engine returns.

Every number is SI and may be a float or a NumPy array; every name is a string that changes the structure of the demand list.
"""

from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.choices import Choices, Joint
from shardmeter.specs.course import CriticalBatch, LossLaw, Phase
from shardmeter.specs.demands import Compute, Progress, Resident, Transfer
from shardmeter.specs.estimate import Estimate, MemoryTerm, Term
from shardmeter.specs.fleet import Fabric, Fleet, Instance, Island, Tier, TorusAxis
from shardmeter.specs.geography import Egress, Line, Pair, Region
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan, Probes, Sync
from shardmeter.specs.round import Crossing, Effect, Inner, Replica, Round
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.specs.wan import Wan

__all__ = [
    "Accelerator",
    "Choices",
    "Compute",
    "CriticalBatch",
    "Crossing",
    "Effect",
    "Egress",
    "Estimate",
    "Fabric",
    "Fleet",
    "Inner",
    "Instance",
    "Island",
    "Joint",
    "Line",
    "LossLaw",
    "MemoryTerm",
    "Model",
    "Pair",
    "Phase",
    "Plan",
    "Probes",
    "Progress",
    "Region",
    "Replica",
    "Resident",
    "Round",
    "Run",
    "Scenario",
    "Stack",
    "Sync",
    "Term",
    "Tier",
    "TorusAxis",
    "Transfer",
    "Wan",
]
