"""The words of files of runs across islands: every shipped text is known, spelling does not count, the unknown is told."""

import math

import pytest

from shardmeter.study.validate import shipped
from shardmeter.study.validate.geo import cells
from shardmeter.study.validate.geo.vocabulary import (
    KINDS,
    METHODS,
    QUANTITIES,
    UNITS,
    kind_of_row,
    method_of,
    names,
    quantity_of,
    si,
    source_of,
)
from shardmeter.study.validate.rows import Damaged, NotModelled, Row, Unclear


def row(**texts):
    return Row(line=2, cells=texts)


def test_every_text_of_the_shipped_rows_is_known():
    for one in shipped.geo().rows:
        found = quantity_of(one.text("quantity"), one.text("unit"))
        assert method_of(one.text("method")) != "other", one.id
        assert kind_of_row(one.text("kind")).name != "other", one.id
        if not found.skip:
            assert si(1.0, one.text("unit"), found.dimension) > 0.0, one.id


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda one: one.name)
def test_a_canonical_name_means_itself(quantity):
    assert quantity_of(quantity.name) is quantity
    assert quantity.dimension in UNITS


def test_names_are_given_once():
    for table in (QUANTITIES, METHODS, KINDS):
        assert len(names(table)) == len(table)


@pytest.mark.parametrize(
    ("text", "unit", "name"),
    [
        ("Iteration  Time", "s", "iteration_time"), ("step_time", "ms", "iteration_time"), ("seconds per step", "s", "iteration_time"),
        ("All-Reduce time 64 MB", "s", "all_reduce_time"), ("allreduce time 1 GB", "s", "all_reduce_time"),
        ("dp-sync all-reduce time 256 MB", "s", "dp_sync_all_reduce_time"), ("DP_sync_centralised_PS time", "s", "dp_sync_central_time"),
        ("dp_sync sharded PS time 1 GB", "s", "dp_sync_sharded_time"), ("point-to-point time 64 MB", "s", "p2p_time"),
        ("broadcast time 128 MB", "s", "broadcast_time"), ("reduce time 128 MB", "s", "reduce_time"),
        ("bandwidth to reach 90 % compute utilization", "Gbps", "wan_bandwidth"), ("required bandwidth", "Gbit/s", "wan_bandwidth"),
        ("Compute Utilisation, Asia", "%", "compute_utilization"), ("MFU (global)", "%", "mfu"),
        ("outer all-reduce time, mean", "s", "sync_time"), ("hours at 10 Gbit/s", "h", "wall_time"), ("total wall-clock time", "days", "wall_time"),
        ("GB moved", "GB", "traffic"), ("final training loss", "nats/token", "loss"), ("reference", "nats/byte", "loss"), ("MTBF", "h", "mtbf"), ("restarts in 16 days", "count", "failures"),
    ],
)  # fmt: skip
def test_spelling_does_not_count(text, unit, name):
    assert quantity_of(text, unit).name == name
    assert quantity_of(text.upper(), unit).name == name


def test_an_unknown_quantity_is_told_with_the_nearest():
    with pytest.raises(NotModelled, match=r"unknown quantity 'iteratoin tim'; the nearest are: iteration_time"):
        quantity_of("iteratoin tim")
    with pytest.raises(Unclear, match="no quantity is named"):
        quantity_of("")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("streaming-DiLoCo (overlapped)", "streaming_diloco"), ("DILOCO", "diloco"), ("data parallel", "data_parallel"),
        ("Ours w/o scheduler", "dtfm_unscheduled"), ("ours with scheduler", "dtfm"), ("ZeRO-3", "zero3"), ("", "unstated"), ("qqq", "other"),
    ],
)  # fmt: skip
def test_methods(text, name):
    assert method_of(text) == name


@pytest.mark.parametrize(
    ("value", "unit", "dimension", "expected"),
    [
        (8.0, "Gbit/s", "bandwidth", 1e9), (8.0, "Gb/s", "bandwidth", 1e9), (1.0, "GB/s", "bandwidth", 1e9), (8.0, "MBPS", "bandwidth", 1e6),
        (2.0, "h", "time", 7200.0), (1.0, "Days", "time", 86400.0), (5.0, "ms", "time", 5e-3), (50.0, "%", "fraction", 0.5), (0.5, "", "fraction", 0.5),
        (2.0, "TB", "size", 2e12), (1.0, "GiB", "size", 2.0**30),
    ],
)  # fmt: skip
def test_units_become_si(value, unit, dimension, expected):
    assert si(value, unit, dimension) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "dimension"), [("", "time"), ("Gbit/s", "time"), ("parsec", "time"), ("s", "bandwidth")]
)
def test_a_unit_of_something_else_is_refused(unit, dimension):
    with pytest.raises(Unclear, match="unit"):
        si(1.0, unit, dimension)


@pytest.mark.parametrize(
    ("text", "low", "high", "bound"),
    [
        ("2.0", 2.0, 2.0, ""), ("2 (default; not stated)", 2.0, 2.0, ""), ("0.5-4 between nodes", 0.5, 4.0, ""),
        ("4 -> 14 (elastic)", 4.0, 14.0, ""), (">20", 20.0, 20.0, "above"), ("up to 17.5", 17.5, 17.5, "at most"), ("40+", 40.0, 40.0, "at least"),
        ("8 (>=)", 8.0, 8.0, "at least"), ("1.05M per island (128 seqs)", 1.05e6, 1.05e6, ""), ("10(up to)", 10.0, 10.0, ""),
        ("inf", math.inf, math.inf, ""), ("1e3", 1e3, 1e3, ""), ("~20 (seen)", 20.0, 20.0, ""),
    ],
)  # fmt: skip
def test_numbers_with_remarks_ranges_and_bounds(text, low, high, bound):
    found = cells.stated(row(x=text), "x")
    assert found is not None
    assert (found.low, found.high, found.bound) == (low, high, bound)
    again = cells.stated(row(x=found.text), "x")
    assert again == found


@pytest.mark.parametrize("text", ["many", "-1", "1e99", "4-2", "2_6", "nan ms", "1,5", "0x10"])
def test_what_is_no_number_is_damaged(text):
    with pytest.raises(Damaged):
        cells.stated(row(x=text), "x")


def test_a_number_kept_in_another_file_is_not_stated():
    assert cells.stated(row(x="data/links.csv"), "x") is None
    assert cells.number(row(x="0.5-4"), "x") is None


def test_sources_lose_the_number_of_their_collector():
    assert source_of("a blog (id 123)") == "a blog"
