"""Hugging Face files at the front door: paths, folders, damage, the report, and what predict makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.cli.main import main
from shardmeter.core.errors import BadScenario
from shardmeter.scenario.hugging_face import files
from shardmeter.scenario.hugging_face.reading import open_model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTURE = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
GEMMA = {**LLAMA, "model_type": "gemma3_text", "head_dim": 128, "sliding_window": 512}
LLAVA: dict[str, Any] = {
    "model_type": "llava", "text_config": {**LLAMA, "vocab_size": 32064},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "num_attention_heads": 16, "patch_size": 14},
}  # fmt: skip
PARAMETERS = 8_030_261_248
GPUS = ("--gpus", "8xH100-SXM5-80GB")


def write(folder: Path, data: object, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


MOE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 768}
MAMBA2 = {"model_type": "mamba2", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50288}
BAMBA = {**LLAMA, "model_type": "bamba", "mamba_n_heads": 128, "attn_layer_indices": [9]}
NEO = {"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12, "num_heads": 12, "vocab_size": 50257}
MPT = {"model_type": "mpt", "d_model": 768, "n_layers": 12, "n_heads": 12, "vocab_size": 50432}
ENDLESS = 10**400


def refused(path: Path) -> str:
    with pytest.raises(BadScenario) as caught:
        open_model(path)
    return str(caught.value)


def but(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A config with changes; None takes a key away."""
    return {key: value for key, value in {**data, **changes}.items() if value is not None}


# the front door


@pytest.mark.parametrize("how", ["scenario", "option", "folder", "folder option"])
def test_predict_takes_a_file_or_a_folder(tmp_path, monkeypatch, capsys, how):
    write(tmp_path / "meta-llama-8b", LLAMA)
    (tmp_path / "meta-llama-8b" / "model-00001-of-00004.safetensors").write_bytes(b"\0" * 64)
    monkeypatch.chdir(tmp_path)
    asked = {
        "scenario": ["./meta-llama-8b/config.json"], "option": ["--model", "./meta-llama-8b/config.json"],
        "folder": ["./meta-llama-8b"], "folder option": ["--model", "meta-llama-8b/"],
    }[how]  # fmt: skip
    assert main(["predict", *asked, *GPUS, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"]["parameters"] == PARAMETERS
    assert answer["model"]["name"] == "meta-llama-8b"
    assert any("read as llama" in line and "shardmeter show" in line for line in answer["assumptions"])


def test_a_config_in_the_folder_where_one_stands(tmp_path, monkeypatch, capsys):
    write(tmp_path, LLAMA)
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "config.json", *GPUS]) == 0
    assert main(["predict", ".", *GPUS]) == 0
    assert "on 8 × H100" in capsys.readouterr().out


def test_a_scenario_names_a_file_relative_to_itself(tmp_path, monkeypatch):
    write(tmp_path / "there" / "llama", LLAMA)
    scenario = write(tmp_path / "there", "model: ./llama/config.json\ngpus: 8xH100-SXM5-80GB\n", "scenario.yaml")
    monkeypatch.chdir(tmp_path)
    assert shardmeter.predict(str(scenario)).to_dict()["model"]["parameters"] == PARAMETERS
    scenario.write_text("model: {base: ./llama, layers: 16}\ngpus: 8xH100-SXM5-80GB\n", encoding="utf-8")
    assert shardmeter.predict(str(scenario)).scenario.model.layers == 16
    with pytest.raises(BadScenario, match="no such file"):
        shardmeter.predict(model="./llama/config.json", gpus="8xH100-SXM5-80GB")


def test_fields_of_a_read_model_are_set_like_any_other(tmp_path):
    path = write(tmp_path, LLAMA)
    answer = shardmeter.predict(model=str(path), gpus="8xH100-SXM5-80GB", overrides=["model.layers=2"])
    assert answer.scenario.model.layers == 2


# what a folder holds


def test_folders_of_other_kinds(tmp_path):
    adapter = tmp_path / "adapter"
    write(adapter, {"peft_type": "LORA", "base_model_name_or_path": "some/base", "r": 8}, "adapter_config.json")
    assert "adapter_config.json" in refused(adapter)
    assert "trainable: lora(r=8)" in refused(adapter / "adapter_config.json")
    assert "some/base" in refused(adapter / "adapter_config.json")
    write(tmp_path / "plain", "x", "notes.txt")
    assert "a folder without config.json; it holds notes.txt" in refused(tmp_path / "plain")
    (tmp_path / "empty").mkdir()
    assert "it is empty" in refused(tmp_path / "empty")
    assert "no such file or folder" in refused(tmp_path / "none")
    assert "holds weights" in refused(tmp_path / "model.safetensors")
    pipeline = tmp_path / "pipeline"
    write(pipeline, {"_class_name": "DiTPipeline"}, "model_index.json")
    dit = {
        "num_attention_heads": 16,
        "attention_head_dim": 72,
        "num_layers": 28,
        "out_channels": 8,
        "norm_type": "ada_norm_zero",
    }
    write(pipeline / "transformer", {"_class_name": "Transformer2DModel", **dit})
    found = open_model(pipeline)
    assert found.model is not None
    assert found.model.family == "diffusion"
    assert any("shares one" in note for note in found.report.notes)


def test_the_cache_of_the_library(tmp_path):
    cache = tmp_path / "models--maker--llama-8b"
    write(cache / "snapshots" / "0123abcd", LLAMA)
    for path in (cache, cache / "snapshots" / "0123abcd"):
        found = open_model(path)
        assert found.model is not None
        assert found.model.name == "llama-8b"
    write(cache / "snapshots" / "4567cdef", LLAMA)
    assert "a cache with 2 snapshots" in refused(cache)
    (tmp_path / "bare" / "snapshots").mkdir(parents=True)
    assert "no snapshot with a config.json" in refused(tmp_path / "bare")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "a quantisation"),
        ({"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}, "a tokenizer"),
        ({"_from_model_config": True, "bos_token_id": 1}, "generation"),
        ({"do_sample": True, "temperature": 0.6}, "generation"),
        ({"weight_map": {"a": "b"}, "metadata": {}}, "index of the weights"),
        ({"image_processor_type": "CLIPImageProcessor", "size": 224}, "preprocessor"),
        ({"architecture": "resnet50", "num_classes": 1000, "pretrained_cfg": {}}, "timm"),
        ({"dim": 4096, "n_layers": 32, "n_heads": 32}, "its maker's own form"),
        ({"model_type": "resnet", "depths": [3, 4, 6, 3]}, "'resnet' is not modelled: convolutional networks"),
        ({"model_type": "wav2vec2", "hidden_size": 768, "conv_dim": [512]}, "speech and sound"),
        ({"model_type": "rwkv", "hidden_size": 768}, "RWKV's recurrence"),
        ({"_class_name": "UNet2DConditionModel"}, "U-Nets"),
        ({"_class_name": "StableDiffusionPipeline"}, "transformer/config.json"),
        ({"_class_name": "FluxTransformer2DModel"}, "joint attention"),
        ({"model_type": 5}, "is no name of a model type"),
        ({"hidden_size": 8}, "is missing, and no architecture tells it"),
    ],
)  # fmt: skip
def test_what_is_no_model_that_is_built_is_refused_by_name(tmp_path, data, says):
    assert says in refused(write(tmp_path, data, "some.json"))


# damage


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (but(LLAMA, num_attention_heads=33), "33 heads do not divide hidden_size = 4096"),
        (but(LLAMA, num_hidden_layers=-4), "num_hidden_layers: -4 is too small"),
        (but(LLAMA, hidden_size="4096"), "write 4096, without quotes"),
        (but(LLAMA, intermediate_size=float("nan")), "intermediate_size: nan is no number"),
        (but(LLAMA, vocab_size=float("inf")), "vocab_size: inf is no number"),
        (but(GEMMA, layer_types=["full_attention"] * 5), "5 layers listed, but num_hidden_layers is 32"),
        (but(GEMMA, layer_types=["wobble"] * 32), "layers of kind 'wobble' are not modelled"),
        (but(LLAMA, hidden_size=None), "hidden_size: is missing"),
        (but(MIXTURE, num_experts_per_tok=None), "num_experts_per_tok: is missing"),
        (but(MIXTURE, num_experts_per_tok=9), "9 experts for a token, but there are 8"),
        (but(LLAMA, num_key_value_heads=5), "32 heads cannot share 5 key-value heads evenly"),
        (but(LLAMA, hidden_size=10**30), "is beyond reason"),
        (but(LLAMA, num_hidden_layers=10**6), "is beyond reason"),
        (but(LLAMA, vocab_size=2.5), "2.5 is no whole number"),
        (but(LLAMA, tie_word_embeddings="no"), "where true or false belongs"),
        ({**LLAVA, "vision_config": {**LLAVA["vision_config"], "patch_size": None}}, "vision_config.patch_size: is null"),
        ({**LLAVA, "vision_config": [1]}, "vision_config: holds a list, where a mapping belongs"),
        (but(MAMBA2, expand=ENDLESS), "expand: a whole number of about 401 digits is beyond reason"),
        (but(BAMBA, mamba_expand=-ENDLESS), "mamba_expand: a whole number of about 401 digits is beyond reason"),
        (but(BAMBA, attn_layer_indices=[1, ENDLESS]), "attn_layer_indices.1: a whole number of about 401 digits"),
        (but(LLAMA, rope_theta=ENDLESS), "rope_theta: a whole number of about 401 digits is beyond reason"),
        (but(MAMBA2, expand=1e200), "expand: 1e+200 is beyond reason"),
        (but(MAMBA2, expand="2"), "expand: '2' is a text, where a number belongs"),
        (but(MAMBA2, expand=float("nan")), "expand: nan is no number"),
        (but(MOE, decoder_sparse_step=0), "decoder_sparse_step: 0 is too small (a step from one such layer to the next)"),
        (but(MOE, mlp_only_layers=["x"]), "mlp_only_layers: holds what is no number of a layer"),
        (but(GEMMA, sliding_window_pattern=-6), "sliding_window_pattern: -6 is too small"),
        (but(NEO, attention_types=[[["global", "local"], 10**12]]), "26 layers listed, but num_layers is 12"),
        (
            but(MPT, attn_config={"attn_type": "grouped_query_attention", "kv_n_heads": "x"}),
            "attn_config.kv_n_heads: 'x' is a text, where a whole number belongs",
        ),
        (json.dumps(LLAMA)[:200], "not readable as JSON"),
        ("[1, 2]", "holds a list at the top"),
        ("", 'empty; a config.json has at least `"model_type"`'),
        ("[]", 'where a mapping belongs; a config.json has at least `"model_type"`'),
        ('{"model_type": "llama", "model_type": "gpt2"}', "config.json:1:25: duplicate key 'model_type' (first at"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_what_is_wrong(tmp_path, capsys, data, says):
    path = write(tmp_path, data)
    assert says in refused(path)
    assert main(["predict", str(path), *GPUS]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert not printed.out


def test_layers_that_there_are_not_are_told(tmp_path, capsys):
    for places in ([999], [-1]):
        assert main(["show", str(write(tmp_path, but(MOE, mlp_only_layers=places)))]) == 0
        assert (
            f"mlp_only_layers names layers that there are not ({places[0]}; the last is 31)" in capsys.readouterr().err
        )


def test_a_home_that_nobody_has_is_no_file(capsys):
    assert main(["show", "~nouser/x"]) == 2
    assert "no such file" in capsys.readouterr().err
    for option in ("~nouser/x", "~nouser/x.json"):
        assert main(["predict", "--model", option, *GPUS]) == 2
        assert main(["predict", option, *GPUS]) == 2


def test_all_faults_are_told_at_once_and_where(tmp_path):
    bad = but(
        MIXTURE,
        num_hidden_layers="x",
        vocab_size=-1,
        num_key_value_heads=5,
        num_experts_per_tok=9,
        attention_dropout=0.0,
    )
    said = refused(write(tmp_path, json.dumps(bad, indent=1)))
    assert "4 problems" in said
    for key in ("num_hidden_layers", "vocab_size", "num_key_value_heads", "num_experts_per_tok"):
        assert f": {key}: " in said
    assert said.count("config.json:") > 4  # the line of each


# unknown types


FALCON = {
    "model_type": "falcon", "hidden_size": 4224, "num_hidden_layers": 4, "num_attention_heads": 32, "vocab_size": 65024,
    "new_decoder_architecture": True, "num_kv_heads": 8, "parallel_attn": True, "bias": False, "alibi": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "way_out"),
    [
        (but(LLAMA, hidden_size=4224, num_attention_heads=33, num_key_value_heads=8), "num_key_value_heads: 3 or 11"),
        (but(FALCON, num_attention_heads=33, num_kv_heads=8), "num_kv_heads: 3 or 11"),
    ],
)
def test_a_way_out_speaks_of_the_keys_of_the_file(tmp_path, data, way_out):
    text = refused(write(tmp_path, data))
    assert way_out in text
    assert " kv_heads" not in text


def test_the_rows_of_a_classifier_are_classes(tmp_path, capsys):
    vit = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 768, "num_hidden_layers": 12,
           "num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_labels": 5}  # fmt: skip
    assert main(["show", str(write(tmp_path, vit))]) == 0
    assert any(line.split() == ["vocab", "(classes)", "5"] for line in capsys.readouterr().out.splitlines())


def test_an_unknown_type_is_read_like_a_llama_only_where_all_sizes_are_there(tmp_path):
    found = open_model(write(tmp_path, {**LLAMA, "model_type": "lamma", "architectures": ["LammaForCausalLM"]}))
    assert found.model is not None
    assert "'lamma' is unknown: read as a decoder with Llama's layers" in found.report.warnings[0]
    assert "llama" in found.report.warnings[0].partition("nearest types are")[2]
    assert "no …ForCausalLM" in refused(write(tmp_path, {**LLAMA, "model_type": "lamma", "architectures": ["Lamma"]}))
    assert "num_hidden_layers missing" in refused(
        write(tmp_path, but(LLAMA, model_type="lamma", architectures=["LammaForCausalLM"], num_hidden_layers=None))
    )
    assert "it has num_experts" in refused(
        write(tmp_path, but(LLAMA, model_type="lamma", architectures=["LammaForCausalLM"], num_experts=8))
    )


def test_the_type_may_follow_from_the_architecture(tmp_path):
    found = open_model(write(tmp_path, but(LLAMA, model_type=None)))
    assert found.model is not None
    assert found.report.assumed["model_type"] == ("llama", "by its architecture")


# the report


def test_show_tells_what_was_understood_assumed_and_ignored(tmp_path, capsys):
    path = write(tmp_path, but(LLAMA, num_key_value_heads=None, wobble_size=3))
    assert main(["show", str(path), "--format", "json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert answer["understood"]["hidden_size"] == 4096
    assert answer["assumed"]["num_key_value_heads"] == {"value": 32.0, "why": "= num_attention_heads"}
    assert "rope_theta" in answer["ignored"]["positions"]
    assert answer["unknown"] == ["wobble_size"]
    assert "wobble_size" in printed.err
    assert answer["model"]["fields"]["hidden"] == 4096
    assert answer["warnings"]
    for form in ("table", "csv"):
        assert main(["show", str(tmp_path), "--format", form]) == 0
        assert "Assumed" in capsys.readouterr().out or form == "csv"


def test_what_show_prints_is_a_model_of_a_scenario(tmp_path):
    found = open_model(write(tmp_path, LLAVA))
    assert found.model is not None
    fields = found.answer()["model"]["fields"]
    again = shardmeter.load({"model": {**fields, "name": "again"}, "gpus": "8xH100-SXM5-80GB"}).model
    for name in ("layers", "hidden", "vocab", "projector", "tied"):
        assert getattr(again, name) == getattr(found.model, name)
    assert again.vision is not None
    assert again.vision.patch == 14


def test_show_refuses_like_predict(tmp_path, capsys):
    assert main(["show", str(tmp_path / "none.json")]) == 2
    assert main(["show", str(write(tmp_path, but(LLAMA, num_attention_heads=33)))]) == 2
    assert "33 heads" in capsys.readouterr().err


def test_knowing_a_configuration_costs_no_import():
    source = Path(files.__file__).read_text(encoding="utf-8")
    assert "pydantic" not in source
    assert "numpy" not in source
