"""What every launcher says of a run: who starts how many processes on which node, and what their environment has to hold.

Nodes get their ranks island by island, so a mesh crosses islands along its outermost axis. Leaves out: which node of a rack or a
leaf gets which rank (that is the scheduler's), and elastic groups, in which ranks are dealt out again.
"""

from __future__ import annotations

import math
import re

import numpy as np

from shardmeter.core.errors import Violation
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.interop.configs._saying import harmless
from shardmeter.interop.configs.record import Exported, Inexpressible
from shardmeter.specs import Island, Plan, Scenario
from shardmeter.specs.wan import Wan

STARTERS = ("torchrun", "accelerate launch")
"""What the command of a trainer begins with; the options of a node follow these words."""
PORT = 29500
"""Of the first node, where the ranks of a process group meet: torchrun's own default."""
LIGHTHOUSE_PORT = 29510
"""Where the replica groups of torchft meet: its lighthouse's own default."""
SOCKET_THREADS, SOCKETS = 16, 64
"""Most threads, and most sockets over all of them, that NCCL takes for one connection."""
LONGEST_NAME, LONGEST_PLACE = 40, 20
"""Characters of a job's name, and of the island's in it."""
GPU_VENDORS = ("NVIDIA", "AMD", "")
"""Whose devices PyTorch's launchers start a process for; an accelerator without a vendor is taken for one of these."""


@record
class Job:
    """What one island starts: a process group, or its part of one."""

    island: Island
    nodes: int
    gpus: int
    """Of a node."""
    first: int
    """Rank of its first node in the process group."""
    of: int
    """Nodes of the process group."""
    processes: int
    """Of the process group: one a GPU."""
    number: int
    """Of the island: 0, 1, …"""
    head: str
    """The island whose first node is the first of the process group."""

    @property
    def alone(self) -> bool:
        """Whether the process group is one node."""
        return self.of == 1

    @property
    def joins(self) -> bool:
        """Whether the first node of its process group is on another island."""
        return self.head != self.island.name


def jobs(scenario: Scenario, trainer: Exported) -> tuple[Job, ...]:
    """One job an island, in order of their ranks. Raises Inexpressible where ranks that lie island by island are another plan."""
    islands = _in_order(scenario)
    apart = grouped_by_island(trainer)
    wrong = [*_of_nodes(islands), *([] if apart or len(islands) == 1 else _of_ranks(scenario))]
    if wrong:
        raise Inexpressible("no launcher can start this plan", wrong)
    made, first = [], 0
    for number, island in enumerate(islands):
        within = (island,) if apart else islands
        made.append(
            Job(
                island=island,
                nodes=int(island.nodes),
                gpus=int(island.gpus_per_node),
                first=0 if apart else first,
                of=int(plain_sum(one.nodes for one in within)),
                processes=int(plain_sum(one.gpus for one in within)),
                number=number,
                head=within[0].name,
            )
        )
        first += int(island.nodes)
    return tuple(made)


def grouped_by_island(trainer: Exported) -> bool:
    """Whether every island is a process group of its own, and what crosses islands goes another way: torchft."""
    return trainer.format == "torchft"


def _in_order(scenario: Scenario) -> tuple[Island, ...]:
    """The islands in the order in which the axis that crosses them does."""
    placed = [name for _, cells in scenario.plan.placement for cell in cells for name in cell]
    order = dict.fromkeys((*placed, *(island.name for island in scenario.fleet.islands)))
    named = {island.name: island for island in scenario.fleet.islands}
    return tuple(named[name] for name in order)


def _of_nodes(islands: tuple[Island, ...]) -> list[Violation]:
    """What is wrong with the nodes of each: a part of one cannot be started, nor can what is no GPU."""
    wrong = []
    for island in islands:
        field, nodes, gpus = f"fleet.islands.{island.name}", float(island.nodes), float(island.gpus_per_node)
        if nodes % 1 or gpus % 1:
            says, rule = f"{nodes:g} nodes of {gpus:g} accelerators", "processes are started on whole ones"
            wrong.append(Violation(field=field, says=says, rule=rule, way_out="give whole numbers"))
        if island.accelerator.vendor not in GPU_VENDORS:
            rule = "torchrun and accelerate start one process a GPU"
            wrong.append(
                Violation(field=f"{field}.accelerator", says=f"{island.accelerator.name} is no GPU", rule=rule)
            )
    return wrong


def _of_ranks(scenario: Scenario) -> list[Violation]:
    """What is wrong where one process group is laid over several islands: the axis that crosses them has to be the outermost."""
    crossing = [axis for axis, _ in scenario.plan.placement] or ["dp_shard", "dp_replicate"]
    outermost = [axis for axis in scenario.plan.rank_order if scenario.plan.degree(axis) > 1][-1:]
    twice = [name for _, cells in scenario.plan.placement for cell in cells for name in cell if cell.count(name) > 1]
    several = [axis for axis, cells in scenario.plan.placement if len(cells) > 1]
    wrong = []
    if outermost and outermost[0] not in crossing:
        says = f"the outermost axis is {outermost[0]}, but {' or '.join(crossing)} crosses islands"
        wrong.append(_order(scenario.plan, says, f"put {crossing[0]} last in plan.rank_order"))
    if twice or several:
        wrong.append(_order(scenario.plan, "an axis passes an island more than once", "place it over each island once"))
    return wrong


def _order(plan: Plan, says: str, way_out: str) -> Violation:
    field = "plan.placement" if plan.placement else "plan.rank_order"
    return Violation(field=field, says=says, rule="nodes get their ranks island by island", way_out=way_out)


def started(command: str, job: Job, *, rank: str, head: str) -> str:
    """The command of a trainer as one node starts it: `rank` and `head` are words of a shell, number of the node in its process
    group and host of the first. Raises Inexpressible for a command that begins with neither of STARTERS."""
    starter = next((one for one in STARTERS if command.startswith(f"{one} ")), None)
    if starter is None:
        says = f"it is started by {command.partition(' ')[0] or 'nothing'}"
        raise Inexpressible("no launcher can start this", [Violation(field="", says=says, rule=" or ".join(STARTERS))])
    options = _of_torchrun(job, rank, head) if starter == "torchrun" else _of_accelerate(job, rank, head)
    return " ".join((starter, *options, command.removeprefix(starter).lstrip()))


def _of_torchrun(job: Job, rank: str, head: str) -> tuple[str, ...]:
    """Ranks that are said and not found out: a node keeps its place in the mesh."""
    if job.alone:
        return ("--standalone", "--nnodes=1", f"--nproc-per-node={job.gpus}")
    return (
        f"--nnodes={job.of}",
        f"--nproc-per-node={job.gpus}",
        f"--node-rank={rank}",
        f"--master-addr={head}",
        f"--master-port={PORT}",
    )


def _of_accelerate(job: Job, rank: str, head: str) -> tuple[str, ...]:
    sizes = (f"--num_machines={job.of}", f"--num_processes={job.processes}")
    if job.alone:
        return sizes
    return (*sizes, f"--machine_rank={rank}", f"--main_process_ip={head}", f"--main_process_port={PORT}")


def environment(scenario: Scenario, trainer: Exported, job: Job) -> dict[str, tuple[str, str]]:
    """Variables that the processes need for this plan, each with its value and why."""
    found: dict[str, tuple[str, str]] = {}
    if trainer.format in ("torchtitan", "torchft"):
        why = "what is freed in one size is used again in another, as torchtitan's own script has it"
        found["PYTORCH_ALLOC_CONF"] = ("expandable_segments:True", why)
    if job.of > job.nodes and scenario.fleet.wan is not None:
        found |= _sockets(scenario.fleet.wan)
    if grouped_by_island(trainer):
        found["ISLAND"] = (str(job.number), "number of this replica group")
        found["ISLANDS"] = (str(len(scenario.fleet.islands)), "how many there are")
    return found


def _sockets(wan: Wan) -> dict[str, tuple[str, str]]:
    """Streams of a line between islands, as NCCL opens them over TCP."""
    if "tcp" not in wan.transport:
        return {}
    streams = min(float(np.max(np.asarray(wan.streams))), float(SOCKETS))
    threads = min(math.ceil(streams), SOCKET_THREADS)
    each = max(math.floor(streams / threads), 1)
    why = f"{threads * each} streams over the lines between islands"
    return {"NCCL_SOCKET_NTHREADS": (str(threads), why), "NCCL_NSOCKS_PERTHREAD": (str(each), why)}


def shell(scenario: Scenario, trainer: Exported, jobs_: tuple[Job, ...], job: Job, *, first: str) -> list[str]:
    """Lines of a shell that come before the command of a node: variables, and where replica groups meet. The shell knows `head`, the
    host of the island's first node; `first` is a condition that holds on that node alone, empty where the lines run nowhere else."""
    lines = [f"export {name}={value}  # {why}" for name, (value, why) in environment(scenario, trainer, job).items()]
    if not grouped_by_island(trainer):
        return lines
    if job.number:
        says = f"address of the lighthouse on the first node of {harmless(jobs_[0].island.name)}: http://HOST:{LIGHTHOUSE_PORT}"
        return [*lines, f'export TORCHFT_LIGHTHOUSE="${{LIGHTHOUSE:?{says}}}"']
    serves = f"torchft_lighthouse --min_replicas {len(jobs_)} --quorum_tick_ms 100 --join_timeout_ms 10000 &"
    stops = 'trap "kill $! 2> /dev/null || true" EXIT'
    starts = [f"if {first}; then", f"  {serves}", f"  {stops}", "fi"] if first else [serves, stops]
    return [*lines, *starts, f'export TORCHFT_LIGHTHOUSE="http://$head:{LIGHTHOUSE_PORT}"']


def head_of(job: Job, own: str) -> str:
    """A line that sets `head`, host of the first node: `own` finds it on the island itself; of another island it has to be told."""
    if not job.joins:
        return f"head={own}"
    return f"head=${{HEAD:?host of the first node of {harmless(job.head)}, as it is reached from here}}"


def rank_in(job: Job, node: str) -> str:
    """The rank of a node in its process group, as a word of a shell that has its number on the island in the variable `node`."""
    return f'"$(({job.first} + {node}))"' if job.first else f'"${node}"'


def title(scenario: Scenario, job: Job, jobs_: tuple[Job, ...]) -> str:
    """What a file starts, one line."""
    place = "" if len(jobs_) == 1 else f" on {job.island.name} ({job.number + 1} of {len(jobs_)} islands)"
    nodes = "1 node" if job.nodes == 1 else f"{job.nodes} nodes"
    return harmless(f"{scenario.name}{place}: {nodes} with {job.gpus} x {job.island.accelerator.name}")


def slug(name: str, longest: int = LONGEST_NAME) -> str:
    """A name that every scheduler takes: lower-case letters, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:longest].rstrip("-")
    return plain if re.match(r"[a-z]", plain) else f"run-{plain}".rstrip("-")[:longest]


def name_of(scenario: Scenario, job: Job, jobs_: tuple[Job, ...]) -> str:
    """The name of a job where it is listed among others."""
    if len(jobs_) == 1:
        return slug(scenario.name)
    own = _place(job, jobs_)
    whole = f"{slug(scenario.name, LONGEST_NAME - len(own) - 1)}-{own}"
    return whole if scenario.name else own


def _place(job: Job, jobs_: tuple[Job, ...]) -> str:
    """The island of a job as a part of names, with its number where those of two islands would be the same."""
    names = {slug(one.island.name, LONGEST_PLACE) for one in jobs_}
    own = slug(job.island.name, LONGEST_PLACE)
    return own if len(names) == len(jobs_) else f"{own}-{job.number + 1}"


def suffixed(stem: str, ending: str, job: Job, jobs_: tuple[Job, ...]) -> str:
    """The name of a job's file: `slurm.sh`, or `slurm-iowa.sh` where there are several islands."""
    return f"{stem}.{ending}" if len(jobs_) == 1 else f"{stem}-{_place(job, jobs_)}.{ending}"


def unsaid(scenario: Scenario) -> tuple[str, ...]:
    """What of a fleet no launcher says."""
    found = [f"fleet.islands.{one.name}.fabric: the network is what the nodes have" for one in scenario.fleet.islands]
    if scenario.fleet.wan is not None:
        found.append("fleet.wan: the lines between islands are what the sites have")
    return tuple(found)


def notes(trainer: Exported, jobs_: tuple[Job, ...]) -> tuple[str, ...]:
    """What a person has to know before starting several islands."""
    if len(jobs_) == 1:
        return ()
    if grouped_by_island(trainer):
        first = f"start {jobs_[0].island.name} first: its first node runs the lighthouse on port {LIGHTHOUSE_PORT}"
        return (f"{first}, which the others have to reach (LIGHTHOUSE is its address); it waits for all of them",)
    network = "NCCL every other node over one network (NCCL_SOCKET_IFNAME, NCCL_IB_HCA name it)"
    head = f"port {PORT} of the first node of {jobs_[0].head} (HEAD)"
    return (f"one process group over {len(jobs_)} islands: every node has to reach {head}, and {network}",)
