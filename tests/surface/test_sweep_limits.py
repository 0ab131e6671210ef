"""Columns of a sweep that say whether a deadline and a budget are kept: what `predict` says of each point alone, to the digit."""

import json

import pytest

from shardmeter.cli import main

COLUMNS = [f"run.{limit}.{name}" for limit, names in (
    ("deadline", ("met", "margin_s", "margin", "probability")), ("budget", ("met", "margin_usd", "margin", "probability")),
) for name in names]  # fmt: skip
ISLAND = [
    "--model",
    "llama-3.1-8b",
    "--gpus",
    "64xH100-SXM5-80GB",
    "--plan",
    "fsdp",
    "--global-batch",
    "256",
    "--price",
    "$2/gpu/h",
]
SAID = {
    "island": (ISLAND, "run.tokens=20B,60B"),
    "interrupted": ([*ISLAND, "--set", "run.failures={mtbf: 2000 h, per: gpu}", "--set", "run.checkpoint={every: auto}"], "run.tokens=20B,60B"),
    "deadlines": ([*ISLAND, "--tokens", "30B"], "run.deadline=10 h,1 d,2 d"),
    "islands": (["examples/three-clouds-money.yaml"], "plan.sync.sync_every=50,100"),
}  # fmt: skip


def answers(capsys, *given):
    main([*given, "--format", "json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", SAID)
def test_limits_are_those_of_predict(capsys, name):
    given, axis = SAID[name]
    limits = ["--set", "run.budget=$2000"] + ([] if "deadline" in axis else ["--set", "run.deadline=20 h"])
    rows = answers(capsys, "sweep", *given, *limits, "--over", axis, "--columns", ",".join(COLUMNS))["rows"]
    field, _, values = axis.partition("=")
    for row, value in zip(rows, values.split(","), strict=True):
        run = answers(capsys, "predict", *given, *limits, "--set", f"{field}={value}")["run"]
        for column in COLUMNS:
            _, limit, figure = column.split(".")
            assert row[column] == run[limit][figure], (column, value)
    assert {type(row["run.deadline.met"]) for row in rows} == {bool}


def test_limits_that_are_not_asked_are_null(capsys):
    (row,) = answers(capsys, "sweep", *ISLAND, "--over", "run.tokens=20B", "--columns", ",".join(COLUMNS))["rows"]
    assert [row[column] for column in COLUMNS] == [None] * len(COLUMNS)
