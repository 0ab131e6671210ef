"""DualPipe's joined turns: the exchange of tokens with experts behind what the other micro-batch computes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shardmeter.core.record import changed
from shardmeter.engine import joined
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.timeline import account
from shardmeter.engine.timeline.build import Built, build, case_of
from shardmeter.engine.timeline.overlap import run
from shardmeter.engine.timeline.simulate import Timeline
from shardmeter.scenario.catalog import load_catalog
from shardmeter.schedules import schedule
from shardmeter.specs import Island, Model, Plan, Run, Stack, Tier

CATALOG = load_catalog()
H100, MIXTURE = CATALOG.accelerator("H100-SXM5-80GB"), changed(CATALOG.model("mixtral-8x7b"), layers=12)
STACK = changed(CATALOG.stack("mcore-2025"), contention=0.0, expert_overlap=False)
EXCHANGE = "expert all-to-all"
Asked = tuple[Model, Island, Plan, Run, Stack]
RATES = {"shorter": 100e9, "longer": 4e9}
"""Bandwidth of the fabric at which the exchange of a layer is shorter and longer than what the other micro-batch computes."""


def ask(rate: float, *, model: Model = MIXTURE, stack: Stack = STACK, passes: float = 16.0, **plan: Any) -> Asked:
    """A mixture whose experts lie across nodes of one accelerator each."""
    laid = Plan(**{"pp": 4, "dp_shard": 8.0, "ep": 8.0, "sharding": "ddp", "schedule": "dualpipe", **plan})
    up = Tier(name="node", size=1.0, bandwidth=450e9, share=0.8, latency=10e-6)
    out = Tier(name="fabric", size=laid.gpus, bandwidth=rate, share=0.9, latency=20e-6, latency_base=25e-6)
    where = Island(name="x", accelerator=H100, nodes=laid.gpus, gpus_per_node=1.0, tiers=(up, out))
    return model, where, laid, Run(seq_len=4096.0, global_batch=laid.dp * passes), stack


def played(asked: Asked) -> tuple[Built, Timeline]:
    built = build(case_of(*asked))
    return built, run(built)


def error(asked: Asked) -> float:
    return float(evaluate(*asked).step_time) / played(asked)[1].makespan - 1.0


def term(asked: Asked, label: str = EXCHANGE) -> tuple[float, float]:
    """(exposed, hidden) seconds of a term."""
    found = next(term for term in evaluate(*asked).terms if term.label == label)
    return float(found.seconds), float(found.hidden)


@pytest.mark.parametrize("which", RATES)
@pytest.mark.parametrize("contention", [0.0, 0.3])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_closed_form_is_the_timeline(which: str, contention: float, recompute: str) -> None:
    asked = ask(RATES[which], stack=changed(STACK, contention=contention), recompute=recompute)
    piece = case_of(*asked).pieces["moe layer"]
    there, back = float(piece.carried["forward"].charge.seconds), float(piece.carried["input_grad"].charge.seconds)
    compute = float(piece.forward) - there, float(piece.backward) - back
    assert (there < compute[1] and back < compute[0]) == (which == "shorter")
    assert (there > compute[1] and back > compute[0]) == (which == "longer")
    assert abs(error(asked)) <= 0.03


@pytest.mark.parametrize("sharding", ["fsdp", "zero1"])
@pytest.mark.parametrize("rate", [100e9, 50e9, 25e9])
@pytest.mark.parametrize("tp", [1.0, 2.0])
def test_with_sharded_parameters_and_cut_layers(sharding: str, rate: float, tp: float) -> None:
    for contention in (0.0, 0.55):
        asked = ask(rate, sharding=sharding, tp=tp, stack=changed(STACK, contention=contention))
        assert abs(error(asked)) <= 0.04, contention


def test_what_is_joined_hides_and_the_rest_shows() -> None:
    """An exchange that is short enough shows in the turns that are not joined, and in no other."""
    asked = ask(RATES["shorter"])
    plan, passes = asked[2], 16.0
    piece = case_of(*asked).pieces["moe layer"]
    each = float(piece.carried["forward"].charge.seconds + piece.carried["input_grad"].charge.seconds)
    shown, hidden = term(asked)
    together = [sum(schedule("dualpipe").joins(at, plan.pp, passes)) for at in range(plan.pp)]
    critical = min(range(4), key=lambda at: abs(hidden - 3.0 * each * together[at]))
    assert hidden == pytest.approx(3.0 * each * together[critical], rel=1e-9)
    assert shown + hidden == pytest.approx(3.0 * each * passes, rel=1e-9)
    alone = term(ask(RATES["shorter"], schedule="1f1b"))
    assert alone[0] == pytest.approx(3.0 * each * passes, rel=1e-9)
    assert alone[1] == 0.0


@pytest.mark.parametrize("pp", [2, 4, 6, 8, 12])
@pytest.mark.parametrize("passes", [24, 30, 48])
def test_joins_counts_what_order_has(pp: int, passes: int) -> None:
    module = schedule("dualpipe")
    for at in range(pp):
        turns = [op for op in module.order(at, pp, passes, 1) if op.joined]
        counts = tuple(float(sum(op.chunk == chunk for op in turns)) for chunk in (0, 1))
        assert counts == module.joins(at, pp, float(passes))


@pytest.mark.parametrize("which", RATES)
def test_bytes_are_conserved(which: str) -> None:
    """The fabric carries every exchange once, whether it hides or shows: as under a schedule that joins nothing."""
    busy = []
    for name in ("dualpipe", "1f1b"):
        asked = ask(RATES[which], schedule=name)
        built, _ = played(asked)
        seconds = sum((t.terms or {}).get(EXCHANGE, 0.0) for t in built.program.tasks if t.label.startswith(EXCHANGE))
        busy.append(seconds)
        assert {t.kind for t in built.program.tasks if t.label.startswith(EXCHANGE)} == (
            {"exchange", "serial"} if name == "dualpipe" else {"serial"}
        )
    assert busy[0] == pytest.approx(busy[1], rel=1e-9)


@pytest.mark.parametrize("which", RATES)
def test_an_exchange_runs_beside_the_other_micro_batch(which: str) -> None:
    """Never beside its own layer's compute, and on one wire one after the other."""
    built, timeline = played(ask(RATES[which]))
    tasks, streams = built.program.tasks, built.program.streams
    computes = [i for i, t in enumerate(tasks) if streams[t.stream].name == "compute" and t.seconds]
    for i, task in enumerate(tasks):
        if task.kind != "exchange" or streams[task.stream].rank != 1:
            continue
        own = task.label.removeprefix(f"{EXCHANGE} ")
        for k in computes:
            if streams[tasks[k].stream].rank == 1 and timeline.begin[k] < timeline.end[i] - 1e-12:
                beside = timeline.end[k] > timeline.begin[i] + 1e-12
                assert not (beside and tasks[k].label.split(" ", 1)[1] == own and tasks[k].turn == task.turn)
    wires = [i for i, s in enumerate(streams) if s.name == "fabric" and s.rank == 1]
    spans = sorted(
        (timeline.begin[i], timeline.end[i]) for i, t in enumerate(tasks) if t.stream in wires and t.kind == "exchange"
    )
    assert all(left[1] <= right[0] + 1e-12 for left, right in itertools.pairwise(spans))


def test_faster_wires_are_never_slower_and_ledgers_sum() -> None:
    before = float("inf")
    for rate in (2e9, 4e9, 8e9, 16e9, 50e9, 400e9):
        asked = ask(rate, stack=changed(STACK, contention=0.55))
        now = float(evaluate(*asked).step_time)
        assert now <= before * (1 + 1e-12)
        before = now
        _, timeline = played(asked)
        for rank in range(4):
            assert sum(account.ledger(timeline, rank).values()) == pytest.approx(timeline.makespan, rel=1e-9)


def test_layers_without_experts_have_nothing_to_hide() -> None:
    asked = ask(50e9, model=changed(CATALOG.model("llama-3.1-8b"), layers=8), ep=1.0)
    case = case_of(*asked)
    assert all(joint.saved == 0.0 for joint in joined.line(case.work, case.pieces, asked[2], asked[4]))
    assert abs(error(asked)) <= 0.01


@pytest.mark.parametrize(("pp", "name", "virtual"), [(1, "1f1b", 1), (4, "1f1b", 1), (2, "interleaved", 3)])
def test_merged_turns_hide_all_but_the_warm_up_and_hold_one_micro_batch_more(pp: int, name: str, virtual: int) -> None:
    """The last stage, which has the head and is the slowest, has one turn without a partner, and its virtual stages' round."""
    merged = changed(STACK, batch_overlap=True)
    plain = ask(RATES["shorter"], pp=pp, schedule=name, virtual_stages=virtual)
    asked = ask(RATES["shorter"], stack=merged, pp=pp, schedule=name, virtual_stages=virtual)
    shown, hidden = term(asked)
    paired = 1.0 - (1.0 + (virtual - 1.0) * pp) / (16.0 * virtual)
    assert shown + hidden == pytest.approx(term(plain)[0], rel=1e-9), "the same exchanges"
    assert hidden == pytest.approx(paired * term(plain)[0], rel=1e-6)
    assert evaluate(*asked).memory_peak > evaluate(*plain).memory_peak
    assert evaluate(*asked).step_time < evaluate(*plain).step_time


def test_a_schedule_that_cannot_merge_is_left_as_it_is() -> None:
    asked, plain = (
        ask(RATES["shorter"], schedule="gpipe", stack=changed(STACK, batch_overlap=on)) for on in (True, False)
    )
    assert evaluate(*asked).step_time == evaluate(*plain).step_time
    assert evaluate(*asked).memory_peak == evaluate(*plain).memory_peak
