"""What connects accelerators inside a node, where a text says something else than the accelerator's own link."""

from __future__ import annotations

import re

from shardmeter.core.record import record


@record
class LinkReading:
    """A kind that replaces the accelerator's link, and the size of the scale-up domain. Both empty: as the accelerator's."""

    kind: str = ""
    """pcie, or empty."""
    domain: float | None = None


def read_link(text: str) -> LinkReading:
    """PCIe replaces the link; a bridge, a slice or a quad sets the domain; any other text names the accelerator's link."""
    plain = text.lower()
    slices = re.search(r"slice of (\d+)", plain)
    if slices:
        return LinkReading(domain=float(slices.group(1)))
    bridge = re.search(r"(\d+)-way.*bridge|bridge (\d+)", plain)
    if bridge:
        return LinkReading(domain=float(bridge.group(1) or bridge.group(2)))
    quad = re.search(r"\((\d+)x gh200\)", plain)
    if quad:
        return LinkReading(domain=float(quad.group(1)))
    if "pcie" in plain and not re.search(r"nvlink|xgmi|infinity", plain):
        return LinkReading(kind="pcie")
    return LinkReading()
