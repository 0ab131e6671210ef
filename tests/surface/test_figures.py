"""Figures: every style as PNG, SVG, HTML, in letters; texts and units in them; the same bytes twice; what cannot be drawn."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import struct
import xml.etree.ElementTree as ET

import pytest

from shardmeter.cli.pictures import draw, drawable
from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable
from shardmeter.core.quantity import unit_for
from shardmeter.render import chart, markdown, plot, plot_html, terminal, ticks
from shardmeter.render.document import Document
from shardmeter.render.figure import Field, Figure, Line, Mark, Scale

pytest.importorskip("matplotlib")

DAY = 86400.0
GPUS = (1.0, 2.0, 4.0, 8.0, 16.0)
LINES = Figure(
    slug="lines", title="Costs $5 a day & falls; <b> is no tag" + ", and a title can be so long that it needs a second line" * 2,
    x=Scale(title="GPUs an island", log=True), y=Scale(title="wall clock", unit="s"),
    lines=(
        Line(label="predicted", x=GPUS, y=(40 * DAY, 22 * DAY, 12 * DAY, None, 5 * DAY), low=(38 * DAY, 20 * DAY, 11 * DAY, None, 4 * DAY),
             high=(42 * DAY, 24 * DAY, 13 * DAY, None, 6 * DAY)),
        Line(label="linear", x=GPUS, y=tuple(40 * DAY / gpus for gpus in GPUS), style="dashed"),
        Line(label="measured", x=(2.0, 8.0), y=(23 * DAY, 7 * DAY), style="points", low=(22 * DAY, 6 * DAY), high=(25 * DAY, 8 * DAY)),
        Line(label="all", x=GPUS, y=tuple(50 * DAY / gpus for gpus in GPUS), style="cloud"),
        Line(label="nodes", x=GPUS, y=tuple(30 * DAY / gpus for gpus in GPUS), style="steps"),
    ),
    marks=(Mark(says="knee", x=4.0), Mark(says="deadline of 30 d", y=30 * DAY), Mark(says="yours", x=2.0, y=22 * DAY), Mark(says="near the knee", x=4.1)),
    caption=("Band: 90 %.",),
)  # fmt: skip
LYING = Figure(
    slug="lying", title="Bandwidth moves it most",
    x=Scale(title="step time", unit="±%"), y=Scale(title="", labels=("WAN bandwidth", "peak FLOP/s")),
    lines=(Line(label="twice", x=(-0.4, 0.1), y=(0.0, 1.0), style="bars", low=(-0.5, 0.0), high=(-0.3, 0.2)),),
)  # fmt: skip
UPRIGHT = Figure(
    slug="upright", title="Stages", x=Scale(title="stage", labels=("first", "last")), y=Scale(title="step", unit="s"),
    lines=tuple(Line(label=label, x=(0.0, 1.0), y=(0.2, 0.3), style="bars") for label in ("compute", "wait")),
)  # fmt: skip
REGIONS = Figure(
    slug="regions", title="Which term rules",
    x=Scale(title="bandwidth", unit="bit/s", log=True), y=Scale(title="H", log=True),
    field=Field(x=(1e8, 1e9, 1e10, 1e11), y=(1.0, 10.0, 100.0), values=((1, 1, 1, 0), (1, 1, 0, 0), (1, 0, 0, None)),
                scale=Scale(title="term", labels=("compute", "network"))),
    contours=(Line(label="exact crossing", x=(1e8, 1e11), y=(100.0, 1.0)),), marks=(Mark(says="yours", x=1e10, y=10.0),),
)  # fmt: skip
RATIO = Figure(
    slug="ratio", title="Ratio", x=Scale(title="round trip", unit="s", log=True), y=Scale(title="output", unit="tokens", log=True),
    field=Field(x=(1e-3, 1e-2), y=(1.0, 1024.0), values=((0.5, 0.25), (8.0, 1024.0)),
                scale=Scale(title="pipeline over traversal", unit="×", log=True, centre=1.0)),
)  # fmt: skip
SHADES = Figure(
    slug="shades", title="MFU", x=Scale(title="sequence", unit="tokens", log=True), y=Scale(title="micro-batch"),
    field=Field(x=tuple(float(at) for at in range(1, 61)), y=tuple(float(at) for at in range(1, 51)),
                values=tuple(tuple(0.3 + 0.001 * row * column / 10 for column in range(60)) for row in range(50)),
                scale=Scale(title="MFU", unit="%")),
)  # fmt: skip
FIGURES = {figure.slug: figure for figure in (LINES, LYING, UPRIGHT, REGIONS, RATIO, SHADES)}
SAID = {
    "lines": ["wall clock (d)", "GPUs an island", "predicted", "linear", "measured", "nodes", "knee", "deadline of 30 d", "Band: 90 %.", "Costs $5 a day &amp; falls"],
    "lying": ["step time (%)", "WAN bandwidth", "peak FLOP/s", "-40"],
    "upright": ["step (ms)", "first", "last", "compute", "wait"],
    "regions": ["100 Mbit/s", "100 Gbit/s", "compute", "network", "exact crossing", "yours"],
    "ratio": ["round trip (ms)", "0.25×", "1,020×", "output (tokens)", "1,024", "pipeline over traversal (×)"],
    "shades": ["MFU (%)", "micro-batch", "sequence (tokens)"],
}  # fmt: skip


@pytest.fixture(scope="module")
def svgs():
    return {slug: plot.picture(figure, "svg").decode() for slug, figure in FIGURES.items()}


@pytest.mark.parametrize("slug", FIGURES)
def test_an_svg_says_titles_units_and_labels(svgs, slug):
    root = ET.fromstring(svgs[slug])
    assert root.attrib["width"] == "576pt"  # 8 inches
    for text in SAID[slug]:
        assert f">{text}" in svgs[slug]


def test_a_png_is_800_pixels_wide_and_always_the_same(svgs):
    first, second = plot.picture(LINES, "png"), plot.picture(LINES, "png")
    assert struct.unpack(">I", first[16:20]) == (800,)
    assert first == second
    assert plot.picture(REGIONS, "svg").decode() == svgs["regions"]


def test_texts_of_marks_do_not_overlap(svgs):
    at = {}
    for says in ("knee", "deadline of 30 d", "near the knee", "yours"):
        group = re.search(
            rf'<text[^>]*translate\(([\d.]+) ([\d.]+)\)[^>]*>{says}<|<text[^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>{says}<',
            svgs["lines"],
        )
        assert group is not None, says
        at[says] = tuple(float(value) for value in group.groups() if value is not None)
    for (x, y), (a, b) in itertools.combinations(at.values(), 2):
        assert abs(y - b) > 9.0 or abs(x - a) > 30.0


def test_a_page_has_every_figure_its_numbers_and_its_description():
    page = plot_html.page((LINES, REGIONS)).decode()
    assert page.count("<svg") == 2
    assert not re.search(r'(?:src|href)="http|@import|url\(http', page)
    found = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert [json.loads(text) for text in found] == json.loads(json.dumps([LINES.to_dict(), REGIONS.to_dict()]))
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert "<td>22.0 d</td>" in page
    assert "<td>10 Gbit/s</td>" not in page
    assert "<th>10 Gbit/s</th>" in page
    assert "<b> is no tag" not in page
    assert plot.picture(LINES, "html").decode().count("<figure") == 1


@pytest.mark.parametrize("slug", FIGURES)
@pytest.mark.parametrize(("width", "plain"), [(110, False), (50, True)])
def test_letters_on_a_terminal(slug, width, plain):
    figure = FIGURES[slug]
    drawn = chart.lines(figure, width, plain=plain)
    room = [line for line in drawn if line not in figure.caption]
    assert all(len(line) <= max(width, 64) for line in room)
    assert not plain or not set("│└─░▒▓█•┊╌") & set("".join(room))
    for line in figure.lines:
        assert any(line.label in text for text in drawn) or len(figure.lines) == 1
    for mark in figure.marks:
        assert any(mark.says in text for text in drawn)
    for label in (*figure.y.labels, *(figure.field.scale.labels if figure.field else ())):
        assert any(label in text for text in drawn)


def test_a_figure_is_a_section():
    document = Document(title="t", sections=(REGIONS, LYING), data={})
    assert "┘" not in terminal.text(document)
    assert "B network" in terminal.text(document)
    assert "## Which term rules\n\n```text\n" in markdown.text(document)


@pytest.mark.parametrize(
    ("scale", "values", "texts", "title"),
    [
        (Scale(title="t", unit="s"), (20 * DAY, 55 * DAY), ("20", "40"), "t (d)"),
        (Scale(title="t", unit="s", log=True), (1e-3, 864e3), ("1 ms", "10 min", "10 d"), "t"),
        (Scale(title="b", unit="bit/s", log=True), (1e8, 1e12), ("1 Gbit/s", "1 Tbit/s"), "b"),
        (Scale(title="b", unit="bit/s"), (1e9, 9e9), ("2", "8"), "b (Gbit/s)"),
        (Scale(title="c", unit="USD"), (2e6, 9e6), ("2", "8"), "c ($M)"),
        (Scale(title="c", unit="USD"), (2e4, 9e4), ("20,000", "80,000"), "c ($)"),
        (Scale(title="r", unit="tokens/s"), (2e5, 3e6), ("1", "3"), "r (M tokens/s)"),
        (Scale(title="m", unit="%"), (0.1, 0.5), ("20", "50"), "m (%)"),
        (Scale(title="n", log=True), (1.0, 1e6), ("1", "1,000,000"), "n"),
    ],
)  # fmt: skip
def test_axes_have_round_ticks_of_one_unit(scale, values, texts, title):
    axis = ticks.axis(scale, values)
    said = [text for _, text in axis.ticks]
    assert set(texts) <= set(said), said
    assert axis.title == title
    assert 2 <= len(said) <= 9
    assert all(axis.low <= tick <= axis.high for tick, _ in axis.ticks)


@pytest.mark.parametrize(("value", "unit", "found"), [(0.0, "s", "s"), (float("nan"), "B/s", "B/s"), (3e6, "", "millions"), (1e-3, "USD/s", "$/h"), (1e-11, "USD/B", "$/GB")])  # fmt: skip
def test_a_unit_for_an_axis(value, unit, found):
    assert unit_for(value, unit)[1] == found


@pytest.mark.parametrize("figure", [
    Figure(slug="none", title="Nothing known", x=Scale(title="x"), y=Scale(title="y"), lines=(Line(label="a", x=(1.0,), y=(None,)),)),
    Figure(slug="flat", title="One value", x=Scale(title="x"), y=Scale(title="y"), lines=(Line(label="a", x=(0.0,), y=(0.0,)),)),
    Figure(slug="cell", title="One cell", x=Scale(title="x"), y=Scale(title="y"), field=Field(x=(1.0,), y=(1.0,), values=((None,),), scale=Scale(title="v"))),
    Figure(slug="zero", title="Nothing is on a logarithmic axis", x=Scale(title="x", log=True), y=Scale(title="y", log=True), lines=(Line(label="a", x=(0.0, 1.0), y=(0.0, 2.0)),)),
], ids=lambda figure: figure.slug)  # fmt: skip
def test_figures_of_little(figure):
    assert plot.picture(figure, "svg").startswith(b"<?xml")
    assert chart.lines(figure, 80)


def test_files(tmp_path, capsys):
    draw((LYING, UPRIGHT), str(tmp_path / "two.svg"))
    assert {file.name for file in tmp_path.iterdir()} == {"two-lying.svg", "two-upright.svg"}
    draw((LYING, UPRIGHT), str(tmp_path / "two.HTML"))
    assert (tmp_path / "two.HTML").read_text().count("<svg") == 2
    assert "two-lying.svg" in capsys.readouterr().err
    draw((), str(tmp_path / "none.png"))
    assert "nothing to draw" in capsys.readouterr().err
    with pytest.raises(ShardMeterError, match="cannot be written"):
        draw((LYING,), str(tmp_path / "nowhere" / "one.svg"))


def test_what_cannot_be_drawn(monkeypatch):
    assert not drawable(None)
    assert drawable("a.PNG")
    with pytest.raises(BadScenario, match=r"\.html"):
        drawable("a.gif")
    with pytest.raises(ValueError, match="png, svg, html"):
        plot.picture(LYING, "gif")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match=r"shardmeter\[plot\]"):
        drawable("a.svg")
