"""Pipeline parallelism: how blocks are cut into stages, and what neighbours send (Huang 2019; Narayanan 2021 §2.2).

`pp` is an int: it sets the length of the stage axis. Equal stages are kept once with their multiplicity.
"""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count
from shardmeter.specs.demands import FORWARD, Transfer
from shardmeter.specs.plan import Plan


@record
class Stage:
    """Stages of equal content: `first` is the position of the earliest of `count` of them."""

    first: int
    count: int
    layers: int
    embedding: bool
    head: bool
    contents: tuple[tuple[str, int], ...] = ()
    """Blocks of layers in order, each with how many pieces of it."""


def cut(layers: int, pp: int, rule: str, layer_cost: float, head_cost: float) -> tuple[int, ...]:
    """Layers of each stage. even: equal, the remainder to the earliest; edges: embedding and head count as one layer each;
    cost: walk the blocks and close a stage with the one whose running cost reaches its share (head last, embedding free), as
    nanotron does; where its code asks for more than the share, the memory of measured runs shows ties closed."""
    if rule == "edges" and pp > 1:
        total = even(layers + 2, pp)
        return tuple(n - (i == 0) - (i == pp - 1) for i, n in enumerate(total))
    if rule == "cost" and pp > 1:
        whole = layers * layer_cost + head_cost
        stage_of, here = [], 0
        for i in range(layers):
            stage_of.append(here)
            here += (i + 1) * layer_cost >= whole * (here + 1) / pp * (1.0 - 1e-12)
        return tuple(stage_of.count(s) for s in range(pp))
    return even(layers, pp)


def even(layers: int, pp: int) -> tuple[int, ...]:
    """`layers` over `pp` stages, the remainder one each to the earliest."""
    base, rest = divmod(layers, pp)
    return tuple(base + (i < rest) for i in range(pp))


def folded(layers: int, pp: int, rule: str, layer_cost: float, head_cost: float) -> tuple[int, ...]:
    """Layers of each device where the line of stages is folded in two: 2·pp chunks, the first and the last on the first
    device (Qi 2024 §6). Leaves out: the unequal halves of a device, which kinds of layers the two halves are of."""
    chunks = cut(layers, 2 * pp, rule, layer_cost, head_cost)
    return tuple(chunks[i] + chunks[-1 - i] for i in range(pp))


def side_by_side(plan: Plan) -> Count:
    """Pipelines that wait for none of one another before the step ends: all replicas but those that gather sharded parameters
    together, reduce gradients after every micro-batch, or send each other's tokens to experts. Leaves out: software that reduces
    after every micro-batch without need."""
    if plan.sharding == "zero2":
        return 1.0
    if plan.sharding in ("zero3", "fsdp"):
        return plan.dp_replicate
    order = [axis for axis in plan.rank_order if axis in ("tp", "cp", "dp_shard")]
    return plan.dp / plan.spans("ep")[order.index("dp_shard")][0]


Blocks = tuple[tuple[str, int], ...]
"""Blocks in order, each with how many pieces of it."""


def contents(counts: tuple[int, ...], blocks: Blocks = ()) -> tuple[Blocks, ...]:
    """What each stage holds if `blocks` (all of them layers, unless said) are dealt out in order, `counts` to each stage.

    A name may come in several runs: a stage holds each of its kinds once, in order of their first in the model, so that stages
    of one content are equal wherever in the pattern they begin."""
    ends, before = [], 0
    for name, pieces in blocks or (("layer", plain_sum(counts)),):
        ends.append((name, before, before + pieces))
        before += pieces
    dealt: list[Blocks] = []
    start = 0
    for wanted in counts:
        own = dict.fromkeys((name for name, _, _ in ends), 0)
        for name, begin, end in ends:
            own[name] += max(min(end, start + wanted) - max(begin, start), 0)
        dealt.append(tuple((name, pieces) for name, pieces in own.items() if pieces > 0))
        start += wanted
    return tuple(dealt)


def stages(counts: tuple[int, ...], blocks: Blocks = (), last: int | None = None) -> tuple[Stage, ...]:
    """Group equal stages, in order of their first appearance. The head is on the device `last`: the last, if not said."""
    last = len(counts) - 1 if last is None else last
    kinds: dict[tuple[Blocks, bool, bool], list[int]] = {}
    for position, own in enumerate(contents(counts, blocks)):
        kinds.setdefault((own, position == 0, position == last), []).append(position)
    return tuple(
        Stage(
            first=places[0], count=len(places), layers=counts[places[0]], embedding=first, head=final, contents=own
        )
        for (own, first, final), places in kinds.items()
    )  # fmt: skip


def runs(
    counts: tuple[int, ...], kinds: tuple[Stage, ...], blocks: Blocks = (), last: int | None = None
) -> tuple[tuple[int, int, int], ...]:
    """Neighbouring equal stages, in order of position: (index into `kinds`, first position, how many)."""
    last = len(counts) - 1 if last is None else last
    index = {(kind.contents, kind.embedding, kind.head): i for i, kind in enumerate(kinds)}
    found: list[tuple[int, int, int]] = []
    for position, own in enumerate(contents(counts, blocks)):
        kind = index[own, position == 0, position == last]
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1], found[-1][2] + 1)
        else:
            found.append((kind, position, 1))
    return tuple(found)


def send(tokens: Count, hidden: Count, plan: Plan, width: Bytes, cut: bool) -> Transfer:
    """Activations of one micro-batch to the next stage (or gradients back). Each tensor-parallel rank sends its part of the
    sequence under SP, or where the stack cuts what it sends (Narayanan 2021 §4.1); else every rank sends all of it.

    Leaves out: putting the parts together again inside the node."""
    size = tokens * hidden * width
    if plan.sequence_parallel or cut:
        size = size / plan.tp
    return Transfer(label="stage send", collective="send", size=size, axes=("pp",), phase=FORWARD, scope="micro_batch")
