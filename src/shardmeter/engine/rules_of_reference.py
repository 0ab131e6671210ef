"""Rules of a reference model: it sees the samples of the trained one, on the same ranks, cut in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardmeter.core.record import changed
from shardmeter.engine import rules, rules_of_parts
from shardmeter.engine.reference import seen
from shardmeter.engine.rules import Case

Slack = Callable[[Case], Any]
Says = Callable[[Case], tuple[str, str, str]]

CUT: tuple[tuple[Slack, Says], ...] = (
    (rules_of_parts.heads_slack, rules.tp_says("attention heads", lambda c: c.model.heads)),
    (rules.kv_slack, rules.tp_says("key-value heads, nor is it a multiple of them", lambda c: c.model.kv_heads)),
    (rules.state_slack, rules.tp_says("groups of recurrent heads", lambda c: c.model.state_groups)),
    (rules.width_slack, rules.tp_says("feed-forward columns", rules.width)),
    (rules.context_slack, rules.context_says),
    (rules_of_parts.cut_sequence_slack, rules_of_parts.cut_sequence_says),
    (rules_of_parts.image_heads_slack, rules_of_parts.image_heads_says),
    (rules_of_parts.image_sequence_slack, rules_of_parts.image_sequence_says),
    (rules_of_parts.images_slack, rules_of_parts.images_says),
    (rules.heads_of_cp_slack, rules.heads_of_cp_says),
)
"""What any model must be that this plan cuts and this run feeds."""
ROUTED: tuple[tuple[Slack, Says], ...] = (
    (rules.expert_count_slack, rules.expert_count_says),
    (lambda c: rules.rest(c.model.moe_ffn, c.plan.etp), rules.expert_width_says),
    (rules.expert_tokens_slack, rules.expert_tokens_says),
)
"""The same of routed experts; a reference without any leaves their ranks idle at nothing."""


def stages_slack(case: Case) -> Any:
    return 0.0 if case.run.reference is None else 1.0 - np.asarray(case.plan.pp)


def stages_says(case: Case) -> tuple[str, str, str]:
    says = f"pp = {case.plan.pp} with a reference model, whose forward passes are not put into a pipeline yet"
    return "plan.pp", says, "pp: 1, with fsdp or tp; or answer the reference before the run, and leave it out"


def family_slack(case: Case) -> Any:
    return 0.0 if case.run.reference is None or case.run.reference.family == case.model.family else -1.0


def family_says(case: Case) -> tuple[str, str, str]:
    other = case.run.reference or case.model
    says = f"{other.name} is of family {other.family}, {case.model.name} of {case.model.family}"
    return "run.reference", says, f"same, or a model of family {case.model.family}"


def _asked(case: Case) -> tuple[Case, tuple[tuple[Slack, Says], ...]] | None:
    """The case of the reference model, and the rules that it must keep; none where its family tells of other samples, nor where
    it is the trained model, which is asked the same."""
    model = case.run.reference
    if model is None or model is case.model or model.family != case.model.family:
        return None
    own = changed(case, model=model, run=seen(model, case.run))
    dense = isinstance(model.experts, float) and model.experts == 0.0
    return own, CUT if dense else (*CUT, *ROUTED)


def cut_slack(case: Case) -> Any:
    found = _asked(case)
    if found is None:
        return 0.0
    least: Any = 0.0
    for slack, _ in found[1]:
        least = np.minimum(least, slack(found[0]))
    return least


def cut_says(case: Case) -> tuple[str, str, str]:
    """Everything that the reference breaks, in one sentence; the field is that of the first."""
    found = _asked(case)
    if found is None:  # nothing is asked of it
        return "run.reference", "", ""
    own, asked = found
    said = [says(own) for slack, says in asked if not np.all(np.asarray(slack(own)) >= 0.0)]
    name = own.model.name
    says = "; ".join(f"reference {name}: {what}" for _, what, _ in said)
    return said[0][0], says, "; ".join(dict.fromkeys(out for _, _, out in said))
