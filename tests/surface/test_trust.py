"""Intervals: ordered, around the prediction, wider for what was never fitted, and in words where fitting is not sure."""

import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.render import prediction, terminal
from shardmeter.study import trust

OPTIONS = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "global_batch": 128}


def answer(overrides=(), **more):
    return shardmeter.predict(shardmeter.load(None, options={**OPTIONS, **more}, overrides=overrides)).to_dict()


def width(data):
    low, high = data["intervals"]["step_time_s"]
    return high / low


def test_low_and_high_stand_around_the_prediction():
    data = answer()
    intervals = data["intervals"]
    assert intervals["level"] == 0.9
    for key, value in (
        ("step_time_s", data["step_time_s"]),
        ("tokens_per_s", data["tokens_per_s"]),
        ("memory_peak_gib", data["memory"]["peak_gib"]),
    ):
        low, high = intervals[key]
        assert low <= value <= high
    assert 0 <= data["fits_probability"] <= 1


FLEET = {
    "model": "llama-3.1-8b", "stack": "titan-compile", "run": {"seq_len": 4096, "global_batch": 64, "steps": 1000},
    "fleet": {"islands": [{"name": name, "gpus": f"8x{gpu}"} for name, gpu in (("new", "H100-SXM5-80GB"), ("old", "A100-SXM4-80GB"))],
              "wan": {"default": {"bandwidth": "10 Gbit/s", "rtt": "40 ms"}}},
}  # fmt: skip


@pytest.mark.parametrize("method", ["every_step", "diloco", "async_local_sgd", "soma", "branch_train_merge"])
def test_rounds_and_runs_have_intervals_with_a_common_step_and_without(method):
    sync = {"method": method, **({"perturbations": 1} if method == "soma" else {})}
    data = shardmeter.predict({**FLEET, "plan": {"sharding": "fsdp", "sync": sync}}).to_dict()
    intervals = data["intervals"]
    assert (intervals["step_time_s"] is None) == (data["step_time_s"] is None) == (data["sync"]["pace"] == "own")
    for key, value in (("round_s", data["sync"]["round_s"]), ("wall_clock_s", data["run"]["wall_clock_s"])):
        low, high = intervals[key]
        assert low < value < high
    assert high / low == pytest.approx(intervals["tokens_per_s"][1] / intervals["tokens_per_s"][0])
    lines = [line for line in terminal.text(prediction.document(data)).splitlines() if "90 %" in line]
    for label in ("round", "wall clock"):
        assert any(line.strip().startswith(label) for line in lines)


def test_no_round_without_islands_and_no_wall_clock_of_a_run_that_was_not_asked():
    assert answer()["intervals"]["round_s"] is answer()["intervals"]["wall_clock_s"] is None


def test_a_stack_with_other_numbers_counts_as_not_fitted():
    fitted, changed_one = answer(), answer(overrides=["stack.launch_overhead=6 us"])
    assert width(changed_one) > width(fitted)
    assert any("not as it was fitted" in text for text in changed_one["warnings"])
    other = shardmeter.load(None, options=OPTIONS)
    for stack in (changed(other.stack, name="mine"), changed(other.stack, fitted_on="")):
        assert trust.footing(stack).stack == ""


def test_what_the_interval_rests_on_is_said():
    data = answer()
    assert data["intervals"]["basis"].startswith("titan-compile, ")
    assert any("11 rows only" in text for text in answer(stack="titan-eager")["warnings"])
    assert not any("fitted on" in text for text in answer(stack="aa-2023", gpus="64xA100-SXM4-80GB")["warnings"])
    elsewhere = answer(stack="aa-2023")["warnings"]
    assert any("A100-SXM4-80GB" in text and "H100-SXM5-80GB" in text for text in elsewhere)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4])
def test_three_verdicts(micro_batch):
    data = answer(plan=f"fsdp,micro_batch={micro_batch}", global_batch=64 * micro_batch)
    page = prediction.document(data)
    chance = data["fits_probability"]
    near = data["memory"]["peak_gib"] <= 1.1 * data["memory"]["limit_gib"]
    word = "Borderline" if 0.1 <= chance <= 0.9 and near else "Fits" if data["fits"] else "Does not fit"
    assert page.verdict.startswith(word)
    assert page.good == data["fits"]
    assert ("counted as" in page.verdict) == (word == "Borderline")


def test_an_estimate_far_above_the_limit_is_not_borderline():
    data = answer(plan="fsdp,micro_batch=1", global_batch=64)
    data |= {
        "fits": False,
        "fits_probability": 0.21,
        "memory": {**data["memory"], "peak_gib": 164.3, "limit_gib": 80.0},
    }
    page = prediction.document(data)
    assert page.verdict.startswith("Does not fit by this estimate (a chance of 21 % that it does): needs 164.3 GiB")
    assert not page.good
    data["memory"]["peak_gib"] = 87.9
    assert prediction.document(data).verdict.startswith("Borderline: 87.9 of 80.0 GiB")


def test_the_three_verdicts_all_occur():
    words = {
        prediction.document(answer(plan=plan, global_batch=768)).verdict.split()[0]
        for plan in ("fsdp", "fsdp,recompute=selective,micro_batch=3", "fsdp,micro_batch=12")
    }
    assert words == {"Fits:", "Borderline:", "Does"}


def test_the_page_shows_the_interval():
    text = terminal.text(prediction.document(answer()))
    assert "90 %: " in text
    assert "Interval: titan-compile, " in text


def test_tensor_parallelism_beyond_the_domain_is_warned_of_and_never_advised():
    wide = answer(plan="fsdp,tp=16", model="llama-3.1-70b")
    assert any("wider than the scale-up domain" in text for text in wide["warnings"])
    inside = answer(plan="fsdp,tp=8", model="llama-3.1-70b")
    assert not any("wider" in text for text in inside["warnings"])
    assert not any("plan.tp=16" in text for one in inside["bottleneck"]["relief"] for text in one["set"])


def test_a_price_is_missed_only_where_a_run_is_asked():
    assert not any("price" in text for text in answer()["warnings"])
    assert any("price" in text for text in answer(tokens="1T")["warnings"])


def test_more_stages_than_micro_batches_is_said_where_no_batch_was():
    options = {"model": "llama-3.1-70b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,tp=4,pp=8"}

    def warned(**more):
        texts = shardmeter.predict(shardmeter.load(None, options={**options, **more})).to_dict()["warnings"]
        return any("micro-batches" in text for text in texts)

    assert warned()
    assert not warned(global_batch=64)
