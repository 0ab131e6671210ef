"""docs/zoo.md, figure by figure: what papers of decentralised methods print, against the demands and prices of this package.

Every test computes what its section of the page says, and finds it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmeter import sync
from shardmeter.core.record import changed
from shardmeter.engine.crossing import price
from shardmeter.engine.price import products_time
from shardmeter.families import matrices, parameters, sized
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Crossing, Replica, Round, Sync, Wan

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8").split())
GBIT = 1e9 / 8.0
CATALOG = load_catalog()


def says(*texts: str) -> None:
    """The page has every text."""
    missing = [text for text in texts if text not in PAGE]
    assert not missing, f"docs/zoo.md does not say {missing}"


def of(name: str, parameters: float, cells: float, shapes: Any = (), **fields: Any) -> Round:
    """A round of a method."""
    told = Replica(parameters=parameters, gradient_bytes=2.0, layers=24.0, cells=cells, matrices=shapes)
    return sync.round_of(told, changed(sync.defaults(name), **fields))


def homes(count: int, rtt: float, up: Any = None) -> Wan:
    """So many homes with 500 Mbit/s each way, or rates of their own, and nothing narrower between them."""
    pairs, rates = (count, count), np.full(count, 0.5 * GBIT) if up is None else up
    return Wan(
        islands=tuple(f"home-{at}" for at in range(count)), bandwidth=np.full(pairs, np.inf), rtt=np.full(pairs, rtt),
        loss=np.zeros(pairs), window=np.full(pairs, 4.0 * 2**20), streams=np.full(pairs, 8.0), lanes=np.ones(pairs),
        egress=np.zeros(pairs), up=rates, down=rates, transport=("tcp",) * count,
    )  # fmt: skip


def passed(wan: Wan, collective: str, size: float, topology: str = "auto") -> np.ndarray:
    """Seconds of a message for every home."""
    message = Crossing(label="m", collective=collective, size=size)
    cells = [(at,) for at in range(len(wan.islands))]
    return np.asarray(price(message, wan, cells, Sync(topology=topology), own=True).seconds)


# ---- DiLoCoX: 357 times the speed of all-reduce, 107B over 1 Gbit/s --------------------------------------------------------------

BILLIONS, CELLS, STEPS = 107.0, 20.0, 125.0


def shapes_107b() -> tuple[Any, ...]:
    """Matrices of Qwen 1.5 110B, fewer of each."""
    model = CATALOG.model("qwen1.5-110b")
    part = BILLIONS * 1e9 / float(parameters(model))
    return tuple((rows, columns, many * part) for rows, columns, many in matrices(sized(model, 1.0)))


def reduced(size: float) -> float:
    """Seconds of an all-reduce over 20 cells at 1 Gbit/s, bytes alone."""
    return 2.0 * (CELLS - 1.0) / CELLS * size / GBIT


def test_dilocox_357_is_all_reduce_over_an_inner_step() -> None:
    """With everything hidden the speed-up is (T + C)/T, whatever the rank."""
    whole = BILLIONS * 1e9 * 2.0
    vanilla = reduced(whole)
    step = vanilla / (357.0 - 1.0)
    says(f"{vanilla:,.0f} s", f"T = {step:.1f} s", f"{reduced(2.0 * whole) / 356.0:.1f} s")
    batch = step * 160 * 0.4 * 312e12 / (6.0 * BILLIONS * 1e9)
    says(f"{batch / 1e3:.0f},000 tokens a step")
    for rank in (0.0, 2048.0):
        asked = of("dilocox", BILLIONS * 1e9, CELLS, shapes_107b(), rank=rank)
        assert asked.crossings[0].window == STEPS
        assert reduced(float(asked.crossings[0].size)) < STEPS * step


def test_dilocox_how_much_of_it_is_bytes() -> None:
    """Without overlap: T + C over T + C/(H · less)."""
    whole = BILLIONS * 1e9 * 2.0
    vanilla = reduced(whole)
    step = vanilla / 356.0
    for bits, rank in ((16.0, 0.0), (4.0, 0.0), (4.0, 2048.0), (4.0, 512.0)):
        asked = of("dilocox", BILLIONS * 1e9, CELLS, shapes_107b(), bits=bits, rank=rank)
        size = float(asked.crossings[0].size)
        seconds = reduced(size)
        speed = (step + vanilla) / (step + seconds / STEPS)
        said = f"| {bits:g} | {rank:g} | {STEPS * whole / size:,.0f} × | {seconds:,.0f} s | {speed:.0f} × |"
        says(said.replace("| 0 |", "| whole |"))


def test_dilocox_products_are_little() -> None:
    """1.4·10¹⁵ FLOPs a round at rank 2,048, on eight A800s of a cell (the tf32 of an A100)."""
    asked = of("dilocox", BILLIONS * 1e9, CELLS, shapes_107b())
    done = float(asked.products)
    says(f"{done / 1e15:.1f}·10¹⁵ FLOPs")
    seconds = float(products_time(CATALOG.accelerator("A100-SXM4-80GB"), done / 8.0))
    says(f"{seconds:.1f} s a round")
    assert seconds < 0.01 * STEPS * 9.1


# ---- DeMo, DisTrO, Psyche -------------------------------------------------------------------------------------------------------


def test_psyche_63_mb_a_peer_and_step() -> None:
    """40B, 4 of 4,096 components, their signs, positions of 12 bits."""
    asked = of("demo", 40e9, 16.0)
    bits, size = float(asked.progress.bits), float(asked.crossings[0].size)
    assert bits == pytest.approx(4.0 * (1.0 + 12.0) / 4096.0)
    says(f"{bits:.4f} bit a parameter", f"{size / 1e6:.1f} MB", f"{15.0 * size / 1e6:.0f} MB come in")
    assert size == pytest.approx(63e6, rel=0.01)
    says(f"{size / (110e6 / 8.0):.1f} s up", f"{15.0 * size / (500e6 / 8.0):.1f} s down")


def test_demo_85_times_less_than_ddp() -> None:
    """1B with 32 of 4,096: 48 bits a component against fp32 gradients sent once."""
    for value, position, gradient, ring in (
        (32, 16, 32, 1),
        (16, 12, 16, 1),
        (32, 12, 32, 1),
        (32, 16, 16, 2),
        (12, 12, 16, 1),
    ):
        ratio = ring * gradient * 4096.0 / 32.0 / (value + position)
        says(f"| {value} + {position} | {gradient} | {ring} | {ratio:.1f} × |")
    own = of("demo", 1e9, 8.0, top_k=32.0 / 4096.0, bits=32.0)
    assert 32.0 / float(own.progress.bits) == pytest.approx(93.1, abs=0.05)


@pytest.mark.parametrize(("top_k", "bits", "extra"), [(32.0, 32.0, 0.0), (32.0, 32.0, 4.0), (4.0, 1.0, 0.0)])
def test_demo_saves_nothing_with_many_peers(top_k: float, bits: float, extra: float) -> None:
    """M − 1 messages come in where a ring brings 2·(M − 1)/M of the gradients: M · width = 2 · 16; with positions of 12 bits, or 16."""
    width = float(of("demo", 1e9, 8.0, top_k=top_k / 4096.0, bits=bits + extra).progress.bits)
    most = 2.0 * 16.0 / width
    says(f"{most:,.0f} peers")
    for peers, is_less in ((int(0.9 * most), True), (int(1.1 * most), False)):
        gathered = (peers - 1.0) * width / 8.0
        around = 2.0 * (peers - 1.0) / peers * 2.0
        assert (gathered < around) == is_less


# ---- NoLoCo: ten times faster than all-reduce -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [125e6, 6.8e9])
def test_noloco_against_all_reduce_on_equal_lines(size: float) -> None:
    """Both carry twice the model: what an exchange saves is a ring's round trips."""
    values = 2.0 * size
    rows = []
    for count in (32, 128, 256):
        for rtt in (0.025, 0.1):
            wan = homes(count, rtt)
            pair = float(np.max(passed(wan, "exchange", float(of("noloco", size, float(count)).crossings[0].size))))
            ring, tree = (float(np.max(passed(wan, "all_reduce", values, word))) for word in ("ring", "tree"))
            rows.append(ring / pair)
            name = f"{size / 1e6:g}M" if size < 1e9 else f"{size / 1e9:g}B"
            says(
                f"| {name} | {count} | {1e3 * rtt:g} ms | {ring:.1f} s | {tree:.1f} s | {pair:.1f} s | {ring / pair:.1f} × |"
            )
    assert max(rows) < 4.0


def test_noloco_against_a_tree_of_whole_messages() -> None:
    """2·log₂ M hops of the whole model one after the other, against one exchange of twice that: 8.1 at 256, 15.7 of latency alone."""
    wan = homes(256, 0.1)
    for size, said in ((2.0 * 1e9, "8.1 ×"), (1e3, "15.7 ×")):
        hop = float(np.max(passed(wan, "exchange", size)))
        pair = float(np.max(passed(wan, "exchange", 2.0 * size)))
        ratio = 2.0 * np.log2(256.0) * hop / pair
        assert f"{ratio:.1f} ×" == said
        says(said)


def test_noloco_on_unlike_lines() -> None:
    """A ring has the narrowest line; the mean exchange is shorter, the slowest is not, and the slowest sets the pace."""
    rng = np.random.default_rng(0)
    wan = homes(128, 0.025, 0.5 * GBIT * rng.lognormal(0.0, 1.0, 128))
    ring, pair = float(np.max(passed(wan, "all_reduce", 2e9))), passed(wan, "exchange", 4e9)
    says(
        f"{ring / float(np.mean(pair)):.0f} times the mean exchange",
        f"{ring / float(np.max(pair)):.2f} times the slowest",
    )


def test_noloco_partners_hold_each_other_to_the_slowest() -> None:
    """Random pairs, each pair goes on when both are done: lasting differences cost what a barrier costs, passing ones do not."""
    rng, count, rounds = np.random.default_rng(1), 64, 400
    lasting = rng.lognormal(0.0, 0.5, count)

    def pace(passing: bool) -> float:
        clock = np.zeros(count)
        for _ in range(rounds):
            took = rng.lognormal(0.0, 0.5, count) if passing else lasting
            first, second = rng.permutation(count).reshape(2, -1)
            done = np.maximum(clock[first] + took[first], clock[second] + took[second])
            clock[first], clock[second] = done, done
        return float(np.max(clock)) / rounds

    assert pace(False) == pytest.approx(float(np.max(lasting)), rel=0.02)
    barrier = float(np.mean([np.max(rng.lognormal(0.0, 0.5, count)) for _ in range(rounds)]))
    assert pace(True) < 0.75 * barrier
    says(f"{100.0 * pace(True) / barrier:.0f} %")


# ---- DiPaCo ---------------------------------------------------------------------------------------------------------------------


def test_dipaco_256_paths_of_150m() -> None:
    """Two levels of 16 modules, each of 75M and shared by 16 paths."""
    asked = of("dipaco", 150e6, 256.0)
    assert [len(one.groups) for one in asked.crossings] == [16, 16]
    assert {len(group) for one in asked.crossings for group in one.groups} == {16}
    modules = sum(len(one.groups) for one in asked.crossings) * 75e6
    sent = sum(2.0 * 15.0 / 16.0 * float(one.size) for one in asked.crossings)
    dense = 2.0 * 255.0 / 256.0 * float(of("every_step", 1e9, 256.0).crossings[0].size)
    whole = 2.0 * 255.0 / 256.0 * float(of("diloco", 150e6, 256.0).crossings[0].size)
    says(f"{modules / 1e9:.1f}B", f"{sent / 1e6:.1f} MB", f"{whole / 1e6:.1f} MB", f"{dense / 1e9:.2f} GB")
    for steps in (100.0, 500.0):
        says(
            f"| {steps:g} | {sent / steps / 1e6:.2f} MB | {8.0 * sent / steps / 1e6:.0f} Mbit/s | {dense * steps / sent:,.0f} × |"
        )
    says(f"{8.0 * dense / 1e9:.0f} Gbit/s")


def test_dipaco_levels_cover_every_cell_once() -> None:
    """Every cell is in one group of every level, and two cells share all levels only if they are one."""
    for cells, levels in ((16, 2), (27, 3), (256, 2), (16, 4)):
        groups = [one.groups for one in of("dipaco", 1e9, float(cells), levels=levels).crossings]
        assert all(sorted(at for group in level for at in group) == list(range(cells)) for level in groups)
        paths = {
            tuple(next(k for k, group in enumerate(level) if at in group) for level in groups) for at in range(cells)
        }
        assert len(paths) == cells


# ---- Branch-Train-Merge, SPES ---------------------------------------------------------------------------------------------------


def test_branch_train_merge_64_experts() -> None:
    """22.4B together, 192B tokens, 2.5 times the compute."""
    assert of("branch_train_merge", 350e6, 64.0).crossings == ()
    each = 22.4e9 / 64.0
    assert each == pytest.approx(350e6)
    spent = 6.0 * each * 192e9
    says(f"{192.0 / 64.0:g}B tokens each", f"{spent / 1e20:.1f}·10²⁰ FLOPs", f"{2.5 * each / 1e6:.0f}M")
    gradients = 2.0 * 63.0 / 64.0 * float(of("every_step", each, 64.0).crossings[0].size)
    says(f"{gradients / 1e9:.2f} GB a step")


def test_spes_35_against_55_gb() -> None:
    """Gradients and moments of experts that a node does not train: 12 bytes a parameter of those."""
    idle = 20e9 / 12.0
    assert idle < 2e9
    says(f"{idle / 1e9:.2f}B", f"{100.0 * (1.0 - idle / 2e9):.0f} %", f"{12.0 * 2e9 * 15.0 / 16.0 / 1e9:.1f} GB")


# ---- the words -----------------------------------------------------------------------------------------------------------------


def test_no_figure_is_left_without_a_verdict() -> None:
    """Every section ends with what came of it."""
    sections = PAGE.split("## What now")[0].split("## ")[1:]
    assert len(sections) >= 7
    for part in sections:
        assert any(f"**{word}" in part for word in ("Reproduced", "Contradicted", "Open")), part[:40]
