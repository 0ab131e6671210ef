"""DiPaCo: a model of K modules in each of L rows; every cell trains one path through them (Douillard 2024).

M = K^L cells train all paths, one each; a module is shared by the M/K paths that go through it, and averaged over them as DiLoCo
averages a model. The model that is named is one path: K times its parameters are trained altogether. Inputs are assigned to paths
before training.

Bytes: every module of the path, 1/`levels` of its parameters each, `bits` a parameter, in an all-reduce among the M/K cells that
    share it: over all levels 2·(1 − K/M) of the path each way, less than DiLoCo's 2·(1 − 1/M).
Period: H = `sync_every` inner steps. `topology` and `hierarchical` say how an all-reduce passes, `split` how the batch is shared
    among cells.
Window: none: all wait, level after level; the first may pass behind `lead` of the last step.
Memory: as DiLoCo, of the path: outer copy and outer momentum, 4 + 4 bytes a parameter, where `outer_state` says.
Compute: as DiLoCo: 28 + bits/4 bytes a parameter and round; on hosts 8.
Convergence: replicas are the M/K cells of a module, period H, delay 0, bits. Published: 256 paths of 150M match a dense 1B at equal
    steps.
Source: Douillard 2024 (abstract: 16 × 16 paths); H is not in what we could read: 100 is a guess.
Leaves out: with one level, which is branch_train_merge, that paths need not wait for each other; modules of unlike size (embedding and head lie in the first and the last); parts that are a path's own; servers that do
    the outer step; routing of the data, and again while it is used.
"""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.specs import Crossing, Effect, Progress, Replica, Round, Sync
from shardmeter.sync import _loss, _outer, diloco

FIELDS = ("sync_every", "levels", "bits", "lead", "outer_state", "topology", "hierarchical", "split")
DEFAULTS: dict[str, object] = {"sync_every": 100.0, "levels": 2}
SOURCE = "douillard2024"
SEVERAL = True
"""Whether training ends with several models."""


def modules(sync: Sync, cells: int) -> int:
    """K: modules of a level, the largest number of which there are no more paths than cells."""
    most: int = round(cells ** (1.0 / sync.levels))
    return most - 1 if most**sync.levels > cells else most


def faults(sync: Sync, cells: int) -> tuple[tuple[str, str, str], ...]:
    """Every path needs a cell, and every cell a path."""
    each, levels = modules(sync, cells), sync.levels
    if cells == 1 or (each > 1 and each**levels == cells):
        return ()
    near = [f"{one**levels} islands" for one in (each, each + 1) if one > 1]
    near += [
        f"levels: {one}"
        for one in range(2, cells.bit_length())
        if modules(changed(sync, levels=one), cells) ** one == cells
    ]
    says = f"{levels} levels of K modules have K^{levels} paths, one for every island, but there are {cells} islands"
    return (("levels", says, " or ".join(near)),)


def shared(sync: Sync, cells: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Of every level the cells of each of its modules: those with the same digit of their number, written in base K."""
    each = modules(sync, cells)
    return tuple(
        tuple(tuple(at for at in range(cells) if at // each**level % each == one) for one in range(each))
        for level in range(sync.levels)
    )


def effect(replica: Replica, sync: Sync) -> Effect:
    """Against a dense model of several times the path; the copies of a module cost what replicas do, and that is not measured."""
    said = "256 paths of 150M match a dense 1B at equal steps; beside one dense path nothing is published"
    return _loss.unknown(said, SOURCE)


def round_of(replica: Replica, sync: Sync) -> Round:
    """H steps of a path, then every level's modules averaged over the paths that share them. `replica.parameters` are a path's."""
    cells = int(replica.cells)
    size = _outer.message(replica, sync) / sync.levels
    messages = tuple(
        Crossing(
            label=f"modules of level {level + 1} among their paths",
            collective="all_reduce",
            size=size,
            lead=0.0 if level else sync.lead,
            groups=groups,
        )
        for level, groups in enumerate(shared(sync, cells))
    )
    device, host = _outer.placed(sync, _outer.kept(replica, *diloco.STATE))
    return Round(
        steps=sync.sync_every,
        crossings=messages,
        residents=device,
        host_residents=host,
        traffic=_outer.traffic(replica, sync, diloco.NUMBERS),
        progress=Progress(replicas=cells / modules(sync, cells), period=sync.sync_every, bits=sync.bits),
        notes=_outer.notes(
            sync,
            "the model is one path; modules are taken as equal parts of it, and every module is shared",
            "levels are averaged one after the other",
        ),
    )
