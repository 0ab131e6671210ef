"""Constraints: the sentences of one plan and the masks of a batch say the same; each rule is broken by what it is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.record import changed
from shardmeter.engine.constraints import CONSTRAINTS, masks, violations
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Island, Model, Plan, Probes, Run, Stack
from shardmeter.specs.plan import SHARDINGS

CATALOG = load_catalog()
MODEL = CATALOG.model("llama-3.1-8b")
STACK = CATALOG.stack("titan-compile")
ISLAND = build_island(
    accelerator=CATALOG.accelerator("H100-SXM5-80GB"),
    nodes=8.0,
    gpus_per_node=8.0,
    fabric=CATALOG.fabric("ib-ndr400"),
)
PLAN = Plan(tp=2.0, dp_shard=32.0)
RUN = Run(seq_len=8192.0, global_batch=64.0)
BLIND = changed(PLAN, sharding="ddp", trainable="", probes=Probes(passes=2.0))
"""Of steps without a backward."""
MIXTURE = CATALOG.model("mixtral-8x7b")
IMAGES, TOWERS = CATALOG.model("vit-base-patch16-224"), CATALOG.model("clip-vit-b-32")
STEPS = CATALOG.model("soma-lstm-32")
SPAN, TALKER = CATALOG.model("t5-base"), CATALOG.model("llava-1.5-7b")
FIELDS: dict[str, Any] = {"model": MODEL, "island": ISLAND, "plan": PLAN, "run": RUN, "stack": STACK}


def broken(**more: Any) -> set[str]:
    """Names of the constraints that a case breaks, by its masks; the sentences must agree."""
    case = FIELDS | more
    names = {name for name, mask in masks(**case).items() if not mask.all()}
    rules = {c.rule: c.name for c in CONSTRAINTS}
    said = {rules[violation.rule] for violation in violations(**case)}
    assert said == ({"whole"} if "whole" in names else names)
    return names


def test_the_good_case_breaks_nothing() -> None:
    assert broken() == set()


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"plan": changed(PLAN, tp=0.5)}, "whole"),
        ({"plan": changed(PLAN, tp=0.0)}, "whole"),
        ({"plan": changed(PLAN, micro_batch=-1.0)}, "whole"),
        ({"plan": changed(PLAN, tp=float("nan"))}, "whole"),
        ({"run": changed(RUN, seq_len=0.0)}, "whole"),
        ({"plan": changed(PLAN, dp_shard=16.0)}, "degrees"),
        ({"plan": changed(PLAN, tp=64.0, dp_shard=1.0)}, "heads"),
        ({"model": changed(MODEL, kv_heads=3.0)}, "kv_heads"),
        ({"model": changed(MODEL, ffn=14337.0)}, "ffn"),
        ({"model": changed(MODEL, mixers="mf", state_heads=64.0, state_groups=1.0)}, "state_heads"),
        ({"plan": changed(PLAN, pp=64, tp=1.0, dp_shard=1.0)}, "stages"),
        ({"plan": changed(PLAN, virtual_stages=2)}, "virtual_stages"),
        ({"plan": changed(PLAN, schedule="interleaved")}, "virtual_stages"),
        ({"run": changed(RUN, global_batch=33.0)}, "global_batch"),
        (
            {"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="interleaved", virtual_stages=2),
             "run": changed(RUN, global_batch=96.0)},
            "interleaved_rounds",
        ),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="zb-v")}, "virtual_stages"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="zb-v", virtual_stages=3),
          "run": changed(RUN, global_batch=256.0)}, "virtual_stages"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="zb-h2"),
          "run": changed(RUN, global_batch=112.0)}, "interleaved_rounds"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="dualpipe"),
          "run": changed(RUN, global_batch=144.0)}, "interleaved_rounds"),
        ({"plan": changed(PLAN, pp=1, schedule="dualpipe")}, "even_stages"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule="dualpipe", ahead=1.0),
          "run": changed(RUN, global_batch=128.0)}, "ahead"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, ahead=-1.0)}, "ahead"),
        ({"plan": changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, ahead=0.5)}, "ahead"),
        ({"run": changed(RUN, seq_len=8191.0)}, "sequence"),
        ({"model": changed(MODEL, positions="learned", context=4096.0)}, "context"),
        ({"plan": changed(PLAN, recompute="moe_act")}, "recomputed_operations"),
        ({"model": TOWERS, "plan": changed(PLAN, recompute="layernorm")}, "recomputed_operations"),
        ({"plan": changed(PLAN, sharding="none")}, "unsharded"),
        ({"plan": changed(PLAN, etp=4.0)}, "etp"),
        ({"plan": changed(PLAN, ep=3.0)}, "experts"),
        ({"plan": changed(PLAN, ep=2.0)}, "expert_count"),
        ({"model": MIXTURE, "plan": changed(PLAN, ep=16.0)}, "expert_count"),
        ({"model": changed(MIXTURE, moe_ffn=14337.0), "plan": changed(PLAN, etp=2.0)}, "expert_width"),
        ({"model": MIXTURE, "plan": changed(PLAN, sequence_parallel=False)}, "expert_tokens"),
        ({"plan": changed(PLAN, cp=32.0, dp_shard=1.0, cp_kind="ulysses")}, "context_heads"),
        ({"plan": changed(PLAN, cp=2.0, dp_shard=16.0), "run": changed(RUN, seq_len=8194.0)}, "sequence"),
        ({"plan": changed(PLAN, precision="fp4")}, "precision"),
        ({"plan": changed(PLAN, gather_dtype="fp8")}, "gather_dtype"),
        ({"plan": changed(PLAN, offload=("optimizer",))}, "offload"),
        ({"plan": changed(PLAN, sharding="zero1", offload=("parameters",))}, "offloaded_parameters"),
        ({"plan": changed(PLAN, async_tp=True, sequence_parallel=False)}, "async_tp"),
        ({"plan": changed(PLAN, trainable="layer:40-99")}, "trainable"),
        ({"plan": changed(PLAN, trainable="layer:40-99+layer:0-3")}, "trainable"),
        ({"model": MIXTURE, "plan": changed(PLAN, trainable="lora(r=8,on=mlp)")}, "adapted"),
        ({"plan": changed(PLAN, trainable="lora(r=4097)")}, "adapter_rank"),
        ({"plan": changed(PLAN, expert_skew=1.5)}, "expert_skew"),
        ({"model": MIXTURE, "plan": changed(PLAN, expert_skew=1.5)}, "expert_skew"),
        ({"model": MIXTURE, "plan": changed(PLAN, ep=4.0, expert_skew=4.5)}, "expert_skew"),
        ({"model": MIXTURE, "plan": changed(PLAN, ep=4.0, expert_skew=0.5)}, "expert_skew"),
        ({"model": TOWERS, "plan": changed(PLAN, tp=1.0, pp=2), "run": changed(RUN, seq_len=77.0)}, "one_stack"),
        ({"model": SPAN, "plan": changed(PLAN, tp=1.0, pp=2)}, "one_stack"),
        ({"model": IMAGES, "plan": changed(PLAN, cp=2.0, dp_shard=16.0)}, "cut_sequence"),
        ({"model": STEPS}, "recurrence"),
        ({"model": STEPS, "plan": changed(PLAN, tp=1.0, cp=2.0)}, "recurrence"),
        ({"model": STEPS, "plan": changed(PLAN, tp=1.0, dp_shard=64.0, trainable="lora(r=8,on=qkv)")}, "adapted"),
        ({"model": changed(STEPS, mlps="-"), "plan": changed(PLAN, tp=1.0, dp_shard=64.0, trainable="lora(r=8,on=mlp)")},
         "adapted"),
        ({"model": changed(TOWERS, vision=changed(IMAGES, heads=15.0))}, "image_heads"),
        ({"model": IMAGES, "run": changed(RUN, seq_len=197.0)}, "image_sequence"),
        ({"model": TOWERS, "plan": changed(PLAN, tp=4.0, dp_shard=16.0), "run": changed(RUN, seq_len=76.0)}, "image_sequence"),
        ({"model": IMAGES}, "images"),
        ({"model": TALKER, "run": changed(RUN, seq_len=512.0)}, "images"),
        ({"model": TALKER, "plan": changed(PLAN, optimizer="muon")}, "one_kind"),
        ({"plan": changed(PLAN, trainable="projector")}, "trained_parts"),
        ({"model": TALKER, "plan": changed(PLAN, trainable="encoder")}, "trained_parts"),
        ({"model": TALKER, "plan": changed(PLAN, trainable="layer:4-7")}, "trained_parts"),
        ({"plan": changed(PLAN, tp=1.0, pp=2), "run": changed(RUN, reference=MODEL)}, "reference_stages"),
        ({"run": changed(RUN, reference=TALKER)}, "reference_family"),
        ({"run": changed(RUN, reference=changed(MODEL, heads=33.0))}, "reference_cut"),
        ({"run": changed(RUN, reference=changed(MODEL, positions="learned", context=4096.0))}, "reference_cut"),
        ({"model": MIXTURE, "plan": changed(PLAN, ep=4.0), "run": changed(RUN, reference=changed(MIXTURE, experts=6.0))},
         "reference_cut"),
        ({"model": TALKER, "run": changed(RUN, reference=changed(TALKER, images=40.0))}, "reference_cut"),
        ({"plan": changed(BLIND, sharding="zero1")}, "probed_sharding"),
        ({"plan": changed(BLIND, sharding="fsdp", probes=Probes(passes=2.0, together=2.0))}, "probed_sharding"),
        ({"plan": changed(BLIND, offload=("optimizer",))}, "probed_offload"),
        ({"plan": changed(BLIND, tp=1.0, pp=2, schedule="zb-h1")}, "probed_schedule"),
        ({"plan": changed(BLIND, probes=Probes(passes=1.0, rank=1.0, members=48.0))}, "members"),
    ],
)  # fmt: skip
def test_each_rule_is_broken_by_what_it_is_about(more: dict[str, Any], name: str) -> None:
    assert name in broken(**more)


def test_a_recurrence_says_what_each_cut_would_cost() -> None:
    cut = changed(PLAN, tp=4.0, cp=2.0, dp_shard=8.0)
    found = violations(**(FIELDS | {"model": STEPS, "plan": cut}))
    assert [one.field for one in found] == ["plan.tp, plan.cp"], "heads and sequences are not blamed beside"
    assert found[0].says == (
        "tp = 4 and cp = 2, but soma-lstm-32 is recurrent: the state would be gathered 8192 times a layer, and each part of a "
        "sequence would wait for the one before"
    )
    assert found[0].way_out == "tp: 1, cp: 1, with ddp or pp"


def test_every_rule_has_a_case_above() -> None:
    cases = test_each_rule_is_broken_by_what_it_is_about.pytestmark[0].args[1]
    assert {name for _, name in cases} == {constraint.name for constraint in CONSTRAINTS}


@pytest.mark.parametrize(
    "more",
    [
        {"plan": changed(PLAN, tp=16.0, dp_shard=4.0)},  # 8 key-value heads, replicated twice
        {"plan": changed(PLAN, sequence_parallel=False), "run": changed(RUN, seq_len=8191.0)},
        {"plan": changed(PLAN, tp=1.0, sharding="ddp", dp_shard=1.0, dp_replicate=64.0)},
        {"plan": changed(PLAN, sharding="zero2", tp=1.0, pp=2)},
        {"run": changed(RUN, reference=MODEL)},
        {"model": MIXTURE, "plan": changed(PLAN, ep=4.0), "run": changed(RUN, reference=MODEL)},  # no experts to divide
        {
            "model": IMAGES,
            "plan": changed(PLAN, tp=1.0, dp_shard=64.0),
            "run": changed(RUN, seq_len=197.0, reference=CATALOG.model("vit-small-patch32-224")),
        },  # patches of its own
        {"plan": changed(PLAN, tp=1.0, pp=32, dp_shard=2.0), "stack": changed(STACK, stage_cut="edges")},
        {"model": changed(MODEL, positions="rope", context=4096.0)},
        {"model": MIXTURE, "plan": changed(PLAN, tp=2.0, etp=2.0, ep=4.0)},
        {"model": MIXTURE, "plan": changed(PLAN, tp=2.0, etp=2.0, sequence_parallel=False)},
        {"model": CATALOG.model("qwen3-30b-a3b"), "plan": changed(PLAN, tp=4.0, dp_shard=16.0, ep=64.0)},
        {"model": changed(MIXTURE, ffn=14337.0)},  # no layer uses it
        {"plan": changed(PLAN, cp=16.0, dp_shard=2.0, cp_kind="ulysses")},
        {"plan": changed(PLAN, cp=32.0, dp_shard=1.0)},
        {"model": MIXTURE, "plan": changed(PLAN, ep=4.0, expert_skew=4.0)},
        {"model": CATALOG.model("qwen1.5-moe-a2.7b"), "plan": changed(PLAN, trainable="lora(r=8,on=mlp)")},
        {"plan": changed(PLAN, trainable="lora(r=4096)")},
    ],
)
def test_what_is_legal_is_not_refused(more: dict[str, Any]) -> None:
    assert broken(**more) == set()


def test_edges_count_as_layers_for_the_stage_cut() -> None:
    model = changed(MODEL, layers=62)
    plan = changed(PLAN, tp=1.0, pp=64, dp_shard=1.0)
    assert "stages" in broken(model=model, plan=plan)
    assert "stages" not in broken(model=model, plan=plan, stack=changed(STACK, stage_cut="edges"))


def test_a_violation_names_the_field_the_numbers_and_the_way_out() -> None:
    for violation in violations(
        MODEL, ISLAND, changed(PLAN, tp=3.0, dp_shard=5.0), changed(RUN, global_batch=7.0), STACK
    ):
        assert violation.field.startswith(("plan", "run"))
        assert any(character.isdigit() for character in violation.says)
        assert violation.rule
        assert violation.way_out


def test_a_schedule_says_its_own_rule() -> None:
    expected = {
        ("zb-h2", 1, 112.0): ("zb-h2 needs at least 2·pp = 8 micro-batches", "global_batch 128"),
        ("zb-h1", 1, 48.0): ("zb-h1 needs at least pp = 4 micro-batches", "global_batch 64"),
        ("interleaved", 2, 96.0): ("interleaved needs a multiple of pp = 4 micro-batches", "global_batch 64 and 128"),
        ("dualpipe", 1, 144.0): ("an even number of them", "global_batch 128 and 160"),
    }
    for (schedule, chunks, batch), (says, way_out) in expected.items():
        plan = changed(PLAN, tp=1.0, pp=4, dp_shard=16.0, schedule=schedule, virtual_stages=chunks)
        (found,) = violations(MODEL, ISLAND, plan, changed(RUN, global_batch=batch), STACK)
        assert says in found.says
        assert f"= {batch / 16:g}" in found.says
        assert found.way_out == way_out


def test_a_way_out_for_ep_is_one() -> None:
    for ep, etp in ((3.0, 1.0), (16.0, 2.0), (7.0, 2.0), (64.0, 1.0)):
        plan = changed(PLAN, ep=ep, etp=etp)
        found = violations(MIXTURE, ISLAND, plan, RUN, STACK)
        assert found
        for violation in found:
            for number in violation.way_out.rpartition(": ")[2].split(" and "):
                assert violations(MIXTURE, ISLAND, changed(plan, ep=float(number)), RUN, STACK) == []


@pytest.mark.parametrize("cp", [1.0, 2.0])
def test_a_tp_that_is_wrong_is_said_once(cp: float) -> None:
    plan = changed(PLAN, tp=64.0 / cp, cp=cp, dp_shard=1.0, cp_kind="ulysses")
    model = changed(MODEL, heads=48.0, kv_heads=1.0)
    assert [found.field for found in violations(model, ISLAND, plan, changed(RUN, global_batch=1.0), STACK)] == [
        "plan.tp"
    ]


def test_skipped_rules_are_not_asked() -> None:
    assert violations(MODEL, ISLAND, changed(PLAN, dp_shard=16.0), RUN, STACK, skip=("degrees",)) == []


DEGREES = st.sampled_from([1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 0.0, 2.5, -1.0])


@st.composite
def structures(draw: st.DrawFn) -> tuple[Model, Island, Plan, Stack]:
    """What is named, and what sets the length of an axis."""
    plan = Plan(
        pp=draw(st.sampled_from([1, 2, 4, 40])),
        virtual_stages=draw(st.sampled_from([1, 2])),
        sharding=draw(st.sampled_from(SHARDINGS)),
        schedule=draw(st.sampled_from(["1f1b", "interleaved", "gpipe", "zb-h2", "zb-v", "dualpipe"])),
        precision=draw(st.sampled_from(["bf16", "fp4"])),
        sequence_parallel=draw(st.booleans()),
        cp_kind=draw(st.sampled_from(["ring", "ulysses"])),
    )
    model = changed(
        draw(st.sampled_from([MODEL, MIXTURE])), positions=draw(st.sampled_from(["rope", "learned"])), context=4096.0
    )
    return model, ISLAND, plan, changed(STACK, stage_cut=draw(st.sampled_from(["even", "edges"])))


@given(
    structures(),
    st.lists(
        st.fixed_dictionaries(
            dict.fromkeys(("tp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "micro_batch"), DEGREES)
            | {
                "seq_len": st.sampled_from([2048.0, 8191.0, 8192.0]),
                "global_batch": st.sampled_from([32.0, 63.0, 96.0]),
            }
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_masks_of_a_batch_are_those_of_its_points(
    named: tuple[Model, Island, Plan, Stack], points: list[dict[str, float]]
) -> None:
    model, island, plan, stack = named
    columns: dict[str, Any] = {name: np.array([point[name] for point in points]) for name in points[0]}

    def case(values: dict[str, Any]) -> dict[str, Any]:
        own = {name: value for name, value in values.items() if name not in ("seq_len", "global_batch")}
        run = Run(seq_len=values["seq_len"], global_batch=values["global_batch"])
        return {"model": model, "island": island, "plan": changed(plan, **own), "run": run, "stack": stack}

    batch = masks(**case(columns))
    rules = {c.rule: c.name for c in CONSTRAINTS}
    for position, point in enumerate(points):
        single = masks(**case(point))
        for name, mask in batch.items():
            assert np.broadcast_to(mask, len(points))[position] == single[name], name
        said = {rules[violation.rule] for violation in violations(**case(point))}
        wrong = {name for name, mask in single.items() if not mask}
        assert said == ({"whole"} if "whole" in wrong else wrong)
