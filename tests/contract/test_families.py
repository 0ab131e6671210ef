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
from shardmeter.core.record import changed
from shardmeter.families import family, names
from shardmeter.families.operations import FLOP_PER_MAC, is_layer
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Model
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute
from shardmeter.specs.stack import WORDS

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


@every_family
def test_parameters_are_the_sum_of_the_blocks(module: ModuleType) -> None:
    for model in of(module):
        blocks = module.blocks(model)
        assert len({block.name for block in blocks}) == len(blocks)
        assert all(block.matrices >= 0.0 and block.vectors >= 0.0 and block.experts >= 0.0 for block in blocks)
        assert module.parameters(model) == sum(block.count * block.parameters for block in blocks)
        assert sum(block.count for block in blocks if is_layer(block.name)) == model.layers + model.mtp
        assert sum(count for _, count in module.order(model)) == model.layers + model.mtp
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
def test_training_takes_six_flops_a_matmul_parameter_and_token_and_more(module: ModuleType) -> None:
    for model in of(module):
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
        assert module.training_flops(model, TOKENS, 1e-9) == pytest.approx(6.0 * products * TOKENS + between, rel=1e-6)
        longer = module.training_flops(model, TOKENS, 2.0 * SEQ)
        assert longer > flops if "f" in (model.mixers or "f") else longer >= flops


@every_family
@pytest.mark.parametrize("kernels", WORDS["kernels"])
def test_operations_do_the_flops_that_are_counted(module: ModuleType, kernels: str) -> None:
    for model in of(module):
        done = 0.0
        for block in module.blocks(model):
            for op in module.operations(model, block.name, TOKENS, SEQ, kernels):
                assert op.phase in (FORWARD, INPUT_GRAD, WEIGHT_GRAD)
                assert op.kind in ("gemm", "attention", "traffic")
                if op.kind == "gemm":
                    assert op.flops == FLOP_PER_MAC * op.m * op.n * op.k * op.repeats
                done += block.count * op.flops
        assert done == pytest.approx(module.training_flops(model, TOKENS, SEQ), rel=1e-12), model.name


@every_family
def test_each_product_runs_forward_and_twice_backward(module: ModuleType) -> None:
    for model in of(module):
        for block in module.blocks(model):
            ops = [op for op in module.operations(model, block.name, TOKENS, SEQ, "compiled") if op.kind != "traffic"]
            whole = {phase: sum(op.flops for op in ops if op.phase == phase) for phase in (FORWARD, INPUT_GRAD)}
            whole[WEIGHT_GRAD] = sum(op.flops for op in ops if op.phase == WEIGHT_GRAD)
            assert whole[INPUT_GRAD] + whole[WEIGHT_GRAD] == pytest.approx(2.0 * whole[FORWARD], rel=1e-12)


@every_family
@pytest.mark.parametrize("kernels", WORDS["kernels"])
def test_numbers_may_be_arrays(module: ModuleType, kernels: str) -> None:
    tokens, seq = np.array([1024.0, 4096.0, 5000.0]), np.array([256.0, 2048.0, 1000.0])
    for model in of(module)[::7]:
        wide = np.array([1.0, 2.0, 3.0]) * model.ffn

        def figures(ffn: Any, tokens: Any, seq: Any, model: Model = model) -> list[Any]:
            one = changed(model, ffn=ffn)
            found: list[Any] = [module.parameters(one), module.training_flops(one, tokens, seq)]
            for block in filter(lambda one: is_layer(one.name), module.blocks(one)):
                found += module.activation_bytes(one, kernels, True, seq, block.name)
            for block in module.blocks(one):
                for op in module.operations(one, block.name, tokens, seq, kernels):
                    found += [op.flops, op.traffic, op.m, op.n, op.k, op.repeats]
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
            for block in filter(lambda one: is_layer(one.name), module.blocks(model)):
                outside, inside = module.activation_bytes(model, kernels, False, SEQ, block.name)
                _, with_scores = module.activation_bytes(model, kernels, True, SEQ, block.name)
                assert outside >= 2.0 * model.hidden, "the input of the layer at least"
                assert with_scores - inside == (5.0 * model.heads * SEQ if block.attends else 0.0)
                assert inside > 0.0 or (block.routed and not model.shared_ffn)
                kept = module.linear_inputs(model, block.name)
                assert kept[0] <= outside
                assert kept[1] <= inside
