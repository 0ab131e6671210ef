"""Starts workers, watches what they log, and ends them: none is left, however a run ends.

Workers are forked from a server that has loaded PyTorch once. The kernel kills each worker when the process that runs them ends, and the
server ends when it has neither that process nor a worker: so not even a killed command leaves one behind.
"""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData, BadScenario, UnknownName
from shardmeter.core.interrupts import ignore_interrupts, uninterrupted
from shardmeter.core.record import record
from shardmeter.core.units import Seconds
from shardmeter.lab.network import kernel
from shardmeter.lab.network.contract import Network
from shardmeter.lab.records import Fault, Task

WORKER = "shardmeter.lab.worker:main"
DONE, FAILED, STOPPED = 0, 1, 3
"""Exit codes of a worker; a negative one is the signal that ended it."""
OWN = {DONE: "done", STOPPED: "stopped"}
"""How a worker ended by itself; any other way it failed."""
FAULTS = {"worker": 1, "line": 2}
"""What can break, and how many islands it is of at most."""
LOOK = 0.02
"""Seconds between two looks at the logs."""
ASKED = 1.0
"""Seconds that a worker that is asked to end has for it before it is killed."""
SAID = 2000
"""Characters of a worker's last words that are kept."""

Event = Mapping[str, Any]
Watch = Callable[[int, Event], None]


@record
class Ended:
    """How a worker ended."""

    rank: int
    exit_code: int
    says: str
    """Why it was ended, or the end of what it wrote (`rank-K.err` has all of it); empty for one that is done."""
    how: str
    """done; stopped (cleanly, as a peer is gone); failed (by itself); killed (on purpose: the fault that was asked for); ended (by us: the
    deadline, another's failure, a broken network)."""


class Log:
    """The log of one worker, read while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._rest = b""

    def news(self) -> Iterator[Event]:
        """Events written since the last call; a line that is not yet whole waits. Raises BadData for a line that is no event."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return
        self._read += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise BadData(f"{self.path}: a line of the log is no event: {line[:60].decode(errors='replace')!r}")
            yield event


class Crew:
    """The workers of one run."""

    def __init__(self, tasks: Sequence[Task], network: Network, call: str | Callable[[Task], int | None]) -> None:
        """Start them. What they logged before, in the same folder, is removed."""
        server = _server()
        self.tasks = {task.rank: task for task in tasks}
        self.logs = {task.rank: Log(Path(task.folder) / f"rank-{task.rank}.jsonl") for task in tasks}
        self.words = {rank: log.path.with_suffix(".err") for rank, log in self.logs.items()}
        self.processes: dict[int, Any] = {}
        self.reasons: dict[int, tuple[str, str]] = {}
        try:
            for rank, task in self.tasks.items():
                Path(task.folder).mkdir(parents=True, exist_ok=True)
                for path in (self.logs[rank].path, self.words[rank]):
                    path.unlink(missing_ok=True)
                process = server.Process(
                    target=_work, args=(task, network.entered(task.island), str(self.words[rank]), call)
                )
                process.daemon = True
                with uninterrupted():
                    process.start()
                    self.processes[rank] = process
        except BaseException:
            self.end(list(self.processes), "could not start all workers")
            raise

    @property
    def running(self) -> list[int]:
        """Ranks that have not ended."""
        return [rank for rank, process in self.processes.items() if process.exitcode is None]

    @property
    def failed(self) -> list[int]:
        """Ranks that have failed by themselves."""
        codes = {rank: process.exitcode for rank, process in self.processes.items()}
        return [rank for rank, code in codes.items() if code not in (None, DONE, STOPPED) and rank not in self.reasons]

    def news(self) -> Iterator[tuple[int, Event]]:
        """What was logged since the last call, with the rank of who did."""
        for rank, log in self.logs.items():
            for event in log.news():
                yield rank, event

    def rest(self) -> None:
        """Wait until one ends, or it is time to look again."""
        wait([self.processes[rank].sentinel for rank in self.running], LOOK)

    def kill(self, rank: int, says: str) -> None:
        """At once, on purpose; one that has ended already stays as it ended."""
        process = self.processes[rank]
        if process.exitcode is None:
            self.reasons[rank] = ("killed", says)
            process.kill()

    def end(self, ranks: Sequence[int], says: str) -> None:
        """Ask to end, then kill; returns when they are gone."""
        for rank in ranks:
            if self.processes[rank].exitcode is None:
                self.reasons.setdefault(rank, ("ended", says))
                self.processes[rank].terminate()
        until = time.monotonic() + ASKED
        for rank in ranks:
            self.processes[rank].join(max(0.0, until - time.monotonic()))
            if self.processes[rank].exitcode is None:
                self.processes[rank].kill()
                self.processes[rank].join(ASKED)
        if self.running:  # who tells that they ended is the server, and it does not
            _end_server()

    def outcome(self) -> tuple[Ended, ...]:
        """How all of them ended, by rank; all have."""
        found = []
        for rank, process in sorted(self.processes.items()):
            process.join()
            code = int(process.exitcode)
            how, says = OWN.get(code, "failed"), ""
            if code < 0 and rank in self.reasons:  # else it was faster than we
                how, says = self.reasons[rank]
            words = self._last_words(rank, code)
            found.append(Ended(rank=rank, exit_code=code, says=says or ("" if how == "done" else words), how=how))
        return tuple(found)

    def _last_words(self, rank: int, code: int) -> str:
        path = self.words[rank]
        said = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if not said:
            path.unlink(missing_ok=True)
        if code < 0:
            said = f"{said}\nended by signal {-code} ({signal.strsignal(-code)})".strip()
        return said[-SAID:]


def run(
    tasks: Sequence[Task],
    network: Network,
    *,
    deadline_s: Seconds,
    fault: Fault | None = None,
    watch: Watch | None = None,
    call: str | Callable[[Task], int | None] = WORKER,
    grace_s: Seconds = 10.0,
) -> tuple[Ended, ...]:
    """Run one process for each task, inside its island, until all have ended; how they did, by rank.

    `deadline_s`: after which those that still run are ended. `fault`: what breaks when a log shows its round through. `watch`: called with
    the rank and each event as it is logged, and with an event `fault` (`t`, `says`) when that happens. `call`: what a worker does with its
    task, `module:function` or a function of a module; an integer that it returns is the exit code. `grace_s`: what the others have to stop
    by themselves when one has failed.
    Raises UnknownName for a fault at an island that is not there, BadScenario for a line that cannot be cut, and what `watch` raises; no
    worker runs any more then, either."""
    tell = watch or (lambda rank, event: None)  # noqa: ARG005  (nobody asked)
    breaks = _fault(tasks, network, fault)
    crew = Crew(tasks, network, call)
    until, why = time.monotonic() + deadline_s, f"the deadline of {deadline_s:g} s"
    try:
        while crew.running:
            crew.rest()
            for rank, event in crew.news():
                tell(rank, event)
                if breaks is not None and fault is not None and _is_through(event, fault.after_round):
                    says = breaks(crew)
                    breaks = None
                    tell(rank, {"event": "fault", "t": time.monotonic(), "says": says})
            if crew.failed and time.monotonic() + grace_s < until:
                until, why = time.monotonic() + grace_s, f"rank {crew.failed[0]} has failed, and {grace_s:g} s are over"
                grace_s = math.inf
            if network.broken():
                until, why = 0.0, network.broken()
            if time.monotonic() >= until:
                crew.end(crew.running, why)
        for rank, event in crew.news():
            tell(rank, event)
        return crew.outcome()
    finally:
        crew.end(crew.running, "the run was given up")


def _is_through(event: Event, after_round: int) -> bool:
    return event.get("event") == "round" and int(event.get("round", -1)) >= after_round


def _fault(tasks: Sequence[Task], network: Network, fault: Fault | None) -> Callable[[Crew], str] | None:
    """What breaks, as something to call, which says what it did; None where nothing does."""
    if fault is None:
        return None
    if fault.kind not in FAULTS:
        raise UnknownName("fault", fault.kind, FAULTS)
    names = [site.name for site in tasks[0].experiment.sites]
    for name in fault.between:
        if name not in names:
            raise UnknownName("island", name, names)
    most = FAULTS[fault.kind]
    if not 1 <= len(fault.between) <= most:
        raise BadScenario(f"a fault of a {fault.kind} names from 1 to {most} islands, not {len(fault.between)}")
    places = [names.index(name) for name in fault.between]
    when = f"on purpose, after round {fault.after_round}"

    def kill(crew: Crew) -> str:
        first = min(rank for rank, task in crew.tasks.items() if task.island == places[0])
        says = f"killed {when}"
        crew.kill(first, says)
        return f"rank {first}, of island {fault.between[0]}: {says}"

    def cut(_: Crew) -> str:
        network.cut(*places)
        whose = (
            f"the line between {' and '.join(fault.between)}" if len(places) > 1 else f"all lines of {fault.between[0]}"
        )
        return f"{whose}: cut {when}"

    if fault.kind == "worker":
        return kill
    if network.kind == "loopback":
        raise BadScenario("a line cannot be cut on plain loopback, which has none")
    return cut


def _end_server() -> None:
    """Kill the server that forks workers, as one that was stopped, and wait until it is gone: the next run starts another."""
    from multiprocessing import forkserver

    known = getattr(forkserver, "_forkserver", None)
    number = getattr(known, "_forkserver_pid", None)
    if number is not None:
        os.kill(number, signal.SIGKILL)
        os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)  # whoever starts the next one looks after its remains


def _server() -> Any:
    """The server that forks workers; started, with what it loads, by the first run of this process."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["shardmeter.lab.warm"])
    from multiprocessing import forkserver

    with _where_shardmeter_is(), uninterrupted():
        forkserver.ensure_running()
    return server


@contextmanager
def _where_shardmeter_is() -> Iterator[None]:
    """Have a new Python find the packages that this one finds."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _work(task: Task, namespace: str | None, words: str, call: str | Callable[[Task], int | None]) -> None:
    """What a worker process does: nothing before it is where its island is."""
    ignore_interrupts()
    opener = multiprocessing.parent_process()
    if opener is None:
        raise RuntimeError("a worker is started by the process that watches it")
    kernel.call_process(kernel.title(opener.pid or 0))
    kernel.die_with(opener.sentinel)
    if not opener.is_alive():
        sys.exit(FAILED)  # it ended while this one began
    file = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    if namespace is not None:
        kernel.enter_network(namespace)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if isinstance(call, str):
        module, _, name = call.partition(":")
        call = getattr(importlib.import_module(module), name)
    assert callable(call)  # noqa: S101
    code = call(task)
    sys.exit(DONE if code is None else code)
