"""Elasticities against finite differences of scenarios that are read anew, and levers against the numbers of a document."""

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine import price
from shardmeter.engine.fleet import evaluate_fleet
from shardmeter.engine.many import Case, evaluate_fleets
from shardmeter.scenario import load
from shardmeter.study.course import course
from shardmeter.study.levers import KINDS, answered, levers
from shardmeter.study.sensitivity import STEP, sensitivity
from shardmeter.study.sensitivity.answers import Answers
from shardmeter.study.sensitivity.effects import sensed
from shardmeter.study.sensitivity.what_if import moves, named, pairs_of

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = "llama-8b-64xh100 target-loss two-buildings-hsdp unreliable-diloco three-clouds-70b three-clouds-money"
ONE, LOSS, BUILDINGS, SPOT, CLOUDS, MONEY = (EXAMPLES / f"{name}.yaml" for name in NAMES.split())
TEXTS = {
    "basis", "price_basis", "pue_basis", "carbon_basis", "prices", "name", "source", "retrieved", "notes", "aliases",
}  # fmt: skip
"""Fields that say where a number is from."""
BASE = {
    "fleet.islands.0.accelerator": "H100-SXM5-80GB",
    "fleet.islands.0.fabric": "ib-ndr400",
    "stack": "titan-compile",
}


class Said(NamedTuple):
    """A number of an example, and the document that says another value of it."""

    file: Path
    lever: str
    says: Callable[[float], Mapping[str, Any]]


def inline(path: str, field: str, unit: str = "") -> Callable[[float], Mapping[str, Any]]:
    return lambda value: {path: {"base": BASE[path], field: f"{value!r} {unit}" if unit else value}}


def plain(path: str, text: str = "{}") -> Callable[[float], Mapping[str, Any]]:
    return lambda value: {path: value if text == "{}" else text.format(repr(value))}


def spine(value: float) -> Mapping[str, Any]:
    tiers = [{"name": "leaf", "nodes": 16}, {"name": "spine", "nodes": 128, "oversubscription": value}]
    return {f"fleet.islands.{name}.tiers": tiers for name in ("north", "south")}


SMOOTH = (
    Said(ONE, "accelerator.memory_bandwidth", inline("fleet.islands.0.accelerator", "memory_bandwidth", "B/s")),
    Said(ONE, "accelerator.memory_share", inline("fleet.islands.0.accelerator", "memory_share")),
    Said(ONE, "accelerator.scale_up_bandwidth", inline("fleet.islands.0.accelerator", "scale_up_bandwidth", "B/s")),
    Said(ONE, "fabric.bandwidth", inline("fleet.islands.0.fabric", "bandwidth", "B/s")),
    Said(ONE, "stack.launch_overhead", inline("stack", "launch_overhead", "s")),
    Said(ONE, "stack.gemm_factor", inline("stack", "gemm_factor")),
    Said(LOSS, "fleet.wan.bandwidth", plain("fleet.wan.default.bandwidth", "{} B/s")),
    Said(LOSS, "fleet.wan.rtt", plain("fleet.wan.default.rtt", "{} s")),
    Said(LOSS, "run.target_loss", plain("run.target_loss")),
    Said(BUILDINGS, "tiers.0.oversubscription", spine),
    Said(
        SPOT, "preemption.mtbf", lambda v: {"fleet.islands.zone.preemption": {"base": "aws-spot", "mtbf": f"{v!r} s"}}
    ),
)
WHOLE = (
    Said(ONE, "plan.micro_batch", plain("plan.micro_batch")),
    Said(ONE, "plan.tp", plain("plan.tp")),
    Said(ONE, "plan.pp", plain("plan.pp")),
    Said(ONE, "plan.dp_replicate", plain("plan.dp_replicate")),
    Said(ONE, "fleet.islands.nodes", plain("fleet.islands.0.nodes")),
    Said(ONE, "run.seq_len", plain("run.seq_len")),
    Said(ONE, "run.global_batch", plain("run.global_batch")),
    Said(LOSS, "plan.sync.sync_every", plain("plan.sync.sync_every")),
    Said(LOSS, "plan.sync.num_fragments", plain("plan.sync.num_fragments")),
    Said(LOSS, "fleet.islands.oregon.nodes", plain("fleet.islands.oregon.nodes")),
)
OTHERS = (
    Said(ONE, "accelerator.host_link", inline("fleet.islands.0.accelerator", "host_link", "B/s")),
    Said(ONE, "fabric.share", inline("fleet.islands.0.fabric", "share")),
    Said(ONE, "price", lambda v: {"fleet.islands.0.price": f"${v * 3600.0!r}/gpu/h"}),
    Said(LOSS, "fleet.wan.egress", lambda v: {"fleet.wan.default.egress": f"${v * 1e9!r}/GB"}),
    Said(LOSS, "fleet.wan.streams", plain("fleet.wan.default.streams")),
    Said(LOSS, "fleet.wan.window", plain("fleet.wan.default.window", "{} B")),
    Said(LOSS, "plan.sync.bits", plain("plan.sync.bits")),
)
FIGURE = {ONE: "tokens_per_s", LOSS: "run.cost_usd", BUILDINGS: "step_time_s", SPOT: "run.wall_clock_s"}
"""What is asked of each example."""


@functools.cache
def scenario(file: Path):
    return load(str(file))


@functools.cache
def answers(file: Path, of: str):
    return Answers(scenario(file), of)


def one_of(found, name):
    """One number, moved by itself."""
    return sensed(found, [named(name, levers(found.scenario))], STEP)[0]


def paired(found, first, second):
    """Two moves by themselves and together."""
    one, other = moves((first, second), levers(found.scenario))
    return pairs_of(found, [(one, other)])[0]


def figure(source, overrides, of):
    """A figure of a scenario that is read anew and predicted by itself."""
    predicted = shardmeter.predict(source, overrides=overrides)
    if not of.startswith("run."):
        return {"tokens_per_s": predicted.tokens_per_s, "step_time_s": predicted.step_time, "mfu": predicted.mfu}[of]
    run = course(predicted.scenario, predicted.whole)
    assert run is not None
    return run[of.removeprefix("run.")]


def differences(one, other, path=""):
    """Paths at which two records differ in a number or a word."""
    if dataclasses.is_dataclass(one):
        fields = [f.name for f in dataclasses.fields(one) if f.name not in TEXTS]
        return [d for name in fields for d in differences(getattr(one, name), getattr(other, name), f"{path}.{name}")]
    if isinstance(one, Mapping):
        assert one.keys() == other.keys(), path
        return [d for key in one for d in differences(one[key], other[key], f"{path}[{key}]")]
    if isinstance(one, tuple):
        assert len(one) == len(other), path
        return [d for at, pair in enumerate(zip(one, other, strict=True)) for d in differences(*pair, f"{path}[{at}]")]
    if isinstance(one, int | float | np.ndarray) and not isinstance(one, bool):
        same = np.allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-9, atol=0.0, equal_nan=True)
        return [] if same else [f"{path}: {one} {other}"]
    return [] if one == other else [f"{path}: {one} {other}"]


@pytest.mark.parametrize("said", [*SMOOTH, *WHOLE, *OTHERS], ids=lambda said: said.lever)
def test_a_lever_moves_what_it_says(said):
    """The moved record is the one that a document with that number reads to."""
    base = scenario(said.file)
    lever = named(said.lever, levers(base))
    factor = 2.0 if lever.whole or lever.unit != "" else 1.05
    factor = 1.01 if "loss" in said.lever else factor
    moved, read = lever.times(factor), load(str(said.file), overrides=said.says(lever.value * factor))
    assert moved is not None
    for part in ("model", "stack", "fleet", "plan", "plans", "run"):
        assert not differences(getattr(moved, part), getattr(read, part), part)


@pytest.mark.parametrize("said", SMOOTH, ids=lambda said: said.lever)
def test_an_elasticity_is_a_finite_difference_of_scenarios_read_anew(said):
    of = FIGURE[said.file]
    found = answers(said.file, of)
    one, step, value = one_of(found, said.lever), math.log1p(STEP), found.base.value
    more, less = (
        figure(str(said.file), said.says(one.lever.value * factor), of) for factor in (1.0 + STEP, 1.0 / (1.0 + STEP))
    )
    assert one.up == pytest.approx(math.log(more / value) / step, rel=1e-6, abs=1e-8)
    assert one.down == pytest.approx(math.log(value / less) / step, rel=1e-6, abs=1e-8)
    if not one.kink:
        assert one.elasticity == pytest.approx(math.log(more / less) / (2.0 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("said", WHOLE, ids=lambda said: said.lever)
def test_a_whole_number_moves_to_the_next_legal_values(said):
    """Both are what documents with those values answer; between them and the number none is legal."""
    of = FIGURE[said.file]
    found = answers(said.file, of)
    one = one_of(found, said.lever)
    assert one.effects
    for effect in one.effects:
        after = figure(str(said.file), said.says(effect.value), of)
        assert effect.answer == pytest.approx(after, rel=1e-9)
        assert effect.change == pytest.approx(after / found.base.value - 1.0, rel=1e-9, abs=1e-12)
    nearest = one.next_up or one.next_down
    if (
        nearest is not None and abs(nearest.value - one.lever.value) == 2.0
    ):  # the value between is illegal as a document too
        with pytest.raises(BadScenario):
            load(str(said.file), overrides=said.says((nearest.value + one.lever.value) / 2.0))


SEED = 20261130
RANDOM = {
    "stack.gemm_factor": inline("stack", "gemm_factor"),
    "stack.traffic_factor": inline("stack", "traffic_factor"),
    "stack.launch_overhead": inline("stack", "launch_overhead", "s"),
    "run.tokens": plain("run.tokens"),
}


@pytest.mark.parametrize("seed", range(8))
def test_random_scenarios(seed):
    rng = random.Random(SEED + seed)
    gpus, tp = rng.choice((8, 16, 64)), rng.choice((1, 2, 4, 8))
    source = {
        "model": rng.choice(("llama-3.1-8b", "llama-2-13b", "gpt2-medium")),
        "stack": BASE["stack"],
        "fleet": {
            "islands": [
                {"name": "one", "accelerator": rng.choice(("H100-SXM5-80GB", "A100-SXM4-80GB", "H200-SXM-141GB")), "nodes": gpus // 8,
                 "gpus_per_node": 8, "price": "$2/gpu/h"}
            ]
        },
        "plan": {"tp": tp, "sharding": rng.choice(("fsdp", "zero1")), "micro_batch": rng.choice((1, 2)),
                 "recompute": rng.choice(("none", "full"))},
        "run": {"seq_len": rng.choice((512, 1024)), "global_batch": 2 * gpus, "tokens": 1e9},
    }  # fmt: skip
    of = rng.choice(("tokens_per_s", "step_time_s", "mfu", "run.cost_usd"))
    found = Answers(load(source), of)
    for name, says in RANDOM.items():
        one, step = one_of(found, name), math.log1p(STEP)
        more, less = (figure(source, says(one.lever.value * factor), of) for factor in (1.0 + STEP, 1.0 / (1.0 + STEP)))
        middle = None if one.up is None or one.down is None else (one.up + one.down) / 2.0
        assert middle == pytest.approx(math.log(more / less) / (2.0 * step), rel=1e-6, abs=1e-8), name


def test_a_kink_has_two_sides():
    """Sites that are as fast as the line between them: more of either alone does nothing, less of either slows."""
    base = load(
        {
            "model": "llama-3.1-8b",
            "fleet": {
                "islands": [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("a", "b")],
                "wan": {
                    "default": {"bandwidth": "1 Gbps", "rtt": "10 ms", "egress": "$0/GB"},
                    "sites": {name: {"up": "1 Gbps", "down": "1 Gbps"} for name in ("a", "b")},
                },
            },
            "plan": {"sync": {"method": "diloco", "sync_every": 10}},
        }
    )
    found = Answers(base, "tokens_per_s")
    for name in ("fleet.wan.bandwidth", "fleet.wan.sites"):
        one = one_of(found, name)
        assert one.kink
        assert one.elasticity is None
        assert one.up == pytest.approx(0.0, abs=1e-9)
        assert one.down > 0.1
        assert one.doubled.change == pytest.approx(0.0, abs=1e-9)
        assert one.halved.change < -0.1
    both = paired(found, "fleet.wan.bandwidth=x2", "fleet.wan.sites=x2")
    assert both.product == pytest.approx(0.0, abs=1e-9)
    assert both.interaction > 0.1  # only together they help


def test_many_fleets_are_each_what_one_is():
    """Bit for bit, plans, stacks, batches and hardware of their own."""
    for file in (CLOUDS, BUILDINGS, SPOT):
        base = scenario(file)
        moved = [
            one
            for lever in levers(base)[::4]
            for factor in (0.5, 1.01, 2.0)
            if (one := lever.times(factor)) is not None
        ]
        some = random.Random(SEED).sample(moved, 8)
        cases = [Case(fleet=one.fleet, plan=one.plan, plans=one.plans, run=one.run, stack=one.stack) for one in some]
        for one, whole in zip(some, evaluate_fleets(base.model, cases), strict=True):
            alone = evaluate_fleet(one.model, one.fleet, one.plan, one.run, one.stack, one.plans)
            assert not isinstance(whole, Exception)
            for name in ("step_time", "memory_peak", "tokens"):
                assert float(getattr(whole.estimate, name)) == float(getattr(alone.estimate, name))
            assert [part.run.global_batch for part in whole.parts] == [part.run.global_batch for part in alone.parts]


def test_a_batch_that_cannot_be_shared_is_told():
    base = scenario(CLOUDS)
    one = changed(base, run=changed(base.run, global_batch=1023.0))
    case = Case(fleet=one.fleet, plan=one.plan, plans=one.plans, run=one.run, stack=one.stack)
    found = evaluate_fleets(base.model, [case, changed(case, run=base.run)])
    assert isinstance(found[0], BadScenario)
    assert not isinstance(found[1], Exception)


def test_pairs_are_what_both_together_answer():
    """Price and tokens multiply exactly in the cost; bandwidth and bits do not in the throughput."""
    cost = answers(ONE, "run.cost_usd")
    pairs = [paired(cost, first, "run.tokens=x3") for first in ("price=x2", "accelerator.memory_bandwidth=x0.5")]
    for pair in pairs:
        assert pair.interaction == pytest.approx(0.0, abs=1e-9)
    assert pairs[0].together == pytest.approx(5.0)
    pair = paired(answers(LOSS, "tokens_per_s"), "fleet.wan.bandwidth=x0.1", "plan.sync.sync_every=10")
    both = {"fleet.wan.default.bandwidth": "1 Gbps", "plan.sync.sync_every": 10}
    assert pair.together == pytest.approx(
        figure(str(LOSS), both, "tokens_per_s") / figure(str(LOSS), {}, "tokens_per_s") - 1.0
    )


def test_what_moving_costs():
    """More nodes cost their rent; H costs nothing; of a faster line or machine no price is known; what has no price has none."""
    found = answers(LOSS, "run.cost_usd")
    nodes = one_of(found, "fleet.islands.nodes").doubled
    assert nodes.rent == pytest.approx(16 * 2.10)
    assert one_of(found, "plan.sync.sync_every").doubled.rent == 0.0
    assert one_of(found, "plan.sync.sync_every").doubled.traffic < 0.0
    assert one_of(found, "fleet.wan.bandwidth").doubled.rent is None
    assert one_of(found, "accelerator.peak").doubled.rent is None
    unpriced = load(str(LOSS), overrides={"fleet.islands.iowa.price": None})
    free = Answers(unpriced, "tokens_per_s")
    assert one_of(free, "fleet.islands.nodes").doubled.rent is None


def test_the_range_of_a_change_is_what_both_ends_say():
    """Of one island what is wrong with a step cancels; of a fleet that waits for its lines it does not all."""
    alone = one_of(answers(ONE, "tokens_per_s"), "accelerator.memory_bandwidth").doubled
    assert alone.range == pytest.approx((alone.change, alone.change))
    wide = Answers(load(str(EXAMPLES / "intellect-1.yaml")), "tokens_per_s")
    waits = one_of(wide, "fleet.wan.bandwidth").doubled
    assert waits.range[0] < waits.change < waits.range[1]


def test_every_number_has_a_name_of_its_own_and_does_nothing_silently():
    for file in (ONE, LOSS, BUILDINGS, SPOT, CLOUDS, MONEY):
        known = levers(scenario(file))
        assert len({lever.name for lever in known}) == len(known)
        assert [KINDS.index(lever.kind) for lever in known] == sorted(KINDS.index(lever.kind) for lever in known)
    found = sensitivity(scenario(ONE), "tokens_per_s")
    assert {one.lever.name for one in (*found.ranked, *found.silent, *found.stuck)} == {
        one.name for one in levers(scenario(ONE))
    }
    assert "run.tokens" in {one.lever.name for one in found.silent}  # the length of a run is none of a step's
    sizes = [one.size for one in found.ranked]
    assert all(one >= other - 1e-6 for one, other in itertools.pairwise(sizes))


INTERRUPTED = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [{"name": "one", "accelerator": "H100-SXM5-80GB", "nodes": 4, "price": "$2/gpu/h", "region": "aws:us-west-2"}],
    },
    "plan": {"sharding": "fsdp", "recompute": "full"},
    "run": {
        "seq_len": 4096, "global_batch": 64, "tokens": "10B",
        "checkpoint": {"every": "100 steps", "bandwidth": "2 GB/s", "bytes_per_parameter": 14},
        "evaluation": {"every": "500 steps", "lasts": "2 min"},
        "failures": {"base": "llama-3-405b", "mtbf": "200 d", "restart": "10 min"},
    },
}  # fmt: skip
PARTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "run.checkpoint.bandwidth": lambda value: {"run.checkpoint.bandwidth": f"{value!r} B/s"},
    "run.checkpoint.every": lambda value: {"run.checkpoint.every": f"{value:.0f} steps"},
    "run.checkpoint.size": lambda _: {"run.checkpoint.bytes_per_parameter": 28},
    "run.evaluation.lasts": lambda value: {"run.evaluation.lasts": f"{value!r} s"},
    "run.failures.mtbf": lambda value: {"run.failures.mtbf": f"{value!r} s"},
    "run.failures.restart": lambda value: {"run.failures.restart": f"{value!r} s"},
}


@pytest.mark.parametrize("name", PARTS)
def test_levers_of_what_interrupts_a_run(name):
    """They move the run as a document does, and its wall clock with it."""
    base = load(INTERRUPTED)
    lever = named(name, levers(base))
    moved, read = lever.times(2.0), load(INTERRUPTED, overrides=PARTS[name](2.0 * lever.value))
    assert moved is not None
    assert not differences(moved.run, read.run, "run")
    doubled = one_of(Answers(base, "run.wall_clock_s"), name).doubled
    assert doubled.answer == pytest.approx(
        figure(INTERRUPTED, PARTS[name](2.0 * lever.value), "run.wall_clock_s"), rel=1e-9
    )
    assert doubled.change != 0.0


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("intellect-1", {}),
        ("intellect-1", {"plan.sync.method": "sparse_loco", "fleet.wan.default.loss": 1e-4}),
        ("two-buildings-hsdp", {}),
        ("llama-8b-64xh100", {"model": "mixtral-8x7b", "plan.ep": 8}),
        ("llama-70b-tp8-pp4", {"stack": "nanotron"}),
    ],
)
def test_times_are_made_of_levers_alone(name, moved, monkeypatch):
    """Euler: all rates twice and all times half is a step of half the time. So no rate and no time is missing among the levers, but for
    the least time of a kernel on the device, which is no number of a scenario."""
    scenario = shardmeter.predict(str(EXAMPLES / f"{name}.yaml"), overrides=moved).scenario
    before = answered(scenario).estimate.step_time
    for lever in levers(scenario):
        if not lever.part and lever.unit in ("B/s", "FLOP/s", "s") and not lever.name.startswith("run."):
            same = next(one for one in levers(scenario) if one.name == lever.name)
            scenario = same.scaled(0.5 if lever.unit == "s" else 2.0)
    monkeypatch.setattr(price, "KERNEL_START", price.KERNEL_START / 2.0)
    assert answered(scenario).estimate.step_time == pytest.approx(before / 2.0, rel=1e-12)
