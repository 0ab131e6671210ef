"""Bars: limits on the numbers of a report, by path."""

import pytest

from shardmeter.core.errors import ShardMeterError
from shardmeter.study.validate.bars import look_up, missed, read_bars

REPORT = {
    "metrics": {"step_time": {"mape": 0.12, "loso_mape": None}},
    "by_source": {"pytorch/torchtitan": {"step_time": {"mape": 0.08}}, "NeMo 24.07 page": {"step_time": {"mape": 0.2}}},
    "ranking": {"a | 8 GPUs": {"spearman": 0.9}},
    "rows_detail": [{"id": "x.1", "error": 0.3}],
    "rows": 5,
    "note": "text",
}  # fmt: skip


def bars(tmp_path, text):
    path = tmp_path / "bars.yaml"
    path.write_text(text, encoding="utf-8")
    return read_bars(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metrics.step_time.mape", 0.12),
        ("by_source['pytorch/torchtitan'].step_time.mape", 0.08),
        ('by_source["NeMo 24.07 page"].step_time.mape', 0.2),
        ("by_source.'NeMo 24.07 page'.step_time.mape", 0.2),
        ("by_source[NeMo 24.07 page].step_time.mape", 0.2),
        ("by_source.NeMo 24.07 page.step_time.mape", 0.2),
        ("ranking.a | 8 GPUs.spearman", 0.9),
        ("rows_detail[x.1].error", 0.3),
        ("rows_detail.0.error", 0.3),
        ("rows", 5.0),
        ("metrics.step_time.loso_mape", None),
    ],
)
def test_paths(path, value):
    assert look_up(REPORT, path) == value


def test_limits_are_kept_or_missed(tmp_path):
    limits = bars(
        tmp_path,
        "metrics.step_time.mape: {max: 0.10}\n"
        "by_source['pytorch/torchtitan'].step_time.mape: {max: 0.08}\n"
        "ranking.a | 8 GPUs.spearman: {min: 0.95}\n"
        "metrics.step_time.loso_mape: {max: 1}\n"
        "rows: {min: 5, max: 5}\n",
    )
    found = missed(REPORT, limits)
    assert [one.bar.path for one in found] == [
        "metrics.step_time.mape", "ranking.a | 8 GPUs.spearman", "metrics.step_time.loso_mape",
    ]  # fmt: skip
    assert "0.12, allowed at most 0.1" in str(found[0])
    assert "no value" in str(found[2]), "a bar on a number that is not known is not kept"


@pytest.mark.parametrize(
    "text",
    ["- 1", "metrics.step_time.mape: 0.1", "metrics.step_time.mape: {most: 1}", "metrics.step_time.mape: {max: low}",
     "rows: {}", "rows: {max: true}", "a: [", ""],
)  # fmt: skip
def test_files_that_are_no_bars(tmp_path, text):
    with pytest.raises(ShardMeterError):
        bars(tmp_path, text)


@pytest.mark.parametrize("path", ["metrics.steptime.mape", "note", "rows_detail.7.error", "rows.more", "metrics"])
def test_paths_that_lead_nowhere_are_refused(tmp_path, path):
    with pytest.raises(ShardMeterError):
        missed(REPORT, bars(tmp_path, f"{path}: {{max: 1}}\n"))
