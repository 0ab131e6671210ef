"""What a worker is made of that needs no PyTorch: counts, text, log, who goes on."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from shardmeter.core.errors import BadData, UnknownName
from shardmeter.lab import groups, log, membership, methods, shapes, text
from shardmeter.lab.records import Experiment, Line, Shape, Site, Task

SHAPE = Shape(name="small", layers=4, hidden=128)


def test_layers_are_dealt_out_in_order_and_evenly():
    assert shapes.dealt(7, 3) == (range(3), range(3, 5), range(5, 7))
    assert shapes.dealt(4, 4) == tuple(range(at, at + 1) for at in range(4))


def test_parameters_are_counted_by_block():
    assert shapes.parameters(SHAPE) == 2 * 256 * 128 + 64 * 128 + 4 * (12 * 128**2 + 4 * 128) + 2 * 128


def test_forward_flops_scale_with_the_sequences():
    assert shapes.forward_flops(SHAPE, 8) == 8 * shapes.forward_flops(SHAPE, 1)
    assert shapes.layer_flops(SHAPE, 1) > 2 * 64 * 12 * 128**2


def test_the_text_is_read_from_a_file_or_from_pythons_documentation(tmp_path):
    own = tmp_path / "text.txt"
    own.write_bytes(b"one two\n\n" * 2000)
    assert b"".join(text.documents(str(own))) == b"one two" * 2000
    assert sum(map(len, text.documents())) > 300_000


def test_a_text_that_is_none_or_too_short_is_refused(tmp_path):
    with pytest.raises(BadData, match="cannot be read"):
        text.documents(str(tmp_path / "missing"))
    short = tmp_path / "short.txt"
    short.write_bytes(b"x" * 100)
    with pytest.raises(BadData, match="100 bytes"):
        text.Text(64, 0, str(short))


def test_nobody_trains_on_what_is_held_out():
    found = text.Text(64, 0)
    assert len(found.train) == pytest.approx(0.9 * (len(found.train) + len(found.held)), abs=1)
    assert not np.shares_memory(found.train, found.held)


def test_lines_of_a_log_are_read_while_it_is_written(tmp_path):
    with log.Log(tmp_path, 3) as one:
        one.event("ready", rank=3)
        assert [line["event"] for line in log.events(tmp_path, 3)] == ["ready"]
        with (tmp_path / "rank-3.jsonl").open("a") as file:
            file.write('{"event": "st')
        assert [line["event"] for line in log.events(tmp_path, 3)] == ["ready"]
    assert log.events(tmp_path, 4) == []


def test_counters_are_of_one_interface(tmp_path):
    devices = tmp_path / "dev"
    devices.write_text(
        "Inter-|   Receive                            |  Transmit\n face |bytes packets errs\n"
        "    lo:  10 1 0 0 0 0 0 0  10 1 0 0 0 0 0 0\n  wan0: 500 5 0 0 0 0 0 0 700 7 0 0 0 0 0 0\n"
    )
    assert log.sent("wan0", devices) == 700.0
    assert log.sent("lo", devices) is None
    assert log.sent("wan1", devices) is None


def test_memory_is_counted_in_bytes():
    assert 1e6 < log.peak_memory() < 1e12


def test_methods_are_found_by_name():
    assert {"ddp", "diloco", "streaming_diloco", "pipeline"} <= set(methods.names())
    with pytest.raises(UnknownName, match="diloco"):
        methods.method("dilocoo")


def test_the_largest_set_that_reach_each_other_goes_on():
    everybody = {0: {1, 2, 3}, 1: {0, 2, 3}, 2: {0, 1, 3}, 3: {0, 1, 2}}
    assert membership.largest(everybody) == (0, 1, 2, 3)
    cut = {0: {2}, 1: {2}, 2: {0, 1}}  # the line between 0 and 1
    assert membership.largest(cut) == (0, 2)
    one_way = {0: {1, 2}, 1: {2}, 2: {1, 0}}
    assert membership.largest(one_way) == (0, 2)
    assert membership.largest({0: {1, 2}, 1: {0}, 2: {0, 3}, 3: {2}}) == (0, 1)
    assert membership.largest({2: set(), 1: set()}) == (1,)


def task(folder: Path, rank: int, world: int, patience: float = 2.0) -> Task:
    sites = tuple(Site(name="abcd"[at]) for at in range(world))
    line = Line(bandwidth=1e9, rtt=1e-3)
    return Task(
        experiment=Experiment(name="one", method="diloco", sites=sites, line=line, model=SHAPE), rank=rank, world=world, island=rank,
        folder=str(folder), interface="lo", address="127.0.0.1", addresses=("127.0.0.1",) * world, patience=patience,
    )  # fmt: skip


def test_a_worker_answers_until_it_is_gone(tmp_path):
    listener = membership.Listener(task(tmp_path, 1, 2))
    assert membership.knock(tmp_path, 1) == "there"
    assert membership.knock(tmp_path, 0) == "gone"
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections and never answers
        (tmp_path / "port-5.json").write_text(json.dumps({"address": "127.0.0.1", "port": mute.getsockname()[1]}))
        assert membership.knock(tmp_path, 5, patience=0.2) == "silent"
    listener.close()


def test_all_that_ask_get_the_same_members(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    listeners = [membership.Listener(task(tmp_path, rank, 4)) for rank in (0, 2, 3)]  # 1 is gone
    with ThreadPoolExecutor(3) as pool:
        asked = pool.map(lambda rank: membership.survivors(task(tmp_path, rank, 4), range(4), 1, 5.0), (0, 2, 3))
        assert set(asked) == {(0, 2, 3)}
    assert membership.called(task(tmp_path, 0, 4), 1)
    assert not membership.called(task(tmp_path, 0, 4), 2)
    for one in listeners:
        one.close()


def test_what_is_said_of_a_lost_peer_is_one_short_line():
    error = RuntimeError(
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4711. This is typically caused"
    )
    says = groups.told(error)
    assert says == "Connection closed by peer [10.0.0.2]:4711"
    assert groups.told(RuntimeError("ProcessGroupGloo::allgather: invalid tensor size")) == ""
    two = Task(
        experiment=task(Path("x"), 0, 2).experiment, rank=0, world=2, island=0, folder="x", interface="wan0", address="10.0.0.1",
        addresses=("10.0.0.1", "10.0.0.2"),
    )  # fmt: skip
    assert groups.named(says, two) == "Connection closed by peer island b"


def test_errors_of_other_kinds_are_not_taken_for_lost_peers():
    def wrong():
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        groups.attempt(wrong)
