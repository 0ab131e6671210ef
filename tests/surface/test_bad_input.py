"""Every bad input is one clear error that names the field, the rule and a way out; nothing else ever escapes."""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

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
        ("plan.precision", "fp4", ["plan.precision", "not modelled yet", "bf16"]),
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
    ],
)
def test_unknown_keys_and_words_say_what_was_meant(path: str, value: Any, way_out: str) -> None:
    text = refused(changed(path, value))
    assert way_out in text, text
    assert path in text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("plan.cp", 2),
        ("plan.ep", 8),
        ("plan.etp", 2),
        ("plan.precision", "fp8"),
        ("plan.recompute", ["attention"]),
        ("plan.optimizer", "muon"),
        ("plan.offload", ["optimizer"]),
        ("plan.trainable", "lora(r=16)"),
        ("plan.placement", {"pp": ["oregon", "iowa"]}),
        ("plan.sync", {"method": "diloco", "sync_every": 100}),
        ("plan.sync", {"H": 100}),
        ("fleet.wan", {"default": {"bandwidth": "10 Gbps"}}),
        ("fleet.islands.0.count", 2),
        ("run.target_loss", 2.0),
        ("run.phases", [{"tokens": "1T"}]),
        ("run.deadline", "30 d"),
    ],
)
def test_what_is_not_modelled_yet_is_refused_by_name(path: str, value: Any) -> None:
    text = refused(changed(path, value))
    assert "not modelled yet" in text
    assert path in text


def test_several_islands_and_plan_auto_are_refused_by_name() -> None:
    island = GOOD["fleet"]["islands"][0]
    assert "several islands (oregon, iowa)" in refused(changed("fleet.islands", [island, island | {"name": "iowa"}]))
    assert "needs the planner" in refused(changed("plan", "auto"))


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
    assert "Hugging Face" in refused(write(tmp_path, FILE.replace("llama-3.1-8b", "config.json"), "hf.yaml"))


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
        ("plan.tp=-1", "--set plan.tp=-1: plan.tp: -1 is negative"),
        ("stack.launch_overhead=6", "--set stack.launch_overhead=6: stack.launch_overhead"),
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
