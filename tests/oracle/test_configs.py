"""What is read from a config.json against what the library's own classes and the publishers count: `configs.json`.

A row is a config.json in the keys that the published file has, with the parameters counted by `transformers` (5.24 on torch's meta
device), by the publisher (the total of the published weights), or both; or with the reason for which it is refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmeter import families
from shardmeter.scenario.hugging_face.defaults import table
from shardmeter.scenario.hugging_face.images import TOWERS
from shardmeter.scenario.hugging_face.reading import read
from shardmeter.scenario.hugging_face.types import library_types, readers

ROWS = json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
READ = [row for row in ROWS if "parameters" in row]
REFUSED = [row for row in ROWS if "refused" in row]


def by_name(row):
    return row["name"]


@pytest.mark.parametrize("row", READ, ids=by_name)
def test_total_and_active_parameters_are_exact(row):
    found = read(row["config"], row["name"], "config.json")
    assert not found.report.violations
    assert found.model is not None
    assert families.parameters(found.model) == row["parameters"]
    assert families.active_parameters(found.model) == row.get("active", row["parameters"])


@pytest.mark.parametrize("row", READ, ids=by_name)
def test_no_key_of_a_published_file_is_doubted(row):
    warnings = read(row["config"], row["name"], "config.json").report.warnings
    assert not [text for text in warnings if "nothing here knows" in text]


@pytest.mark.parametrize("row", REFUSED, ids=by_name)
def test_what_is_refused_is_refused_with_its_reason(row):
    found = read(row["config"], row["name"], "config.json")
    assert found.model is None
    assert row["refused"] in "; ".join(violation.says for violation in found.report.violations)


def test_nearly_all_published_models_of_the_families_built_are_read():
    named = {reason for row in REFUSED if (reason := row["refused"])}
    assert len(READ) >= 0.85 * len(ROWS)
    assert not [reason for reason in named if "no reader here knows" in reason]


ELSEWHERE = {"text_config", "d_model", "n_embd", "ssm_cfg"}
"""Keys that tell the width once more."""


@pytest.mark.parametrize(
    "row", [row for row in READ if "hidden_size" in row["config"] and not ELSEWHERE & set(row["config"])], ids=by_name
)
def test_a_size_that_is_left_out_is_not_guessed(row):
    without = {key: value for key, value in row["config"].items() if key != "hidden_size"}
    found = read(without, row["name"], "config.json")
    assert found.model is None
    assert any("hidden_size" in violation.field for violation in found.report.violations)


def test_the_table_of_classes_has_every_class_that_the_library_has():
    missing = [kind for kind in library_types() if kind in table()["others"]]
    assert not missing, "run scripts/config_classes.py"
    assert {*readers(), *TOWERS} >= {
        row["config"].get("model_type", "") for row in READ if row["counted"] == "transformers"
    }


@pytest.mark.slow
def test_the_library_still_counts_what_the_table_says():
    transformers = pytest.importorskip("transformers", reason="transformers is no dependency")
    torch = pytest.importorskip("torch")
    mapping = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    for row in READ[::10]:
        config, named = row["config"], (row["config"].get("architectures") or [""])[0]
        if "transformers" not in row["counted"] or not hasattr(transformers, named):
            continue
        with torch.device("meta"):
            network = getattr(transformers, named)._from_config(mapping[config["model_type"]].from_dict(config))
        network.tie_weights()
        assert sum(one.numel() for one in set(network.parameters()) if one.requires_grad) == row["parameters"], row[
            "name"
        ]
