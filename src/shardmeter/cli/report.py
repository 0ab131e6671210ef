"""`shardmeter report`: a document about one scenario, to be sent to whoever decides."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import command_line, opened, scenario_options
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.progress import counter, progress

if TYPE_CHECKING:
    from shardmeter.study.report import Report

EPILOG = """Examples:

\b
  shardmeter report examples/llama-8b-64xh100.yaml -o report.html
  shardmeter report examples/three-clouds-money.yaml --deadline '10 d' --budget '$60k' -o report.pdf
  shardmeter report examples/spot-fleet.yaml -o report.md --title 'Eight spot nodes' --date 2027-01-31
  shardmeter report --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --plan fsdp --tokens 1T --no-search --format json

An .html is one file with its pictures inside, for a screen and for paper; an .md has its pictures as .svg files beside it; a .pdf needs
reportlab (pip install 'shardmeter[report]'; the others need its matplotlib). Without -o the document is printed. Nothing in it
knows the hour: the same scenario gives the same bytes. Exit code 1 when the plan does not fit, or the run misses its deadline or its budget;
the document is written all the same."""


@click.command(epilog=EPILOG, short_help="A document about a scenario: answer, comparison, risks, evidence.")
@scenario_options
@click.option("-o", "--out", metavar="FILE", help="Write the document: an .html, an .md or a .pdf.")
@click.option("--title", metavar="TEXT", default="", help="Title of the document; left out, model and machines.")
@click.option(
    "--date", metavar="YYYY-MM-DD", default="", help="A day to print, on which the run begins; left out, none."
)
@click.option("--deadline", metavar="TIME", help="Is the run done by then, as in '30 d'? Needs the run's length.")
@click.option(
    "--budget", metavar="USD", help="Does it cost no more, as in '$2M'? Needs the run's length and every price."
)
@click.option(
    "--search/--no-search", default=None,
    help="Compare with all plans of the machines; left out, where that takes no more than about half a minute.",
)  # fmt: skip
@click.option(
    "--alternatives", metavar="N", type=click.IntRange(0, 6), default=4, show_default=True,
    help="Other machines to look at: twice and half of them, the next fabric, wider lines between islands, four times, a quarter.",
)  # fmt: skip
def report(
    out: str | None, title: str, date: str, deadline: str | None, budget: str | None, search: bool | None, alternatives: int, **asked: Any
) -> int:  # fmt: skip
    """Write a document about SCENARIO: the question and the answer, other plans and machines, where time and memory go, risks, assumptions
    with their sources, what was validated, and how to make it again."""
    from shardmeter.render import report as page
    from shardmeter.render.heading import heading
    from shardmeter.render.reporting import refuse
    from shardmeter.study.report import Asked
    from shardmeter.study.report import report as found

    if out is not None:
        refuse(out, "-o")
    limits = (("deadline", deadline), ("budget", budget))
    typed = {**asked}
    asked["overrides"] = (*(f"run.{name}={said}" for name, said in limits if said is not None), *asked["overrides"])
    document, rows = opened(asked)
    words = _words(title=title, date=date, search=search, alternatives=alternatives, out=out)
    question = Asked(
        title=title, date=date, search=search, alternatives=alternatives, command=_again(asked, words), typed=_typed(typed, limits, words)
    )  # fmt: skip
    with counter("plans to compare with, points", shortens=True) as sign:
        answer = found(document, rows, question, processes=None, progress=sign)
    shown = page.document(answer.to_dict(), heading(answer.scenario))
    warn(answer.answer["warnings"])
    if out is not None:
        _put(answer, out)
    if out is None or asked["output"] != "table":
        write(shown, asked["output"])
    return 0 if shown.good else 1


def _words(*, title: str, date: str, search: bool | None, alternatives: int, out: str | None) -> list[str]:
    """What is asked beside the scenario, as it is typed."""
    words = ["-o", "report.html" if out is None else Path(out).name]
    words += ["--title", title] if title else []
    words += ["--date", date] if date else []
    words += [] if search is None else ["--search" if search else "--no-search"]
    return words + (["--alternatives", str(alternatives)] if alternatives != 4 else [])


def _typed(asked: dict[str, Any], limits: Iterable[tuple[str, str | None]], words: list[str]) -> str:
    """The command as it was typed, without the folder that it writes to."""
    more = [word for name, said in limits if said is not None for word in (f"--{name}", said)]
    said = f"{command_line('report', asked, ())} {shlex.join([*more, *words])}"
    return said.encode("utf-8", "replace").decode()  # a word that is no UTF-8 text can be typed and not be printed


def _again(asked: dict[str, Any], words: list[str]) -> str:
    """The same of a file that holds the whole scenario."""
    folders = [word for folder in asked["catalogs"] for word in ("--catalog", folder)]
    return shlex.join(["shardmeter", "report", "scenario.yaml", *folders, *words])


def _put(answer: Report, out: str) -> None:
    """Write the files and say which. Raises ShardMeterError where none can be, Unavailable where a disk takes nothing."""
    from shardmeter.core.files import put_file
    from shardmeter.render.reporting import files

    with progress("drawing"):
        made = files(answer, out)
    for name, content in made.items():
        put_file(name, content)
    pictures = f", with {len(made) - 1} pictures beside it" if len(made) > 1 else ""
    say(f"written: {out}{pictures}")
