"""What can be kept: the scenario, an answer as JSON or CSV, a figure, the settings of a trainer."""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shardmeter.core.errors import BadScenario, Unavailable, UnknownName, Violation
from shardmeter.ui.answers import answer, scenario_of, traced
from shardmeter.ui.state import Asked, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardmeter.interop.configs.record import Written
    from shardmeter.scenario.parts import Rows

FILES = ("scenario.yaml", "answer.json", "answer.csv", "launch")
FIGURE, SVG = "figure-", ".svg"
TIMELINE = "timeline"
DATE = (1980, 1, 1, 0, 0, 0)
"""Of the entries of an archive: the same bytes every time."""


def can_draw() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


def download(name: str, asked: Asked, catalog: Rows) -> tuple[bytes, str, str]:
    """The bytes of a file, their media type, and the name it is kept under. Figures and answers are those of the word `view` (left out:
    predict). Raises UnknownName, Unavailable for a figure without matplotlib, and what the view raises."""
    if name == "scenario.yaml":
        from shardmeter.render import yaml_text

        document, _ = opened(asked.state, catalog)
        return yaml_text.text(document.data).encode(), "application/yaml; charset=utf-8", name
    if name == "launch":
        return _launch(asked, catalog)
    if name.startswith(FIGURE) and name.endswith(SVG):
        return _figure(name.removeprefix(FIGURE).removesuffix(SVG), asked, catalog)
    if name not in FILES:
        raise UnknownName("download", name, (*FILES, f"{FIGURE}ledger{SVG}"))
    page = answer(asked.word("view", "predict"), asked, catalog).page
    if name == "answer.json":
        from shardmeter.render import json_text

        return json_text.text(page).encode(), "application/json", name
    from shardmeter.render import csv_text

    return csv_text.text(page).encode(), "text/csv; charset=utf-8", name


def _figure(slug: str, asked: Asked, catalog: Rows) -> tuple[bytes, str, str]:
    file = f"{FIGURE}{slug}{SVG}"
    if slug == TIMELINE:
        from shardmeter.render import gantt
        from shardmeter.render.heading import heading

        document, catalog = opened(asked.state, catalog)
        found = traced(asked, scenario_of(document, catalog))
        return gantt.svg(found, heading(found.scenario)).encode(), "image/svg+xml", file
    figures = {one.slug: one for one in answer(asked.word("view", "predict"), asked, catalog).figures}
    if slug not in figures:
        raise UnknownName("figure", slug, figures)
    if not can_draw():
        raise Unavailable("a picture needs matplotlib where the page is served: pip install 'shardmeter[plot]'")
    from shardmeter.render.plot import picture

    return picture(figures[slug], "svg"), "image/svg+xml", file


def _launch(asked: Asked, catalog: Rows) -> tuple[bytes, str, str]:
    """The settings of a trainer, and what starts it: the file, or an archive of several. Raises BadScenario with every reason where the
    trainer cannot be told."""
    from shardmeter.interop.configs.record import Inexpressible
    from shardmeter.interop.exporting import export_of

    form = asked.word("format")
    if not form:
        found = Violation(field="format", says="is not said", way_out="say format=torchtitan, or another one")
        raise BadScenario("1 problem", [found])
    document, catalog = opened(asked.state, catalog)
    scenario = scenario_of(document, catalog)
    try:
        made = export_of(scenario, form, version=asked.word("version"), trainer=asked.word("trainer") or None)
    except Inexpressible as error:
        reasons = error.violations or (Violation(field="format", says=error.message),)
        raise BadScenario(f"{form} cannot be told all of this scenario", reasons) from None
    files = made.exported.files
    if len(files) == 1:
        return files[0].text.encode(), "text/plain; charset=utf-8", files[0].name.rpartition("/")[2]
    return _archive(files), "application/zip", "launch.zip"


def _archive(files: Sequence[Written]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in files:
            entry = zipfile.ZipInfo(one.name, DATE)
            entry.external_attr = (0o100755 if one.executable else 0o100644) << 16
            archive.writestr(entry, one.text)
    return out.getvalue()
