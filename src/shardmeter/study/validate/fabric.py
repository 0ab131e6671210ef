"""What connects the nodes: the kind and the rate that a text states, per adapter and per node."""

from __future__ import annotations

import re

from shardmeter.core.record import record

GBPS = 1e9 / 8.0


@record
class FabricReading:
    """A kind of fabric and what is stated of its rate. All empty: the accelerator's default."""

    kind: str = ""
    """infiniband, roce, efa, omni-path, slingshot, ethernet, dcn, or empty."""
    adapter: float | None = None
    """Rate of one adapter in B/s, one direction."""
    adapters: float | None = None
    """Adapters of one node; None = one for each accelerator."""
    node: float | None = None
    """Rate of one node in B/s, all adapters together."""


KINDS: tuple[tuple[str, str], ...] = (
    (r"\befa\b", "efa"),
    (r"slingshot", "slingshot"),
    (r"omni-?path", "omni-path"),
    (r"dcn|datacent(re|er) network", "dcn"),
    (r"roce|rdma|roc?e2?\b", "roce"),
    (r"infiniband|\bib\b|ndr|hdr|xdr|edr|cx-?7|connectx|superpod", "infiniband"),
    (r"ethernet|gbe", "ethernet"),
    (r"bf3|bluefield", "roce"),
)


def read_fabric(text: str) -> FabricReading:
    """The fabric that `text` states. Storage and management networks in it do not count."""
    plain = text.lower()
    if not plain or plain.startswith(("n/a", "none")):
        return FabricReading()
    computing = _compute_part(plain)
    kind = next((name for pattern, name in KINDS if re.search(pattern, computing)), "")
    if "superpod" in computing:
        return FabricReading(kind=kind, adapter=200 * GBPS, adapters=8.0)
    if kind == "omni-path" and not re.search(r"\d+ ?gb", computing):
        return FabricReading(kind=kind, adapter=100 * GBPS, adapters=4.0)
    if kind == "slingshot":
        return FabricReading(kind=kind, adapter=200 * GBPS, adapters=4.0)
    if kind == "dcn":
        return FabricReading(kind=kind, adapter=100 * GBPS, adapters=2.0)
    return _rate(computing, kind)


def _compute_part(plain: str) -> str:
    """The part that carries training traffic, where a text lists several networks."""
    named = re.search(r"(?:storage ?& ?)?compute:([^,]+)", plain)
    if named:
        return named.group(1)
    for part in re.split(r"[,;+]| and ", plain):
        if re.search(r"for ew|infiniband|\bib\b", part) and re.search(r"\d", part):
            return part
    return plain


def _rate(plain: str, kind: str) -> FabricReading:
    """The rate in Gb/s or Tb/s: of one adapter (`8x400Gb/s`, `per gpu`) or of a node (`per host`, `node-node`)."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*(t|g)\s?(?:b|bit)?(?:ps|/s|/sec|e)?\b", re.sub(r"gb/sec", "gb/s", plain))
    if not found or re.search(r"gpu-pcie|which one not stated", plain):
        return FabricReading(kind=kind)
    rate = float(found.group(1)) * (1e3 if found.group(2) == "t" else 1.0) * GBPS
    before = plain[: found.start()]
    times = re.search(r"(\d+)\s*x\s*[a-z]?", before) or re.search(r"(\d+)\s*x\s*", before)
    if re.search(r"per host|per node|node-node", plain) and not times:
        return FabricReading(kind=kind, node=rate)
    if times:
        return FabricReading(kind=kind, adapter=rate, adapters=float(times.group(1)))
    return FabricReading(kind=kind, adapter=rate)
