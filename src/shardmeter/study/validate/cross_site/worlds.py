"""What may have been run: scenarios that span what a published efficiency does not say, and the same GPUs in one building."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.units import Ratio, Seconds
from shardmeter.scenario import load
from shardmeter.specs import Scenario
from shardmeter.study.validate.cross_site.trials import Trial

STACK = "mcore-2024"
MEGATRON: Mapping[str, Any] = {"sharding": "zero1", "tp": 8, "micro_batch": 1, "recompute": "selective"}
"""Of every plan."""
TOKENS = (4e6, 16e6)
"""Of a step, least and most."""
FORMATS = ("bf16", "fp32")
"""Of the gradients that cross."""
OVERSUBSCRIPTIONS = (1.0, 128.0)
"""Where nothing is said of the line: from all that the adapters carry to some waves of 400 Gbit/s for a thousand GPUs."""
AHEAD = 2
"""Micro-batches in flight beyond those of 1F1B, where it says so."""
SITES = ("north", "south")
NODE = 8


@record
class Layout:
    """Degrees by which a model is usually trained, and what its pipeline does."""

    tp: int
    pp: int
    chunks: int
    seq_len: int
    ahead: int = 0
    """Micro-batches more in flight where stages are on unlike sites."""

    @property
    def schedule(self) -> str:
        """The word of it."""
        return "interleaved" if self.chunks > 1 else "1f1b"

    @property
    def says(self) -> str:
        """With what is ahead."""
        return f"{self.schedule}, {self.ahead} ahead" if self.ahead else self.schedule


LAYOUTS: Mapping[str, tuple[Layout, ...]] = {
    "nemotron-340b": (Layout(tp=8, pp=12, chunks=1, seq_len=4096), Layout(tp=8, pp=12, chunks=4, seq_len=4096)),
    "gpt3-175b": (Layout(tp=8, pp=8, chunks=1, seq_len=2048), Layout(tp=8, pp=8, chunks=3, seq_len=2048)),
    "mistral-large-2": (Layout(tp=8, pp=8, chunks=1, seq_len=4096), Layout(tp=8, pp=4, chunks=2, seq_len=4096)),
    "llama-2-70b": (Layout(tp=8, pp=4, chunks=1, seq_len=4096), Layout(tp=8, pp=4, chunks=4, seq_len=4096)),
}
"""Without and with chunks of a stage."""


@record
class Line:
    """How what crosses is sent."""

    word: str
    says: str
    fields: Mapping[str, Any]
    """Of `fleet.wan.default`."""
    topologies: tuple[str, ...] = ("ring",)
    """By which gradients may cross."""


NCCL = {"transport": "rdma", "streams": 2, "window": "4 MiB"}
WIDE = {"transport": "selective", "streams": 16, "window": "128 MiB", "loss": 1e-8}
SERVED = ("ring", "sharded_star")
"""A ring between sites has NCCL's window built in; where windows are tuned, each site may serve half of what crosses instead, which takes
1.3 times as long as a ring that waits for nothing."""
LINES: Mapping[str, Line] = {
    one.word: one
    for one in (
        Line(word="rate", says="the rate of the line, and nothing that takes from it", fields={"transport": "lossless"}, topologies=SERVED),
        Line(
            word="default", says="flows hashed to uplinks, two an adapter; go-back-N; NCCL's window of 2 × 4 MiB an adapter, sends of 4 MiB",
            fields={**NCCL, "balance": "ecmp", "flows": 2, "sends": "4 MiB", "loss": 1e-8},
        ),
        Line(
            word="tuned", says="packets sprayed; selective repeat; windows of 2 GiB an adapter, which fill any line here",
            fields={**WIDE, "balance": "spray"}, topologies=SERVED,
        ),
        Line(
            word="ordinary", says="TCP, two streams an adapter, 1 of 100,000 packets lost",
            fields={"transport": "tcp", "streams": 2, "window": "4 MiB", "loss": 1e-5},
        ),
        Line(word="one flow", says="flows hashed, one an adapter", fields={**WIDE, "balance": "ecmp", "flows": 1}, topologies=SERVED),
        Line(word="16 flows", says="flows hashed, 16 an adapter", fields={**WIDE, "balance": "ecmp", "flows": 16}, topologies=SERVED),
        Line(word="window", says="NCCL's window of 2 × 4 MiB", fields=NCCL),
        Line(word="sends", says="the same, and sends of 1 MiB", fields={**NCCL, "sends": "1 MiB"}),
        Line(
            word="go-back-N", says="1 of 100,000 packets lost, go-back-N with windows that fill the line",
            fields={**WIDE, "transport": "rdma", "loss": 1e-5}, topologies=SERVED,
        ),
        Line(word="selective", says="the same, selective repeat", fields={**WIDE, "loss": 1e-5}, topologies=SERVED),
    )
}  # fmt: skip
"""What rows name, and below `ordinary` one thing at a time beside `rate`."""


@record
class World:
    """One thing that may have been run."""

    model: str
    accelerators: str
    gpus: int
    tokens: float
    format: str
    placement: str
    layout: Layout
    release: str = "layers"
    """When gradients that cross leave: layer by layer behind the backward, or all at its end."""

    @property
    def batch(self) -> int:
        """Sequences of a step: near the tokens, a multiple of what the schedule's turns are laid out for in both cases."""
        unit = self.gpus // self.layout.tp
        return max(round(self.tokens / self.layout.seq_len / unit), 1) * unit

    @property
    def kinds(self) -> list[str]:
        """Accelerators of both sites."""
        kinds = self.accelerators.split("+")
        return [kinds[0], kinds[-1]]


def worlds(trial: Trial) -> list[World]:
    """All that is plausible: gradients that cross in either format over pipelines with chunks, pipelines that cross with either
    schedule. Pipelines take the most GPUs and the fewest tokens alone: both leave them the fewest micro-batches to hide behind."""
    made = []
    for model, kind, tokens in product(trial.models, trial.accelerators, TOKENS):
        plain, chunked = LAYOUTS[model]
        ways = [("dp", gpus, word, chunked) for gpus, word in product(trial.gpus, FORMATS)]
        ways += [("dp, at the end", gpus, FORMATS[0], chunked) for gpus in trial.gpus]
        ways += [
            ("pp", trial.gpus[-1], FORMATS[0], one)
            for one in (plain, changed(plain, ahead=AHEAD), chunked)
            if tokens == TOKENS[0]
        ]
        made += [
            World(
                model=model,
                accelerators=kind,
                gpus=gpus,
                tokens=tokens,
                format=word,
                placement=way[:2],
                layout=one,
                release="end" if way[2:] else "layers",
            )
            for way, gpus, word, one in ways
        ]
    return made


def across(world: World, line: Line, topology: str) -> Scenario:
    """A world over two sites on some line: their uplinks carry all that their adapters send, and pass into a line as wide."""
    islands = [
        {"name": name, "accelerator": kind, "nodes": world.gpus // 2 // NODE}
        for name, kind in zip(SITES, world.kinds, strict=True)
    ]
    plan = _plan(world) | {"sync": {"topology": topology, "release": world.release}}
    if world.placement == "pp":
        plan["placement"] = {"pp": [name for name in SITES for _ in range(world.layout.pp // 2)]}
        plan["ahead"] = world.layout.ahead
    wan = {
        "default": {"bandwidth": "1 Pbps", "rtt": "1 ms", "oversubscription": 1, "balance": "planned", **line.fields}
    }
    return _loaded(world, {"islands": islands, "wan": wan}, plan)


def laid(scenario: Scenario, oversubscription: Ratio, rtt: Seconds) -> Scenario:
    """The same with uplinks that carry so much less than the adapters, and so long a round trip."""
    wan = scenario.fleet.wan
    if wan is None:
        raise ValueError("one site and no line")
    own = changed(wan, up=wan.up / oversubscription, down=wan.down / oversubscription, rtt=rtt)
    return changed(scenario, fleet=changed(scenario.fleet, wan=own))


def together(world: World) -> Scenario:
    """The same GPUs, all of the first kind, in one building."""
    island = {"name": "one", "accelerator": world.kinds[0], "nodes": world.gpus // NODE}
    return _loaded(world, {"islands": [island]}, _plan(world))


def _plan(world: World) -> dict[str, Any]:
    one = world.layout
    more = {"pp": one.pp, "schedule": one.schedule, "virtual_stages": one.chunks, "reduce_dtype": world.format}
    return {**MEGATRON, "tp": one.tp, **more}


def _loaded(world: World, fleet: Mapping[str, Any], plan: Mapping[str, Any]) -> Scenario:
    run = {"seq_len": world.layout.seq_len, "global_batch": world.batch}
    return load({"model": world.model, "stack": STACK, "fleet": dict(fleet), "plan": dict(plan), "run": run})
