"""`shardmeter export`: a scenario as the settings of a trainer, and what starts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import say, warn, write
from shardmeter.core.errors import ShardMeterError, Unavailable
from shardmeter.core.files import REFUSED, file_name, put_file

if TYPE_CHECKING:
    from shardmeter.interop.configs.record import Written

EPILOG = """Examples:

\b
  shardmeter export examples/llama-8b-64xh100.yaml --to torchtitan
  shardmeter export examples/llama-8b-64xh100.yaml --to torchtitan --for 0.2.2 -o run/
  shardmeter export examples/llama-70b-tp8-pp4.yaml --to slurm --trainer torchtitan -o run/
  shardmeter export examples/llama-8b-64xh100.yaml --to torchtitan --for 0.2.2 --against mine.toml

What a trainer has no setting for is told under `Not said in these files`. Exit code 1 where its run would be another one than the
scenario, with every reason."""


@click.command(epilog=EPILOG, short_help="What does my trainer have to be told to run this plan?")
@scenario_options
@click.option(
    "--to",
    required=True,
    metavar="FORMAT",
    help="torchtitan, torchft, megatron, nanotron, deepspeed, accelerate; or torchrun, slurm, skypilot, dstack with --trainer.",
)
@click.option(
    "--for",
    "version",
    default="",
    metavar="VERSION",
    help="Version of the trainer (or of the launcher); left out, the usual one.",
)
@click.option("--trainer", metavar="FORMAT", help="What a launcher starts.")
@click.option("-o", "--out", metavar="FOLDER", help="Write the files there; left out, they are shown.")
@click.option("--against", metavar="ORIGINAL", help="A file of the same trainer: list what is said differently.")
def export(to: str, version: str, trainer: str | None, out: str | None, against: str | None, **asked: Any) -> int:
    """Write SCENARIO as the settings of a trainer, and as the script that starts it."""
    _refuse_folder(out)
    from shardmeter.interop.configs.record import Inexpressible
    from shardmeter.interop.exporting import export_of
    from shardmeter.render import exporting as page
    from shardmeter.render.heading import heading

    scenario = resolve(asked)
    try:
        found = export_of(scenario, to, version=version, trainer=trainer, against=against)
    except Inexpressible as error:
        reasons = tuple(str(one) for one in error.violations) or (error.message,)
        write(page.refusal(to, version, reasons), asked["output"])
        return 1
    answer = found.to_dict()
    warn(answer["warnings"])
    written = () if out is None else _written(found.exported.files, Path(out))
    write(page.document(answer, heading(scenario), written=written), asked["output"])
    return 0


def _refuse_folder(out: str | None) -> None:
    """Raises ShardMeterError where no folder can be, before any work."""
    if out is not None and (Path(out).is_file() or not Path(out).absolute().parent.is_dir()):
        raise ShardMeterError(
            f"{out}: no folder for files ({'is a file' if Path(out).is_file() else 'nor is there one above it'})"
        )


def _written(files: Sequence[Written], folder: Path) -> tuple[str, ...]:
    """Write files into a folder, which is made; their paths. Raises ShardMeterError,
    Unavailable where the machine takes none."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        kind = Unavailable if error.errno in REFUSED else ShardMeterError
        raise kind(f"{file_name(folder)}: cannot be made ({error.strerror or 'no reason is given'})") from None
    for one in files:
        put_file(folder / one.name, one.text, executable=one.executable)
    say(f"written: {', '.join(str(folder / one.name) for one in files)}")
    return tuple(str(folder / one.name) for one in files)
