"""MeZO: the loss is probed on both sides of a random direction, and the step goes along it in place (Malladi 2023).

All cells know the seeds of the directions: what crosses is the loss of every probe, and each makes the same step from them.

Bytes: 4 a probe, two probes a perturbation; every cell sends its own to all others (all-gather), whatever the size of the model.
Period: every step. `split` says how the batch is shared among cells, `topology` and `hierarchical` how the losses
    pass.
Window: none: the step waits for the losses of all.
Memory: that of inference: the weights, one layer at a time, no gradients, no optimizer state, nothing kept for a backward.
Compute: 2 · `perturbations` forward passes over every sequence; the weights are moved in place three times for two probes.
    `together` passes side by side have copies of the weights instead and fill a device that one small pass would not.
Convergence: one step of the whole batch, of a gradient whose variance grows with the effective rank of the model over
    `perturbations` (Malladi 2023 §4; (d − 1)/perturbations for a plain estimator). Published for fine-tuning only.
Source: Malladi 2023, Algorithm 1.
Leaves out: momentum and Adam variants (that is spsa); batches of which the two probes see unlike sequences.
"""

from __future__ import annotations

from shardmeter.specs import Effect, Inner, Probes, Replica, Round, Sync
from shardmeter.sync import _probes

FIELDS = ("perturbations", "together", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"perturbations": 1.0}
SOURCE = "malladi2023"


def inner(sync: Sync) -> Inner:
    """Two forward passes a perturbation."""
    passes, pairs = 2.0 * sync.perturbations, sync.perturbations
    return Inner(probes=Probes(passes=passes, together=sync.together, directions=pairs))


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """Any number of cells; passes side by side are passes of a step."""
    return _probes.faults(sync)


def effect(replica: Replica, sync: Sync) -> Effect:
    """Known for fine-tuning with prompts, where it comes close to backpropagation; of pre-training nothing is published."""
    return Effect(
        basis="unknown",
        text="within 1 % of backpropagation on 7 of 11 fine-tuning tasks up to 66B; pre-training from scratch is not published",
        source=SOURCE,
    )


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round: the losses of the probes."""
    return _probes.every_step(2.0 * sync.perturbations)
