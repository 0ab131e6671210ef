"""Published scaling curves among the measured runs: errors of their points, and the efficiency that is lost along them."""

import statistics
from pathlib import Path

import pytest

import curves_page
from shardmeter.study.validate.curves import LEAST, SOURCES, curves

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def series():
    return {source: curves(source) for source in SOURCES}


@pytest.mark.parametrize("source", SOURCES)
def test_a_series_changes_nothing_but_the_number_of_accelerators(series, source):
    for one in series[source]:
        gpus = [run.gpus for run in one.runs]
        assert len(gpus) >= LEAST[source]
        assert gpus == sorted(set(gpus))
        tokens = [run.tokens if one.kind == "strong" else run.tokens / run.gpus for run in one.runs]
        assert tokens == pytest.approx([tokens[0]] * len(tokens))
        assert one.efficiency("measured")[0] == 1.0


def test_data_parallel_scaling_of_the_ultra_scale_playbook(series):
    """8 to 64 H100 with nothing but the data shared out: every point within 8 %, what is lost within 6 points; left out within 12 %, 11 points."""
    alone = [one for one in series["ultrascale"] if one.is_data_parallel]
    assert [[run.gpus for run in one.runs] for one in alone] == [[8.0, 16.0, 32.0, 64.0]] * 4
    assert max(abs(run.error) for one in alone for run in one.runs) < 0.08
    assert max(abs(run.error_left_out) for one in alone for run in one.runs) < 0.12
    assert max(abs(one.lost("predicted") - one.lost("measured")) for one in alone) < 0.06
    assert max(abs(one.lost("left_out") - one.lost("measured")) for one in alone) < 0.11


def test_scaling_of_llm_foundry(series):
    """Points within 3 % at the mean, 10 % left out; what is lost within 4 points at the mean, left out too."""
    every = series["foundry"]
    runs = [run for one in every for run in one.runs]
    assert len(every) >= 15
    assert statistics.mean(abs(run.error) for run in runs) < 0.03
    assert statistics.mean(abs(run.error_left_out) for run in runs) < 0.10
    for of in ("predicted", "left_out"):
        assert statistics.mean(abs(one.lost(of) - one.lost("measured")) for one in every) < 0.04


def test_the_page_is_fresh_and_its_figures_are_there(series):
    assert (DOCS / "curves.md").read_text(encoding="utf-8") == curves_page.page(series)
    for name in curves_page.figures(series):
        assert f"](figures/{name}.svg)" in curves_page.page(series)
        assert (DOCS / "figures" / f"{name}.svg").is_file()
