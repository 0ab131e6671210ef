"""Laws of comparisons: nothing differs from itself, B against A is A against B with the other sign, differences and shares sum."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.study.diff import Difference, figures

ROOT = Path(__file__).parents[2] / "examples"
ONE = str(ROOT / "llama-8b-64xh100.yaml")
CLOUDS = str(ROOT / "three-clouds-money.yaml")
PAIRS: dict[str, tuple[str, str | None, list[str]]] = {
    "a degree": (ONE, None, ["plan.tp=4"]),
    "another model, fleet, plan and run": (ONE, str(ROOT / "llama-70b-tp8-pp4.yaml"), []),
    "a fleet with a plan of its own": (
        ONE, None, ["fleet.islands.0.nodes=4", "plan.dp_shard=32", "model=llama-3.2-1b", "stack=megatron-core"],
    ),
    "interrupted": (ONE, None, ["run.failures=llama-3-405b", "run.tokens=500B", "fleet.islands.0.price=$3/gpu/h"]),
    "clouds": (CLOUDS, None, ["plan.sync.sync_every=20", "fleet.islands.iowa.spot=false", "run.tokens=100B"]),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(PAIRS.values()), ids=list(PAIRS))
def both(request: pytest.FixtureRequest) -> tuple[Difference, Difference]:
    """A pair, and the same the other way round."""
    a, b, more = request.param
    one = shardmeter.diff(a, b, overrides_b=more)
    from shardmeter.study.diff import difference, sides
    from shardmeter.study.planning.automatic import settled

    read = sides(a, b or a, (), more, settle=settled)
    return one, difference(*reversed(read))


@pytest.mark.parametrize("path", [ONE, CLOUDS])
def test_nothing_differs_from_itself(path: str) -> None:
    answer = shardmeter.diff(path, path).to_dict()
    assert answer["equal"]
    assert answer["says"] == "No difference."
    assert answer["said"] == []
    assert answer["rules"] is None
    assert answer["attribution"]["groups"] == []
    assert {one["difference"] for one in answer["figures"] if one["difference"] is not None} == {0.0}


def test_the_other_way_round_has_the_other_sign(both: tuple[Difference, Difference]) -> None:
    there, back = (one.to_dict() for one in both)
    assert [(one["field"], one["a"], one["b"]) for one in there["said"]] == [
        (one["field"], one["b"], one["a"]) for one in back["said"]
    ]
    for one, other in zip(there["figures"], back["figures"], strict=True):
        assert one["difference"] is None or one["difference"] == -other["difference"]
    for name, ledger in there["ledgers"].items():
        backward = {one["term"]: one["difference"] for one in back["ledgers"][name]["terms"]}
        assert {one["term"]: -one["difference"] for one in ledger["terms"]} == backward
    assert there["attribution"]["groups"] == back["attribution"]["groups"]
    for figure, shares in there["attribution"]["shares"].items():
        for one, other in zip(shares, back["attribution"]["shares"][figure], strict=True):
            scale = max(abs(each["difference"]) for each in shares)
            assert one["difference"] == pytest.approx(-other["difference"], rel=1e-9, abs=1e-12 * scale)


def test_terms_sum_to_the_difference_of_their_figure(both: tuple[Difference, Difference]) -> None:
    answer = both[0].to_dict()
    told = {one["figure"]: one for one in answer["figures"]}
    assert {"step", "memory", "hours", "dollars", "electricity"} == set(answer["ledgers"])
    for ledger in answer["ledgers"].values():
        figure = told[ledger["figure"]]
        assert ledger["total"]["difference"] == figure["difference"]
        for side in ("a", "b"):
            assert math.fsum(one[side] for one in ledger["terms"]) == pytest.approx(figure[side], rel=1e-12)
        whole = math.fsum(one["difference"] for one in ledger["terms"])
        assert whole == pytest.approx(figure["difference"], abs=1e-12 * max(figure["a"], figure["b"]))


def test_tokens_step_and_interruptions_sum_to_the_wall_clock(both: tuple[Difference, Difference]) -> None:
    there, back = (one.to_dict()["wall_clock"] for one in both)
    whole = there["total"]
    assert math.fsum(one["difference"] for one in there["terms"]) == pytest.approx(
        whole["difference"], abs=1e-12 * max(whole["a"], whole["b"])
    )
    for one, other in zip(there["terms"], back["terms"], strict=True):
        assert (one["term"], one["a"], one["b"]) == (other["term"], other["b"], other["a"])
        assert one["difference"] == pytest.approx(-other["difference"], rel=1e-12)


@pytest.mark.parametrize(
    ("change", "term"),
    [("run.tokens=1T", "more tokens"), ("run.tokens=1B", "fewer tokens"), ("plan.recompute=full", "a longer step"),
     ("run.global_batch=1024", "less time a token"), ("run.failures={mtbf: 500 h, per: gpu}", "lost work")],
)  # fmt: skip
def test_what_rules_a_wall_clock(change: str, term: str) -> None:
    answer = shardmeter.diff(
        ONE, overrides=["run.tokens=100B", "run.checkpoint={every: 5 h}"], overrides_b=[change]
    ).to_dict()
    assert answer["rules"] == {
        "ledger": "wall_clock", "term": term, "difference": answer["rules"]["difference"], "of": answer["wall_clock"]["total"]["difference"]
    }  # fmt: skip
    assert answer["rules"]["difference"] * answer["rules"]["of"] > 0.0


def test_shares_sum_to_the_difference(both: tuple[Difference, Difference]) -> None:
    answer = both[0].to_dict()
    told = {one["figure"]: one for one in answer["figures"]}
    assert set(answer["attribution"]["shares"]) == {"step_time_s", "run.wall_clock_s", "run.cost_usd"}
    for figure, shares in answer["attribution"]["shares"].items():
        whole = math.fsum(one["difference"] for one in shares)
        assert whole == pytest.approx(told[figure]["difference"], rel=1e-9, abs=1e-12 * told[figure]["b"])


def test_what_changes_no_price_is_not_charged_to_prices(both: tuple[Difference, Difference]) -> None:
    shares = both[0].to_dict()["attribution"]["shares"]
    priced = [one["difference"] for one in shares["step_time_s"] if one["group"] == "prices"]
    assert priced in ([], [0.0])


def test_parts_that_are_only_legal_together_are_changed_together() -> None:
    a, b, more = PAIRS["a fleet with a plan of its own"]
    found = shardmeter.diff(a, b, overrides_b=more).to_dict()["attribution"]
    assert ["fleet", "plan"] in found["groups"]
    assert all(("plan" in one["from_b"]) != ("fleet" in one["from_b"]) for one in found["illegal"])
    assert "64 GPUs" in found["illegal"][0]["why"]


def test_one_part_alone_makes_all_of_it() -> None:
    answer = shardmeter.diff(ONE, overrides_b=["plan.tp=4"]).to_dict()
    assert answer["attribution"]["groups"] == [["plan"]]
    derived = [one["field"] for one in answer["said"] if one["follows"]]
    assert derived == []
    follows = shardmeter.diff(ONE, overrides_b=["fleet.islands.0.nodes=4"]).to_dict()
    assert [one["field"] for one in follows["said"] if one["follows"]] == [
        "fleet.islands.cluster.tiers.ib-ndr400.size", "plan.dp_shard",
    ]  # fmt: skip
    assert follows["attribution"]["groups"] == [["fleet"]]


def test_records_and_files_are_one_question() -> None:
    a = shardmeter.load(ONE)
    b = changed(a, plan=changed(a.plan, recompute="full"))
    said, made = shardmeter.diff(ONE, overrides_b={"plan.recompute": "full"}), shardmeter.diff(a, b)
    for one, other in zip(said.to_dict()["figures"], made.to_dict()["figures"], strict=True):
        assert one == other
    assert said.to_dict()["attribution"] == made.to_dict()["attribution"]


def test_terms_of_one_name_are_one_term_and_what_only_one_has_is_nothing_in_the_other() -> None:
    def run(cost: float | None, *terms: tuple[str, float]) -> dict[str, Any]:
        return {"run": {"cost_usd": cost, "cost_terms": [{"term": name, "usd": usd} for name, usd in terms]}}

    found = figures.ledgers(run(6.0, ("rent", 1.0), ("store", 2.0), ("store", 3.0)), run(4.0, ("rent", 4.0)))
    assert found["dollars"]["terms"] == [
        {"term": "rent", "a": 1.0, "b": 4.0, "difference": 3.0},
        {"term": "store", "a": 5.0, "b": 0.0, "difference": -5.0},
    ]
    assert figures.ruling(found) == {"ledger": "dollars", "term": "store", "difference": -5.0, "of": -2.0}
    assert figures.ledgers(run(6.0, ("rent", 6.0)), run(None, ("rent", 1.0))) == {}
