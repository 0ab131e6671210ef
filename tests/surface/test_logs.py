"""`shardmeter import LOG` and the page of a log."""

import json
from pathlib import Path

from shardmeter import load, read_log
from shardmeter.cli import main
from shardmeter.interop import logs

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "samples" / "logs"


def test_a_log_becomes_a_scenario_that_predict_takes(tmp_path, capsys):
    scenario = tmp_path / "run.yaml"
    assert (
        main(
            [
                "import",
                str(SAMPLES / "torchtitan.log"),
                "--model",
                "llama-3.2-1b",
                "-o",
                str(scenario),
                "--format",
                "json",
            ]
        )
        == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["missing"] == []
    assert (answer["format"], answer["log"]["used"], answer["log"]["gpus"]) == ("torchtitan", 11, 32.0)
    assert [one["step"] for one in answer["log"]["pace"]] == list(range(6, 17))
    assert answer["figures"][0]["slug"] == "pace"
    assert load(scenario).plan.tp == 4


def test_a_rate_alone_is_no_time_until_the_options_say_the_batch(capsys):
    asked = ["import", str(SAMPLES / "torchtune.txt")]
    assert main(asked) == 1
    assert "time of a step is not known" in capsys.readouterr().out
    run = ["--model", "llama-3.2-1b", "--gpus", "32xH100-SXM5-80GB", "--seq", "4096", "--global-batch", "256"]
    assert main([*asked, *run]) == 0
    assert "2.49 s a step" in capsys.readouterr().out


def test_a_log_prints_itself():
    account = read_log(SAMPLES / "megatron.log")
    assert "A log of megatron (2024-01 or later): 2.49 s a step" in str(account)
    assert repr(account) == "LogAccount(megatron: 2.495 s a step, 11 of 16 reports used)"


def test_every_format_is_on_the_page():
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    assert [name for name in logs.formats() if f"`{name}`" not in page] == []
