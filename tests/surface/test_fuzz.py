"""No arguments whatever make a traceback or a fault of ours."""

import string

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from shardmeter.cli import main

WORDS = [
    "predict",
    "explain",
    "solve",
    "micro-batch",
    "seq",
    "gpus",
    "trace",
    "validate",
    "catalog",
    "models",
    "stacks",
    "--model",
    "llama-3.1-8b",
    "--gpus",
    "64xH100-SXM5-80GB",
    "8xH100-SXM5-80GB",
    "0xH100-SXM5-80GB",
    "--plan",
    "fsdp",
    "hsdp",
    "fsdp,tp=8",
    "fsdp,tp=0",
    "fsdp,tp=-1",
    "ddp,pp=1e400",
    "zero1,pp=4,tp=nan",
    "auto,tp=8,pp=1,micro_batch=1",
    "--seq",
    "--micro-batch",
    "--global-batch",
    "--tokens",
    "1T",
    "8M tokens",
    "0",
    "-1",
    "1e999",
    "nan",
    "--set",
    "plan.tp=8",
    "run.seq_len=",
    "fleet.islands.0.nodes=x",
    "model=[",
    "a.b.c.d=1",
    "=",
    "--stack",
    "titan-compile",
    "--term",
    "--bars",
    "--catalog",
    "/dev/null",
    "--format",
    "json",
    "csv",
    "--help",
    "--version",
]
TEXT = st.text(alphabet=string.printable + "éß×–🦙", max_size=12).filter(lambda text: "\0" not in text)
ARGUMENT = st.one_of(st.sampled_from(WORDS), TEXT)
LED = st.builds(
    lambda head, rest: [*head, *rest],
    st.sampled_from(
        [
            [],
            ["predict"],
            ["explain"],
            ["solve", "gpus"],
            ["solve", "seq", "--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB"],
            ["predict", "--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB"],
            ["catalog"],
            ["validate", "nothing.csv"],
        ]
    ),
    st.lists(ARGUMENT, max_size=5),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=LED)
def test_any_arguments(capsys, arguments):
    if arguments == ["validate"] or (arguments[:1] == ["validate"] and "nothing.csv" not in arguments):
        return
    code = main(arguments)
    seen = capsys.readouterr()
    assert code in (0, 1, 2), (arguments, seen.err)
    assert "Traceback" not in seen.err
    if code == 2:
        assert seen.err.strip()


VALUE = st.sampled_from(
    ["", "0", "-1", "1e999", "nan", "[]", "{}", "{a: 1}", "null", "true", "x", "1 GB", "🦙", "auto"]
)
PATH = st.sampled_from(
    [
        "model",
        "model.layers",
        "stack",
        "stack.launch_overhead",
        "fleet",
        "fleet.islands",
        "fleet.islands.0",
        "fleet.islands.0.nodes",
        "fleet.islands.0.price",
        "plan",
        "plan.tp",
        "plan.pp",
        "plan.rank_order",
        "plan.sync",
        "plan.recompute",
        "run",
        "run.seq_len",
        "run.tokens",
        "run.global_batch",
        "name",
        "",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATH, value=VALUE)
def test_any_override(capsys, path, value):
    code = main(["predict", "--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB", "--set", f"{path}={value}"])
    seen = capsys.readouterr()
    assert code in (0, 1, 2), (path, value, seen.err)
    assert "Traceback" not in seen.err
