"""Which kind of link runs at a rate: rows of the catalog by what they reach."""

from __future__ import annotations

import functools
import math

from shardmeter.core.record import record
from shardmeter.core.units import BytesPerS
from shardmeter.specs import Fabric, Island

WITHIN, MOST = math.log(1.3), 3
"""Kinds of links within a factor of 1.3 of a rate are named, and how many of them: plain ones before single adapters of others."""


ONE = "one adapter of "


@record
class Kind:
    """A kind of link, and what a node of it sends at best."""

    name: str
    rate: BytesPerS


def node_rate(fabric: Fabric, gpus_per_node: float) -> float:
    """Wire rate out of a node, one direction."""
    adapters = gpus_per_node if fabric.nics_per_node is None else float(fabric.nics_per_node)
    return float(fabric.bandwidth) * adapters


@functools.cache
def _fabrics() -> tuple[Fabric, ...]:
    from shardmeter.scenario.catalog import load_catalog

    catalog = load_catalog()
    return tuple(catalog.fabric(name) for name in catalog.names("fabrics"))


@functools.cache
def _lines() -> tuple[Kind, ...]:
    from shardmeter.scenario.catalog import load_catalog

    catalog = load_catalog()
    lines = [catalog.link(name) for name in catalog.names("links")]
    rates = [(line.name, line.up if line.bandwidth is None else line.bandwidth) for line in lines]
    return tuple(Kind(name=name, rate=float(rate)) for name, rate in rates if rate is not None)


def fabric_kinds(island: Island) -> tuple[Kind, ...]:
    """Fabrics of the catalog under a node of this size, by what collectives reach: as sold, and with one adapter of several in use."""
    gpus = float(island.gpus_per_node)
    found = [Kind(name=one.name, rate=node_rate(one, gpus) * float(one.share)) for one in _fabrics()]
    several = [one for one in _fabrics() if node_rate(one, gpus) > float(one.bandwidth)]
    found += [Kind(name=f"{ONE}{one.name}", rate=float(one.bandwidth) * float(one.share)) for one in several]
    return tuple(found)


def fastest(island: Island) -> float:
    """Wire rate, for each GPU of a node of this size, of the fastest fabric of the catalog."""
    gpus = float(island.gpus_per_node)
    return max(node_rate(one, gpus) for one in _fabrics()) / gpus


def line_kinds() -> tuple[Kind, ...]:
    """Lines between islands."""
    return _lines()


def named(rate: float, kinds: tuple[Kind, ...]) -> str:
    """A rate in words of kinds of links: those that reach about as much, or the nearest."""
    order = sorted(kinds, key=lambda kind: abs(math.log(rate / kind.rate)))
    near = [kind for kind in order if abs(math.log(rate / kind.rate)) <= WITHIN]
    near = sorted(near, key=lambda kind: kind.name.startswith(ONE))[:MOST]
    if near:
        names = ", ".join(f"{kind.name} ({_text(kind.rate)})" for kind in near)
        return f"about what is reached by {names}"
    slowest = min(kinds, key=lambda one: one.rate)
    if rate < slowest.rate:
        return (
            f"{slowest.rate / rate:.3g} times less than the slowest kind known, {slowest.name} ({_text(slowest.rate)})"
        )
    return f"nearest to {order[0].name} ({_text(order[0].rate)})"


def _text(rate: BytesPerS) -> str:
    from shardmeter.core.quantity import show

    return show(8.0 * float(rate), "bit/s")
