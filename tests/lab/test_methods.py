"""Methods of the lab, really run by processes over loopback: what is equal is equal, losses fall, bytes are the engine's, and what
happens when a worker is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from shardmeter.core.record import changed  # noqa: E402
from shardmeter.lab import methods, shapes, worker  # noqa: E402
from shardmeter.lab.log import events  # noqa: E402
from shardmeter.lab.records import Experiment, Line, Shape, Site, Task  # noqa: E402
from shardmeter.specs import Replica  # noqa: E402
from shardmeter.sync import defaults, round_of  # noqa: E402

pytestmark = pytest.mark.torch
TINY = Shape(name="tiny", layers=2, hidden=32, heads=2, seq_len=32)
SMALL = Shape(name="small", layers=4, hidden=128)
LINE = Line(bandwidth=1e9, rtt=1e-3)
SECONDS = 60.0


def tasks(folder, method, islands=2, workers=1, alone=0.0, patience=10.0, pace=None, **said):
    sites = tuple(Site(name="abcd"[at], workers=workers, pace=pace) for at in range(islands))
    settings = tuple(said.pop("settings", {}).items())
    said = {"model": TINY, "batch": 4, "rounds": 2, **said}
    experiment = Experiment(name=method, method=method, sites=sites, line=LINE, settings=settings, **said)
    world = islands * workers
    return [
        Task(
            experiment=experiment, rank=rank, world=world, island=rank // workers, folder=str(folder), interface="lo",
            address="127.0.0.1", addresses=("127.0.0.1",) * islands, alone=alone, patience=patience,
        )
        for rank in range(world)
    ]  # fmt: skip


def started(asked):
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch", "shardmeter.lab.worker", "shardmeter.lab.models"])
    processes = [server.Process(target=worker.main, args=(one,), daemon=True) for one in asked]
    for one in processes:
        one.start()
    return processes


def ended(processes, seconds=SECONDS):
    until = time.monotonic() + seconds
    for one in processes:
        one.join(max(0.0, until - time.monotonic()))
    late = [one for one in processes if one.exitcode is None]
    for one in late:
        one.kill()
        one.join()
    assert not late
    return [one.exitcode for one in processes]


def run(folder, method, **said):
    """The events of every rank."""
    asked = tasks(folder, method, **said)
    assert ended(started(asked)) == [0] * len(asked)
    return [events(folder, rank) for rank in range(len(asked))]


def of(log, event, key):
    return [line[key] for line in log if line["event"] == event]


def losses(logs):
    """Training loss of every step, the mean of all that know it."""
    known = [one for log in logs if None not in (one := of(log, "step", "loss"))]
    return [statistics.mean(step) for step in zip(*known, strict=True)]


def evaluated(logs):
    return [loss for log in logs for loss in of(log, "eval", "loss")]


# ---- what is equal ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One worker with the batch of two; of four."""
    return {
        batch: run(tmp_path_factory.mktemp("one"), "ddp", islands=1, batch=batch, settings={"steps": 10})
        for batch in (8, 16)
    }


@pytest.mark.parametrize(("method", "said"), [("ddp", {}), ("fsdp2", {}), ("hsdp", {"workers": 2})])
def test_synchronous_methods_train_as_one_worker_with_the_whole_batch(tmp_path, whole, method, said):
    logs = run(tmp_path, method, settings={"steps": 10}, **said)
    one = whole[4 * len(logs)]
    assert losses(logs) == pytest.approx(losses(one), abs=1e-4)
    assert evaluated(logs) == pytest.approx(evaluated(one), abs=1e-4)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_trains_as_one_worker_with_all_micro_batches(tmp_path, whole, schedule):
    logs = run(tmp_path, "pipeline", micro_batches=4, batch=2, settings={"steps": 10, "schedule": schedule})
    assert losses(logs) == pytest.approx(losses(whole[8]), abs=1e-4)
    assert evaluated(logs) == pytest.approx(evaluated(whole[8]), abs=1e-4)


def test_accumulated_micro_batches_are_one_batch(tmp_path, whole):
    logs = run(tmp_path, "ddp", batch=2, micro_batches=2, settings={"steps": 10})
    assert losses(logs) == pytest.approx(losses(whole[8]), abs=1e-4)


def test_diloco_with_a_plain_outer_step_is_local_sgd(tmp_path):
    plain = {"sync_every": 1, "outer_rate": 1.0, "outer_momentum": 0.0}
    one = run(tmp_path / "a", "diloco", settings=plain, rounds=12)
    other = run(tmp_path / "b", "local_sgd", settings={"sync_every": 1}, rounds=12)
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)


def test_all_of_the_largest_values_are_the_outer_gradient(tmp_path):
    outer = {"sync_every": 3, "outer_rate": 0.7, "outer_momentum": 0.9}
    one = run(tmp_path / "a", "diloco", settings=outer, rounds=4)
    other = run(tmp_path / "b", "sparse_loco", settings={**outer, "top_k": 1.0, "bits": 32}, rounds=4)
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)


def test_one_fragment_without_delay_is_diloco(tmp_path):
    said = {"sync_every": 3, "bits": 32}
    stream = {**said, "num_fragments": 1, "fragment_sync_delay": 0, "fragment_update_alpha": 0.0}
    one = run(tmp_path / "a", "diloco", settings=said, rounds=4)
    other = run(tmp_path / "b", "streaming_diloco", settings=stream, rounds=4)
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)


def test_a_pair_that_gossips_is_a_group_of_two(tmp_path):
    one = run(tmp_path / "a", "diloco", settings={"sync_every": 3}, rounds=4)
    other = run(tmp_path / "b", "noloco", settings={"sync_every": 3}, rounds=4)
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)


@pytest.mark.parametrize("method", ["diloco", "local_sgd"])
def test_an_islands_workers_share_a_replica_in_either_way(tmp_path, method):
    said = {"sync_every": 3}
    one = run(tmp_path / "a", method, workers=2, settings={**said, "inner": "ddp"}, rounds=3)
    other = run(tmp_path / "b", method, workers=2, settings={**said, "inner": "fsdp2"}, rounds=3)
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)
    assert evaluated(one) == pytest.approx(evaluated(other), abs=1e-5)
    whole = 4 * shapes.parameters(TINY)
    for logs in (one, other):  # what crosses the border of an island is one replica, whoever holds it
        assert of(logs[0], "sync", "bytes")[0] + of(logs[1], "sync", "bytes")[0] == whole


def test_few_bits_train_nearly_alike(tmp_path):
    one = run(tmp_path / "a", "diloco", settings={"sync_every": 4}, rounds=4)
    for bits, far in ((16, 1e-3), (8, 5e-3), (4, 5e-2)):
        other = run(tmp_path / str(bits), "diloco", settings={"sync_every": 4, "bits": bits}, rounds=4)
        assert losses(one) == pytest.approx(losses(other), abs=far)


# ---- every method ----------------------------------------------------------------------------------------------------------------

EVERY: dict[str, dict[str, Any]] = {
    "ddp": {"settings": {"steps": 30}, "rounds": 2},
    "fsdp2": {"settings": {"steps": 30}, "rounds": 2},
    "hsdp": {"settings": {"steps": 30}, "rounds": 2},
    "pipeline": {"settings": {"steps": 30}, "rounds": 2, "micro_batches": 2, "batch": 4},
    "local_sgd": {"settings": {"sync_every": 10}, "rounds": 5},
    "diloco": {"settings": {"sync_every": 10}, "rounds": 5},
    "streaming_diloco": {"settings": {"sync_every": 10, "num_fragments": 2}, "rounds": 5},
    "sparse_loco": {"settings": {"sync_every": 10}, "rounds": 5},
    "noloco": {"settings": {"sync_every": 10}, "rounds": 5},
}


@pytest.mark.parametrize("method", EVERY)
def test_the_loss_falls_in_sixty_steps(tmp_path, method):
    logs = run(tmp_path, method, **{"model": SMALL, "batch": 8, **EVERY[method]})
    before, after = evaluated(logs)
    assert before == pytest.approx(5.55, abs=0.1)  # all 256 bytes alike
    assert after < before - 1.5
    for rank, log in enumerate(logs):
        assert log[0]["event"] == "ready"
        assert log[-1]["event"] == "done"
        assert log[-1]["steps"] >= 60 - 2
        assert log[-1]["peak_memory"] > 1e8
        count = int(EVERY[method]["rounds"] * EVERY[method]["settings"].get("steps", 1))
        assert of(log, "round", "round") == list(range(-1, count))
        assert [line["t"] for line in log] == sorted(line["t"] for line in log)
        assert of(log, "ready", "rank") == [rank]


@pytest.mark.parametrize("method", [name for name in EVERY if name not in ("ddp", "fsdp2", "hsdp", "pipeline")])
def test_messages_have_the_bytes_that_the_engine_counts(tmp_path, method):
    """Scales, and what fills up blocks and chunks, are beside them: a few per cent of these small messages at the fewest bits."""
    said: dict[str, Any]
    ours: dict[str, Any]
    said, ours = {"sync_every": 2.0, "bits": 32.0}, {"sync_every": 2, "bits": 32}
    if method == "streaming_diloco":
        said, ours = {**said, "bits": 4.0, "num_fragments": 2}, {**ours, "bits": 4, "num_fragments": 2}
    if method == "sparse_loco":
        said, ours = {**said, "bits": 2.0, "top_k": 0.125}, {**ours, "bits": 2, "top_k": 0.125}
    logs = run(tmp_path, method, settings=ours, rounds=3, model=SMALL, batch=1)
    replica = Replica(parameters=float(shapes.parameters(SMALL)), gradient_bytes=4.0, layers=4.0, cells=2.0)
    demanded = round_of(replica, changed(defaults(method), **said)).crossings
    for log in logs:
        held = (
            sum(line["bytes"] for line in log if line["event"] == "sync") / 4.0
        )  # rounds, the one that warms up among them
        assert held == pytest.approx(sum(one.size * one.messages for one in demanded), rel=0.02)


@pytest.mark.parametrize("method", [name for name in methods.names() if name in EVERY or name == "all_reduce"])
def test_alone_an_island_takes_steps_and_nothing_else(tmp_path, method):
    asked = [changed(one, alone=0.1) for one in tasks(tmp_path, method, settings={"sync_every": 2})][:1]
    assert ended(started(asked)) == [0]
    (log,) = [events(tmp_path, 0)]
    assert len(of(log, "step", "seconds")) >= worker.LEAST
    assert {line["event"] for line in log} == {"ready", "step", "done"}


def test_a_probe_logs_every_all_reduce(tmp_path):
    logs = run(tmp_path, "all_reduce", islands=3, rounds=2, settings={"sizes": [4096, 65536], "pause": 0.1})
    for log in logs:
        syncs = [(line["round"], line["bytes"], line.get("paused", False)) for line in log if line["event"] == "sync"]
        expected = [(-1, 4096, False), (0, 4096, False), (1, 4096, False), (2, 4096, True)]
        assert syncs == [*expected, *((at if at < 0 else at + 3, 65536, paused) for at, _, paused in expected)]
        assert max(of(log, "sync", "seconds")) < 5.0


def test_a_round_lasts_its_paced_steps_and_its_exchange(tmp_path):
    pace = 2e8
    logs = run(tmp_path, "diloco", pace=pace, settings={"sync_every": 5}, rounds=3)
    expected = 5 * 3.0 * shapes.forward_flops(TINY, 4) / pace
    for log in logs:
        for line in log:
            if line["event"] == "round" and line["round"] >= 0:
                assert expected < line["seconds"] < expected * 1.15 + 0.1


def test_a_fragment_passes_behind_the_steps_that_follow(tmp_path):
    said = {"sync_every": 4, "num_fragments": 2, "fragment_sync_delay": 1}
    logs = run(tmp_path, "streaming_diloco", pace=2e8, settings=said, rounds=3)
    for log in logs:
        syncs = [line for line in log if line["event"] == "sync"]
        assert len(syncs) == 8
        assert statistics.median(line["seconds"] for line in syncs) < statistics.median(line["took"] for line in syncs)
        order = [line["event"] for line in log if line["event"] in ("step", "sync")]
        assert order[:6] == ["step", "step", "step", "sync", "step", "step"]


def test_what_cannot_be_run_is_said_in_the_log(tmp_path):
    asked = tasks(tmp_path, "pipeline", islands=3, settings={"schedule": "gpipe"})
    assert ended(started(asked)) == [1, 1, 1]
    assert "2 layers for 3 stages" in events(tmp_path, 0)[-1]["says"]


# ---- a worker is killed ----------------------------------------------------------------------------------------------------------


def struck(folder, method, victim, after=0, **said):
    """Exit codes and logs of a run in which a rank is killed once a round is through."""
    asked = tasks(folder, method, **said)
    processes = started(asked)
    until = time.monotonic() + SECONDS
    while not any(at >= after for at in of(events(folder, victim), "round", "round")):
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(processes[victim].pid, signal.SIGKILL)
    codes = ended(processes)
    return codes, [events(folder, rank) for rank in range(len(asked))]


@pytest.mark.parametrize("method", ["ddp", "fsdp2", "pipeline"])
def test_synchronous_methods_stop_cleanly_when_a_worker_is_killed(tmp_path, method):
    said = {"settings": {"steps": 1000}, "pace": 2e8, "rounds": 5, "micro_batches": 2}
    start = time.monotonic()
    codes, logs = struck(tmp_path, method, 1, **said)
    assert codes == [worker.STOPPED, -signal.SIGKILL]
    assert time.monotonic() - start < 20.0
    assert logs[0][-1]["event"] == "stopped"
    assert "onnection" in logs[0][-1]["says"]


@pytest.mark.parametrize("method", ["local_sgd", "diloco", "streaming_diloco", "sparse_loco", "noloco"])
def test_the_others_go_on_when_a_worker_is_killed(tmp_path, method):
    said = {"settings": {"sync_every": 4, "num_fragments": 2}, "pace": 2e8, "rounds": 5}
    codes, logs = struck(tmp_path, method, 1, islands=3, after=1, **said)
    assert codes == [0, -signal.SIGKILL, 0]
    for log in (logs[0], logs[2]):
        assert of(log, "lost", "members") == [[0, 2]]
        assert max(of(log, "round", "round")) == 4
        assert log[-1]["event"] == "done"


def test_of_two_the_other_goes_on_alone(tmp_path):
    codes, logs = struck(tmp_path, "diloco", 0, settings={"sync_every": 4}, pace=2e8, rounds=4)
    assert codes == [-signal.SIGKILL, 0]
    assert of(logs[1], "lost", "members") == [[1]]
    assert evaluated(logs[1:])
