"""Every family in its package: parameters, FLOPs, arrays, sources. A new file is tested without a new test."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import shardmeter.families
from shardmeter.core.record import changed, stacked
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import family, given_sequence, names, sized
from shardmeter.families.operations import FLOP_PER_MAC, Block, is_end, is_layer, kind
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Model
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.stack import WORDS
from shardmeter.strategies.adapters import PARTS

CATALOG = load_catalog()
VOCABULARY = "operations"
FOUND = tuple(
    importlib.import_module(f"{shardmeter.families.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shardmeter.families.__path__)
    if found.name != VOCABULARY and not found.name.startswith("_")
)
MODELS = tuple(CATALOG.model(name) for name in CATALOG.names("models"))
SOURCE = re.compile(r"\b(19|20)\d\d\b")
TOKENS, SEQ = 8192.0, 2048.0


def word(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def of(module: ModuleType) -> list[Model]:
    """Catalog models of a family."""
    return [model for model in MODELS if model.family == word(module)]


every_family = pytest.mark.parametrize("module", FOUND, ids=word)


def test_the_package_offers_its_files_by_name() -> None:
    assert names() == tuple(sorted(word(module) for module in FOUND))
    assert all(family(word(module)) is module for module in FOUND)


@every_family
def test_it_has_models_and_a_source(module: ModuleType) -> None:
    assert of(module), "a family needs a model in the catalog"
    text = inspect.getdoc(module) or ""
    assert SOURCE.search(text), "its docstring names a source with its year"
    for name in ("blocks", "order", "parameters", "training_flops", "operations", "activation_bytes", "linear_inputs"):
        assert inspect.getdoc(getattr(module, name)), f"{name} is not documented"


def sequence(block: Block, seq: float = SEQ) -> float:
    """Tokens of one sequence of a block in a run of `seq`."""
    return float(block.sequence(seq))


def tokens(block: Block, seq: float = SEQ) -> float:
    """Tokens of a block in as many samples as TOKENS are sequences of the run."""
    return TOKENS / seq * float(block.per_sample) * sequence(block, seq)


def operations(module: ModuleType, model: Model, block: Block, kernels: str, seq: float = SEQ) -> tuple[Compute, ...]:
    found: tuple[Compute, ...] = module.operations(
        sized(model, seq), block.name, tokens(block, seq), sequence(block, seq), kernels
    )
    return found


@every_family
def test_parameters_are_the_sum_of_the_blocks(module: ModuleType) -> None:
    for model in of(module):
        blocks = module.blocks(model)
        assert len({block.name for block in blocks}) == len(blocks)
        assert [block.name for block in blocks if is_end(block.name)] == ["embedding", "head"]
        assert (blocks[0].name, blocks[-1].name) == ("embedding", "head")
        assert all(block.matrices >= 0.0 and block.vectors >= 0.0 and block.experts >= 0.0 for block in blocks)
        assert module.parameters(model) == sum(block.count * block.parameters for block in blocks)
        layers = model.layers + model.encoder_layers + (model.vision.layers if model.vision else 0) + model.mtp
        assert sum(block.count for block in blocks if is_layer(block.name)) == layers
        assert sum(count for name, count in module.order(model) if is_layer(name)) == layers
        if model.parameters is not None:
            assert module.parameters(changed(model, mtp=0)) == pytest.approx(model.parameters, rel=0.01), model.name


def weights(ops: Sequence[Compute], *splits: str) -> float:
    """Elements of the matrices that operations multiply with, by how they are divided: what their weight gradients are of."""
    return sum(float(op.m * op.n * op.repeats) for op in ops if op.phase == WEIGHT_GRAD and op.split in splits)


@every_family
def test_the_matrices_of_a_block_are_those_that_it_is_multiplied_with(module: ModuleType) -> None:
    for model in of(module):
        biases = 2.0 * model.moe_ffn + model.expert_hidden if model.mlp_bias else 0.0
        for block in module.blocks(model):
            ops = module.operations(model, block.name, TOKENS, SEQ, "compiled")
            if is_layer(block.name):
                again = model.vocab * model.hidden if block.name.startswith("predicting") else 0.0
                assert weights(ops, "m", "n") - again == pytest.approx(block.matrices, rel=1e-12), (
                    model.name,
                    block.name,
                )
                assert weights(ops, "tokens k") <= block.vectors, (model.name, block.name)
            if block.routed:
                whole = block.experts - model.experts * biases
                assert weights(ops, "expert m", "expert n") == pytest.approx(whole, rel=1e-12), model.name


@every_family
def test_parts_are_told_apart_by_words(module: ModuleType) -> None:
    for model in of(module):
        blocks = module.blocks(model)
        parts = {block.of for block in blocks}
        if len(parts) == 1:
            assert all(block.before is None for block in blocks), "a model of one part goes by position"
            continue
        assert parts <= set(PARTS)
        known = {word for block in blocks for word in block.words}
        for block in blocks:
            assert block.before is not None
            assert set(block.before) <= known
        assert set(blocks[-1].before or ()) >= {block.name for block in blocks[:-1]}, "everything lies before the head"


@every_family
def test_training_takes_six_flops_a_matmul_parameter_and_token_and_more(module: ModuleType) -> None:
    for model in of(module):
        if word(module) == "decoder":
            products: Any = 0.0
            between: Any = 0.0  # of weights with tokens, of activations with one another
            for block in module.blocks(model):
                ops = module.operations(model, block.name, TOKENS, 1e-9, "compiled")
                active: Any = weights(ops, "m", "n", "tokens k")
                if block.routed:
                    active += weights(ops, "expert m", "expert n") * model.top_k / model.experts
                products += block.count * active
                between += block.count * sum(op.flops for op in ops if op.split == "batch")
            flops = module.training_flops(model, TOKENS, SEQ)
            assert flops > 6.0 * products * TOKENS
            assert module.training_flops(model, TOKENS, 1e-9) == pytest.approx(
                6.0 * products * TOKENS + between, rel=1e-6
            )
            longer = module.training_flops(model, TOKENS, 2.0 * SEQ)
            assert longer > flops if "f" in (model.mixers or "f") else longer >= flops
            continue
        # what is multiplied, by its shape: every product's k × n, once for each of its rows
        products = attention = 0.0
        for block in module.blocks(model):
            for op in operations(module, model, block, "compiled"):
                if op.phase == FORWARD and op.kind == "gemm":
                    products += block.count * op.k * op.n * op.m * op.repeats
                attention += block.count * op.flops if op.phase == FORWARD and op.kind == "attention" else 0.0
        flops = module.training_flops(model, TOKENS, SEQ)
        assert flops == pytest.approx(6.0 * products + 3.0 * attention, rel=1e-12), model.name
        assert (attention > 0.0) == any(block.attends for block in module.blocks(model) if is_layer(block.name))
        assert module.training_flops(model, 2.0 * TOKENS, SEQ) == pytest.approx(2.0 * flops, rel=1e-12)


@every_family
def test_matrices_of_layers_are_those_that_are_multiplied(module: ModuleType) -> None:
    for model in [] if word(module) == "decoder" else of(module):
        for block in module.blocks(model):
            ops = [
                op for op in operations(module, model, block, "compiled") if op.kind == "gemm" and op.phase == FORWARD
            ]
            multiplied = sum(op.k * op.n * op.repeats / op.serial for op in ops)
            if is_layer(block.name):
                assert multiplied >= block.matrices + block.experts
                assert multiplied <= block.parameters


@every_family
@pytest.mark.parametrize("kernels", WORDS["kernels"])
def test_operations_do_the_flops_that_are_counted(module: ModuleType, kernels: str) -> None:
    for model in of(module):
        done = 0.0
        for block in module.blocks(model):
            for op in operations(module, model, block, kernels):
                assert op.phase in (FORWARD, INPUT_GRAD, WEIGHT_GRAD)
                assert op.kind in ("gemm", "attention", "traffic")
                if op.kind == "gemm":
                    assert op.flops == FLOP_PER_MAC * op.m * op.n * op.k * op.repeats
                done += 3.0 * block.count * op.flops if op.phase == FORWARD else 0.0
        assert done == pytest.approx(module.training_flops(model, TOKENS, SEQ), rel=1e-12), model.name


@every_family
def test_each_product_runs_forward_and_twice_backward(module: ModuleType) -> None:
    """But for the first product of an embedding: the data itself has no gradient."""
    for model in of(module):
        for block in module.blocks(model):
            ops = [op for op in operations(module, model, block, "compiled") if op.kind != "traffic"]
            whole = {phase: sum(op.flops for op in ops if op.phase == phase) for phase in (FORWARD, INPUT_GRAD)}
            whole[WEIGHT_GRAD] = sum(op.flops for op in ops if op.phase == WEIGHT_GRAD)
            back = whole[INPUT_GRAD] + whole[WEIGHT_GRAD]
            if kind(block.name) == "embedding":
                assert whole[FORWARD] == whole[WEIGHT_GRAD]
                assert back <= 2.0 * whole[FORWARD]
            else:
                assert back == pytest.approx(2.0 * whole[FORWARD], rel=1e-12)


@every_family
@pytest.mark.parametrize("kernels", WORDS["kernels"])
def test_numbers_may_be_arrays(module: ModuleType, kernels: str) -> None:
    tokens, seq = np.array([1024.0, 4096.0, 5000.0]), np.array([256.0, 2048.0, 1000.0])
    for model in of(module)[::7]:
        wide = np.array([1.0, 2.0, 3.0])

        def figures(times: Any, tokens: Any, seq: Any, model: Model = model) -> list[Any]:
            tower = model.vision and changed(model.vision, ffn=times * model.vision.ffn)
            one = sized(changed(model, ffn=times * model.ffn, vision=tower), seq)
            found = [module.parameters(one), module.training_flops(one, tokens, seq)]
            for block in module.blocks(one):
                if not is_end(block.name):
                    found += module.activation_bytes(one, kernels, True, seq, block.name)
                for op in module.operations(one, block.name, tokens, seq, kernels):
                    found += [op.flops, op.traffic, op.m, op.n, op.k, op.repeats, op.serial, op.launches]
            return found

        together = figures(wide, tokens, seq)
        for place in range(3):
            alone = figures(float(wide[place]), float(tokens[place]), float(seq[place]))
            for whole, one in zip(together, alone, strict=True):
                assert float(np.broadcast_to(whole, (3,))[place]) == float(one)


@every_family
def test_kept_activations_are_bytes_and_scores_come_on_top(module: ModuleType) -> None:
    for model in of(module):
        for kernels in WORDS["kernels"]:
            for block in module.blocks(model):
                if is_end(block.name):
                    continue
                part, seq = block.part or model, sequence(block)
                outside, inside = module.activation_bytes(sized(model, SEQ), kernels, False, seq, block.name)
                more, with_scores = module.activation_bytes(sized(model, SEQ), kernels, True, seq, block.name)
                assert outside >= (2.0 * part.hidden if is_layer(block.name) else 0.0), "the input of a layer at least"
                assert outside == more
                if not block.attends or not is_layer(block.name):
                    assert inside == with_scores
                    continue
                assert 0.0 < inside < with_scores
                kept = module.linear_inputs(model, block.name)
                assert kept[0] <= outside
                assert kept[1] <= inside


@every_family
def test_evaluation_is_the_same_alone_and_in_a_batch(module: ModuleType) -> None:
    model = of(module)[-1]
    seq = float(given_sequence(model) or 256.0)
    if not given_sequence(model) and model.positions == "learned":
        seq = min(seq, float(model.context))
    seq = max(seq, float(getattr(module, "inside", lambda _: 0.0)(model)) + 64.0) if model.vision else seq
    scenario = load(
        {"model": model.name, "gpus": "8xH100-SXM5-80GB", "plan": "ddp,micro_batch=4",
         "run": {"seq_len": seq, "global_batch": 64}}
    )  # fmt: skip
    island, plan, stack = scenario.fleet.islands[0], scenario.plan, scenario.stack
    runs = [changed(scenario.run, global_batch=batch) for batch in (64.0, 128.0, 256.0)]
    together = evaluate(scenario.model, island, plan, stacked(runs), stack)
    for place, run in enumerate(runs):
        alone = evaluate(scenario.model, island, plan, run, stack)
        for name in ("step_time", "memory_peak", "model_flops"):
            whole = np.broadcast_to(getattr(together, name), (3,))
            assert float(whole[place]) == float(getattr(alone, name)), name
    single = changed(plan, dp_shard=1.0, sharding="none")
    one = evaluate(scenario.model, changed(island, nodes=1.0, gpus_per_node=1.0), single, runs[0], stack)
    moved = {"tensor parallel", "gradient reduction", "parameter gather", "contrastive gather", "context parallel"}
    assert all(float(np.sum(term.seconds)) == 0.0 for term in one.terms if term.label in moved), (
        "one rank moves nothing"
    )


@every_family
def test_what_is_frozen_costs_less_and_keeps_no_gradients(module: ModuleType) -> None:
    model = of(module)[-1]
    last = module.blocks(model)[-1]
    words = ["head", *([last.of] if last.of else [])]
    seq = max(
        float(given_sequence(model) or 64.0),
        float(getattr(module, "inside", lambda _: 0.0)(model)) if model.vision else 0.0,
    )
    found = {}
    for trainable in ("all", *words):
        scenario = load({"model": model.name, "gpus": "1xH100-SXM5-80GB", "plan": {"sharding": "none", "trainable": trainable},
                         "run": {"seq_len": seq}})  # fmt: skip
        found[trainable] = evaluate(
            scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack
        )
    for word in words:
        gradients = [
            next(term.size for term in one.memory if term.label == "gradients") for one in (found[word], found["all"])
        ]
        assert gradients[0] < gradients[1]
        assert found[word].step_time < found["all"].step_time
        assert found[word].model_flops < found["all"].model_flops
