"""The islands of a report and the lines between them, in two small tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.alike import kinds, span
from shardmeter.core.sums import plain_sum
from shardmeter.render import cells
from shardmeter.render.document import Column, Row, Section, Table, filled

Answer = Mapping[str, Any]
MOST = 12
"""Kinds of lines that are listed."""


def sections(answer: Answer) -> tuple[Section, ...]:
    """Islands with what each sends in a round, and the lines that take it; nothing for one island."""
    lines, islands = answer["lines"], answer["prediction"]["islands"]
    return (_islands(islands), _lines(lines)) if lines else ()


def _islands(islands: Sequence[Answer]) -> Table:
    rows: list[Row] = [
        {
            "name": span([one["name"] for one in some]), "count": len(some) if len(some) > 1 else None,
            "gpus": f"{some[0]['gpus']:,.0f} × {some[0]['accelerator']}", "region": some[0]["region"], "sent": some[0]["sent_bytes"],
        }
        for some in kinds(islands, lambda one: (one["gpus"], one["accelerator"], one["region"], one["sent_bytes"]))
    ]  # fmt: skip
    columns = (
        Column(key="name", title="island"),
        Column(key="count", title="of them"),
        Column(key="gpus", title="accelerators"),
        Column(key="region", title="region"),
        Column(key="sent", title="sends a round", unit="B"),
    )
    kept = filled(columns, rows)
    caption = "Sent a round: to all others together, by the way that messages take."
    return Table(title="The islands", columns=kept, rows=tuple(rows), caption=caption)


def _lines(lines: Sequence[Answer]) -> Table:
    apart = any(one["gets"] != one["rates"] for one in lines)
    rows: list[Row] = [
        {
            "between": _names(one), "rate": _both(one["rates"], bits=True), "gets": _both(one["gets"], bits=True) if apart else None,
            "rtt": one["rtt_s"], "carries": _both(one["sent_bytes"]) if one["sent_bytes"] else None,
        }
        for one in lines[:MOST]
    ]  # fmt: skip
    columns = (
        Column(key="between", title="line", wide=True),
        Column(key="rate", title="carries at most"),
        Column(key="gets", title="a transfer alone gets"),
        Column(key="rtt", title="round trip", unit="s"),
        Column(key="carries", title="carries a round"),
    )
    kept = filled(columns, rows)
    more = plain_sum(one["pairs"] for one in lines[MOST:])
    said = ["Both ways, where they differ: there / back."] if any(" / " in str(row.values()) for row in rows) else []
    said += [f"{more} more lines, of {len(lines) - MOST} other kinds, are in the JSON."] if more else []
    return Table(title="The lines between them", columns=kept, rows=tuple(rows), caption=" ".join(said))


def _names(one: Answer) -> str:
    """`oregon – iowa`, `14 lines, such as home-1 – home-2`."""
    named = [" – ".join(pair) for pair in one["between"]]
    return ", ".join(named) if len(named) == one["pairs"] else f"{one['pairs']:,} lines, such as {named[0]}"


def _both(ways: Sequence[float | None], *, bits: bool = False) -> str:
    """`25 Gbit/s`, or `25 Gbit/s / 10 Gbit/s` where the ways differ."""
    said = [cells.text(one if one is None or not bits else 8.0 * one, "bit/s" if bits else "B") for one in ways]
    return " / ".join(dict.fromkeys(said))
