"""Writes docs/commands.md from the commands themselves; `--check` fails when the page is not what would be written."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pages import closed, kept
from shardmeter.cli import cli

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
WIDTH = 100
HEAD = """# Commands

Written by `make docs` from the commands' own help; do not edit.

Every command has `--format table|json|csv`: the answer goes to standard output, warnings and progress to standard error.
Exit codes: 0 answered; 1 valid, but the answer is no (the plan does not fit, a bar is missed); 2 malformed input; 70 a fault
of ours; 74 the output cannot be written (a full disk); 141 nobody read it to the end (a closed pipe). Shell completion: `eval "$(_SHARDMETER_COMPLETE=bash_source shardmeter)"` (or `zsh_source`, `fish_source`).
"""
NEXT = (
    "[Which question has which command](README.md).",
    "[The scenario file](scenario.md) that they all take.",
    "[Pictures](gallery.md) of what they draw.",
)


def page() -> str:
    """The whole page."""
    blocks = [HEAD, _help(cli, "shardmeter", None)]
    parent = click.Context(cli, info_name="shardmeter", **cli.context_settings)
    for name, command in sorted(cli.commands.items()):
        blocks.append(f"## {name}\n")
        blocks.append(_help(command, name, parent))
        if isinstance(command, click.Group):
            inside = click.Context(command, info_name=name, parent=parent, **command.context_settings)
            for part, own in sorted(command.commands.items()):
                blocks += [f"### {name} {part}\n", _help(own, part, inside)]
    return closed("\n".join(blocks), *NEXT)


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    return f"```text\n{command.get_help(context).rstrip()}\n```\n"


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
