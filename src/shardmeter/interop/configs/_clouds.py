"""What launchers that rent say of an island: the accelerator by their own name, the provider and its region, the market."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable, Sequence

from shardmeter import data
from shardmeter.core.errors import Violation
from shardmeter.interop.configs import _launching as launching
from shardmeter.interop.configs.record import Exported, Inexpressible, Setting, Written
from shardmeter.specs import Island, Scenario

WITHIN = "resources."
"""Keys that a task has under `resources`."""


def exported(
    scenario: Scenario,
    trainer: Exported,
    launcher: str,
    version: str,
    *,
    said: Callable[[Scenario, launching.Job, tuple[launching.Job, ...], str], tuple[Setting, ...]],
    task: Callable[[Scenario, Exported, tuple[launching.Job, ...], launching.Job, tuple[Setting, ...]], Written],
    start: Callable[[str, tuple[str, ...]], str],
    notes: Callable[[tuple[launching.Job, ...]], tuple[str, ...]],
) -> Exported:
    """A task an island: `said` gives its keys, from the launcher's name of the accelerator; `task` writes them; `start` is the command
    for a file and the variables that it has to be told; `notes` come before those of every launcher.

    Raises Inexpressible where ranks that lie island by island are another plan, or the launcher has no such accelerator."""
    jobs = launching.jobs(scenario, trainer)
    kinds = accelerators((job.island for job in jobs), launcher)
    keys = [said(scenario, job, jobs, kind) for job, kind in zip(jobs, kinds, strict=True)]
    files = tuple(task(scenario, trainer, jobs, job, one) for job, one in zip(jobs, keys, strict=True))
    starts = (start(file.name, asked(trainer, job)) for file, job in zip(files, jobs, strict=True))
    return Exported(
        format=launcher,
        version=version,
        files=files,
        launch="\n".join(starts),
        said=tuple(setting for one in keys for setting in one),
        unsaid=unsaid(scenario),
        notes=(*notes(jobs), *launching.notes(trainer, jobs)),
    )


def keys(said: Sequence[Setting]) -> list[str]:
    """Lines of YAML: the keys of a task, those under `resources` last."""
    return [
        *(f"{one.key}: {one.value}" for one in said if not one.key.startswith(WITHIN)),
        "resources:",
        *(f"  {one.key.removeprefix(WITHIN)}: {one.value}" for one in said if one.key.startswith(WITHIN)),
    ]


@functools.cache
def _names() -> dict[str, dict[str, str]]:
    """Rows of `data/accelerator_names.csv` by our name."""
    with data.open_text("accelerator_names.csv") as file:
        return {row["accelerator"]: row for row in csv.DictReader(file)}


def accelerators(islands: Iterable[Island], launcher: str) -> tuple[str, ...]:
    """What a launcher calls the accelerator of each island. Raises Inexpressible with every one that it has no name for."""
    named = {island.name: (island.accelerator.name, _names().get(island.accelerator.name, {})) for island in islands}
    known = ", ".join(name for name, row in _names().items() if row[launcher])
    wrong = [
        Violation(field=f"fleet.islands.{island}.accelerator", says=f"{launcher} has no {name}", rule=f"it has {known}")
        for island, (name, row) in named.items()
        if not row.get(launcher)
    ]
    if wrong:
        raise Inexpressible(f"{launcher} cannot rent this", wrong)
    return tuple(row[launcher] for _, row in named.values())


def place(island: Island) -> tuple[str, str]:
    """(provider, region) of an island: `aws`, `us-west-2`; empty where the scenario does not say."""
    provider, _, region = island.region.partition(":")
    return (provider, region) if region else ("", "")


def market(island: Island) -> str:
    """How it is paid, where a scenario's price comes from a list: spot or on-demand; empty where the price was given."""
    return {"spot": "spot", "on demand": "on-demand"}.get(island.tariff.kind, "")


def asked(trainer: Exported, job: launching.Job) -> tuple[str, ...]:
    """Variables that have to be told of another island when a task is started."""
    if launching.grouped_by_island(trainer):
        return ("LIGHTHOUSE",) if job.number else ()
    return ("HEAD",) if job.joins else ()


def script(
    scenario: Scenario,
    trainer: Exported,
    jobs: tuple[launching.Job, ...],
    job: launching.Job,
    *,
    node: str,
    head: str,
) -> list[str]:
    """Lines of bash that every node runs: `node` is the variable with its number, `head` what finds the host of the first."""
    return [
        "set -euo pipefail",
        launching.head_of(job, head),
        *launching.shell(scenario, trainer, jobs, job, first=f'[ "${node}" = 0 ]'),
        launching.started(trainer.launch, job, rank=launching.rank_in(job, node), head='"$head"'),
    ]


def block(lines: Sequence[str], indent: int) -> list[str]:
    """Lines of a YAML block, indented; a command of several lines is several."""
    return [f"{' ' * indent}{line}" for text in lines for line in text.split("\n")]


def unsaid(scenario: Scenario) -> tuple[str, ...]:
    """What of a fleet no rented task says."""
    placed = [f"fleet.islands.{one.name}.region: none is said" for one in scenario.fleet.islands if not place(one)[1]]
    return (*placed, *launching.unsaid(scenario))
