"""Readers of training logs: every format's sample is read to the same run, and what spoils a log is found and told."""

import random
import re
from pathlib import Path

import pytest

from shardmeter import load, read_log
from shardmeter.core.errors import BadData, BadScenario, ShardMeterError, UnknownName
from shardmeter.interop import logs
from shardmeter.interop.logs import values
from shardmeter.interop.logs.observed import observed
from shardmeter.interop.logs.scenario import imported

SAMPLES = Path(__file__).parents[1] / "samples" / "logs"
STEP, TOKENS, GPUS, MIB, GIB = 2.495, 256 * 4096.0, 32.0, 2.0**20, 2.0**30
"""All samples are of one run: 256 sequences of 4096 tokens in 2.495 s on 32 accelerators, after three slow steps."""
T, G, N = TOKENS, GPUS, None
READ = {  # file: format, age, tokens of a step, accelerators, peak allocated, peak reserved
    "torchtitan.log": ("torchtitan", "2025-06 or later", T, G, N, 41.02 * GIB),
    "megatron.log": ("megatron", "2024-01 or later", T, G, 38211.9 * MIB, 41012 * MIB),
    "megatron_bridge.log": ("megatron", "Megatron-Bridge", T, G, 38211.9 * MIB, 41012 * MIB),
    "bigscience.log": ("megatron", "BigScience's fork", T, N, N, N),
    "megatron_deepspeed.log": ("megatron", "Megatron-DeepSpeed", T, N, N, N),
    "nemo.log": ("nemo", "NeMo 2", N, N, N, N),
    "nemo_bar.log": ("nemo", "NeMo 1", N, N, N, N),
    "deepspeed.log": ("deepspeed", "2022-12 or later", N, G, 38.02 * GIB, N),
    "deepspeed_breakdown.log": ("deepspeed", "2022-12 or later", N, N, 38.02 * GIB, N),
    "trainer_state.json": ("transformers-state", "5.x or late 4.x", T, N, N, N),
    "transformers.log": ("transformers", "", N, G, N, N),
    "trainer_log.jsonl": ("llama-factory", "", T, N, N, N),
    "metrics.csv": ("lightning", "", N, N, N, N),
    "wandb.csv": ("wandb", "", N, N, N, 41.02 * GIB),
    "tensorboard.csv": ("tensorboard", "", N, N, N, N),
    "composer.log": ("composer", "", T, N, N, 44.0451e9),
    "maxtext.log": ("maxtext", "2024-08 or later", T, G, N, N),
    "olmo_core.log": ("olmo-core", "", T, N, N, N),
    "nanotron.log": ("nanotron", "", 1.05e6, G, 38211.9 * MIB, 41012 * MIB),
    "llm_c.log": ("llm.c", "", N, G, N, N),
    "nanogpt.log": ("nanogpt", "", T, N, N, N),
    "nanochat.log": ("nanochat", "2026-02 or later", T, N, N, N),
    "modded_nanogpt.log": ("modded-nanogpt", "", N, N, N, N),
    "torchtune.txt": ("torchtune", "", N, N, 37 * GIB, 41.02 * GIB),
    "litgpt.log": ("litgpt", "", N, N, N, N),
    "open_clip.log": ("open_clip", "", N, G, N, N),
    "fairseq.log": ("fairseq", "", T, N, N, N),
}
LOSSLESS = ("deepspeed.log", "deepspeed_breakdown.log", "tensorboard.csv")
KNOWN = {"gpus": "32", "run.seq_len": "4096", "run.global_batch": "256"}


def text_of(name):
    return (SAMPLES / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scenario():
    plan = "fsdp,tp=4,dp_shard=8,micro_batch=4"
    return load(None, options={"model": "llama-3.2-1b", "gpus": "32xH100-SXM5-80GB", "plan": plan, "seq": "4096", "global_batch": "256"})


@pytest.mark.parametrize("name", READ)
def test_every_format_is_recognised_and_read_to_the_same_run(name):
    kind, age, tokens, gpus, allocated, reserved = READ[name]
    account = read_log(SAMPLES / name)
    assert (account.format, account.version, account.tokens_per_step, account.gpus) == (kind, age, tokens, gpus)
    assert account.peak_allocated == pytest.approx(allocated)
    assert account.peak_reserved == pytest.approx(reserved)
    timed = account if kind != "torchtune" else read_log(SAMPLES / name, known=KNOWN)
    assert timed.step_time == pytest.approx(STEP, rel=4e-3)
    assert timed.error is None or timed.error < 5e-3
    assert account.loss_last == (None if name in LOSSLESS else pytest.approx(7.4, rel=2e-3))
    assert not [said for said in account.warnings if "factor" in said]


def test_every_format_has_a_sample():
    assert {kind for kind, *_ in READ.values()} == set(logs.formats())
    assert {file.name for file in SAMPLES.iterdir()} == set(READ)


def test_a_spoilt_log_is_read_as_the_clean_one_and_says_what_was_left_out():
    clean = text_of("torchtitan.log").splitlines()
    spoilt = []
    for line in clean:
        both = f"[rank0]:\x1b[32m{line}\x1b[0m[rank1]:{line}" if " step: " in line and "tps" in line else line
        spoilt.append(both.replace("8.60000", "nan"))
    account = read_log("\ufeff" + "\r\n".join(spoilt)[:-120])
    assert account.step_time == pytest.approx(STEP, rel=4e-3)
    assert "printed by other ranks" in {one.reason for one in account.dropped}
    assert any("loss is no number" in said and "step 12" in said for said in account.warnings)


def test_lines_that_a_terminal_wrapped_are_put_together():
    wrapped = "\n".join(re.sub(r"(.{80})", r"\1\n", line) for line in text_of("megatron.log").splitlines()) + "\n"
    assert read_log(wrapped).step_time == read_log(SAMPLES / "megatron.log").step_time


def test_restarts_are_counted_and_each_has_its_warm_up():
    lines = text_of("nanogpt.log").splitlines()
    account = read_log("\n".join([*lines, *lines[6:]]) + "\n")
    assert account.restarts == 1
    assert [(one.count, one.first) for one in account.dropped if "warm-up" in one.reason] == [(10, "step 1")]
    assert account.used == 17


def test_ranks_without_labels_count_once():
    lines = text_of("maxtext.log").splitlines()
    account = read_log("\n".join(line for line in lines for _ in range(4)) + "\n")
    assert account.step_time == read_log(SAMPLES / "maxtext.log").step_time
    assert account.restarts == 0
    assert ("said more than once", 48) in {(one.reason, one.count) for one in account.dropped}


def test_a_pause_by_the_clock_is_left_out():
    account = read_log(SAMPLES / "tensorboard.csv")
    assert [(one.count, one.first) for one in account.dropped if "pause" in one.reason] == [(1, "step 11")]
    assert account.goodput == pytest.approx(15 * STEP / 68.7, abs=0.01)


@pytest.mark.parametrize(
    ("name", "pattern", "change", "told"),
    [
        ("megatron.log", r"\(ms\): ([\d.]+)", lambda x: f"(ms): {float(x) / 1e3:.4f}", "milliseconds beside seconds"),
        ("nanochat.log", r"tok/sec: ([\d,]+)", lambda x: f"tok/sec: {int(x.replace(',', '')) // 8:,}", "gradient accumulation"),
        ("nanotron.log", r"consumed_tokens: (\S+)", lambda x: f"consumed_tokens: {values.human(x) * 4:.0f}", "tp: counted once"),
        ("megatron.log", r"consumed samples: +(\d+)", lambda x: f"consumed samples: {int(x) // 4}", "grows by 64 a step"),
        ("torchtitan.log", r"memory: 41.02(GiB)", lambda _: "memory: 141.02GiB", "more than the device has"),
        ("megatron.log", r"global batch size:   (256)", lambda _: "global batch size:   128", "the head says 256"),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_told_with_what_the_factor_looks_like(name, pattern, change, told):
    text = re.sub(pattern, lambda found: change(found[1]), text_of(name))
    assert any(told in said for said in read_log(text).warnings)


def test_the_error_of_the_median_is_that_of_repeated_logs():
    rng = random.Random(5)
    medians, errors = [], []
    for _ in range(40):
        lines = [f"iter {i}: loss 3.0, time {rng.gauss(500, 10):.3f}ms, mfu 20.00%" for i in range(205)]
        account = read_log("\n".join(lines))
        medians.append(account.step_time)
        errors.append(account.error * account.step_time)
    spread = (sum((one - 0.5) ** 2 for one in medians) / len(medians)) ** 0.5
    assert 0.7 < spread / (sum(errors) / len(errors)) < 1.4


def test_what_no_format_knows_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(BadData, match="torchtitan"):
        read_log("nothing\nto see\n")
    with pytest.raises(BadData, match="cannot be read"):
        read_log(tmp_path / "none.log")
    with pytest.raises(BadData, match="is no file"):
        read_log(tmp_path)
    with pytest.raises(UnknownName, match="megatron"):
        read_log("a\nb", "megatrom")
    assert not logs.is_log("a\nb\n")


def test_the_head_is_a_scenario():
    document = imported(read_log(SAMPLES / "torchtitan.log")).document
    assert document["gpus"] == "32xH100-SXM5-80GB"
    assert document["run"] == {"global_batch": 256, "seq_len": 4096, "steps": 16}
    assert (document["plan"]["tp"], document["plan"]["dp_shard"], document["plan"]["micro_batch"]) == (4, 8, 4)


def test_a_log_is_an_observation_of_its_scenario_and_of_no_other(scenario):
    seen, account = observed(SAMPLES / "torchtitan.log", scenario)
    assert (seen.step_time, seen.error, seen.memory) == (account.step_time, account.error, None)
    rate_alone, _ = observed(SAMPLES / "torchtune.txt", scenario)
    assert rate_alone.step_time == pytest.approx(STEP, rel=4e-3)
    other = load(None, options={"model": "llama-3.2-1b", "gpus": "16xA100-SXM4-80GB", "plan": "fsdp,tp=2", "seq": "2048", "global_batch": "64"})
    with pytest.raises(BadScenario) as refused:
        observed(SAMPLES / "torchtitan.log", other)
    assert {one.field for one in refused.value.violations} >= {"gpus", "run.seq_len", "run.global_batch", "plan.tp", "accelerator"}


def test_no_text_makes_a_reader_fail():
    rng = random.Random(11)
    texts = [text_of(name) for name in READ]
    signs = ["\x00", "\r", "\n", "nan", "-", "9" * 400, "{", "}", "|", "é", "\ud800", "1e999", ":", " ", "[rank1]:", "\x1b[31m", ",,", '"']
    for _ in range(250):
        text = rng.choice(texts)[: rng.randrange(40, 1500)]
        for _ in range(rng.randrange(1, 8)):
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice(signs) + text[place + rng.randrange(3) :]
        try:
            account = read_log(text + "\n", rng.choice([None, rng.choice(sorted(logs.formats()))]))
        except ShardMeterError:
            continue
        assert account.to_dict()["format"]
