"""The command line cannot grow or shrink by accident: a new option is added here too."""

import inspect
import re
from pathlib import Path

import click
import pytest

import shardmeter
from shardmeter.cli import cli

SCENARIO = {
    "scenario",
    "--model",
    "--gpus",
    "--instance",
    "--fabric",
    "--price",
    "--prices",
    "--plan",
    "--stack",
    "--seq",
    "--micro-batch",
    "--global-batch",
    "--tokens",
    "--set",
    "--catalog",
    "--format",
}
OPTIONS = {
    "predict": SCENARIO | {"--deadline", "--budget"},
    "report": SCENARIO | {"-o", "--out", "--title", "--date", "--deadline", "--budget", "--search", "--alternatives"},
    "explain": SCENARIO | {"--term"},
    "plan": SCENARIO
    | {
        "--objective",
        "--deadline",
        "--budget",
        "--top",
        "--processes",
        "--scale-across",
        "--over",
        "--buildings",
        "--save",
        "--plot",
    },
    "solve": SCENARIO | {"question"},
    "sweep": SCENARIO
    | {"--over", "--columns", "-o", "--out", "--overwrite", "--engine", "--workers", "--shard", "--join"},
    "returns": SCENARIO | {"--axis", "--over", "--scaling", "--plot"},
    "transitions": SCENARIO | {"--x", "--y", "--plot"},
    "trace": SCENARIO | {"-o", "--out", "--svg", "--steps", "--rounds", "--island", "--ranks", "--straggle", "--seed"},
    "import": SCENARIO - {"scenario"} | {"file", "--from", "--for", "-o", "--out", "--plot"},
    "export": SCENARIO | {"--to", "--for", "--trainer", "-o", "--out", "--against"},
    "infer": SCENARIO
    | {"--how", "--prompt", "--output", "--batch", "--in-flight", "--experts", "--top-k", "--together", "--blocks"}
    | {"--traversals", "--eager", "--compare", "--crossover", "--plot"},
    "audit": SCENARIO | {"--claim", "--convention", "--plot"},
    "front": SCENARIO | {"--deadline", "--budget", "--plot"},
    "doctor": SCENARIO | {"--measured", "--against", "--set-b", "--measured-b", "--plot"},
    "diff": {"a", "b", "--set", "--set-b", "--catalog", "--format"},
    "sensitivity": SCENARIO | {"--of", "--what-if", "--with", "--pairs", "--all", "--plot"},
    "tradeoffs": SCENARIO | {"--over", "--plot"},
    "ui": {"--host", "--port", "--open", "--allow-host", "--catalog"},
    "validate": {"file", "--bars", "--catalog", "--format"},
    "measure": {"--device", "--quick", "--budget", "--threads", "--clock", "--ranks", "--name", "--like", "--from"}
    | {"-o", "--out", "--profile", "--catalog", "--format", "--plot"},
    "calibrate": SCENARIO | {"--log", "--rows", "--nccl", "--name", "-o", "--out", "--plot"},
    "lab": set(),
    "show": {"file", "--format"},
    "catalog": {"kind", "name", "--catalog", "--format"},
}


LAB = {
    "run": {"study", "-o", "--out", "--only", "--kind", "--again", "--format"},
    "report": {"folder", "--bars", "-o", "--out", "--plot", "--format"},
    "check": {"--format"},
}


def names(command: click.Command) -> set[str]:
    found = set()
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            found.add(str(parameter.name))
        else:
            found.update(parameter.opts)
    return found


def test_the_commands():
    assert set(cli.commands) == set(OPTIONS)


@pytest.mark.parametrize("command", OPTIONS)
def test_the_options(command):
    assert names(cli.commands[command]) == OPTIONS[command]


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_has_help(command):
    for parameter in cli.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
    assert cli.commands[command].help


def test_the_commands_of_the_lab():
    lab = cli.commands["lab"]
    assert isinstance(lab, click.Group)
    assert {name: names(command) for name, command in lab.commands.items()} == LAB
    for command in lab.commands.values():
        assert command.help
        assert "Examples:" in str(command.epilog)
        assert all(parameter.help for parameter in command.params if isinstance(parameter, click.Option))


EVERY = re.compile(
    r"`--format table`, `json` or `csv`, but for (?P<formless>.*?), which serves a page;\s+and, but for (?P<apart>.*?), a function of the same name",
    re.DOTALL,
)


def test_what_the_readme_says_of_every_command():
    """Which command has which formats, and which is a function in Python: the sentence names exactly the others."""
    said = EVERY.search((Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8"))
    assert said is not None
    formless, apart = (set(re.findall(r"`([a-z]+)`", said[part])) for part in ("formless", "apart"))
    single = {name: command for name, command in cli.commands.items() if not isinstance(command, click.Group)}
    for group in (command for command in cli.commands.values() if isinstance(command, click.Group)):
        single |= {f"{group.name} {name}": command for name, command in group.commands.items()}
    formats = {
        name: [getattr(p.type, "choices", ()) for p in one.params if "--format" in p.opts]
        for name, one in single.items()
    }
    assert {name for name, found in formats.items() if not found} == formless
    assert all(list(found[0]) == ["table", "json", "csv"] for name, found in formats.items() if name not in formless)
    assert all("Examples:" in str(command.epilog) for command in single.values())
    functions = {name: getattr(shardmeter, {"import": "import_config"}.get(name, name), None) for name in cli.commands}
    assert {name for name, found in functions.items() if not inspect.isfunction(found)} == apart
