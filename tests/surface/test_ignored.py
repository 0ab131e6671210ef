"""Fields of a model that somebody set and that nothing reads are named; whatever is read, and whatever a row says, is not."""

import json

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.ignored import ignored

GPUS = ("--gpus", "8xH100-SXM5-80GB")


def warned(model, *overrides, **more):
    """The paths that a warning names."""
    scenario = shardmeter.load(None, options={"model": model, "gpus": "8xH100-SXM5-80GB", **more}, overrides=overrides)
    return [text.partition(" = ")[0] for text in scenario.warnings if "changes nothing: no formula" in text]


@pytest.mark.parametrize(
    ("model", "override", "named"),
    [
        ("llama-3.1-8b", "model.patch=16", "model.patch"),
        ("llama-3.1-8b", "model.window=100", "model.window"),
        ("llama-3.1-8b", "model.causal=false", "model.causal"),
        ("llama-3.1-8b", "model.projector=mlp", "model.projector"),
        ("bert-large-uncased", "model.window=512", "model.window"),
        ("vit-base-patch16-224", "model.segments=2", "model.segments"),
        ("mixtral-8x7b", "model.ffn=1024", "model.ffn"),
        ("t5-3b", "model.source_length=3", "model.source_length"),
        ("llava-1.5-7b", "model.vision.window=4", "model.vision.window"),
        ("llama-3.1-8b", "run.reference={base: llama-3.1-8b, patch: 4}", "run.reference.patch"),
    ],
)
def test_what_nothing_reads_is_named(model, override, named):
    assert warned(model, override) == [named]


@pytest.mark.parametrize(
    ("model", "override"),
    [
        ("llama-3.1-8b", "model.vocab=64000"),
        ("llama-3.1-8b", "model.hidden=4096"),
        ("llama-3.1-8b", "model.context=4096"),
        ("llama-3.1-8b", "model.name=mine"),
        ("llama-3.1-8b", "model={base: llama-3.1-8b, mixers: w, window: 100000}"),
        ("mistral-7b-v0.1", "model.window=2048"),
        ("mixtral-8x7b", "model.top_k=3"),
        ("bert-large-uncased", "model.segments=3"),
        ("vit-base-patch16-224", "model.image_size=384"),
        ("t5-3b", "model.target_length=512"),
        ("llava-1.5-7b", "model.images=2"),
        ("llava-1.5-7b", "model.vision.hidden=1024"),
    ],
)
def test_what_is_read_is_not(model, override):
    assert warned(model, override) == []


@pytest.mark.parametrize("family", ["decoder", "encoder", "vision", "dual_encoder", "multimodal", "encoder_decoder"])
def test_a_row_of_the_catalog_says_nothing_that_is_warned_of(family):
    rows = load_catalog().rows("models")
    name = next(row["name"] for row in rows if row["family"] == family)
    assert warned(name) == []


def test_a_file_of_numbers_is_set_by_somebody(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("{layers: 4, hidden: 512, ffn: 2048, heads: 8, vocab: 1000, patch: 16}", encoding="utf-8")
    assert warned(str(path)) == ["model.patch"]


def test_it_stands_on_standard_error_and_in_json(capsys):
    assert main(["predict", "--model", "llama-3.1-8b", *GPUS, "--set", "model.patch=16", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    says = "model.patch = 16 changes nothing: no formula of llama-3.1-8b, changed (family decoder) uses it"
    assert says in json.loads(out)["warnings"]
    assert f"warning: {says}" in err


def test_nothing_is_evaluated_where_nothing_was_set(monkeypatch):
    scenario = shardmeter.load(None, options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"})
    monkeypatch.setattr("shardmeter.scenario.ignored.evaluate", lambda *_: pytest.fail("evaluated"))
    assert ignored(scenario, ()) == []
