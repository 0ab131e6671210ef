"""The command line cannot grow or shrink by accident: a new option is added here too."""

import click
import pytest

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
    "validate": {"file", "--bars", "--catalog", "--format"},
    "measure": {"--device", "--quick", "--budget", "--threads", "--clock", "--ranks", "--name", "--like", "--from"}
    | {"-o", "--out", "--profile", "--catalog", "--format", "--plot"},
    "calibrate": SCENARIO | {"--log", "--rows", "--nccl", "--name", "-o", "--out", "--plot"},
    "show": {"file", "--format"},
    "catalog": {"kind", "name", "--catalog", "--format"},
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
