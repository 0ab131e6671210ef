"""The group of commands, and the exit codes.

Importing this module imports click and nothing else that costs time: NumPy, pydantic and rich are imported by the commands
when they run.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from shardmeter import __version__
from shardmeter.cli.catalog import catalog
from shardmeter.cli.explain import explain
from shardmeter.cli.output import PipeClosedError
from shardmeter.cli.predict import predict
from shardmeter.cli.validate import validate
from shardmeter.core.errors import ShardMeterError

ANSWERED, ANSWER_IS_NO, MALFORMED, OUR_FAULT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141

EPILOG = """Exit codes: 0 answered; 1 valid, but the answer is no (does not fit, a bar missed); 2 malformed input;
70 a fault of ours."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG)
@click.version_option(__version__, prog_name="shardmeter", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def cli(debug: bool) -> None:
    """How fast, how much memory, how long and how much: transformer training on any GPUs and any sharding."""


for _command in (predict, explain, validate, catalog):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no exception leaves this function."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
    except (BrokenPipeError, PipeClosedError):
        _silence_stdout()
        return PIPE_CLOSED
    return code


def _run(given: list[str]) -> int:
    try:
        result = cli.main(args=given, prog_name="shardmeter", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return MALFORMED
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except ShardMeterError as error:
        click.echo(f"error: {error}", err=True)
        return MALFORMED
    except SystemExit as stop:  # click's own: shell completion, a pipe that closed under a help text
        return stop.code if isinstance(stop.code, int) else ANSWERED
    except (BrokenPipeError, PipeClosedError):
        raise
    except Exception as error:  # noqa: BLE001  (the last line of defence: no traceback reaches a user)
        return _our_fault(error, debug="--debug" in given)
    return result if isinstance(result, int) else ANSWERED


def _our_fault(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    says = " ".join(str(error).split())[:200]
    hint = "" if debug else "; `shardmeter --debug …` shows where"
    click.echo(f"unexpected error, please report it: {type(error).__name__}: {says}{hint}", err=True)
    return OUR_FAULT


def _silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain while it closes."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return
    finally:
        os.close(nowhere)
