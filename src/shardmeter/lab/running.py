"""A study, run: for every experiment a network is opened, its islands calibrated alone, the prediction stored, and only then it runs.

One that fails is written down with the reason, and the study goes on. Whatever ends a run, its network is closed and its processes
are ended by those who made them.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from shardmeter.core.errors import ShardMeterError, UnknownName
from shardmeter.core.quantity import show
from shardmeter.core.record import field_names, record
from shardmeter.core.units import Seconds
from shardmeter.lab import alone, folder, prediction, scenarios
from shardmeter.lab.alone import Calibrated, Step
from shardmeter.lab.machine import cores, crowded, machine
from shardmeter.lab.records import Experiment, Fault, Study, Task, Traffic

DONE, STOPPED, FAILED, RUNNING = "done", "stopped", "failed", "running"
THROUGH, GONE = 0, 3
"""Exit codes of a worker: all rounds are through; a peer is gone and it ended for that."""
LEAST_PATIENCE: Seconds = 8.0
"""Of a collective, however short its rounds are."""
MARGIN: Seconds = 120.0
"""What a run may take beyond three times its prediction: starting, evaluation, references that are trained after it."""


class Network(Protocol):
    """What a run needs of an emulated network."""

    kind: str
    interface: str
    addresses: tuple[str, ...]

    def traffic(self) -> tuple[Traffic, ...] | None:
        """Counters of every island's interface; None where nothing tells them apart."""


class Ended(Protocol):
    """How a worker ended."""

    @property
    def rank(self) -> int:
        """Over all workers."""

    @property
    def exit_code(self) -> int | None:
        """Negative: by a signal."""

    @property
    def says(self) -> str:
        """Why, where that is known."""


class Launch(Protocol):
    """Starts a process for every task and waits for all of them."""

    def __call__(
        self, tasks: Sequence[Task], network: Any, *, deadline_s: float, fault: Fault | None = None, watch: Any = None
    ) -> Sequence[Ended]:
        """How each ended."""


CONGESTION = "reno"
"""TCP's congestion control between the islands: the one that every Linux grants to a namespace, so that runs of two machines compare."""


@record
class Stage:
    """Where experiments run: what opens networks and what launches workers."""

    open_network: Callable[..., AbstractContextManager[Any]]
    launch: Launch


@record
class Ran:
    """What came of a study."""

    folder: Path
    emulation: str
    failed: tuple[str, ...]
    """Experiments that did not do what was asked of them."""
    seconds: Seconds


def real() -> Stage:
    """Namespaces and processes of this machine."""
    from shardmeter.lab import launch, network

    return Stage(open_network=network.open_network, launch=launch.run)


def chosen(study: Study, only: Collection[str]) -> tuple[Experiment, ...]:
    """The experiments that are asked for, in the study's order. Raises UnknownName."""
    names = [one.name for one in study.experiments]
    for name in only:
        if name not in names:
            raise UnknownName("experiment", name, names)
    return tuple(one for one in study.experiments if not only or one.name in only)


def run(
    study: Study,
    text: str,
    place: Path,
    *,
    only: Collection[str] = (),
    kind: str = "auto",
    again: bool = False,
    say: Callable[[str], None] = lambda _: None,
    stage: Stage | None = None,
) -> Ran:
    """Run the experiments of a study (or `only` these) and keep what came of them at `place`; `text` is the study as it was read.

    Raises ShardMeterError where nothing can run: the folder is not free, no network of the `kind` can be had."""
    experiments = chosen(study, only)
    folder.prepare(place, [one.name for one in experiments], again=again)
    prediction.written(place / folder.STUDY, text)
    folder.put(place / folder.MACHINE, {**machine(""), "study": study.name})
    where, start = stage or real(), time.monotonic()
    runs = _Runs(study=study, place=place, kind=kind, say=say, stage=where)
    failed = []
    for at, one in enumerate(experiments, 1):
        runs.told = f"{at}/{len(experiments)} {one.name}"
        if not runs.experiment(one):
            failed.append(one.name)
    return Ran(folder=place, emulation=runs.emulation, failed=tuple(failed), seconds=time.monotonic() - start)


class _Runs:
    """The runs of one study: the calibrations that experiments share, and how lines are emulated."""

    def __init__(self, *, study: Study, place: Path, kind: str, say: Callable[[str], None], stage: Stage) -> None:
        self.study, self.place, self.kind, self.say, self.stage = study, place, kind, say, stage
        self.steps: dict[Any, tuple[Step, str]] = {}
        self.emulation, self.told = "", ""

    def experiment(self, one: Experiment) -> bool:
        """Run one experiment and write down what came of it: whether it did what was asked."""
        place, began = self.place / one.name, time.monotonic()
        outcome: dict[str, Any] = {"status": RUNNING, "says": ""}
        try:
            place.mkdir(exist_ok=True)
            with self.stage.open_network(one, kind=self.kind, congestion=CONGESTION) as network:
                self._told(network)
                self._whole(one, place, network, outcome)
        except KeyboardInterrupt:
            outcome |= {"status": FAILED, "says": "interrupted"}
            folder.put(place / folder.OUTCOME, outcome)
            raise
        except (ShardMeterError, OSError, ArithmeticError, ValueError) as error:
            outcome |= {"status": FAILED, "says": _one_line(error)}
            folder.put(place / folder.OUTCOME, outcome)
            if not self.emulation:
                raise
        self.say(
            f"{self.told}: {outcome['status']} in {time.monotonic() - began:.1f} s"
            + (f": {outcome['says']}" if outcome["says"] else "")
        )
        return bool(outcome["status"] == DONE or (outcome["status"] == STOPPED and one.fault is not None))

    def _told(self, network: Network) -> None:
        if not self.emulation:
            self.emulation = network.kind
            folder.put(self.place / folder.MACHINE, {**machine(network.kind), "study": self.study.name})

    def _whole(self, one: Experiment, place: Path, network: Network, outcome: dict[str, Any]) -> None:
        """Calibrate, predict, run, in this order."""
        shaped = network.kind != scenarios.LOOPBACK
        found = self._calibrated(one, place, network) if scenarios.way(one.method).sync else ()
        question, said = prediction.made(one, found, place / folder.CATALOG, shaped=shaped)
        if question:
            prediction.written(place / folder.SCENARIO, _yaml(question))
        digest = prediction.store(said, place)
        full = crowded(said["cores_wanted"], cores())
        if full:
            self.say(f"{self.told}: {full}")
        rounds = rounds_of(one) + 1
        self.say(
            f"{self.told}: predicted {show(said['round_s'], 's')} and {show(said['wire_bytes_round'], 'B')} on the lines a round; "
            f"now {rounds:g} rounds, the first to warm up: about {show(rounds * said['round_s'], 's')}"
        )
        tasks = self.tasks(one, network, place / folder.RUN, patience=max(LEAST_PATIENCE, 3.0 * said["round_s"]))
        before = network.traffic()
        outcome |= {"started_at": time.time(), "prediction_sha256": digest, "emulation": network.kind}
        folder.put(place / folder.OUTCOME, outcome)
        ended = self.stage.launch(tasks, network, deadline_s=deadline(one, said["round_s"]), fault=one.fault)
        outcome["ended_at"] = time.time()
        outcome["traffic"] = _carried([site.name for site in one.sites], before, network.traffic())
        outcome |= ending(one, ended)
        folder.put(place / folder.OUTCOME, outcome)

    def _calibrated(self, one: Experiment, place: Path, network: Network) -> tuple[Calibrated, ...]:
        steps = []
        for places in alone.kinds(one):
            known = alone.key(one, places[0])
            if known not in self.steps:
                self.steps[known] = self._alone(one, places[0], place, network), one.name
            steps.append((places, *self.steps[known]))
        return alone.calibrated(one, steps, place / folder.CATALOG)

    def _alone(self, one: Experiment, at: int, place: Path, network: Network) -> Step:
        """Run one island by itself. Raises ShardMeterError where it does not end well."""
        seconds = self.study.alone_seconds
        where = place / folder.ALONE / one.sites[at].name
        self.say(f"{self.told}: island {one.sites[at].name} runs by itself for {show(float(seconds), 's')}")
        tasks = [task for task in self.tasks(one, network, where, alone=seconds) if task.island == at]
        ended = self.stage.launch(tasks, network, deadline_s=float(MARGIN + 10.0 * seconds))
        wrong = [
            f"worker {each.rank}: {each.says or f'exit code {each.exit_code}'}"
            for each in ended
            if each.exit_code != THROUGH
        ]
        if wrong:
            raise ShardMeterError(f"the island {one.sites[at].name} alone: {'; '.join(wrong)}")
        step = alone.timed(where)
        self.say(
            f"{self.told}: island {one.sites[at].name} by itself takes {show(float(step.seconds), 's')} a step "
            f"({show(float(step.low), 's')} to {show(float(step.high), 's')})"
        )
        return step

    def tasks(
        self, one: Experiment, network: Network, place: Path, *, alone: Seconds = 0.0, patience: Seconds = 30.0
    ) -> list[Task]:
        """What each worker of an experiment does, rank by rank."""
        place.mkdir(parents=True, exist_ok=True)
        islands = [at for at, site in enumerate(one.sites) for _ in range(site.workers)]
        return [
            Task(
                experiment=one, rank=rank, world=len(islands), island=island, folder=str(place.absolute()), interface=network.interface,
                address=network.addresses[island], addresses=network.addresses, seed=self.study.seed, text=self.study.text,
                alone=alone, patience=patience,
            )
            for rank, island in enumerate(islands)
        ]  # fmt: skip


def deadline(one: Experiment, round_s: float) -> float:
    """Seconds after which a run that has not ended is ended."""
    return float(MARGIN + 3.0 * (rounds_of(one) + 3) * round_s)


def rounds_of(one: Experiment) -> int:
    """Rounds that an experiment logs, the one that warms up apart."""
    return int(one.rounds * (one.said.get("steps", scenarios.STEPS) if scenarios.way(one.method).by_step else 1))


def ending(one: Experiment, ended: Sequence[Ended]) -> dict[str, Any]:
    """How a run ended: `status`, `says`, `survivors` (islands of which a worker went on to the end), `exit_codes`.

    Done: all workers, or after a fault those of a method that goes on. Stopped: after a fault, none went on and all that were left told
    so. Failed: anything else."""
    island = [site.name for site in one.sites for _ in range(site.workers)]
    survivors = list(dict.fromkeys(island[each.rank] for each in ended if each.exit_code == THROUGH))
    codes = [each.exit_code for each in ended]
    told = [
        f"worker {each.rank} of {island[each.rank]}: {each.says or f'exit code {each.exit_code}'}"
        for each in ended
        if each.exit_code
    ]
    said = {"survivors": survivors, "exit_codes": codes, "says": "; ".join(told)[:1000]}
    if not told:
        broke = "" if one.fault is None else "the fault did not stop any worker"
        return said | {"status": DONE, "says": broke}
    hit = set() if one.fault is None or one.fault.kind != "worker" else {_first_rank(one, one.fault.between[0])}
    left = [each for each in ended if each.rank not in hit]
    if one.fault is None or any(each.exit_code not in (THROUGH, GONE) for each in left):
        return said | {"status": FAILED}
    goes_on = not scenarios.way(one.method).stops
    if survivors:
        return said | {"status": DONE}
    return said | {"status": FAILED if goes_on else STOPPED}


def _first_rank(one: Experiment, island: str) -> int:
    at = [site.name for site in one.sites].index(island)
    return sum(site.workers for site in one.sites[:at])


def _carried(
    names: Sequence[str], before: Sequence[Traffic] | None, after: Sequence[Traffic] | None
) -> Mapping[str, Mapping[str, float]] | None:
    """What every island's interface carried in between."""
    if before is None or after is None:
        return None
    fields = field_names(Traffic)
    return {
        name: {field: getattr(last, field) - getattr(first, field) for field in fields}
        for name, first, last in zip(names, before, after, strict=True)
    }


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:1000] or type(error).__name__


def _yaml(question: Mapping[str, Any]) -> str:
    """A scenario as a file, one field a line, in the order in which it is said."""
    from ruamel.yaml import YAML

    writer, out = YAML(typ="safe"), io.StringIO()
    writer.default_flow_style, writer.sort_base_mapping_type_on_output = None, False  # type: ignore[assignment]
    writer.width = 120
    writer.dump(question, out)
    return out.getvalue()
