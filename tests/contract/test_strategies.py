"""Every strategy in its package: a degree of one moves nothing, shards do the whole work, faster links are never slower.

Functions that return transfers are found by their annotation and called with arguments by name: a new file needs no new test,
only a name below for an argument that no strategy had before.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_type_hints

import numpy as np
import pytest

import shardmeter.strategies
from shardmeter.core.record import changed
from shardmeter.engine.price import prices
from shardmeter.families import family
from shardmeter.families import names as families
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Compute, Plan, Stack, Transfer
from shardmeter.specs.demands import PHASES
from shardmeter.specs.plan import AXES, EXPERT_AXES, SHARDINGS
from shardmeter.strategies import expert, pipeline, recompute, tensor

CATALOG = load_catalog()
MODEL, SHARED = CATALOG.model("llama-3.1-8b"), CATALOG.model("qwen1.5-moe-a2.7b")
COMPARED = changed(SHARED, contrast="softmax", projection=512.0)
"""A model whose loss compares the samples of a batch."""
ISLAND = build_island(
    accelerator=CATALOG.accelerator("H100-SXM5-80GB"), nodes=32.0, gpus_per_node=8.0, fabric=CATALOG.fabric("ib-ndr400")
)
STACK: Stack = CATALOG.stack("titan-compile")
ONE = Plan()
MANY = Plan(tp=4.0, pp=2, cp=2.0, dp_shard=8.0, dp_replicate=2.0, ep=16.0)
LAYER = family("decoder").blocks(MODEL)[1]
BLOCKS = tuple(
    block for model in (MODEL, SHARED, CATALOG.model("nemotron-3-nano")) for block in family("decoder").blocks(model)
)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "model": (SHARED, COMPARED), "tokens": (4096.0,), "hidden": (MODEL.hidden,), "parameters": (1e9,), "width": (2.0,),
    "gather_width": (2.0,), "reduce_width": (4.0,), "block": BLOCKS, "keep": (True, False),
    "experts": (True, False), "overlap": (True, False), "copies": ("receivers", "nodes"),
    "trained": (1e8,), "accumulate": ("usual", "last", "every"),
    "transfers": (tensor.transfers(MODEL, LAYER, 4096.0, MANY, 2.0),),
}  # fmt: skip
"""Values for every argument that strategies take, the plan apart."""
COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
FOUND = tuple(
    importlib.import_module(f"{shardmeter.strategies.__name__}.{found.name}")
    for found in pkgutil.iter_modules(shardmeter.strategies.__path__)
)
every_strategy = pytest.mark.parametrize("module", FOUND, ids=lambda module: module.__name__.rpartition(".")[2])


def emitters(module: ModuleType) -> list[Callable[..., tuple[Transfer, ...]]]:
    """The functions of a module that return transfers."""
    own = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    return [f for f in own if get_type_hints(f).get("return") == tuple[Transfer, ...]]


def calls(function: Callable[..., tuple[Transfer, ...]], plan: Plan) -> Iterator[tuple[Transfer, ...]]:
    """What a function returns under a plan, for every combination of the values of its other arguments."""
    wanted = [name for name in inspect.signature(function).parameters if name != "plan"]
    unknown = [name for name in wanted if name not in ARGUMENTS]
    assert not unknown, f"{function.__module__}.{function.__name__}: name a value for {unknown} in ARGUMENTS"
    choices: list[dict[str, Any]] = [{}]
    for name in wanted:
        choices = [one | {name: value} for one in choices for value in ARGUMENTS[name]]
    for one in choices:
        yield function(plan=plan, **one)


def variants(plan: Plan) -> Iterator[Plan]:
    """A plan under every sharding and kind of context parallelism, with and without sequence parallelism, resharding, chunks,
    few bits and whole matrices."""
    for sharding in SHARDINGS:
        for flag in (True, False):
            words = {"optimizer": "muon", "precision": "fp8"} if flag else {}
            for kind in ("ring", "all-gather", "ulysses"):
                yield changed(
                    plan, sharding=sharding, sequence_parallel=flag, reshard=flag, async_tp=flag, cp_kind=kind, **words
                )


def emitted(module: ModuleType, plan: Plan) -> list[tuple[Plan, Transfer]]:
    """All unlike transfers of a module under every variant of a plan, each with the first that emits it: a price reads only the mesh,
    which all have."""
    found = {
        repr(transfer): (variant, transfer)
        for variant in reversed(list(variants(plan)))
        for function in emitters(module)
        for transfers in calls(function, variant)
        for transfer in transfers
    }
    return list(found.values())


@every_strategy
def test_it_is_documented_and_cited(module: ModuleType) -> None:
    assert re.search(r"[A-Z][a-z]+ (19|20)\d\d", inspect.getdoc(module) or "")
    own = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    assert all(inspect.getdoc(f) for f in own if not f.__name__.startswith("_"))


@every_strategy
def test_a_degree_of_one_moves_nothing(module: ModuleType) -> None:
    for plan, transfer in emitted(module, ONE):
        charge = prices(ISLAND, STACK, plan, 2.0).transfer(transfer)
        assert (charge.seconds, charge.scale_up, charge.fabric) == (0.0, 0.0, 0.0), transfer


@every_strategy
def test_more_than_one_moves_something_if_it_emits_transfers(module: ModuleType) -> None:
    found = emitted(module, MANY)
    assert bool(found) == bool(emitters(module))
    for _, transfer in found:
        assert transfer.size > 0.0
        assert transfer.collective in COLLECTIVES
        assert transfer.phase in PHASES
        assert transfer.scope in ("layer", "micro_batch", "step")
        assert transfer.axes
        assert set(transfer.axes) <= {*AXES, *EXPERT_AXES}
    assert not found or any(
        prices(ISLAND, STACK, plan, 2.0).transfer(transfer).seconds > 0.0 for plan, transfer in found
    )


@every_strategy
def test_faster_links_are_never_slower_and_arrays_are_scalars(module: ModuleType) -> None:
    factors = np.array([1.0, 1.5, 4.0, 1e6])
    for plan, transfer in emitted(module, MANY):
        for level in range(len(ISLAND.tiers)):
            rate = ISLAND.tiers[level].bandwidth

            def charged(by: Any, level: int = level, rate: Any = rate) -> Any:
                tiers = list(ISLAND.tiers)
                tiers[level] = changed(tiers[level], bandwidth=rate * by)
                return prices(changed(ISLAND, tiers=tuple(tiers)), STACK, plan, 2.0).transfer(transfer)  # noqa: B023

            together = np.broadcast_to(charged(factors).seconds, (4,))
            assert np.all(np.diff(together) <= 0.0)
            assert [float(x) for x in together] == [float(charged(float(by)).seconds) for by in factors]


def operations() -> list[Compute]:
    """Operations of every block of every family, with and without routed experts."""
    found: list[Compute] = []
    models = tuple(map(CATALOG.model, CATALOG.names("models")))
    for name in families():
        module, own = family(name), [m for m in models if m.family == name]
        kinds = {(m.mixers, bool(m.experts), bool(m.shared_ffn), bool(m.kv_lora_rank)): m for m in own}
        for model in kinds.values():
            for block in module.blocks(model):
                found += module.operations(model, block.name, 4096.0, 2048.0, "eager")
    return found


@pytest.mark.parametrize("tp", [1.0, 2.0, 8.0, 64.0])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_shards_do_the_whole_work_together(tp: float, sequence_parallel: bool) -> None:
    plan = Plan(tp=tp, sequence_parallel=sequence_parallel)
    seen = set()
    for op in operations():
        if expert.is_routed(op):
            continue
        part = tensor.shard(op, plan)
        if op.split.startswith("tokens") and not sequence_parallel:
            assert part == op, "every rank has all tokens and the whole of a small matrix"
            continue
        if op.split == "none" and op.kind in ("gemm", "attention"):
            assert part == op, "every rank does the whole of a block that is not cut"
            continue
        seen.add(op.kind)
        assert tp * part.flops == pytest.approx(op.flops, rel=1e-12)
        if op.kind == "gemm":
            shape, whole = (one.m * one.n * one.k * one.repeats for one in (part, op))
            assert part.flops == pytest.approx(2.0 * shape, rel=1e-12), "its shape is its work"
            assert tp * shape == pytest.approx(whole, rel=1e-12)
        if op.kind == "traffic":
            cut = op.split == "heads" or (op.split == "sequence" and sequence_parallel)
            assert part.traffic == pytest.approx(op.traffic / (tp if cut else 1.0), rel=1e-12)
    assert seen == {"gemm", "attention", "traffic"}


@pytest.mark.parametrize(("tp", "etp", "ep"), [(1, 1, 1), (1, 1, 8), (4, 1, 2), (4, 4, 2), (8, 8, 60), (2, 1, 60)])
@pytest.mark.parametrize("skew", [1.0, 1.75])
def test_expert_ranks_do_the_whole_work_together(tp: float, etp: float, ep: float, skew: float) -> None:
    """However experts lie on the ranks, a tensor-parallel group does what its tokens need; the busiest rank `skew` times that."""
    plan = Plan(tp=float(tp), etp=float(etp), ep=float(ep), cp=30.0, dp_shard=8.0, expert_skew=skew)
    routed = [op for op in operations() if expert.is_routed(op)]
    assert {op.kind for op in routed} == {"gemm", "traffic"}
    for op in routed:
        part = expert.shard(op, plan)
        assert tp * part.flops == pytest.approx(skew * op.flops, rel=1e-12)
        if op.kind == "gemm":
            assert part.flops == pytest.approx(2.0 * part.m * part.n * part.k * part.repeats, rel=1e-12)
            assert part.repeats == pytest.approx(op.repeats / ep), "its own experts"
        wide = etp if op.split == "expert rows" else 1.0
        assert tp * part.traffic == pytest.approx(skew * op.traffic * wide, rel=1e-12)


def test_tensor_shards_hold_the_matrices_once_and_the_vectors_each() -> None:
    for block in family(MODEL.family).blocks(MODEL):
        for tp in (1.0, 4.0):
            held = tensor.held(block, Plan(tp=tp))
            assert tp * (held - block.vectors) == pytest.approx(block.matrices, rel=1e-12)


@pytest.mark.parametrize(("tp", "etp", "ep"), [(1, 1, 1), (4, 1, 4), (4, 4, 8)])
def test_expert_ranks_hold_the_experts_once_in_every_copy(tp: float, etp: float, ep: float) -> None:
    plan = Plan(tp=float(tp), etp=float(etp), ep=float(ep), cp=2.0, dp_shard=16.0)
    for block in family(SHARED.family).blocks(SHARED):
        held = expert.held(block, plan)
        ranks = plan.tp * plan.cp * plan.dp_shard
        assert ranks * held == pytest.approx(plan.degree("edp") * block.experts, rel=1e-12)
        assert etp * ep * plan.degree("edp") == ranks


def test_stages_are_cut_over_a_list_of_blocks() -> None:
    counts = pipeline.cut(8, 3, "even", 1.0, 1.0)
    blocks = (("layer", 4), ("moe layer", 4))
    found = pipeline.contents(counts, blocks)
    assert found == ((("layer", 3),), (("layer", 1), ("moe layer", 2)), (("moe layer", 2),))
    kinds = pipeline.stages(counts, blocks)
    assert [stage.contents for stage in kinds] == list(found)
    assert pipeline.runs(counts, kinds, blocks) == ((0, 0, 1), (1, 1, 1), (2, 2, 1))
    same = pipeline.cut(64, 8, "even", 1.0, 1.0)
    kinds = pipeline.stages(same, (("layer", 3), ("moe layer", 61)))
    assert [(stage.first, stage.count) for stage in kinds] == [(0, 1), (1, 6), (7, 1)], "alike, whatever is before them"


@pytest.mark.parametrize("rule", ["even", "edges", "cost"])
def test_stages_hold_every_layer_once(rule: str) -> None:
    for layers in (8, 24, 31, 80):
        for pp in (1, 2, 3, 8):
            counts = pipeline.cut(layers, pp, rule, 4.0, 3.0)
            assert (len(counts), sum(counts)) == (pp, layers)
            found = pipeline.stages(counts)
            assert sum(stage.count for stage in found) == pp
            assert sum(stage.count * stage.layers for stage in found) == layers
            assert sum(stage.count for stage in found if stage.embedding) == 1
            assert sum(stage.count for stage in found if stage.head) == 1
            assert counts[0] > 0, "the first stage has more to do than the table"


@pytest.mark.parametrize("rule", ["even", "edges", "cost"])
def test_a_folded_line_holds_every_layer_once_and_both_ends_on_its_first_device(rule: str) -> None:
    for layers, pp in ((22, 4), (30, 8), (32, 8), (80, 5)):
        counts = pipeline.folded(layers, pp, rule, 4.0, 3.0)
        assert (len(counts), sum(counts)) == (pp, layers)
        first, *others = pipeline.stages(counts, last=0)
        assert (first.embedding, first.head, first.count) == (True, True, 1)
        assert not any(stage.embedding or stage.head for stage in others)
        found = pipeline.runs(counts, (first, *others), last=0)
        assert sum(count for _, _, count in found) == pp


@pytest.mark.parametrize("selective", ["attention", "alternate"])
def test_replays_are_shares_of_the_forward_pass(selective: str) -> None:
    ops = tuple(operations())
    whole = sum(op.flops for op in ops if op.phase == "forward")
    done = []
    for policy in ("none", "every-4", "1-of-2", "full"):
        found = recompute.replays(ops, policy, selective)
        assert all(op.replay and op.phase == "input_grad" and 0.0 < portion <= 1.0 for op, portion in found)
        done.append(sum(op.flops * portion for op, portion in found))
    assert done == [0.0, pytest.approx(whole / 4.0), pytest.approx(whole / 2.0), pytest.approx(whole)]
    some = sum(op.flops * portion for op, portion in recompute.replays(ops, "selective", selective))
    assert 0.0 < some < whole
    assert recompute.kept("none", selective) == 1.0
    assert recompute.kept("full", selective) == 0.0
    assert recompute.kept("every-4", selective) == 0.75
    assert recompute.kept("3-of-8", selective) == 0.625


@pytest.mark.parametrize("word", recompute.OPERATIONS)
def test_every_word_of_a_list_runs_operations_again_and_frees_what_they_made(word: str) -> None:
    """In one model at least; the labels of a word are those of operations that there are."""
    again, freed = set(), 0.0
    for name in ("deepseek-v3", "nemotron-3-super", "qwen3-next-80b-a3b"):
        model = CATALOG.model(name)
        for block in family("decoder").layers(model):
            ops = family("decoder").operations(model, block.name, 4096.0, 2048.0, "eager")
            found = recompute.replays(ops, word, "attention")
            assert all(op.replay and portion == 1.0 for op, portion in found)
            assert 0.0 <= recompute.dispatched(ops, word) < 1.0
            again |= {op.label for op, _ in found}
            outside, inside, inputs = family("decoder").freed(model, "eager", block.name, (word,))
            whole = family("decoder").activation_bytes(model, "eager", False, 2048.0, block.name)
            assert 0.0 <= outside <= whole[0], block.name
            assert 0.0 <= inside <= whole[1], block.name
            assert 2.0 * inputs[0] <= outside
            assert 2.0 * inputs[1] <= inside
            freed += outside + inside
        wide, inner = family("decoder").freed_routed(model, "eager", (word,))
        assert wide <= family("decoder").routed_bytes(model, "eager")[0]
        freed += wide + inner
    assert again == set(recompute.OPERATIONS[word])
    assert (freed == 0.0) == (word == "core_attn"), "a fused kernel keeps no scores"


def test_a_list_repeats_the_collectives_that_its_operations_need() -> None:
    model, plan = CATALOG.model("deepseek-v3"), changed(MANY, sequence_parallel=True)
    block = next(one for one in family("decoder").layers(model) if one.routed)
    ops = family("decoder").operations(model, block.name, 4096.0, 2048.0, "fused")
    moved = (
        *tensor.transfers(model, block, 4096.0, plan, 2.0),
        *expert.transfers(model, block, 4096.0, plan, 2.0, False),
    )
    for policy, labels in {
        "moe_act": set(),
        "shared_experts": {"tensor gather"},
        "moe": {
            "tensor gather",
            "expert dispatch",
            "expert combine",
            "tensor gather of experts",
            "tensor scatter of experts",
        },
    }.items():
        again = recompute.replays(ops, policy, "attention")
        found = recompute.replayed_transfers(moved, again, policy, "attention")
        assert {transfer.label for transfer, _ in found} == labels
        assert all(portion == (0.5 if transfer.label == "tensor gather" else 1.0) for transfer, portion in found)
