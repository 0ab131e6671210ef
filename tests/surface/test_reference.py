"""`run.reference` on the surface: how it is said, what is said back, what is refused and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.formula import formula, trace, under
from shardmeter.scenario import json_schema, load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Scenario

LABEL = "reference model"
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "dpo-llama-8b.yaml")


def asked(reference: Any, plan: str = "fsdp", model: Any = "llama-3.1-8b", **run: Any) -> Scenario:
    run = {"seq_len": 2048, **run} | ({} if reference is None else {"reference": reference})
    return load({"model": model, "gpus": "64xH100-SXM5-80GB", "plan": plan, "run": run})


def refused(*arguments: Any, **more: Any) -> str:
    with pytest.raises(BadScenario) as caught:
        asked(*arguments, **more)
    return str(caught.value)


def test_same_is_the_trained_model_and_is_what_an_override_makes_of_it() -> None:
    assert asked("same").run.reference == load_catalog().model("llama-3.1-8b")
    assert asked(None).run.reference is None
    changed = load(EXAMPLE, overrides=["model=llama-3.2-1b"])
    assert changed.run.reference == changed.model == load_catalog().model("llama-3.2-1b")
    assert load(EXAMPLE, overrides=["run.reference=null"]).run.reference is None


def test_a_name_a_mapping_and_a_file(tmp_path: Path) -> None:
    assert asked("llama-3.1-70b").run.reference == load_catalog().model("llama-3.1-70b")
    short = asked({"base": "llama-3.1-8b", "layers": 16}).run.reference
    assert short is not None
    assert (short.layers, short.hidden) == (16, 4096)
    few = load(EXAMPLE, overrides=["run.reference=llama-3.1-70b", "run.reference.layers=4"]).run.reference
    assert few is not None
    assert (few.layers, few.hidden) == (4, 8192)
    file = tmp_path / "teacher.yaml"
    file.write_text("{layers: 8, hidden: 1024, ffn: 4096, heads: 16, vocab: 128256}")
    own = asked(str(file)).run.reference
    assert own is not None
    assert (own.name, own.layers) == ("teacher", 8)


def test_what_is_taken_for_granted_is_said() -> None:
    text = "\n".join(asked("same").assumptions)
    assert "reference llama-3.1-8b: frozen, forward once for every micro-batch" in text
    assert "a pair of a preference loss is two" in text
    assert "adapters" not in text
    assert "adapters switched off" in "\n".join(asked("same", "fsdp,trainable=lora(r=16)").assumptions)
    assert not any("reference" in text for text in asked(None).assumptions)
    assert any("share a tokenizer" in text for text in asked("gemma-2-9b").warnings)
    assert not any("tokenizer" in text for text in asked("llama-3.1-70b").warnings)
    warnings = shardmeter.predict(asked("same")).to_dict()["warnings"]
    assert any("no measured run with a reference model" in text for text in warnings)


@pytest.mark.parametrize("name", ["llama-3.1-9b", "Same", "sam", "qwen"])
def test_an_unknown_reference_lists_the_nearest_three(name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        asked(name)
    assert caught.value.kind == "model"
    assert len(caught.value.nearest) == 3


def test_an_unknown_reference_comes_with_everything_else() -> None:
    text = refused("llama-3.1-9b", tokns=1)
    assert "run.reference: unknown model 'llama-3.1-9b'" in text
    assert "run.tokns: unknown key" in text
    text = refused("llama-3.1-9b", "fsdp,tp=3")
    assert "unknown model 'llama-3.1-9b'" in text
    assert "tp" in text


@pytest.mark.parametrize(
    ("reference", "plan", "parts"),
    [
        ("same", "fsdp,pp=2", ["pp = 2 with a reference model", "pp: 1, with fsdp or tp"]),
        ("bert-large", "fsdp", ["bert-large is of family encoder", "same, or a model of family decoder"]),
        ("gpt2-xl", "fsdp", ["reference gpt2-xl: seq_len = 2048", "seq_len ≤ 1024"]),
        ("smollm2-135m", "fsdp,tp=4", ["reference smollm2-135m: tp = 4 does not divide 9 attention heads"]),
        ({"base": "same", "layers": 4}, "fsdp", ["same stands alone", "base: llama-3.1-8b"]),
        ({"layers": 4}, "fsdp", ["run.reference: an inline model without base lacks"]),
        (5, "fsdp", ["run.reference: wanted a name or a mapping, got 5"]),
        ([], "fsdp", ["run.reference: wanted a name or a mapping"]),
    ],
)
def test_what_cannot_stand_beside_the_model_is_refused(reference: Any, plan: str, parts: list[str]) -> None:
    text = refused(reference, plan)
    assert [part for part in parts if part not in text] == []


def test_the_trained_model_is_not_refused_twice() -> None:
    text = refused("same", "fsdp,tp=64", model={"base": "llama-3.1-8b", "heads": 48, "head_dim": 128})
    assert "does not divide 48 attention heads" in text
    assert "reference" not in text


@pytest.mark.parametrize("model", ["clip-vit-b-32", "t5-base", "llava-1.5-7b", "vit-base-patch16-224", "dit-xl-2"])
def test_models_of_several_parts_and_of_images_have_references_too(model: str) -> None:
    own = {"run": {"reference": "same"}}
    one = {"model": model, "gpus": "8xH100-SXM5-80GB", "plan": "fsdp"}
    without, beside = shardmeter.predict(load(one)), shardmeter.predict(load(one | own))
    assert beside.step_time > without.step_time
    assert beside.memory_peak_gib > without.memory_peak_gib


def test_the_json_has_both_terms_and_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", EXAMPLE, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["predict", EXAMPLE, "--set", "run.reference=null", "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    (term,) = [line for line in answer["ledger"] if line["term"] == LABEL]
    assert term["cause"] == "compute"
    assert term["hidden_seconds"] > 0.0
    assert term["seconds"] == pytest.approx(answer["step_time_s"] - alone["step_time_s"])
    assert sum(line["seconds"] for line in answer["ledger"]) == answer["step_time_s"]
    (kept,) = [line for line in answer["memory"]["terms"] if line["term"] == LABEL]
    assert 0.0 < kept["gib"] < answer["memory"]["peak_gib"] - alone["memory"]["peak_gib"]  # with what fragments
    assert answer["mfu"] * answer["step_time_s"] == pytest.approx(alone["mfu"] * alone["step_time_s"])
    assert answer["tokens_per_s"] < alone["tokens_per_s"]
    assert not [line for line in alone["ledger"] if line["term"] == LABEL]


def test_explain_shows_its_calls_as_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for more in ([], ["--set", "run.reference=null"]):
        assert main(["explain", EXAMPLE, *more, "--format", "json"]) == 0
        found[len(more)] = json.loads(capsys.readouterr().out)
    counts = {place: {term["term"]: term["calls"] for term in one["terms"]} for place, one in found.items()}
    assert counts[0].pop(LABEL) > 20
    assert counts[0] == counts[2]


@formula(cite="shardmeter")
def tagged_beside_the_test(x: float) -> float:
    """A formula of this test."""
    return x


def test_a_whole_term_takes_what_is_inside_and_ends() -> None:
    with trace() as steps:
        with under("outer", whole=True):
            with under("inner"):
                tagged_beside_the_test(1.0)
            tagged_beside_the_test(2.0)
        with under("after"):
            tagged_beside_the_test(3.0)
    assert [step.term for step in steps] == ["outer", "outer", "after"]


def test_trace_says_that_it_is_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", EXAMPLE]) == 2
    seen = capsys.readouterr()
    assert "run.reference (llama-3.1-8b): not drawn yet" in seen.err
    assert not seen.out
    assert main(["trace", EXAMPLE, "--set", "run.reference=null"]) == 0


def test_the_schema_describes_it() -> None:
    field = json_schema()["$defs"]["RunInput"]["properties"]["reference"]
    assert "DPO's reference" in field["description"]
    assert {"type": "string"} in field["anyOf"][0].get("oneOf", field["anyOf"])


def test_nothing_trained_cannot_be_said() -> None:
    for text in ("", [""]):
        with pytest.raises(BadScenario, match="nothing is trained"):
            load({"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": {"trainable": text}})
