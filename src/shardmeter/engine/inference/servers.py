"""One island as a server: what a forward pass over some tokens takes of one piece of every block, and what it keeps in memory.

*demand* and *price* are those of training with nothing trained: a pass over one token of each sequence is a micro-batch of sequences
of one token. Decoding adds what it reads again of the tokens before, and reads no expert that no token has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shardmeter.core.formula import under
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, BytesPerS, Count, Seconds
from shardmeter.engine import add, demand
from shardmeter.engine.constraints import CONSTRAINTS, violations_of_island
from shardmeter.engine.demand import BlockWork
from shardmeter.engine.layer import Ledger, piece
from shardmeter.engine.price import KERNEL_START, Prices, prices
from shardmeter.families import family
from shardmeter.physics import decoding
from shardmeter.specs import Island, MemoryTerm, Model, Plan, Run, Stack
from shardmeter.specs.demands import FORWARD, Compute, Transfer
from shardmeter.strategies import adapters, precision

CACHE = "key-value cache"
LOGIT = 4.0
"""Bytes of a logit or of a probability: fp32."""
KEPT = 4.0
"""Tensors as wide as the model that lie in memory while a layer runs: its input, its normed copy, what attention gives, the sum."""
CUTS = frozenset({"heads", "kv_heads", "state_heads", "ffn", "etp", "expert_width", "recurrence"})
"""Rules that the degree of tensor parallelism must keep."""


@record
class Share:
    """What a host holds of the model."""

    embedding: bool
    layers: tuple[tuple[str, int], ...]
    """Blocks of layers, each with how many pieces of it."""
    head: bool

    @property
    def count(self) -> int:
        """Layers of all kinds."""
        return plain_sum(count for _, count in self.layers)

    @property
    def contents(self) -> tuple[tuple[str, int], ...]:
        """All blocks, each with how many pieces of it."""
        return (("embedding", int(self.embedding)), *self.layers, ("head", int(self.head)))


@dataclass(frozen=True, slots=True)
class Server:
    """An island with the model, its layout and its software. Ledgers and demands are kept once they were asked for."""

    island: Island
    model: Model
    plan: Plan
    stack: Stack
    price: Prices
    ledgers: dict[tuple[float, float, float, bool, float], dict[str, Ledger]] = field(default_factory=dict)
    demands: dict[str, BlockWork] = field(default_factory=dict)

    @property
    def copies(self) -> Count:
        """Groups of tensor parallelism on the island: each serves by itself."""
        return np.floor(self.island.gpus / self.plan.tp)

    @property
    def bandwidth(self) -> BytesPerS:
        """Of one accelerator's memory, as streaming kernels reach it."""
        return self.price.bandwidth

    def blocks(self) -> dict[str, BlockWork]:
        """One piece of every block, one token of one sequence."""
        if not self.demands:
            self.demands.update(_demands(self, 1.0, 1.0, 1.0))
        return self.demands

    def passed(
        self, batch: Count, tokens: Count, attended: Count, *, seen_whole: bool = False, beside: float = 1.0
    ) -> dict[str, Ledger]:
        """Seconds by label of one piece of every block, for `tokens` tokens of each of `batch` sequences, which attend as those of
        `attended` tokens do on average; `seen_whole`: every token sees all of them. Of so many models `beside` one another, each
        with that many sequences: products of one shape are one kernel."""
        key = float(batch), float(tokens), float(attended), seen_whole, beside
        if key not in self.ledgers:
            works = _demands(self, batch, tokens, attended)
            self.ledgers[key] = {
                name: dict(self._piece(work, batch * tokens, seen_whole, beside)) for name, work in works.items()
            }
        return self.ledgers[key]

    def _piece(self, work: BlockWork, tokens: Count, seen_whole: bool, beside: float) -> Ledger:
        return piece(_served(self.model, work, tokens, seen_whole, beside), self.price, self.stack).ledgers[FORWARD]

    def decoded(self, share: Share, batch: Count, seen: Count, beside: float = 1.0) -> Ledger:
        """Seconds by label to write one token of each of `batch` sequences, `seen` tokens being there already; `beside` as above."""
        total = held(share, self.passed(batch, 1.0, 1.0, beside=beside))
        with under(CACHE):
            total[CACHE] = self.price.streamed(beside * self.cache(share, batch, seen))
        return total

    def cache(self, share: Share, batch: Count, seen: Count) -> Bytes:
        """Bytes that one rank keeps of `batch` sequences of `seen` tokens."""
        total: Bytes = 0.0
        ranks = np.minimum(self.plan.tp, np.maximum(self.model.kv_heads, 1.0))
        for name, count in share.layers:
            cut, whole = family(self.model.family).cached(self.model, name, seen)
            total = total + float(count) * decoding.cache_traffic(cut, whole, batch, ranks, self.price.width)
        return total

    def weights(self, share: Share) -> Bytes:
        """Bytes of the parameters that one rank holds."""
        works = self.blocks()
        counts = (float(count) * (works[name].held + works[name].experts) for name, count in share.contents)
        total: Bytes = add.folded(counts) * self.price.width
        if self.model.tied and share.head and not share.embedding:
            total = total + works["embedding"].held * self.price.width
        return total

    def memory(
        self, share: Share, kept: Bytes, rows: Count, answers: Count, models: Count = 1.0
    ) -> tuple[tuple[MemoryTerm, ...], Bytes]:
        """Terms and their sum on one rank that holds `share` of each of so many `models`, has `kept` bytes of caches, works on
        `rows` tokens at a time and writes `answers` of them at once."""
        m, width, tp = self.model, self.price.width, self.plan.tp
        wide = np.maximum(m.ffn, m.top_k * m.moe_ffn) * (2.0 if m.mlp == "gated" else 1.0)
        weights = models * self.weights(share)
        work = rows * width * (KEPT * m.hidden + wide / tp)
        logits = answers * m.vocab / tp * LOGIT if share.head else 0.0
        allocated = weights + kept + work + logits
        terms = (
            MemoryTerm(label="weights", size=weights, exactness="exact"),
            MemoryTerm(label=CACHE, size=kept, exactness="exact"),
            MemoryTerm(label="activations", size=work, exactness="modelled"),
            MemoryTerm(label="logits", size=logits, exactness="modelled"),
            MemoryTerm(label="fragmentation", size=self.stack.fragmentation * allocated, exactness="estimated"),
            MemoryTerm(label="context", size=self.stack.context, exactness="estimated"),
        )
        return terms, add.memory_total(terms)

    def mixed(self, members: Count, batch: Count) -> Seconds:
        """Seconds to mix the distributions of an ensemble and draw a token of each of `batch` sequences."""
        return self.price.streamed(decoding.mixing_traffic(members, batch, self.model.vocab, LOGIT))


def held(share: Share, ledgers: dict[str, Ledger], head: dict[str, Ledger] | None = None) -> Ledger:
    """Seconds by label of all that a host holds, at the ledgers of single pieces; the head at ledgers of its own, if given."""
    total: Ledger = {}
    for name, count in share.contents:
        own = head if head is not None and name == "head" else ledgers
        if count:
            add.merged(total, own[name], float(count))
    return total


def _demands(server: Server, batch: Count, tokens: Count, attended: Count) -> dict[str, BlockWork]:
    plan = changed(server.plan, micro_batch=batch)
    run = Run(seq_len=tokens, document_len=attended, global_batch=batch)
    return demand.collect(server.model, plan, run, server.stack).blocks


def _served(model: Model, work: BlockWork, tokens: Count, seen_whole: bool, beside: float) -> BlockWork:
    """The same piece of so many models where only chosen experts are read, and attention sees all tokens if asked for."""
    ops = tuple((_times(_read(model, op, tokens), beside), part) for op, part in work.ops if op.phase == FORWARD)
    if seen_whole:
        ops = tuple((changed(op, repeats=1.0) if op.kind == "attention" else op, part) for op, part in ops)
    serial = tuple((_sums(one, beside), part) for one, part in work.serial if one.phase == FORWARD)
    behind = tuple((_sums(one, beside), *rest) for one, *rest in work.behind if one.phase == FORWARD)
    return changed(work, ops=ops, serial=serial, behind=behind)


def _times(op: Compute, beside: float) -> Compute:
    """An operation of so many models as one kernel."""
    if op.kind == "gemm":
        return changed(op, repeats=op.repeats * beside, flops=op.flops * beside)
    return changed(op, flops=op.flops * beside, n=op.n * beside, traffic=op.traffic * beside)


def _sums(one: Transfer, beside: float) -> Transfer:
    return changed(one, size=one.size * beside)


def _read(model: Model, op: Compute, tokens: Count) -> Compute:
    if op.kind != "gemm" or not op.split.startswith("expert"):
        return op
    touched = decoding.experts_touched(model.experts, model.top_k, tokens) / model.experts
    return changed(op, m=op.m / touched, repeats=op.repeats * touched)


def as_served(stack: Stack, *, eager: bool) -> Stack:
    """The software where decoding is captured as graphs: a kernel costs its start on the device, nobody waits for the host, and
    small sums over tensor parallelism are read from all ranks at once, as TensorRT-LLM and vLLM do. `eager`: every kernel is
    launched as in training."""
    if eager:
        return stack
    return changed(
        stack, launch_overhead=np.minimum(stack.launch_time, KERNEL_START), step_graphs=False, dispatch_wait=0.0,
        collectives=tuple(dict.fromkeys((*stack.collectives, "direct"))),
    )  # fmt: skip


def server(model: Model, island: Island, tp: float, stack: Stack, word: str, *, eager: bool = False) -> Server:
    """An island that serves `model` in groups of `tp` accelerators, in the number format of the activations of recipe `word`."""
    recipe = precision.recipe(word)
    plan = Plan(
        tp=tp, etp=tp, sharding="none", sequence_parallel=False, trainable=adapters.NOTHING, precision=recipe.base,
    )  # fmt: skip
    stack = as_served(stack, eager=eager)
    return Server(
        island=island, model=changed(model, mtp=0), plan=plan, stack=stack,
        price=prices(island, stack, plan, recipe.width, recipe.base),
    )  # fmt: skip


def degree(model: Model, island: Island, stack: Stack, wanted: float) -> float:
    """The degree of tensor parallelism of a group: `wanted` if that is more than 1, else the largest inside a node that the model's
    heads and widths allow."""
    if wanted > 1.0:
        return wanted
    most = int(min(float(island.gpus_per_node), float(island.gpus)))
    for tp in range(most, 1, -1):
        if most % tp == 0 and not bad_degree(model, island, stack, float(tp)):
            return float(tp)
    return 1.0


def bad_degree(model: Model, island: Island, stack: Stack, tp: float) -> bool:
    """Whether a rule of tensor parallelism is broken by a degree."""
    plan = Plan(tp=tp, etp=tp, sharding="none", sequence_parallel=False)
    run = Run(seq_len=1.0, global_batch=1.0)
    skip = {one.name for one in CONSTRAINTS} - CUTS
    return bool(violations_of_island(model, island, plan, run, stack, skip=skip))
