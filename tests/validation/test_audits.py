"""Published numbers that were wrong, as claims: the audit gives the right one and its cause. `audits.yaml` says which."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import shardmeter

HERE = Path(__file__).parent
CASES: dict[str, dict[str, Any]] = YAML(typ="safe").load(HERE / "audits.yaml")
PUBLISHED = set(YAML(typ="safe").load(HERE / "wrong_numbers.yaml"))
SI = {"gpu_hours": 3600.0}


def test_every_published_number_is_audited():
    assert {re.match(r"\w+", name)[0] for name in CASES} >= PUBLISHED  # type: ignore[index]


@pytest.mark.parametrize("name", CASES)
def test_what_an_audit_says(name):
    case = CASES[name]
    answer = shardmeter.audit(claims=case["claims"], **case.get("options", {})).to_dict()
    assert answer["verdict"] == case["verdict"]
    wrong = [one for one in answer["claims"] if one["status"] == "contradicted"]
    assert [one["claim"] for one in wrong] == [case["wrong"]] if "wrong" in case else not wrong
    if "implied" in case:
        assert wrong[0]["implied"] * SI.get(case["wrong"], 1.0) == pytest.approx(case["implied"], rel=0.01)
    causes = [cause["cause"] for one in wrong for cause in one["causes"]]
    assert case.get("cause", "") in "".join(causes[:1])
    assert case.get("cause_among", "") in " ".join(causes)
    assert case.get("finding", "") in " ".join(one["says"] for one in answer["findings"])
    readings = [one for finding in answer["findings"] for one in finding["readings"]]
    if "reading" in case:
        first = next(one for one in readings if case["reading"] in one["cause"])
        assert first is readings[0]
        assert first["value"] == pytest.approx(case["reads"], rel=0.005)
    if "of_own_peak" in case:
        assert answer["peaks"][0]["mfu"] == pytest.approx(case["of_own_peak"], rel=0.005)
    if "implied_mfu" in case:
        assert answer["implied_mfu"] == pytest.approx(case["implied_mfu"], rel=0.005)
    agreed = {one["claim"] for one in answer["claims"] if one["status"] == "agreed"}
    assert agreed >= set(case.get("agrees", ()))
