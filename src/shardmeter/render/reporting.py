"""`report`: the document about a scenario, as a record, and as a file of HTML, Markdown or PDF."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable, kind_of, shown
from shardmeter.core.files import put_file
from shardmeter.render.heading import heading

if TYPE_CHECKING:
    from shardmeter.study.api import Overrides, Rows
    from shardmeter.study.report import Report

NEEDS = {".html": ("matplotlib",), ".md": ("matplotlib",), ".pdf": ("matplotlib", "reportlab")}
"""What each kind of file is made with."""


def report(
    scenario: Mapping[str, Any] | str | Path | None = None,
    file: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    date: str = "",
    search: bool | None = None,
    alternatives: int | None = None,
    deadline: str | None = None,
    budget: str | None = None,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Report:
    """Everything that a document about a scenario says, written to `file` (.html, .md with .svg beside it, .pdf) where one is named; the rest
    is as in `predict`.

    `shardmeter.report("run.yaml", "report.pdf", deadline="30 d")`. `search` None compares with all plans of the machines unless they are too
    many, True always, False never; `alternatives` counts the other machines that are looked at; `date` is a day that is printed, on which the
    run begins. Raises BadScenario with everything that is wrong, UnknownName, Unavailable without the libraries that draw, ShardMeterError
    where no file can be."""
    from shardmeter.scenario import opened
    from shardmeter.scenario.override import apply_overrides
    from shardmeter.specs import Scenario
    from shardmeter.study.report import ALTERNATIVES, Asked
    from shardmeter.study.report import report as found

    place = None if file is None else _place(file)
    if isinstance(scenario, Scenario):
        raise TypeError(
            "a report holds the scenario as it is said, which a resolved Scenario has not: give the file or mapping"
        )
    said = {"run.deadline": deadline, "run.budget": budget}
    document, rows = opened(scenario, overrides=overrides, catalog=catalog, options=options)
    limits = tuple(f"{name}={value}" for name, value in said.items() if value is not None)
    if limits:
        apply_overrides(document, limits)
    count = ALTERNATIVES if alternatives is None else alternatives
    answer = found(document, rows, Asked(title=title, date=date, search=search, alternatives=count))
    if place is not None:
        for name, content in files(answer, place).items():
            put_file(name, content)
    return answer


def _place(file: object) -> str:
    """The name of a file. Raises TypeError, and as `refuse` does."""
    if not isinstance(file, str | os.PathLike):
        raise TypeError(f"file: {kind_of(file)}, where the name of a file belongs")
    name = os.fspath(file)
    if not isinstance(name, str):
        raise TypeError("file: a name of bytes, where text belongs")
    refuse(name)
    return name


def refuse(file: str, option: str = "file") -> None:
    """Raises BadScenario for a file that is none of NEEDS, Unavailable without what it is made with, ShardMeterError where none can be: before
    any work."""
    kind = _kind(file)
    if not is_text(file):
        raise BadScenario(f"{option} {shown(file)}: a name that is no UTF-8 text, which a document cannot say")
    if kind not in NEEDS or "\0" in file:
        raise BadScenario(f"{option} {shown(file)}: a report is an .html, an .md or a .pdf")
    try:
        inside, folder = Path(file).is_dir(), Path(file).parent.is_dir()
    except OSError as error:  # a name that no file can have
        raise ShardMeterError(f"{shown(file)}: cannot be written ({error.strerror or 'no reason is given'})") from None
    if inside:
        raise ShardMeterError(f"{file}: cannot be written (Is a directory)")
    if not folder:
        raise ShardMeterError(f"{file}: cannot be written (there is no folder {Path(file).parent})")
    lacking = [name for name in NEEDS[kind] if find_spec(name) is None]
    if lacking:
        raise Unavailable(f"a report as {kind} needs {' and '.join(lacking)}: pip install 'shardmeter[report]'")


def is_text(said: str) -> bool:
    """Whether a word, as the system hands it over, is UTF-8 text."""
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(file: str) -> str:
    return Path(file).suffix.lower()


def files(answer: Report, file: str) -> dict[str, bytes]:
    """What is to be written, by name: one file, or Markdown with its pictures, which come first. Raises ImportError without what draws."""
    from shardmeter.render import report as page

    paper = page.written(answer.to_dict(), heading(answer.scenario))
    kind = _kind(file)
    if kind == ".html":
        from shardmeter.render import paper_html

        return {file: paper_html.text(paper).encode()}
    if kind == ".pdf":
        from shardmeter.render import paper_pdf

        return {file: paper_pdf.content(paper)}
    from shardmeter.render import paper_markdown

    made = paper_markdown.files(paper, Path(file).name)
    return {str(Path(file).parent / name): content for name, content in made.items()}
