"""Shell scripts that start a trainer by hand: one an island, run on every node with the host of the first and the node's own number."""

from __future__ import annotations

from shardmeter.interop.configs import _launching as launching
from shardmeter.interop.configs._saying import harmless
from shardmeter.interop.configs.record import Exported, Setting, Written
from shardmeter.specs import Scenario

NAME = "torchrun"
TITLE = "a shell script for every node: torchrun, or accelerate launch, with its ranks and where they meet"
VERSIONS = ("2",)
USAGE = "usage: {name} HEAD NODE (host of the first node, number of this one: 0 to {last})"


def launch(scenario: Scenario, trainer: Exported, version: str = "") -> Exported:
    """The scripts. Raises Inexpressible where ranks that lie island by island are another plan."""
    jobs = launching.jobs(scenario, trainer)
    files = tuple(_script(scenario, trainer, jobs, job) for job in jobs)
    return Exported(
        format=NAME,
        version=version or VERSIONS[0],
        files=files,
        launch="\n".join(f"./{file.name}{_arguments(job)}" for file, job in zip(files, jobs, strict=True)),
        said=tuple(setting for job in jobs for setting in _said(job)),
        unsaid=launching.unsaid(scenario),
        notes=launching.notes(trainer, jobs),
    )


def _arguments(job: launching.Job) -> str:
    return "" if job.alone else " HEAD NODE"


def _script(scenario: Scenario, trainer: Exported, jobs: tuple[launching.Job, ...], job: launching.Job) -> Written:
    """What every node of an island runs."""
    name = launching.suffixed(NAME, "sh", job, jobs)
    lines = ["#!/usr/bin/env bash", f"# {launching.title(scenario, job, jobs)}"]
    if not job.alone:
        lines.append(
            f"# On every node: ./{name} HEAD NODE, the host of the first node of {harmless(job.head)} and the node's own number."
        )
    lines += ["set -euo pipefail", 'cd "$(dirname "$0")"']
    if not job.alone:
        usage = USAGE.format(name=name, last=job.nodes - 1)
        lines += [f'head="${{1:?{usage}}}"', f'node="${{2:?{usage}}}"']
    elif launching.grouped_by_island(trainer):
        lines += ["head=$(hostname)", "node=0"]
    lines += launching.shell(scenario, trainer, jobs, job, first='[ "$node" = 0 ]')
    lines.append(launching.started(trainer.launch, job, rank=launching.rank_in(job, "node"), head='"$head"'))
    return Written(name=name, text="\n".join(lines) + "\n", executable=True)


def _said(job: launching.Job) -> tuple[Setting, ...]:
    """The options of torchrun that a plan settles."""
    island = f"fleet.islands.{job.island.name}"
    return (
        Setting(key="--nnodes", value=str(job.of), means=f"{island}.nodes = {job.nodes}"),
        Setting(key="--nproc-per-node", value=str(job.gpus), means=f"{island}.gpus_per_node = {job.gpus}"),
    )
