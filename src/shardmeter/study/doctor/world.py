"""A scenario as it is predicted, or as it would be if something about it were so."""

from __future__ import annotations

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Number, Seconds
from shardmeter.engine.evaluate import evaluate, priced
from shardmeter.engine.fleet import Whole, alone, joined, stretched
from shardmeter.specs import Scenario
from shardmeter.specs.estimate import Estimate
from shardmeter.study.levers import answered


@record
class World:
    """A scenario and its prediction. Of one island, numbers may be arrays."""

    scenario: Scenario
    whole: Whole
    extra: Seconds = 0.0
    """Seconds of a step that no term of the ledger has: a wait that the engine does not know, overlap that fails."""
    pace: Number = 1.0
    """How many times as long as predicted an inner step takes."""

    @property
    def estimate(self) -> Estimate:
        """One step of the whole fleet."""
        return self.whole.estimate

    @property
    def step(self) -> Seconds:
        """Seconds of a step."""
        return self.estimate.step_time + self.extra

    @property
    def communicated(self) -> Seconds:
        """Seconds in which collectives run, exposed and hidden."""
        found: Seconds = 0.0
        for term in self.estimate.terms:
            if term.cause in COMMUNICATION:
                found = found + (0.0 if term.label == CONTENTION else term.seconds) + term.hidden
        return found

    @property
    def hidden(self) -> Seconds:
        """Seconds that a step would be longer by if nothing passed behind compute: all that is hidden, less what hiding it costs."""
        found: Seconds = 0.0
        for term in self.estimate.terms:
            found = found - term.seconds if term.label == CONTENTION else found + term.hidden
        return found

    def share(self, label: str) -> float:
        """What a term is of the step; 0 where there is none."""
        return plain_sum(float(term.seconds / self.step) for term in self.estimate.terms if term.label == label)

    def rated(self, peak: Number) -> World:
        """The same with utilisation counted over another peak: that of the device as it is sold, however slow it runs."""
        return changed(self, whole=changed(self.whole, estimate=changed(self.estimate, peak_flops=peak)))

    def paced(self, inner: Number, across: Number) -> World:
        """The same if every inner step took `inner` times as long and every message between islands `across` times."""
        whole = stretched(self.whole, self.scenario.plan, inner, across)
        return changed(self, whole=whole, extra=self.extra * inner, pace=self.pace * inner)

    def phases(self) -> tuple[Seconds, Seconds]:
        """Seconds of (forward, backward) of a step on one island without pipeline stages; NaN elsewhere. Leaves out: what a step does
        once."""
        scenario, plan = self.scenario, self.scenario.plan
        if plan.pp > 1 or len(scenario.fleet.islands) > 1:
            return float("nan"), float("nan")
        work, _, _, stages = priced(scenario.model, scenario.fleet.islands[0], plan, scenario.run, scenario.stack)
        slot = stages[0].slot
        backward = slot.input_grad + slot.weight_grad
        return self.pace * work.micro_batches * slot.forward, self.pace * (work.micro_batches * backward + slot.ending)


COMMUNICATION = ("fabric", "scale-up link", "wide-area link", "pipeline")
"""Causes of terms that move bytes."""
CONTENTION = "contention"


def rejoined(base: World, scenario: Scenario) -> World:
    """The prediction of a scenario that differs from another in the network between islands alone: inner steps stay as they are."""
    whole = base.whole
    inner = [changed(part, estimate=own) for part, own in zip(whole.parts, whole.inner, strict=True)]
    return World(scenario=scenario, whole=joined(scenario.model, inner, scenario.fleet.wan, scenario.plan))


def world(scenario: Scenario) -> World:
    """The prediction of a scenario; of one island its numbers may be arrays."""
    if len(scenario.fleet.islands) > 1:
        return World(scenario=scenario, whole=answered(scenario))
    island = scenario.fleet.islands[0]
    plan = scenario.plans[0] if scenario.plans else scenario.plan
    estimate = evaluate(scenario.model, island, plan, scenario.run, scenario.stack)
    return World(scenario=scenario, whole=alone(island, plan, scenario.run, estimate))
