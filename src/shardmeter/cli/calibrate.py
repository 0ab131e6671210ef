"""`shardmeter calibrate`: from a user's own runs and benchmarks to rows that predictions take."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import resolve, rows, scenario_options
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import progress
from shardmeter.core.errors import BadScenario

if TYPE_CHECKING:
    from shardmeter.specs import Scenario
    from shardmeter.study.calibrate.observation import Observation

EPILOG = """Examples:

\b
  shardmeter calibrate run.yaml --log train.log -o ours
  shardmeter predict run.yaml --set plan.tp=4 --catalog ours --stack ours
  shardmeter calibrate run.yaml --log tp8.log,plan.tp=8 --log tp4.log,plan.tp=4 --name cluster-a -o ours
  shardmeter calibrate run.yaml --rows runs.csv --format json
  shardmeter calibrate run.yaml --nccl all_reduce.txt -o ours

SCENARIO is the run as it was, without what was measured of it. A log after which fields are said (FILE,a.b=VALUE) is of the scenario
with these fields. A table of runs has a column step_time (3.2 s) or tokens_per_s, and one for every field that differs (plan.tp).
Three runs of different plans tell much more than three of one plan."""


@click.command(epilog=EPILOG, short_help="Fit the stack and the links to your own runs.")
@scenario_options
@click.option("--log", "logs", multiple=True, metavar="FILE[,a.b=VALUE…]", help="A training log. Repeatable.")
@click.option("--rows", "table", metavar="FILE.csv", help="A table of measured runs.")
@click.option("--nccl", "benchmarks", multiple=True, metavar="FILE", help="Output of nccl-tests. Repeatable.")
@click.option("--name", metavar="NAME", help="What the calibrated stack is called; left out, as the folder of -o.")
@click.option(
    "-o", "--out", "folder", metavar="DIR", help="A user profile, for --catalog: made, or rows of it replaced."
)
@plot_option("Draw measured against predicted, and what became of the numbers.")
def calibrate(
    logs: tuple[str, ...], table: str | None, benchmarks: tuple[str, ...], name: str | None, folder: str | None, plot: str | None,
    **asked: Any,
) -> int:  # fmt: skip
    """Say what measured runs of SCENARIO tell of its stack, with intervals, and write it as catalog rows."""
    runs = bool(logs or table)
    if runs == bool(benchmarks):
        raise click.UsageError("name what was measured: --log and --rows for the stack, or --nccl for the links")
    if benchmarks and name is not None:
        raise click.UsageError("--name calls a stack: it goes with --log and --rows")
    drawn = drawable(plot)
    if folder is not None:
        _refuse_place(folder)
    page, answer, title = _stack(asked, logs, table, name, folder) if runs else _links(asked, benchmarks, folder)
    if drawn and plot is not None:
        draw(page.figures(answer), plot)
    warn(answer["warnings"])
    write(page.document(answer, title), asked["output"])
    return 0


def _refuse_place(folder: str) -> None:
    from shardmeter.study.calibrate.profile import refuse_place

    refuse_place(Path(folder))


def _stack(
    asked: dict[str, Any], logs: tuple[str, ...], table: str | None, name: str | None, folder: str | None
) -> tuple[Any, dict[str, Any], str]:
    from shardmeter.render import calibration
    from shardmeter.study.calibrate.calibration import calibrate as found
    from shardmeter.study.calibrate.calibration import save

    observed, remarks = _observations(asked, logs, table)
    called = " ".join((name or (Path(folder).absolute().name if folder else "")).split())
    with progress("weighing draws"):
        answer = found(observed, called, date=_today())
    if folder is not None:
        save(answer, Path(folder))
        say(f"written: {folder}; predict with --catalog {folder} --stack {answer.after.name}")
    else:
        say("not written: -o DIR makes rows of it, for --catalog DIR")
    data = answer.to_dict()
    return calibration, {**data, "warnings": [*remarks, *data["warnings"]]}, calibration.title(data)


def _observations(
    asked: dict[str, Any], logs: tuple[str, ...], table: str | None
) -> tuple[list[Observation], list[str]]:
    """The runs, and what reading them gave to say."""

    def with_(more: list[str]) -> Scenario:
        return resolve({**asked, "overrides": (*asked["overrides"], *more)})

    found: list[Observation] = []
    remarks: list[str] = []
    named = [re.split(r",(?=[\w.]+=)", text) for text in logs]
    files = [file for file, *_ in named]
    twice = sorted({file for file in files if files.count(file) > 1})
    if twice:
        raise BadScenario(f"{', '.join(twice)}: named twice; a run counts once")
    if "" in files:
        raise BadScenario(f"--log {logs[files.index('')]!r}: no file is named")
    for file, *fields in named:
        from shardmeter.interop.logs.observed import observed

        one, account = observed(Path(file), with_(fields), name=file)
        found.append(one)
        remarks += [f"{file}: {said}" for said in account.warnings]
        remarks += [f"{file}: {some.count} not used, {some.reason} (first: {some.first})" for some in account.dropped]
    if table is not None:
        from shardmeter.interop.runs_table import runs_table

        found += runs_table(Path(table), lambda more: with_(list(more)))
    return found, remarks


def _links(asked: dict[str, Any], benchmarks: tuple[str, ...], folder: str | None) -> tuple[Any, dict[str, Any], str]:
    from shardmeter.core.errors import BadData
    from shardmeter.interop.logs import instruments
    from shardmeter.render import calibration_fabric
    from shardmeter.scenario.catalog import load_catalog
    from shardmeter.study.calibrate.fabric import calibrate_fabric
    from shardmeter.study.calibrate.fabric_rows import put_fabric

    island, *others = resolve(asked).fleet.islands
    if others:
        raise BadScenario(f"{len(others) + 1} islands: links are calibrated on one; calibrate with one of them")
    accounts = [instruments.read(Path(file)) for file in benchmarks]
    tables = [one for account in accounts for one in getattr(account, "benchmarks", ())]
    if not tables:
        raise BadData(f"{', '.join(benchmarks)}: no table of a benchmark of collectives")
    with progress("weighing draws"):
        fit = calibrate_fabric(tables, island.accelerator, island.outside)
    if folder is not None:
        put_fabric(Path(folder), fit, _today(), rows(asked["catalogs"]) or load_catalog())
        say(f"written: {folder}; predict with --catalog {folder}")
    else:
        say("not written: -o DIR makes rows of it, for --catalog DIR")
    data = fit.to_dict()
    remarks = [text for account in accounts for text in account.warnings]
    return calibration_fabric, {**data, "warnings": [*remarks, *data["warnings"]]}, calibration_fabric.title(data)


def _today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()
