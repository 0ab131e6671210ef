"""`solve` on the command line and in Python: its JSON, its page, its exit codes."""

import csv
import io
import json
import shlex
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.record import changed

FITS = [
    "--model",
    "llama-3.1-8b",
    "--gpus",
    "64xH100-SXM5-80GB",
    "--plan",
    "fsdp,recompute=full",
    "--global-batch",
    "2048",
]
TOO_LARGE = ["--model", "llama-3.1-405b", "--gpus", "16xH100-SXM5-80GB", "--plan", "ddp", "--global-batch", "16"]
QUESTIONS = ("micro-batch", "seq", "gpus")
KEYS = {
    "question", "answer", "unit", "fits_probability", "answer_by_probability", "rounded", "fastest", "legal", "binding",
    "neighbours", "at", "set", "command", "version", "data_date", "assumptions", "warnings",
}  # fmt: skip
NEIGHBOUR = {
    "value", "fits", "fits_probability", "memory_peak_gib", "share_of_limit", "step_time_s", "tokens_per_s",
    "tokens_per_s_per_gpu",
}  # fmt: skip


def answer(capsys, *arguments):
    code = main(["solve", *arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_json(capsys, question):
    code, data = answer(capsys, question, *FITS)
    assert code == 0
    assert set(data) == KEYS
    assert data["question"] == question
    assert data["at"]["value"] == data["answer"]
    assert data["at"]["fits"]
    assert {"step_time_s", "tokens_per_s", "mfu", "memory", "ledger", "bottleneck", "intervals"} <= set(data["at"])
    assert all(set(one) == NEIGHBOUR for one in data["neighbours"])
    assert data["answer"] in [one["value"] for one in data["neighbours"]]
    assert [one["value"] for one in data["neighbours"]] == sorted(one["value"] for one in data["neighbours"])
    assert {"cause", "term", "next", "says", "terms"} <= set(data["binding"])
    growth = [one["next_gib"] - one["gib"] for one in data["binding"]["terms"]]
    assert growth == sorted(growth, reverse=True)
    assert sum(growth) == pytest.approx(data["binding"]["next_peak_gib"] - data["at"]["memory"]["peak_gib"])
    assert data["binding"]["term"] == data["binding"]["terms"][0]["term"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_command_that_it_prints_runs(capsys, question):
    _, data = answer(capsys, question, *FITS)
    words = shlex.split(data["command"])
    assert words[:2] == ["shardmeter", "predict"]
    assert main([*words[1:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == data["at"]["step_time_s"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_no(capsys, question):
    code, data = answer(capsys, question, *TOO_LARGE)
    assert code == 1
    assert data["answer"] is None
    assert not data["at"]["fits"]
    assert data["fastest"] is None


def test_the_page_of_a_no(capsys):
    assert main(["solve", "gpus", *TOO_LARGE]) == 1
    page = capsys.readouterr().out
    assert page.splitlines()[1].startswith("No number of GPUs fits: even 16 GPUs need ")
    assert "To predict with it" not in page


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_says_what_the_json_has(capsys, question):
    _, data = answer(capsys, question, *FITS)
    main(["solve", question, *FITS])
    page = capsys.readouterr().out
    assert data["binding"]["says"] in page
    assert data["legal"]["says"] in page
    for one in data["neighbours"]:
        assert f"{one['value']:,.0f}" in page
        assert f"{one['memory_peak_gib']:,.2f} GiB" in page
    assert f"{data['answer']:,.0f}" in page.splitlines()[1]
    assert data["command"] in page


def test_csv_has_a_row_for_every_neighbour(capsys):
    _, data = answer(capsys, "micro-batch", *FITS)
    main(["solve", "micro-batch", *FITS, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["value"]) for row in rows] == [one["value"] for one in data["neighbours"]]
    assert [row["answer"] for row in rows].count("true") == 1


def test_legal_values_of_a_batch_that_is_said(capsys):
    _, data = answer(capsys, "micro-batch", *FITS)
    assert data["legal"]["values"] == [1, 2, 4, 8, 16, 32]
    _, data = answer(capsys, "gpus", *FITS)
    assert data["legal"]["values"][:6] == [1, 2, 4, 8, 16, 32]
    _, data = answer(capsys, "seq", *FITS, "--set", "plan.tp=8")
    assert data["answer"] % 8 == 0
    assert data["rounded"] % 1024 == 0
    assert data["rounded"] <= data["answer"]


def test_what_is_overruled_is_not_said(capsys):
    _, data = answer(capsys, "micro-batch", "--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB")
    assert not [text for text in data["assumptions"] if text.startswith(("micro_batch =", "global_batch ="))]
    assert any("follows" in text for text in data["assumptions"])
    _, data = answer(capsys, "gpus", "--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB")
    assert not [text for text in data["assumptions"] if text.startswith("dp_shard =")]
    _, data = answer(capsys, "gpus", "--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "hsdp")
    assert any("dp_replicate = 1 instead of 8" in text for text in data["assumptions"])


def test_a_sequence_beyond_the_context_is_said(capsys):
    _, data = answer(
        capsys, "seq", "--model", "llama-2-7b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp,recompute=full"
    )
    assert data["answer"] > 4096
    assert any("beyond the context" in text for text in data["warnings"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["micro-batch"],
        ["planets", *FITS],
        ["seq", "no-such-file.yaml"],
        ["gpus", "--model", "lama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"],
        ["micro-batch", *FITS, "--plan", "fsdp,tp=3"],
        ["micro-batch", *FITS, "--global-batch", "8796093022208"],
        ["gpus", *FITS, "--global-batch", "8796093022208"],
        ["seq", *FITS, "--format", "xml"],
    ],
    ids=lambda arguments: " ".join(arguments)[-40:],
)
def test_malformed(capsys, arguments):
    assert main(["solve", *arguments]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.strip()
    assert "Traceback" not in seen.err


def test_in_python():
    options: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "gpus": "64xH100-SXM5-80GB",
        "plan": "fsdp,recompute=full",
        "global_batch": 512,
    }
    found = shardmeter.solve("micro-batch", **options)
    assert found.answer == 8
    assert "Largest micro-batch that fits: 8" in str(found)
    assert repr(found).startswith("<Solution micro-batch")
    assert shardmeter.solve("micro-batch", shardmeter.load(None, options=options)).answer == found.answer
    with pytest.raises(shardmeter.UnknownName, match="micro-batch"):
        shardmeter.solve("micro", **options)


def test_images_give_their_sequence(capsys):
    asked = ["solve", "seq", "--gpus", "8xH100-SXM5-80GB", "--plan", "ddp", "--model"]
    assert main([*asked, "vit-base-patch16-224"]) == 2
    assert "images give vit-base-patch16-224 its sequence of 197 tokens" in capsys.readouterr().err
    assert main([*asked[:5], "fsdp,micro_batch=64", "--model", "llava-1.5-7b", "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["answer"] is None
    assert "above the 576 tokens that images fill" in data["legal"]["says"]


BASE = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp"]


@pytest.mark.parametrize(
    ("question", "more", "legal", "says"),
    [
        (
            "micro-batch",
            ["--global-batch", "128", "--micro-batch", "3"],
            [1, 2],
            "128 is no multiple of dp·micro_batch",
        ),
        ("gpus", ["--global-batch", "100"], [1, 2, 4, 5], "100 is no multiple of dp·micro_batch = 64·1"),
        ("seq", ["--seq", "1001", "--set", "plan.tp=8"], None, "seq_len = 1001 is no multiple of tp = 8"),
    ],
)
def test_a_beginning_that_is_not_legal_is_said_and_left(capsys, question, more, legal, says):
    code, data = answer(capsys, question, *BASE, *more)
    assert code == 0
    assert data["legal"]["values"] == legal
    assert any(says in text and "only legal ones are compared" in text for text in data["warnings"])
    words = shlex.split(data["command"])
    assert main([*words[1:], "--format", "json"]) == 0
    assert main(["solve", question, *BASE, *more]) == 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("question", "more", "says"),
    [
        ("micro-batch", ["--global-batch", "100"], "100 is no multiple of dp·micro_batch = 64·1 = 64"),
        ("micro-batch", ["--global-batch", "100"], "the nearest are 64 and 128"),
        ("gpus", ["--global-batch", "128", "--micro-batch", "3"], "the nearest are 126 and 129"),
        ("gpus", ["--global-batch", "6", "--set", "plan={pp: 4, schedule: interleaved, virtual_stages: 2}"], "pp = 4"),
        ("gpus", ["--global-batch", "1", "--set", "plan.pp=12", "--gpus", "24xH100-SXM5-80GB"], "whole nodes"),
    ],
)
def test_a_batch_that_no_value_divides_is_refused_with_the_nearest(capsys, question, more, says):
    assert main(["solve", question, *BASE, *more]) == 2
    err = capsys.readouterr().err
    assert "is legal" in err
    assert says in err


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_batch_in_tokens_is_kept_as_it_was_rounded_and_that_is_said(capsys, question):
    _, data = answer(capsys, question, *BASE, "--global-batch", "1M tokens")
    kept = [text for text in data["assumptions"] if text.startswith("global_batch kept at 128 sequences")]
    assert len(kept) == 1
    assert "1M tokens are 122.1 of 8192, rounded to a multiple of dp·micro_batch = 64" in kept[0]


def test_a_record_may_begin_anywhere_too():
    scenario = shardmeter.load(
        None, options={"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "global_batch": 128}
    )
    three = changed(scenario, plan=changed(scenario.plan, micro_batch=3.0))
    assert shardmeter.solve("micro-batch", three).answer == 1
    with pytest.raises(shardmeter.BadScenario):
        shardmeter.predict(three)
