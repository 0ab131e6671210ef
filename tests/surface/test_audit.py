"""`audit`: the keys that scripts rely on, exit codes, claims that cannot be read; what agrees stays so, and one wrong number is found."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.audit import factors, limits
from shardmeter.study.audit.conventions import CONVENTIONS, COUNTS, counted
from shardmeter.study.audit.identities import IDENTITIES
from shardmeter.study.audit.quantities import ALL, INNER, QUANTITIES, quantity_of

KEYS = {
    "version", "data_date", "assumptions", "warnings", "verdict", "consistent", "claims", "implied", "findings", "convention", "seq_len",
    "implied_mfu", "claimed_mfu", "conventions", "peaks", "predicted", "figures",
}  # fmt: skip
CLAIM = {
    "claim", "says", "text", "value", "unit", "status", "implied", "implied_range", "ratio", "from", "through", "integer", "causes", "would_be",
}  # fmt: skip
RUN = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB"}


@pytest.fixture
def run(capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def claims(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--claim", text)]


def test_json_csv_and_exit_codes(run):
    code, out, _ = run(*claims("mfu=45%", "tokens_per_s_per_gpu=8000"), *("--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"), "--format", "json")  # fmt: skip
    answer = json.loads(out)
    assert code == 0
    assert set(answer) == KEYS
    assert all(set(one) == CLAIM for one in answer["claims"])
    assert {row["key"] for row in answer["conventions"]} <= {one.key for one in CONVENTIONS}
    assert {one["claim"] for one in answer["predicted"]} == {"mfu", "tokens_per_s_per_gpu"}
    assert answer["figures"][0]["slug"] == "conventions"
    code, out, _ = run(*claims("global_batch=8", "micro_batch=2", "accumulation=1", "gpus=1"), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 1
    assert [row["cause"] != "" for row in rows] == [False, False, False, True]
    assert run(*claims("mfu=104%", "accelerator=H100-SXM5-80GB"))[0] == 1
    assert run(*claims("steps=5"))[0] == 0
    assert run()[0] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mfu=45", "write the percent sign"), ("mfuu=45%", "nearest are: mfu"), ("mfu", "is no claim"), ("=3", "is no claim"),
        ("step_time=5", "has no unit"), ("memory=80 gb", "two ways"), ("gpus=-1", "negative"), ("tokens=nan", "finite"),
        ("tokens_per_s=529,882", "without a comma"), ("accelerator=H10", "unknown accelerator"), ("optimizer=adam", "unknown optimizer"),
        ("start=2024-13-01", "no date"), ("flops=many", "no number of FLOPs"), ("energy=5", "no energy"), ("gpus=0", "is nothing"),
    ],
)  # fmt: skip
def test_claims_that_cannot_be_read(run, text, says):
    code, _, err = run(*claims(text, "steps=5"))
    assert code == 2
    assert says in err


def test_all_that_is_wrong_is_said_at_once(run):
    _, _, err = run(*claims("mfu=45", "x", "gpus=-1"))
    assert "3 problems" in err


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ALL), st.text(max_size=12) | st.floats() | st.integers() | st.none() | st.booleans())
def test_no_claim_is_beyond_reading(quantity, value):
    try:
        answer = shardmeter.audit(claims={quantity.key: value, "gpus": 8})
    except ShardMeterError:
        return
    json.dumps(answer.to_dict(), allow_nan=False)
    assert str(answer)


def test_the_python_face():
    audit = shardmeter.audit(claims={"mfu": "104 %", "accelerator": "H100-SXM5-80GB"})
    assert (audit.verdict, audit.consistent) == ("impossible", False)
    assert repr(audit) == "<Audit of 1 claims: impossible>"
    assert str(audit).startswith("audit of mfu\nImpossible")
    assert shardmeter.audit(claims=["mfu=104 %", "accelerator=H100-SXM5-80GB"]).to_dict() == audit.to_dict()
    scenario = shardmeter.load(None, options=RUN)
    assert shardmeter.audit(scenario, {"tokens_per_s_per_gpu": 8000}).to_dict()["predicted"]
    with pytest.raises(UnknownName, match="convention"):
        shardmeter.audit(claims={"mfu": "40 %"}, convention="7n")
    with pytest.raises(BadScenario, match="nothing is claimed"):
        shardmeter.audit(**RUN)
    with pytest.raises(UnknownName):
        shardmeter.audit(claims={"mfu": "40 %"}, model="no-such-model")


def test_rows_name_what_there_is():
    known = set(QUANTITIES) | set(INNER)
    assert {name for rule in IDENTITIES for name in rule.powers} <= known
    groups = {one.group for one in ALL}
    for row in factors.rows():
        assert set(row["of"].split("|")) <= groups
        assert set(row["value"].split("/")) - known <= {part for part in row["value"].split("/") if part[0].isdigit()}
        assert row["source"]
        assert row["above"]
    for convention in CONVENTIONS:
        assert load_catalog().citation(convention.source).title
    assert [one.key for one in CONVENTIONS] == list(COUNTS)
    names = [name for one in ALL for name in (one.key, *one.aliases)]
    assert len(names) == len(set(names))
    assert quantity_of("Global-Batch").key == "global_batch"


def test_conventions_count_what_they_say():
    """GPT-2, by hand: L = 12, h = 768, V = 50257, tied, 1,024 positions."""
    gpt2 = counted(load_catalog().model("gpt2"), 1024.0)
    found: dict[str, Any] = {one.key: one.count(gpt2) for one in CONVENTIONS}
    layers, hidden, vocab, seq = 12, 768, 50257, 1024
    matrices = layers * 12 * hidden**2
    head, core = 6 * hidden * vocab, 12 * layers * hidden * seq
    assert found["mfu"] == 6 * matrices + head + core
    assert found["6n-layers"] == 6 * matrices
    assert found["causal"] == found["mfu"] - core / 2
    assert found["no-head"] == found["mfu"] - head
    assert found["head-forward"] == found["mfu"] - 2 / 3 * head
    assert found["6n"] == pytest.approx(6 * 124_439_808)
    assert found["palm"] == pytest.approx(6 * 124_439_808 + core)
    assert found["megatron-96"] == pytest.approx(4 / 3 * found["megatron-72"])
    assert found["megatron-72"] == pytest.approx(6 * matrices + core + 72 * hidden * vocab / 16)
    assert found["ffn-4h"] == found["mfu"]
    assert {key for key, value in found.items() if value is None} == {
        "6n-active", "no-window", "all-experts", "two-matrices", "all-heads", "swapped",
    }  # fmt: skip


def test_mfu_is_the_one_of_predict():
    answer = shardmeter.predict(**RUN, seq=4096).to_dict()
    rate = answer["tokens_per_s_per_gpu"]
    both: tuple[dict[str, Any], ...] = ({**RUN, "seq": 4096}, {"model": RUN["model"], "seq": 4096})
    for named in both:
        stated = {"tokens_per_s_per_gpu": rate} | ({} if "gpus" in named else {"accelerator": "H100-SXM5-80GB"})
        assert shardmeter.audit(claims=stated, **named).to_dict()["implied_mfu"] == pytest.approx(
            answer["mfu"], rel=1e-9
        )


def consistent(micro: int, passes: int, dp: int, tp: int, seq: int, step: float) -> dict[str, Any]:
    batch = micro * passes * dp
    return {
        "micro_batch": micro, "accumulation": passes, "dp": dp, "tp": tp, "gpus": dp * tp, "global_batch": batch, "seq_len": seq,
        "step_time": f"{step!r} s", "tokens_per_s": batch * seq / step, "tokens_per_s_per_gpu": batch * seq / step / (dp * tp),
        "samples_per_s": batch / step, "steps": 1000, "tokens": 1000 * batch * seq, "wall_clock": f"{1000 * step!r} s",
    }  # fmt: skip


def test_what_agrees_stays_so_and_one_wrong_number_is_found():
    rng = random.Random(11)
    for wrong in ("global_batch", "tokens_per_s_per_gpu", "tokens"):
        micro, passes, dp, tp = (rng.randint(2, 64) for _ in range(4))
        numbers = consistent(micro, passes, dp, tp, rng.randint(128, 65536), rng.uniform(0.1, 100.0))
        assert shardmeter.audit(claims=numbers).verdict == "consistent"
        factor = rng.choice((3, 5, 7, 11, 13))
        answer = shardmeter.audit(claims=numbers | {wrong: numbers[wrong] * factor}).to_dict()
        found = [one for one in answer["claims"] if one["status"] == "contradicted"]
        assert [one["claim"] for one in found] == [wrong]
        assert found[0]["ratio"] == pytest.approx(factor, rel=0.01)
        assert found[0]["integer"] == factor


def test_a_claim_can_be_in_any_convention():
    """The claim, converted from a convention and back, is the same number."""
    stated = {"mfu": "40 %", "accelerator": "H100-SXM5-80GB"}
    rows = {
        key: {row["key"]: row for row in shardmeter.audit(claims=stated, model="llama-3.1-8b", convention=key).to_dict()["conventions"]}
        for key in ("mfu", "6n", "causal", "megatron-96")
    }  # fmt: skip
    for one, other in itertools.permutations(rows, 2):
        there = rows[one][other]["claim_converted"]
        assert there / 0.4 * rows[other][one]["claim_converted"] / 0.4 == pytest.approx(1.0)
        assert rows[one][one]["claim_converted"] == pytest.approx(0.4)


def test_the_highest_measured_are_those_that_ship():
    rows = limits.highest()
    assert all(0.0 < one.mfu < (1.0 if one.precision in ("bf16", "fp16") else 2.0) for one in rows)
    bar = limits.bar("bf16", 64.0)
    assert bar is not None
    assert math.isclose(bar.mfu, max(one.mfu for one in rows if one.precision in ("bf16", "fp16") and one.gpus >= 8))


def test_a_plan_that_is_illegal_as_claimed_is_said():
    answer = shardmeter.audit(claims={"global_batch": 63, "micro_batch": 1, "tokens_per_s": 5e5}, **RUN).to_dict()
    assert "describe no legal run" in answer["warnings"][0]
    assert answer["predicted"]


SIZES = {
    "bits": 1.0, "bytes": 8.0, "GB": 1e9, "GiB": 2.0**30, "MJ": 1.0, "kWh": 3.6, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0,
    "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 7 * 86400.0, "months": 730 * 3600.0, "years": 365 * 86400.0,
}  # fmt: skip
"""Sizes of units, each in one of its kind."""


def test_units_are_read_the_right_way_round():
    """A number of one unit that is read as another is as many times too large as that is larger; a rate, or a price of a time, as many
    times too small."""
    seen = 0
    for row in factors.rows():
        inverse = bool({"rate"} & set(row["of"].split("|"))) or row["of"].startswith("network|")
        for side, sign in (("above", 1.0), ("below", -1.0)):
            told = re.match(r"(\w+)(?: \([^)]*\))? are read as (\w+)", row[side])
            if told is None:
                continue
            read, meant = SIZES[told[2]], SIZES[told[1]]
            timed = told[1] in ("seconds", "milliseconds", "microseconds")
            factor = (meant / read if inverse and timed or row["of"] == "ratio" else read / meant) ** sign
            if row["of"] == "network_time" and told[1] in ("bits", "bytes"):
                factor = 1.0 / factor
            assert factor == pytest.approx(float(row["value"]), rel=2e-3), row
            seen += 1
        if row["of"] == "money":
            of = re.match(r"(?:the price of )?an? (\w+).* is read as (?:that of )?an? (\w+)", row["above"])
            if of is not None:
                assert SIZES[f"{of[1]}s"] / SIZES[f"{of[2]}s"] == pytest.approx(float(row["value"]), rel=2e-3)
                seen += 1
    assert seen >= 30


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (("memory_states=104.3 GB", "parameters=7B", "bytes_per_parameter=16"), "GiB are read as GB"),
        (("peak=1979 TFLOP/s", "accelerator=H100-SXM5-80GB"), "structured sparsity stands there: twice"),
        (("peak=494.5 TFLOP/s", "accelerator=H100-SXM5-80GB"), "half of the dense peak stands there"),
        (("wall_clock=30.4 d", "gpu_hours=192", "gpus=8"), "months are read as days"),  # the accelerator-hours
        (("energy=3600 kWh", "power=1 kW", "gpu_hours=1000"), "MJ are read as kWh"),
    ],
)
def test_a_cause_says_which_way_round(said, cause):
    found = shardmeter.audit(claims=list(said)).to_dict()
    assert cause in " ".join(one["cause"] for claim in found["claims"] for one in claim["causes"])


def test_frozen_weights_leave_attention_whole():
    """Scores and weighted sums have no weights: their gradients are all needed, and only the products lose a third."""
    subject = counted(load_catalog().model("llama-3.1-8b"), 8192.0)
    core = 12.0 * 32 * 4096 * 8192
    assert subject.core == core
    assert COUNTS["frozen"](subject) == pytest.approx(4.0 * (subject.own - core) / 6.0 + core)
