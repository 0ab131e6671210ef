"""SLURM batch scripts, one an island: nodes, GPUs of a node, who meets where, and the trainer's command on every node."""

from __future__ import annotations

from shardmeter.core.units import Seconds
from shardmeter.interop.configs import _launching as launching
from shardmeter.interop.configs.record import Exported, Setting, Written
from shardmeter.specs import Island, Scenario

NAME = "slurm"
TITLE = "a SLURM batch script: srun starts torchrun, or accelerate launch, once on every node"
VERSIONS = ("22.05",)
"""The oldest that has every option written here; later ones have them too."""


def launch(scenario: Scenario, trainer: Exported, version: str = "") -> Exported:
    """The scripts. Raises Inexpressible where ranks that lie island by island are another plan."""
    jobs = launching.jobs(scenario, trainer)
    options = {job.island.name: _options(scenario, job, jobs) for job in jobs}
    files = tuple(_script(scenario, trainer, jobs, job, options[job.island.name]) for job in jobs)
    return Exported(
        format=NAME,
        version=version or VERSIONS[0],
        files=files,
        launch="\n".join(f"{_given(trainer, job)}sbatch {file.name}" for file, job in zip(files, jobs, strict=True)),
        said=tuple(setting for job in jobs for setting in options[job.island.name]),
        unsaid=(*(_kind(job.island) for job in jobs), *launching.unsaid(scenario)),
        notes=(
            "--partition and --account are those of your site; --output is a file beside the script",
            *(note for job in jobs for note in _of_rack(job.island)),
            *launching.notes(trainer, jobs),
        ),
    )


def _given(trainer: Exported, job: launching.Job) -> str:
    """What has to be told of another island before a job is submitted."""
    if launching.grouped_by_island(trainer):
        return "LIGHTHOUSE=http://HOST:29510 " if job.number else ""
    return "HEAD=HOST " if job.joins else ""


def _kind(island: Island) -> str:
    return f"fleet.islands.{island.name}.accelerator: the partition's nodes are to have {island.accelerator.name}"


def _of_rack(island: Island) -> tuple[str, ...]:
    """What keeps the nodes of one scale-up domain together, where that is more than a node."""
    domain = float(island.tiers[0].size) / float(island.gpus_per_node)
    if domain < 2 or island.nodes <= domain:
        return ()
    return (
        f"{island.name}: --segment={domain:.0f} (SLURM 23.11 or newer) keeps the nodes of a scale-up domain together",
    )


def _options(scenario: Scenario, job: launching.Job, jobs: tuple[launching.Job, ...]) -> tuple[Setting, ...]:
    """The lines `#SBATCH`, each with what it says of the scenario."""
    island = f"fleet.islands.{job.island.name}"
    name = launching.name_of(scenario, job, jobs)
    found = [
        Setting(key="--job-name", value=name, means=f"name = {scenario.name}"),
        Setting(key="--nodes", value=str(job.nodes), means=f"{island}.nodes = {job.nodes}"),
        Setting(key="--ntasks-per-node", value="1", means="one torchrun, or accelerate launch, a node"),
        Setting(key="--gpus-per-node", value=str(job.gpus), means=f"{island}.gpus_per_node = {job.gpus}"),
    ]
    if job.gpus >= job.island.accelerator.node_size:
        found.append(Setting(key="--exclusive", value="", means="whole nodes"))
    if scenario.run.deadline is not None:
        limit = _duration(scenario.run.deadline)
        found.append(Setting(key="--time", value=limit, means=f"run.deadline = {scenario.run.deadline:g} s"))
    return (*found, Setting(key="--output", value="%x-%j.out", means="named by job and number"))


def _duration(seconds: Seconds) -> str:
    """A time limit as SLURM reads it: days-hours:minutes:seconds."""
    minutes, rest = divmod(round(float(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02d}:{minutes:02d}:{rest:02d}"


def _script(
    scenario: Scenario,
    trainer: Exported,
    jobs: tuple[launching.Job, ...],
    job: launching.Job,
    options: tuple[Setting, ...],
) -> Written:
    """The batch script of an island. Its own lines run on the first node, those between the words NODE on every one."""
    command = launching.started(trainer.launch, job, rank=launching.rank_in(job, "SLURM_NODEID"), head='"$head"')
    own = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {one.key}{'=' if one.value else ''}{one.value}" for one in options),
        f"# {launching.title(scenario, job, jobs)}",
        "set -euo pipefail",
        launching.head_of(job, own),
        "export head",
        *launching.shell(scenario, trainer, jobs, job, first=""),
        "srun --kill-on-bad-exit=1 bash -c \"$(cat <<'NODE'",
        command,
        "NODE",
        ')"',
    ]
    return Written(name=launching.suffixed(NAME, "sh", job, jobs), text="\n".join(lines) + "\n", executable=True)
