"""The group of commands, and the exit codes.

Importing this module imports click and nothing else that costs time: NumPy, pydantic and rich are imported by the commands
when they run.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence

import click

from shardmeter import __version__
from shardmeter.cli.audit import audit
from shardmeter.cli.calibrate import calibrate
from shardmeter.cli.catalog import catalog
from shardmeter.cli.diff import diff
from shardmeter.cli.doctor import doctor
from shardmeter.cli.explain import explain
from shardmeter.cli.export import export
from shardmeter.cli.front import front
from shardmeter.cli.import_ import import_
from shardmeter.cli.infer import infer
from shardmeter.cli.lab import lab
from shardmeter.cli.measure import measure
from shardmeter.cli.output import PipeClosedError, UnwritableError, prepare, say, silence, written
from shardmeter.cli.plan import plan
from shardmeter.cli.predict import predict
from shardmeter.cli.report import report
from shardmeter.cli.returns import returns
from shardmeter.cli.sensitivity import sensitivity
from shardmeter.cli.show import show
from shardmeter.cli.solve import solve
from shardmeter.cli.sweep import sweep
from shardmeter.cli.trace import trace
from shardmeter.cli.tradeoffs import tradeoffs
from shardmeter.cli.transitions import transitions
from shardmeter.cli.ui import ui
from shardmeter.cli.validate import validate
from shardmeter.core.errors import ShardMeterError, Unavailable, printable
from shardmeter.core.files import REFUSED, file_name
from shardmeter.core.interrupts import Terminated

ANSWERED, ANSWER_IS_NO, MALFORMED, OUR_FAULT, UNWRITABLE, INTERRUPTED, PIPE_CLOSED, TERMINATED = (
    0, 1, 2, 70, 74, 130, 141, 143,
)  # fmt: skip

NO_NAME = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR})
"""What a machine says of a name that no file of its can have."""

EPILOG = """Exit codes: 0 answered; 1 valid, but the answer is no (does not fit, a bar missed); 2 malformed input;
70 a fault of ours; 74 a file cannot be written, a scheduler not be reached, a package or a port is missing; 130 interrupted;
141 nobody read it to the end; 143 ended from outside."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG)
@click.version_option(__version__, prog_name="shardmeter", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def cli(debug: bool) -> None:
    """How fast, how much memory, how long and how much: transformer training on any GPUs and any sharding."""


for _command in (
    predict,
    report,
    explain,
    plan,
    front,
    solve,
    sweep,
    returns,
    transitions,
    sensitivity,
    tradeoffs,
    diff,
    doctor,
    trace,
    infer,
    calibrate,
    audit,
    import_,
    export,
    validate,
    measure,
    lab,
    catalog,
    show,
    ui,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no exception leaves this function."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare()
    try:
        code = _run(given)
        with written():
            sys.stdout.flush()
    except PipeClosedError:
        silence(sys.stdout)
        return PIPE_CLOSED
    except UnwritableError as error:
        silence(sys.stdout)
        say(f"error: the output cannot be written: {error}")
        return UNWRITABLE
    return code


def _run(given: list[str]) -> int:
    streams = sys.stdout, sys.stderr
    try:
        result = cli.main(args=given, prog_name="shardmeter", standalone_mode=False)
    except click.ClickException as error:
        say(_usage(error))
        return MALFORMED
    except (KeyboardInterrupt, click.Abort) as came:
        is_request = isinstance(came, Terminated) or isinstance(
            came.__cause__, Terminated
        )  # click makes an Abort of it
        say("terminated" if is_request else "interrupted")
        return TERMINATED if is_request else INTERRUPTED
    except ShardMeterError as error:
        say(f"error: {error}")
        return UNWRITABLE if isinstance(error, Unavailable) else MALFORMED
    except SystemExit as stop:  # click's own: shell completion, a pipe that closed under a help text
        if sys.stdout is not streams[0]:  # click puts its own in the place of a pipe that closed
            sys.stdout, sys.stderr = streams
            raise PipeClosedError from None
        return stop.code if isinstance(stop.code, int) else ANSWERED
    except (PipeClosedError, UnwritableError):
        raise
    except OSError as error:
        return _refused(error, debug="--debug" in given)
    except Exception as error:  # noqa: BLE001  (the last line of defence: no traceback reaches a user)
        return _our_fault(error, debug="--debug" in given)
    return result if isinstance(result, int) else ANSWERED


def _refused(error: OSError, *, debug: bool) -> int:
    """What the machine did not do. Raises UnwritableError, PipeClosedError for what was to go to standard output: it has no file name."""
    if error.filename is None:  # a help text that could not be written
        with written():
            raise error
    if error.errno not in REFUSED | NO_NAME:
        return _our_fault(error, debug=debug)
    say(f"error: {file_name(error.filename)}: cannot be used ({error.strerror})")  # a folder for temporary files, say
    return MALFORMED if error.errno in NO_NAME else UNWRITABLE


def _usage(error: click.ClickException) -> str:
    """What click says of arguments that are none, with the usage in front."""
    context = getattr(error, "ctx", None)
    says = f"Error: {error.format_message()}"
    if context is None:
        return says
    if error.format_message() == context.get_help():  # a group without a command: its help is all there is to say
        return error.format_message()
    if isinstance(error, click.NoSuchOption) and any("--set" in one.opts for one in context.command.params):
        from shardmeter.scenario.option_words import meant_by

        field = meant_by(error.option_name)
        says = f"Error: No such option '{printable(error.option_name)}': {field}" if field else says
    return f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n{says}"


def _our_fault(error: Exception, *, debug: bool) -> int:
    says = " ".join(str(error).split())[:200]
    hint = "" if debug else "; `shardmeter --debug …` shows where"
    lines = traceback.format_exception(error) if debug else []
    say("".join(lines) + f"unexpected error, please report it: {type(error).__name__}: {says}{hint}")
    return OUR_FAULT
