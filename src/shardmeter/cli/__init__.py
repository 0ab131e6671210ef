"""The command line: one thin file a command. `main` is the only place that turns exceptions into exit codes."""

from shardmeter.cli.main import cli, main

__all__ = ["cli", "main"]
