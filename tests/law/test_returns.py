"""The curve of `returns`: its points are predictions, its knee is where the rule says, what is next is two predictions."""

import itertools
import math
from pathlib import Path

import pytest

import shardmeter
from shardmeter.study.returns.knee import CLOSE, HALF, knee_of_number, knee_of_sizes
from shardmeter.study.returns.spans import LEAST, At, lost, ruling, spans, word

EXAMPLES = Path(__file__).parents[2] / "examples"
LLAMA, CLOUDS, HOMES = (
    str(EXAMPLES / f"{name}.yaml") for name in ("llama-8b-64xh100", "three-clouds-70b", "home-workers")
)
K = 37.0


def saturating(n):
    """A rate whose slope on log-log paper is 1/(1 + n/K): a half at n = K."""
    return n / (1.0 + n / K)


def every(place, until):
    return place + 1.0 if place + 1.0 <= until else None


def test_the_knee_of_a_known_curve():
    """With unit steps (K n + K n/(n + 1 + K)… < half) the first whole number past it, found between points 32 and 64."""
    past = [n for n in range(1, 200) if saturating(n + 1) - saturating(n) < HALF * saturating(n) / n]
    found = knee_of_sizes(saturating, float, every, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    assert found is not None
    assert (found.place, found.before, found.at_start) == (past[0], past[0] - 1.0, False)
    assert found.of_average == pytest.approx(
        (saturating(found.place + 1) - saturating(found.place)) / (saturating(found.place) / found.place)
    )


def test_the_knee_of_a_known_number():
    found = knee_of_number(saturating, [K * 2.0**power for power in range(-4, 5)])
    assert found is not None
    assert found.place == pytest.approx(K, rel=1e-3)  # the slope is taken over a hair, not at a point
    assert found.before is not None
    assert found.place / found.before - 1.0 <= CLOSE
    assert found.of_average < HALF


def test_flat_stretches_of_a_stair_are_no_knee():
    """A fixed batch of 960 over n machines takes ceil(960/n) passes: flat stretches long before machines stop paying."""

    def rate(n):
        return 960.0 / (math.ceil(960.0 / n) + 4.0)

    points = [15.0, 30.0, 60.0, 120.0, 240.0, 480.0]
    assert rate(49.0) == rate(50.0)
    found = knee_of_sizes(rate, float, every, points)
    assert found is not None
    assert 120.0 < found.place <= 240.0


@pytest.mark.parametrize("last", [62.0, 70.0, 76.0])
def test_where_the_curve_ends_is_no_knee(last):
    """224 passes over n islands and what 30 of them take: from 56 (4 passes each) the next stair, at 75, buys over half, and so on at
    every end of a curve below the knee, which is 112 (2 passes) by every step up to twice the size."""

    def rate(n):
        return 1.0 / (math.ceil(224.0 / n) + 1.5)

    def best(n):
        return max((rate(m) - rate(n)) / (m - n) / (rate(n) / n) for m in range(n + 1, 2 * n + 1))

    assert best(56) >= HALF
    assert best(112) < HALF
    assert knee_of_sizes(rate, float, every, [14.0, 20.0, 38.0, 56.0, last]) is None
    found = knee_of_sizes(rate, float, every, [14.0, 38.0, last, 112.0])
    assert found is not None
    assert (found.before, found.place) == (111.0, 112.0)


def test_curves_without_a_knee():
    assert knee_of_sizes(float, float, every, [1.0, 2.0, 4.0]) is None
    assert knee_of_number(lambda x: x**0.6, [1.0, 2.0]) is None
    flat = knee_of_number(lambda _: 5.0, [1.0, 2.0])
    assert flat is not None
    assert flat.at_start


def test_legal_sizes_alone_count():
    """Where a size is legal only as a power of two, the next unit is the next of those."""
    legal = [2.0**power for power in range(11)]

    def following(place, until):
        return next((one for one in legal if place < one <= until), None)

    found = knee_of_sizes(lambda n: saturating(n) if n in legal else None, float, following, legal)
    assert found is not None
    slopes = {a: (saturating(b) - saturating(a)) / (b - a) / (saturating(a) / a) for a, b in itertools.pairwise(legal)}
    assert found.place == next(n for n in legal if slopes[n] < HALF)
    assert found.next_place == 2.0 * found.place


def test_what_is_lost_adds_up():
    """The parts of x-seconds a token are all that the efficiency loses; spans of one word and one regime are one."""
    points = [
        At(x=x, rate=x / (1.0 + x / K), seconds={"compute": 1.0 / x, "WAN": 1.0 / K}) for x in (1.0, 2.0, 64.0, 512.0)
    ]
    parts = lost(points[0], points[-1])
    assert sum(parts.values()) == pytest.approx(points[-1].x / points[-1].rate - points[0].x / points[0].rate)
    assert ruling(parts) == ("WAN", 1.0)
    made = spans(points)
    assert [one["returns"] for one in made] == [
        "linear",
        "diminishing" if made[1]["exponent"] >= 0.5 else "steeply diminishing",
        word(made[-1]["exponent"]),
    ]
    assert [word(least) for least, _ in LEAST[:-1]] == [name for _, name in LEAST[:-1]]


@pytest.fixture(scope="module")
def clouds():
    return shardmeter.returns(
        CLOUDS, "fleet.islands.oregon.nodes", over={"fleet.islands.oregon.nodes": [12, 16, 64]}
    ).to_dict()


@pytest.fixture(scope="module")
def fabric():
    return shardmeter.returns(LLAMA, "fabric").to_dict()


@pytest.mark.parametrize("curve", ["clouds", "fabric"])
def test_points_are_predictions_bit_for_bit(curve, request):
    answer = request.getfixturevalue(curve)
    for point in [one for one in answer["points"] if not one["why"]][:: 1 if curve == "clouds" else 4]:
        said = {field: value for field, value in point["set"].items() if value is not None}
        told = shardmeter.predict(CLOUDS if curve == "clouds" else LLAMA, overrides=said).to_dict()
        for name in ("tokens_per_s", "tokens_per_s_per_gpu", "mfu", "step_time_s", "gpus", "fits"):
            assert point[name] == told[name]
        assert point["wall_clock_s"] == told["run"]["wall_clock_s"]
        assert point["cost_usd"] == told["run"]["cost_usd"]
        assert point["usd_per_1e9_tokens"] == told["run"]["cost_usd"] / told["run"]["tokens"] * 1e9
        for name in ("tokens_per_s", "step_time_s", "wall_clock_s", "cost_usd"):
            assert point["intervals"][name] == pytest.approx(told["intervals"][name])


def test_the_next_unit_is_two_predictions(clouds):
    """Of every axis: the next island of each kind, 1 Gbit/s, the next node."""
    entries = {one["axis"]: one for one in clouds["next"]}
    assert set(entries) == {
        "gpus",
        "fabric",
        "wan",
        *(f"fleet.islands.{name}.count" for name in ("oregon", "iowa", "virginia")),
        "fleet.islands.oregon.nodes",
    }
    for axis, sets in (
        ("fleet.islands.oregon.nodes", {"fleet.islands.0.nodes": 17}),
        ("fleet.islands.iowa.count", {"fleet.islands.1.count": 2}),
    ):
        before, after = shardmeter.predict(CLOUDS).to_dict(), shardmeter.predict(CLOUDS, overrides=sets).to_dict()
        assert entries[axis]["tokens_per_s"] == after["tokens_per_s"] - before["tokens_per_s"]
        assert entries[axis]["wall_clock_s"] == after["run"]["wall_clock_s"] - before["run"]["wall_clock_s"]
        assert entries[axis]["cost_usd"] == after["run"]["cost_usd"] - before["run"]["cost_usd"]


def test_a_marginal_price_counts_interruptions():
    """Two whole runs: dollars a second over tokens a second, as both are over their wall clock. More nodes that are taken away stop a
    fleet more often: the step is faster and the run is not, and nothing is said of the price of what is not won."""
    for name, falls in (("unreliable-diloco", False), ("unreliable-every-step", True)):
        path = str(EXAMPLES / f"{name}.yaml")
        answer = shardmeter.returns(path, over={"gpus": [64, 128, 256]}).to_dict()
        one = answer["next"][0]
        runs = [
            shardmeter.predict(path, overrides={"fleet.islands.zone.nodes": nodes}).to_dict()["run"] for nodes in (4, 8)
        ]
        tokens, dollars = ([run[key] / run["wall_clock_s"] for run in runs] for key in ("tokens", "cost_usd"))
        assert one["tokens_per_s"] > 0.0
        assert (tokens[1] < tokens[0]) is falls
        price = (dollars[1] - dollars[0]) / (tokens[1] - tokens[0]) * 1e9
        assert one["usd_per_1e9_tokens_marginal"] == (None if falls else pytest.approx(price))
        assert [point["run_tokens_per_s"] for point in answer["points"][1:]] == pytest.approx(tokens)
        assert any(
            ("the run makes most headway at 64 GPUs" if falls else "of these tokens/s are left") in one
            for one in answer["says"]
        )


def test_more_bandwidth_is_never_slower(fabric):
    rates = [point["tokens_per_s"] for point in fabric["points"]]
    assert rates == sorted(rates)
    wan = shardmeter.returns(str(EXAMPLES / "intellect-1.yaml"), over={"wan": "50Mbps..3200Mbps:x4"}).to_dict()
    rates = [point["tokens_per_s"] for point in wan["points"]]
    assert rates == sorted(rates)
    assert wan["knee"]["of_average"] < HALF


def test_the_knee_of_a_scenario_is_bracketed(fabric):
    """By independent predictions: the slope is above a half below the knee, under it beyond."""

    def slope(x):
        low, high = (
            shardmeter.predict(LLAMA, overrides={"fleet.islands.0.fabric.bandwidth": f"{at:.12g} B/s"}).tokens_per_s
            for at in (x, x * (1 + 1e-4))
        )
        return math.log(high / low) / math.log1p(1e-4)

    knee = fabric["knee"]
    assert slope(knee["after_x"] * 0.999) > HALF > slope(knee["x"] * 1.001)
    assert knee["x"] / knee["after_x"] - 1.0 <= CLOSE


def test_the_knee_among_islands_is_bracketed():
    """More and more homes: by independent predictions the rule fails one home earlier and holds at the knee."""
    field = "fleet.islands.home.count"
    knee = shardmeter.returns(HOMES, over={field: [94, 96]}).to_dict()["knee"]

    def best(count, *ahead):
        """The best of some steps ahead, over the average so far."""
        rates = {one: shardmeter.predict(HOMES, overrides={field: one}).tokens_per_s for one in (count, *ahead)}
        return max((rates[one] - rates[count]) / (one - count) / (rates[count] / count) for one in ahead)

    assert (knee["after_x"], knee["x"]) == (95.0, 96.0)
    assert best(95, 96) >= HALF > best(96, 97, 104, 128, 192, int(knee["next_x"])) == pytest.approx(knee["of_average"])


def test_a_point_that_is_illegal_is_there_with_its_reason():
    answer = shardmeter.returns(LLAMA, over={"gpus": [24, 64, 256]}).to_dict()
    assert [point["x"] for point in answer["points"]] == [24.0, 64.0, 256.0]
    assert "global_batch = 128 is no multiple" in answer["points"][0]["why"]
    assert answer["points"][0]["tokens_per_s"] is None
    assert answer["scaling"] == "strong"
    first = next(one for one in answer["next"] if one["axis"] == "gpus")
    assert (first["to"], first["skipped"]) == (128.0, 7)


def test_scaling_says_what_becomes_of_the_batch():
    batches = {}
    for scaling in ("strong", "weak"):
        answer = shardmeter.returns(LLAMA, over={"gpus": [32, 64]}, scaling=scaling).to_dict()
        batches[scaling] = [point["global_batch"] for point in answer["points"]]
        assert answer["scaling"] == scaling
    assert batches == {"strong": [128.0, 128.0], "weak": [64.0, 128.0]}
    options = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp"}
    follows, stays = (
        shardmeter.returns(over={"gpus": [32, 64]}, scaling=one, **options).to_dict() for one in ("", "strong")
    )
    assert (follows["scaling"], [point["global_batch"] for point in follows["points"]]) == ("weak", [32.0, 64.0])
    assert (stays["scaling"], [point["global_batch"] for point in stays["points"]]) == ("strong", [64.0, 64.0])


def test_an_open_plan_is_the_best_one_at_every_size():
    """Few plans, so that it is quick; each point is what the planner finds for its size."""
    pins = {
        "sharding": "auto",
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "micro_batch": "1,2",
        "recompute": "none,selective",
        "offload": "none",
    }
    asked = {
        "model": "llama-3.1-8b",
        "gpus": "16xH100-SXM5-80GB",
        "plan": pins,
        "run": {"seq_len": 4096, "global_batch": 256, "tokens": "10B"},
    }
    answer = shardmeter.returns(asked, over={"gpus": [8, 16]}).to_dict()
    for point in answer["points"]:
        best = shardmeter.plan({**asked, "gpus": f"{point['gpus']:g}xH100-SXM5-80GB"}, top=1).best
        assert best is not None
        assert point["tokens_per_s"] == shardmeter.predict(best.scenario).tokens_per_s
    assert "plan: auto" in " ".join(answer["held"])
    assert [one["axis"] for one in answer["next"]] == ["gpus"]
