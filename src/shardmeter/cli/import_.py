"""`shardmeter import`: the settings of a trainer, or the log of a run, as a scenario."""

from __future__ import annotations

from typing import Any

import click

from shardmeter.cli.options import filling_options, given
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option
from shardmeter.cli.progress import progress
from shardmeter.cli.saving import savable, save

EPILOG = """Examples:

\b
  shardmeter import llama3_8b.toml --gpus 64xH100-SXM5-80GB
  shardmeter import train.sh --from megatron --model llama-3.1-70b --gpus 128xH100-SXM5-80GB -o run.yaml
  shardmeter import ds_config.json --model llama-3.1-8b --gpus 8xH100-SXM5-80GB --format json
  shardmeter import train.log --model llama-3.1-8b -o run.yaml

Every setting of FILE is understood, ignored with a reason, or unknown to the trainer itself. The options fill in what FILE does not
tell (mostly the model and the accelerators), and win over it. A log tells how fast its run was, and what its head says of the
plan. Exit code 1 where settings lack something still, and where a log has no time of a step."""


@click.command("import", epilog=EPILOG, short_help="What is the scenario of my trainer's settings?")
@click.argument("file")
@click.option("--from", "format_", metavar="FORMAT", help="What FILE is; left out, it is recognised by its content.")
@click.option(
    "--for", "version", default="", metavar="VERSION", help="Version of the trainer; left out, what FILE tells."
)
@click.option("-o", "--out", metavar="FILE", help="Write the scenario, for predict FILE. A .yaml or .json.")
@plot_option("Draw the pace of a log.")
@filling_options
def import_(file: str, format_: str | None, version: str, out: str | None, plot: str | None, **asked: Any) -> int:
    """Read FILE, the settings of a trainer or the log of a run, as a scenario, and tell what became of each of them."""
    saved, drawn = savable(out, "-o"), drawable(plot)
    from shardmeter.interop.importing import import_config
    from shardmeter.render import importing as page

    said = given(asked)
    with progress("reading"):
        found = import_config(
            file, format_, version=version, overrides=said["overrides"], catalog=said["catalog"], **said["options"]
        )
    answer = found.to_dict()
    warn(answer["warnings"])
    if saved and out is not None:
        save(answer["scenario"], out)
        say(_next(answer, out))
    if drawn and plot is not None:
        draw(page.figures(answer), plot)
    write(page.document(answer), asked["output"])
    log = answer["log"]
    return 0 if (answer["complete"] if log is None else log["step_time"] is not None) else 1


def _next(answer: dict[str, Any], file: str) -> str:
    """What can be asked of a scenario that was written."""
    if not answer["complete"]:
        return f"{file} is no whole scenario yet: what is missing stands on the page"
    if answer["log"] is not None:
        return f"next: shardmeter calibrate {file} --log {answer['source']}, or shardmeter doctor {file} --measured …"
    return f"next: shardmeter predict {file}, or shardmeter plan {file} --set plan.tp=any --set plan.micro_batch=any"
