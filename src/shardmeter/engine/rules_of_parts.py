"""Rules of models that are more than one stack of text layers (images, two towers, an encoder and a decoder), or a recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.engine.rules import Case, divisors, listed, near, rest
from shardmeter.families import family, given_sequence, image_tokens
from shardmeter.families.operations import Block, is_layer
from shardmeter.strategies import adapters, recompute
from shardmeter.strategies.optimizer import optimizer


def stacks(case: Case) -> list[str]:
    """The parts of the model that have layers of their own, each by its word."""
    if case.model.family == "decoder":  # the usual one needs no look at its blocks
        return [""]
    return list(dict.fromkeys(block.of for block in _blocks(case) if is_layer(block.name)))


def _blocks(case: Case) -> tuple[Block, ...]:
    found: tuple[Block, ...] = family(case.model.family).blocks(case.model)
    return found


def one_stack_slack(case: Case) -> Any:
    return 0.0 if len(stacks(case)) == 1 else 1.0 - np.asarray(case.plan.pp)


def one_stack_says(case: Case) -> tuple[str, str, str]:
    parts = " and ".join(stacks(case))
    return "plan.pp", f"pp = {case.plan.pp}, but {case.model.name} has layers of {parts}", "pp: 1, with fsdp or tp"


def cut_sequence_slack(case: Case) -> Any:
    """Images are not cut, and no part of a model that has any is; nor is what cross-attention looks at."""
    own = case.model.family in ("decoder", "encoder", RECURRENT)
    return 0.0 if own else 1.0 - np.asarray(case.plan.cp)


def cut_sequence_says(case: Case) -> tuple[str, str, str]:
    says = f"cp = {case.plan.cp:g}, but {case.model.name} is of family {case.model.family}"
    return "plan.cp", says, "cp: 1, with tp or a smaller micro_batch"


RECURRENT = "recurrent"
"""The family whose layers take a sequence step by step."""


def heads_slack(case: Case) -> Any:
    """A recurrence has no attention heads: what tp may be is said by a rule of its own."""
    return 0.0 if case.model.family == RECURRENT else rest(case.model.heads, case.plan.tp)


def recurrence_slack(case: Case) -> Any:
    """A step needs all of the state of the one before: cp would leave all ranks but one waiting, tp gather it at every step."""
    if case.model.family != RECURRENT:
        return 0.0
    return 1.0 - np.maximum(np.asarray(case.plan.cp, dtype=float), np.asarray(case.plan.tp, dtype=float))


def recurrence_says(case: Case) -> tuple[str, str, str]:
    cut = [name for name in ("tp", "cp") if getattr(case.plan, name) > 1]
    costs = {
        "tp": f"the state would be gathered {case.run.seq_len:g} times a layer",
        "cp": "each part of a sequence would wait for the one before",
    }
    given = " and ".join(f"{name} = {getattr(case.plan, name):g}" for name in cut)
    says = f"{given}, but {case.model.name} is recurrent: {', and '.join(costs[name] for name in cut)}"
    fields = ", ".join(f"plan.{name}" for name in cut)
    return fields, says, f"{', '.join(f'{name}: 1' for name in cut)}, with ddp or pp"


def image_heads_slack(case: Case) -> Any:
    tower, tp = case.model.vision, case.plan.tp
    return 0.0 if tower is None else np.minimum(rest(tower.heads, tp), rest(tower.ffn, tp))


def image_heads_says(case: Case) -> tuple[str, str, str]:
    tower = case.model.vision or case.model
    says = f"tp = {case.plan.tp:g} does not divide {tower.heads:g} heads or {tower.ffn:g} columns of {tower.name}"
    both = [d for d in divisors(tower.heads) if tower.ffn % d == 0 and case.model.heads % d == 0]
    return "plan.tp", says, f"the nearest legal tp: {listed(near(both, case.plan.tp))}"


def image_sequence_slack(case: Case) -> Any:
    tokens = image_tokens(case.model)
    if tokens is None or not case.plan.sequence_parallel:
        return 0.0
    return rest(tokens, case.plan.tp)


def image_sequence_says(case: Case) -> tuple[str, str, str]:
    says = f"an image of {case.model.name} is {image_tokens(case.model):g} tokens, no multiple of tp = {case.plan.tp:g}"
    return "plan.tp", says, "sequence_parallel: false"


def images_slack(case: Case) -> Any:
    """A model that gives its own sequence gets that one; of a multimodal one, images are a part of the text."""
    own, m = given_sequence(case.model), case.model
    if own is not None:
        return -np.abs(np.asarray(own) - case.run.seq_len)
    inside = getattr(family(m.family), "inside", None)
    return 0.0 if inside is None else np.asarray(case.run.seq_len) - inside(m)


def images_says(case: Case) -> tuple[str, str, str]:
    own, m, seq = given_sequence(case.model), case.model, case.run.seq_len
    if own is not None:
        return "run.seq_len", f"seq_len = {seq:g}, but an image of {m.name} is {own:g} tokens", f"seq_len: {own:g}"
    tokens = family(m.family).inside(m)
    says = f"seq_len = {seq:g}, but {m.images:g} images of {m.name} are {tokens:g} tokens of it"
    return "run.seq_len", says, f"seq_len of {tokens:g} or more, or fewer images"


def one_kind_slack(case: Case) -> Any:
    asks = optimizer(case.plan.optimizer).whole_matrices or bool(case.plan.offload)
    return -1.0 if asks and len(stacks(case)) > 1 else 0.0


def one_kind_says(case: Case) -> tuple[str, str, str]:
    what = f"offload {list(case.plan.offload)}" if case.plan.offload else f"optimizer {case.plan.optimizer}"
    field = "plan.offload" if case.plan.offload else "plan.optimizer"
    says = f"{what}, but {case.model.name} has layers of {' and '.join(stacks(case))}"
    return field, says, "offload: none" if case.plan.offload else "optimizer: adamw"


def idle_words(case: Case) -> list[str]:
    """Words of a list of recomputed operations that no layer of the model has; all of them where lists are not for its family."""
    words = recompute.listed(case.plan.recompute)
    if not words or case.model.family != "decoder":
        return list(words)
    labels = {
        op.label
        for block in _blocks(case) if is_layer(block.name)
        for op in family(case.model.family).operations(case.model, block.name, 1.0, 1.0, case.stack.kernels)
    }  # fmt: skip
    return [w for w in words if recompute.SPECIFIC.get(w, recompute.OPERATIONS[w][0]) not in labels]


def idle_words_says(case: Case) -> tuple[str, str, str]:
    idle, m = idle_words(case), case.model
    if m.family != "decoder":
        return "plan.recompute", f"a list of operations, but {m.name} is of family {m.family}", "recompute: full"
    others = ", ".join(word for word in recompute.listed(case.plan.recompute) if word not in idle)
    says = f"{' and '.join(idle)}, but no layer of {m.name} has such an operation"
    return "plan.recompute", says, f"recompute: [{others}]" if others else "recompute: none"


def strangers(case: Case) -> list[str]:
    """Words of `trainable` that name no part of the model; ranges of layers where layers are of several parts."""
    text = case.plan.trainable
    if text == "all" or (
        case.model.family == "decoder" and not set(adapters.trained(text).blocks) & set(adapters.PARTS)
    ):
        return []
    found, blocks = adapters.trained(text), _blocks(case)
    known = {word for block in blocks for word in block.words} | {"embedding", "layer", "head"}
    spans = [text] if found.spans and len(stacks(case)) > 1 else []
    return [word for word in found.blocks if word not in known] + spans


def trained_parts_says(case: Case) -> tuple[str, str, str]:
    parts = list(dict.fromkeys(block.of for block in _blocks(case) if block.of))
    says = f"{' and '.join(strangers(case))} of {case.model.name}, which is of family {case.model.family}"
    return "plan.trainable", says, f"{', '.join([*parts, 'embedding', 'layer', 'head'])}"
