"""Models of several parts: what is frozen runs forward only, images give their sequence, towers meet over all replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.demand import BlockWork, collect
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import family
from shardmeter.scenario import load
from shardmeter.specs import Estimate, Scenario
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.strategies import contrastive


def asked(model: Any, plan: Mapping[str, Any] | None = None, **run: Any) -> Scenario:
    return load({"model": model, "gpus": "8xH100-SXM5-80GB", "plan": plan or {}, "run": run})


def works(scenario: Scenario) -> dict[str, BlockWork]:
    return collect(scenario.model, scenario.plan, scenario.run, scenario.stack).blocks


def answer(scenario: Scenario) -> Estimate:
    return evaluate(scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack)


def phases(work: BlockWork) -> set[str]:
    return {op.phase for op, _ in work.ops if op.kind == "gemm"}


def test_a_frozen_tower_runs_forward_only() -> None:
    found = works(asked("llava-1.5-7b", {"trainable": ["decoder", "projector"]}, seq_len=2048))
    for name in ("vision embedding", "vision layer"):
        assert phases(found[name]) == {FORWARD}
        assert found[name].trained == 0.0
    for name in ("projector", "layer", "head"):
        assert WEIGHT_GRAD in phases(found[name])
        assert found[name].trained == found[name].held
    assert INPUT_GRAD in phases(found["layer"])


def test_a_projector_alone_is_reached_through_a_frozen_decoder() -> None:
    found = works(asked("llava-1.5-7b", {"trainable": ["projector"]}, seq_len=2048))
    assert phases(found["layer"]) == {FORWARD, INPUT_GRAD}
    assert phases(found["vision layer"]) == {FORWARD}
    assert WEIGHT_GRAD in phases(found["projector"])
    assert [name for name, work in found.items() if work.trained] == ["projector"]


def test_each_part_that_is_frozen_saves_time_and_memory() -> None:
    words: tuple[list[str], ...] = ([], ["decoder", "projector"], ["projector"])
    found = [answer(asked("llava-1.5-7b", {"trainable": one} if one else {}, seq_len=2048)) for one in words]
    for figure in ("step_time", "memory_peak", "model_flops"):
        values = [float(getattr(one, figure)) for one in found]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == len(values)


def test_a_tower_frozen_beside_a_text_leaves_the_text_alone() -> None:
    found = works(asked("clip-vit-b-32", {"trainable": ["text"]}))
    assert phases(found["vision layer"]) == {FORWARD}
    assert phases(found["text layer"]) == {FORWARD, INPUT_GRAD, WEIGHT_GRAD}


def test_images_of_a_sample_are_the_tower_s_tokens() -> None:
    one, two = (works(asked({"base": "llava-1.5-7b", "images": n}, seq_len=2048)) for n in (1, 2))
    assert one["vision layer"].tokens == 577.0
    assert two["vision layer"].tokens == 2.0 * 577.0
    assert two["projector"].tokens == 2.0 * 576.0
    assert two["layer"].tokens == one["layer"].tokens == 2048.0


def test_a_tower_may_be_written_inline() -> None:
    tower = {"base": "clip-vit-l-14-336-tower", "image_size": 672}
    scenario = asked({"base": "llava-1.5-7b", "vision": tower}, seq_len=4096)
    assert scenario.model.vision is not None
    assert works(scenario)["projector"].tokens == 48.0**2


@pytest.mark.parametrize("seq_len", [None, 197, 224])
def test_an_image_gives_its_sequence(seq_len: int | None) -> None:
    scenario = asked("vit-base-patch16-224", None, **({} if seq_len is None else {"seq_len": seq_len}))
    assert scenario.run.seq_len == 197.0
    assert any("seq_len = 197" in one for one in scenario.assumptions)


def test_another_sequence_than_the_image_s_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadScenario) as raised:
        asked("vit-base-patch16-224", seq_len=2048)
    assert "an image of vit-base-patch16-224 is 197 tokens" in str(raised.value)
    larger = asked({"base": "vit-base-patch16-224", "image_size": 384})
    assert larger.run.seq_len == 577.0


def test_every_replica_compares_its_pairs_with_all() -> None:
    scenario = asked("clip-vit-b-32", {"sharding": "ddp", "micro_batch": 16})
    alone = changed(scenario.plan, dp_shard=1.0)
    for plan, ranks in ((scenario.plan, 8.0), (alone, 1.0)):
        forward = next(op for op in contrastive.operations(scenario.model, plan) if op.phase == FORWARD)
        assert forward.flops == 2.0 * (2.0 * 16.0 * 16.0 * ranks * 512.0), "two directions"
        assert contrastive.transfers(scenario.model, plan, 2.0)[0].size == 2.0 * 16.0 * ranks * 512.0 * 2.0
    assert contrastive.matrix(changed(scenario.model, contrast="sigmoid"), alone) == 16.0 * 16.0 * 10.0


def test_targets_are_the_decoder_s_and_sources_the_encoder_s() -> None:
    short, long = (works(asked({"base": "t5-base", "target_length": n}, seq_len=512)) for n in (114, 228))
    assert short["encoder layer"].tokens == long["encoder layer"].tokens == 512.0
    assert (short["decoder layer"].tokens, long["decoder layer"].tokens) == (114.0, 228.0)
    keys = [next(op for op, _ in one["decoder layer"].ops if op.label == "cross keys") for one in (short, long)]
    assert keys[0].m == keys[1].m == 512.0


def test_source_length_moves_cross_attention_only_through_the_run() -> None:
    model = asked("t5-base", seq_len=512).model
    module = family("encoder_decoder")
    assert module.sized(model, 512.0).source_length == 512.0
    assert answer(asked("t5-base", seq_len=512)).model_flops > answer(asked("t5-base", seq_len=256)).model_flops
