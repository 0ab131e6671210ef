"""What makes a plan structurally legal: signed constraints over (model, island, plan, run, stack), numbers or arrays.

A constraint has a slack (negative = violated, at whatever broadcast shape the numbers have) and says what is wrong when it
is. One list serves a single plan, as sentences (`violations`), and a batch, as masks (`masks`). Whether a legal plan fits
into memory is no constraint: that is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import Violation
from shardmeter.core.record import record
from shardmeter.engine import rules, rules_of_parts, rules_of_probes, rules_of_reference
from shardmeter.engine.rules import Case
from shardmeter.schedules import traits
from shardmeter.specs import Island, Model, Plan, Run, Stack


@record
class Constraint:
    """A rule: `slack` < 0 (or NaN) breaks it, `says` names the numbers and the nearest way out."""

    name: str
    rule: str
    slack: Callable[[Case], Any]
    says: Callable[[Case], tuple[str, str, str]]
    """(field, what is wrong with its numbers, way out)."""


def violations(
    model: Model, island: Island, plan: Plan, run: Run, stack: Stack, *, skip: Collection[str] = ()
) -> list[Violation]:
    """Every rule that one plan (plain numbers, no arrays) breaks, in the order of `CONSTRAINTS`; empty = legal.

    `skip` names constraints that are not asked.
    """
    case = Case(model=model, island=island, plan=plan, run=run, stack=stack)
    found: list[Violation] = []
    with np.errstate(all="ignore"):
        for constraint in CONSTRAINTS:
            if constraint.name in skip:
                continue
            if not constraint.slack(case) >= 0.0:
                field, says, way_out = constraint.says(case)
                found.append(Violation(field=field, says=says, rule=constraint.rule, way_out=way_out))
                if constraint.name == "whole":  # the other rules divide by these numbers
                    break
    return found


OF_BATCH = frozenset({"global_batch", "interleaved_rounds"})
"""Rules about the global batch, which islands share out."""
OF_STAGES = frozenset({"stages", "virtual_stages", "even_stages", "one_stack", "reference_stages"})
"""Rules about the whole pipeline, wherever its stages are."""


def violations_of_island(
    model: Model,
    island: Island,
    plan: Plan,
    run: Run,
    stack: Stack,
    *,
    whole: Plan | None = None,
    skip: Collection[str] = (),
) -> list[Violation]:
    """As `violations`, of one of several islands: the batch is not asked, which they share. `whole` is the plan with all stages
    where a pipeline crosses islands: rules about stages look at that."""
    rest = {*skip, *OF_BATCH}
    if whole is None:
        return violations(model, island, plan, run, stack, skip=rest)
    others = {constraint.name for constraint in CONSTRAINTS if constraint.name not in OF_STAGES}
    found = violations(model, island, plan, run, stack, skip=rest | OF_STAGES)
    return [*found, *violations(model, island, whole, run, stack, skip=rest | others)]


def masks(model: Model, island: Island, plan: Plan, run: Run, stack: Stack) -> dict[str, npt.NDArray[np.bool_]]:
    """Per constraint, where it holds (True = legal), at the broadcast shape of the numbers it looks at. Raises nothing."""
    return {constraint.name: mask for constraint, mask in held(model, island, plan, run, stack)}


def held(
    model: Model, island: Island, plan: Plan, run: Run, stack: Stack, *, skip: Collection[str] = ()
) -> Iterator[tuple[Constraint, npt.NDArray[np.bool_]]]:
    """As `masks`, one constraint at a time, so that who has seen enough may stop; `skip` names some that are not asked."""
    case = Case(model=model, island=island, plan=plan, run=run, stack=stack)
    for constraint in CONSTRAINTS:
        if constraint.name not in skip:
            with np.errstate(all="ignore"):
                mask = np.asarray(constraint.slack(case)) >= 0.0
            yield constraint, mask


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint(
        name="whole",
        rule="degrees and batches are positive whole numbers",
        slack=rules.whole_slack,
        says=rules.whole_says,
    ),
    Constraint(
        name="degrees",
        rule="the degrees multiply to the GPUs of the island",
        slack=lambda c: -np.abs(np.asarray(c.plan.gpus - c.island.gpus)),
        says=rules.degrees_says,
    ),
    Constraint(
        name="heads",
        rule="tp divides the attention heads",
        slack=rules_of_parts.heads_slack,
        says=rules.tp_says("attention heads", lambda c: c.model.heads),
    ),
    Constraint(
        name="kv_heads",
        rule="tp divides the key-value heads, or is a multiple of them (replicated)",
        slack=rules.kv_slack,
        says=rules.tp_says("key-value heads, nor is it a multiple of them", lambda c: c.model.kv_heads),
    ),
    Constraint(
        name="state_heads",
        rule="tp divides the heads and the groups of recurrent layers",
        slack=rules.state_slack,
        says=rules.tp_says("groups of recurrent heads", lambda c: c.model.state_groups),
    ),
    Constraint(
        name="ffn",
        rule="tp divides the feed-forward width",
        slack=rules.width_slack,
        says=rules.tp_says("feed-forward columns", rules.width),
    ),
    Constraint(name="stages", rule="every stage holds a layer", slack=rules.stages_slack, says=rules.stages_says),
    Constraint(
        name="virtual_stages",
        rule="interleaved cuts a stage into virtual ones (zb-v into two), no other schedule does",
        slack=rules.chunks_slack,
        says=rules.chunks_says,
    ),
    Constraint(
        name="ahead",
        rule="a schedule holds more micro-batches ahead if its turns leave room for them, whole ones",
        slack=rules.ahead_slack,
        says=rules.ahead_says,
    ),
    Constraint(
        name="even_stages",
        rule="two directions meet in the middle: pp is even",
        slack=lambda c: rules.rest(c.plan.pp, 2.0) if traits(c.plan.schedule).even else 0.0,
        says=rules.even_says,
    ),
    Constraint(
        name="global_batch",
        rule="every replica takes whole micro-batches",
        slack=lambda c: rules.rest(c.run.global_batch, c.per_pass),
        says=rules.batch_says,
    ),
    Constraint(
        name="interleaved_rounds",
        rule="a schedule gets the micro-batches that its turns are laid out for",
        slack=rules.rounds_slack,
        says=rules.rounds_says,
    ),
    Constraint(
        name="sequence",
        rule="the sequence is cut into equal parts",
        slack=lambda c: rules.rest(c.run.seq_len, rules.cut(c)),
        says=rules.sequence_says,
    ),
    Constraint(
        name="context", rule="learned positions end at the context", slack=rules.context_slack, says=rules.context_says
    ),
    Constraint(
        name="one_stack",
        rule="a pipeline cuts one stack of layers",
        slack=rules_of_parts.one_stack_slack,
        says=rules_of_parts.one_stack_says,
    ),
    Constraint(
        name="cut_sequence",
        rule="context parallelism cuts sequences of text",
        slack=rules_of_parts.cut_sequence_slack,
        says=rules_of_parts.cut_sequence_says,
    ),
    Constraint(
        name="recurrence",
        rule="a recurrence is cut by neither tp nor cp: its steps wait for one another",
        slack=rules_of_parts.recurrence_slack,
        says=rules_of_parts.recurrence_says,
    ),
    Constraint(
        name="image_heads",
        rule="tp divides the image tower as it divides the model",
        slack=rules_of_parts.image_heads_slack,
        says=rules_of_parts.image_heads_says,
    ),
    Constraint(
        name="image_sequence",
        rule="sequence parallelism cuts the tokens of an image into equal parts",
        slack=rules_of_parts.image_sequence_slack,
        says=rules_of_parts.image_sequence_says,
    ),
    Constraint(
        name="images",
        rule="image tokens lie inside the sequence",
        slack=rules_of_parts.images_slack,
        says=rules_of_parts.images_says,
    ),
    Constraint(
        name="one_kind",
        rule="muon and offloading take layers of one kind",
        slack=rules_of_parts.one_kind_slack,
        says=rules_of_parts.one_kind_says,
    ),
    Constraint(
        name="recomputed_operations",
        rule="a list of recomputed operations names what layers of a decoder have",
        slack=lambda c: -float(len(rules_of_parts.idle_words(c))),
        says=rules_of_parts.idle_words_says,
    ),
    Constraint(
        name="unsharded",
        rule="sharding none needs one replica",
        slack=lambda c: 1.0 - np.asarray(c.plan.dp) if c.plan.sharding == "none" else 0.0,
        says=rules.none_says,
    ),
    Constraint(name="etp", rule="etp is 1 or tp", slack=rules.etp_slack, says=rules.etp_says),
    Constraint(
        name="experts",
        rule="etp·ep divides tp·cp·dp_shard",
        slack=lambda c: rules.rest(c.plan.tp * c.plan.cp * c.plan.dp_shard, c.plan.etp * c.plan.ep),
        says=rules.expert_says,
    ),
    Constraint(
        name="expert_count", rule="ep divides the experts", slack=rules.expert_count_slack, says=rules.expert_count_says
    ),
    Constraint(
        name="expert_width",
        rule="etp divides the width of an expert",
        slack=lambda c: rules.rest(c.model.moe_ffn, c.plan.etp),
        says=rules.expert_width_says,
    ),
    Constraint(
        name="expert_tokens",
        rule="experts are sent each token once",
        slack=rules.expert_tokens_slack,
        says=rules.expert_tokens_says,
    ),
    Constraint(
        name="expert_skew",
        rule="the busiest of ep ranks has 1 to ep times the mean",
        slack=rules.skew_slack,
        says=rules.skew_says,
    ),
    Constraint(
        name="context_heads",
        rule="ulysses gives every rank whole heads",
        slack=rules.heads_of_cp_slack,
        says=rules.heads_of_cp_says,
    ),
    Constraint(
        name="precision",
        rule="the accelerator multiplies in the precision",
        slack=lambda c: -float(len(rules.lacking(c))),
        says=rules.precision_says,
    ),
    Constraint(
        name="gather_dtype",
        rule="only what is multiplied in 8 bits is gathered in 8 bits",
        slack=rules.gather_slack,
        says=rules.gather_says,
    ),
    Constraint(
        name="offload",
        rule="rates of the host are never guessed",
        slack=lambda c: -float(len(rules.missing_rates(c))),
        says=rules.offload_says,
    ),
    Constraint(
        name="offloaded_parameters",
        rule="parameters that are whole on every rank stay there",
        slack=rules.parameters_slack,
        says=rules.parameters_says,
    ),
    Constraint(
        name="async_tp",
        rule="chunks pass behind gathers and scatters, which sequence parallelism has",
        slack=rules.async_slack,
        says=rules.async_says,
    ),
    Constraint(name="trainable", rule="trained layers exist", slack=rules.trainable_slack, says=rules.trainable_says),
    Constraint(
        name="trained_parts",
        rule="what is trained is a part of the model",
        slack=lambda c: -float(len(rules_of_parts.strangers(c))),
        says=rules_of_parts.trained_parts_says,
    ),
    Constraint(
        name="adapted", rule="adapters lie beside something", slack=rules.adapted_slack, says=rules.adapted_says
    ),
    Constraint(
        name="adapter_rank",
        rule="an adapter is no wider than its matrix",
        slack=rules.rank_slack,
        says=rules.rank_says,
    ),
    Constraint(
        name="reference_stages",
        rule="a reference model runs whole on the ranks of one stage",
        slack=rules_of_reference.stages_slack,
        says=rules_of_reference.stages_says,
    ),
    Constraint(
        name="reference_family",
        rule="a reference model sees the samples of the trained one",
        slack=rules_of_reference.family_slack,
        says=rules_of_reference.family_says,
    ),
    Constraint(
        name="reference_cut",
        rule="a reference model is cut as the trained one is",
        slack=rules_of_reference.cut_slack,
        says=rules_of_reference.cut_says,
    ),
    Constraint(
        name="probed_sharding",
        rule="a step without a backward shards weights that it perturbs in place, and nothing else",
        slack=rules_of_probes.sharding_slack,
        says=rules_of_probes.sharding_says,
    ),
    Constraint(
        name="probed_offload",
        rule="a step without a backward keeps nothing that could lie on the host",
        slack=rules_of_probes.offload_slack,
        says=rules_of_probes.offload_says,
    ),
    Constraint(
        name="probed_schedule",
        rule="a pipeline without a backward only passes forward",
        slack=rules_of_probes.schedule_slack,
        says=rules_of_probes.schedule_says,
    ),
    Constraint(
        name="members",
        rule="every member of a population sees as many whole sequences",
        slack=rules_of_probes.members_slack,
        says=rules_of_probes.members_says,
    ),
)
"""Every structural rule, in the order in which violations are listed."""
