"""`solve`: the largest micro-batch, the longest sequence, the fewest GPUs with which a scenario fits into memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, UnknownName, Violation
from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import alone
from shardmeter.specs.estimate import Estimate
from shardmeter.specs.scenario import Scenario
from shardmeter.study import inverse, moves, trust
from shardmeter.study.inverse import GPUS, MICRO_BATCH, QUESTIONS, SEQ, Legal, Question, Row
from shardmeter.study.predict import Prediction
from shardmeter.study.relief import batch_unsaid

CHANCES = (0.5, 0.9)
"""Probabilities to fit for which the answer is given too."""
NAMED = 0.1
"""Share of all growth from which a term of memory is named."""
COMPARED = 4096
"""Micro-batches that are compared for speed where no list bounds them."""


@record
class Solution:
    """The answer to an inverse question. `print` shows it as a page; `to_dict` is the JSON, with all of `predict` at the answer."""

    question: Question
    scenario: Scenario
    """As it was given."""
    legal: Legal
    answer: float | None
    """None: not even the mildest legal value fits."""
    likely: tuple[float | None, ...]
    """The answer with each of the probabilities `CHANCES` to fit; None where no value has it, or nothing was ever fitted."""
    prediction: Prediction
    """At the answer, or at the mildest legal value where nothing fits."""
    further: tuple[float, Estimate] | None
    """The next legal value, which needs more memory; None where there is none."""
    neighbours: tuple[Row, ...]
    fastest: tuple[float, float, float] | None
    """(value, seconds a step, tokens/s) of the fastest micro-batch that fits."""

    def __repr__(self) -> str:
        """One line."""
        found = "none fits" if self.answer is None else f"{self.answer:,.0f} {self.question.unit}"
        return f"<Solution {self.question.name} of {self.scenario.model.name}: {found}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def value(self) -> float:
        """The answer, or the legal value that comes nearest to fitting."""
        return inverse.mildest(self.question, self.legal) if self.answer is None else self.answer

    @property
    def sets(self) -> tuple[str, ...]:
        """`a.b=VALUE` texts that make the scenario the answer's; empty where no line can say its island."""
        before, after = self.scenario, self.prediction.scenario
        found = moves.plan_fields(before.plan, after.plan)
        texts = []
        if self.question is GPUS:
            found |= {"dp_shard": f"{float(after.plan.dp_shard):.15g}"}
        if self.question is MICRO_BATCH:
            found |= {"micro_batch": f"{self.value:.15g}"}
        if self.question is SEQ:
            texts.append(f"run.seq_len={self.value:.15g}")
        texts = [*(f"plan.{name}={value}" for name, value in found.items()), *texts]
        resolved = any(text.startswith("global_batch =") for text in before.assumptions)
        if not batch_unsaid(before) and (resolved or self.question is SEQ):
            texts.append(f"run.global_batch={float(after.run.global_batch):.15g}")
        island = after.fleet.islands[0]
        if island != before.fleet.islands[0]:
            line = moves.island_text(island, moves.catalog_row(island.accelerator))
            return () if line is None else (*texts, f"fleet.islands.0={line}")
        return tuple(texts)

    def to_dict(self) -> dict[str, Any]:
        """The `solve` JSON: SI units as each key says, fractions for shares, null where there is no answer."""
        at = self.prediction.to_dict()
        said, warned = at.pop("assumptions"), at.pop("warnings")
        value, step, rate = self.fastest or (None, None, None)
        fastest = {"value": value, "step_time_s": step, "tokens_per_s": rate} if self.fastest else None
        return {
            "question": self.question.name,
            "answer": self.answer,
            "unit": self.question.unit,
            "fits_probability": at["fits_probability"],
            "answer_by_probability": [
                {"probability": chance, "answer": one} for chance, one in zip(CHANCES, self.likely, strict=True)
            ],
            "rounded": inverse.rounded(self.legal, self.answer) if self.answer and self.question is SEQ else None,
            "fastest": fastest,
            "legal": {
                "says": self.legal.says,
                "values": None if self.legal.values is None else list(self.legal.values),
            },
            "binding": self._binding(),
            "neighbours": [self._neighbour(row) for row in self.neighbours],
            "at": {"value": self.value, **at},
            "set": list(self.sets),
            "assumptions": [*self._not_overruled(said), *self.question.kept(self.scenario), *self._part_of_a_node()],
            "warnings": [*self._beginning(), *self._not_overruled(warned), *self._beyond_context()],
        }

    def _not_overruled(self, texts: list[str]) -> list[str]:
        return [text for text in texts if not text.startswith(self.question.forgets)]

    def _part_of_a_node(self) -> list[str]:
        node = moves.node_size(self.scenario.fleet.islands[0])
        if self.question is not GPUS or self.value >= node:
            return []
        return [
            f"{inverse.counted(self.value, 'GPUs')} of a node of {node:g}: what is rented may come in whole nodes only"
        ]

    def _beginning(self) -> list[str]:
        """What the scenario broke as it was given: the answer keeps the rule."""
        asked = self.question
        return [
            f"as given, {one.says} ({one.rule}): the {asked.noun} of the scenario is not used, only legal ones are compared"
            for one in inverse.broken(self.scenario, asked.begins)
        ]

    def _beyond_context(self) -> list[str]:
        model = self.scenario.model
        if self.question is not SEQ or model.positions == "learned" or not 0.0 < model.context < self.value:
            return []
        says = f"seq_len = {self.value:g} is beyond the context of {model.name}, {float(model.context):g}"
        return [f"{says}: speed and memory are predicted, what it learns is not"]

    def _neighbour(self, row: Row) -> dict[str, Any]:
        value, scenario, e = row
        peak, limit, rate = float(e.memory_peak), float(e.memory_limit), float(e.tokens) / float(e.step_time)
        return {
            "value": value,
            "fits": peak <= limit,
            "fits_probability": trust.fits_probability(scenario, peak, limit, float(e.memory_exact)),
            "memory_peak_gib": peak / GIB,
            "share_of_limit": peak / limit,
            "step_time_s": float(e.step_time),
            "tokens_per_s": rate,
            "tokens_per_s_per_gpu": rate / float(e.gpus),
        }

    def _binding(self) -> dict[str, Any]:
        """What keeps the answer where it is: the terms of memory that grow to the next legal value, or that there is none."""
        here = self.prediction.estimate
        value, there = self.further or (None, None)
        if self.answer is None:
            value, there = None, None
        terms = []
        for position, term in enumerate(here.memory):
            after = None if there is None else float(there.memory[position].size) / GIB
            terms.append({"term": term.label, "gib": float(term.size) / GIB, "next_gib": after})
        terms.sort(key=_growth, reverse=True)
        return {
            "cause": "memory" if self.answer is None or there is not None else "legal values",
            "term": terms[0]["term"] if self.answer is None or there is not None else None,
            "next": value,
            "next_peak_gib": None if there is None else float(there.memory_peak) / GIB,
            "limit_gib": float(here.memory_limit) / GIB,
            "terms": terms,
            "says": self._says(terms),
        }

    def _says(self, terms: list[dict[str, Any]]) -> str:
        here, noun, unit = self.prediction.estimate, self.question.noun, self.question.unit
        peak, limit = float(here.memory_peak) / GIB, float(here.memory_limit) / GIB
        whole = plain_sum(_growth(one) for one in terms if _growth(one) > 0.0)
        grown = [one for one in terms if _growth(one) >= NAMED * whole]
        if self.answer is None:
            parts = ", ".join(f"{one['term']} {one['gib']:.2f} GiB" for one in grown)
            need = "needs" if self.value == 1 else "need"
            return f"even {inverse.counted(self.value, unit)} {need} {peak:.2f} of {limit:.2f} GiB: {parts}"
        if self.further is None:
            least = "smaller" if self.question.fewest else "larger"
            return f"no {least} {noun} is legal; {limit - peak:.2f} GiB of {limit:.2f} are left"
        value, there = self.further
        after = float(there.memory_peak) / GIB
        parts = ", ".join(f"{one['term']} +{_growth(one):.2f} GiB" for one in grown)
        need = "needs" if value == 1 else "need"
        return (
            f"{inverse.counted(value, unit)} {need} {after:.2f} GiB, {after - limit:.2f} more than there are: {parts}"
        )


def _growth(term: dict[str, Any]) -> float:
    """GiB that a term gains to the next legal value; where nothing is next, all of it."""
    return float(term["gib"]) if term["next_gib"] is None else float(term["next_gib"] - term["gib"])


def solve(name: str, scenario: Scenario) -> Solution:
    """Answer an inverse question: `micro-batch`, `seq` or `gpus`. That nothing fits is an answer: `answer` is None.

    Raises UnknownName for another question, ShardMeterError for what cannot be answered. Leaves out: changes of the plan beyond
    the number that is asked for and what follows from it."""
    question = QUESTIONS.get(name)
    if question is None:
        raise UnknownName("question", str(name), QUESTIONS)
    if len(scenario.fleet.islands) > 1:
        raise _several(question, scenario)
    legal, limit = question.legal(scenario), inverse.memory_limit(scenario)
    within = [trust.peak_within(scenario, limit, chance) for chance in CHANCES]
    limits = np.array([limit, *(-math.inf if one is None else one for one in within)])
    answer, *likely = inverse.search(question, scenario, legal, limits)
    value = inverse.mildest(question, legal) if answer is None else answer
    placed = inverse.placed(question, scenario, value)
    estimate = evaluate(placed.model, placed.fleet.islands[0], placed.plan, placed.run, placed.stack)
    further = inverse.beyond(question, legal, value)
    fastest = None if question is not MICRO_BATCH or answer is None else _fastest(scenario, legal, answer)
    around = {*inverse.neighbours(legal, value), value, *([fastest[0]] if fastest else ())}
    rows = inverse.evaluated(question, scenario, np.array(sorted(around | ({further} if further else set()))))
    next_one = next(((one, e) for one, _, e in rows if one == further), None)
    return Solution(
        question=question, scenario=scenario, legal=legal, answer=answer, likely=tuple(likely),
        prediction=Prediction(scenario=placed, whole=alone(placed.fleet.islands[0], placed.plan, placed.run, estimate)), further=next_one, neighbours=tuple(rows), fastest=fastest,
    )  # fmt: skip


def _several(question: Question, scenario: Scenario) -> BadScenario:
    """Why there is no answer for several islands, and what has it: each has its own largest value."""
    first = scenario.fleet.islands[0].name
    field = {MICRO_BATCH.name: "plan.micro_batch=1..16", SEQ.name: "run.seq_len=2048..65536:x2"}.get(
        question.name, f"fleet.islands.{first}.nodes=1..64:x2"
    )
    says = f"{question.name} is answered for one island, and there are {len(scenario.fleet.islands)}, which share one batch"
    way_out = f"shardmeter sweep … --over {field} tells which values fit on all of them; or ask about an island in a file of its own"
    return BadScenario(f"{scenario.name}: 1 problem", [Violation(field="fleet.islands", says=says, way_out=way_out)])


def _fastest(scenario: Scenario, legal: Legal, answer: float) -> tuple[float, float, float]:
    """(value, seconds a step, tokens/s) of the micro-batch with most tokens a second among those that fit."""
    if legal.values is not None:
        values = np.array(legal.values)
    else:
        values = np.unique(np.floor(np.geomspace(1.0, answer, COMPARED)))
    laid = MICRO_BATCH.laid(scenario, values)
    e = evaluate(laid.model, laid.fleet.islands[0], laid.plan, laid.run, laid.stack)
    fits = np.broadcast_to(np.asarray(e.memory_peak) <= e.memory_limit, values.shape)
    step = np.broadcast_to(np.asarray(e.step_time), values.shape)
    rate = np.broadcast_to(np.asarray(e.tokens), values.shape) / step
    best = int(np.argmax(np.where(fits, rate, 0.0)))
    return float(values[best]), float(step[best]), float(rate[best])
