"""Options that are none, and islands that are written wrongly: what was meant, the rule, and what to write."""

from __future__ import annotations

import pytest

from shardmeter.cli import main

ONE = ("--model", "llama-3.1-8b", "--plan", "fsdp")
HERE = (*ONE, "--gpus", "8xH100-SXM5-80GB")
LINE = "fleet.wan={default: {bandwidth: 10 Gbps, rtt: 10 ms}}"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["predict", *words])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--islands", "--set 'fleet.islands=[{gpus: 64xH100-SXM5-80GB}, {gpus: 32xA100-SXM4-80GB}]'"),
        ("--method", "--set plan.sync.method=diloco; fleet.wan and plan.sync join several islands"),
        (
            "--bandwidth",
            "--set 'fleet.wan.default.bandwidth=10 Gbps' (or run.checkpoint.bandwidth); fleet.wan and plan.sync",
        ),
        ("--rtt", "--set 'fleet.wan.default.rtt=40 ms'"),
        ("--sync-every", "--set plan.sync.sync_every=VALUE"),
        ("--tp", "--set plan.tp=VALUE"),
        ("--nodes", "--set fleet.islands.0.nodes=VALUE"),
        ("--steps", "--set run.steps=VALUE"),
    ],
)
def test_a_field_that_is_said_as_an_option(capsys: pytest.CaptureFixture[str], option: str, says: str) -> None:
    code, err = told(capsys, *HERE, option, "3")
    assert code == 2
    assert f"No such option '{option}': it is a field of the scenario: {says}" in err


def test_an_option_that_is_no_field_has_the_nearest_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = told(capsys, *ONE, "--modle", "3")
    assert code == 2
    assert "No such option '--modle'. Did you mean '--model'?" in err


def test_what_the_hint_says_works(capsys: pytest.CaptureFixture[str]) -> None:
    """The examples of the hints, together, are a scenario."""
    from shardmeter.scenario.option_words import EXAMPLES

    sets = [
        word for path in ("fleet.islands", "fleet.wan", "plan.sync") for word in ("--set", EXAMPLES[path].strip("'"))
    ]
    code, err = told(capsys, "--model", "llama-3.2-1b", "--plan", "fsdp", *sets)
    assert code == 0, err


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "[{gpus: H100-SXM5-80GB}, {gpus: 8xH100-SXM5-80GB}]",
            "'H100-SXM5-80GB' is no NxNAME; as in 64xH100-SXM5-80GB",
        ),
        ("nofile.yaml", "wanted a list, got 'nofile.yaml'; as in [{gpus: 64xH100-SXM5-80GB}"),
        ("2", "wanted a list, got 2; as in [{gpus: 64xH100-SXM5-80GB}"),
        (
            "[8xH100-SXM5-80GB]",
            "fleet.islands.0: wanted a mapping, got '8xH100-SXM5-80GB'; write {gpus: 8xH100-SXM5-80GB}",
        ),
        ("[{gpus: 8xH100-SXM5-80GB}, {}]", "say one of accelerator, instance, gpus: NxNAME"),
    ],
)
def test_islands_that_are_written_wrongly(capsys: pytest.CaptureFixture[str], value: str, says: str) -> None:
    code, err = told(capsys, *ONE, "--set", f"fleet.islands={value}", "--set", LINE)
    assert code == 2
    assert says in err


def test_islands_of_unequal_counts_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    value = "fleet.islands=[{gpus: 8xH100-SXM5-80GB}, {gpus: 24xH100-SXM5-80GB}]"
    assert told(capsys, *ONE, "--set", value, "--set", LINE)[0] == 0


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (
            "64xH100-SXM5-80GB,32xA100-SXM4-80GB",
            "names several islands (gpus is one island: NxNAME); list them as fleet.islands: [",
        ),
        ("64xH100-SXM5-80GB + 32xA100-SXM4-80GB", "names several islands"),
        ("fleet.yaml", "'fleet.yaml' is a file (gpus is NxNAME); name it as SCENARIO, without --gpus"),
    ],
)
def test_gpus_that_are_something_else(capsys: pytest.CaptureFixture[str], gpus: str, says: str) -> None:
    code, err = told(capsys, *ONE, "--gpus", gpus)
    assert code == 2
    assert says in err


@pytest.mark.parametrize("field", ["plan.sync.method=diloco", "fleet.wan.default.bandwidth=10 Gbps"])
def test_one_island_says_how_several_are_listed(capsys: pytest.CaptureFixture[str], field: str) -> None:
    code, err = told(capsys, *HERE, "--set", field)
    assert code == 0
    assert "changes nothing: there is one island; several are listed in fleet.islands: [{gpus: …}, {gpus: …}]" in err
