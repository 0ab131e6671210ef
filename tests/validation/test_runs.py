"""Whole training runs: each row once, rules of the mapping, hours as `predict` has them, practice factors, the bars."""

import csv
import io
import json
import math

import numpy as np
import pytest

import shardmeter
from shardmeter import data, families
from shardmeter.core.record import changed
from shardmeter.physics.practice import practice_factor
from shardmeter.render import validation
from shardmeter.scenario.catalog import catalog_of
from shardmeter.study import practice
from shardmeter.study.validate import report, shipped, validate
from shardmeter.study.validate.predictions import Predicted, predict
from shardmeter.study.validate.rows import Damaged, NotModelled, Row, Unclear
from shardmeter.study.validate.runs import account, architecture, cells, layout, mapping, software, words
from shardmeter.study.validate.runs.digest import digests
from shardmeter.study.validate.runs.report import scores

NAMED = ("llama3.1-405B", "bloom-176b", "deepseek-v3")
BASE = {
    "run_id": "some-7b", "model": "Some 7B", "org": "Some", "kind": "pretrain", "params_total": "7e9", "params_active": "7e9",
    "data_seen": "1e12", "data_unit": "tokens", "seq_len": "4096", "global_batch": "4M", "global_batch_unit": "tokens",
    "accelerator": "A100-SXM4-80GB", "n_accel": "256", "framework": "", "parallel_layout": "", "precision": "bf16",
    "accel_hours": "100000", "accel_hours_kind": "reported", "date": "2023-09", "tier": "A",
}  # fmt: skip


def row(**texts):
    return Row(line=2, cells={**BASE, **texts})


def judge(one, predictor=predict):
    return account.compare([one], catalog_of(None), predictor)[0]


def reading(**texts):
    return mapping.read(row(**texts), catalog_of(None))


@pytest.fixture(scope="module")
def judged():
    return account.compare(shipped.whole().rows, catalog_of(None), predict)


@pytest.mark.parametrize(
    ("texts", "plain"),
    [
        ({"data_seen": "1.5T"}, {"data_seen": "1500000000000"}),
        ({"data_seen": "1.5T tokens"}, {"data_seen": "1.5e12"}),
        (
            {"params_total": "8.03B", "params_active": "8.03B"},
            {"params_total": "8.03e9", "params_active": "8030000000"},
        ),
        ({"data_seen": "", "steps": "250k"}, {"data_seen": "", "steps": "250000"}),
        ({"n_accel": "1k"}, {"n_accel": "1000"}),
    ],
)
def test_amounts_are_written_as_in_a_scenario(texts, plain):
    assert reading(**texts) == reading(**plain)
    assert judge(row(accel_hours="100k")).measured == 100_000.0


@pytest.mark.parametrize(
    ("column", "text"),
    [("data_seen", "1.5Q"), ("params_total", "8B tokens"), ("n_accel", "0.5k steps"), ("n_accel", "0.0015k"), ("accel_hours", "-5k"),
     ("accel_hours", "0k"), ("steps", "lots")],
)  # fmt: skip
def test_amounts_that_are_none_are_damaged(column, text):
    with pytest.raises(Damaged) as caught:
        cells.READERS[column](row(**{column: text}), column)
    assert caught.value.column == column


def test_every_row_has_one_fate_and_a_reason(judged):
    for one in judged:
        fates = [bool(one.skip), bool(one.exclude), one.due is not None, one.steps is not None]
        assert sum(fates) == 1, one.id
    assert sum(one.steps is not None for one in judged) >= 60


def test_the_bars_of_tier_a(judged):
    rows = [one for one in scores(judged) if one.in_metrics]
    errors = np.array([abs(one.error) for one in rows])
    assert len(rows) >= 40
    assert np.median(errors) <= 0.25
    by_source = [np.median([abs(one.error) for one in rows if one.source == name]) for name in {r.source for r in rows}]
    assert np.mean(by_source) <= 0.25
    assert 0.82 <= np.mean([(one.low or math.inf) <= one.measured <= (one.high or 0.0) for one in rows]) <= 0.98


@pytest.mark.parametrize("name", NAMED)
def test_three_named_runs_come_out_within_a_fifth(judged, name):
    one = next(one for one in judged if one.id == name)
    assert abs(one.predicted / one.measured - 1.0) <= 0.20


def test_identities_hold(judged):
    found = [one for one in judged if one.due is not None]
    assert found
    for one in found:
        assert one.due == pytest.approx(one.measured, rel=account.TOLERANCE)


def test_shipped_rows_mean_what_they_meant(judged):
    with data.open_text("runs/digests.csv") as file:
        known = {line["source"]: (int(line["rows"]), line["digest"]) for line in csv.DictReader(file)}
    assert digests(judged) == known


def test_factors_are_those_of_the_shipped_rows(judged):
    seen = [
        practice.Residual(source=one.source, kind=one.practice, log=math.log(one.measured / one.steps))
        for one in judged
        if one.steps is not None and one.tier == "A"
    ]
    for (name, without), value in practice.table().items():
        assert value == pytest.approx(practice.fitted(seen, name, without)[0], abs=1e-3)
        assert practice.BOUNDS[0] <= value <= practice.BOUNDS[1]
    logs = {(one.source, one.tier): 0 for one in judged if one.steps is not None}
    assert {(source, tier) for tier, source, _ in practice.residuals()} == set(logs)


def test_a_row_is_predicted_without_its_own_source(judged):
    one = next(one for one in judged if one.id == "bloom-176b")
    assert one.predicted == one.steps * practice.table()[(one.practice, one.source)]
    assert practice.factor(one.practice, one.source) != practice.factor(one.practice)
    assert practice.factor(one.practice, "nobody: nothing") == practice.factor(one.practice)


def test_the_factor_is_shrunk_and_bounded():
    assert practice_factor(math.log(2.0), 1.0, 1.0, 1.0, 2.5) == pytest.approx(math.sqrt(2.0))
    assert practice_factor(math.log(2.0), 1e9, 1.0, 1.0, 2.5) == pytest.approx(2.0)
    assert list(np.asarray(practice_factor(np.array([-1.0, 9.0]), 5.0, 1.0, 1.0, 2.5))) == [1.0, 2.5]


def test_hours_are_those_of_predict():
    one = judge(
        row(
            parallel_layout="FSDP",
            framework="PyTorch FSDP",
            n_accel="64",
            global_batch="512",
            global_batch_unit="sequences",
        )
    )
    option = next(o for o in one.reading.legs[0].options if account.line(o) == one.plans[0])
    answer = shardmeter.predict(changed(option, run=changed(option.run, tokens=one.reading.tokens))).to_dict()
    assert one.steps == pytest.approx(answer["run"]["gpu_hours"], rel=1e-3)


def test_no_measured_number_reaches_a_prediction():
    plain = judge(row())
    told = judge(
        row(accel_hours="200000", wall_days="3", tok_s_per_accel="3000", mfu_pct="44", cost_usd="1e6", implied_6nd_mfu_pct="9",
            energy_mwh="400", co2_t="70")
    )  # fmt: skip
    assert told.steps == plain.steps
    assert told.predicted == plain.predicted


@pytest.mark.parametrize(
    ("name", "size", "found"),
    [
        ("LLaMA-33B", 32.5e9, "llama-30b"),
        ("Llama 3.1 405B", 405.85e9, "llama-3.1-405b"),
        ("DeepSeek-V3 671B-A37B", 671e9, "deepseek-v3"),
        ("OpenCLIP ViT-L/14 LAION-2B", 427.6e6, "clip-vit-l-14"),
        ("CLIP ViT-L/14@336", 427.9e6, "clip-vit-l-14"),
        ("RoBERTa (100k steps)", 355e6, "roberta-large"),
        ("GPT-2 124M (llm.c)", 124.4e6, "gpt2"),
        ("tiiuae/falcon-40b", 41.3e9, "falcon-40b"),
    ],
)
def test_names_are_read_against_the_catalog(name, size, found):
    model, _ = architecture.read_model(
        row(model=name, params_total=f"{size}", params_active=""), catalog_of(None), 2048.0, 2023.0, True
    )
    assert model.name == found


def test_a_name_counts_only_at_its_size():
    model, said = architecture.read_model(
        row(model="Llama 2 7B", params_total="3e9", params_active=""), catalog_of(None), 4096.0, 2024.0, False
    )
    assert model.name == "Llama 2 7B"
    assert "nominal" in said


@pytest.mark.parametrize("size", [30e6, 124e6, 1e9, 3e9, 7e9, 13e9, 34e9, 70e9, 130e9, 540e9])
def test_a_nominal_decoder_has_the_stated_parameters(size):
    model = architecture.nominal("x", size, 4096.0, 2024.5)
    assert float(families.parameters(model)) == pytest.approx(size, rel=0.02)
    assert model.heads % model.kv_heads == 0.0
    assert size < 4e9 or model.heads % 8 == 0.0


def test_a_nominal_mixture_has_both_counts():
    model, said = architecture.read_model(
        row(model="Some MoE", params_total="132e9", params_active="36e9", arch_notes="16 experts top-4"),
        catalog_of(None),
        4096.0,
        2024.0,
        False,
    )
    assert (model.experts, model.top_k) == (16.0, 4.0)
    assert float(families.parameters(model)) == pytest.approx(132e9, rel=0.1)
    assert float(families.active_parameters(model)) == pytest.approx(36e9, rel=0.15)
    assert "4 of 16 experts" in said


def test_a_depth_in_a_name_is_the_model():
    model, _ = architecture.read_model(
        row(model="nanochat d20", params_total="", params_active=""), catalog_of(None), 2048.0, 2025.0, False
    )
    assert (model.layers, model.hidden, model.heads) == (20, 1280.0, 10.0)


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("3.456M-4.096M", [3.456e6, 4.096e6]),
        ("4Mi -> 12Mi", [2.0**22, 12 * 2.0**20]),
        ("2,048", [2048.0]),
        ("1.5T", [1.5e12]),
        ("none", []),
    ],
)
def test_amounts_are_read_as_people_write_them(text, amounts):
    assert cells.amounts(text) == amounts


def test_sequences_in_parts():
    parts = cells.parts(row(seq_len="128 (90 %) / 512 (10 %)"))
    assert [part.seq_len for part in parts] == [128.0, 512.0]
    assert [part.share for part in parts] == pytest.approx([0.9, 0.1])
    assert [p.share for p in cells.parts(row(seq_len="2048 (1T) then 8192 (50B)"))] == [
        pytest.approx(1 / 1.05),
        pytest.approx(0.05 / 1.05),
    ]
    assert cells.parts(row(seq_len="256 image + 128 text"))[0].seq_len == 384.0
    assert cells.parts(row(seq_len="4k"))[0].seq_len == 4096.0
    assert cells.parts(row(seq_len="")) == ()
    with pytest.raises(Damaged):
        cells.parts(row(seq_len="long"))


def test_two_lengths_are_two_legs():
    found = reading(seq_len="2048 (1T) then 8192 (50B)")
    assert [leg.options[0].run.seq_len for leg in found.legs] == [2048.0, 8192.0]
    assert sum(leg.share for leg in found.legs) == pytest.approx(1.0)


def test_a_batch_has_its_unit():
    assert cells.batch(row(global_batch="2048", global_batch_unit="sequences")) == (2048.0, "sequences")
    assert cells.batch(row(global_batch="4e6", global_batch_unit="")) == (4e6, "tokens")
    assert cells.batch(row(global_batch="1152", global_batch_unit="")) == (1152.0, "sequences")
    assert cells.batch(row(global_batch="")) is None


def test_data_are_stated_or_follow_from_steps():
    assert cells.samples_or_tokens(row(data_seen="", steps="1000", global_batch="2M")) == (2e9, "tokens")
    assert cells.samples_or_tokens(row(data_seen="1e6", data_unit="image-text pairs")) == (1e6, "samples")
    for texts in ({"data_unit": "images (unique)"}, {"data_unit": "clips"}, {"data_seen": "", "steps": ""}):
        with pytest.raises(Unclear):
            cells.samples_or_tokens(row(**texts))


@pytest.mark.parametrize(
    ("text", "framework", "found"),
    [
        ("TP8 PP16 DP64/128 (FSDP), CP16 in long-context stage", "", (8.0, 16, None, "fsdp")),
        ("TP4 PP12 DP8, ZeRO-1", "Megatron-DeepSpeed", (4.0, 12, None, "zero1")),
        ("PP16 EP64 (8 nodes) ZeRO-1 DP, no TP", "HAI-LLM, DualPipe", (1.0, 16, 64.0, "zero1")),
        ("TP8, DP 96 -> 192 -> 384", "Megatron-LM", (8.0, 1, None, "")),
        ("PP + DP, ZeRO-1 (Megatron)", "", (None, None, None, "zero1")),
        ("FSDP hybrid", "", (None, None, None, "hsdp")),
        ("", "GPT-NeoX (Megatron-DeepSpeed), ZeRO-1", (None, None, None, "zero1")),
        ("", "", (None, None, None, "")),
    ],
)
def test_published_layouts(text, framework, found):
    said = layout.read_published(text, framework)
    assert (said.tp, said.pp, said.ep, said.sharding) == found


def test_published_degrees_are_kept_and_the_rest_is_what_is_left():
    plans = [one.plan for one in reading(parallel_layout="TP4 PP2", framework="Megatron-LM").legs[0].options]
    assert {(plan.tp, plan.pp, plan.dp) for plan in plans} == {(4.0, 2, 32.0)}


def test_what_a_time_had():
    """Before 2023 the Megatron lineage recomputed layers whole or not at all, and sharded no activations over the tensor axis."""
    old, new = (
        reading(framework="Megatron-LM", date=date, params_total="20e9", params_active="20e9")
        for date in ("2022-06", "2024-06")
    )
    assert {one.plan.recompute for one in old.legs[0].options} == {"none", "full"}
    assert not any(one.plan.sequence_parallel for one in old.legs[0].options)
    assert "selective" in {one.plan.recompute for one in new.legs[0].options}
    assert {one.plan.recompute for one in reading(framework="GPT-NeoX").legs[0].options} == {"full"}
    assert {one.plan.recompute for one in reading(notes="grad checkpointing; local batch 96").legs[0].options} == {
        "full"
    }


def test_a_contrast_sees_all_pairs_at_once():
    found = reading(model="OpenCLIP ViT-B/32", kind="dual-encoder", params_total="151e6", params_active="151e6", data_seen="1e9",
                    data_unit="image-text pairs", global_batch="32768", global_batch_unit="pairs", seq_len="")  # fmt: skip
    assert {one.plan.micro_batch for one in found.legs[0].options} == {128.0}
    assert {one.run.seq_len for one in found.legs[0].options} == {77.0}


@pytest.mark.parametrize(
    ("framework", "when", "accelerator", "gpus", "stack"),
    [
        ("Megatron-DeepSpeed", 2022.5, "A100-SXM4-80GB", 384.0, "mds-2022"),
        ("llm.c (CUDA), ZeRO-1", 2024.5, "A100-SXM4-80GB", 8.0, "llm-c-2024"),
        ("Composer + llm-foundry, FSDP only", 2023.3, "A100-SXM4-40GB", 440.0, "fsdp-2024"),
        ("", 2022.5, "A100-SXM4-80GB", 512.0, "mlm-2022"),
        ("", 2024.2, "H100-SXM5-80GB", None, "mcore-2024"),
        ("", 2025.2, "H100-SXM5-80GB", 1024.0, "mcore-2025"),
        ("", 2024.2, "H100-SXM5-80GB", 8.0, "fsdp-2024"),
        ("", 2023.2, "TPU v4", 1024.0, "maxtext-2024"),
    ],
)
def test_stacks_are_chosen_by_framework_time_and_size(framework, when, accelerator, gpus, stack):
    assert software.read_software(framework, when, accelerator, gpus, "decoder")[0].id == stack


def test_attention_is_that_of_its_time():
    assert software.read_software("GPT-NeoX", 2022.2, "A100", 96.0, "decoder")[0].attention == ""
    assert software.read_software("GPT-NeoX", 2023.3, "A100", 96.0, "decoder")[0].attention == "fa1"
    assert (
        software.read_software("lit-gpt + FSDP + FlashAttention-2", 2023.7, "A100", 16.0, "decoder")[0].attention
        == "fa2"
    )


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"kind": "pretrain (growing model)"}, "grows"),
        ({"kind": "pretrain (pruned + distilled)"}, "teacher"),
        ({"kind": "rl"}, "reinforcement"),
        ({"kind": "vlm"}, "catalog has no such model"),
        ({"kind": "diffusion"}, "catalog has no such model"),
        ({"kind": "pretrain (SSM)"}, "catalog has no such model"),
        ({"kind": "pretrain (enc-dec)"}, "catalog has no such model"),
        ({"kind": "sft (LoRA)"}, "adapters"),
        ({"kind": "decentralised pretrain"}, "links"),
        ({"accelerator": "TPUv3"}, "TPU v3"),
        ({"accelerator": "Ascend 910B"}, "not known"),
        ({"accelerator": "H100 / A100"}, "several kinds"),
        ({"parallel_layout": "FSDP + CPU offload"}, "hosts"),
        ({"data_unit": "samples"}, "lengths of its samples"),
        ({"parallel_layout": "TP8 PP3"}, "does not divide"),
    ],
)
def test_what_cannot_be_expressed_is_skipped(texts, reason):
    one = judge(row(**texts))
    assert reason in one.skip
    assert one.steps is None


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"accel_hours": ""}, "no accelerator-hours"),
        ({"accel_hours_kind": "upper bound (60-day access)"}, "bound"),
        ({"accel_hours_kind": "assumed (press figure)"}, "assumed"),
        ({"accel_hours_kind": "memory"}, "remembered"),
        ({"accel_hours_kind": "reported budget"}, "budget"),
        ({"accelerator": "A100-equivalent"}, "converted"),
        ({"data_seen": ""}, "amount of data"),
        ({"params_total": "", "params_active": "", "model": "Some"}, "size is not stated"),
        ({"params_active": "9e9"}, "more than"),
        ({"accel_hours": "20000"}, "faster than the device can"),
        ({"accel_hours": "1e7"}, "a project's"),
        ({"tflops_per_accel": "20"}, "contradicts itself"),
        ({"run_id": "mpt-30b"}, "estimate"),
        ({"accel_hours": "many"}, "not a number"),
    ],
)
def test_what_does_not_count_is_excluded(texts, reason):
    one = judge(row(**texts))
    assert reason in one.exclude
    assert one.steps is None


def test_just_under_a_bound_is_the_bound():
    words.check_hours('upper bound "slightly less than 3 days"')
    assert judge(row(accel_hours_kind='upper bound ("just under a month")')).steps is not None


def test_hours_from_a_rate_are_an_identity():
    one = judge(row(accel_hours_kind="derived from 711k tok/s", tok_s_per_accel="2777.8"))
    assert one.due == pytest.approx(100_000.0, rel=1e-3)


def test_hours_by_the_trillion_are_for_a_trillion():
    whole, part = judge(row()), judge(row(data_seen="8e12", accel_hours_kind="172.8K per T tokens"))
    assert part.reading.tokens == 1e12
    assert part.steps == whole.steps


def test_modules_of_two_devices():
    module = reading(accelerator="MI250X", date="2025")
    assert (module.devices, module.gpus) == (2.0, 512.0)
    assert reading(accelerator="MI250X GCD", date="2025").devices == 1.0


def test_a_silent_row_is_filled_and_says_so():
    found = reading(seq_len="", global_batch="", n_accel="", framework="", date="2022-03")
    assert (found.legs[0].options[0].run.seq_len, found.given) == (2048.0, False)
    said = " ".join(found.assumptions)
    for word in ("seq_len", "global_batch", "n_accel", "framework", "architecture"):
        assert word in said


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ((8.0, True, "decoder", "H100-SXM5-80GB", "derived"), practice.TEAM),
        ((8.0, False, "decoder", "H100-SXM5-80GB", "reported"), practice.HOPPER),
        ((512.0, True, "decoder", "A100-SXM4-80GB", "reported"), practice.AMPERE),
        ((512.0, True, "decoder", "A100-SXM4-80GB", "iteration time x steps x GPUs"), practice.STEPS),
        ((512.0, True, "dual_encoder", "A100-SXM4-80GB", "derived samples / samples_per_sec"), practice.TOWERS),
        ((2048.0, True, "decoder", "H800-SXM5", "reported 180K GPU-h per T tokens"), practice.STEPS),
    ],
)
def test_classes_are_told_before_a_run(case, name):
    assert practice.class_of(*case) == name


def test_the_least_lacking_plan_stands_where_none_fits():
    def full(options):
        return tuple(
            Predicted(step_time=1.0, allocated=1.0, first=1.0, reserved=1.0, peak=100.0 + at, limit=50.0)
            for at, _ in enumerate(options)
        )

    one = judge(row(framework="GPT-NeoX", n_accel="8"), full)
    assert "lacks" in " ".join(one.assumptions)


def test_a_file_is_answered_with_every_row(tmp_path):
    rows = [
        {**BASE, **texts}
        for texts in (
            {},
            {"run_id": "b", "tier": "B"},
            {"run_id": "c", "kind": "rl"},
            {"run_id": "d", "accel_hours": "x"},
            {},
        )
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(BASE))
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "runs.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    answer = validate(path).to_dict()
    assert (
        answer["rows"] == 5 == answer["scored"] + sum(len(answer[key]) for key in ("skipped", "excluded", "identities"))
    )
    assert answer["excluded"][1]["reason"] == "repeats line 2"
    assert answer["metrics"]["accel_hours"]["n"] == 1
    assert {"tier:A", "tier:B", "class:ampere", "kind:pretrain"} <= set(answer["by_group"])
    assert answer["damaged"][0]["column"] == "accel_hours"
    json.dumps(answer, allow_nan=False)
    assert "Whole runs" in " ".join(
        str(getattr(section, "title", "")) for section in validation.document(answer).sections
    )


def test_odd_cells_never_end_a_report():
    odd = (
        "",
        "nan",
        "inf",
        "1e400",
        "-3",
        "0",
        "TP0 PP0",
        "0 (0 %) / 0 (0 %)",
        "top-0",
        "per 0 T tokens",
        "a" * 500,
        "2025-13",
    )
    for column in (
        "model",
        "params_total",
        "arch_notes",
        "seq_len",
        "global_batch",
        "n_accel",
        "parallel_layout",
        "date",
        "accelerator",
    ):
        for text in odd:
            one = judge(row(**{column: text}), _quick)
            assert bool(one.skip) + bool(one.exclude) + (one.steps is not None) == 1


def _quick(options):
    return tuple(Predicted(step_time=1.0, allocated=1.0, first=1.0, reserved=1.0, peak=1.0, limit=2.0) for _ in options)


def test_without_a_file_whole_runs_are_among_the_rows(monkeypatch):
    """The other layouts stand still: their reports have tests of their own."""
    some = changed(shipped.whole(), rows=shipped.whole().rows[:1])
    monkeypatch.setattr(report, "_measured", lambda *_: {"rows": 0, "metrics": {}})
    monkeypatch.setattr(report, "_geo", lambda *_: {"rows": 0, "metrics": {}})
    monkeypatch.setattr(shipped, "whole", lambda: some)
    answer = validate().to_dict()
    assert (answer["rows"], answer["metrics"]["accel_hours"]["n"]) == (1, 1)


def test_words_of_kinds_and_names_agree():
    assert words.kind_of("pretrain", "T5-11B").name == "encoder-decoder"
    assert words.kind_of("pretrain (MoE)", "Some 8x7B").name == "pretrain"
    assert words.kind_of("", "Some 7B").name == "pretrain"
    with pytest.raises(NotModelled):
        words.check_kind(words.kind_of("pretrain", "Some model (distilled)"))


def test_a_group_of_two_files_keeps_the_figures_of_both(shipped_report):
    """A stack that measured steps and whole runs share has the figures of either; none takes the other's place."""
    groups, metrics = shipped_report["by_group"], shipped_report["metrics"]
    stacks = [one for name, one in groups.items() if name.startswith("stack:")]
    tiers = [one for name, one in groups.items() if name.startswith("tier:")]
    assert sum(one["step_time"]["n"] for one in stacks) >= metrics["step_time"]["n"]
    hours = sum(one["accel_hours"]["n"] for one in stacks if "accel_hours" in one)
    assert hours == sum(one["accel_hours"]["n"] for one in tiers) >= metrics["accel_hours"]["n"]
    shared = groups["stack:mcore-2024"]
    assert min(shared["step_time"]["n"], shared["accel_hours"]["n"]) > 0
    assert shared["mape"] == shared["step_time"]["mape"]
    assert len(shared["by_source"]) > 2
