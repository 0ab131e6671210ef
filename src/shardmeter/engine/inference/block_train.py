"""Blocks on islands, the whole output in one traversal of the stack: Spheroid BlockTrain (arXiv 2606.24722).

Every block was trained alone as a denoiser of its own band of noise. To serve, the positions of the prompt and of the output pass
block after block, all at once: their activations cross from host to host once. Attention sees every position, as in a denoiser. The
abstract alone was read; that a prompt passes with the output, and that all positions see one another, is taken from the objective.
Leaves out: blocks that are served by several hosts at once, embeddings of noise levels, outputs that end early.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Seconds
from shardmeter.engine.inference import cut
from shardmeter.engine.inference.fold import served, summed, together
from shardmeter.engine.inference.lines import TOKEN, Sent, crossed, hop, row
from shardmeter.engine.inference.pipeline import Row, spread
from shardmeter.engine.inference.servers import Server, Share, held
from shardmeter.engine.layer import Ledger
from shardmeter.engine.links import Links
from shardmeter.specs import MemoryTerm
from shardmeter.specs.serving import Host, Served, Serving


def block_train(servers: Sequence[Server], links: Links | None, asked: Serving) -> Served:
    """Serve over all islands, `asked.blocks` equal blocks in a row; several on one host where there are fewer hosts."""
    return traversed(laid(servers, links, asked), links, asked)


def laid(servers: Sequence[Server], links: Links | None, asked: Serving) -> Row:
    """The order of islands in which a traversal is sent soonest, and the blocks of each, by speed and memory where there are fewer
    hosts than blocks."""
    size, answer = _sizes(servers[0], asked)
    again = asked.traversals - 1.0
    order = row(
        links, len(servers), (Sent(size=size, times=asked.traversals, cold=True),),
        (Sent(size=answer), Sent(size=size, times=again, cold=True)),
    )  # fmt: skip
    own = tuple(servers[at] for at in order)
    parts = cut.even(len(cut.layers(own[0].model)), asked.blocks)
    blocks = spread(
        own, asked.blocks, lambda one, share: summed(_stage(one, share, asked)),
        lambda one, share: _memory(one, share, asked)[1],
    )  # fmt: skip
    counts, first = [], 0
    for count in blocks:
        counts.append(plain_sum(parts[first : first + count]))
        first += count
    return Row(servers=own, shares=cut.shares(own[0].model, counts), order=order, blocks=blocks)


def traversed(line: Row, links: Links | None, asked: Serving) -> Served:
    """Serve by a given row."""
    own, shares, order, again = line.servers, line.shares, line.order, asked.traversals - 1.0
    size, answer = _sizes(own[0], asked)
    stages = [_stage(one, share, asked) for one, share in zip(own, shares, strict=True)]
    there = [hop(links, a, b, size, cold=True) for a, b in itertools.pairwise(order)]
    back = hop(links, order[-1], order[0], answer, cold=False)
    round_again = hop(links, order[-1], order[0], size, cold=True)  # as idle as the others since the last traversal
    ledger = together(
        *((stage, asked.traversals) for stage in stages), (crossed(there), asked.traversals), (crossed([back]), 1.0),
        (crossed([round_again]), again),
    )  # fmt: skip
    works = [asked.traversals * summed(stage) for stage in stages]
    busy: list[tuple[str, Seconds]] = [
        (f"host {one.island.name}", work / one.copies) for one, work in zip(own, works, strict=True)
    ]
    busy += [
        (f"line {a.island.name} → {b.island.name}", asked.traversals * one.busy)
        for a, b, one in zip(own, own[1:], there, strict=False)
    ]
    if len(own) > 1:
        busy.append((f"line {own[-1].island.name} → {own[0].island.name}", back.busy + again * round_again.busy))

    rows = zip(own, shares, line.blocks, works, strict=True)
    laid = [_host(one, share, count, asked, work) for one, share, count, work in rows]

    return served(asked, ledger, ledger, None, busy, lambda _: laid, (f"blocks pass {_way(own)}",))


def _way(own: Sequence[Server]) -> str:
    return " → ".join(one.island.name for one in own)


def _sizes(one: Server, asked: Serving) -> tuple[Bytes, Bytes]:
    """(what passes from block to block, what comes back)."""
    positions = asked.batch * (asked.prompt + asked.output)
    return positions * one.model.hidden * one.price.width, TOKEN * asked.batch * asked.output


def _stage(one: Server, share: Share, asked: Serving) -> Ledger:
    """Seconds of a host for all positions; the head only for those of the output."""
    positions = asked.prompt + asked.output
    own = one.passed(asked.batch, positions, positions, seen_whole=True)
    head = one.passed(asked.batch, asked.output, asked.output) if share.head else None
    return held(share, own, head)


def _host(one: Server, share: Share, blocks: int, asked: Serving, work: Seconds) -> Host:
    memory, peak = _memory(one, share, asked)
    return Host(
        name=one.island.name, accelerator=one.island.accelerator.name, accelerators=one.plan.tp, copies=one.copies,
        layers=share.count, blocks=blocks, busy=work, memory=memory, peak=peak, limit=one.island.accelerator.memory,
    )  # fmt: skip


def _memory(one: Server, share: Share, asked: Serving) -> tuple[tuple[MemoryTerm, ...], Bytes]:
    """Of all positions at once; nothing is kept of them."""
    return one.memory(share, 0.0, asked.batch * (asked.prompt + asked.output), asked.batch * asked.output)
