"""BlockTrain: bands of noise, means over HTTP that nobody waits for, blocks that learn alone and answer together."""

from __future__ import annotations

import http.client
import itertools
import math
import socket
import statistics
import threading
import time
from typing import Any

import numpy as np
import pytest

from shardmeter.core.record import changed
from shardmeter.lab.bands import LEAST, LEVELS, MOST, bands
from shardmeter.lab.courier import Courier, Peer, fetched, found, met, told
from shardmeter.lab.parameter_server import Server
from shardmeter.specs import Replica
from shardmeter.sync import defaults, round_of

LOCAL = "127.0.0.1"
NUMBERS = 10_000


# ---- bands ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2, 4, 7])
def test_bands_meet_and_have_equal_shares(blocks: Any) -> None:
    found = bands(blocks)
    assert (found[0].loudest, found[-1].softest) == (MOST, LEAST)
    assert all(one.softest == other.loudest for one, other in itertools.pairwise(found))
    shares = [LEVELS.cdf(math.log(one.loudest)) - LEVELS.cdf(math.log(one.softest)) for one in found]
    assert shares == pytest.approx([sum(shares) / blocks] * blocks)


def test_levels_of_a_band_lie_in_it_as_they_are_drawn() -> None:
    band = bands(4)[1]
    levels = [band.level(share) for share in np.linspace(0.0, 1.0, 1001)]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == pytest.approx((band.softest, band.loudest))
    middle = (LEVELS.cdf(math.log(band.softest)) + LEVELS.cdf(math.log(band.loudest))) / 2.0
    assert levels[500] == pytest.approx(np.exp(LEVELS.inv_cdf(middle)))


# ---- means over HTTP ------------------------------------------------------------------------------------------------------------


class Copies:
    """So many workers of one block, all in this process."""

    def __init__(self, count: Any, bits: Any = 32, patience: Any = 5.0) -> None:
        self.servers = [Server(LOCAL, range(count), bits) for _ in range(count)]
        self.peers = [Peer(rank=rank, address=LOCAL, port=one.port) for rank, one in enumerate(self.servers)]
        self.couriers = [Courier(rank, self.peers, self.servers[rank], patience) for rank in range(count)]

    def send(self, at: Any, window: Any = 5.0, ranks: Any = None) -> None:
        ranks = range(len(self.couriers)) if ranks is None else ranks
        for rank in ranks:
            self.couriers[rank].begin(at, values(rank, at), window)

    def taken(self, ranks: Any = None, wait: Any = 5.0) -> Any:
        ranks = range(len(self.couriers)) if ranks is None else ranks
        return [self.couriers[rank].taken(wait) for rank in ranks]

    def close(self) -> None:
        for courier in self.couriers:
            courier.close()
        for server in self.servers:
            server.close()


@pytest.fixture
def three() -> Any:
    copies = Copies(3)
    yield copies
    copies.close()


def values(rank: Any, at: Any) -> Any:
    return np.random.default_rng((rank, at + 1)).normal(size=NUMBERS).astype(np.float32)


def mean(ranks: Any, at: Any) -> Any:
    return np.mean([values(rank, at) for rank in ranks], axis=0)


def test_all_copies_get_their_mean_and_each_but_the_server_sends_one(three: Any) -> None:
    for at in range(-1, 3):
        three.send(at)
        for rank, one in enumerate(three.taken()):
            assert np.allclose(one.mean, mean(range(3), at), atol=1e-6)
            assert (one.round, one.copies, one.server) == (at, 3.0, 0)
            crossed = 0.0 if rank == 0 else 4.0 * NUMBERS
            assert (one.sent, one.received) == (crossed, crossed)


def test_bytes_are_those_that_the_engine_counts(three: Any) -> None:
    three.send(0)
    crossed = sum(one.sent + one.received for one in three.taken())
    sync = changed(defaults("block_train"), blocks=1, bits=32.0)
    asked = round_of(Replica(cells=3.0, parameters=float(NUMBERS), gradient_bytes=4.0 * NUMBERS, layers=1), sync)
    (message,) = asked.crossings
    assert message.collective == "star"
    assert crossed == 2.0 * (3 - 1) * message.size


def test_sixteen_bits_are_half_the_bytes() -> None:
    copies = Copies(2, bits=16)
    copies.send(0)
    first, second = copies.taken()
    copies.close()
    assert second.sent == second.received == 2.0 * NUMBERS
    for one in (first, second):
        assert np.allclose(one.mean, mean(range(2), 0), atol=5e-3)


def test_one_connection_carries_all_rounds(three: Any, monkeypatch: Any) -> None:
    begun, connect = [], http.client.HTTPConnection.connect

    def counted(line: Any) -> None:
        begun.append(line.port)
        connect(line)

    monkeypatch.setattr("http.client.HTTPConnection.connect", counted)
    for at in range(4):
        three.send(at)
        three.taken()
    assert begun == [three.peers[0].port] * 2, "two copies, a connection each"


def test_a_copy_that_does_not_come_is_not_waited_for(three: Any) -> None:
    begun = time.monotonic()
    three.send(0, window=0.6, ranks=(0, 1))
    one, other = three.taken((0, 1))
    assert 0.25 < time.monotonic() - begun < 0.6
    assert one.copies == other.copies == 2.0
    assert np.allclose(one.mean, mean((0, 1), 0), atol=1e-6)
    three.send(0, window=0.6, ranks=(2,))
    (late,) = three.taken((2,))
    assert late.mean is None
    assert late.gone == ()
    three.send(1)
    assert [one.copies for one in three.taken()] == [3.0] * 3, "it is there again"


def test_a_copy_on_its_way_when_the_next_is_due_is_late(three: Any) -> None:
    three.send(0, window=60.0, ranks=(1,))
    time.sleep(0.1)
    begun = time.monotonic()
    dropped = three.couriers[1].drop()
    assert time.monotonic() - begun < 0.05, "nobody waits"
    assert (dropped.mean, dropped.round, dropped.gone) == (None, 0, ())
    assert three.couriers[1].drop() is None
    three.send(1)
    assert [one.copies for one in three.taken()] == [3.0] * 3


def test_the_next_island_serves_where_the_first_is_gone(three: Any) -> None:
    three.servers[0].close()
    for at in range(2):
        three.send(at, window=2.0, ranks=(1, 2))
        for rank, one in zip((1, 2), three.taken((1, 2)), strict=True):
            assert (one.server, one.copies) == (1, 2.0)
            assert np.allclose(one.mean, mean((1, 2), at), atol=1e-6)
            assert [gone for gone, _ in one.gone] == ([0] if at == 0 else []), "it is told once"
            assert three.couriers[rank].living == (1, 2)


def test_who_alone_is_left_serves_itself() -> None:
    copies = Copies(2)
    copies.servers[0].close()
    lone = Courier(1, copies.peers, copies.servers[1], 5.0)
    for at in range(2):
        begun = time.monotonic()
        lone.begin(at, values(1, at), 10.0)
        found: Any = lone.taken(5.0)
        assert time.monotonic() - begun < 1.0, "who is gone is not waited for"
        assert (found.server, found.copies) == (1, 1.0)
        assert np.array_equal(found.mean, values(1, at))
    lone.close()
    copies.servers[1].close()


def test_a_server_that_gives_no_sign_is_gone_after_patience() -> None:
    mute = socket.create_server((LOCAL, 0), backlog=1)
    full = [socket.create_connection(mute.getsockname()) for _ in range(2)]
    server = Server(LOCAL, (0, 1))
    peers = [Peer(rank=0, address=LOCAL, port=mute.getsockname()[1]), Peer(rank=1, address=LOCAL, port=server.port)]
    courier = Courier(1, peers, server, 0.5)
    exchanges: list[Any] = []
    for at in range(12):
        courier.begin(at, values(1, at), 0.2)
        exchanges.append(courier.taken(0.3) or courier.drop())
    courier.close()
    server.close()
    for one in (*full, mute):
        one.close()
    says = [gone for one in exchanges for gone in one.gone]
    assert says == [(0, "rank 0 is gone: no sign of it for 0.5 s")]
    first = next(at for at, one in enumerate(exchanges) if one.copies == 1.0)
    assert first >= 2, "a slow one is given time"
    assert all(one.copies == 1.0 for one in exchanges[first:])


def test_a_trained_block_is_fetched_when_it_is_done(three: Any) -> None:
    block = values(7, 0)
    threading.Timer(0.2, lambda: three.servers[1].publish(block)).start()
    begun = time.monotonic()
    got: Any = fetched(three.peers[1], 5.0)
    assert np.array_equal(got, block)
    assert time.monotonic() - begun > 0.15
    three.servers[2].close()
    assert fetched(three.peers[2], 1.0) is None


def test_workers_find_and_await_each_other(tmp_path: Any) -> None:
    peers = [Peer(rank=rank, address=LOCAL, port=1000 + rank) for rank in range(2)]
    told(str(tmp_path), peers[0])
    with pytest.raises(Exception, match=r"no sign of rank 1 after 0\.1 s"):
        found(str(tmp_path), (0, 1), 0.1)
    told(str(tmp_path), peers[1])
    assert found(str(tmp_path), (0, 1), 0.1) == dict(enumerate(peers))
    with pytest.raises(Exception, match=r"no sign of rank 1 after 0\.1 s"):
        met(str(tmp_path), 0, (0, 1), 0.1)
    met(str(tmp_path), 1, (0, 1), 0.1)


# ---- in PyTorch -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def block() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import decoder

    from shardmeter.lab.denoiser import Denoiser, codes
    from shardmeter.lab.models import build
    from shardmeter.lab.text import Text

    def made(at: Any, blocks: Any = 2) -> Any:
        return Denoiser(build(decoder(), 0, layers=range(at, at + 1)), bands(blocks)[at], codes(decoder(), 0))

    return made, Text(32, 0).windows(0, 0, 4)


@pytest.mark.torch
def test_a_block_sees_no_byte_that_is_to_come(block: Any) -> None:
    import torch

    made, (tokens, _) = block
    one = made(0)
    torch.nn.init.normal_(one.gain)
    draw = torch.Generator().manual_seed(0)
    noisy, level = torch.randn((*tokens.shape, 32), generator=draw), torch.full((4, 1, 1), 3.0)
    before = one(tokens, noisy, level)
    later = tokens.clone()
    later[:, 20:] = 7
    louder = noisy.clone()
    louder[:, 20:] += 5.0
    after = one(later, louder, level)
    assert torch.allclose(before[:, :20], after[:, :20], atol=1e-5)
    assert not torch.allclose(before[:, 20:], after[:, 20:], atol=1e-2)


@pytest.mark.torch
def test_what_is_assembled_knows_nothing_of_its_targets(block: Any) -> None:
    """The losses are those of scores that targets have no part in: other targets, other losses, by exactly those scores."""
    import torch

    from shardmeter.lab.denoiser import assembled_loss

    made, (tokens, _) = block
    blocks = [made(0), made(1)]
    for one in blocks:
        torch.nn.init.normal_(one.gain)
    every: list[Any] = [
        assembled_loss(blocks, tokens, torch.full_like(tokens, byte), torch.Generator().manual_seed(1))[-1]
        for byte in range(256)
    ]
    assert len(set(every)) > 200
    assert statistics.mean(every) > np.log(256.0) - 1e-3, (
        "probabilities of all bytes sum to 1: the mean loss is the least if uniform"
    )


@pytest.mark.torch
def test_parameters_go_through_a_vector_and_back(block: Any) -> None:
    from shardmeter.lab.denoiser import flat, moved, put

    made, _ = block
    one, other = made(0), made(1)
    vector = flat(one)
    put(other, vector)
    assert np.array_equal(flat(other), vector)
    moved(other, np.ones_like(vector))
    assert np.allclose(flat(other), vector + 1.0)
    with pytest.raises(ValueError, match="3 numbers"):
        put(other, vector[:3])


@pytest.mark.torch
def test_a_block_is_as_large_as_the_engine_counts_it(block: Any) -> None:
    from lab_runs import decoder

    import shardmeter
    from shardmeter.lab.denoiser import flat

    made, _ = block
    shape = decoder()
    model = {
        "family": "decoder", "name": "tiny", "layers": shape.layers, "hidden": shape.hidden, "ffn": 4 * shape.hidden, "heads": 2,
        "kv_heads": 2, "head_dim": 16, "vocab": 256, "context": shape.seq_len, "mlp": "plain", "norm": "layer", "positions": "learned",
    }  # fmt: skip
    said = shardmeter.predict({
        "model": model, "stack": "titan-eager",
        "fleet": {"islands": [{"name": "a", "gpus": "1xRTX 4090", "count": 4}], "wan": {"default": {"bandwidth": "1 Gbps", "rtt": "1 ms"}}},
        "plan": {"sharding": "none", "precision": "fp32", "sync": {"method": "block_train", "blocks": 2, "sync_every": 10, "bits": 32}},
        "run": {"seq_len": 32, "global_batch": 16},
    }).to_dict()  # fmt: skip
    counted = said["sync"]["crossings"][0]["bytes"] / 4.0
    assert len(flat(made(0))) - 2 * shape.hidden == counted


SETTINGS = {"sync_every": 12, "blocks": 2}


def evaluated(log: Any, what: Any) -> Any:
    return [line["loss"] for line in log if line["event"] == "eval" and line["what"] == what]


@pytest.mark.torch
def test_four_islands_train_two_blocks_and_assemble_them(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import run

    logs = run(tmp_path, "block_train", islands=4, rounds=3, learning_rate=1e-2, settings=SETTINGS, paces=(2e8,) * 4)
    before, after = evaluated(logs[0], "held-out")
    assert before == pytest.approx(np.log(256.0), abs=0.1)
    assert after < before - 1.0
    assert evaluated(logs[0], "assembled") == [after]
    (reference,) = evaluated(logs[0], "reference")
    assert reference < before - 1.0
    for rank, log in enumerate(logs):
        own = evaluated(log, f"block {rank % 2}")
        assert own[1] < own[0] - 1.0
        assert [line["round"] for line in log if line["event"] == "round"] == [-1, 0, 1, 2]
        assert len([line for line in log if line["event"] == "step"]) == 4 * 12
        syncs = [line for line in log if line["event"] == "sync"]
        assert [line["round"] for line in syncs] == [-1, 0, 1, 2]
        assert {line["waited"] for line in syncs} == {0.0}
        assert any(line["copies"] == 2.0 for line in syncs), "copies met"
    ends = [evaluated(log, f"block {rank % 2}")[1] for rank, log in enumerate(logs)]
    assert abs(ends[0] - ends[2]) < 0.2, "copies of a block end close to each other"


@pytest.mark.torch
def test_a_slower_island_takes_fewer_steps_in_rounds_as_long(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import run

    settings = {"sync_every": 8, "blocks": 1, "reference": False}
    logs = run(tmp_path, "block_train", islands=2, rounds=3, settings=settings, paces=(4e8, 2e8))
    steps = [len([line for line in log if line["event"] == "step"]) for log in logs]
    assert steps == [32, 16]
    lasted = [statistics.median(line["seconds"] for line in log if line["event"] == "round") for log in logs]
    assert lasted[1] == pytest.approx(lasted[0], rel=0.25)


@pytest.mark.torch
def test_the_copies_go_on_where_their_server_dies(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import killed

    settings = SETTINGS | {"reference": False, "blocks": 1}
    codes, logs = killed(tmp_path, "block_train", 0, 0, islands=3, rounds=4, settings=settings, paces=(2e8,) * 3)
    assert codes == [-9, 0, 0]
    lost = [line for line in logs[2] if line["event"] == "lost"]
    assert "rank 0 is gone" in lost[0]["says"]
    served = [line["server"] for line in logs[2] if line["event"] == "sync"]
    assert (served[0], served[-1]) == (0, 1)
    assert [line["round"] for line in logs[2] if line["event"] == "round"] == [-1, 0, 1, 2, 3]
    assert evaluated(logs[1], "assembled")


@pytest.mark.torch
def test_a_block_without_a_copy_is_named_and_the_others_are_assembled(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import killed

    settings = SETTINGS | {"reference": False}
    codes, logs = killed(tmp_path, "block_train", 1, 0, islands=2, rounds=3, settings=settings, paces=(2e8,) * 2)
    assert codes == [0, -9]
    says = [line["says"] for line in logs[0] if line["event"] == "lost"]
    assert "block 1 has no living copy (b): the others are assembled without it" in says
    (line,) = [one for one in logs[0] if one["event"] == "eval" and one["what"] == "assembled"]
    assert line["missing"] == [1]
    assert line["loss"] < evaluated(logs[0], "held-out")[0] - 0.5


@pytest.mark.torch
def test_alone_nothing_is_sent(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import ended, started, tasks

    from shardmeter.lab.log import events

    (task, *_) = tasks(tmp_path, "block_train", islands=2, settings=SETTINGS, alone=0.5)
    assert ended(started([task])) == [0]
    kinds = {line["event"] for line in events(tmp_path, 0)}
    assert kinds == {"ready", "step", "done"}


@pytest.mark.torch
def test_what_blocks_cannot_be_is_said_at_once(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import refused

    says = refused(tmp_path, "block_train", islands=2, workers=2, settings={"blocks": 3, "bits": 8})
    assert "3 blocks of 2 layers on 2 islands" in says
    assert "workers: 1" in says
    assert "32 or 16 bits" in says
