"""`shardmeter ui`: the page, served from this machine."""

from __future__ import annotations

import sys

import click

from shardmeter.cli.options import catalog_option
from shardmeter.cli.output import say, written
from shardmeter.core.errors import Unavailable

EPILOG = """Examples:

\b
  shardmeter ui
  shardmeter ui --no-open --port 8700
  ssh -L 8642:127.0.0.1:8642 cluster shardmeter ui --no-open

The page asks this server alone, and the server reads no file but the catalog's. It has no password: whoever reaches its port may ask
it questions. Ctrl-C ends it. Exit code 74 where a package is missing or the port is taken."""


@click.command(epilog=EPILOG, short_help="The page: describe a run, move sliders, see the answer.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen at; beyond this machine only if you say so.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port; 0 is any that is free. Left out, 8642, or any where that is taken.",
)
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the page in a browser.")
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME",
    help="Another name by which the page may be asked for, such as a proxy's. Repeatable.",
)  # fmt: skip
@catalog_option
def ui(host: str, port: int | None, opens: bool, names: tuple[str, ...], catalogs: tuple[str, ...]) -> int:
    """Serve the page: describe model, fleet and plan, and see throughput, memory, time, cost and what limits them."""
    from shardmeter.cli.options import rows
    from shardmeter.ui import serving

    if absent := serving.missing():
        verb = "is" if len(absent) == 1 else "are"
        raise Unavailable(
            f"{', '.join(absent)} {verb} not installed, which the page needs: pip install 'shardmeter[ui]'"
        )
    from pathlib import Path

    from shardmeter.ui.app import Settings
    from shardmeter.ui.guard import hosts_of, is_loopback

    rows(catalogs)  # what is wrong with them is said before anything is served
    made = serving.bound(host, port)
    address = serving.address_of(made)
    if not is_loopback(host):
        say(f"warning: {host or 'every address'} is reached from other machines, and the page has no password")
    settings = Settings(
        hosts=hosts_of(host, (*names, made.getsockname()[0])),
        folders=tuple(str(Path(one).absolute()) for one in catalogs),
    )

    def ready() -> None:
        with written():
            sys.stdout.write(f"the page is at {address} (Ctrl-C ends it)\n")
            sys.stdout.flush()
        if opens:
            import webbrowser

            webbrowser.open(address)

    serving.serve(settings, made, ready)
    return 0
