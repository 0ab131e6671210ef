"""A stage for the lab on which nothing runs: logs as workers of given speeds would write them, for tests of all that stands around runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardmeter.lab.records import Experiment, Fault, Task, Traffic
from shardmeter.lab.running import Stage
from shardmeter.lab.scenarios import way


@dataclass
class Network:
    """Counters that a simulated run moves."""

    kind: str
    islands: int
    interface: str = "wan0"
    closed: bool = False
    carried: list[float] = field(default_factory=list)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of the islands."""
        return tuple(f"10.77.0.{at + 1}" for at in range(self.islands))

    def traffic(self) -> tuple[Traffic, ...] | None:
        """What was carried so far; nothing is told apart on loopback."""
        if self.kind == "loopback":
            return None
        return tuple(
            Traffic(sent_bytes=each, sent_packets=1.0, received_bytes=each, received_packets=1.0)
            for each in self.carried
        )


@dataclass
class Clock:
    """The time that a worker has reached."""

    now: float = 100.0


@dataclass(frozen=True)
class Ended:
    """How a worker ended."""

    rank: int
    exit_code: int | None
    says: str = ""


@dataclass
class Simulated:
    """How fast workers are, and what becomes of them."""

    step: float = 0.05
    sync: float = 0.4
    sent: float = 5e6
    busy: float = 0.0
    """Share of a step alone that its worker computes."""
    drag: float = 1.0
    """How many times as long a step is in the run."""
    kind: str = "tun"
    codes: Callable[[Task, Fault | None], int] = lambda _task, _fault: 0
    raises: BaseException | None = None
    seen: list[str] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)

    def stage(self) -> Stage:
        """What a run is given."""
        return Stage(open_network=self.open_network, launch=self.launch)

    @contextmanager
    def open_network(self, experiment: Experiment, *, kind: str, congestion: str) -> Iterator[Network]:
        """A network of counters, of the stage's own kind whatever is asked for."""
        del kind, congestion
        network = Network(kind=self.kind, islands=len(experiment.sites), carried=[0.0] * len(experiment.sites))
        self.networks.append(network)
        self.seen.append(f"open {experiment.name}")
        try:
            yield network
        finally:
            network.closed = True
            self.seen.append(f"close {experiment.name}")

    def launch(
        self, tasks: Sequence[Task], network: Any, *, deadline_s: float, fault: Fault | None = None, watch: Any = None
    ) -> tuple[Ended, ...]:
        """Write the logs of all workers at once."""
        del deadline_s, watch
        one = tasks[0].experiment
        stored = (Path(tasks[0].folder).parent / "prediction.json").exists()
        self.seen.append(f"{'alone' if tasks[0].alone else 'run'} {one.name}{', predicted' if stored else ''}")
        if self.raises is not None and not tasks[0].alone:
            raise self.raises
        ended = []
        for task in tasks:
            code = 0 if task.alone else self.codes(task, fault)
            self.log(task, code)
            ended.append(Ended(task.rank, code, "" if code == 0 else f"simulated {code}"))
        if not tasks[0].alone:
            network.carried = [each + 1e7 for each in network.carried]
        return tuple(ended)

    def log(self, task: Task, code: int) -> None:
        """What one worker writes."""
        clock, lines = Clock(), list[str]()

        def event(kind: str, **fields: Any) -> None:
            lines.append(json.dumps({"event": kind, "t": clock.now, **fields}))

        event("ready", rank=task.rank, island=task.island)
        if task.alone:
            for at in range(8):
                clock.now += self.step
                event(
                    "step", step=at, seconds=self.step * (1.0 + 0.01 * (at % 3)), loss=5.0, busy=self.busy * self.step
                )
            event("done", peak_memory=1e8, loss=None, steps=8)
        else:
            event("eval", step=0, loss=5.5, what="held-out")
            self._rounds(task.experiment, clock, code, event)
            event("eval", step=99, loss=3.5, what="held-out")
            event("done", peak_memory=2e8, loss=3.5, steps=99) if code == 0 else event("stopped", says="rank 1 is gone")
        text = "\n".join(lines) + "\n"
        (Path(task.folder) / f"rank-{task.rank}.jsonl").write_text(text, encoding="utf-8")

    def _rounds(self, one: Experiment, clock: Clock, code: int, event: Callable[..., None]) -> None:
        own = way(one.method)
        steps = 1 if own.by_step else int(one.said.get("sync_every", 1))
        count = one.rounds * (int(one.said.get("steps", 10)) if own.by_step else 1)
        sizes = one.said.get("sizes", ())
        if sizes:
            count, steps = 3 * len(sizes), 0
        for at in range(-1, count if code == 0 else 2):
            began = clock.now
            for _ in range(steps):
                clock.now += self.step + (self.sync if own.by_step else 0.0)
                event("step", step=at, seconds=self.drag * self.step, loss=5.0 - 0.1 * at)
            if not own.by_step or sizes:
                clock.now += self.sync
                event(
                    "sync",
                    round=at,
                    seconds=self.sync,
                    bytes=sizes[at % len(sizes)] if sizes else 3.2e6,
                    what="outer gradient",
                )
            event(
                "round", round=at, seconds=clock.now - began, sent_bytes=None if self.kind == "loopback" else self.sent
            )
