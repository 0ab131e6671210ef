"""SPSA on one model: probes on both sides of many random directions, Adam on their mean (Spall 1992; the monolith of SOMA 2026).

All cells know the seeds of the directions, so that each makes the same estimate from the losses of all: data parallelism in
which a gradient is a handful of numbers.

Bytes: 4 a probe, two probes a perturbation; every cell sends its own to all others (all-gather), whatever the size of the model.
    Upper bound: with whole probes dealt out in place of sequences a cell has only an M-th of them to send.
Period: every step. `split` says how the batch is shared among cells, `topology` and `hierarchical` how the losses pass.
Window: none: the step waits for the losses of all.
Memory: the weights and two moments of Adam, 8 bytes a parameter; no gradients, nothing kept for a backward.
Compute: 2 · `perturbations` forward passes over every sequence; the weights are moved in place three times for two probes, and
    weights and moments are read and written once. `together` passes side by side have copies of the weights instead.
Convergence: one step of the whole batch, of a gradient of relative variance (d − 1)/perturbations, d the parameters (SOMA eq. 3).
    Published at 8.44M parameters near 150 accelerator-hours: 2.00 to 2.11 nats a byte, backpropagation 1.01 to 1.18.
Source: Spall 1992; SOMA 2026 (64, 256 and 1,024 perturbations).
Leaves out: gains that decay over the run; batches of which the two probes see unlike sequences.
"""

from __future__ import annotations

from shardmeter.specs import Effect, Inner, Probes, Replica, Round, Sync
from shardmeter.sync import _probes

FIELDS = ("perturbations", "together", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"perturbations": 64.0}
SOURCE = "soma2026"


def inner(sync: Sync) -> Inner:
    """Two forward passes a perturbation, and Adam."""
    passes, pairs = 2.0 * sync.perturbations, sync.perturbations
    return Inner(probes=Probes(passes=passes, together=sync.together, moments=_probes.ADAM, directions=pairs))


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """Any number of cells; passes side by side are passes of a step."""
    return _probes.faults(sync)


def effect(replica: Replica, sync: Sync) -> Effect:
    """One size is published, at one budget: no law to go by."""
    return Effect(
        basis="unknown",
        text="8.44M-parameter byte LSTM near 150 accelerator-hours: 2.00 (64 perturbations), 2.11 (256), 2.00 (1,024) nats a byte, "
        "backpropagation 1.01 to 1.18; nothing is published of other models",
        source=SOURCE,
    )


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round: the losses of the probes."""
    return _probes.every_step(2.0 * sync.perturbations)
