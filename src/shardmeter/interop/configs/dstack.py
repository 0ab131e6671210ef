"""dstack tasks, one an island: nodes and GPUs, backend and region, and what every node runs."""

from __future__ import annotations

from shardmeter.interop.configs import _clouds as clouds
from shardmeter.interop.configs import _launching as launching
from shardmeter.interop.configs.record import Exported, Setting, Written
from shardmeter.specs import Scenario

NAME = "dstack"
TITLE = "a dstack task: nodes, GPUs, backend and region, and the command of every node"
VERSIONS = ("0.22",)
NODE = "DSTACK_NODE_RANK"
HEAD = '"$DSTACK_MASTER_NODE_IP"'
HOUR = 3600.0


def launch(scenario: Scenario, trainer: Exported, version: str = "") -> Exported:
    """The tasks. Raises Inexpressible where ranks that lie island by island are another plan, or dstack has no such GPU."""
    return clouds.exported(
        scenario, trainer, NAME, version or VERSIONS[0], said=_said, task=_task, start=_start, notes=_notes
    )


def _start(file: str, needed: tuple[str, ...]) -> str:
    return f"{''.join(f'{name}=… ' for name in needed)}dstack apply -f {file}"


def _notes(jobs: tuple[launching.Job, ...]) -> tuple[str, ...]:
    return (
        "the task runs in dstack's own image: name one that has the trainer (image), or install it before the command",
        *(["several nodes need a fleet with placement: cluster"] if any(job.of > 1 for job in jobs) else []),
    )


def _said(scenario: Scenario, job: launching.Job, jobs: tuple[launching.Job, ...], kind: str) -> tuple[Setting, ...]:
    """The keys of a task that a plan settles."""
    at = f"fleet.islands.{job.island.name}"
    name = launching.name_of(scenario, job, jobs)
    found = [
        Setting(key="name", value=name, means=f"name = {scenario.name}"),
        Setting(key="nodes", value=str(job.nodes), means=f"{at}.nodes = {job.nodes}"),
        Setting(
            key="resources.gpu", value=f"{kind}:{job.gpus}", means=f"{at}: {job.gpus} x {job.island.accelerator.name}"
        ),
    ]
    provider, region = clouds.place(job.island)
    if region:
        found.append(Setting(key="backends", value=f"[{provider}]", means=f"{at}.region = {job.island.region}"))
        found.append(Setting(key="regions", value=f"[{region}]", means=f"{at}.region = {job.island.region}"))
    if market := clouds.market(job.island):
        found.append(Setting(key="spot_policy", value=market, means=f"{at}.spot = {str(market == 'spot').lower()}"))
    if scenario.run.deadline is not None:
        hours = f"{-(-float(scenario.run.deadline) // HOUR):.0f}h"
        found.append(Setting(key="max_duration", value=hours, means=f"run.deadline = {scenario.run.deadline:g} s"))
    return tuple(found)


def _task(
    scenario: Scenario,
    trainer: Exported,
    jobs: tuple[launching.Job, ...],
    job: launching.Job,
    said: tuple[Setting, ...],
) -> Written:
    """One task as YAML."""
    needed = clouds.asked(trainer, job)
    lines = [
        f"# {launching.title(scenario, job, jobs)}",
        "type: task",
        *clouds.keys(said),
        "shell: bash",
        *(["env:", *(f"  - {name}" for name in needed)] if needed else []),
        *(["files:", *(f"  - {file.name}" for file in trainer.files)] if trainer.files else []),
        "commands:",
        "  - |",
        *clouds.block(clouds.script(scenario, trainer, jobs, job, node=NODE, head=HEAD), 4),
    ]
    return Written(name=launching.suffixed(NAME, "yaml", job, jobs), text="\n".join(lines) + "\n")
