"""Steps without a backward: the variance of their estimates, what they compute, keep and send, and how long experts apart last."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import shardmeter
from shardmeter import BadScenario, sync
from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import evaluate_fleet, replica
from shardmeter.engine.timeline.build import build, case_of
from shardmeter.engine.timeline.overlap import run as drawn_run
from shardmeter.physics import zero_order
from shardmeter.render.heading import heading
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Estimate, Scenario, Sync
from shardmeter.study.course import durations
from shardmeter.study.planning.scenarios import plan_document
from shardmeter.study.zero_order import variance

Floats = npt.NDArray[np.float64]
CATALOG = load_catalog()
ERROR = 0.05
"""Of a variance over so many draws."""
DRAWS = 40_000


# ---- variance: drawn -----------------------------------------------------------------------------------------------------------


def quadratic(seed: int, size: int) -> tuple[Floats, Floats]:
    """A random convex quadratic ½·θᵀAθ + bᵀθ."""
    draw = np.random.default_rng(seed)
    root = draw.normal(size=(size, size))
    return root @ root.T / size, draw.normal(size=size)


def loss(curve: Floats, slope: Floats, at: Floats) -> Floats:
    """Of every row of points."""
    value: Floats = 0.5 * np.einsum("...i,ij,...j->...", at, curve, at) + at @ slope
    return value


def probes(curve: Floats, slope: Floats, at: Floats, signs: Floats, step: float = 1e-2) -> Floats:
    """(L(θ + c·z) − L(θ − c·z))/2c · z for every row z."""
    there, back = (loss(curve, slope, at + side * step * signs) for side in (1.0, -1.0))
    value: Floats = ((there - back) / (2.0 * step))[..., None] * signs
    return value


def spread(estimates: Floats, gradient: Floats) -> float:
    """Mean squared error over the square of the gradient."""
    return float(np.mean(np.sum((estimates - gradient) ** 2, axis=-1)) / np.sum(gradient**2))


@pytest.mark.parametrize(("size", "count"), [(8, 1), (60, 1), (60, 6), (200, 16)])
def test_a_mean_of_probes_is_as_noisy_as_said(size: int, count: int) -> None:
    curve, slope = quadratic(7, size)
    draw, at = np.random.default_rng(11), np.linspace(-1.0, 1.0, size)
    rounds = DRAWS // (10 * count)
    signs = draw.choice([-1.0, 1.0], size=(rounds, count, size))
    estimates = probes(curve, slope, at, signs).mean(axis=1)
    measured = spread(estimates, curve @ at + slope)
    assert zero_order.spsa_variance(size, count) == pytest.approx(measured, rel=ERROR)


@pytest.mark.parametrize("experts", [2, 4, 8])
def test_independent_losses_have_an_nth_of_the_variance_of_a_shared_one(experts: int) -> None:
    """N quadratics of 60 parameters: one probe of all for their sum, or one of each for its own."""
    size = 60
    parts = [quadratic(seed, size) for seed in range(experts)]
    draw, at = np.random.default_rng(13), np.linspace(-1.0, 1.0, size)
    gradients = np.stack([curve @ at + slope for curve, slope in parts])
    signs = draw.choice([-1.0, 1.0], size=(DRAWS // 10, experts, size))
    slopes = np.stack([np.sum(signs[:, k] * gradients[k], axis=-1) for k in range(experts)], axis=1)
    for k, (curve, slope) in enumerate(parts[:1]):
        assert np.allclose(probes(curve, slope, at, signs[:, k]), slopes[:, k, None] * signs[:, k])
    own = slopes[:, :, None] * signs
    shared = np.sum(slopes, axis=1)[:, None, None] * signs
    measured = _of_all(own, gradients) / _of_all(shared, gradients)
    asked = zero_order.variance_of_independent(zero_order.spsa_variance(experts * size, 1.0), experts)
    assert measured == pytest.approx(1.0 / experts, rel=ERROR)
    assert asked == pytest.approx(_of_all(own, gradients), rel=ERROR)


def _of_all(estimates: Floats, gradients: Floats) -> float:
    return spread(estimates.reshape(len(estimates), -1), gradients.reshape(-1))


@pytest.mark.parametrize(("rank", "members"), [(1, 1), (1, 4), (4, 1), (64, 1)])
def test_factors_of_low_rank_are_as_noisy_as_said(rank: int, members: int) -> None:
    rows, columns = 12, 20
    draw = np.random.default_rng(17)
    gradient = draw.normal(size=(rows, columns))
    rounds = DRAWS // 2
    found = np.zeros((rounds, rows, columns))
    for _ in range(members):
        left, right = draw.normal(size=(rounds, rows, rank)), draw.normal(size=(rounds, columns, rank))
        factors = left @ np.swapaxes(right, 1, 2) / np.sqrt(rank)
        found += np.einsum("rij,ij->r", factors, gradient)[:, None, None] * factors / members
    measured = _of_all(found, gradient)
    asked = zero_order.low_rank_variance(rows * columns, rows, columns, rank, members)
    assert asked == pytest.approx(measured, rel=ERROR)
    full = zero_order.low_rank_variance(rows * columns, rows, columns, 1e12, 1.0)
    assert full == pytest.approx(rows * columns + 1.0), "normal directions of full rank"


@pytest.mark.parametrize(("count", "batch"), [(1, 1), (4, 2), (2, 16)])
def test_probes_of_a_batch_are_as_noisy_as_said(count: int, batch: int) -> None:
    """Samples whose gradients scatter by ν = 3 around the mean."""
    size, sample, rounds = 30, 3.0, DRAWS // (2 * count)
    draw = np.random.default_rng(19)
    gradient = draw.normal(size=size)
    scale = np.sqrt(sample * np.sum(gradient**2) / size / batch)
    means = gradient + scale * draw.normal(size=(rounds, 1, size))
    signs = draw.choice([-1.0, 1.0], size=(rounds, count, size))
    estimates = (np.sum(means * signs, axis=-1)[..., None] * signs).mean(axis=1)
    asked = zero_order.batch_variance(size - 1.0, sample, count, batch)
    assert asked == pytest.approx(spread(estimates, gradient), rel=ERROR)


@pytest.mark.parametrize(
    ("evaluations", "probe", "sample"), [(4096.0, 8.44e6, 40.0), (1e6, 100.0, 5.0), (512.0, 2.0, 900.0)]
)
def test_the_best_split_is_the_least_of_a_grid(evaluations: float, probe: float, sample: float) -> None:
    grid = np.geomspace(evaluations * 1e-6, evaluations, 200_001)
    noise = zero_order.batch_variance(probe, sample, evaluations / grid, grid)
    best = zero_order.best_batch(evaluations, probe, sample)
    assert best == pytest.approx(grid[np.argmin(noise)], rel=1e-3)
    assert zero_order.batch_variance(probe, sample, evaluations / best, best) <= np.min(noise) * (1.0 + 1e-9)


def test_what_a_run_computes_and_how_often_it_updates() -> None:
    """SOMA's experts: 8.39 million byte-forwards an update, 81.9k operations each (arXiv 2609.37899)."""
    one = zero_order.run_operations(1024.0, 64.0, 64.0, 1.0, 81.9e3, 1.0)
    assert one == pytest.approx(6.87e11, rel=1e-3)
    assert zero_order.run_operations(1024.0, 64.0, 64.0, 256.0, 81.9e3, 10.0) == pytest.approx(2560.0 * one)
    assert zero_order.most_updates(100.0 * one, one, 3600.0, 100.0) == 36.0
    assert zero_order.most_updates(10.5 * one, one, 3600.0, 100.0) == 10.0


# ---- a step ---------------------------------------------------------------------------------------------------------------------


def asked(
    method: str, *, plan: dict[str, Any] | None = None, gpus: str = "8xH100-SXM5-80GB", **fields: Any
) -> Scenario:
    """A small model on one island."""
    laid = {"sharding": "ddp", "micro_batch": 2, **(plan or {}), "sync": {"method": method, **fields}}
    run = {"seq_len": 1024, "global_batch": 32}
    return load({"model": "pythia-410m", "gpus": gpus, "plan": laid, "run": run})


def estimate(scenario: Scenario) -> Estimate:
    return evaluate(scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack)


def inference(scenario: Scenario) -> Estimate:
    """The same step with nothing trained and nothing probed: one forward pass."""
    plan = changed(scenario.plan, probes=None, trainable=sync.NO_BACKWARD)
    return estimate(changed(scenario, plan=plan))


def seconds(one: Estimate, *labels: str) -> float:
    return sum(float(term.seconds) for term in one.terms if term.label in labels)


def memory(one: Estimate, label: str) -> float:
    return sum(float(term.size) for term in one.memory if term.label == label)


COMPUTE = ("matrix products", "core attention", "memory-bound kernels", "launch overhead")


@pytest.mark.parametrize("count", [1.0, 4.0])
def test_mezo_takes_the_memory_of_inference_and_two_forwards_a_perturbation(count: int) -> None:
    own = asked("mezo", perturbations=count)
    made, alone = estimate(own), inference(own)
    assert made.memory_peak == alone.memory_peak
    for label in COMPUTE:
        assert seconds(made, label) == pytest.approx(2.0 * count * seconds(alone, label), rel=1e-12)
    trained = estimate(changed(own, plan=changed(own.plan, probes=None, trainable="all")))
    assert made.model_flops == pytest.approx(2.0 * count * trained.model_flops / 3.0, rel=1e-12)


def test_moments_are_all_that_spsa_keeps_more() -> None:
    plain, moving = (estimate(asked(method, perturbations=8)) for method in ("mezo", "spsa"))
    parameters = plain.ends.trained
    assert memory(moving, "optimizer state") == pytest.approx(8.0 * parameters)
    assert memory(plain, "optimizer state") == memory(plain, "gradients") == memory(moving, "gradients") == 0.0


def test_passes_side_by_side_do_as_much_with_fewer_launches_and_more_memory() -> None:
    ones = [estimate(asked("spsa", perturbations=8, together=at_once)) for at_once in (1, 4, 16)]
    assert len({float(one.model_flops) for one in ones}) == 1
    for fewer, more in itertools.pairwise(ones):
        assert memory(more, "parameters") > memory(fewer, "parameters")
        assert memory(more, "peak inside a layer") == pytest.approx(
            memory(fewer, "peak inside a layer") * (4.0), rel=1e-12
        )
        assert seconds(more, "launch overhead") < seconds(fewer, "launch overhead")
        assert seconds(more, "core attention") == pytest.approx(seconds(fewer, "core attention"), rel=1e-9)
        assert more.step_time < fewer.step_time
    weights = memory(ones[0], "parameters")
    assert memory(ones[1], "parameters") == pytest.approx(5.0 * weights), "the weights and a copy a pass"


def test_a_perturbation_of_low_rank_is_no_copy() -> None:
    """It adds products beside the weights, fewer with a lower rank, and keeps nothing."""
    low, high = (asked("eggroll", perturbations=32, rank=rank) for rank in (1, 64))
    alone = inference(low)
    assert estimate(low).memory_peak == estimate(high).memory_peak == alone.memory_peak
    assert seconds(alone, *COMPUTE) < seconds(estimate(low), *COMPUTE) < seconds(estimate(high), *COMPUTE)
    assert estimate(low).model_flops == estimate(high).model_flops == estimate(asked("mezo")).model_flops / 2.0


def test_a_population_costs_its_update() -> None:
    """The sum of all factors grows with the members; the forward passes do not."""
    few, many = (estimate(asked("eggroll", perturbations=count)) for count in (1, 32))
    assert seconds(few, *COMPUTE) == seconds(many, *COMPUTE)
    assert seconds(few, "optimizer") < seconds(many, "optimizer")


@pytest.mark.parametrize("method", ["mezo", "spsa", "eggroll", "soma"])
def test_one_accelerator_sends_nothing(method: str) -> None:
    alone = estimate(asked(method, gpus="1xH100-SXM5-80GB", perturbations=2))
    assert seconds(alone, "losses of the probes") == 0.0
    assert seconds(estimate(asked(method, perturbations=2)), "losses of the probes") > 0.0


def test_what_says_something_of_a_backward_changes_nothing() -> None:
    plain = asked("mezo")
    for word in ({"recompute": "full"}, {"optimizer": "muon"}, {"reduce_dtype": "bf16"}, {"master_dtype": "bf16"}):
        other = asked("mezo", plan=word)
        assert estimate(other) == estimate(plain)
        assert f"plan.{next(iter(word))} changes nothing" in " ".join(other.warnings)


FIELDS = ("step_time", "memory_peak", "model_flops", "tokens")


@pytest.mark.parametrize("method", ["spsa", "eggroll"])
def test_numbers_of_a_step_may_be_arrays(method: str) -> None:
    own = asked(method, perturbations=8)
    counts, at_once = np.array([1.0, 2.0, 8.0, 32.0]), np.array([1.0, 2.0, 1.0, 16.0])
    both = {"together": at_once} if method == "spsa" else {"rank": np.array([1.0, 3.0, 8.0, 64.0])}
    many = changed(own.plan.sync, perturbations=counts, **both)
    probed = changed(own.plan, probes=sync.inner_of(many).probes)
    together = estimate(changed(own, plan=probed))
    for at in range(len(counts)):
        one = changed(many, perturbations=float(counts[at]), **{name: float(value[at]) for name, value in both.items()})
        alone = estimate(changed(own, plan=changed(own.plan, probes=sync.inner_of(one).probes)))
        for name in FIELDS:
            value = getattr(together, name)
            assert np.broadcast_to(value, counts.shape)[at] == getattr(alone, name), name


PLANS: tuple[dict[str, Any], ...] = (
    {}, {"sharding": "fsdp"}, {"sharding": "fsdp", "tp": 2}, {"pp": 2}, {"pp": 2, "schedule": "gpipe"}, {"cp": 2},
    {"pp": 2, "schedule": "interleaved", "virtual_stages": 2},
)  # fmt: skip


@pytest.mark.parametrize("method", ["mezo", "eggroll"])
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, plan.values())) or "ddp")
def test_the_timeline_agrees(method: str, plan: dict[str, Any]) -> None:
    own = asked(method, plan=plan, perturbations=2)
    case = case_of(own.model, own.fleet.islands[0], own.plan, own.run, own.stack)
    drawn = drawn_run(build(case))
    assert drawn.makespan == pytest.approx(float(estimate(own).step_time), rel=0.02)


# ---- islands --------------------------------------------------------------------------------------------------------------------


def fleet(method: str, *kinds: str, batch: int = 96, **fields: Any) -> Scenario:
    """An island of one node of every kind."""
    islands = [{"name": f"i{at}", "accelerator": kind, "nodes": 1} for at, kind in enumerate(kinds)]
    return load({
        "model": "pythia-410m",
        "fleet": {"islands": islands, "wan": {"default": {"bandwidth": "1 Gbps", "rtt": "40 ms"}}},
        "plan": {"sharding": "ddp", "micro_batch": 2, "sync": {"method": method, **fields}},
        "run": {"seq_len": 1024, "global_batch": batch, "steps": 1000},
    })  # fmt: skip


H100, A100 = "H100-SXM5-80GB", "A100-SXM4-80GB"


@pytest.mark.parametrize(("method", "numbers"), [("mezo", 16.0), ("spsa", 16.0), ("eggroll", 8.0 / 3.0), ("soma", 0.0)])
def test_scalars_cross_whatever_the_size_of_the_model(method: str, numbers: float) -> None:
    own = fleet(method, H100, H100, A100, perturbations=8)
    whole = evaluate_fleet(own.model, own.fleet, own.plan, own.run, own.stack, own.plans)
    told = replica(own.model, own.plans, whole.estimate, 3)
    for size in (told, changed(told, parameters=1e12)):
        sent = sync.round_of(size, own.plan.sync).crossings
        assert sum(one.size for one in sent) == pytest.approx(4.0 * numbers)


def test_experts_apart_last_as_long_as_the_slowest_and_are_paid_as_long_as_each() -> None:
    """Published of 256 experts: 191 h and 41,900 accelerator-hours, 4.16 million updates of 0.142 s in the mean, 0.165 s at most."""
    own = fleet("soma", *[H100] * 4, batch=64, perturbations=2)
    whole = evaluate_fleet(own.model, own.fleet, own.plan, own.run, own.stack, own.plans)
    assert whole.round is not None
    assert whole.round.alone
    mean, most = 0.142, 0.165
    rest = (256.0 * mean - most) / 255.0
    lasts = [most, *[rest] * 255]
    parts = tuple(
        changed(whole.parts[0], estimate=changed(whole.parts[0].estimate, step_time=one, gpus=1.0)) for one in lasts
    )
    wall, held = durations(changed(whole, parts=parts), 4.16e6)
    assert wall / 3600.0 == pytest.approx(191.0, rel=0.005)
    assert held / 3600.0 == pytest.approx(41_900.0, rel=0.005)


def test_a_run_of_unlike_experts_follows_from_each_of_them() -> None:
    own = fleet("soma", H100, A100, batch=64, perturbations=2)
    answer = shardmeter.predict(own).to_dict()
    steps = [one["steps_per_round"] for one in answer["islands"]]
    fast = answer["sync"]["round_s"]
    assert answer["run"]["wall_clock_s"] == pytest.approx(1000.0 * fast / min(steps), rel=1e-9)
    assert answer["run"]["gpu_hours"] * 3600.0 == pytest.approx(8.0 * sum(1000.0 * fast / n for n in steps), rel=1e-9)
    assert answer["run"]["tokens"] == 1000.0 * 64.0 * 1024.0
    assert answer["sync"]["sent_bytes"] == 0.0


def test_a_reader_is_told_how_noisy_a_step_is() -> None:
    own = fleet("spsa", H100, A100, batch=64, perturbations=64)
    answer = shardmeter.predict(own).to_dict()
    size = answer["model"]["parameters"]
    assert answer["sync"]["variance"] == answer["zero_order"]["variance"] == pytest.approx((size - 1.0) / 64.0)
    assert answer["zero_order"]["passes"] == answer["zero_order"]["losses"] == 128.0
    assert shardmeter.predict(fleet("diloco", H100, A100, batch=64)).to_dict()["zero_order"] is None
    assert isinstance(own.plan.sync, Sync)


# ---- what is perturbed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["soma", "spsa"])
def test_what_is_frozen_is_neither_perturbed_nor_kept_moments_of(method: str) -> None:
    """A frozen embedding leaves the d of the variance, the moments, the copies and the update; it stays among the weights."""
    every, some = (
        asked(method, plan={"trainable": words}, perturbations=8, together=4) for words in ("all", "layer+head")
    )
    model = every.model
    embedding = float(model.vocab * model.hidden)
    size = float(estimate(every).ends.trained)
    assert variance(every.model, every.plan) == pytest.approx((size - 1.0) / 8.0)
    assert variance(some.model, some.plan) == pytest.approx((size - embedding - 1.0) / 8.0)
    assert estimate(some).ends.trained == pytest.approx(size - embedding)
    state = [memory(estimate(one), "optimizer state") for one in (every, some)]
    assert state[0] - state[1] == pytest.approx(8.0 * embedding)
    weights = [memory(estimate(one), "parameters") for one in (every, some)]
    assert weights[0] - weights[1] == pytest.approx(4.0 * 2.0 * embedding), "four copies of 16 bits"
    assert seconds(estimate(some), "optimizer") < seconds(estimate(every), "optimizer")
    assert estimate(some).model_flops == estimate(every).model_flops
    assert "perturbed layer+head" in heading(some)
    assert "perturbed" not in heading(every)


def test_low_rank_perturbs_no_product_of_what_is_frozen() -> None:
    every, layers = (asked("eggroll", plan={"trainable": words}, perturbations=32) for words in ("all", "layer"))
    assert estimate(layers).step_time < estimate(every).step_time
    assert variance(layers.model, layers.plan) < variance(every.model, every.plan)
    assert plan_document(layers.plan)["trainable"] == "layer"
    assert "trainable" not in plan_document(every.plan)


@pytest.mark.parametrize("words", ["lora(r=8)", "layer:0-3"])
def test_parts_of_a_block_are_not_perturbed_alone(words: str) -> None:
    with pytest.raises(BadScenario, match="perturbs all parameters of a block, or none"):
        asked("mezo", plan={"trainable": words})
