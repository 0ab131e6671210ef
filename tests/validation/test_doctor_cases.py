"""What users reported in public, asked of `doctor`: the cause that the report names comes out near the top, with its figure."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

import shardmeter

CASES = YAML(typ="safe").load(Path(__file__).with_name("doctor_cases.yaml"))
ASKED = {name: case for name, case in CASES.items() if "skip" not in case}


def diagnosed(case):
    return shardmeter.doctor(
        case["ask"], measured=case["measured"], overrides=case.get("set", {}), overrides_b=case.get("set_b", {}),
        measured_b=case.get("measured_b", {}),
    )  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_the_cause_is_found(name):
    case = ASKED[name]
    answer = diagnosed(case).to_dict()
    assert answer["verdict"] == case["verdict"]
    told = [(one["name"], round(one["plausibility"], 4)) for one in answer["causes"]]
    found = next((one for one in answer["causes"][: case["place"]] if one["name"] in case["cause"]), None)
    assert found is not None, told
    if case["range"] is not None:
        low, high = case["range"]
        implied = found["implied"] * (8.0 if found["of"] == "node" else 1.0)
        assert low <= implied <= high, f"{implied:.4g}"
        assert found["low"] <= found["implied"] <= found["high"]
    if "contradiction" in case:
        assert case["contradiction"] in [one["is"] for one in answer["contradictions"]]
    if "rules" in case:
        assert [answer["rules"]["cause"], answer["rules"]["gathers"]] == case["rules"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ASKED])
def test_what_cannot_be_asked(name):
    pytest.skip(CASES[name]["skip"])
