"""Narrow lines: bars go first, then what is least missed; labels and names are never broken."""

import io
import re

import pytest

import shardmeter
from shardmeter.render import listing, prediction, terminal
from shardmeter.render.heading import heading
from shardmeter.scenario.catalog import load_catalog

OPTIONS = {
    "model": "llama-3.1-70b",
    "gpus": "128xH100-SXM5-80GB",
    "plan": "fsdp,tp=8,pp=4",
    "global_batch": 256,
    "tokens": "1T",
}


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(scope="module")
def answer():
    return shardmeter.predict(shardmeter.load(None, options=OPTIONS))


def shown(document, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = Screen()
    terminal.write(document, out)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_labels_stay_whole(answer, monkeypatch, width):
    data = answer.to_dict()
    text = shown(prediction.document(data, heading(answer.scenario)), monkeypatch, width)
    assert max(map(len, text.splitlines())) <= width
    lines = [line.strip() for line in text.splitlines()]
    labels = [term["term"] for term in data["ledger"] if term["seconds"]]
    labels += [term["term"] for term in data["memory"]["terms"] if term["gib"]]
    for label in labels:
        assert any(re.match(rf"{re.escape(label)}  +[\d<]", line) for line in lines), label


def test_bars_go_first_then_cause_then_hidden(answer, monkeypatch):
    page = prediction.document(answer.to_dict())
    wide, middle, narrow = (shown(page, monkeypatch, width) for width in (120, 80, 60))
    step = re.compile(r"Where a step goes\n(.*)\n")
    heads = [step.search(text)[1].split() for text in (wide, middle, narrow)]  # type: ignore[index]
    assert heads[0] == ["term", "exposed", "share", "hidden", "cause"]
    assert heads[1] == ["term", "exposed", "share", "hidden", "cause"]
    assert heads[2] == ["term", "exposed", "share", "hidden"]
    assert "████" in wide.partition("Bottleneck")[0]
    assert "████" not in middle.partition("Bottleneck")[0]
    assert "left out for lack of room: cause" in narrow


@pytest.mark.parametrize("kind", ["accelerators", "fabrics", "instances", "models", "stacks"])
@pytest.mark.parametrize("width", [60, 80])
def test_catalog_names_stay_whole(monkeypatch, kind, width):
    rows = load_catalog().rows(kind)
    text = shown(listing.several(kind, rows), monkeypatch, width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.split())
    assert [row["name"] for row in rows if not set(row["name"].split()) <= words] == []


def test_a_prediction_prints_itself(answer):
    text = str(answer)
    assert text.startswith("llama-3.1-70b on 128 × H100-SXM5-80GB")
    assert "Where a step goes" in text
    assert "Assumed" not in text
    assert "\x1b" not in text
    assert repr(answer).count("\n") == 0
    assert f"{answer.step_time:.4g} s" in repr(answer)
