"""The search finds what trying every plan alone finds: 200 drawn spaces, 5 larger ones, cut and shared out in any way."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.constraints import violations
from shardmeter.engine.evaluate import evaluate
from shardmeter.scenario import load
from shardmeter.specs import Choices, Plan, Scenario
from shardmeter.study.course.dollars import cost
from shardmeter.study.course.energy import joules
from shardmeter.study.planning import block
from shardmeter.study.planning.objective import duration
from shardmeter.study.planning.plans import Plans, plan

QUESTIONS = {
    ("llama-3.2-1b", 8): 64, ("llama-3.1-8b", 16): 64, ("olmoe-1b-7b", 8): 128, ("llama-3.1-8b", 8): 48,
}  # fmt: skip
"""(model, GPUs) → sequences of a step."""


def scenario(model: str, gpus: int, batch: int, device: str = "H100-SXM5-80GB") -> Scenario:
    """A question with a price and a length."""
    options = {"model": model, "gpus": f"{gpus}x{device}", "seq": 2048, "global_batch": batch, "tokens": "10B"}
    return load(None, options={**options, "price": "$2/gpu/h", "plan": "auto"}, planning=True)


ASKED = {key: scenario(*key, batch) for key, batch in QUESTIONS.items()}


def narrowed(asked: Scenario, pins: dict[str, tuple[Any, ...]], **limits: Any) -> Scenario:
    assert asked.choices is not None
    return changed(asked, choices=changed(asked.choices, plan=pins, **limits))


def every(asked: Scenario, pins: dict[str, tuple[Any, ...]]) -> list[tuple[Plan, float, float, float]]:
    """Every legal plan of the product of the pins that fits, alone: plan, seconds of the run, dollars, joules."""
    found = []
    island = asked.fleet.islands[0]
    assert asked.choices is not None
    run = changed(asked.run, global_batch=asked.choices.global_batch[0][0])
    for values in itertools.product(*pins.values()):
        said = dict(zip(pins, values, strict=True))
        inner = said["tp"] * said["pp"] * said["cp"] * said["dp_replicate"]
        if island.gpus % inner:
            continue
        if said["pp"] == 1 and said["virtual_stages"] > 1:
            continue
        if not said["reshard"] and True in pins["reshard"] and island.gpus == inner and said["cp"] == 1:
            continue  # nothing is sharded: the same plan again
        made = changed(asked.plan, **{**said, "pp": int(said["pp"]), "virtual_stages": int(said["virtual_stages"])})
        made = changed(
            made, dp_shard=float(island.gpus / inner), schedule="1f1b" if said["pp"] == 1 else said["schedule"]
        )
        if violations(asked.model, island, made, run, asked.stack):
            continue
        one = evaluate(asked.model, island, made, run, asked.stack)
        if one.memory_peak <= one.memory_limit:
            lasts = float(duration(run, one.step_time, one.tokens))
            busy = float(one.compute_seconds / one.step_time)
            paid, drawn = cost(island, lasts, busy), joules(island, lasts, busy)
            found.append((made, lasts, float(paid or 0.0), float(drawn or 0.0)))
    return found


def check(asked: Scenario, pins: dict[str, tuple[Any, ...]]) -> Plans | None:
    """The search over some pins against every plan alone."""
    alone = every(asked, pins)
    open_ = narrowed(asked, pins)
    try:
        found = plan(open_, top=5)
    except BadScenario:
        assert alone == []
        return None
    assert (found.best is None) == (alone == [])
    if found.best is None:
        assert found.miss is not None
        assert not found.miss.prediction.fits
        return found
    best = min(seconds for _, seconds, _, _ in alone)
    assert min(one.value for one in found.ranked) == pytest.approx(best, rel=1e-12)
    assert found.best.value <= best * 1.01 * (1.0 + 1e-9)
    assert found.front[0].value == pytest.approx(best, rel=1e-12)
    within = sorted({round(seconds / best, 9) for _, seconds, _, _ in alone})
    assert {round(one.value / best, 9) for one in found.ranked} <= set(within), (
        "figures are those of plans of the space"
    )
    assert found.tally.evaluated == found.tally.feasible + sum(found.tally.rejected.values())
    return found


degree = st.sampled_from([(1.0,), (1.0, 2.0), (2.0, 4.0), (1.0, 8.0)])
PINS = st.fixed_dictionaries(
    {
        "tp": degree,
        "pp": st.sampled_from([(1.0,), (1.0,), (2.0,), (1.0, 2.0), (4.0,)]),
        "cp": st.sampled_from([(1.0,), (1.0, 2.0), (2.0,)]),
        "dp_replicate": st.sampled_from([(1.0,), (1.0, 2.0)]),
        "ep": st.just((1.0,)),
        "etp": st.just((1.0,)),
        "micro_batch": st.sampled_from([(1.0,), (1.0, 2.0, 4.0), (2.0, 3.0), (8.0,)]),
        "sharding": st.sampled_from([("fsdp",), ("ddp",), ("zero1", "fsdp"), ("zero2",)]),
        "reshard": st.sampled_from([(True,), (False,)]),
        "recompute": st.sampled_from([("none",), ("full",), ("none", "selective")]),
        "schedule": st.sampled_from([("1f1b",), ("gpipe",), ("interleaved",), ("zb-h1",), ("zb-v",)]),
        "virtual_stages": st.sampled_from([(1.0,), (2.0,)]),
    }
)


@settings(max_examples=60, derandomize=True, database=None)
@given(key=st.sampled_from(sorted(QUESTIONS)), pins=PINS, expert=st.sampled_from([1.0, 2.0, 8.0]))
def test_the_best_of_a_space_is_the_best_of_its_plans(
    key: tuple[str, int], pins: dict[str, tuple[Any, ...]], expert: float
) -> None:
    if "olmoe" in key[0]:
        pins = {**pins, "ep": (1.0, expert) if expert > 1.0 else (1.0,)}
    check(ASKED[key], pins)


WIDE: dict[str, tuple[Any, ...]] = {
    "tp": (1.0, 2.0, 4.0, 8.0), "pp": (1.0, 2.0), "cp": (1.0, 2.0), "dp_replicate": (1.0, 2.0), "ep": (1.0,), "etp": (1.0,),
    "micro_batch": (1.0, 2.0, 4.0), "sharding": ("fsdp",), "reshard": (True, False), "recompute": ("none", "full"),
    "schedule": ("1f1b",), "virtual_stages": (1.0,),
}  # fmt: skip
LARGER: tuple[tuple[str, int, dict[str, tuple[Any, ...]]], ...] = (
    ("llama-3.1-8b", 16, {}),
    ("llama-3.1-8b", 8, {"schedule": ("interleaved",), "virtual_stages": (1.0, 2.0, 4.0), "reshard": (True,)}),
    ("olmoe-1b-7b", 8, {"ep": (1.0, 2.0, 4.0, 8.0), "pp": (1.0,)}),
    ("llama-3.2-1b", 8, {"sharding": ("ddp", "zero1", "zero2"), "reshard": (True,), "dp_replicate": (1.0,)}),
    ("llama-3.2-1b", 8, {"schedule": ("zb-h1", "dualpipe"), "pp": (2.0, 4.0), "virtual_stages": (1.0, 2.0)}),
)


@pytest.mark.parametrize(("model", "gpus", "pins"), LARGER)
def test_the_best_of_larger_spaces(model: str, gpus: int, pins: dict[str, tuple[Any, ...]]) -> None:
    found = check(ASKED[model, gpus], {**WIDE, **pins})
    assert found is not None
    assert found.tally.evaluated > 40


def test_the_front_is_that_of_all_plans() -> None:
    """Two sizes, so that time and cost disagree: nothing beats a member, and everything else is beaten."""
    sizes = [scenario("llama-3.2-1b", gpus, 64) for gpus in (2, 4, 8)]
    pins = {**WIDE, "pp": (1.0,), "cp": (1.0,), "tp": (1.0, 2.0)}
    choices = sizes[0].choices
    assert choices is not None
    islands = tuple(one.fleet.islands[0] for one in sizes)
    asked = changed(sizes[0], choices=changed(choices, islands=islands, plan=pins, said=()))
    found = plan(asked, objectives=("time", "cost"), top=3)
    all_ = [(seconds, dollars) for one in sizes for _, seconds, dollars, _ in every(one, pins)]
    best = {point for point in all_ if not any(o[0] <= point[0] and o[1] <= point[1] and o != point for o in all_)}
    members = {(one.value, float(cost(one.scenario.fleet.islands[0], one.value, 1.0) or 0.0)) for one in found.front}
    assert len(members) > 1
    assert sorted(members) == [pytest.approx(point, rel=1e-12) for point in sorted(best)]


def test_how_a_space_is_cut_and_shared_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = narrowed(ASKED["llama-3.1-8b", 16], {"pp": (1.0, 2.0), "recompute": ("none", "full")})
    one = plan(asked, objectives=("time", "throughput"))
    shared = plan(asked, objectives=("time", "throughput"), processes=2)
    monkeypatch.setattr(block, "BLOCK", 64)
    monkeypatch.setattr(block, "WORTH", 3)
    small = plan(asked, objectives=("time", "throughput"))
    for other in (shared, small):
        assert other.tally.rejected == one.tally.rejected
        assert (other.tally.evaluated, other.tally.feasible) == (one.tally.evaluated, one.tally.feasible)
        for name in ("ranked", "front"):
            mine, theirs = getattr(one, name), getattr(other, name)
            assert [row.document for row in mine] == [row.document for row in theirs]
            assert [row.value for row in mine] == [pytest.approx(row.value, rel=1e-12) for row in theirs]


def test_limits_rule_out_what_breaks_them() -> None:
    asked = ASKED["llama-3.2-1b", 8]
    pins = {**WIDE, "pp": (1.0,)}
    alone = sorted(seconds for _, seconds, _, _ in every(asked, pins))
    deadline = alone[len(alone) // 2]
    found = plan(narrowed(asked, pins, deadline=deadline))
    assert found.tally.feasible == sum(1 for seconds in alone if seconds <= deadline * (1.0 + 1e-12))
    assert found.tally.rejected[block.LATE] == len(alone) - found.tally.feasible
    none = plan(narrowed(asked, pins, deadline=alone[0] / 3.0))
    assert none.best is None
    assert none.miss is not None
    assert none.miss.value == pytest.approx(alone[0], rel=1e-12)
    assert math.isclose(none.tally.miss[1], 3.0, rel_tol=1e-9)  # type: ignore[index]


def test_choices_of_one_plan_are_that_plan() -> None:
    pins = {name: values[:1] for name, values in WIDE.items()}
    found = plan(narrowed(ASKED["llama-3.1-8b", 16], pins))
    assert found.tally.evaluated == 1
    assert isinstance(found.space.choices, Choices)
