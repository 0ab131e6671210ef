"""The lines between islands, as a report shows them: what each carries at most, its round trip, what islands send over them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from shardmeter.engine.links import links_of
from shardmeter.specs import Wan

Entry = dict[str, Any]


NAMED = 2
"""Pairs of islands of a kind that are named."""


def lines_of(wan: Wan | None, sent: Sequence[float | None]) -> list[Entry]:
    """Every kind of line between two islands, in the order of the first of each: how many `pairs` have it and the first few of them
    (`between`), `rates` both ways (bytes a second that the link and both sites let pass, all transfers together), `gets` both ways (what
    one transfer gets that is alone, its windows and losses counted), `rtt_s`, and `sent_bytes` both ways in a round.

    `sent`: bytes that each island sends in a round. Two islands send all of it over their one line; of more, which line takes what is
    not split here, and is None. Leaves out: what is relayed by other islands."""
    if wan is None:
        return []
    links = links_of(wan)
    names, lines, rate, rtt = links.names, links.lines.tolist(), links.rate.tolist(), links.rtt.tolist()
    found: dict[tuple[float, ...], Entry] = {}
    for one, other in itertools.combinations(range(len(names)), 2):
        rates, gets = ([table[one][other], table[other][one]] for table in (lines, rate))
        entry = found.setdefault((*rates, *gets, rtt[one][other]), {
            "pairs": 0, "between": [], "rates": rates, "gets": gets, "rtt_s": rtt[one][other],
            "sent_bytes": list(sent) if len(names) == 2 else None,
        })  # fmt: skip
        entry["pairs"] += 1
        if entry["pairs"] <= NAMED:
            entry["between"].append([names[one], names[other]])
    return list(found.values())
