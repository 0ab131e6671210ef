"""Published gains of better schedules, transports and placements, each beside the largest that is found over what was not said."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from shardmeter import data
from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Ratio, Seconds
from shardmeter.engine.fleet import evaluate_fleet
from shardmeter.scenario import load
from shardmeter.study.validate.cross_site.worlds import MEGATRON, NODE, SITES, STACK

FILE = "cross_site_gains.csv"
RTTS = (1e-3, 10e-3, 40e-3, 100e-3)
PASSES = 16
"""Micro-batches of a step."""
AHEAD = (0, 1, 2, 4)
"""Micro-batches more before the line."""
ALIKE = 1.05
"""Memory over that of 1F1B that is called the same."""


@record
class Pair:
    """One place where both ways were evaluated."""

    says: str
    base: Seconds
    better: Seconds

    @property
    def gain(self) -> Ratio:
        """How many times as fast."""
        return self.base / self.better


@record
class Gain:
    """A published gain and ours."""

    id: str
    who: str
    said: str
    unsaid: str
    figure: str
    kind: str
    factor: Ratio
    """How many times as fast, as published."""
    compared: str
    """What is compared here."""
    source: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All that was evaluated, the largest gain first."""
        return _pairs(self.id)


@cache
def gains() -> tuple[Gain, ...]:
    """The rows that ship."""
    words = ("id", "who", "said", "unsaid", "figure", "kind", "compared", "source")
    with data.open_text(FILE) as file:
        return tuple(
            Gain(**{name: line[name] for name in words}, factor=float(line["factor"])) for line in csv.DictReader(file)
        )


@cache
def _pairs(name: str) -> tuple[Pair, ...]:
    return tuple(sorted(COMPARED[name](), key=lambda one: -one.gain))


def _schedules() -> Iterator[Pair]:
    """1F1B over two sites against the best other schedule: of about its memory, of that with micro-batches of half the size and more of
    them ahead of the line, and of all that the accelerators hold."""
    for rtt in RTTS:
        wan = {"bandwidth": "400 Gbps", "shared": "gpu", "rtt": f"{rtt} s", "transport": "lossless"}
        base, held = _pipeline(wan)
        others = [_pipeline(wan, schedule=word) for word in ("gpipe", "zb-h1", "zb-h2")]
        others += [_pipeline(wan, schedule=word, virtual_stages=2) for word in ("interleaved", "interleaved-bf")]
        for says, limit in (("of no more memory", ALIKE * held), ("of any memory", np.inf)):
            best = min([seconds for seconds, memory in others if memory <= limit] + [base])
            yield Pair(says=f"{says}, {rtt * 1e3:g} ms", base=base, better=best)
        base, held = _pipeline(wan, PASSES * 4, micro_batch=2)
        halves = [_pipeline(wan, PASSES * 4, ahead=more, schedule=word) for more in AHEAD for word in ("1f1b", "zb-h1")]
        best = min([seconds for seconds, memory in halves if memory <= ALIKE * held] + [base])
        yield Pair(says=f"of no more memory in halves, {rtt * 1e3:g} ms", base=base, better=best)


def _streams() -> Iterator[Pair]:
    """A pipeline over one TCP connection between two nodes, of which each accelerator has its part, against 128 an accelerator."""
    for rtt, window in product(RTTS, (4, 1)):
        wan = {"bandwidth": "20 Gbps", "shared": "node", "rtt": f"{rtt} s", "transport": "tcp"}
        each = f"{window / NODE} MiB"
        base, better = (_pipeline({**wan, "streams": streams, "window": each})[0] for streams in (1, 128))
        yield Pair(says=f"window of {window} MiB, {rtt * 1e3:g} ms", base=base, better=better)


def _orders() -> Iterator[Pair]:
    """Pipelines inside a building and gradients across the narrow tier against stages across it."""
    for ratio, tokens in product((3, 15, 30), (4e6, 16e6)):
        tiers = [{"name": "pod", "nodes": 120, "oversubscription": ratio}]
        island = {"name": "one", "accelerator": "H800-SXM5", "nodes": 1200, "tiers": tiers}
        steps = []
        for order in (["tp", "cp", "pp", "dp_shard", "dp_replicate"], ["tp", "cp", "dp_shard", "dp_replicate", "pp"]):
            plan = {**MEGATRON, "pp": 10, "rank_order": order}
            batch = max(round(tokens / 4096 / 120), 1) * 120
            steps.append(_seconds("llama-2-70b", {"islands": [island]}, plan, batch, 4096)[0])
        yield Pair(says=f"{ratio}:1, {tokens / 1e6:g}M tokens", base=max(steps), better=min(steps))


COMPARED = {"N149": _schedules, "N150": _streams, "N155": _orders}


def _pipeline(wan: Mapping[str, Any], batch: int = 2 * PASSES, **plan: Any) -> tuple[Seconds, Bytes]:
    """Llama 2 7B in four stages over two sites: seconds of a step, memory of the fullest accelerator."""
    islands = [{"name": name, "accelerator": "A100-SXM4-80GB", "nodes": 4} for name in SITES]
    placed = {"pp": [name for name in SITES for _ in range(2)]}
    asked = {**MEGATRON, "pp": 4, "placement": placed, **plan}
    return _seconds("llama-2-7b", {"islands": islands, "wan": {"default": dict(wan)}}, asked, batch, 4096)


def _seconds(
    model: str, fleet: Mapping[str, Any], plan: Mapping[str, Any], batch: int, length: int
) -> tuple[Seconds, Bytes]:
    run = {"seq_len": length, "global_batch": batch}
    one = load({"model": model, "stack": STACK, "fleet": dict(fleet), "plan": dict(plan), "run": run})
    whole = evaluate_fleet(one.model, one.fleet, one.plan, one.run, one.stack, one.plans)
    peak = max(float(part.estimate.memory_peak) for part in whole.parts)
    return float(whole.estimate.step_time), peak
