"""Every bad input is one clear error that names the field, the rule and a way out; nothing else ever escapes."""

from __future__ import annotations

import copy
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import ShardMeterError, UnknownName
from shardmeter.scenario import load

GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "stack": "titan-compile",
    "fleet": {
        "islands": [
            {
                "name": "oregon",
                "accelerator": "H100-SXM5-80GB",
                "nodes": 8,
                "gpus_per_node": 8,
                "fabric": "ib-ndr400",
                "price": "$2.10/gpu/h",
            }
        ]
    },
    "plan": {"tp": 2, "micro_batch": 1},
    "run": {"seq_len": 8192, "global_batch": 64, "tokens": "1T"},
}
FILE = """\
model: llama-3.1-8b
stack: titan-compile
gpus: 64xH100-SXM5-80GB
plan: {tp: 2}
run:
  seq_len: 8192
"""


def refused(source: object, **more: Any) -> str:
    """The text of the one error that a source raises."""
    with pytest.raises(ShardMeterError) as caught:
        load(source, **more)
    text = str(caught.value)
    assert "Traceback" not in text
    assert len(text) < 4000
    return text


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    inner: Any = data
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    inner[last] = value
    return data


def test_the_good_one_is_good(tmp_path: Path) -> None:
    scenario = load(GOOD)
    assert scenario.fleet.gpus == 64
    assert scenario.plan.dp_shard == 32
    file = tmp_path / "good.yaml"
    file.write_text(FILE)
    assert load(file).plan.dp_shard == 32


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("model", "llama-3.1-9b", "model"),
        ("stack", "titan-compiled-2", "stack"),
        ("fleet.islands.0.accelerator", "H100-SXM5-81GB", "accelerator"),
        ("fleet.islands.0.fabric", "ib-ndr401", "fabric"),
    ],
)
def test_an_unknown_name_lists_the_nearest_three(path: str, name: str, kind: str) -> None:
    with pytest.raises(UnknownName) as caught:
        load(changed(path, name))
    assert caught.value.kind == kind
    assert len(caught.value.nearest) == 3
    assert repr(name) in str(caught.value)


def test_unknown_names_come_together_with_everything_else() -> None:
    data = changed("model", "llama-9") | {"stack": "nostack", "plan": {"tp": -1}}
    text = refused(data)
    assert "unknown model 'llama-9'" in text
    assert "unknown stack 'nostack'" in text
    assert "plan.tp: -1 is negative" in text


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("deepseek-v3.2", "sparse attention with an indexer is"),
        ("nemotron-3-ultra", "hybrid stacks whose order of layers is not published are"),
        ("zamba2-7b", "stacks of recurrences that share their attention are"),
        ("modernbert-large", "encoders with attention in windows or by distance are"),
        ("switch-base-8", "encoder-decoder models with routed experts are"),
        ("swin-b", "vision models of windows, pyramids or convolutions are"),
        ("flux.1-dev", "diffusion models with a text inside are"),
    ],
)
def test_a_model_of_a_family_that_is_not_built_says_so(name, family):
    text = refused({"model": name, "gpus": "8xH100-SXM5-80GB", "plan": "fsdp"})
    assert f"unknown model '{name}' (by its name: {family}" in text
    assert "not modelled yet" in text
    assert "the nearest are" in text


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("plan.tp", 3, ["plan.tp: tp = 3 does not divide 32 attention heads", "the nearest legal tp: 2 and 4"]),
        ("plan.tp", 64, ["tp = 64 does not divide 32", "the nearest legal tp: 32"]),
        ("plan.pp", 64, ["plan.pp", "64 stages for 32 layers", "pp ≤ 32"]),
        ("plan.dp_shard", 3, ["2·1·1·3·1 = 6", "has 64 GPUs", "dp_shard=32"]),
        ("plan.dp_replicate", 3, ["64/(2·1·1·3)", "no whole number", "divide"]),
        ("plan.virtual_stages", 2, ["virtual_stages = 2 with schedule 1f1b", "schedule: interleaved"]),
        ("plan.schedule", "interleaved", ["virtual_stages = 1", "virtual_stages: 2"]),
        ("plan.sharding", "none", ["sharding none with 32", "ddp or fsdp"]),
        ("plan.precision", "fp4", ["plan.precision", "needs fp4 units", "bf16"]),
        ("plan.precision", "mxfp8", ["plan.precision", "needs fp4 units", "fp8-rowwise"]),
        ("plan.gather_dtype", "fp8", ["plan.gather_dtype", "with precision bf16"]),
        ("plan.offload", ["optimizer"], ["plan.offload", "host_memory_bandwidth", "not known"]),
        ("plan.trainable", ["layer:20-40"], ["plan.trainable", "32 layers", "0 to 31"]),
        ("plan.trainable", ["layer:20-40", "layer:1-2"], ["plan.trainable", "32 layers", "0 to 31"]),
        ("plan.trainable", ["all", "head"], ["plan.trainable", "all trains everything", "all, or only blocks"]),
        ("plan.trainable", ["lora(r=8)", "head"], ["plan.trainable", "freezes all else", "lora(r=8), or only blocks"]),
        ("plan.trainable", "lora(r=0)", ["plan.trainable", "lora(r=0)"]),
        ("plan.offload", ["states"], ["plan.offload", "states"]),
        ("plan.rank_order", ["tp", "pp"], ["plan.rank_order", "dp_replicate"]),
        ("run.global_batch", 65, ["global_batch = 65 is no multiple of dp·micro_batch = 32·1 = 32", "64 and 96"]),
        ("run.global_batch", "1k tokens", ["run.global_batch", "fewer than dp·micro_batch = 32"]),
        ("run.seq_len", 8191, ["seq_len = 8191 is no multiple of tp = 2", "8190 and 8192"]),
        ("run.steps", 5, ["both tokens and steps"]),
    ],
)
def test_a_plan_that_cannot_be_laid_out(path: str, value: Any, says: list[str]) -> None:
    text = refused(changed(path, value))
    assert all(part in text for part in says), text


def test_all_violations_of_a_plan_at_once() -> None:
    data = changed("plan.tp", 3)
    data["plan"]["dp_shard"] = 5
    text = refused(data)
    assert {"15", "heads", "feed-forward", "global_batch"} <= set(
        re.findall(r"15|heads|feed-forward|global_batch", text)
    )


NUMBERS = ["plan.tp", "plan.pp", "plan.micro_batch", "plan.dp_shard", "plan.dp_replicate", "plan.virtual_stages",
           "run.seq_len", "run.global_batch", "run.tokens", "fleet.islands.0.nodes",
           "fleet.islands.0.gpus_per_node"]  # fmt: skip


@pytest.mark.parametrize("path", NUMBERS)
@pytest.mark.parametrize(
    "value",
    [
        -1,
        0,
        float("nan"),
        float("inf"),
        1e40,
        10**400,
        "9" * 90,
        "-3",
        "nan",
        "1e99",
        [1],
        {"a": 1},
        True,
        "eight",
        "4G",
    ],
)
def test_numbers_that_are_none(path: str, value: Any) -> None:
    text = refused(changed(path, value))
    assert path in text


@pytest.mark.parametrize(("path", "value"), [("plan.tp", 1.5), ("plan.pp", "2.5"), ("run.seq_len", 8192.5)])
def test_numbers_that_are_not_whole(path: str, value: Any) -> None:
    text = refused(changed(path, value))
    assert f"{path}: {float(value):g} is no whole number" in text


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("fleet.islands.0.fabric", {"base": "ib-ndr400", "bandwidth": 400}, "has no unit"),
        ("fleet.islands.0.fabric", {"base": "ib-ndr400", "bandwidth": "400G"}, "two ways: GB/s or Gb/s"),
        ("fleet.islands.0.fabric", {"base": "ib-ndr400", "bandwidth": "400 GBPS"}, "two ways: GB/s or Gb/s"),
        ("fleet.islands.0.fabric", {"base": "ib-ndr400", "bandwidth": "0 Gbps"}, "makes no sense"),
        ("fleet.islands.0.accelerator", {"base": "H100-SXM5-80GB", "memory": "80 gb"}, "two ways: GB or Gbit"),
        ("fleet.islands.0.accelerator", {"base": "H100-SXM5-80GB", "memory": "-80 GB"}, "negative"),
        ("fleet.islands.0.accelerator", {"base": "H100-SXM5-80GB", "peak": {"bf16": "989T"}}, "TFLOP/s"),
        ("fleet.islands.0.accelerator", {"base": "H100-SXM5-80GB", "memory_share": 80}, "between 0 and 1"),
        ("fleet.islands.0.accelerator", {"memory": "80 GiB"}, "or start from a catalog accelerator with `base:`"),
        ("fleet.islands.0.price", 2.1, "$2.10/gpu/h"),
        ("fleet.islands.0.price", "$2.10/h", "per GPU or per node"),
        ("fleet.islands.0.price", "2.10 EUR/gpu/h", "no $"),
        ("stack", {"base": "titan-compile", "launch_overhead": 6}, "40 ms"),
        ("stack", {"base": "titan-compile", "launch_overhead": "6 m"}, "5 min or 5 months"),
        ("model", {"layers": 2, "hidden": 8}, "lacks"),
    ],
)
def test_units_that_are_missing_or_could_be_two(path: str, value: Any, says: str) -> None:
    text = refused(changed(path, value))
    assert says in text, text
    assert path in text


@pytest.mark.parametrize(
    ("path", "value", "way_out"),
    [
        ("modle", "x", "did you mean 'model'?"),
        ("plan.micro_bach", 1, "did you mean 'micro_batch'?"),
        ("run.sequence_len", 1, "did you mean 'seq_len'?"),
        ("fleet.islands.0.acelerator", "x", "did you mean 'accelerator'?"),
        ("plan.schedule", "1f1c", "did you mean '1f1b'?"),
        ("plan.recompute", "fully", "did you mean 'full'?"),
        ("plan.recompute", "every-0", "did you mean 'every-2'?"),
        ("plan.sharding", "fsdp2", "did you mean 'fsdp'?"),
        ("plan.recompute", "mlp+layernrom", "did you mean 'layernorm'?"),
        ("stack", {"base": "titan-compile", "collectives": []}, "name one at least"),
    ],
)
def test_unknown_keys_and_words_say_what_was_meant(path: str, value: Any, way_out: str) -> None:
    text = refused(changed(path, value))
    assert way_out in text, text
    assert path in text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("plan.precision", "int8"),
        ("plan.gather_dtype", "int8"),
    ],
)
def test_what_is_not_modelled_yet_is_refused_by_name(path: str, value: Any) -> None:
    text = refused(changed(path, value))
    assert "not modelled yet" in text
    assert path in text


@pytest.mark.parametrize("value", [[1], 3, True, "64", "x H100", "0xH100-SXM5-80GB", "1e99xH100-SXM5-80GB"])
def test_gpus_that_are_none(value: Any) -> None:
    assert "gpus: " in refused({"model": "llama-3.1-8b", "gpus": value})


def test_gpus_are_whole_nodes() -> None:
    text = refused({"model": "llama-3.1-8b", "gpus": "63xH100-SXM5-80GB"})
    assert "the nearest are 56 and 64" in text


def test_nothing_at_all() -> None:
    text = refused(None)
    assert "model: no model is named" in text
    assert "gpus: no GPUs are named" in text


# files


def write(tmp_path: Path, text: str | bytes, name: str = "bad.yaml") -> Path:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize(
    ("line", "key", "hint"),
    [("  seq_length: 3", "run.seq_length", "seq_len"), ("  tokns: 1T", "run.tokns", "tokens")],
)
def test_an_unknown_key_has_file_line_and_column(tmp_path: Path, line: str, key: str, hint: str) -> None:
    file = write(tmp_path, FILE + line + "\n")
    assert f"{file}:7:3: {key}: unknown key; did you mean '{hint}'?" in refused(file)


def test_json_and_toml_have_lines_too(tmp_path: Path) -> None:
    file = write(tmp_path, '{"model": "llama-3.1-8b",\n "gpus": "8xH100-SXM5-80GB",\n "rnu": {}}', "bad.json")
    assert f"{file}:3:2: rnu: unknown key" in refused(file)
    file = write(tmp_path, 'model = "llama-3.1-8b"\ngpus = "8xH100-SXM5-80GB"\nrnu = 3\n', "bad.toml")
    assert f"{file}:3:1: rnu: unknown key" in refused(file)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("empty.yaml", "", "empty"),
        ("blank.json", " \n\t\n", "empty"),
        ("comment.yaml", "# nothing\n", "nothing at the top"),
        ("list.yaml", "- a\n- b\n", "a list at the top"),
        ("list.json", "[1, 2]", "a list at the top"),
        ("text.yaml", "just words", "at the top"),
        ("tag.yaml", "model: !!python/object/apply:os.system ['true']\n", "the tag tag:yaml.org,2002:python"),
        ("own.yaml", "model: !mine x\n", "the tag !mine"),
        ("binarytag.yaml", "model: !!binary aGVsbG8=\n", "the tag"),
        ("anchor.yaml", "a: &x [1]\nb: *x\n", "the anchor &x"),
        ("two.yaml", "model: a\n---\nmodel: b\n", "second document"),
        ("twice.yaml", "model: a\nmodel: b\n", "twice.yaml:2:1: duplicate key 'model'"),
        ("twice.json", '{"model": "a", "model": "b"}', "duplicate key 'model'"),
        ("twice.toml", 'model = "a"\nmodel = "b"\n', "not readable as TOML"),
        ("broken.yaml", "model: [a\n", "broken.yaml:2:1"),
        ("tabs.yaml", "run:\n\tseq_len: 3\n", "tabs.yaml:2:1"),
        ("broken.json", '{"model": ', "broken.json:1:"),
        ("broken.toml", "model = \n", "not readable as TOML"),
        ("deep.yaml", "a: " + "[" * 1000 + "]" * 1000, "levels of nesting"),
        ("deeper.yaml", "\n".join(" " * i + "a:" for i in range(200)), "levels of nesting"),
        ("deep.json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "levels of nesting"),
        ("deep.toml", "a = " + "[" * 100_000 + "]" * 100_000, "levels of nesting"),
        ("dots.toml", ".".join(["a"] * 500) + " = 1", "levels"),
        ("digits.json", '{"run": {"seq_len": ' + "9" * 10_000 + "}}", "digits.json"),
        ("nan.json", '{"run": {"seq_len": NaN}}', "run.seq_len"),
        ("many.yaml", "\n".join(f"k{i}: 1" for i in range(30_000)), "more than 20000 values"),
        ("complex.yaml", "? [a, b]\n: 1\n", "a key that is no text"),
        ("merge.yaml", "<<: {model: a}\n", "unknown key"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, name: str, text: str, says: str) -> None:
    file = write(tmp_path, text, name)
    assert says in refused(file)
    assert name in refused(str(file))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dots.toml", ".".join(["a"] * 500) + " = 1"),
        ("word.yaml", "model: 3"),
        ("empty.json", ""),
        ("bytes.toml", "\0"),
    ],
)
def test_the_whole_path_of_a_file_is_named_however_deep_it_lies(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "deep" / ("x" * 150) / ("y" * 150)
    folder.mkdir(parents=True)
    assert str(folder / name) in refused(write(folder, text, name))
    assert str(folder / f"not-{name}") in refused(folder / f"not-{name}")


def test_a_part_may_be_a_file_that_lies_deep(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150) / ("y" * 150)
    folder.mkdir(parents=True)
    model = write(folder, "base: llama-3.1-8b\nlayers: 16\n", "half.yaml")
    assert load(changed("model", str(model))).model.layers == 16


def test_an_alias_bomb_is_refused_at_its_first_anchor(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    file = write(tmp_path, "\n".join(lines))
    assert f"{file}:1:5: the anchor &a0" in refused(file)


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".toml", ".txt"])
def test_a_large_or_binary_file(tmp_path: Path, suffix: str) -> None:
    large = write(tmp_path, b"# " + b"x" * 10_000_000, f"large{suffix}")
    assert "10000002 bytes is no scenario; at most 1000000" in refused(large)
    for content in (b"\x89PNG\r\n\x1a\n\x00\x00", bytes(range(256)), b"model: \x00", "model: a".encode("utf-16")):
        assert "binary" in refused(write(tmp_path, content, f"binary{suffix}"))


def test_folders_missing_and_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path, FILE, "llama.yaml")
    text = refused(tmp_path)
    assert "is a folder" in text
    assert "llama.yaml" in text
    text = refused(tmp_path / "lama.yaml")
    assert "no such file" in text
    assert "llama.yaml" in text
    assert "no such file" in refused(tmp_path / "nowhere" / "x.yaml")
    assert refused("x" * 5000)
    assert refused("a\0b")
    if os.geteuid() != 0:  # pragma: no cover  (root reads everything)
        closed = write(tmp_path, FILE, "closed.yaml")
        closed.chmod(0)
        assert "cannot be read" in refused(closed)


def test_an_unreadable_file_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, FILE)

    def closed(*_args: Any, **_kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)
    assert f"{file}: cannot be read (Permission denied)" in refused(file)


def test_a_part_in_a_file_is_checked_like_the_scenario(tmp_path: Path) -> None:
    write(tmp_path, "base: llama-3.1-8b\nlayerz: 4\n", "mine.yaml")
    file = write(tmp_path, FILE.replace("llama-3.1-8b", "mine.yaml"), "scenario.yaml")
    assert f"{tmp_path / 'mine.yaml'}:2:1: layerz: unknown key; did you mean 'layers'?" in refused(file)
    write(tmp_path, "base: llama-3.1-8b\nlayers: 4\n", "mine.yaml")
    assert load(file).model.layers == 4
    write(tmp_path, json.dumps({"model_type": "llama", "hidden_size": 8}), "config.json")
    said = refused(write(tmp_path, FILE.replace("llama-3.1-8b", "config.json"), "hf.yaml"))
    assert "num_hidden_layers: is missing" in said
    assert "vocab_size: is missing" in said


def test_sources_that_are_no_scenario() -> None:
    for source in (3, [1], b"model: x", object(), {1: 2}, {"a": object()}, {"model": {"layers": {1, 2}}}):
        assert refused(source)
    endless: dict[str, Any] = {}
    endless["plan"] = endless
    assert "inside itself" in refused(endless)


# overrides and the one-line plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("plan.tp", "no a.b=VALUE"),
        ("=3", "no a.b=VALUE"),
        ("plan..tp=3", "no a.b=VALUE"),
        ("plan.tq=3", "did you mean 'tp'?"),
        ("fleet.islands.iowa.nodes=3", "there are oregon, 0"),
        ("fleet.islands.7.nodes=3", "there are"),
        ("run.seq_len.x=3", "which has no fields"),
        ("run.seq_len=[1", "--set"),
        ("plan.tp=-1", "--set plan.tp=-1: -1 is negative"),
        ("stack.launch_overhead=6", "--set stack.launch_overhead=6: 6 has no unit"),
        (".".join("a" * 100) + "=1", "no a.b=VALUE"),
    ],
)
def test_overrides_that_do_not_apply(text: str, says: str) -> None:
    message = refused(GOOD, overrides=[text])
    assert says in message, message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unknown plan"),
        ("fsdq", "the nearest are fsdp"),
        ("tp=8", "write fsdp,tp=8"),
        ("fsdp,tp", "no key=value"),
        ("fsdp,tp=", "no key=value"),
        ("fsdp,=8", "no key=value"),
        ("fsdp,,", "no key=value"),
        ("fsdp,tp=8,tp=4", "set twice"),
        ("fsdp,tp=8,tp.x=4", "both as a value and as a mapping"),
        ("fsdp,tq=8", "did you mean 'tp'?"),
        ("fsdp,tp=eight", "plan.tp"),
        ("fsdp,sharding=ddp", "set twice"),
        ("fsdp," + "x" * 5000, "at most 1000"),
    ],
)
def test_plan_lines_that_are_none(text: str, says: str) -> None:
    message = refused(None, options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": text})
    assert says in message, message
    assert "plan" in message


@pytest.mark.parametrize("key", ["[key]", "‹name›", "", ".", "0"])
def test_odd_keys_are_unknown_keys(key: str) -> None:
    for path in (key, f"plan.{key}", f"fleet.islands.0.{key}"):
        data = copy.deepcopy(GOOD)
        inner: Any = data
        for step in path.removesuffix(key).split("."):
            inner = inner if not step else inner[int(step) if step == "0" else step]
        inner[key] = 1
        assert "unknown key" in refused(data)
    own = {"base": "H100-SXM5-80GB", "peak": {key: "1 TFLOP/s"}}
    assert "unknown word" in refused(changed("fleet.islands.0.accelerator", own))


def test_unknown_options_are_refused() -> None:
    assert "unknown option 'modle'" in refused(None, options={"modle": "x"})


# bounds: one table for inline parts, overrides, files and catalog rows

ACCELERATOR, FABRIC = "fleet.islands.0.accelerator", "fleet.islands.0.fabric"
BASED = {
    "model": {"base": "llama-3.1-8b"},
    "stack": {"base": "titan-compile"},
    "fleet": {
        "islands": [
            {
                "accelerator": {"base": "H100-SXM5-80GB"},
                "fabric": {"base": "ib-ndr400"},
                "nodes": 8,
                "gpus_per_node": 8,
            }
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{ACCELERATOR}.memory_share", 0),
        (f"{ACCELERATOR}.scale_up_share", 0),
        (f"{ACCELERATOR}.matmul_share", {"bf16": 0}),
        (f"{ACCELERATOR}.attention_share", {"fa2": [0, 0.5]}),
        (f"{ACCELERATOR}.attention_share", {"fa2": [0.5]}),
        (f"{ACCELERATOR}.scale_up_domain", 0),
        (f"{ACCELERATOR}.scale_up_domain", 0.5),
        (f"{ACCELERATOR}.node_size", 0),
        (f"{ACCELERATOR}.peak", {"bf16": "1e-300 TFLOP/s"}),
        (f"{ACCELERATOR}.memory", "1e-12 GB"),
        (f"{ACCELERATOR}.power", "1e-300 W"),
        (f"{FABRIC}.share", 0),
        (f"{FABRIC}.nics_per_node", 0),
        (f"{FABRIC}.bandwidth", "1e-300 GB/s"),
        (f"{FABRIC}.latency", "1e300 s"),
        ("stack.gemm_factor", 1e-320),
        ("stack.nic_factor", 1e-300),
        ("stack.traffic_factor", 1e300),
        ("model.vocab", 0.5),
        ("model.head_dim", 1.5),
        ("model.layers", 1e9),
        ("fleet.islands.0.nodes", 1e9),
        ("run.global_batch", 9007199254740993),
        ("run.tokens", "1e16"),
        ("plan.micro_batch", 1e15),
        ("plan.pp", 1e7),
    ],
)
def test_what_is_beyond_reason_is_refused(path: str, value: Any) -> None:
    assert path in refused(BASED, overrides={path: value})


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("seq", "8 sequences", "counts sequences, where tokens"),
        ("micro_batch", "2 tokens", "counts tokens, where sequences"),
        ("micro_batch", "1.5", "use 1 or 2"),
        ("global_batch", "2.5", "no whole number"),
        ("tokens", "4096 steps", "steps where tokens"),
    ],
)
def test_a_count_takes_only_its_own_word(option: str, value: str, says: str) -> None:
    assert says in refused(BASED, options={option: value})
    for path in ("plan.tp=8 tokens", "run.seq_len=4096 steps", "fleet.islands.0.nodes=8 tokens"):
        assert "where" in refused(BASED, overrides=[path])
    assert load(BASED, options={"seq": "4096 tokens", "micro_batch": "2 sequences"}).run.seq_len == 4096


@pytest.mark.parametrize(("path", "value"), [("model.heads", 7), ("model.kv_heads", 3), ("model.kv_heads", 64)])
def test_heads_have_one_rule(tmp_path: Path, path: str, value: int) -> None:
    says = "kv_heads must divide heads"
    assert says in refused(BASED, overrides={path: value})
    inline = {"layers": 2, "hidden": 256, "heads": 8, "kv_heads": 8, "head_dim": 32, "ffn": 512, "vocab": 999}
    assert says in refused(BASED | {"model": inline | {path.split(".")[1]: value if value != 7 else 12}})
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "x.json").write_text(json.dumps(inline | {"kv_heads": 3}))
    assert says in refused(BASED, catalog=tmp_path)


def test_families_are_listed() -> None:
    listed = (
        "the families are: decoder, diffusion, dual_encoder, encoder, encoder_decoder, multimodal, recurrent, vision"
    )
    assert f"unknown family 'mamba'; {listed}" in refused(BASED, overrides=["model.family=mamba"])


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["plan.recompute=every-64"], "every-64 for 32 layers"),
        (["plan.schedule=interleaved", "plan.virtual_stages=2"], "and pp = 1"),
        (["plan.precision=int8"], "precision int8 is not modelled yet"),
        (["plan.precision=mxfp4"], "precision mxfp4 is not modelled yet"),
        (["model.positions=learned", "model.context=0", "run.seq_len=512"], "no learned positions"),
        (["plan=hsdp,dp_replicate=4"], "leave dp_replicate out, or say fsdp,dp_replicate=4"),
        (["plan.tp=3"], "the nearest tp that divides: 2 and 4"),
        (["plan.optimizer=lion"], "did you mean 'muon'? (or adafactor, adamw8bit)"),
        (["plan=fsdp tp=8"], "write fsdp,tp=8"),
        (["tp=8"], "did you mean 'plan.tp'?"),
        (["seq=8"], "did you mean 'run.seq_len'?"),
        (["plan.tp="], "has no value"),
        (["plan.micro_bach=2"], "did you mean 'micro_batch'? (or "),
    ],
)
def test_the_way_out_is_one(overrides: list[str], says: str) -> None:
    text = refused(BASED, overrides=overrides)
    assert says in text, text


def test_everything_wrong_at_once() -> None:
    text = refused(BASED, overrides=["run.tokens=x", "plan.tp=3", "nope", "model.base=nollama", "run.sequence=3"])
    for part in ("run.tokens", "--set nope", "unknown model 'nollama'", "run.sequence", "64/(3·1·1·1)"):
        assert part in text, text
    names = refused(None, options={"model": "m9", "gpus": "8xH999", "stack": "s9", "micro_batch": "0"})
    for part in ("unknown model", "unknown accelerator", "unknown stack", "--micro-batch: 0"):
        assert part in names, names


def test_what_follows_from_a_fault_is_no_fault() -> None:
    assert refused(changed("plan.dp_shard", "x")).count("\n") == 1
    assert refused(changed("run.seq_len", "x")).count("\n") == 1
    assert refused(changed("fleet.islands.0.nodes", "x")).count("\n") == 1
    assert refused(changed("fleet.islands", "x")).count("\n") == 1
    assert refused(changed("model", {"base": "llama-3.1-8b", "layers": "x"})).count("\n") == 1


# options and overrides that win, and what is said about it


def test_the_command_line_wins_over_the_plan_of_an_island() -> None:
    data = changed("fleet.islands.0.plan", {"tp": 2, "recompute": "full"})
    for more in ({"options": {"plan": "fsdp,tp=8"}}, {"overrides": ["plan.tp=8"]}):
        scenario = load(data, **more)
        assert scenario.plan.tp == 8
        assert any("wins over the plan of island oregon" in said for said in scenario.assumptions)
    assert load(data, overrides=["plan.tp=8"]).plan.recompute == "full"
    assert load(data, overrides=["plan.tp=8", "fleet.islands.0.plan.tp=4"]).plan.tp == 4


def test_what_is_lost_is_said() -> None:
    said = "\n".join(load(GOOD, options={"plan": "fsdp,recompute=full"}).assumptions)
    assert "--plan replaces the plan of the file: its tp, micro_batch do not count" in said
    assert "--gpus replaces the fleet" in "\n".join(load(GOOD, options={"gpus": "8xH100-SXM5-80GB"}).warnings)
    twice = load(GOOD, overrides=["plan.tp=2", "plan.tp=4"])
    assert twice.plan.tp == 4
    assert any("the last one counts" in said for said in twice.warnings)
    assert "both seq and seq_len" in refused(GOOD, options={"seq": 8, "seq_len": 16})


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["plan.sharding=zero1", "plan.reshard=true"], "plan.reshard changes nothing"),
        (["plan.schedule=gpipe"], "plan.schedule changes nothing"),
        (["run.seq_len=262144"], "beyond the context"),
    ],
)
def test_what_changes_nothing_is_said(overrides: list[str], says: str) -> None:
    assert any(says in warning for warning in load(GOOD, overrides=overrides).warnings)


def test_a_file_on_the_command_line_lies_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "base: llama-3.1-8b\nlayers: 4\n", "mym.yaml")
    file = write(tmp_path / "sub", FILE.replace("\n", "\r\n"), "crlf.yaml")
    monkeypatch.chdir(tmp_path)
    for more in ({"options": {"model": "mym.yaml"}}, {"overrides": ["model=mym.yaml"]}):
        model = load(file, **more).model
        assert (model.layers, model.name) == (4, "mym")
    assert load(file, overrides=["model.layers=4"]).model.name == "llama-3.1-8b, changed"
    assert load(file).model.name == "llama-3.1-8b"


# special files, odd characters, endless numbers


def test_special_files_get_a_true_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    assert "is a pipe" in refused(tmp_path / "fifo.yaml")
    assert "is a link to a file that does not exist (nowhere)" in refused(tmp_path / "dangling.yaml")
    assert "is a device" in refused("/dev/zero")
    assert "file is empty" in refused("")
    assert "is a pipe" in refused(BASED, options={"model": str(tmp_path / "fifo.yaml")})


@pytest.mark.parametrize("odd", ["\x1b[31m", "\u202e", "\ud800", "\x00", "\x07", "\x9b"])
def test_control_characters_never_come_back(odd: str) -> None:
    def plain(text: str) -> bool:
        return all(line.isprintable() for line in text.split("\n"))

    name = f"a{odd}b"
    for data in (changed("model", name), changed("plan.schedule", name), changed("run.seq_len", name), {name: 1}):
        assert plain(refused(data))
    for line in (f"{name}=1", f"plan.tp={name}", f"model={name}", f"plan.{name}=1", name):
        assert plain(refused(GOOD, overrides=[line]))
    assert plain(refused(GOOD, options={"plan": name}))
    assert plain(refused(f"/nowhere/{name}"))
    scenario = load(changed("model", {"base": "llama-3.1-8b", "name": name}), overrides=[f"name={name}"])
    assert plain(scenario.model.name + scenario.name)


@pytest.mark.parametrize("value", [10**5000, -(10**5000), "9" * 5000], ids=["large", "negative", "text"])
@pytest.mark.parametrize(
    "path", ["plan.tp", "plan.cp", "plan.schedule", "plan.recompute", "run.tokens", "model", "name"]
)
def test_endless_numbers_are_refused_shortly(path: str, value: Any) -> None:
    assert len(refused(changed(path, value))) < 600


def test_long_names_are_cut() -> None:
    assert len(refused(changed("model", "x" * 5000))) < 400
    assert len(refused(GOOD | {"x" * 5000: 1})) < 400
    assert len(refused(GOOD, overrides=[f"{'x' * 5000}=1"])) < 600


@pytest.mark.parametrize("source", [3, b"x", [1], object(), {"plan": {"tp": object()}}, {"plan": {"tp": {1, 2}}}])
def test_no_name_of_a_class_is_shown(source: Any) -> None:
    text = refused(source) if not isinstance(source, dict) else refused(GOOD | source)
    assert not re.search(r"\b(int|dict|str|NoneType|object|frozenset|ndarray)\b", text), text


# catalogs


def test_catalogs_are_paths_or_lists_of_paths(tmp_path: Path) -> None:
    (tmp_path / "fabrics.csv").write_text("name,bandwidth\nlab,100 Gbit/s\n")
    for catalog in (tmp_path, str(tmp_path), [tmp_path], (str(tmp_path),)):
        island = load(BASED, catalog=catalog, overrides={FABRIC: "lab"}).fleet.islands[0]
        assert island.tiers[1].bandwidth == 12.5e9
    others: list[Any] = [5, [5], {"a": 1}]
    for other in others:
        with pytest.raises(TypeError, match="a folder or a list of folders"):
            load(BASED, catalog=other)


def test_folders_that_are_no_catalog(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "File name too long" in refused(BASED, catalog="x" * 300)
    assert "a\\x00b" in refused(BASED, catalog="a\0b")
    assert "is no directory" in refused(BASED, catalog=tmp_path / "fifo")
    (tmp_path / "acelerators.csv").write_text("name\n")
    assert "did you mean accelerators.csv?" in refused(BASED, catalog=tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("fabrics.csv", "name,bandwidth,nics_per_node\nx,10 GB/s,0\n"),
        ("fabrics.csv", "name,bandwidth,nics_per_node\nx,10 GB/s,0.5\n"),
        ("fabrics.csv", "name,bandwidth,share\nx,10 GB/s,1e-9\n"),
        ("fabrics.csv", "name,bandwidth\nx,1e-300 GB/s\n"),
        ("models.csv", "name,layers,hidden,ffn,heads,kv_heads,head_dim,vocab\nx,2,64,64,8,8,8,0.5\n"),
        ("models.csv", "name,layers,hidden,ffn,heads,kv_heads,head_dim,vocab\nx,2,64,64,8,8,1.5,9\n"),
        ("models.csv", "name,family,layers,hidden,ffn,heads,kv_heads,head_dim,vocab\nx,mamba,2,64,64,8,8,8,9\n"),
        ("stacks.csv", "name,nic_factor\nx,1e-300\n"),
        ("instances.csv", "name,provider,accelerator,accelerators\nx,y,H100-SXM5-80GB,0\n"),
    ],
)
def test_catalog_rows_have_the_same_bounds(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert f"{file}:2" in refused(BASED, catalog=tmp_path)


def test_a_large_catalog_is_read_in_linear_time_and_an_endless_one_is_refused(tmp_path: Path) -> None:
    from shardmeter.scenario.catalog import _Table
    from shardmeter.scenario.rows import MOST_ROWS, Row, read_rows

    table = _Table("fabrics")
    begun = time.process_time()
    for i in range(30_000):
        table.put(Row({"name": f"f{i % 20_000}", "aliases": f"a{i}"}, "x", i))
    assert time.process_time() - begun < 5.0
    assert (len(table.rows), table.index["a25000"], "a5000" in table.index) == (20_000, "f5000", False)
    lines = "name\n" + "".join(f"f{i}\n" for i in range(MOST_ROWS + 1))
    assert "no catalog" in str(read_rows(lines, "x.csv", ["name"], ["name"])[1][0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"instance": "2xp5.48xlarge", "gpus": "16xA100-SXM4-80GB"},
            "p5.48xlarge has H100-SXM5-80GB, but gpus says A100",
        ),
        ({"instance": "p5.48xlarge", "gpus": "12xH100-SXM5-80GB"}, "12 GPUs are no whole number of p5.48xlarge"),
        ({"instance": "3xp5.48xlarge", "gpus": "16xH100-SXM5-80GB"}, "are 24 GPUs, not 16"),
        ({"instance": "p5.48xlarge", "gpus": "many"}, "is no NxNAME"),
        ({"instance": 3}, "is no [Nx]NAME"),
        ({"instance": "p5.49xlarge"}, "unknown instance"),
        ({"instance": "a, nodes: 3}]} #"}, "unknown instance"),
        ({"price": "abc"}, "has no currency"),
        ({"price": 2.1}, "has no currency"),
        ({"fabric": "nofab"}, "unknown fabric"),
    ],
)
def test_short_cuts_of_the_fleet_that_do_not_apply(options: dict[str, Any], says: str) -> None:
    text = refused(GOOD, options=options | {"micro_batch": "0"})
    assert says in text, text
    assert "--micro-batch: 0" in text, "with everything else that is wrong"
    assert "no GPUs are named" not in text


@pytest.mark.parametrize(
    ("model", "change", "says"),
    [
        ("vit-base-patch16-224", "model.patch=0", "model.patch=0: must be given in a model of family vision"),
        ("llama-7b", "model.family=multimodal", "model.vision: must be given in a model of family multimodal"),
        ("llama-7b", "model.family=vision", "model.image_size: must be given in a model of family vision"),
        ("clip-vit-b-32", "model.vision=llama-7b", "llama-7b is of family decoder; name a row of family vision"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(model: str, change: str, says: str) -> None:
    assert says in refused({"model": model, "gpus": "8xH100-SXM5-80GB"}, overrides=[change])


def test_a_tower_takes_from_the_base_of_its_model_what_it_does_not_say() -> None:
    question = {"gpus": "8xH100-SXM5-80GB", "plan": "fsdp", "model": {"base": "llava-1.5-7b", "vision": {"patch": 28}}}
    found, usual = (load(question | model).model for model in ({}, {"model": "llava-1.5-7b"}))
    assert found.vision is not None
    assert usual.vision is not None
    assert (found.vision.patch, found.vision.layers) == (28.0, usual.vision.layers)


FLEET = ["--model", "llama-3.1-8b", "--gpus", "8xH100-SXM5-80GB"]


def test_a_long_list_of_faults_is_cut(capsys):
    fleet = ["--model", "llama-3.1-8b", "--gpus", "8..2048:+1xH100-SXM5-80GB"]
    assert main(["plan", *fleet, "--set", "plan.tp=1"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: scenario: 1785 problems"
    assert said[-1] == "  … and 1,765 more"
    assert len(said) == 22


def test_a_number_of_many_digits_is_cut(capsys):
    assert main(["plan", *FLEET, "--set", "plan.tp=1..1e308"]) == 2
    assert "1e+308 points (at most 1,000,000 on one axis)" in capsys.readouterr().err


def test_every_unknown_objective_is_told(capsys):
    assert main(["plan", *FLEET, "--objective", "time,tiem,cots"]) == 2
    said = capsys.readouterr().err
    assert "unknown words 'tiem', 'cots' (one or several of time, cost, throughput, energy); did you mean" in said


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"top": "5"}, "top: '5' is no number of plans to list; a whole number from 1 to 1,000"),
        ({"top": 2.5}, "top: 2.5 is no number of plans to list"),
        ({"top": None}, "top: nothing is no number of plans to list"),
        ({"top": True}, "top: True is no number of plans to list"),
        ({"processes": "2"}, "processes: '2' is no number of processes; a whole number from 1 to 256, or None"),
        ({"processes": 1e9}, "processes: 1000000000.0 is no number of processes"),
        ({"processes": 0}, "processes: 0 is no number of processes"),
        ({"processes": -1}, "processes: -1 is no number of processes"),
        ({"processes": 10**400}, "processes: a whole number of about 401 digits is no number of processes"),
        ({"objective": 5}, "objective: 5 is no objective; a word such as 'time', or a list of words"),
        ({"objective": None}, "objective: nothing is no objective"),
        ({"objective": [1]}, "objective: a list is no objective"),
        ({"objective": b"time"}, "objective: bytes is no objective"),
        ({"objective": 5, "top": 0, "processes": 0}, "plan: 3 problems"),
    ],
)
def test_what_a_planner_is_asked_for_in_python(asked, says):
    with pytest.raises(shardmeter.BadScenario) as caught:
        shardmeter.plan(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", **asked)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "lama", "seq": "1x"}, "--model: unknown model"),
        ({"gpus": "foo"}, "--gpus: 'foo' is no NxNAME"),
        ({"plan": "bogus"}, "--plan: unknown plan"),
        ({"fabric": "foo", "seq": "1x"}, "--fabric: unknown fabric"),
        ({"seq": "1x"}, "--seq: run.seq_len: '1x'"),
    ],
)
def test_an_option_that_names_its_field_says_it_once(options: dict[str, Any], says: str) -> None:
    assert f"  - {says}" in refused(None, options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"} | options)


def test_a_price_that_is_missing_names_the_option() -> None:
    found = load(None, options={"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"}).warnings
    assert any("--price '$2.10/gpu/h'" in text for text in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"model_type": "llama",\n "num_hid', "2:10: the file breaks off here"),
        ('{"model_type": "llama",\n "a": 3,\n', "2:9: the file breaks off here"),
        ('{"model_type": "llama",\n "a": }', "2:7: Expecting value"),
    ],
)
def test_a_file_that_was_cut_off_is_said_to_be(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert f"config.json:{says}" in refused(str(tmp_path / "config.json"))


def test_a_placement_names_an_island_that_cannot_be_built(tmp_path):
    islands = "{name: a, gpus: 8xH100-SXM5-80GB}, {name: b, accelerator: H100-SXM5-80GB, nodes: 1, fabric: none-such}"
    file = tmp_path / "run.yaml"
    file.write_text(
        f"model: gpt2\nfleet: {{islands: [{islands}], wan: {{default: {{bandwidth: 1 Gbps, rtt: 1 ms}}}}}}\n"
        "plan: {sharding: zero1, placement: {dp_shard: [a, b]}}\n",
        encoding="utf-8",
    )
    assert "none-such" in refused(file)
