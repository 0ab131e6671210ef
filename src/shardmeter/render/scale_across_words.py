"""Words of a search across buildings: placements, what a choice changes, gains, networks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.core.quantity import show

Answer = Mapping[str, Any]
WORTH = 1.01
"""Speed-up below which nothing is worth a change."""
SHORT = {"dp": "data parallel", "pp": "one pipeline", "dp_shard": "sharded parameters"}
"""By the word of a placement: the axis that crosses buildings, for people."""
LONG = {
    "dp": "data parallel across buildings",
    "pp": "one pipeline over all buildings",
    "dp_shard": "parameters sharded over all buildings",
}
TURNED = " turned"
"""What a placement's word ends with whose stages lie next to each other inside a building."""
GROUPS = re.compile(r"pp(\d+)×dp")
SCHEDULES = {
    "1f1b": "1F1B", "interleaved": "interleaved 1F1B", "interleaved-bf": "interleaved breadth first", "zb-h1": "zero bubble (H1)",
    "zb-h2": "zero bubble (H2)", "zb-v": "zero bubble (V)", "dualpipe": "DualPipe", "gpipe": "GPipe",
}  # fmt: skip
RELEASES = {"layers": "gradients layer by layer", "end": "gradients at the end"}
BALANCES = {"planned": "planned routes", "spray": "spraying"}
TRANSPORTS = {
    "tcp": "TCP", "rdma": "go-back-N", "selective": "selective repeat", "coded": "redundant packets", "lossless": "lossless lines",
}  # fmt: skip


def placed(word: str) -> str:
    """What crosses buildings, in two words."""
    return _placed(word, SHORT, "pipelines of {}")


def crossing(word: str) -> str:
    """The same in a sentence."""
    return _placed(word, LONG, "pipelines of {} buildings")


def _placed(word: str, names: Mapping[str, str], grouped: str) -> str:
    base = word.removesuffix(TURNED)
    groups = GROUPS.fullmatch(base)
    said = grouped.format(groups[1]) if groups else names.get(base, base)
    return said if base == word else f"{said}, stages nearest"


def changes(choice: Answer, default: Answer) -> list[str]:
    """What a choice has other than another one, a few words each; none where they are the same."""
    own = [] if choice["placement"] == default["placement"] else [crossing(choice["placement"])]
    return [
        *own,
        *_scheduled(choice["schedule"], default["schedule"]),
        *_networked(choice["network"], default["network"]),
    ]


def _scheduled(one: Answer, other: Answer) -> Iterator[str]:
    if (one["word"], one["virtual_stages"]) != (other["word"], other["virtual_stages"]):
        chunks = f" of {one['virtual_stages']} chunks" if one["virtual_stages"] > 1 else ""
        yield f"{SCHEDULES.get(one['word'], one['word'])}{chunks}"
    if one["micro_batch"] != other["micro_batch"]:
        yield f"micro-batches of {one['micro_batch']:g}"
    if one["ahead"] != other["ahead"]:
        yield f"{one['ahead']:g} micro-batches ahead"
    if one["stagger"] != other["stagger"]:
        yield "pipelines send in turn" if one["stagger"] else "pipelines send at once"
    if one["release"] != other["release"]:
        yield RELEASES[one["release"]]


def _networked(one: Answer, other: Answer) -> Iterator[str]:
    if (one["balance"], one["flows"]) != (other["balance"], other["flows"]):
        yield BALANCES.get(one["balance"], f"{one['flows']:g} flows hashed")
    if one["transport"] != other["transport"]:
        yield TRANSPORTS[one["transport"]]
    if any(one[name] != other[name] for name in ("streams", "window_bytes", "sends_bytes")):
        yield f"{show(one['streams'] * one['window_bytes'], 'B')} under way"


def gain(value: float) -> str:
    """A ratio of speeds as what it adds: 23 %, 4.2 %."""
    share = 100.0 * (value - 1.0)
    return f"{share:.0f} %" if abs(share) >= 9.95 else f"{abs(share) if abs(share) < 0.05 else share:.1f} %"


def faster(ratio: Answer) -> str:
    """A speed-up with its interval: `23 % (15 to 31 %) faster`."""
    return f"{gain(ratio['value'])} ({gain(ratio['low']).removesuffix(' %')} to {gain(ratio['high'])}) faster"


def network_text(point: Answer) -> str:
    """`4:1 over 80 km`."""
    far = point["distance_km"]
    return (
        f"{point['oversubscription']:.3g}:1 over {far:,.0f} km"
        if far >= 10.0
        else f"{point['oversubscription']:.3g}:1 over {far:.2g} km"
    )


def first(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]
