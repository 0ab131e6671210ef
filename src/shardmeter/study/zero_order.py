"""What a prediction says of steps without a backward: passes, losses, and how noisy an estimate of the gradient they make."""

from __future__ import annotations

from typing import Any

from shardmeter.core.units import Ratio
from shardmeter.engine.fleet import Whole, replica
from shardmeter.families import sized
from shardmeter.physics.zero_order import low_rank_variance, spsa_variance
from shardmeter.specs import Effect, Model, Plan, Scenario
from shardmeter.strategies.probes import dimension, shapes
from shardmeter.sync import effect


def answer(scenario: Scenario, whole: Whole) -> dict[str, Any] | None:
    """`zero_order` of the answer; None where a step has a backward."""
    plan = scenario.plan
    if plan.probes is None:
        return None
    known = effect_of(scenario, whole)
    return {
        "method": plan.sync.method,
        "passes": float(plan.probes.passes),
        "together": float(plan.probes.together),
        "rank": float(plan.probes.rank),
        "losses": float(plan.probes.losses),
        "variance": float(variance(scenario.model, plan)),
        "variance_text": variance_text(scenario.model, plan),
        "loss_basis": known.basis,
        "loss_text": known.text,
        "source": known.source or None,
    }


def effect_of(scenario: Scenario, whole: Whole) -> Effect:
    """What is known of the loss, of a single island too."""
    if whole.effect is not None:
        return whole.effect
    return effect(replica(scenario.model, [scenario.plan], whole.estimate, 1), scenario.plan.sync)


def variance(model: Model, plan: Plan) -> Ratio:
    """Relative variance of a step's estimate of the gradient of its batch: that of one cell's own model. Raises ValueError for a plan
    with a backward. Leaves out: noise of the batch."""
    one = plan.probes
    if one is None:
        raise ValueError("a step with a backward has no such variance")
    whole = sized(model, 1.0)
    size = dimension(whole, plan)
    if one.whole:
        return spsa_variance(size, one.directions)
    return max(
        (low_rank_variance(size, rows, columns, one.rank, one.members) for rows, columns, _ in shapes(whole, plan)),
        default=spsa_variance(size, one.members),
    )


def variance_text(model: Model, plan: Plan) -> str:
    """How the variance came out: `(d − 1)/64, d = 8.44M parameters`."""
    one = plan.probes
    if one is None:
        raise ValueError("a step with a backward has no such variance")
    size = f"d = {float(dimension(sized(model, 1.0), plan)):.4g} parameters"
    if one.whole:
        return f"(d − 1)/{one.directions:g}, {size}"
    return f"(d + 1 + 2·(rows + columns + 1)/{one.rank:g})/{one.members:g} of the widest matrix, {size}"
