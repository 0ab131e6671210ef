"""A pipeline over islands: whole layers on each, every token through all of them one after the other, and back to the first.

The prompt passes in the number of equal chunks that is fastest: at every host and line a chunk waits for the one before, and a line
that was idle starts slowly once, not for every chunk. Source: Huang 2019 §2 (chunks); Pope 2022 §3 (a token reads all
weights and all it keeps of the tokens before); Borzunov 2022 (Petals, for layers of one model on hosts over the internet). Leaves
out: stages of several groups of accelerators inside one island, guesses of a smaller model that are checked together, batches that
change while they run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Seconds
from shardmeter.engine.inference import cut
from shardmeter.engine.inference.fold import CHUNKS, served, summed, together
from shardmeter.engine.inference.lines import NO_HOP, TOKEN, Hop, Sent, crossed, hop, row
from shardmeter.engine.inference.servers import Server, Share, held
from shardmeter.engine.layer import Ledger
from shardmeter.engine.links import Array, Links
from shardmeter.specs import MemoryTerm
from shardmeter.specs.serving import Host, Served, Serving

Prompted: TypeAlias = tuple[Ledger, list[Seconds]]
"""A prompt's ledger until its first token is back, and what each host works for it."""
PASS = 8192.0
"""Tokens of a sequence that lie in memory as activations at most: engines take a longer prompt piece by piece."""


@record
class Row:
    """Servers in the order in which tokens pass them, each with what it holds."""

    servers: tuple[Server, ...]
    shares: tuple[Share, ...]
    order: tuple[int, ...]
    """Their places in the fleet."""
    blocks: tuple[int, ...] = ()
    """Blocks of each, where the stack has blocks."""


def rows(servers: Sequence[Server], links: Links | None, asked: Serving) -> tuple[Row, ...]:
    """Rows worth trying, for a prompt in few chunks or in many: each the order of islands in which what passes is sent soonest, all
    layers cut so that the slowest server is as fast as memory allows."""
    size, orders = activation(servers[0], asked.batch), []
    for chunks in _chunks(len(servers), asked):
        there = (Sent(size=size * asked.prompt / chunks, cold=True), Sent(size=size, times=asked.output - 1.0))
        back = (Sent(size=TOKEN * asked.batch, times=asked.output),)
        orders.append(row(links, len(servers), there, back))
    return tuple(_cut(servers, order, asked) for order in dict.fromkeys(orders))


def _cut(servers: Sequence[Server], order: tuple[int, ...], asked: Serving) -> Row:
    model, own = servers[0].model, tuple(servers[at] for at in order)

    def answered(one: Server, share: Share) -> Seconds:
        prompt = summed(held(share, one.passed(asked.batch, asked.prompt, asked.prompt)))
        return prompt + (asked.output - 1.0) * summed(one.decoded(share, asked.batch, _seen(asked)))

    counts = spread(own, len(cut.layers(model)), answered, lambda one, share: _memory(one, share, asked, 1.0)[1])
    return Row(servers=own, shares=cut.shares(model, counts), order=order)


def pipeline(servers: Sequence[Server], links: Links | None, asked: Serving) -> Served:
    """Serve over all islands, in the row that answers soonest; of equals, one that holds all."""
    found = [passed(line, links, asked) for line in rows(servers, links, asked)]
    return min(found, key=lambda one: (not one.fits, float(one.output_time)))


def passed(line: Row, links: Links | None, asked: Serving, written: Prompted | None = None) -> Served:
    """Serve by a given row. `written`: its prompt, where that is known from an answer with another output."""
    prompt, busy_prompt = prompted(line, links, asked) if written is None else written
    steps = [
        one.decoded(share, asked.batch, _seen(asked)) for one, share in zip(line.servers, line.shares, strict=True)
    ]
    hops = _hops(line, links, activation(line.servers[0], asked.batch), asked.batch)
    token = together(*((step, 1.0) for step in steps), (crossed(hops), 1.0))
    more = asked.output - 1.0
    ledger = together((prompt, 1.0), (token, more))
    works = [first + more * summed(step) for first, step in zip(busy_prompt, steps, strict=True)]
    busy = [(f"host {one.island.name}", work / one.copies) for one, work in zip(line.servers, works, strict=True)]
    wide = _hops(line, links, activation(line.servers[0], asked.batch) * asked.prompt, asked.batch)
    ends = zip(line.servers, (*line.servers[1:], line.servers[0]), hops, wide, strict=True)
    if len(line.servers) > 1:
        busy += [
            (f"line {a.island.name} → {b.island.name}", more * short.busy + long.busy) for a, b, short, long in ends
        ]

    def hosts(groups: Count) -> list[Host]:
        return [
            _host(one, share, asked, groups, work)
            for one, share, work in zip(line.servers, line.shares, works, strict=True)
        ]

    return served(asked, ledger, prompt, token, busy, hosts, _notes(line))


def _notes(line: Row) -> tuple[str, ...]:
    if len(line.servers) == 1:
        return ()
    way = " → ".join(one.island.name for one in (*line.servers, line.servers[0]))
    return (f"tokens pass {way}: the order of islands whose way is shortest",)


def _seen(asked: Serving) -> Count:
    """Tokens that are there when one is written, the mean over all but the first."""
    return asked.prompt + asked.output / 2.0


def activation(one: Server, batch: Count) -> Count:
    """Bytes of one token of each sequence between two layers."""
    return batch * one.model.hidden * one.price.width


def spread(
    own: Sequence[Server],
    pieces: int,
    seconds: Callable[[Server, Share], Seconds],
    peak: Callable[[Server, Share], Bytes],
) -> tuple[int, ...]:
    """How many of `pieces` equal pieces of the stack each of several servers in a row holds: by the seconds that it takes for what
    it holds, and the bytes that this needs."""
    names = cut.layers(own[0].model)
    every = Share(embedding=False, layers=tuple((name, names.count(name)) for name in dict.fromkeys(names)), head=False)
    ends = [(at == 0, at == len(own) - 1) for at in range(len(own))]
    return cut.balanced(
        [float(seconds(one, every)) for one in own],
        [_room(one, names, peak, *end) * pieces / len(names) for one, end in zip(own, ends, strict=True)],
        pieces,
    )


def _room(one: Server, names: Sequence[str], peak: Callable[[Server, Share], Bytes], first: bool, last: bool) -> float:
    """Layers, at the size of the largest kind, that fit beside the ends of the model that a server holds."""

    def needed(layers: tuple[tuple[str, int], ...]) -> float:
        return float(peak(one, Share(embedding=first, layers=layers, head=last)))

    empty = needed(())
    largest = max(needed(((name, 1),)) - empty for name in dict.fromkeys(names))
    return max(math.floor((float(one.island.accelerator.memory) - empty) / largest), 0)


def _memory(one: Server, share: Share, asked: Serving, groups: Count) -> tuple[tuple[MemoryTerm, ...], float]:
    """Terms and peak with so many groups of sequences under way, shared out among the island's copies."""
    own = np.ceil(groups / one.copies)
    kept = own * one.cache(share, asked.batch, asked.prompt + asked.output)
    rows = asked.batch * np.minimum(asked.prompt, PASS)
    terms, peak = one.memory(share, kept, rows, asked.batch)
    return terms, float(peak)


def _host(one: Server, share: Share, asked: Serving, groups: Count, work: Seconds) -> Host:
    memory, peak = _memory(one, share, asked, groups)
    return Host(
        name=one.island.name, accelerator=one.island.accelerator.name, accelerators=one.plan.tp, copies=one.copies,
        layers=share.count, busy=work, memory=memory, peak=peak, limit=one.island.accelerator.memory,
    )  # fmt: skip


def _hops(line: Row, links: Links | None, size: Count, batch: Count, *, cold: bool = False) -> list[Hop]:
    """Every boundary's message, and the token's way back."""
    if len(line.order) == 1:
        return [NO_HOP]
    there = [hop(links, a, b, size, cold=cold) for a, b in itertools.pairwise(line.order)]
    return [*there, hop(links, line.order[-1], line.order[0], TOKEN * batch, cold=False)]


# ---- the prompt ------------------------------------------------------------------------------------------------------------------


def prompted(line: Row, links: Links | None, asked: Serving) -> Prompted:
    """The prompt in the number of chunks that is fastest: the same for every length of output."""
    tried = [_in_chunks(line, links, asked, chunks) for chunks in _chunks(len(line.servers), asked)]
    return min(tried, key=lambda one: float(summed(one[0])))


def through(come: Array, taken: Array) -> Array:
    """(chunks,): when each of a row is through a place that takes one after the other; they `come` at these times, and the first n
    take `taken[n − 1]` of it."""
    before = np.concatenate(([0.0], taken[:-1]))
    return np.asarray(taken + np.maximum.accumulate(come - before))


def _chunks(servers: int, asked: Serving) -> list[float]:
    """Numbers of chunks that are tried: 1, 2, 4, … while each has a token. Small ones read the weights too often to be best."""
    most = float(asked.prompt) if servers > 1 else 1.0
    return [2.0**power for power in range(int(math.log2(most)) + 1)]


def _in_chunks(line: Row, links: Links | None, asked: Serving, chunks: float) -> Prompted:
    tokens = asked.prompt / chunks
    stages = []
    for one, share in zip(line.servers, line.shares, strict=True):
        own = one.passed(asked.batch, tokens, asked.prompt)
        stages.append(held(changed(share, head=False), own))
    size = activation(line.servers[0], asked.batch) * tokens
    hops, times = _hops(line, links, size, asked.batch, cold=True), [summed(stage) for stage in stages]
    ledger = together(*((stage, 1.0) for stage in stages), (crossed(hops), 1.0))
    if chunks > 1.0:
        many = np.arange(1.0, chunks + 1.0)
        out = through(0.0 * many, np.asarray(times[0] * many))
        for sent, time in zip(_hops(line, links, size * many, asked.batch, cold=True), times[1:], strict=False):
            out = through(through(out, np.asarray(sent.wire + sent.start)) + sent.delay, np.asarray(time * many))
        ledger[CHUNKS] = out[-1] + hops[-1].seconds - summed(ledger)
    end = line.servers[-1]
    head = held(Share(embedding=False, layers=(), head=True), end.passed(asked.batch, 1.0, 1.0))
    works = [chunks * seconds for seconds in times]
    works[-1] = works[-1] + summed(head)
    return together((ledger, 1.0), (head, 1.0)), works
