"""Messages in few bits: how far numbers are from what they were, how many bytes they take, what all members end with."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from shardmeter.lab import averaging, sparse  # noqa: E402

pytestmark = pytest.mark.torch

RANK = """
import sys, torch, torch.distributed as dist
from shardmeter.lab import averaging
folder, rank, world, count = sys.argv[1], *map(int, sys.argv[2:5])
dist.init_process_group("gloo", store=dist.FileStore(folder + "/store", world), rank=rank, world_size=world)
values = torch.randn(count, generator=torch.Generator().manual_seed(rank))
found = {bits: averaging.mean(values, bits, world) for bits in (32, 16, 8, 4)}
torch.save(found, f"{folder}/{rank}.pt")
"""


def drawn(count, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantised_number_is_within_half_a_scale(bits):
    rows = drawn(3 * 4 * averaging.BLOCK).view(3, -1)
    packed = averaging.quantised(rows, bits)
    blocks = rows.view(3, 4, averaging.BLOCK)
    scales = blocks.abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
    error = (averaging.restored(packed, bits).view_as(blocks) - blocks).abs()
    assert bool((error <= 0.5001 * scales).all())
    assert packed.shape == (3, 4 * (averaging.BLOCK * bits // 8 + averaging.SCALE))


@pytest.mark.parametrize("bits", [8, 4])
def test_nothing_stays_nothing_and_whole_numbers_stay_whole(bits):
    most = 2 ** (bits - 1) - 1
    whole = torch.randint(-most, most + 1, (1, averaging.BLOCK)).float()
    whole[0, 0] = most
    assert torch.equal(averaging.restored(averaging.quantised(whole, bits), bits), whole)
    nothing = torch.zeros(2, averaging.BLOCK)
    assert torch.equal(averaging.restored(averaging.quantised(nothing, bits), bits), nothing)


def test_bytes_are_the_bits_and_little_more():
    count = 862_464
    assert averaging.size(count, 32, 3) == 4 * count
    assert averaging.size(count, 16, 3) == 2 * count
    assert 1.0 <= averaging.size(count, 8, 4) / count < 1.01
    assert 1.0 <= averaging.size(count, 4, 4) / (count / 2) < 1.015


@pytest.mark.parametrize("world", [2, 3])
def test_all_members_end_with_the_same_mean_near_the_true_one(tmp_path, world):
    count = 5000
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank), str(world), str(count)], env=None)
        for rank in range(world)
    ]
    assert [one.wait(60) for one in ranks] == [0] * world
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world)]
    given = torch.stack([drawn(count, rank) for rank in range(world)])
    exact, most = given.mean(dim=0), given.abs().max()
    for bits, bound in ((32, 1e-6), (16, 2e-3), (8, most / 127), (4, most / 7)):
        assert all(torch.equal(found[0][bits], one[bits]) for one in found[1:])
        assert float((found[0][bits] - exact).abs().max()) <= float(bound)


@pytest.mark.parametrize(
    ("share", "bits"), [(64 / 4096, 2), (0.1, 4), (0.05, 8), (0.02, 16), (0.02, 32), (1.0, 32), (1.0, 2)]
)
def test_the_largest_of_every_chunk_cross(share, bits):
    values, keep = drawn(10_000), sparse.kept(share)
    rows = sparse.message(values, keep, bits)
    assert rows.numel() == sparse.size(10_000, keep, bits)
    assert rows.dtype == torch.uint8
    found = sparse.dense(rows, 10_000, keep, bits)
    for start in range(0, 10_000, sparse.CHUNK):
        chunk, back = values[start : start + sparse.CHUNK], found[start : start + sparse.CHUNK]
        sent = back != 0.0
        assert int(sent.sum()) == min(keep, len(chunk))
        least = chunk.abs().sort(descending=True).values[min(keep, len(chunk)) - 1]
        assert bool((chunk[sent].abs() >= least).all())
        width = chunk.abs().max() * 2.0**-bits * 1.02 if bits <= 8 else 1e-3 * chunk.abs().max()
        assert float((back[sent] - chunk[sent]).abs().max()) <= float(width)


def test_all_values_whole_are_the_vector_itself():
    values = drawn(9000)
    assert torch.equal(sparse.dense(sparse.message(values, 4096, 32), 9000, 4096, 32), values)


def test_a_sparse_message_takes_the_bits_that_the_engine_counts_and_a_scale():
    count = 100 * sparse.CHUNK
    keep = sparse.kept(64 / 4096)
    assert keep == 64
    assert sparse.size(count, keep, 2) == count * 0.21875 / 8 + 100 * sparse.SCALE
