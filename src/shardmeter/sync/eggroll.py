"""EGGROLL: evolution of a population whose members differ from the weights by low-rank factors (Sarkar 2025).

Every member sees sequences of its own; the step is the sum of the factors, weighted by how well their members did. Factors come
from seeds that all cells know, so that a number a member is all that crosses.

Bytes: 4 a member: every cell sends the fitness of its own `perturbations`/M members to all others (all-gather), whatever the size
    of the model.
Period: every step. `split` says how the population is shared among cells, `topology` and `hierarchical` how the numbers pass.
Window: none: the step waits for the fitness of all.
Memory: that of inference: the weights, one layer at a time. Members have no copies: factors of `rank` are multiplied beside them.
Compute: one forward pass over every sequence, with products k × r and r × n beside each k × n; the update, k × r·members by
    r·members × n for every matrix, is made whole on every rank that holds it. Published: 91 % of the throughput of inference.
Convergence: one step of the whole batch. For a linear loss a member's relative variance is d + 1 + 2·(rows + columns + 1)/rank
    (derived), that of a step this over the members; published of SOMA's comparison: 2.21 nats a byte.
Source: Sarkar 2025 (EGGROLL); SOMA 2026 for a population of 2^20.
Leaves out: shaping of fitness, antithetic pairs, momentum, integer formats; reading the factors of many members of a micro-batch.
"""

from __future__ import annotations

from shardmeter.specs import Effect, Inner, Probes, Replica, Round, Sync
from shardmeter.sync import _probes

FIELDS = ("perturbations", "rank", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"perturbations": 1024.0, "rank": 1.0}
SOURCE = "sarkar2025"


def inner(sync: Sync) -> Inner:
    """One forward pass over every sequence, each under the factors of its member."""
    return Inner(
        probes=Probes(passes=1.0, rank=sync.rank, directions=sync.perturbations, members=sync.perturbations)
    )  # fmt: skip


def effect(replica: Replica, sync: Sync) -> Effect:
    """One run is published that others can be compared with."""
    return Effect(
        basis="unknown",
        text="8.44M-parameter byte LSTM near 150 accelerator-hours, 2^20 members of rank 1: 2.21 nats a byte, backpropagation 1.01 to "
        "1.18; nothing is known of other models and populations",
        source="soma2026",
    )


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round: the fitness of all members."""
    return _probes.every_step(sync.perturbations / replica.cells)
