"""What lies on the host: only what a row names. Which states "offload" alone means differs from trainer to trainer."""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class OffloadReading:
    """Words of `Plan.offload`, and how many layers' activations go (0 = all)."""

    kinds: tuple[str, ...] = ()
    layers: float = 0.0


NAMED: tuple[tuple[str, str], ...] = (
    (
        "optimizer",
        r"zero-?offload|(optimi[sz]er|cpu.?adam)\w*[ _-]?offload|offload\w*[ _-]?(the )?(optimi[sz]er|cpu.?adam)",
    ),
    ("parameters", r"param\w*[ _-]?offload|offload\w*[ _-]?(the )?param"),
    (
        "activations",
        r"activations?[ _-]?(cpu )?offload|offload\w*[ _-]?(the )?activation|cpu_offloading_num_layers=\d+",
    ),
)
"""(word of `Plan.offload`, pattern in the lower-case text)."""
ON_TOP = r"cumulative.*offload|offload.*cumulative"


def read_offload(sharding: str, notes: str, layers: float) -> OffloadReading:
    """What the sharding and the notes of a row keep on the host; `layers` are the model's. Raises for what they leave open."""
    plain = f"{sharding}; {notes}".lower()
    if "offload" not in plain or re.search(r"(no|without) (\w+ )?offload|offload\w*=(none|false|no\b|0\b)", plain):
        return OffloadReading()
    if re.search(r"nvme|infinity", plain):
        raise NotModelled("offloading to NVMe is not modelled yet")
    if re.search(ON_TOP, plain):
        raise Unclear("it offloads on top of settings that only earlier rows of its table name")
    kinds = tuple(word for word, pattern in NAMED if re.search(pattern, plain))
    if not kinds:
        raise Unclear("what is offloaded to the host is not stated")
    some = re.search(r"cpu_offloading_num_layers=(\d+)", plain)
    count = float(some.group(1)) if some else 0.0
    if count > layers:
        raise Unclear(f"{count:g} layers are offloaded, the model has {layers:g}")
    return OffloadReading(kinds=kinds, layers=count)
