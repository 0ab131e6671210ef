"""`--plot FILE`: the figures of an answer as pictures, for every command that has some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardmeter.cli.output import say
from shardmeter.cli.progress import progress
from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable
from shardmeter.core.files import put_file

if TYPE_CHECKING:
    from shardmeter.render.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])
SUFFIXES = (".png", ".svg", ".html")


def plot_option(help_text: str) -> Callable[[F], F]:
    """The option `--plot`, which the command gets as `plot`."""
    return click.option("--plot", metavar="FILE", help=f"{help_text} A .png, .svg or .html (needs matplotlib).")


def drawable(file: str | None) -> bool:
    """Whether a picture is asked for; to be called before any work. Raises BadScenario for a file that cannot be one, ShardMeterError where
    none can be, Unavailable without matplotlib."""
    if file is None:
        return False
    from importlib.util import find_spec

    if not file.lower().endswith(SUFFIXES):
        raise BadScenario(f"--plot {file!r}: a picture is a .png, an .svg or an .html")
    refuse_place(file)
    if find_spec("matplotlib") is None:
        raise Unavailable("--plot needs matplotlib: pip install 'shardmeter[plot]'")
    return True


def refuse_place(file: str) -> None:
    """Raises ShardMeterError where no file can be, as far as that is known before the work."""
    path = Path(file)
    with suppress(ValueError):  # a name that none can have is refused when it is written
        if path.is_dir():
            raise ShardMeterError(f"{file}: cannot be written (Is a directory)")
        if not path.parent.is_dir():
            raise ShardMeterError(f"{file}: cannot be written (there is no folder {path.parent})")


def draw(figures: Sequence[Figure], file: str) -> None:
    """Write the pictures and say where: all on one page of HTML, a single one as the file, several as FILE-slug.svg each. Raises
    ShardMeterError where no file can be there, Unavailable where it takes nothing."""
    if not figures:
        say(f"{file}: not written, the answer has nothing to draw")
        return
    with progress("drawing"):
        pictures = _pictures(figures, file)
    for name, content in pictures.items():
        put_file(name, content)
    say(f"drawn: {', '.join(pictures)}")


def _pictures(figures: Sequence[Figure], file: str) -> dict[str, bytes]:
    """What is to be written, by file."""
    kind = file.lower().rpartition(".")[2]
    if kind == "html":
        from shardmeter.render import plot_html

        return {file: plot_html.page(figures)}
    from shardmeter.render.plot import picture

    stem, suffix = file[: -len(kind) - 1], file[-len(kind) - 1 :]
    names = [file] if len(figures) == 1 else [f"{stem}-{figure.slug}{suffix}" for figure in figures]
    return {name: picture(figure, kind) for name, figure in zip(names, figures, strict=True)}
