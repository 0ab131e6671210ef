"""The command, whether started as the script or as `python -m shardmeter`: what is here runs before anything costs time.

From the first line on an interrupt ends the command with one word and exit code 130, and a request to end (SIGTERM) with 143, wherever
Python is in an import; while a command runs, both are its own business (`cli.main`). After it, the system's default: the process ends
there and then.
"""

import os
import signal
import sys

INTERRUPTED, TERMINATED = 130, 143


def _end(number: int = signal.SIGINT, _: object = None) -> None:
    is_request = number == signal.SIGTERM
    os.write(2, b"terminated\n" if is_request else b"interrupted\n")
    os._exit(TERMINATED if is_request else INTERRUPTED)


def main() -> int:
    """Run the command line and return its exit code. An interrupt, or a request to end, that is ignored from outside stays ignored."""
    heeded = [
        number
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
        if signal.getsignal(number) is usual
    ]
    for number in heeded:
        signal.signal(number, _end)
    from shardmeter.cli import main as run
    from shardmeter.core.interrupts import Terminated, interrupt, send_again, terminate

    send_again()
    for number in heeded:
        signal.signal(number, terminate if number == signal.SIGTERM else interrupt)
    try:
        return run()
    except KeyboardInterrupt as came:  # between two lines of it
        _end(signal.SIGTERM if isinstance(came, Terminated) else signal.SIGINT)
        raise
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
