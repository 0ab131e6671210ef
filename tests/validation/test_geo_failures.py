"""Rows of interrupted runs: a checkpoint's time is predicted, what a source projects from its own rate is an identity, rates are inputs."""

import pytest

from shardmeter.engine.course import BANDWIDTH_EACH
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study.validate import shipped
from shardmeter.study.validate.geo import account
from shardmeter.study.validate.predictions import predict
from shardmeter.study.validate.rows import Row

RATE = {"source": "a cluster", "quantity": "failures per 1000 node-days (8 GPU nodes)", "value": "5", "unit": "count"}


def judged(*cells):
    rows = [Row(line=at, cells={"id": str(at), "kind": "measured", **one}) for at, one in enumerate(cells, 2)]
    return account.compare(rows, catalog_of(None), predict)


@pytest.fixture(scope="module")
def published():
    rows = [row for row in shipped.geo().rows if row.text("id").startswith("FAIL-")]
    return {one.id: one for one in account.compare(rows, catalog_of(None), predict)}


def test_a_checkpoint_takes_its_bytes_over_the_rate_of_all_that_write_it():
    text = {"source": "a cluster", "value": "100", "unit": "s"}
    one, other, none = judged(
        {**text, "quantity": "checkpoint write time 2 TB from 256 processes"},
        {**text, "quantity": "checkpoint load time 4 TB on 256 GPUs"},
        {**text, "quantity": "checkpoint write time"},
    )
    assert one.predicted == pytest.approx(2e12 / (256 * BANDWIDTH_EACH))
    assert other.predicted == pytest.approx(2 * one.predicted)
    assert "not stated" in none.skip


def test_what_a_source_projects_follows_from_its_own_rate():
    projected = {"quantity": "MTTF projected at 8000 GPUs", "value": "4.8", "unit": "h"}
    rate, one, elsewhere, measured = judged(
        RATE, {"source": "a cluster", **projected}, {"source": "another", **projected},
        {"source": "a cluster", "quantity": "MTTF measured at 1024 GPUs", "value": "3", "unit": "h"},
    )  # fmt: skip
    assert one.due == pytest.approx(1000.0 / 5.0 * 86400.0 * 8.0 / 8000.0)
    assert one.measured == pytest.approx(4.8 * 3600.0)
    assert one.predicted is None
    for row in (rate, elsewhere, measured):
        assert "an input of a run (run.failures)" in row.skip


def test_a_rate_that_is_a_bound_or_of_unknown_nodes_projects_nothing():
    projected = {"source": "a cluster", "quantity": "MTTF projected at 8000 GPUs", "value": "4.8", "unit": "h"}
    for wrong in ({"value": ">5"}, {"quantity": "failures per 1000 node-days"}):
        assert judged({**RATE, **wrong}, projected)[1].due is None


def test_what_is_published_is_scored_an_identity_or_says_why_not(published):
    assert published["FAIL-093"].predicted == pytest.approx(published["FAIL-093"].measured, rel=0.25)
    for name in ("FAIL-089", "FAIL-090"):
        one = published[name]
        assert one.measured == pytest.approx(one.due, rel=max(account.TOLERANCE, one.rounding))
    assert published["FAIL-091"].skip == account.BOUND
    assert "how often something fails in it" in published["FAIL-086"].skip
    assert all(published[name].skip for name in ("FAIL-084", "FAIL-085", "FAIL-087", "FAIL-088", "FAIL-092"))
