"""What a newcomer meets first: the command for a question, the words for an axis, pages that a line holds, a way out of the obvious mistakes."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import shardmeter
from shardmeter.cli import main
from shardmeter.cli.main import cli
from shardmeter.interop.configs import formats
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


def test_the_first_commands_of_the_page_of_files_work(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "import-export.md").read_text(encoding="utf-8")
    (tmp_path / "llama3_8b.toml").write_text(Path(TRAINER).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for line in page[page.index("```console") : page.index("```\n")].splitlines()[1:]:
        assert main(shlex.split(line.replace("64x", "2x"))[2:]) == 0, capsys.readouterr().err
    assert {one.name for one in tmp_path.iterdir()} == {"llama3_8b.toml", "run.yaml", "best.yaml", "job"}


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
        "[quantize.linear.float8]\nrecipe_name = 'rowwise'\n[parallelism]\ntensor_parallel_degree = 2\n[training]\nseq_len = 4096\n"
    ).to_dict()
    assert next(one["value"] for one in said["understood"] if one["key"] == "compile.components") == "[model]"
    assert [one["means"] for one in said["ignored"]] == ["without effect: model.converters does not name it"]
    handed = shardmeter.import_config(
        'pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --micro-batch-size 4 "$@"'
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


def test_the_help_names_every_format():
    for command, able in (("import", {"read"}), ("export", {"write", "launch"})):
        told = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split())
        names = {name for name, module in formats().items() if any(hasattr(module, one) for one in able)}
        assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)] == []


SHORT = ("--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--seq", "8192")


def test_nodes_of_machines_that_were_said_in_short_can_be_set(capsys):
    def said(*words):
        assert main([*words, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    set_, plain = (
        said("predict", *SHORT, "--set", "fleet.islands.0.nodes=4"),
        said("predict", *SHORT[:3], "32xH100-SXM5-80GB", *SHORT[4:]),
    )
    assert set_["tokens_per_s"] == plain["tokens_per_s"]
    assert any("fleet.islands.0.nodes=4 wins over gpus = '64xH100-SXM5-80GB'" in one for one in set_["assumptions"])
    line = next(one for one in said("transitions", *SHORT)["lines"] if one["field"] == "fleet.islands.0.nodes")
    assert "ok" in json.dumps(line)
    assert "NxNAME" not in json.dumps(line)
    swept = said("sweep", *SHORT, "--over", "fleet.islands.0.nodes=1,4")
    assert "NxNAME" not in json.dumps(swept)
    assert str(plain["tokens_per_s"]) in json.dumps(swept)


def test_machines_in_short_are_gone_over_beside_a_price(capsys):
    """A price makes an island of `gpus`, which stays the word for its machines; and a kind that no stack was fitted on is warned of."""
    machines = ("64xH100-SXM5-80GB", "64xA100-SXM4-80GB")
    words = ("--tokens", "1T", "--price", "$2/gpu/h", "--format", "json")
    assert main(["sweep", *SHORT, *words, "--over", f"gpus={','.join(machines)}", "--columns", "run.cost_usd"]) == 0
    seen = capsys.readouterr()
    assert "A100-SXM4-80GB is predicted from its data sheet" in seen.err
    costs = [row["run.cost_usd"] for row in json.loads(seen.out)["rows"]]
    for name, cost in zip(machines, costs, strict=True):
        assert main(["predict", *SHORT[:3], name, *SHORT[4:], *words]) == 0
        assert json.loads(capsys.readouterr().out)["run"]["cost_usd"] == pytest.approx(cost)


def test_a_price_beside_the_short_form_is_told_where_it_belongs(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    rest = "plan: fsdp\nrun: {seq_len: 8192, tokens: 1T}\n"
    path.write_text(f"model: llama-3.1-8b\ngpus: 64xH100-SXM5-80GB\nprice: $2.10/gpu/h\n{rest}", encoding="utf-8")
    assert main(["predict", str(path)]) == 2
    way = "fleet: {islands: [{gpus: 64xH100-SXM5-80GB, price: $2.10/gpu/h}]}"
    assert way in capsys.readouterr().err
    path.write_text(f"model: llama-3.1-8b\n{way}\n{rest}", encoding="utf-8")
    assert main(["predict", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["cost_usd"] > 0.0


def test_the_nodes_and_the_short_form_in_one_file_are_still_refused(capsys):
    island = "fleet.islands=[{gpus: 64xH100-SXM5-80GB, nodes: 4}]"
    assert main(["predict", "--model", "llama-3.1-8b", "--set", island]) != 0
    assert "NxNAME already says nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_no_line_of_prose_stands_twice(path):
    """What a merge leaves behind: two versions of a line, one under the other."""
    lines = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE).splitlines()
    prose = [line if re.match(r"[A-Za-z`*]", line) else "" for line in lines]
    twice = [one for one, other in itertools.pairwise(prose) if len(one) > 60 and one[:60] == other[:60]]
    assert twice == []
