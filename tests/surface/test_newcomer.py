"""What a newcomer meets first: the command for a question, the words for an axis, pages that a line holds, a way out of the obvious mistakes."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import shardmeter
from shardmeter.cli import main
from shardmeter.cli.main import cli
from shardmeter.render import terminal
from shardmeter.render.document import Column, Document, Notes, Table
from shardmeter.scenario.read import read
from shardmeter.study.returns.words import axis_of
from shardmeter.study.transitions.axes import sought

ROOT = Path(__file__).parents[2]
LLAMA = str(ROOT / "examples" / "llama-8b-64xh100.yaml")
HOMES = str(ROOT / "examples" / "home-workers.yaml")


def test_every_command_answers_a_question_of_the_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("## Which question") : readme.index("## What it answers")]
    assert set(cli.commands) <= set(re.findall(r"`(\w+)[ `]", table))


def test_the_list_of_commands_is_not_cut_short():
    told = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert "..." not in told[told.index("Commands:") :]
    assert all(command.short_help for command in cli.commands.values())


def test_a_page_fits_a_line_and_says_a_reason_once(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["returns", LLAMA, "--axis", "gpus=64,128,256,512"]) == 0
    page = capsys.readouterr().out
    table = page[page.index("Along GPUs") : page.index("Illegal, and left out")]
    assert max(map(len, table.splitlines())) <= terminal.PIPE_WIDTH
    assert [line.split()[0] for line in table.splitlines()[-3:-1]] == ["64", "128"]
    below = page[page.index("Illegal, and left out") :].splitlines()[1]
    assert "no multiple of" in below
    assert below.endswith("512 GPUs for the same reason")


def test_values_that_are_asked_for_are_answered(capsys):
    assert main(["returns", LLAMA, "--axis", "fabric=100Gbps,400Gbps,800Gbps", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    own, twice = (point["tokens_per_s"] for point in answer["points"][1:])
    says = next(text for text in answer["says"] if "From 400 Gbit/s to 800 Gbit/s" in text)
    assert f"{twice - own:+,.0f} tokens/s" in says


@pytest.mark.parametrize(
    ("word", "field"),
    [("H", "plan.sync.sync_every"), ("bandwidth", "wan"), ("wan", "wan"), ("sync_every", "plan.sync.sync_every")],
)
def test_analyses_know_the_same_words(word, field):
    document, own = read(HOMES), shardmeter.load(HOMES)
    along, over = axis_of(document, own, word), sought(document, own, word)
    assert along.name == field
    assert over.own == pytest.approx(along.own)


def test_sentences_without_room_stand_below_their_table():
    why = "because of a very long reason that would be folded into a column of a few letters"
    rows = tuple({"cause": name, "value": "x" * 80, "why": why} for name in ("one", "two"))
    columns = (
        Column(key="cause", title="cause"),
        Column(key="value", title="value"),
        Column(key="why", title="why", wide=True, below=True),
    )
    page = terminal.text(
        Document(
            title="",
            data={},
            sections=(Table(title="Causes", columns=columns, rows=rows), Notes(title="Assumed", lines=())),
        )
    )
    assert f"  why:\n    one, two: {why}\n" in page
    assert "Assumed" not in page  # no heading over nothing


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("doctor", LLAMA, "--measured", "1800"), "write NAME=VALUE, as in tokens_per_s_per_gpu="),
        (("audit", "--claim", "model=llama-3.1-8b"), "is said as --model"),
        (("transitions", str(ROOT / "examples" / "three-clouds-70b.yaml"), "--x", "fabric"), "fleet.islands.oregon.fabric.bandwidth"),
    ],
)  # fmt: skip
def test_the_obvious_mistakes_have_a_way_out(capsys, words, says):
    assert main(list(words)) == 2
    assert says in capsys.readouterr().err


def test_one_number_of_a_blog_is_set_beside_its_prediction():
    found = str(shardmeter.audit(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB", claims={"mfu": "52%"}))
    assert "mfu 52.0 % is inside what 90 % of such runs have" in found


def test_heads_fold_before_a_line_grows_and_no_word_is_cut():
    option = "--set plan.sync.fragment_sync_delay=1 --set plan.sync.bits=8"
    columns = (
        Column(key="a", title="tokens to the same loss"),
        Column(key="b", title="x" * 60),
        Column(key="c", title="option", wide=True),
    )
    rows = ({"a": "-4.9 %", "b": "1", "c": option},)
    page = terminal.text(Document(title="", data={}, sections=(Table(title="Turns", columns=columns, rows=rows),)))
    assert "tokens to the same loss" not in page
    assert max(map(len, page.splitlines())) <= terminal.PIPE_WIDTH
    assert "plan.sync.fragment_sync_delay=1" in page


TRAINER = str(ROOT / "examples" / "trainers" / "torchtitan-8b.toml")
GPUS = ("--gpus", "64xH100-SXM5-80GB")


def test_an_import_says_what_to_ask_next_and_nothing_of_prices(tmp_path, capsys):
    saved = tmp_path / "run.yaml"
    assert main(["import", TRAINER, *GPUS, "--micro-batch", "2", "-o", str(saved)]) == 0
    seen = capsys.readouterr()
    assert f"next: shardmeter predict {saved}" in seen.err
    assert "price" not in seen.err
    assert "micro_batch: 2," in saved.read_text(encoding="utf-8"), "a number, as in the files of a trainer"
    scenario = seen.out[seen.out.index("The scenario") : seen.out.index("Assumed of")]
    assert max(map(len, scenario.splitlines())) <= terminal.PIPE_WIDTH
    assert main(["import", TRAINER, "-o", str(saved)]) == 1
    assert "no whole scenario yet" in capsys.readouterr().err


def test_settings_beside_an_original_are_told_by_what_to_do_with_them(capsys):
    assert main(["export", LLAMA, "--to", "torchtitan", "--for", "0.2.2", "--against", TRAINER]) == 0
    page = capsys.readouterr().out
    assert re.search(
        r"Said otherwise in .*\n +setting +there +here\n(.*\n)*? +parallelism.tensor_parallel_degree +2 +1\n\n", page
    )
    assert re.search(r"Not said in .*\n +setting.*\n +training.global_batch_size +128 +run.global_batch = 128\n", page)
    assert re.search(r"Said in .* alone\n +setting.*\n +metrics.log_frequency +10\n\n", page)
    assert re.search(r"no figure here depends on it: .*\n.*optimizer.name", page)


def test_values_of_trainers_are_told_as_their_files_have_them():
    said = shardmeter.import_config(
        "[model]\nname = 'llama3'\nflavor = '8B'\n[compile]\nenable = true\ncomponents = ['model']\n"
        "[quantize.linear.float8]\nrecipe_name = 'rowwise'\n"
    ).to_dict()
    assert next(one["value"] for one in said["understood"] if one["key"] == "compile.components") == "[model]"
    assert [one["means"] for one in said["ignored"]] == ["without effect: model.converters does not name it"]
    handed = shardmeter.import_config(
        'pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 1 --micro-batch-size 4 "$@"', "megatron"
    )
    assert handed.document["plan"]["micro_batch"] == 4, "what a script hands on is no value"


def test_what_was_measured_is_sent_where_it_belongs(tmp_path, capsys):
    table = tmp_path / "nccl.txt"
    table.write_text("#       size  count  type  redop  root  time  algbw  busbw #wrong\n", encoding="utf-8")
    assert main(["import", str(table)]) == 2
    assert "calibrate run.yaml --nccl" in capsys.readouterr().err
    log = str(ROOT / "examples" / "logs" / "torchtitan.log")
    assert main(["calibrate", LLAMA, "--log", log, "--log", f"{log},plan.tp=1"]) == 2
    assert "named twice; a run counts once" in capsys.readouterr().err
