"""Stragglers: a step ends when its slowest rank does, once per step and group of ranks, not once per collective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import Work
from shardmeter.engine.micro_batch import MicroBatch
from shardmeter.physics.jitter import expected_largest, straggler_time
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack


def stragglers(work: Work, stages: Sequence[MicroBatch], updating: Seconds, plan: Plan, stack: Stack) -> Seconds:
    """Seconds that a step waits for its slowest ranks.

    Every rank computes the whole step at a pace of its own (1 ± jitter). One micro-batch passes all stages, each at the pace of
    the slowest of its own ranks; the others queue at whichever stage takes longest then, at the pace of the slowest rank of all
    stages that are like it, which takes the optimizer step at that pace as well. Where the host sets the pace, a slower device
    first uses up what it waits for the host. Leaves out: unlike stages of which now one and now another is the slowest
    (the mean of a maximum is taken as the maximum of means), transfers that a slower rank hides better (an upper bound where
    those show), bubbles shorter than one pass through the stages (zero-bubble schedules: an upper bound too)."""
    turns, ranks = 1.0 / float(plan.virtual_stages), plan.gpus / float(plan.pp)
    queued = work.micro_batches - turns
    usual: Seconds = 0.0
    slowest: Seconds = 0.0
    passing: Seconds = 0.0
    with under("stragglers"):
        of_one = expected_largest(ranks)
        for kind, stage in enumerate(stages):
            alike = float(plain_sum(count for own, _, count in work.runs if own == kind))
            compute = add.folded(stage.exposed.get(label, 0.0) for label in add.BUSY)
            paced, queue = stage.exposed.get("launch overhead", 0.0), stage.slot.whole * queued
            late = straggler_time(compute * queued + updating, stack.jitter, expected_largest(ranks * alike))
            usual, slowest = np.maximum(usual, queue), np.maximum(slowest, queue + hide.late(late, paced * queued))
            first = straggler_time(compute * turns, stack.jitter, of_one)
            passing = passing + alike * hide.late(first, paced * turns)
    return slowest - usual + passing
