"""SkyPilot tasks, one an island: what to rent where, and what every node runs."""

from __future__ import annotations

from shardmeter.interop.configs import _clouds as clouds
from shardmeter.interop.configs import _launching as launching
from shardmeter.interop.configs.record import Exported, Setting, Written
from shardmeter.specs import Scenario

NAME = "skypilot"
TITLE = "a SkyPilot task: nodes, accelerators, cloud and region, and the command of every node"
VERSIONS = ("0.14",)
NODE = "SKYPILOT_NODE_RANK"
HEAD = '$(echo "$SKYPILOT_NODE_IPS" | sed -n 1p)'


def launch(scenario: Scenario, trainer: Exported, version: str = "") -> Exported:
    """The tasks. Raises Inexpressible where ranks that lie island by island are another plan, or SkyPilot has no such accelerator."""
    return clouds.exported(
        scenario, trainer, NAME, version or VERSIONS[0], said=_said, task=_task, start=_start, notes=_notes
    )


def _start(file: str, needed: tuple[str, ...]) -> str:
    return f"sky launch {file}{''.join(f' --env {name}=…' for name in needed)}"


def _notes(_: tuple[launching.Job, ...]) -> tuple[str, ...]:
    return ("the task has no setup: name an image (resources.image_id), or commands that install the trainer",)


def _said(scenario: Scenario, job: launching.Job, jobs: tuple[launching.Job, ...], kind: str) -> tuple[Setting, ...]:
    """The keys of a task that a plan settles."""
    at = f"fleet.islands.{job.island.name}"
    name = launching.name_of(scenario, job, jobs)
    found = [
        Setting(key="name", value=name, means=f"name = {scenario.name}"),
        Setting(key="num_nodes", value=str(job.nodes), means=f"{at}.nodes = {job.nodes}"),
        Setting(
            key="resources.accelerators",
            value=f"{kind}:{job.gpus}",
            means=f"{at}: {job.gpus} x {job.island.accelerator.name}",
        ),
    ]
    provider, region = clouds.place(job.island)
    if region:
        found.append(
            Setting(key="resources.infra", value=f"{provider}/{region}", means=f"{at}.region = {job.island.region}")
        )
    if clouds.market(job.island):
        spot = str(clouds.market(job.island) == "spot").lower()
        found.append(Setting(key="resources.use_spot", value=spot, means=f"{at}.spot = {spot}"))
    if job.of > 1:
        found.append(
            Setting(key="resources.network_tier", value="best", means="the network that the nodes are sold with")
        )
    return tuple(found)


def _task(
    scenario: Scenario,
    trainer: Exported,
    jobs: tuple[launching.Job, ...],
    job: launching.Job,
    said: tuple[Setting, ...],
) -> Written:
    """One task as YAML."""
    lines = [
        f"# {launching.title(scenario, job, jobs)}",
        *clouds.keys(said),
        "workdir: .",
    ]
    needed = clouds.asked(trainer, job)
    if needed:
        lines += ["envs:", *(f"  {name}: null" for name in needed)]
    lines += ["run: |", *clouds.block(clouds.script(scenario, trainer, jobs, job, node=NODE, head=HEAD), 2)]
    return Written(name=launching.suffixed(NAME, "yaml", job, jobs), text="\n".join(lines) + "\n")
