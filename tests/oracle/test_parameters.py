"""Our parameter and FLOP counts against a dated table that torch counted; the table itself where torch is importable."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

import pytest

from shardmeter.core.record import changed
from shardmeter.families import active_parameters, family, names
from shardmeter.scenario.catalog import load_catalog

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"


def table(name):
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


PARAMETERS = {row["model"]: row for row in table("parameters.csv")}
FLOPS = table("flops.csv")


def test_every_model_of_the_catalog_was_counted():
    assert list(PARAMETERS) == list(load_catalog().names("models")), "run `make oracle`"


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_exactly_those_torch_counts(name):
    counted = int(PARAMETERS[name]["parameters"])
    model = load_catalog().model(name)
    assert family(model.family).parameters(model) == counted


@pytest.mark.parametrize("name", PARAMETERS)
def test_active_parameters_are_all_of_them_but_the_experts_a_token_is_not_sent_to(name):
    model = load_catalog().model(name)
    counted = int(PARAMETERS[name]["body"])
    active = active_parameters(model)
    assert active == int(active)
    assert (active < counted) == bool(model.experts)
    if model.experts:
        assert active_parameters(changed(model, top_k=model.experts)) == counted


@pytest.mark.parametrize("name", [name for name, row in PARAMETERS.items() if row["published_class"]])
def test_the_published_class_of_the_architecture_has_as_many(name):
    row = PARAMETERS[name]
    assert row["published_class_parameters"] == row["body"], row["published_class"]
    model = changed(load_catalog().model(name), mtp=0)
    assert family(model.family).parameters(model) == int(row["body"])


@pytest.mark.parametrize("name", [name for name in PARAMETERS if load_catalog().model(name).parameters])
def test_parameters_are_those_the_publisher_states(name):
    model = load_catalog().model(name)
    assert family(model.family).parameters(changed(model, mtp=0)) == model.parameters


def test_most_models_have_a_published_class():
    without = {name for name, row in PARAMETERS.items() if not row["published_class"]}
    assert all(name.startswith(("dit-", "soma-lstm-")) or name == "qwen2-vl-tower" for name in without)


@pytest.mark.parametrize("row", FLOPS, ids=lambda row: f"{row['model']}@{row['seq']}")
def test_forward_flops_are_exactly_those_torch_counts(row):
    model, seq = load_catalog().model(row["model"]), float(row["seq"])
    assert family(model.family).training_flops(model, seq, seq) / 3.0 == int(row["forward_flops"])


def test_every_family_has_flops_in_the_table():
    assert {load_catalog().model(row["model"]).family for row in FLOPS} == set(names())


@pytest.mark.slow
def test_torch_still_counts_what_the_table_says(monkeypatch):
    pytest.importorskip("torch", reason="torch is no dependency; `make oracle` tells where to run it")
    monkeypatch.syspath_prepend(SCRIPTS)
    counter = importlib.import_module("oracle")
    rows = {row["name"]: row for row in counter.read_models()}
    for name, row in rows.items():
        assert counter.count(counter.network(row, rows)) == int(PARAMETERS[name]["parameters"]), name
    for row in FLOPS[:3]:
        assert counter.forward_flops(rows[row["model"]], rows, int(row["seq"])) == int(row["forward_flops"])


@pytest.mark.parametrize("name", ["oracle.py", "oracle_network.py", "oracle_parts.py", "oracle_classes.py"])
def test_the_oracle_uses_nothing_of_the_package(name):
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    assert "import shardmeter" not in text
    assert "from shardmeter" not in text
