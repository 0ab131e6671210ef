"""An ensemble of small experts: SOMA (arXiv 2609.37899). A router sends a sequence to a few of them; each writes token by token, and
their distributions are mixed at one place for every token.

Experts of one ensemble that share an accelerator run beside one another, products of one shape as one kernel. Experts of one island:
mixed there, nothing crosses. On several islands: every token makes one round trip between the island that
mixes and the others, which send back a probability for every word of the vocabulary. The router may choose any: the answer is that of
the choice with the slowest island. Leaves out: the router itself, distributions that are cut or rounded before they are sent, experts
that sequences of unlike routes share a batch of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Bytes, Count, Fraction, Seconds
from shardmeter.engine import add
from shardmeter.engine.inference import cut
from shardmeter.engine.inference.fold import MIXING, served, summed, together
from shardmeter.engine.inference.lines import TOKEN, Hop, crossed, hop
from shardmeter.engine.inference.pipeline import PASS
from shardmeter.engine.inference.servers import LOGIT, Server, Share, held
from shardmeter.engine.layer import Ledger
from shardmeter.engine.links import Links
from shardmeter.specs.serving import Host, Served, Serving


@record
class Member:
    """An island with some experts. Ledgers are those of all that one copy runs of an ensemble, beside one another."""

    server: Server
    place: int
    """In the fleet."""
    experts: int
    prompt: Ledger
    token: Ledger
    beside: float
    """Experts of one ensemble that a copy may have to run."""
    out: Hop | None = None
    """A token on its way to it from where distributions are mixed; None = that is here."""
    back: Hop | None = None
    """Its distribution on the way there."""

    @property
    def crossed(self) -> Ledger:
        """Seconds on the way there and back."""
        return {} if self.out is None or self.back is None else crossed((self.out, self.back))

    @property
    def seconds(self) -> Seconds:
        """Of one token."""
        return summed(together((self.token, 1.0), (self.crossed, 1.0)))

    def busy(self, asked: Serving) -> Seconds:
        """That a copy works for one expert's whole answer to one batch."""
        return (summed(self.prompt) + (asked.output - 1.0) * summed(self.token)) / self.beside


def soma(servers: Sequence[Server], links: Links | None, asked: Serving) -> Served:
    """Serve ensembles of `asked.top_k` of `asked.experts` experts, spread over the islands by their accelerators, or all on each."""
    members = _members(servers, asked)
    home = members[0]
    if asked.top_k > 1 and not asked.together and len(members) > 1:
        members = _mixed_at_best(members, links, asked)
        home = next(one for one in members if one.out is None)
    decides = min if asked.together else max
    critical = decides(members, key=lambda one: float(one.seconds))
    home = critical if asked.together else home
    each = [(critical.crossed, 1.0)]
    if asked.top_k > 1:
        each.append(({MIXING: home.server.mixed(asked.top_k, asked.batch)}, 1.0))
    first = together((critical.prompt, 1.0), *each)
    token = together((critical.token, 1.0), *each)

    def hosts(groups: Count) -> list[Host]:
        return [_host(one, members, asked, groups) for one in members]

    ledger = together((first, 1.0), (token, asked.output - 1.0))
    return served(asked, ledger, first, token, _busy(members, home, asked), hosts, _notes(members, home, asked))


def _members(servers: Sequence[Server], asked: Serving) -> list[Member]:
    """The islands that hold experts."""
    total = plain_sum(float(one.copies) for one in servers)
    spread = _spread([float(one.copies) / total for one in servers], asked.experts)
    found = []
    for at, (one, count) in enumerate(zip(servers, spread, strict=True)):
        experts = asked.experts if asked.together else count
        if not experts:
            continue
        beside = float(math.ceil(min(asked.top_k, experts) / float(one.copies)))
        share, head = _whole(one), one.passed(asked.batch, 1.0, 1.0, beside=beside)
        found.append(Member(
            server=one, place=at, experts=experts, beside=beside,
            prompt=held(share, one.passed(asked.batch, asked.prompt, asked.prompt, beside=beside), head),
            token=one.decoded(share, asked.batch, asked.prompt + asked.output / 2.0, beside),
        ))  # fmt: skip
    return found


def _spread(parts: Sequence[float], experts: int) -> tuple[int, ...]:
    """Experts over islands by their parts, whole ones, the largest remainders first."""
    counts = [math.floor(part * experts) for part in parts]
    order = sorted(range(len(parts)), key=lambda at: counts[at] - parts[at] * experts)
    for at in order[: experts - plain_sum(counts)]:
        counts[at] += 1
    return tuple(counts)


def _whole(one: Server) -> Share:
    names = cut.layers(one.model)
    return Share(embedding=True, layers=tuple((name, names.count(name)) for name in dict.fromkeys(names)), head=True)


def _mixed_at_best(members: Sequence[Member], links: Links | None, asked: Serving) -> list[Member]:
    """The members with their ways to the one that mixes: that from which the slowest is soonest back. All islands of an ensemble,
    which need not include that one, send to it at once."""
    others = float(min(asked.top_k, len(members) - 1))
    size = asked.batch * members[0].server.model.vocab * LOGIT

    def seen_from(home: Member) -> list[Member]:
        return [
            one if one is home else changed(
                one, out=hop(links, home.place, one.place, asked.batch * TOKEN, cold=False),
                back=hop(links, one.place, home.place, size, cold=False, sharers=others),
            )
            for one in members
        ]  # fmt: skip

    return seen_from(members[_soonest(members, links, asked.batch * TOKEN, size, others)])


def _soonest(members: Sequence[Member], links: Links | None, sent: Bytes, size: Bytes, others: float) -> int:
    """Which member has the slowest answer soonest back: its own token, or one sent there and its distribution back."""
    places = np.array([one.place for one in members])
    own = np.array([float(summed(one.token)) for one in members])

    def slowest(home: int) -> float:
        place, rest = places[home], np.delete(places, home)
        out = hop(links, place, rest, sent, cold=False)
        back = hop(links, rest, place, size, cold=False, sharers=others)
        return max(float(own[home]), float(np.max(np.delete(own, home) + out.seconds + back.seconds)))

    return min(range(len(members)), key=slowest)


def _busy(members: Sequence[Member], home: Member, asked: Serving) -> list[tuple[str, Seconds]]:
    """Places with the seconds that one ensemble's answer takes of them. Sequences go to all experts alike; where every island has
    all of them, whole ensembles go to whoever is free."""
    if asked.together:
        rate = plain_sum(float(one.server.copies / (asked.top_k * one.busy(asked))) for one in members)
        return [("all hosts", 1.0 / rate)]
    part, name = asked.top_k / asked.experts, home.server.island.name
    found: list[tuple[str, Seconds]] = [
        (f"host {one.server.island.name}", part * one.experts * one.busy(asked) / one.server.copies) for one in members
    ]
    sent = [(one, one.back, asked.output * _often(one, asked)) for one in members if one.back is not None]
    found += [(f"line {one.server.island.name} → {name}", tokens * back.busy) for one, back, tokens in sent]
    if sent:
        found.append((f"line into {name}", add.folded(tokens * back.coming for _, back, tokens in sent)))
    return found


def _often(one: Member, asked: Serving) -> Fraction:
    """Share of the ensembles that have an expert of an island, each choice being as likely."""
    return 1.0 - math.comb(asked.experts - one.experts, asked.top_k) / math.comb(asked.experts, asked.top_k)


def _host(one: Member, members: Sequence[Member], asked: Serving, groups: Count) -> Host:
    """With its part of the sequences under way."""
    share, copies = _whole(one.server), float(one.server.copies)
    alike = plain_sum(float(other.server.copies) for other in members) if asked.together else copies
    ensembles = groups * asked.top_k * (1.0 if asked.together else one.experts / asked.experts)
    kept = math.ceil(ensembles / alike) * one.server.cache(share, asked.batch, asked.prompt + asked.output)
    rows = asked.batch * np.minimum(asked.prompt, PASS)
    models = float(math.ceil(one.experts / copies))
    memory, peak = one.server.memory(share, kept, rows, asked.batch * (asked.top_k + 1.0), models)
    island = one.server.island
    return Host(
        name=island.name, accelerator=island.accelerator.name, accelerators=one.server.plan.tp, copies=one.server.copies,
        layers=share.count, experts=one.experts, busy=one.busy(asked), memory=memory, peak=peak, limit=island.accelerator.memory,
    )  # fmt: skip


def _notes(members: Sequence[Member], home: Member, asked: Serving) -> tuple[str, ...]:
    if asked.together or asked.top_k == 1 or len(members) == 1:
        return ()
    name = home.server.island.name
    return (f"distributions are mixed at {name}; the time is that of the choice of experts with the slowest island",)
