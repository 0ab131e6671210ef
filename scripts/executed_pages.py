"""Runs what docs/tutorial.md, docs/how-to/ and docs/studies/ show, and writes what it prints into them; `--check` only compares.

A page is run from top to bottom in one folder of its own, in which `examples` is the repository's:

* a block `console` is its commands (`$ …`, continued after a backslash) with what each prints: `shardmeter …`, or `cat FILE`;
* `<!-- shows: head; Speed; Memory:3 -->` on the line above keeps of the output the first paragraph and the sections with these titles, the
  last with 3 lines of its table; what is left out is a line `…`;
* `<!-- refused -->` there says that the input is to be refused (exit code 2); any other exit code than 0 and 1 is a fault of the page;
* a block `python` is run, and a block `text` right after it is what it prints;
* a file named by `--plot` is drawn by this script into docs/figures/studies, where those stay that a page shows; the test leaves the option out.

Blocks of any other kind (`sh`, `yaml`) are not run."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pages
from shardmeter.cli import main as shardmeter

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures" / "studies"
BLOCK = re.compile(
    r"(?P<head>(?:<!-- shows: (?P<shows>.*?) -->\n|(?P<refused><!-- refused -->\n))?```console\n)(?P<console>.*?)(?P<foot>```)"
    r"|```python\n(?P<python>.*?)```(?:\n\n```text\n(?P<text>.*?)```)?",
    re.DOTALL,
)
HEAD = "head"
REFUSED = 2
"""The exit code of input that cannot be read."""
ELLIPSIS = "…"


class Stale(Exception):
    """A page that cannot be run: what and where."""


def pages_run() -> tuple[Path, ...]:
    """The pages that are run, in the order in which they are read."""
    return (DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md")), *sorted((DOCS / "studies").glob("*.md")))


def fresh(page: Path, *, draw: bool = False) -> str:
    """The page with what its commands print now; `draw` also draws its figures.

    Raises `Stale` for a command that is none of ours, fails, or prints no section of a name that is to be shown."""
    text = page.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        return text
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), plain():
        Path("examples").symlink_to(ROOT / "examples")
        return BLOCK.sub(lambda found: block(found, page, draw=draw), text)


def block(found: re.Match[str], page: Path, *, draw: bool) -> str:
    """One block as it has to be."""
    if found["python"] is not None:
        printed = ran(found["python"], page)
        if found["text"] is None:
            return found[0]
        return f"```python\n{found['python']}```\n\n```text\n{printed}```"
    lines = []
    for command in commands(found["console"]):
        printed = answer(command, page, draw=draw, refused=found["refused"] is not None)
        lines.append(f"$ {command}\n{kept(printed, found['shows'], f'{page.name}: {command}')}")
    return f"{found['head']}{''.join(lines)}{found['foot']}"


def commands(text: str) -> Iterator[str]:
    """The commands of a block, each as it is written, with its line breaks."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            whole = line[2:]
            while whole.endswith("\\"):
                whole += "\n" + next(lines)
            yield whole


def answer(command: str, page: Path, *, draw: bool, refused: bool) -> str:
    """What a command prints: warnings, standard output, and all of standard error where the input is to be refused."""
    name, *words = shlex.split(command.replace("\\\n", " "), comments=True)
    if name == "cat":
        return "".join(Path(word).read_text(encoding="utf-8") for word in words)
    if name != "shardmeter":
        raise Stale(f"{page.name}: {name} is not run here; write it into a block `sh`")
    if "--plot" in words:
        at = words.index("--plot")
        drawn = [words[at], str(FIGURES / words[at + 1])] if draw else []
        words = words[:at] + drawn + words[at + 2 :]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = shardmeter(words)
    if code not in ((REFUSED,) if refused else (0, 1)):
        raise Stale(f"{page.name}: {command}: exit code {code}: {err.getvalue()}")
    if refused:
        return out.getvalue() + err.getvalue()
    warnings = [f"{line}\n" for line in err.getvalue().splitlines() if line.startswith("warning: ")]
    return "".join(warnings) + out.getvalue()


def ran(source: str, page: Path) -> str:
    """What a block of Python prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(page), "exec"), {"__name__": page.stem})  # noqa: S102
    return out.getvalue()


def kept(printed: str, shows: str | None, where: str) -> str:
    """Of what is printed the sections that are to be shown, in their own order."""
    if shows is None:
        return printed
    wanted = dict(re.findall(r" *([^;]+?)(?::(\d+))? *(?:;|$)", shows))
    lines: list[str] = []
    for at, section in enumerate(re.split(r"\n\n+", printed.strip("\n"))):
        title = HEAD if at == 0 else next((name for name in wanted if section.startswith(name)), None)
        if title in wanted:
            whole = section.splitlines()
            few = whole[: int(wanted.pop(title)) + 1] if wanted[title] else wanted.pop(title) or whole
            lines += ["", *few, *([f"  {ELLIPSIS}"] if len(few) < len(whole) else [])]
        elif lines[-1:] != [ELLIPSIS]:
            lines += ["", ELLIPSIS]
    if wanted:
        titles = [section.partition("\n")[0] for section in re.split(r"\n\n+", printed.strip("\n"))]
        raise Stale(f"{where}: prints no section {', '.join(wanted)}, but {'; '.join(titles)}")
    return "\n".join(lines[1:]) + "\n"


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """As off a terminal, whoever runs this."""
    kept_aside = {name: os.environ.pop(name) for name in ("COLUMNS", "FORCE_COLOR") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept_aside)


def main() -> int:
    """Write every page, and its figures; or compare. Names of pages as arguments narrow to these."""
    wanted = {word for word in sys.argv[1:] if not word.startswith("-")}
    check = "--check" in sys.argv[1:]
    FIGURES.mkdir(parents=True, exist_ok=True)
    code = 0
    for page in pages_run():
        if wanted and page.stem not in wanted:
            continue
        try:
            new = fresh(page, draw=not check)
        except Stale as stale:
            print(stale, file=sys.stderr)
            code = 1
            continue
        code |= pages.kept(page, new)
    if not check:
        prune()
    return code


def prune() -> None:
    """Remove figures that no page shows: a command draws several."""
    shown = "\n".join(page.read_text(encoding="utf-8") for page in pages_run())
    for figure in FIGURES.glob("*.svg"):
        if f"figures/studies/{figure.name}" not in shown:
            figure.unlink()


if __name__ == "__main__":
    sys.exit(main())
