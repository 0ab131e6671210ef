"""SOMA: every cell trains a small expert of its own, by SPSA on the data that are routed to it (SOMA 2026).

Nothing joins the experts in training: no weights, no gradients, no losses. A router, made before, sends every document to one of
them; in use a few experts answer together.

Bytes: none.
Period: none: an expert never meets another. `split` says how the batch is shared among cells.
Window: none: nobody waits. The run lasts as long as its slowest expert; the others are let go when they are done.
Memory: the weights of one expert and two moments of Adam, 8 bytes a parameter; no gradients, nothing kept for a backward.
Compute: 2 · `perturbations` forward passes over every sequence of an expert's own batch. `together` passes side by side have copies
    of the expert, which is small, and fill a device that one pass would not.
Convergence: every expert sees an N-th of the tokens and of the model; its estimate has a relative variance of
    (d − 1)/perturbations, d its own parameters: an N-th of what one model of all parameters would have (SOMA eq. 3 and 4).
    Published at 8.44M parameters in all: 1.76 nats a byte at N = 2 and 150 accelerator-hours, 1.68 at N = 256 and 41,900; one model
    by SPSA 2.00 to 2.11, by backpropagation 1.01 to 1.18.
Source: SOMA 2026 (arXiv 2609.37899): 64 perturbations, batches of 64 sequences of 1,024 bytes.
Leaves out: the router and its cost; what every cell gets before training, its part of the data and the frozen embedding that all
    share; unequal parts of the data; the ensemble in use. `experts` must be the number of cells: several of them in turn on one
    cell are not modelled.
"""

from __future__ import annotations

from shardmeter.specs import Effect, Inner, Probes, Replica, Round, Sync
from shardmeter.sync import _alone, _probes

FIELDS = ("experts", "perturbations", "together", "split")
DEFAULTS: dict[str, object] = {"perturbations": 64.0, "split": "equal"}
SOURCE = "soma2026"
SEVERAL = True
"""Whether training ends with several models."""


def inner(sync: Sync) -> Inner:
    """Two forward passes a perturbation, and Adam."""
    passes, pairs = 2.0 * sync.perturbations, sync.perturbations
    return Inner(probes=Probes(passes=passes, together=sync.together, moments=_probes.ADAM, directions=pairs))


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """An expert a cell; passes side by side are passes of a step."""
    if sync.experts in (0.0, float(cells)):
        return _probes.faults(sync)
    says = f"{sync.experts:g} experts, but {cells} island{'' if cells == 1 else 's'}: each trains one"
    way_out = f"leave it out, or {sync.experts:g} islands (count: N repeats one)"
    return (("experts", says, way_out), *_probes.faults(sync))


def effect(replica: Replica, sync: Sync) -> Effect:
    """Losses of one size of model are published, at a few budgets: no law to go by."""
    return Effect(
        basis="unknown",
        text="8.44M parameters of byte LSTMs in all: 1.76 nats a byte at N = 2 (150 accelerator-hours), 1.71 at N = 8 (700), 1.68 at "
        "N = 256 (41,900); one model by SPSA 2.00 to 2.11, EGGROLL 2.21, backpropagation 1.01 to 1.18; nothing is published of "
        "other models",
        source=SOURCE,
    )


def round_of(replica: Replica, sync: Sync) -> Round:
    """A step is a round, and every cell takes it alone."""
    return _alone.every_step(
        "every island trains an expert of its own, of the parameters that are named, on an equal part of the data",
        "data and the frozen embedding are handed out before training: not counted",
    )
