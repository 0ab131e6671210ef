"""Writes docs/network.md from the defaults, the formulas and the rows of `data/network_checks.csv`; `--check` only compares."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pages import kept
from shardmeter import data
from shardmeter.core.record import changed
from shardmeter.engine.links import rates
from shardmeter.engine.uplinks import hashed
from shardmeter.physics import network, wan
from shardmeter.specs import Wan
from shardmeter.specs.assumed import HEADER, HOLD, MONTH, RANGES, REDUNDANCY, Assumed

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "network.md"
TEXT = Path(__file__).parent / "network_page.md"
GIGABIT = 1e9 / 8
ROUND_TRIP = float(wan.rtt_of_distance(500.0, 1.0, wan.PER_KILOMETRE, wan.EQUIPMENT))
INSIDE = 195.0
"""Packets that 400 Gbit/s have under way over the 16 µs of a data centre's round trip."""
Span = tuple[float, float, float]
"""(by default, least, most)."""


def line(streams: float, window: float, buffer: float = np.inf, **more: object) -> Wan:
    """500 km at 100 Gbit/s, with buffers held for 35 µs."""
    made = Wan(
        islands=("a", "b"), bandwidth=100 * GIGABIT, rtt=ROUND_TRIP, loss=0.0, window=window, streams=streams, lanes=1.0, egress=0.0,
        up=100 * GIGABIT, down=100 * GIGABIT, transport=("rdma", "rdma"), hold=35e-6, uplink=100 * GIGABIT / network.HEADER, buffer=buffer,
    )  # fmt: skip
    return changed(made, **more)


def crowded(trips: float, **more: object) -> Wan:
    """The same line with four times as much coming in, and buffers of so many round trips."""
    return line(64.0, 64 * 65536.0, trips * 100 * GIGABIT * ROUND_TRIP, uplinks=1.0, incast=4.0, **more)


def used(made: Wan) -> Span:
    """Share of 100 Gbit/s, in per cent."""
    share = float(rates(made)[0, 1] / GIGABIT)
    return share, share, share


def ends(of: Callable[[Assumed], float], *names: str) -> Span:
    """A figure by default, and its least and most over the ends of some assumed numbers, one after the other."""
    found = [of(Assumed())]
    for name in names:
        found += [of(changed(Assumed(), **{name: one})) for one in RANGES[name][:2]]
    return found[0], min(found), max(found)


def by_hash(flows: float, adapters: float, slowest: float, assumed: Assumed) -> float:
    """What hashing leaves of uplinks, one an adapter."""
    return float(hashed("ecmp", flows, 1.0, adapters, slowest, assumed))


def gain(more: float, fewer: float, slowest: float, assumed: Assumed) -> float:
    """Of more flows over fewer, in per cent; more = 0: of no collisions at all."""
    best = 1.0 if not more else by_hash(more, 24e3, slowest, assumed)
    return 100.0 * (best / by_hash(fewer, 24e3 if more else 448.0, slowest, assumed) - 1.0)


def kept_of(loss: float, field: str) -> Span:
    """What a transport keeps at a loss inside a data centre, in per cent."""
    return ends(lambda a: 100.0 * float(wan.go_back_n(loss, network.resent(INSIDE, getattr(a, field)))), field)


def spread(flows: float, adapters: float, figure: Callable[[float], float], weight: float = 0.3) -> Span:
    """A figure of hashing: by default with a weight of the slowest, from all slowest to all mean."""
    found = [figure(by_hash(flows, adapters, one, Assumed())) for one in (weight, 1.0, 0.0)]
    return found[0], min(found), max(found)


def checks() -> dict[str, Span]:
    """What the model says of every row."""
    two = float(network.plane_share(1e9, 2.0, 1.0))
    return {
        "window-16": used(line(16.0, 64 * 65536.0)),
        "window-8": used(line(8.0, 208 * 65536.0)),
        "buffer-4to1": used(crowded(2.5)),
        "early-marking": used(
            crowded(2.5, rtt=float(wan.rtt_of_distance(200.0, 1.0, wan.PER_KILOMETRE, wan.EQUIPMENT)))
        ),
        "one-flow": spread(1.0, 64.0, lambda share: 100.0 * share),
        "more-than-8": ends(lambda a: gain(16.0, 8.0, 0.0, a), "collisions"),
        "meta-16": ends(lambda a: gain(16.0, 1.0, 0.0, a), "collisions"),
        "hpn-one": spread(1.0, 448.0, lambda share: 100.0 * (1.0 / share - 1.0)),
        "hpn-many": spread(1.0, 448.0, lambda share: 100.0 * (1.0 / share - 1.0), 1.0),
        "c4-gap": spread(2.0, 1024.0, lambda share: 100.0 * (1.0 - share), 0.0),
        "mrc-42k": ends(lambda a: 100.0 * float(network.HEADER * a.spray), "spray"),
        "mrc-pair": ends(lambda a: 100.0 * float(network.HEADER * a.spray), "spray"),
        "colossus": spread(1.0, 1e5, lambda share: 100.0 * share),
        "rdma-1pc": kept_of(0.01, "go_back"),
        "mrc-1pc": kept_of(0.01, "selective"),
        "mrc-0.1pc": kept_of(0.001, "selective"),
        "two-ports": (100.0 * two, 100.0 * two, 100.0),
    }


def rows() -> list[dict[str, str]]:
    """The shipped rows."""
    with data.open_text("network_checks.csv") as file:
        return list(csv.DictReader(file))


def meets(row: dict[str, str], said: Span) -> str:
    """Where what was measured lies: at the default (within 5 % of one figure, inside a span), in the range (within 2 %), or apart."""
    measured = float(row["measured"])
    least, most = float(row["least"] or 0.95 * measured), float(row["most"] or 1.05 * measured)
    if least <= said[0] <= most:
        return "at the default"
    least, most = float(row["least"] or measured), float(row["most"] or measured)
    return "in the range" if said[1] <= most * 1.02 - 1e-9 and least * 0.98 <= said[2] else "**apart**"


def table() -> str:
    """Model against measurement."""
    lines = ["| case | measured | model | measured lies | source |", "|---|---|---|---|---|"]
    said = checks()
    for row in rows():
        own = said[row["name"]]
        span = f"{own[0]:.3g}" + (f" ({own[1]:.3g} to {own[2]:.3g})" if own[1] < own[2] else "")
        measured = f"{row['least']} to {row['most']}" if row["least"] else row["measured"]
        lines.append(
            f"| {row['what']} | {measured} {row['unit']} ({row['kind']}) | {span} | {meets(row, own)} | {row['source']} |"
        )
    return "\n".join(lines)


def defaults() -> str:
    """Every number that is assumed, with its range."""
    scale = {"failures": (MONTH, " a link and month"), "flaps": (86400.0, " a link and day"), "repair": (1 / 3600.0, " h"),
             "flap_stall": (1.0, " s")}  # fmt: skip
    lines = ["| `assumed` | default | range | basis |", "|---|---|---|---|"]
    for name, (least, most, basis) in RANGES.items():
        factor, unit = scale.get(name, (1.0, ""))
        own, low, high = (f"{one * factor:.3g}" for one in (getattr(Assumed(), name), least, most))
        lines.append(f"| `{name}` | {own}{unit} | {low} to {high} | {basis} |")
    lines += [
        f"| key `hold` | 0; presets 20 or 35 µs | {HOLD[0] * 1e6:.0f} to {HOLD[1] * 1e6:.0f} µs | judgement |",
        f"| key `redundancy` | 0.1 | {REDUNDANCY[0]:g} to {REDUNDANCY[1]:g} | judgement |",
        f"| payload of an adapter's rate | {network.HEADER:g} | {HEADER[0]:g} to {HEADER[1]:g} | RoCE packets of 1 to 9 KiB |",
    ]
    return "\n".join(lines)


def page() -> str:
    """The page."""
    text = TEXT.read_text(encoding="utf-8")
    return text.replace("{{defaults}}", defaults()).replace("{{checks}}", table())


if __name__ == "__main__":
    sys.exit(kept(PAGE, page()))
