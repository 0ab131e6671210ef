"""`shardmeter import`: the settings of a trainer as a scenario."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import filling_options, given
from shardmeter.cli.output import warn, write
from shardmeter.cli.saving import savable, save

EPILOG = """Examples:

\b
  shardmeter import llama3_8b.toml --gpus 64xH100-SXM5-80GB
  shardmeter import train.sh --from megatron --model llama-3.1-70b --gpus 128xH100-SXM5-80GB -o run.yaml
  shardmeter import ds_config.json --model llama-3.1-8b --gpus 8xH100-SXM5-80GB --format json
  shardmeter import train.log

Every setting of FILE is understood, ignored with a reason, or unknown to the trainer itself. The options fill in what FILE does not
tell (mostly the model and the accelerators), and win over it. Exit code 1 where something is missing still.
Of a training log: how long a step took, which reports that rests on, what its head says of the run. Exit code 1 where it has no time."""


@click.command("import", epilog=EPILOG, short_help="What is the scenario of my trainer's settings?")
@click.argument("file")
@click.option("--from", "format_", metavar="FORMAT", help="What FILE is; left out, it is recognised by its content.")
@click.option(
    "--for", "version", default="", metavar="VERSION", help="Version of the trainer; left out, what FILE tells."
)
@click.option("-o", "--out", metavar="FILE", help="Write the scenario, for predict FILE. A .yaml or .json.")
@filling_options
def import_(file: str, format_: str | None, version: str, out: str | None, **asked: Any) -> int:
    """Read FILE, the settings of a trainer, as a scenario, and tell what became of each of them; or read the log of a run."""
    saved = savable(out, "-o")
    from shardmeter.interop.logs import is_log

    if is_log(file, format_):
        return _log(file, format_, out if saved else None, asked)
    from shardmeter.interop.importing import import_config
    from shardmeter.render import importing as page

    said = given(asked)
    found = import_config(
        file, format_, version=version, overrides=said["overrides"], catalog=said["catalog"], **said["options"]
    )
    answer = found.to_dict()
    warn(answer["warnings"])
    if saved and out is not None:
        save(answer["scenario"], out)
    write(page.document(answer), asked["output"])
    return 0 if answer["complete"] else 1


def _log(file: str, format_: str | None, out: str | None, asked: dict[str, Any]) -> int:
    """What a log says of its run, and the scenario that its head tells."""
    from shardmeter.cli.progress import progress
    from shardmeter.interop.importing import completed
    from shardmeter.interop.logs import read
    from shardmeter.interop.logs.scenario import imported, known
    from shardmeter.render import reading_log as page

    with progress("reading the log"):
        account = read(file, format_)
    said = given(asked)
    found = completed(file, imported(account), **said)
    if account.step_time is None and found.scenario is not None:  # a rate alone, with what the options say of the run
        account = read(file, format_, known=known(found.scenario))
    answer = {**account.to_dict(), "source": file, "scenario": dict(found.document), "missing": list(found.missing)}
    warn(answer["warnings"])
    if out is not None:
        save(answer["scenario"], out)
    write(page.document(answer, file), asked["output"])
    return 0 if account.step_time is not None else 1
