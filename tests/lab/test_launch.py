"""Workers: started where they belong, watched, ended; none left, however a run ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from lab_islands import experiment, tasks

from shardmeter.core.errors import BadData, BadScenario, UnknownName
from shardmeter.core.record import changed
from shardmeter.lab import launch, network
from shardmeter.lab.records import Fault, Site

OWN = Path("/proc/self/ns/net").stat().st_ino
"""The namespace that this process is in."""


def events(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]


def run(folder: Path, do: str, *, islands: int = 2, deadline: float = 20.0, kind: str = "loopback", **more: Any) -> Any:
    """How they ended, and what they all logged."""
    asked = experiment(islands)
    with network.open_network(asked, kind=kind) as net:
        ended = launch.run(tasks(asked, net, folder), net, deadline_s=deadline, call=f"lab_hands:{do}", **more)
    logged = [
        event for one in ended if (folder / f"rank-{one.rank}.jsonl").exists() for event in events(folder, one.rank)
    ]
    assert not [event["pid"] for event in logged if "pid" in event and Path(f"/proc/{event['pid']}").exists()]
    return ended, logged


def test_workers_do_their_task_and_are_gone(tmp_path: Path) -> None:
    ended, logged = run(tmp_path, "at_once", islands=3)
    assert [(one.rank, one.exit_code, one.how, one.says) for one in ended] == [(k, 0, "done", "") for k in range(3)]
    assert len({event["pid"] for event in logged}) == 3
    assert {event["threads"] for event in logged} == {"1"}
    assert {event["namespace"] for event in logged} == {OWN}
    assert not list(tmp_path.glob("*.err")), "nothing was written there"


def test_what_was_logged_before_in_a_folder_is_not_taken_for_new(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text('{"event":"round","round":7}\n')
    seen: list[tuple[int, Any]] = []
    run(tmp_path, "at_once", watch=lambda rank, event: seen.append((rank, event["event"])))
    assert sorted(seen) == [(0, "ready"), (1, "ready")]


def test_a_worker_that_stops_cleanly_has_not_failed(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "stops")
    assert [(one.exit_code, one.how) for one in ended] == [(3, "stopped")] * 2


def test_when_one_fails_the_others_may_stop_by_themselves(tmp_path: Path) -> None:
    ended, _ = run(tmp_path, "one_fails_others_stop", islands=3)
    assert [(one.exit_code, one.how) for one in ended] == [(3, "stopped"), (1, "failed"), (3, "stopped")]
    assert ended[1].says == "lost the thread"


def test_when_one_fails_the_others_are_ended_after_a_grace(tmp_path: Path) -> None:
    began = time.monotonic()
    ended, _ = run(tmp_path, "one_fails", grace_s=0.3)
    assert time.monotonic() - began < 10.0
    assert [(one.exit_code, one.how) for one in ended] == [(-signal.SIGTERM, "ended"), (1, "failed")]
    assert ended[0].says == "rank 1 has failed, and 0.3 s are over"
    assert ended[1].says.endswith("ValueError: the sum is odd")


def test_the_deadline_ends_all(tmp_path: Path) -> None:
    ended, logged = run(tmp_path, "sleeps", deadline=1.0)
    assert [(one.how, one.says) for one in ended] == [("ended", "the deadline of 1 s")] * 2
    assert len(logged) == 2


def test_a_worker_that_will_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ASKED", 0.2)
    ended, _ = run(tmp_path, "stubborn", deadline=1.0)
    assert [(one.exit_code, one.how) for one in ended] == [(-signal.SIGKILL, "ended")] * 2


def test_the_worker_that_a_fault_names_is_killed_after_its_round_and_the_rest_goes_on(tmp_path: Path) -> None:
    fault, seen = Fault(kind="worker", between=("b",), after_round=2), []
    ended, _ = run(tmp_path, "rounds", fault=fault, watch=lambda rank, event: seen.append(event))
    assert [one["says"] for one in seen if one["event"] == "fault"] == [
        "rank 1, of island b: killed on purpose, after round 2"
    ]
    assert [(one.exit_code, one.how) for one in ended] == [(0, "done"), (-signal.SIGKILL, "killed")]
    assert ended[1].says == "killed on purpose, after round 2"
    through = [event["round"] for event in events(tmp_path, 1)]
    assert through in ([-1, 0, 1], [-1, 0, 1, 2], [-1, 0, 1, 2, 3]), "the other may have shown it first"
    assert len(events(tmp_path, 0)) == 11


def test_a_fault_of_an_island_of_several_takes_its_first_worker(tmp_path: Path) -> None:
    asked = changed(experiment(2), sites=(Site(name="a", workers=2), Site(name="b", workers=2)))
    with network.open_network(asked, kind="loopback") as net:
        one, other = tasks(asked, net, tmp_path)
        four = [changed(one, rank=0), changed(one, rank=1), changed(other, rank=2), changed(other, rank=3)]
        fault = Fault(kind="worker", between=("b",), after_round=0)
        ended = launch.run(four, net, deadline_s=20.0, fault=fault, call="lab_hands:rounds")
    assert [one.how for one in ended] == ["done", "done", "killed", "done"]


def test_faults_that_cannot_be_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="the nearest are"):
        run(tmp_path, "rounds", fault=Fault(kind="worker", between=("zz",), after_round=0))
    with pytest.raises(UnknownName, match="worker"):
        run(tmp_path, "rounds", fault=Fault(kind="wire", between=("a",), after_round=0))
    with pytest.raises(BadScenario, match="from 1 to 1 islands, not 2"):
        run(tmp_path, "rounds", fault=Fault(kind="worker", between=("a", "b"), after_round=0))
    with pytest.raises(BadScenario, match="loopback"):
        run(tmp_path, "rounds", fault=Fault(kind="line", between=("a", "b"), after_round=0))
    assert not list(tmp_path.iterdir())


def test_an_error_of_who_watches_ends_the_workers(tmp_path: Path) -> None:
    def watch(rank: int, event: Any) -> None:
        raise LookupError(event["event"])

    with pytest.raises(LookupError, match="ready"):
        run(tmp_path, "sleeps", watch=watch)
    pids = [
        event["pid"]
        for rank in (0, 1)
        if (tmp_path / f"rank-{rank}.jsonl").exists()
        for event in events(tmp_path, rank)
    ]
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_server_that_does_not_answer_is_ended_and_the_next_run_has_another(tmp_path: Path) -> None:
    from multiprocessing import forkserver

    def stop(rank: int, event: Any) -> None:
        del rank, event
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)  # type: ignore[attr-defined]

    began = time.monotonic()
    asked = experiment(2)
    with network.open_network(asked, kind="loopback") as net:
        ended = launch.run(tasks(asked, net, tmp_path), net, deadline_s=4.0, call="lab_hands:one_fails", watch=stop)
    assert time.monotonic() - began < 30.0
    assert all(one.how != "done" for one in ended)
    for event in (event for one in ended if one.rank == 0 for event in events(tmp_path, one.rank) if "pid" in event):
        status = Path(f"/proc/{event['pid']}/stat")  # whoever has to wait for it now may not have done so yet
        assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"
    assert [one.how for one in run(tmp_path, "at_once")[0]] == ["done", "done"]


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    log = launch.Log(path)
    assert list(log.news()) == []
    path.write_text('{"event":"ready"}\n{"event":"ro')
    assert list(log.news()) == [{"event": "ready"}]
    with path.open("a") as file:
        file.write('und","round":1}\n')
    assert list(log.news()) == [{"event": "round", "round": 1}]
    with path.open("a") as file:
        file.write("[1]\n")
    with pytest.raises(BadData, match="no event"):
        list(log.news())


def opened(kind: str, folder: Path) -> subprocess.Popen[str]:
    """A process of its own that runs workers which sleep, and prints what was started as they begin."""
    script = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from lab_islands import experiment, tasks
        from shardmeter.lab import launch, network
        if __name__ == "__main__":
            with network.open_network(experiment(2), kind={kind!r}) as net:
                for carrier in getattr(net, "carriers", ()):
                    print(carrier.process.pid, flush=True)
                launch.run(
                    tasks(experiment(2), net, {str(folder)!r}), net, deadline_s=60.0, call="lab_hands:sleeps",
                    watch=lambda rank, event: print(event["pid"], flush=True),
                )
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["loopback", pytest.param("tun", marks=pytest.mark.netns)])
def test_a_signal_to_the_opener_leaves_nothing(kind: str, number: signal.Signals, tmp_path: Path) -> None:
    reasons = network.missing(kind)
    if reasons:
        pytest.skip("; ".join(reasons))
    with opened(kind, tmp_path) as opener:
        assert opener.stdout is not None
        pids = [int(opener.stdout.readline()) for _ in range(2 if kind == "loopback" else 3)]
        assert all(Path(f"/proc/{pid}/comm").read_text() == f"smlab-{opener.pid}\n" for pid in pids)
        opener.send_signal(number)
        opener.wait(10.0)
    until = time.monotonic() + 5.0
    while time.monotonic() < until and (any(Path(f"/proc/{pid}").exists() for pid in pids) or left(opener.pid)):
        time.sleep(0.02)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not left(opener.pid)


def left(opener: int) -> list[str]:
    return [said for said in network.leftovers() if f"process {opener} " in said]


@pytest.mark.netns
def test_each_worker_is_in_its_island(tmp_path: Path) -> None:
    skip_without_tunnels()
    ended, logged = run(tmp_path, "at_once", kind="tun")
    assert [one.how for one in ended] == ["done", "done"]
    assert len({event["namespace"] for event in logged} | {OWN}) == 3
    assert [event["interfaces"] for event in logged] == [["lo", "wan0"]] * 2


@pytest.mark.netns
def test_a_line_is_cut_after_its_round(tmp_path: Path) -> None:
    skip_without_tunnels()
    ended, logged = run(tmp_path, "talks", kind="tun", fault=Fault(kind="line", between=("a", "b"), after_round=5))
    assert [(one.exit_code, one.how) for one in ended] == [(3, "stopped")] * 2
    through = [event["round"] for event in logged if event["event"] == "round"]
    assert 5 <= max(through) < 20


@pytest.mark.netns
def test_a_network_that_breaks_down_ends_the_run_and_says_why(tmp_path: Path) -> None:
    skip_without_tunnels()
    with network.open_network(experiment(), kind="tun") as net:
        carrier = net.carriers[0]  # type: ignore[attr-defined]
        ended = launch.run(
            tasks(experiment(), net, tmp_path), net, deadline_s=20.0, call="lab_hands:sleeps",
            watch=lambda rank, event: carrier.process.kill(),
        )  # fmt: skip
    assert {one.how for one in ended} == {"ended"}
    assert all("forwarder" in one.says for one in ended)


@pytest.mark.netns
def test_workers_inherit_torch_from_their_server(tmp_path: Path) -> None:
    skip_without_tunnels()
    pytest.importorskip("torch")
    ended, logged = run(tmp_path, "at_once", kind="tun")
    began = time.monotonic()
    ended, logged = run(tmp_path, "at_once", kind="tun", islands=4)
    assert [one.how for one in ended] == ["done"] * 4
    assert max(event["t"] for event in logged) - began < 1.5


def skip_without_tunnels() -> None:
    reasons = network.missing("tun")
    if reasons:
        pytest.skip("; ".join(reasons))
