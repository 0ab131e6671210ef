"""`shardmeter lab`: small transformers really trained over emulated wide-area links, predicted before and measured after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from shardmeter.cli.options import format_option
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option, refuse_place

KINDS = ("auto", "netem", "tun", "loopback")
EPILOG = """Examples:

\b
  shardmeter lab check
  shardmeter lab run fast
  shardmeter lab run bundled -o results
  shardmeter lab report results --plot results.html

Needs PyTorch (pip install 'shardmeter[lab]') and, for emulated lines, Linux with the rights to make network namespaces."""
RUN_EPILOG = """Examples:

\b
  shardmeter lab run fast
  shardmeter lab run mine.yaml -o results --only diloco-3 --again
  shardmeter lab run bundled --kind loopback --format json

For every experiment: the lines are made, each kind of island is timed alone, the prediction is stored, and only then it runs. Exit code 1
when an experiment failed; what was cut or killed on purpose is no failure. docs/lab.md says what a study may hold."""
REPORT_EPILOG = """Examples:

\b
  shardmeter lab report lab-fast
  shardmeter lab report lab-bundled --plot bundled.html -o bundled.md
  shardmeter lab report lab-bundled --bars bars.yaml --format json

Writes report.json, report.md and trace.json (for ui.perfetto.dev) into DIR. A bars file holds lines such as
`totals.round.median_abs_error: {max: 0.1}`; exit code 1 when one is missed, or an experiment failed."""
CHECK_EPILOG = """Examples:

\b
  shardmeter lab check
  shardmeter lab check --format json

Exit code 1 when something is missing."""


@click.group(epilog=EPILOG, short_help="Train small models over emulated lines: predicted before, measured after.")
def lab() -> None:
    """Train small models over emulated wide-area lines, by DDP, FSDP2, pipelines, DiLoCo and others, each predicted before it runs."""


@lab.command(epilog=RUN_EPILOG, short_help="Run a study: predict, then measure.")
@click.argument("study")
@click.option("-o", "--out", metavar="DIR", help="Where the results go; left out, lab-NAME.")
@click.option("--only", multiple=True, metavar="NAME", help="This experiment of the study. Repeatable.")
@click.option(
    "--kind", type=click.Choice(KINDS), default="auto", show_default=True,
    help="How lines are emulated: by the kernel (netem), by a forwarder of ours (tun), not at all (loopback); auto takes the first that works.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Replace results of these experiments that an earlier run left.")
@format_option
def run(study: str, out: str | None, only: tuple[str, ...], kind: str, again: bool, output: str) -> int:
    """Run STUDY: a file, or the word of a study that ships (bundled, fast)."""
    from shardmeter.lab import running
    from shardmeter.lab import study as studies
    from shardmeter.lab.machine import refuse_without_torch

    document = studies.opened(study)
    asked = studies.study_of(document)
    running.chosen(asked, only)
    refuse_without_torch()
    _refuse_without_lines(kind)
    place = Path(out if out is not None else f"lab-{asked.name}")
    text = document.text or json.dumps(document.data, indent=1) + "\n"
    with _terminated():
        ran = running.run(asked, text, place, only=only, kind=kind, again=again, say=say)
    count = len(running.chosen(asked, only))
    say(f"{count} experiment{'' if count == 1 else 's'} in {ran.seconds:.0f} s; results: {place}")
    found = _reported(place)
    warn(found.data["warnings"])
    write(_document(found), output)
    return 1 if ran.failed else 0


@lab.command(epilog=REPORT_EPILOG, short_help="What a study measured, beside what was predicted.")
@click.argument("folder", metavar="DIR")
@click.option("--bars", metavar="FILE", help="Limits that the result must keep.")
@click.option("-o", "--out", metavar="FILE", help="The page as Markdown; left out, DIR/report.md.")
@format_option
@plot_option("Draw rounds and bytes, predicted against measured, and losses over time.")
def report(folder: str, bars: str | None, out: str | None, plot: str | None, output: str) -> int:
    """Set what was measured in DIR, a folder of `lab run`, beside what was predicted."""
    drawn = drawable(plot)
    if out is not None:
        refuse_place(out)
    from shardmeter.lab.report import report as read
    from shardmeter.render import lab as page
    from shardmeter.study.validate.bars import missed, read_bars

    limits = read_bars(Path(bars)) if bars is not None else ()
    found = _reported(Path(folder), None if out is None else Path(out), read(Path(folder)))
    failing = missed(found.data, limits)
    if drawn and plot is not None:
        draw(page.figures(found.data), plot)
    warn(found.data["warnings"])
    write(page.document(found.data, failing), output)
    return 1 if failing or found.failed else 0


@lab.command(epilog=CHECK_EPILOG, short_help="What of the lab works on this machine?")
@format_option
def check(output: str) -> int:
    """Say what of the lab works on this machine, and what is missing for the rest."""
    from shardmeter.lab.checking import checked
    from shardmeter.render import lab as page

    answer = checked()
    write(page.check_document(answer), output)
    return 0 if answer["works"] else 1


def _refuse_without_lines(kind: str) -> None:
    """Raises Unavailable, with the way out, where lines cannot be emulated as asked."""
    from shardmeter.core.errors import Unavailable
    from shardmeter.lab.network import missing

    lacking = missing(kind)
    if lacking:
        raise Unavailable(
            f"lines cannot be emulated here: {'; '.join(lacking)}; --kind loopback trains without, and scores no times"
        )


def _document(found: Any) -> Any:
    from shardmeter.render import lab as page

    return page.document(found.data)


def _reported(place: Path, page: Path | None = None, found: Any = None) -> Any:
    """The report of a folder, written into it as JSON, Markdown and trace."""
    from shardmeter.core.files import put_file
    from shardmeter.lab import folder
    from shardmeter.lab.report import report as read
    from shardmeter.render import json_text, lab_trace, markdown

    found = read(place) if found is None else found
    document = _document(found)
    put_file(place / folder.REPORT, json_text.text(document))
    put_file(page or place / folder.PAGE, markdown.text(document))
    put_file(place / folder.TRACE, lab_trace.text(found.data, found.logs))
    return found


@contextmanager
def _terminated() -> Iterator[None]:
    """A polite request to end, or a terminal that closes, is an interrupt: whatever was made is torn down."""
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
