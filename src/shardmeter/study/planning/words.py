"""What there is to choose from, axis by axis, where a scenario does not say: the numbers that can divide, the words in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardmeter.core.units import Count
from shardmeter.engine.rules import Case, divisors
from shardmeter.engine.rules_of_parts import stacks
from shardmeter.families import given_sequence
from shardmeter.scenario.choices import ANY
from shardmeter.schedules import names as schedule_names
from shardmeter.schedules import traits
from shardmeter.specs import Choices, Island, Scenario, Stack
from shardmeter.specs.plan import SHARDINGS
from shardmeter.strategies.offload import KINDS
from shardmeter.strategies.optimizer import OPTIMIZERS
from shardmeter.strategies.precision import RECIPES

SHARDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torchtitan", ("none", "ddp", "fsdp")),
    ("torchtune", ("none", "ddp", "fsdp")),
    ("Megatron", ("none", "ddp", "zero1")),
    ("nanotron", ("none", "ddp", "zero1")),
    ("Aleph", ("none", "ddp", "zero1")),
    ("LLM-Foundry", ("none", "zero2", "fsdp")),
)
"""Shardings that a framework (by the beginning of its name) trains with; any other: `USUAL`. `any`, or a list, asks for more."""
USUAL = ("none", "ddp", "zero1", "zero2", "fsdp")
SCHEDULED: tuple[tuple[str, tuple[str, ...]], ...] = (("torchtitan", ("1f1b", "interleaved", "zb-v")),)
"""Pipeline schedules that a framework has beyond 1F1B and interleaved 1F1B. gpipe waits as long as 1f1b and keeps more."""
PIPELINED = ("1f1b", "interleaved")
OF_GRADIENTS = ("zero1", "zero2")
"""Shardings of gradients and optimizer state, which a step without a backward has not."""
POLICIES = ("none", "selective", "full")
CHUNKS = (2, 3, 4, 5, 6, 7, 8)
"""Virtual stages that are tried: those that divide the layers of a stage, and powers of two."""
TEXT = ("decoder", "encoder")
"""Families whose sequences context parallelism cuts."""


def shardings(stack: Stack) -> tuple[str, ...]:
    """What the software shards with."""
    return _of(stack, SHARDED, USUAL)


def schedules(stack: Stack) -> tuple[str, ...]:
    """The pipeline schedules of the software."""
    return _of(stack, SCHEDULED, PIPELINED)


def _of(stack: Stack, rows: Iterable[tuple[str, tuple[str, ...]]], otherwise: tuple[str, ...]) -> tuple[str, ...]:
    return next((words for name, words in rows if stack.framework.startswith(name)), otherwise)


NAMED = (
    "sharding",
    "schedule",
    "recompute",
    "cp_kind",
    "offload",
    "precision",
    "gather_dtype",
    "reduce_dtype",
    "optimizer",
    "master_dtype",
)
"""Fields of words."""


def pinned(choices: Choices, field: str, usual: tuple[Any, ...], everything: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """The values of a field: as asked, else the usual ones; `any` asks for everything."""
    asked = choices.plan.get(field, ())
    if ANY in asked:
        return tuple(dict.fromkeys((*usual, *everything, *(one for one in asked if one != ANY))))
    return tuple(asked) or usual


def everything(field: str, island: Island) -> tuple[Any, ...]:
    """Every word that can be modelled."""
    peak = island.accelerator.peak
    offloads = ((), ("optimizer",), ("activations",), ("optimizer", "activations"), ("optimizer", "parameters"))
    words: dict[str, tuple[Any, ...]] = {
        "sharding": SHARDINGS,
        "schedule": schedule_names(),
        "recompute": POLICIES,
        "cp_kind": ("ring", "all-gather", "ulysses"),
        "offload": tuple(one for one in offloads if set(one) <= set(KINDS)),
        "precision": tuple(word for word, one in RECIPES.items() if set(one.needs) <= set(peak)),
        "gather_dtype": ("bf16", "fp32"),
        "reduce_dtype": ("fp32", "bf16"),
        "optimizer": tuple(OPTIMIZERS),
        "master_dtype": ("fp32", "bf16"),
    }
    return words[field]


def chunk_counts(schedule: str, pp: int, layers: Count) -> tuple[int, ...]:
    """Virtual stages worth trying under a schedule: one, as many as it needs, or those that fall evenly."""
    kind = traits(schedule)
    if kind.least_chunks == 1:
        return (1,)
    if kind.most_chunks is not None:
        return (kind.least_chunks,)
    fitting = [count for count in CHUNKS if pp * count <= layers]
    return tuple(count for count in fitting if layers % (pp * count) == 0 or count in (2, 4, 8))


def stage_counts(case: Case) -> tuple[int, ...]:
    """Pipeline stages: divisors of the GPUs that leave each a layer; one where a model has more than one stack of layers."""
    if len(stacks(case)) > 1 or case.run.reference is not None:
        return (1,)
    return tuple(int(count) for count in divisors(case.island.gpus) if count <= case.slots)


def degrees(scenario: Scenario, island: Island) -> dict[str, tuple[float, ...]]:
    """Usual values of the numeric axes of one island: what divides its GPUs, and tp inside the scale-up domain, beyond which
    measured runs took longer than predicted (docs/accuracy.md)."""
    model, gpus = scenario.model, float(island.gpus)
    all_ = tuple(divisors(gpus))
    domain = float(island.tiers[0].size)
    tp = tuple(one for one in all_ if one <= domain)
    mixture = float(model.experts) > 0.0
    longest = max(float(one) for one in scenario.choices.seq_len) if scenario.choices else float(scenario.run.seq_len)
    cuts = model.family in TEXT and given_sequence(model) is None
    return {
        "tp": tp,
        "cp": tuple(one for one in all_ if one == 1.0 or (cuts and longest % (2.0 * one) == 0.0)),
        "dp_replicate": all_,
        "ep": tuple(one for one in divisors(model.experts) if one <= gpus) if mixture else (1.0,),
        "etp": tp if mixture else (1.0,),
    }
