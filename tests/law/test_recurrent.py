"""Recurrent models: counts from the equations of an LSTM, and the time of steps that wait for one another."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shardmeter import BadScenario
from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.inference.servers import CACHE
from shardmeter.engine.price import KERNEL_START
from shardmeter.families import family
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Model, Plan, Run, Stack
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.serving import Serving
from shardmeter.strategies import adapters, optimizer
from shardmeter.study.infer import infer

CATALOG = load_catalog()
RECURRENT = family("recurrent")
SOMA = CATALOG.model("soma-lstm-32")
CLASSICAL = changed(SOMA, name="classical", mlps="-", attention_bias=True, norms_per_layer=0.0, tied=True)
ISLAND = build_island(
    accelerator=CATALOG.accelerator("RTX 5090"), nodes=1.0, gpus_per_node=1.0, fabric=CATALOG.fabric("ethernet-25g-tcp")
)
EAGER, COMPILED = CATALOG.stack("titan-eager"), CATALOG.stack("titan-compile")
FUSED = changed(COMPILED, kernels="fused")
ALONE = Plan(sharding="none", micro_batch=64.0)
FORWARD_ONLY = changed(ALONE, trainable=adapters.NOTHING)


def estimate(model: Model, stack: Stack = COMPILED, plan: Plan = ALONE, seq: Any = 1024.0) -> Any:
    return evaluate(model, ISLAND, plan, Run(seq_len=seq, global_batch=plan.micro_batch), stack)


def busy(found: Any) -> Any:
    """Seconds of the step without what every step has once."""
    return sum(term.seconds for term in found.terms if term.label not in ("software", "optimizer"))


def wide(hidden: float) -> Model:
    return changed(SOMA, hidden=hidden, ffn=4.0 * hidden, head_dim=hidden)


def counted(model: Model) -> int:
    """Parameters by the equations: i, f, o = σ(W·x + U·h + b), g = tanh(W·x + U·h + b); c = f·c + i·g; h = o·tanh(c)."""
    hidden, total = int(model.hidden), int(model.vocab * model.hidden)
    for place in range(model.layers):
        for _gate in ("input", "forget", "output", "candidate"):
            total += hidden * hidden + hidden * hidden + (hidden if model.attention_bias else 0)
        mlp = (model.mlps or "d")[place % len(model.mlps or "d")] == "d"
        total += (2 * hidden * int(model.ffn) if mlp else 0) + int(model.norms_per_layer) // 2 * (1 + mlp) * 2 * hidden
    return total + (0 if model.tied else int(model.vocab) * hidden)


@pytest.mark.parametrize("model", [SOMA, CLASSICAL, wide(414.0), changed(SOMA, mlps="d", layers=3)])
def test_parameters_are_those_of_the_equations(model: Model) -> None:
    assert RECURRENT.parameters(model) == counted(model)


def test_the_experts_have_the_published_parameters_and_operations() -> None:
    """8.44M in 256 experts, in 8, in 2 and in one, the frozen embedding apart; 81.9k operations a byte of the smallest: twice its
    matrices, the embedding's among them."""
    for name, experts in (("soma-lstm-32", 256), ("soma-lstm-204", 8), ("soma-lstm-414", 2), ("soma-lstm-588", 1)):
        model = CATALOG.model(name)
        own = RECURRENT.parameters(model) - model.vocab * model.hidden
        assert own * experts == pytest.approx(8.44e6, rel=3e-3), name
    matrices = sum(block.count * block.matrices for block in RECURRENT.blocks(SOMA))
    assert 2.0 * matrices == 81_920.0
    assert RECURRENT.training_flops(SOMA, 1.0, 1024.0) / 3.0 == 2.0 * (matrices - 8192.0) == 65_536.0


@pytest.mark.parametrize("kernels", ["eager", "compiled", "fused"])
def test_a_layer_takes_the_steps_of_a_sequence_one_after_the_other(kernels: str) -> None:
    ops = RECURRENT.operations(SOMA, "lstm layer", 64.0 * 1024.0, 1024.0, kernels)
    steps = {op.phase: op for op in ops if op.label == "recurrence"}
    for phase in (FORWARD, INPUT_GRAD):
        assert (steps[phase].m, steps[phase].serial, steps[phase].repeats) == (64.0, 1024.0, 1024.0)
    assert (steps[WEIGHT_GRAD].k, steps[WEIGHT_GRAD].serial) == (64.0 * 1024.0, 1.0)
    whole = [op.m for op in ops if op.label == "gate projection" and op.phase == FORWARD]
    assert whole == [64.0 if kernels == "eager" else 64.0 * 1024.0]
    launched = {
        phase: sum(op.launches for op in ops if (op.phase == FORWARD) == (phase == FORWARD))
        for phase in (FORWARD, INPUT_GRAD)
    }
    assert launched == {
        "eager": {FORWARD: 3.0 * 1024.0, INPUT_GRAD: 7.0 * 1024.0},
        "compiled": {FORWARD: 2.0 * 1024.0, INPUT_GRAD: 2.0 * 1024.0},
        "fused": {FORWARD: 0.0, INPUT_GRAD: 0.0},
    }[kernels]  # fmt: skip


@pytest.mark.parametrize("stack", [EAGER, COMPILED, FUSED], ids=lambda one: one.kernels)
@pytest.mark.parametrize("hidden", [32.0, 204.0, 588.0])
def test_a_step_is_never_shorter_than_its_launches_and_its_starts(stack: Stack, hidden: float) -> None:
    model, seq = wide(hidden), 1024.0
    ops = [
        op for block in ("lstm layer", "lstm mlp layer")
        for op in RECURRENT.operations(model, block, 64.0 * seq, seq, stack.kernels) if op.phase == FORWARD
    ]  # fmt: skip
    found = busy(estimate(model, stack, FORWARD_ONLY))
    assert found >= sum(op.launches for op in ops) * stack.launch_time
    assert found >= sum(op.serial for op in ops if op.serial > 1.0) * KERNEL_START
    free = busy(estimate(model, changed(stack, launch_overhead=0.0), FORWARD_ONLY))
    assert free < found


@pytest.mark.parametrize("stack", [EAGER, COMPILED, FUSED], ids=lambda one: one.kernels)
def test_a_longer_sequence_costs_in_proportion(stack: Stack) -> None:
    seqs = np.array([1024.0, 2048.0, 4096.0])
    times = busy(estimate(SOMA, stack, seq=seqs))
    assert times[1:] / times[:-1] == pytest.approx([2.0, 2.0], rel=0.04), "launches that a layer has once apart"
    for place, seq in enumerate(seqs):
        assert float(busy(estimate(SOMA, stack, seq=float(seq)))) == float(times[place])


def test_documents_packed_into_a_sequence_shorten_no_recurrence() -> None:
    run = Run(seq_len=1024.0, global_batch=64.0)
    whole, packed = (evaluate(SOMA, ISLAND, ALONE, one, COMPILED) for one in (run, changed(run, document_len=128.0)))
    assert float(packed.step_time) == float(whole.step_time)


@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp32"])
@pytest.mark.parametrize("stack", [EAGER, COMPILED, FUSED], ids=lambda one: one.kernels)
def test_wider_models_reach_more_of_the_device(stack: Stack, precision: str) -> None:
    rates = []
    for hidden in (32.0, 64.0, 190.0, 380.0, 588.0, 1024.0):
        model = wide(hidden)
        forward = RECURRENT.training_flops(model, 64.0 * 1024.0, 1024.0) / 3.0
        rates.append(forward / busy(estimate(model, stack, changed(FORWARD_ONLY, precision=precision))))
    assert all(after > before for before, after in pairwise(rates))
    assert rates[0] < 0.01 * ISLAND.accelerator.peak[precision] < rates[-1] * 10.0


def test_more_sequences_side_by_side_are_nearly_free_where_launches_set_the_pace() -> None:
    one, many = (busy(estimate(SOMA, COMPILED, changed(FORWARD_ONLY, micro_batch=size))) for size in (8.0, 256.0))
    assert one <= many < 1.2 * one


def test_one_kernel_is_faster_than_two_a_step_and_these_than_a_loop() -> None:
    fused, compiled, eager = (
        busy(estimate(SOMA, changed(one, launch_overhead=5e-6))) for one in (FUSED, COMPILED, EAGER)
    )
    assert fused < compiled < eager


def test_adapters_and_orthogonalisation_count_a_matrix_once_however_often_it_is_asked() -> None:
    for kernels in ("eager", "compiled"):
        ops = RECURRENT.operations(SOMA, "lstm layer", 64.0 * 1024.0, 1024.0, kernels)
        assert adapters.adapter_parameters(ops, "lora(r=4)", 1.0) == 2.0 * 4.0 * (32.0 + 128.0)
        turned = optimizer.orthogonalisation(ops, Plan(optimizer="muon"))
        assert sum(op.flops for op in turned) == 2.0 * 5.0 * 2.0 * (2.0 * 32.0 * 32.0 * 128.0 + 32.0**3)


def test_recomputing_a_layer_steps_through_it_again() -> None:
    plain, again = (estimate(SOMA, plan=changed(ALONE, recompute=policy)) for policy in ("none", "full"))
    steps = 2.0 * 2.0 * 1024.0 * COMPILED.launch_time
    assert float(again.step_time - plain.step_time) >= 0.9 * steps


def test_an_inline_model_needs_no_heads_and_no_width_that_it_does_not_use() -> None:
    said = {"family": "recurrent", "layers": 2, "hidden": 64, "vocab": 256, "mlps": "-"}
    found = load({"model": said, "gpus": "1xH100-SXM5-80GB", "plan": "none", "run": {"seq_len": 512}}).model
    assert (found.heads, found.kv_heads, found.head_dim) == (1.0, 1.0, 64.0)
    with pytest.raises(BadScenario, match="a model of family recurrent has LSTM layers"):
        load({"model": said | {"mixers": "m"}, "gpus": "1xH100-SXM5-80GB", "plan": "none"})


def test_four_bytes_are_twice_two_in_memory_and_the_loss_is_what_it_was() -> None:
    model, run, stack = CATALOG.model("gpt2"), Run(seq_len=1024.0, global_batch=8.0), COMPILED
    plans = [Plan(sharding="none", micro_batch=8.0, precision=word) for word in ("bf16", "fp32", "tf32")]
    half, whole, rounded = (evaluate(model, ISLAND, plan, run, stack) for plan in plans)
    size = {
        one: {term.label: float(term.size) for term in found.memory}
        for one, found in (("half", half), ("whole", whole))
    }
    assert size["whole"]["activations"] == pytest.approx(2.0 * size["half"]["activations"], rel=1e-12)
    assert size["whole"]["parameters"] == 2.0 * size["half"]["parameters"]
    assert size["whole"]["optimizer state"] < size["half"]["optimizer state"], "the parameters are the master"
    assert half.step_time < rounded.step_time <= whole.step_time


def test_parameters_in_four_bytes_are_gathered_in_four() -> None:
    asked = {"model": "gpt2", "gpus": "8xH100-SXM5-80GB", "plan": {"precision": "tf32"}, "run": {"seq_len": 1024}}
    found = load(asked)
    assert found.plan.gather_dtype == "fp32"
    assert "gather_dtype fp32 (of precision tf32)" in found.assumptions


def test_a_model_that_is_served_keeps_its_two_states_however_long_it_writes() -> None:
    asked = {"model": "soma-lstm-414", "gpus": "1xRTX 5090", "plan": "none", "run": {"seq_len": 1024}}
    short, long = (
        infer(load(asked), Serving(how="local", prompt=size, output=size, batch=8, in_flight=8))
        for size in (64.0, 4096.0)
    )
    kept = [
        sum(float(term.size) for term in one.served.hosts[0].memory if term.label == CACHE) for one in (short, long)
    ]
    assert kept[0] == kept[1] == 2.0 * 414.0 * 8.0 * (2.0 + 4.0), (
        "two layers, 8 sequences, a state of 16 bits and one of 32"
    )
    assert long.served.token_time == pytest.approx(short.served.token_time, rel=1e-12)
