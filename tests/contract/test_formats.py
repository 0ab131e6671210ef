"""What every format of settings keeps: what it writes, it reads as the same plan; what it does not know, it tells."""

import math
import random
import re
from typing import Any

import pytest

import shardmeter
from shardmeter.core.errors import BadScenario, ShardMeterError
from shardmeter.core.record import changed, field_names
from shardmeter.interop.configs import formats, recognised
from shardmeter.interop.configs._saying import Saying, value_text
from shardmeter.interop.configs.record import Inexpressible
from shardmeter.specs import Plan, Sync

BOTH = sorted(name for name, module in formats().items() if hasattr(module, "read") and hasattr(module, "write"))
WRITING = sorted(name for name, module in formats().items() if hasattr(module, "write"))
CASES = [(name, version) for name in BOTH for version in formats()[name].VERSIONS]
LEAST = 4
"""Plans that a format can say of those generated: fewer, and its law would be no test."""
MODELS = {
    "llama-3.1-8b": (1, 2, 4), "qwen3-0.6b": (1, 2), "qwen3-30b-a3b": (1, 2), "llama-3.2-1b": (1, 2), "gpt2": (1,), "mixtral-8x7b": (1, 2),
}  # fmt: skip
"""By name: degrees of tensor parallelism that divide it."""


def joined(dice: random.Random) -> dict[str, Any]:
    """A scenario of two islands."""
    plan: dict[str, Any] = {
        "sharding": "fsdp",
        "tp": dice.choice([1, 2]),
        "recompute": dice.choice(["none", "full"]),
    }
    plan["sync"] = dice.choice([
        {"method": "diloco", "sync_every": 100, "bits": 8}, {"method": "local_sgd", "sync_every": 10}, {"method": "every_step"},
        {"method": "streaming_diloco", "sync_every": 100, "num_fragments": 4, "fragment_sync_delay": 3, "bits": 32},
    ])  # fmt: skip
    islands = [{"name": name, "gpus": "16xH100-SXM5-80GB"} for name in ("oregon", "iowa")]
    fleet = {"islands": islands, "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "loss": 0}}}
    return {
        "model": "llama-3.1-8b",
        "plan": plan,
        "fleet": fleet,
        "run": {"seq_len": 1024, "global_batch": 64, "steps": 500},
    }


def plain(dice: random.Random) -> dict[str, Any]:
    """A scenario that every trainer can say."""
    plan = {"sharding": dice.choice(["zero1", "ddp"]), "tp": dice.choice([1, 2]), "pp": dice.choice([1, 2]),
            "micro_batch": dice.choice([1, 2]), "recompute": dice.choice(["none", "full"])}  # fmt: skip
    run = {"seq_len": 1024, "global_batch": 64, "steps": 500}
    return {
        "model": "llama-3.1-8b",
        "stack": "nanotron-2025",
        "plan": plan,
        "run": run,
        "fleet": {"islands": [{"name": "hall", "gpus": "16xH100-SXM5-80GB"}]},
    }


def drawn(seed: int) -> dict[str, Any]:
    """A scenario of one process group or, one in eight, of two islands, or one that all can say; it may be illegal."""
    dice = random.Random(seed)
    if seed % 8 == 0:
        return joined(dice)
    if seed % 8 == 4:
        return plain(dice)
    model = dice.choice(list(MODELS))
    experts = model in ("qwen3-30b-a3b", "mixtral-8x7b")
    sharding = dice.choice(["fsdp", "fsdp", "fsdp", "ddp", "zero1", "zero2", "zero3", "none"])
    plan: dict[str, Any] = {
        "sharding": sharding, "tp": dice.choice(MODELS[model]), "pp": dice.choice([1, 1, 2]),
        "micro_batch": dice.choice([1, 2]), "recompute": dice.choice(["none", "full", "selective", "every-2"]),
        "precision": dice.choice(["bf16", "bf16", "fp8", "fp8-rowwise", "mxfp8"]),
    }  # fmt: skip
    gpus = 16
    if plan["pp"] == 2:
        plan |= dice.choice(
            [{"schedule": "1f1b"}, {"schedule": "gpipe"}, {"schedule": "interleaved", "virtual_stages": 2}]
        )
    elif sharding in ("fsdp", "zero3") and dice.random() < 0.3:
        plan |= {"cp": 2, "cp_kind": dice.choice(["ring", "all-gather", "ulysses"])}
    if sharding == "fsdp":
        plan |= {"reshard": dice.random() < 0.7, "dp_replicate": dice.choice([1, 1, 2])}
    if experts:
        ep = dice.choice([1, 2, 4])
        plan |= {"ep": ep, "etp": plan["tp"] if ep == 1 or dice.random() < 0.3 else 1}
    if sharding == "none":
        gpus = int(plan["tp"]) * int(plan["pp"])
    if dice.random() < 0.15:
        plan["offload"] = dice.choice([["optimizer"], ["optimizer", "parameters"]])
    stack = dice.choice(["titan-compile", "titan-eager", "megatron-core", "nanotron-2025"])
    run: dict[str, Any] = {"seq_len": 1024, "global_batch": 64, **dice.choice([{"steps": 500}, {"tokens": "1B"}, {}])}
    kind = "B200-SXM-180GB" if plan["precision"] == "mxfp8" else "H100-SXM5-80GB"
    accelerator = {"base": kind, "host_memory_bandwidth": "200 GB/s"}
    island = {"accelerator": accelerator, "nodes": max(1, gpus // 8), "gpus_per_node": min(gpus, 8)}
    return {"model": model, "stack": stack, "plan": plan, "run": run, "fleet": {"islands": [island]}}


@pytest.fixture(scope="module")
def scenarios():
    """(document, scenario) of the legal ones."""
    found = []
    for seed in range(80):
        document = drawn(seed)
        try:
            found.append((document, shardmeter.load(document)))
        except ShardMeterError:
            continue
    assert len(found) >= 48
    return found


@pytest.fixture(scope="module")
def exports(scenarios):
    """(document, scenario, export) of what each format can say."""
    made: dict[tuple[str, str], list[Any]] = {case: [] for case in CASES}
    for name, version in CASES:
        for document, scenario in scenarios:
            try:
                made[name, version].append((document, scenario, formats()[name].write(scenario, version)))
            except Inexpressible:
                continue
    return made


def left_out(unsaid: tuple[str, ...]) -> set[str]:
    """The fields that the sentences are about. Each has to begin with one."""
    found = {re.match(r"(?:plan|run|model|stack|fleet)(?:\.\w+)*(?=:)", sentence) for sentence in unsaid}
    assert None not in found, f"a sentence that begins with no field: {unsaid}"
    return {one[0] for one in found if one is not None}


def differences(was, now, unsaid: set[str]) -> list[str]:
    """Fields of the plan and the run that two scenarios say differently, but for those that are left out."""
    found = []
    if "plan" not in unsaid:
        parts: tuple[tuple[str, Any, Any, Any], ...] = (
            ("plan", Plan, was.plan, now.plan), ("plan.sync", Sync, was.plan.sync, now.plan.sync), ("run", type(was.run), was.run, now.run),
        )  # fmt: skip
        for before, record, one, other in parts:
            fields = ("seq_len", "global_batch") if before == "run" else field_names(record)
            for field in fields:
                a, b = getattr(one, field), getattr(other, field)
                if field != "sync" and a != b and not {before, f"{before}.{field}"} & unsaid:
                    found.append(f"{before}.{field}: {a} became {b}")
    if not {"run.steps", "run.tokens", "run"} & unsaid and steps(was) != steps(now):
        found.append(f"run.steps: {steps(was)} became {steps(now)}")
    return found


def steps(scenario):
    run = scenario.run
    if run.steps is not None:
        return round(run.steps)
    return None if run.tokens is None else math.ceil(run.tokens / (run.global_batch * run.seq_len) - 1e-9)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_what_is_written_is_read_as_the_same_plan(name, version, exports):
    assert len(exports[name, version]) >= LEAST
    for document, scenario, made in exports[name, version]:
        read = formats()[name].read(made.files[0].text, made.files[0].name, version)
        again = shardmeter.load({"model": document["model"], **read.document, "fleet": document["fleet"]})
        assert differences(scenario, again, left_out(made.unsaid)) == [], made.files[0].text
        assert read.unknown == (), "our own settings are the trainer's"


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_setting_of_a_file_is_in_one_list_and_a_mistyped_one_is_told(name, version, exports):
    module = formats()[name]
    _, _, made = exports[name, version][0]
    text, file = made.files[0].text, made.files[0].name
    read = module.read(text, file, version)
    listed = [one.key for group in (read.understood, read.ignored, read.unknown) for one in group]
    assert len(listed) == len(set(listed))
    told = 0
    for setting in made.said[::2]:
        word = re.split(r"[.\s]", setting.key)[-1].lstrip("-")
        if len(word) < 6 or not re.search(rf"\b{re.escape(word)}\b", text):
            continue
        typo = word[: len(word) // 2] + word[len(word) // 2 + 1 :]
        try:
            again = module.read(re.sub(rf"\b{re.escape(word)}\b", typo, text), file, version)
        except BadScenario:
            told += 1
            continue
        assert any(typo in one.key for one in again.unknown), f"{typo} for {word}"
        told += 1
    assert told


def test_an_export_is_recognised_by_what_is_in_it(exports):
    for (name, _), made in exports.items():
        if hasattr(formats()[name], "recognises"):
            file = made[0][2].files[0]
            assert recognised(file.text, file.name) is formats()[name]
            assert recognised(file.text, f"mine.{file.name.rpartition('.')[2]}") is formats()[name]


@pytest.mark.parametrize("name", WRITING)
def test_an_export_repeats_itself_and_says_what_it_says(name, scenarios):
    module, seen = formats()[name], 0
    for _, scenario in scenarios:
        if seen == LEAST:
            break
        try:
            made = module.write(scenario, module.VERSIONS[0])
        except Inexpressible:
            continue
        seen += 1
        assert module.write(changed(scenario), module.VERSIONS[0]) == made
        assert made.format == name
        assert made.files
        assert made.launch
        assert made.said
        assert all(setting.key and setting.means for setting in made.said)
        left_out(made.unsaid)
    assert seen == LEAST


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.0, "1234567"), (5e8, "500000000"), (0.25, "0.25"), (1e300, "1e+300"), (math.inf, "inf"), (True, "true"), (["a", 2.0], "[a, 2]")],
)  # fmt: skip
def test_a_value_has_one_text_with_all_digits_of_a_whole_number(value, text):
    assert value_text(value) == text


def test_settings_stand_in_their_groups_and_every_refusal_is_told_at_once():
    found = Saying("a trainer")
    for title, key in (("model", "layers"), ("run", "steps"), ("model", "hidden")):
        found.begin(title)
        found.say(key, 4.0, "as it is")
    assert {title: [one.key for one in group] for title, group in found.groups().items()} == {
        "model": ["layers", "hidden"],
        "run": ["steps"],
    }
    found.stop()
    found.refuse("plan.tp", "3", "say 2")
    found.refuse("plan.pp", "5")
    with pytest.raises(Inexpressible, match="a trainer cannot run this plan") as refused:
        found.stop()
    assert [one.field for one in refused.value.violations] == ["plan.tp", "plan.pp"]
