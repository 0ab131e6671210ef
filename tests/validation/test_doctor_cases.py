"""What users reported in public, asked of `doctor`: the cause that the report names comes out near the top, with its figure."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

import shardmeter

CASES = YAML(typ="safe").load(Path(__file__).with_name("doctor_cases.yaml"))
ASKED = {name: case for name, case in CASES.items() if "measured" in case}


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


def balanced(ask, fabric):
    """Gbit/s a node of 8 at which communication takes as long as compute."""
    found = shardmeter.transitions(ask, f"fleet.islands.0.fabric.bandwidth={fabric}").to_dict()
    return next(8 * 8 * one["value"] / 1e9 for one in found["lines"][0]["crossings"] if one["kind"] == "balance")


def test_which_network_each_way_needs():
    """Sharded parameters against stages (C09): what gathers need falls with the tokens of a pass, and up to 8,192 a GPU it is more than
    the 340 Gbit/s a node that the report has; stages and tensor parallelism need less than its 140."""
    case = CASES["C09-sharded"]
    needs = {
        tokens: balanced(
            case["ask"] | {"plan": case["ask"]["plan"] | {"micro_batch": tokens // 2048}}, "2Gbps..400Gbps:log12"
        )
        for tokens in (2048, 4096, 8192)
    }
    assert all(need > case["had"] for need in needs.values())
    assert [tokens * need for tokens, need in needs.items()] == pytest.approx([2048 * needs[2048]] * 3, rel=0.1)
    assert balanced(CASES["C09-pipeline"]["ask"], "1Gbps..100Gbps:log8") < CASES["C09-pipeline"]["had"]
