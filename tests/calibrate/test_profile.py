"""A user profile: rows merge by name, files are whole, and only what the catalog reads is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmeter.core.errors import BadData, UnknownName
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.calibrate.profile import cells, put, put_interval


def test_a_row_is_read_back_as_it_was(tmp_path: Path) -> None:
    catalog = load_catalog()
    for kind, record in (("stacks", catalog.stack("nanotron-2025")), ("fabrics", catalog.fabric("ib-ndr400"))):
        assert put(tmp_path, kind, {**cells(kind, record), "name": "ours", "aliases": ""}).name == f"{kind}.csv"
    own = load_catalog((tmp_path,))
    for kind, record, ours in (
        ("stacks", catalog.stack("nanotron-2025"), own.stack("ours")),
        ("fabrics", catalog.fabric("ib-ndr400"), own.fabric("OURS")),
    ):
        assert {**cells(kind, record), "name": "ours", "aliases": ""} == cells(kind, ours)


def test_rows_merge_by_name_and_column(tmp_path: Path) -> None:
    put(tmp_path, "fabrics", {"name": "lab", "bandwidth": "100 Gbit/s", "share": "0.8", "source": "nccl-tests"})
    put(tmp_path, "fabrics", {"name": "hall", "bandwidth": "400 Gbit/s"})
    put(tmp_path, "fabrics", {"name": "Lab", "latency": "32 us"})
    put_interval(tmp_path, "fabrics", "lab", {"latency": (20e-6, 40e-6)}, level=0.9, basis="12 sizes")
    own = load_catalog((tmp_path,))
    assert own.names("fabrics")[-2:] == ("Lab", "hall")
    lab = own.fabric("lab")
    assert (lab.bandwidth, lab.share, lab.source) == (12.5e9, 0.8, "nccl-tests")
    assert lab.latency == pytest.approx(32e-6)
    assert "stacks,lab" not in (tmp_path / "intervals.csv").read_text()
    assert "fabrics,lab,latency,2e-05 s,4e-05 s,0.9,12 sizes" in (tmp_path / "intervals.csv").read_text()


def test_a_row_that_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    file = put(tmp_path, "fabrics", {"name": "lab", "bandwidth": "100 Gbit/s"})
    before = file.read_text()
    with pytest.raises(BadData, match=r"(?s)not written.*fabrics.csv.*bandwidth.*share") as caught:
        put(tmp_path, "fabrics", {"name": "lab", "bandwidth": "100G", "share": "7"})
    assert all(str(tmp_path) in one.where for one in caught.value.violations)
    with pytest.raises(BadData, match="bandwith"):
        put(tmp_path, "fabrics", {"name": "lab", "bandwith": "100 Gbit/s"})
    assert file.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["fabrics.csv"]
    with pytest.raises(UnknownName, match="fabrics"):
        put(tmp_path, "fabric", {"name": "lab"})
