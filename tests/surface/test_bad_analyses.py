"""What the analyses say to input that cannot be answered: all of it, with a way out, before any work."""

import csv
import io
import json
from typing import Any, cast

import pytest

import shardmeter
from shardmeter.cli import main

ONE = ["--model", "llama-3.2-1b", "--gpus", "8xH100-SXM5-80GB"]


def asked(capsys, *arguments):
    """(exit code, standard output, standard error)."""
    code = main(list(arguments))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


REFUSED = [
    (["returns", *ONE, "--over", "run.seq_len=1..1001"], "at most 1,000 on one axis"),
    (["transitions", *ONE, "--x", "plan.micro_batch=1..1001"], "at most 1,000 on one axis"),
    (["transitions", *ONE, "--x", "plan.micro_batch=1..200", "--y", "run.seq_len=1..200"], "at most 10,000 in a map"),
    (["tradeoffs", *ONE, "--over", "plan.micro_batch=1..1001"], "at most 1,000 on one axis"),
    (["returns", *ONE, "--over", "gpus=8.."], "'8..' has one end only; as in 1..64"),
    (["tradeoffs", *ONE, "--over", "plan.micro_batch=..8,.."], "'..8' has one end only"),
    (["transitions", *ONE, "--x", "plan.micro_batchh"], "the nearest that have one are plan.micro_batch,"),
    (["transitions", *ONE, "--x", "", "--y", "plan.micro_batch=1,2"], "'' names no field"),
    (["returns", *ONE, "--axis", ""], "'': the scenario has no such number; the nearest are"),
    (["front", "examples/three-clouds-money.yaml", "--set", "plan.sync.sync_every=1..100000"], "at most 2,000,000"),
    (["sensitivity", *ONE, "--pairs", "1"], "a whole number from 2 to 12"),
    (["sensitivity", *ONE, "--with", "plan.micro_batch=x2"], "say --what-if NAME=x2 too"),
    (["doctor", *ONE, "--measured", "duration=3 h for 0 steps"], "is no number above 0"),
    (["doctor", *ONE, *["--measured", "foo=1"] * 999], "999 numbers; at most 8"),
    (["audit", *["--claim", "foo=1"] * 1000], "1,000 claims; at most 64"),
]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[f"{one[0]} {says[:24]}" for one, says in REFUSED])
def test_what_cannot_be_answered_is_refused_with_a_way_out(capsys, arguments, says):
    code, out, err = asked(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err) < 2_000


@pytest.mark.parametrize("file", ["nowhere/x.svg", "here.svg"])
def test_a_picture_that_can_be_nowhere_is_refused_before_the_work(capsys, tmp_path, file):
    (tmp_path / "here.svg").mkdir()
    code, out, err = asked(capsys, "front", "no-such-scenario.yaml", "--plot", str(tmp_path / file))
    assert (code, out) == (2, "")
    assert f"{file}: cannot be written" in err


def test_a_number_with_a_unit_has_a_range_around_it(capsys):
    code, out, _ = asked(capsys, "transitions", *ONE, "--x", "stack.launch_overhead", "--format", "json")
    values = json.loads(out)["lines"][0]["values"]
    assert code == 0
    assert 0.0 < values[0] < 1e-5 < 1e3 * values[0] < 1e3 * values[-1]


@pytest.mark.parametrize("values", ["1,2", "1..64:x2"])
def test_csv_has_the_same_columns_whether_or_not_there_is_a_row(capsys, values):
    _, out, _ = asked(capsys, "transitions", *ONE, "--x", f"plan.micro_batch={values}", "--format", "csv")
    assert next(csv.reader(io.StringIO(out)))[:3] == ["field", "kind", "value"]


def test_what_an_audit_does_not_look_at_is_said(capsys):
    code, out, err = asked(capsys, "audit", "--claim", "mfu=40%", "--set", "foo=1", "--plan", "bla", "--format", "json")
    assert code == 0
    assert json.loads(out)["warnings"][0].endswith("foo, plan") or json.loads(out)["warnings"][0].endswith("plan, foo")
    assert "not looked at" in err


@pytest.mark.parametrize(
    "command", [["tradeoffs", *ONE, "--over"], ["transitions", *ONE, "--x"]], ids=lambda one: one[0]
)
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_values_may_be_lists_and_nothing(capsys, command, form):
    code, out, err = asked(capsys, *command, "plan.offload=null,[optimizer]", "--format", form)
    assert code == 0, err
    assert "None" not in out
    if form == "table" and command[0] == "tradeoffs":
        assert "null" in out
        assert '["optimizer"]' in out
        assert "(now)" not in out


RUN = {"model": "llama-3.2-1b", "gpus": "8xH100-SXM5-80GB"}


@pytest.mark.parametrize("wrong", [None, 0, b"x", [1]], ids=repr)
def test_what_is_no_text_is_refused_in_python_too(wrong):
    asked_for = [
        lambda: shardmeter.returns(RUN, wrong),
        lambda: shardmeter.transitions(RUN, "plan.micro_batch", cast("Any", [] if wrong is None else wrong)),
        lambda: shardmeter.sensitivity(RUN, what_if=wrong),
        lambda: shardmeter.sensitivity(RUN, beside=wrong),
        lambda: shardmeter.doctor(RUN, measured=wrong),
        lambda: shardmeter.audit(RUN, {"mfu": 0.4}, convention=wrong),
        lambda: shardmeter.audit(RUN, {"mfu": 0.4}, overrides=wrong),
    ]
    for ask in asked_for:
        with pytest.raises(shardmeter.ShardMeterError, match="where a"):
            ask()


def test_one_text_may_stand_alone_in_python():
    assert len(shardmeter.sensitivity(RUN, what_if="plan.micro_batch=x2").moves) == 1
    assert len(shardmeter.doctor(RUN, measured="mfu=40%").to_dict()["readings"]) == 1
