"""The closed form against the timeline where devices keep their own clocks, hold two copies of the model, or offload."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.timeline import account
from shardmeter.engine.timeline.build import Built, build, case_of
from shardmeter.engine.timeline.overlap import run
from shardmeter.engine.timeline.simulate import Timeline
from shardmeter.scenario.catalog import load_catalog
from shardmeter.schedules import traits
from shardmeter.specs import Island, Model, Plan, Run, Stack, Tier
from shardmeter.strategies import data, fsdp

CATALOG = load_catalog()
DENSE = tuple(CATALOG.model(name) for name in ("llama-3.1-8b", "gpt2-xl", "llama-3.2-1b"))
MIXTURES = tuple(model for model in map(CATALOG.model, CATALOG.names("models")) if model.experts)
DEVICES = tuple(CATALOG.accelerator(name) for name in ("H100-SXM5-80GB", "A100-SXM4-80GB", "A10G"))
STACKS = tuple(changed(CATALOG.stack(name), batch_overlap=False) for name in CATALOG.names("stacks"))
"""Merged turns are not drawn."""
FABRICS = (0.0, 50e9, 25e9, 12.5e9)
SCHEDULES = ("zb-h1", "zb-h2", "zb-2p", "zb-v", "zb-v", "dualpipe", "dualpipe", "1f1b", "gpipe", "")
OFFLOADS = ("optimizer", "parameters", "activations")
PLANS = 150
LONG = 0.15
"""Send over the shortest forward of a chunk: above, sends queue on their wire."""
STEPS = 4
"""Steps after which devices on their own clocks are apart as far as they will be."""
BARS = {
    # class: (mean, largest) of |closed/timeline − 1|
    "zb-h1": (0.006, 0.03),
    "zb-h2": (0.006, 0.03),
    "zb-2p": (0.01, 0.03),
    "zb-v": (0.008, 0.03),
    "dualpipe": (0.01, 0.03),
    "offload": (0.005, 0.03),
    "offload, no stages": (0.008, 0.03),
    "whole": (0.005, 0.03),
    "unlike stages": (0.008, 0.06),
    "unlike stages, dualpipe": (0.02, 0.12),
    "long sends": (0.02, 0.12),
    "sums that lag": (0.015, 0.11),
    "dualpipe, experts": (0.02, 0.08),
}
"""Held by class. The last five are left out by the closed forms, whatever else a plan does: under schedules that part the
backward, stages or chunks of unlike size (an embedding or a head beside a single layer among them) and sends that queue on
their wire; sums over replicas that lag behind few layers while they slow compute down; the ends of joined turns of few layers."""
Asked = tuple[Model, Island, Plan, Run, Stack]


def draw(r: random.Random) -> Asked:
    schedule = r.choice(SCHEDULES)
    kind = traits(schedule or "1f1b")
    pp = r.choice([2, 4, 4]) if schedule else 1
    model = r.choice(MIXTURES if r.random() < 0.35 else DENSE)
    chunks = pp * kind.least_chunks
    model = changed(model, layers=chunks * r.randint(1, 3) + (r.randint(0, pp - 1) if r.random() < 0.25 else 0))
    offload = tuple(one for one in OFFLOADS if r.random() < 0.5) if not schedule or r.random() < 0.4 else ()
    sharding = r.choice(["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp", "fsdp"])
    if "parameters" in offload and sharding != "zero3":
        sharding = "fsdp"
    alone = sharding == "none"
    tp, cp = float(r.choice([1, 1, 2, 4])), 1.0 if alone else float(r.choice([1, 1, 2]))
    shards = 1.0 if alone else float(r.choice([1, 2, 4, 8]))
    ep = 1.0
    if model.experts:
        ep = r.choice([e for e in (1.0, 2.0, 4.0, 8.0) if model.experts % e == 0 == (tp * cp * shards) % e])
    passes = r.randint(2 * pp, 4 * pp) if kind.rounds and schedule else r.randint(1, 10)
    passes += passes % 2 if kind.even else 0
    plan = Plan(
        tp=tp, pp=pp, cp=cp, ep=ep, dp_shard=shards, dp_replicate=1.0 if alone else float(r.choice([1, 1, 2])),
        sharding=sharding, reshard=r.random() < 0.6, schedule=schedule or "1f1b", virtual_stages=kind.least_chunks,
        recompute=r.choice(["none", "selective", "full", "every-2"]),
        sequence_parallel=r.random() < 0.7 or tp > 1.0 < ep, reduce_dtype=r.choice(["fp32", "bf16"]), offload=offload,
    )  # fmt: skip
    asked = Run(seq_len=float(r.choice([1024, 2048, 4096])), global_batch=plan.dp * passes)
    stack = r.choice(STACKS)
    stack = changed(
        stack, contention=r.choice([0.0, stack.contention]), gradient_overlap=r.random() < 0.8, accumulate="usual",
        gather_overlap=r.random() < 0.5, expert_overlap=r.random() < 0.5,
    )  # fmt: skip
    link, memory = r.choice([25e9, 50e9, 200e9, 450e9]), r.choice([100e9, 300e9])
    device = changed(r.choice(DEVICES), host_link=link, host_memory_bandwidth=memory)
    return model, island(device, plan, r.choice(FABRICS)), plan, asked, stack


def island(device: Any, plan: Plan, fabric: float) -> Island:
    """Nodes of eight on a fabric, or one switch over all."""
    gpus = float(plan.gpus)
    up = Tier(name="node", size=8.0 if fabric else gpus, bandwidth=device.scale_up_bandwidth, share=0.8, latency=10e-6)
    out = Tier(name="fabric", size=max(gpus, 8.0), bandwidth=fabric, share=0.9, latency=20e-6, latency_base=25e-6)
    return Island(name="x", accelerator=device, nodes=gpus, gpus_per_node=1.0, tiers=(up, out) if fabric else (up,))


def own_clock(plan: Plan) -> bool:
    return plan.pp > 1 and traits(plan.schedule).own_clock


def played(asked: Asked) -> tuple[float, Built, Timeline]:
    """The timeline's step: where devices keep their own clocks, of a later one."""
    clocks = own_clock(asked[2])
    built = build(case_of(*asked), steps=STEPS if clocks else 1)
    timeline = run(built)
    return account.step_time(timeline, built.steps, own_clock=clocks), built, timeline


def error(asked: Asked) -> float:
    return float(evaluate(*asked).step_time) / played(asked)[0] - 1.0


def kind(asked: Asked) -> str:
    """The class of a plan: what the formulas say of it."""
    model, _, plan, _, stack = asked
    if plan.pp == 1:
        return "offload, no stages" if plan.offload else "whole"
    case, split = case_of(*asked), traits(plan.schedule).split
    forward = min(float(slot.forward) / plan.virtual_stages for slot in case.slots if slot.forward)
    if split and float(case.price.transfer(case.work.send).seconds) > LONG * forward:
        return "long sends"
    kinds = {stage.contents for stage in case.work.stages}
    per_chunk, left = divmod(case.work.counts[0], plan.virtual_stages)
    unlike = len(kinds) > 1 or len(next(iter(kinds))) > 1 or left or (plan.virtual_stages > 1 and per_chunk == 1)
    if split and unlike:
        return "unlike stages, dualpipe" if plan.schedule == "dualpipe" else "unlike stages"
    lag = stack.contention > 0.0 if fsdp.applies(plan) else data.reduces_each(plan, stack.accumulate)
    if split and float(plan.dp_replicate) > 1.0 and lag:
        return "sums that lag"
    if plan.schedule == "dualpipe":
        return "dualpipe, experts" if model.experts else "dualpipe"
    return plan.schedule if traits(plan.schedule).own_clock else "offload" if plan.offload else "whole"


@pytest.mark.slow
def test_the_closed_form_is_the_timeline_on_random_plans() -> None:
    r = random.Random(22)
    errors: dict[str, list[tuple[float, Asked]]] = defaultdict(list)
    for _ in range(PLANS):
        asked = draw(r)
        errors[kind(asked)].append((abs(error(asked)), asked))
    assert set(errors) == set(BARS)
    for name, found in sorted(errors.items()):
        values = sorted(value for value, _ in found)
        mean = sum(values) / len(values)
        says = f"{name}: n {len(values)}, mean {mean:.3%}, max {values[-1]:.3%}"
        assert values[-1] <= BARS[name][1], (says, max(found, key=lambda pair: pair[0]))
        assert mean <= BARS[name][0], says
    held = [
        value for name in BARS if name not in ("unlike stages, dualpipe", "long sends") for value, _ in errors[name]
    ]
    assert len(held) >= 120
    assert sum(value > 0.01 for value in held) <= 0.2 * len(held)


H100, LLAMA = changed(DEVICES[0], host_link=64e9, host_memory_bandwidth=200e9), DENSE[0]
STACK = changed(CATALOG.stack("titan-compile"), contention=0.0)


def ask(
    passes: float, fabric: float = 50e9, layers: int = 8, *, model: Model = LLAMA, stack: Stack = STACK,
    device: Any = H100, **plan: Any,
) -> Asked:  # fmt: skip
    """A question about a short model."""
    laid = Plan(**plan)
    asked = Run(seq_len=2048.0, global_batch=laid.dp * laid.micro_batch * passes)
    return changed(model, layers=layers), island(device, laid, fabric), laid, asked, stack


@pytest.mark.parametrize("seed", range(3))
def test_every_rank_accounts_for_the_whole_run(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(8):
        asked = draw(r)
        _, built, timeline = played(asked)
        for rank in range(asked[2].pp):
            terms = account.ledger(timeline, rank)
            assert sum(terms.values()) == pytest.approx(timeline.makespan, rel=1e-9)
            assert all(seconds >= 0.0 for seconds in terms.values())
            begin, end, _ = account.window(timeline, built.steps, rank, own_clock=own_clock(asked[2]))
            assert sum(account.ledger(timeline, rank, begin, end).values()) == pytest.approx(end - begin, rel=1e-9)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2", "zb-2p", "zb-v", "dualpipe"])
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("contention", [0.0, 0.55])
def test_equal_stages_are_exact(schedule: str, sharding: str, contention: float) -> None:
    """Parted backwards gather in the one turn and reduce in the other."""
    asked = ask(
        12.0, pp=4, schedule=schedule, sharding=sharding, virtual_stages=traits(schedule).least_chunks,
        dp_shard=1.0 if sharding == "none" else 4.0, stack=changed(STACK, contention=contention),
    )  # fmt: skip
    assert abs(error(asked)) <= 0.0003


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_a_device_on_its_own_clock_waits_for_no_other_at_the_end(schedule: str) -> None:
    """A step ends earlier on some devices than on others, and steps take less time than the first with its way through."""
    asked = ask(8.0, pp=4, sharding="none", schedule=schedule)
    step, built, timeline = played(asked)
    first = [timeline.end[task] for task in built.steps[0]]
    last = max(timeline.end[task] for task in built.steps[-1])
    assert max(first) > 1.01 * min(first)
    assert last < STEPS * max(first) * 0.99
    assert last == pytest.approx(max(first) + (STEPS - 1) * step, rel=1e-6)


def test_on_their_own_clocks_no_device_waits_for_a_tied_matrix() -> None:
    """The head's copy is a matrix of its own: the gradients of the two are whole a way through the pipeline apart."""
    for schedule, tasks in (("zb-h2", 0), ("1f1b", 2)):
        asked = ask(8.0, pp=4, sharding="none", schedule=schedule, model=changed(LLAMA, tied=True))
        _, built, _ = played(asked)
        assert sum(task.kind == "tied" for task in built.program.tasks) == tasks
        assert abs(error(asked)) <= 0.005


def test_two_copies_sum_their_gradients_pair_by_pair() -> None:
    asked = ask(8.0, pp=4, dp_shard=2.0, sharding="ddp", schedule="dualpipe")
    _, built, timeline = played(asked)
    sums = {built.program.streams[t.stream].rank: i for i, t in enumerate(built.program.tasks) if t.kind == "copies"}
    assert set(sums) == {0, 1, 2, 3}
    assert all(timeline.begin[sums[at]] == pytest.approx(timeline.begin[sums[3 - at]]) for at in range(4))
    layers = {t.label.split(" · ")[0] for t in built.program.tasks if t.kind == "forward"}
    assert layers == {"forward embedding", "forward head", *(f"forward layer {k}" for k in range(8))}
    for k in range(8):  # every layer is held twice, on mirrored devices
        ranks = {
            built.program.streams[t.stream].rank
            for t in built.program.tasks
            if t.label.startswith(f"forward layer {k} ")
        }
        assert len(ranks) == 2
        assert sum(ranks) == 3


@pytest.mark.parametrize("plan", [{"dp_shard": 8.0}, {"dp_shard": 8.0, "sharding": "ddp"}, {"pp": 4, "dp_shard": 4.0},
                                  {"pp": 4, "dp_shard": 4.0, "schedule": "zb-h1"}])  # fmt: skip
@pytest.mark.parametrize("link", [8e9, 32e9, 450e9])
@pytest.mark.parametrize("what", [("activations",), ("parameters",), ("optimizer",), OFFLOADS])
def test_offloads_over_slow_and_fast_links(what: tuple[str, ...], link: float, plan: Any) -> None:
    if "parameters" in what and plan.get("sharding") == "ddp":
        plan = {"dp_shard": 8.0, "sharding": "zero3"}
    device = changed(H100, host_link=link)
    assert abs(error(ask(8.0, offload=what, device=device, **plan))) <= 0.03


def test_copies_take_their_bytes_each_way() -> None:
    """Down and up again, once a micro-batch; gradients down, parameters up, once a step; the host's compute once."""
    asked = ask(4.0, offload=OFFLOADS, dp_shard=8.0)
    _, built, timeline = played(asked)
    case, worked = case_of(*asked), account.busy(timeline)
    copies = case.pieces["layer"].copies
    held = 2.0 * sum(float(block.trained) * block.block.count for block in case.work.blocks.values()) / 8.0
    once = held / (64e9 * 0.87)
    down, up = 4 * 8 * float(copies.down) + once, 4 * 8 * float(copies.up + 2 * copies.parameters) + once
    assert worked[0, "to host"] == pytest.approx(down, rel=1e-9)
    assert worked[0, "from host"] == pytest.approx(up, rel=1e-9)
    assert worked[0, "host update"] > 0.0
    assert not any(task.kind == "optimizer" for task in built.program.tasks)


def test_what_was_kept_comes_up_after_it_went_down_and_before_its_gradients() -> None:
    asked = ask(2.0, offload=("activations",), dp_shard=8.0)
    _, built, timeline = played(asked)
    at = {task.label: i for i, task in enumerate(built.program.tasks) if task.seconds}
    for layer in range(8):
        for k in range(2):
            name = f"layer {layer} · {k}"
            there, down, up, back = (
                at[label] for label in (f"forward {name}", f"{name} down", f"{name} up", f"backward {name}")
            )
            assert timeline.end[there] <= timeline.begin[down]
            assert timeline.end[down] <= timeline.begin[up] + 1e-12
            assert timeline.end[up] <= timeline.begin[back] + 1e-12
