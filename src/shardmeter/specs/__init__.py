"""Frozen records: what a user describes (Accelerator … Scenario), what strategies emit (demands), what the engine returns.

Every number is SI and may be a float or a NumPy array; every name is a string that changes the structure of the demand list.
"""

from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.choices import Choices, Joint
from shardmeter.specs.course import (
    Checkpoint,
    CriticalBatch,
    Evaluation,
    Failures,
    Haul,
    LossLaw,
    Phase,
    Power,
    Stock,
    Tariff,
)
from shardmeter.specs.demands import Compute, Progress, Resident, Transfer
from shardmeter.specs.estimate import Estimate, Leaving, MemoryTerm, Term
from shardmeter.specs.fleet import Fabric, Fleet, Instance, Island, Tier, TorusAxis, bare
from shardmeter.specs.geography import Egress, Grid, Line, Pair, Region, Storage
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan, Probes, Sync
from shardmeter.specs.round import Crossing, Effect, Inner, Replica, Round
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.specs.wan import Wan

__all__ = [
    "Accelerator",
    "Checkpoint",
    "Choices",
    "Compute",
    "CriticalBatch",
    "Crossing",
    "Effect",
    "Egress",
    "Estimate",
    "Evaluation",
    "Fabric",
    "Failures",
    "Fleet",
    "Grid",
    "Haul",
    "Inner",
    "Instance",
    "Island",
    "Joint",
    "Leaving",
    "Line",
    "LossLaw",
    "MemoryTerm",
    "Model",
    "Pair",
    "Phase",
    "Plan",
    "Power",
    "Probes",
    "Progress",
    "Region",
    "Replica",
    "Resident",
    "Round",
    "Run",
    "Scenario",
    "Stack",
    "Stock",
    "Storage",
    "Sync",
    "Tariff",
    "Term",
    "Tier",
    "TorusAxis",
    "Transfer",
    "Wan",
    "bare",
]
