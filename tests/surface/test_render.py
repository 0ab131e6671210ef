"""One description, four outputs."""

import csv
import io
import json
import math
import re

import numpy as np
import pytest

from shardmeter.core.formula import Step
from shardmeter.render import (
    Column,
    Document,
    Facts,
    Notes,
    Table,
    cells,
    csv_text,
    explanation,
    json_text,
    markdown,
    terminal,
)
from shardmeter.render.document import Fact

DOCUMENT = Document(
    title="A question [with brackets]",
    verdict="Fits.",
    sections=(
        Facts(
            title="Speed", facts=(Fact(label="step", value=0.311, unit="s"), Fact(label="MFU", value=0.42, unit="%"))
        ),
        Table(
            title="Ledger",
            columns=(
                Column(key="term", title="term", wide=True),
                Column(key="seconds", title="exposed", unit="s"),
                Column(key="share", title="", bar=True),
            ),
            rows=(
                {"term": 'a, "b" | [c]', "seconds": 0.3, "share": 0.5},
                {"term": "d", "seconds": None, "share": None},
            ),
            total={"term": "sum", "seconds": 0.3},
        ),
        Notes(title="Assumed", lines=("one thing", "x" * 300)),
    ),
    data={"step_time_s": math.nan, "array": np.arange(3.0), "count": np.int64(3), "inf": -math.inf},
    flat=({"a": 1, "b": "x,y"}, {"a": None, "c": True}),
)


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def printed(stream=None):
    out = stream or io.StringIO()
    terminal.write(DOCUMENT, out)
    return out.getvalue()


def test_plain_off_the_terminal():
    text = printed()
    assert "\x1b[" not in text
    assert "A question [with brackets]" in text
    assert "311 ms" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_colours_on_a_terminal_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in printed(Screen())
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(Screen())
    assert "\x1b[3" not in text.replace("\x1b[1m", "")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_never_wider_than_the_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(Screen()))
    assert max(map(len, text.splitlines())) <= width
    assert text.count("x") >= 300


def test_markdown():
    text = markdown.text(DOCUMENT)
    assert "| term | exposed |" in text
    assert "\\|" in text
    assert "| sum | 300 ms |" in text


def test_csv():
    rows = list(csv.reader(io.StringIO(csv_text.text(DOCUMENT))))
    assert rows == [["a", "b", "c"], ["1", "x,y", ""], ["", "", "true"]]


def test_json_has_no_nan():
    data = json.loads(json_text.text(DOCUMENT), parse_constant=pytest.fail)
    assert data["step_time_s"] is None
    assert data["inf"] is None
    assert data["array"] == [0, 1, 2]
    assert data["count"] == 3
    assert {"version", "data_date", "assumptions", "warnings"} <= set(data)


def test_cells():
    assert cells.text(None, "s") == "–"
    assert cells.text(True) == "yes"
    assert cells.text(0.5, "%") == "50.0 %"
    assert cells.text(1234567.0, "tokens/s") == "1,234,567 tokens/s"
    assert cells.text(2.0**30, "B") == "1 GiB"


@pytest.mark.parametrize(
    ("ends", "unit", "says"),
    [
        ((22.26 * 86_400.0, 28.54 * 86_400.0), "s", "22.3 to 28.5 d"),  # 1.92e6 s, to three digits, would be 22.2 d
        ((5_999.0, 7_201.0), "s", "100 min to 2.00 h"),
        ((406_321.0, 521_499.0), "tokens/s", "406,000 to 521,000 tokens/s"),
        ((66.66, 71.237), "GiB", "66.66 to 71.24 GiB"),
        ((12.345, 80_181.0), "USD", "$12.35 to $80,200"),
        ((1.0e6, 2.345e6), "tokens", "1M to 2.35M tokens"),
        ((0.41237, 0.5), "%", "41.2 to 50.0 %"),
    ],
)
def test_ends_of_an_interval_are_rounded_once(ends, unit, says):
    low, high = ends
    assert cells.between(low, high, unit) == says


def test_bars():
    assert cells.bar(0.5, 10) == "█" * 5
    assert cells.bar(1.0, 10) == "█" * 10
    assert cells.bar(2.0, 10) == "█" * 9 + "▶"
    assert cells.bar(0.0, 10) == ""
    assert cells.bar(None, 10) == ""
    assert cells.bar(1e-9, 10) == ""
    assert cells.bar(1 / 80, 10) == "▏"
    assert cells.bar(0.5, 10, plain=True) == "#" * 5
    assert cells.bar(0.01, 10, plain=True) == ""


def test_times_too_short_to_matter():
    assert cells.text(2.5e-8, "s") == "< 1 us"
    assert cells.text(2.5e-8, "s", exact=True) == "25 ns"
    assert cells.text(0.0, "s") == "0 s"
    assert cells.text(25.22 * 86400, "s") == "25.2 d"


def test_equal_calls_fold():
    steps = [Step("f", {"x": 1.0}, 2.0, "me"), Step("g", {"x": 1.0}, 2.0, "me"), Step("f", {"x": 1.0}, 2.0, "me")]
    folded = explanation.fold(steps)
    assert [(call["formula"], call["times"]) for call in folded] == [("f", 2), ("g", 1)]
    page = explanation.document({}, steps, term="g")
    assert [row["formula"] for row in page.flat] == ["g"]
