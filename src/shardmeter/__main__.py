"""The command, whether started as the script or as `python -m shardmeter`: what is here runs before anything costs time.

From the first line on an interrupt ends the command with one word and exit code 130, wherever Python is in an import; while a
command runs, an interrupt is its own business (`cli.main`). After it, the system's default: the process ends there and then.
"""

import os
import signal
import sys

INTERRUPTED = 130


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def main() -> int:
    """Run the command line and return its exit code. An interrupt that is ignored from outside stays ignored."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _end)
    from shardmeter.cli import main as run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:  # between two lines of it
        _end()
        raise
    finally:
        if heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
