"""Every family in its package: parameters, FLOPs, arrays, sources. A new file is tested without a new test."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
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
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
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
    for name in ("blocks", "parameters", "training_flops", "operations", "activation_bytes"):
        assert inspect.getdoc(getattr(module, name)), f"{name} is not documented"


@every_family
def test_parameters_are_the_sum_of_the_blocks(module: ModuleType) -> None:
    for model in of(module):
        blocks = module.blocks(model)
        assert len({block.name for block in blocks}) == len(blocks)
        assert all(block.matrices >= 0.0 and block.vectors >= 0.0 and block.experts >= 0.0 for block in blocks)
        assert module.parameters(model) == sum(block.count * block.parameters for block in blocks)
        assert sum(block.count for block in blocks if is_layer(block.name)) == model.layers
        if model.parameters is not None:
            assert module.parameters(model) == pytest.approx(model.parameters, rel=0.01), model.name


@every_family
def test_training_takes_six_flops_a_matmul_parameter_and_token_and_more(module: ModuleType) -> None:
    for model in of(module):
        # what is multiplied: every matrix but the embedding table (looked up), and the head even where it is tied
        # of routed experts those that a token is sent to, and the router that sends it
        products = sum(block.count * block.matrices for block in module.blocks(model) if block.name != "embedding")
        for block in module.blocks(model):
            if block.experts:
                products += block.count * block.experts * model.top_k / model.experts
                products += block.count * model.hidden * (model.experts + model.shared_gate)
        if model.tied:
            products += model.vocab * model.hidden
        flops = module.training_flops(model, TOKENS, SEQ)
        assert flops > 6.0 * products * TOKENS
        assert module.training_flops(model, TOKENS, 1e-9) == pytest.approx(6.0 * products * TOKENS, rel=1e-6)
        assert module.training_flops(model, TOKENS, 2.0 * SEQ) > flops


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
            found = [module.parameters(one), module.training_flops(one, tokens, seq)]
            found += module.activation_bytes(one, kernels, True, seq)
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
            outside, inside = module.activation_bytes(model, kernels, False, SEQ)
            _, with_scores = module.activation_bytes(model, kernels, True, SEQ)
            assert outside >= 2.0 * model.hidden, "the input of the layer at least"
            assert 0.0 < inside < with_scores
