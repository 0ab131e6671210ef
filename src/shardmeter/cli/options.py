"""Options that several commands share, and how they become a scenario."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from shardmeter.scenario.catalog import Catalog
    from shardmeter.scenario.parts import Rows
    from shardmeter.scenario.read import Document
    from shardmeter.specs import Scenario

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "json", "csv")

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="What to write to standard output.",
)
catalog_option = click.option(
    "--catalog",
    "catalogs",
    multiple=True,
    metavar="DIR",
    help="A folder with more catalog rows; its rows win over the shipped ones. Repeatable.",
)

SCENARIO_OPTIONS = (
    click.argument("scenario", required=False),
    click.option(
        "--model",
        metavar="NAME|FILE",
        help="A model of the catalog, a Hugging Face config.json or a folder with one, or a file with its numbers.",
    ),
    click.option("--gpus", metavar="NxNAME", help="One island of N accelerators, as in 64xH100-SXM5-80GB."),
    click.option(
        "--instance", metavar="[Nx]NAME", help="N cloud instances, or as many as --gpus needs; they fill the price."
    ),
    click.option("--fabric", metavar="NAME", help="The network between nodes; left out, the accelerator's usual one."),
    click.option("--price", metavar="PRICE", help="Rent, in single quotes: '$2.10/gpu/h' or '$98.32/node/h'."),
    click.option("--prices", metavar="FILE", help="A file of prices that win over the catalog's."),
    click.option("--plan", metavar="NAME[,key=value…]", help="The layout, as in fsdp,tp=8,recompute=full."),
    click.option("--stack", metavar="NAME", help="The training software."),
    click.option("--seq", metavar="TOKENS", help="Sequence length."),
    click.option("--micro-batch", metavar="N", help="Sequences per GPU group and pass."),
    click.option("--global-batch", metavar="N", help="Sequences per optimizer step, or '8M tokens'."),
    click.option("--tokens", metavar="N", help="Length of the run, as in 1.5T."),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="a.b=VALUE",
        help="Override one field of the scenario, as in plan.tp=8. Repeatable.",
    ),
    catalog_option,
    format_option,
)


def scenario_options(command: F) -> F:
    """The argument SCENARIO and the options that stand for one, or change one."""
    for decorate in reversed(SCENARIO_OPTIONS):
        command = decorate(command)
    return command


def filling_options(command: F) -> F:
    """The options of a scenario without the argument, for a command that takes another file."""
    for decorate in reversed(SCENARIO_OPTIONS[1:]):
        command = decorate(command)
    return command


SHORTCUTS = (
    "model", "gpus", "instance", "fabric", "price", "prices", "plan", "stack", "seq", "micro_batch", "global_batch", "tokens",
)  # fmt: skip
"""Options that stand for one field of a scenario."""


def resolve(asked: dict[str, Any], begins: Collection[str] = (), *, planning: bool = False) -> Scenario:
    """The scenario that the shared options describe; it may break the rules that `begins` names. What `plan: auto` leaves open
    is found, unless `planning` does that."""
    from shardmeter.scenario import load

    scenario = load(_source(asked), **given(asked), begins=begins, planning=planning)
    return scenario if planning or scenario.choices is None else planned(scenario)


def planned(scenario: Scenario) -> Scenario:
    """The best plan of what a scenario leaves open."""
    from shardmeter.cli.progress import counter
    from shardmeter.study.planning.automatic import settled

    with counter("plan: auto, points", shortens=True) as report:
        return settled(scenario, processes=None, progress=report)


def opened(asked: dict[str, Any]) -> tuple[Document, Rows]:
    """The document that the shared options describe, and the catalog: what is resolved point by point."""
    from shardmeter.scenario import opened as document_of

    return document_of(_source(asked), **given(asked))


def _source(asked: dict[str, Any]) -> str | None:
    if asked["scenario"] is None and not asked["overrides"] and all(asked[name] is None for name in SHORTCUTS):
        raise click.UsageError("nothing to answer: name a SCENARIO file, or say --model and --gpus")
    source: str | None = asked["scenario"]
    return source


def given(asked: dict[str, Any]) -> dict[str, Any]:
    """What the shared options say, as the arguments of `scenario.load`."""
    options = {name: asked[name] for name in SHORTCUTS if asked[name] is not None}
    return {"overrides": asked["overrides"], "catalog": rows(asked["catalogs"]), "options": options}


def command_line(command: str, asked: dict[str, Any], more: Iterable[str]) -> str:
    """The same question to another command, with `more` overrides, as it is typed in a shell."""
    words = ["shardmeter", command, *([asked["scenario"]] if asked["scenario"] is not None else ())]
    for name in SHORTCUTS:
        if asked[name] is not None:
            words += [f"--{name.replace('_', '-')}", asked[name]]
    for folder in asked["catalogs"]:
        words += ["--catalog", folder]
    for text in (*asked["overrides"], *more):
        words += ["--set", text]
    return shlex.join(words)


def rows(folders: tuple[str, ...]) -> Catalog | None:
    """The catalog with the user's folders, or None for the shipped one."""
    if not folders:
        return None
    from pathlib import Path

    from shardmeter.scenario.catalog import load_catalog

    return load_catalog(tuple(Path(folder) for folder in folders))
