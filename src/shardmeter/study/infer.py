"""`infer`: how fast a trained model answers when it is served over the islands of a fleet, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardmeter.core.alike import kinds, span
from shardmeter.core.errors import BadScenario, UnknownName, Violation, shown
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB, Number
from shardmeter.engine.inference import Server, cut, lines, serve, server
from shardmeter.engine.inference.fold import CROSSING
from shardmeter.engine.inference.servers import degree
from shardmeter.engine.links import Links
from shardmeter.families import parameters, writes
from shardmeter.specs import Island, Scenario, Term
from shardmeter.specs.serving import METHODS, Host, Served, Serving
from shardmeter.strategies.precision import recipe
from shardmeter.study.trust import ACROSS

HOSTS = (0.5, 2.0)
"""90 % of the times that hosts take over the predicted ones. No measured inference is among the shipped rows, and all constants are
those of training: wide by choice, not fitted. What passes between islands has the interval of `predict` (`trust.ACROSS`)."""
LEVEL = 0.9
USUAL_TOP_K = 4
"""Experts of an ensemble where nobody said how many (SOMA: min(4, N))."""
MOST = {
    "prompt": 1e7,
    "output": 1e7,
    "batch": 1e6,
    "in_flight": 1e9,
    "experts": 1e6,
    "top_k": 1e6,
    "blocks": 1e4,
    "traversals": 1e6,
}
"""The largest number of each that is answered."""


@record
class Inference:
    """A model served over a fleet in one way, and in the others where they were asked for too."""

    scenario: Scenario
    asked: Serving
    served: Served
    servers: tuple[Server, ...]
    others: tuple[Served, ...] = ()
    """All ways, if they were to be compared."""
    refused: tuple[tuple[str, str], ...] = ()
    """(way, why it cannot be) of those."""
    crossover: tuple[dict[str, Any], ...] | None = None
    eager: bool = False

    def __repr__(self) -> str:
        """One line."""
        verdict = "fits" if self.served.fits else "does not fit"
        return (
            f"<Inference {self.served.how} of {self.scenario.model.name}: "
            f"{_number(self.served.output_time):.4g} s for {self.asked.output:g} tokens, {verdict}>"
        )

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def fits(self) -> bool:
        """Whether every host holds its part."""
        return self.served.fits

    def to_dict(self) -> dict[str, Any]:
        """The `infer` JSON: SI units as each key says; memory is that of a host's fullest accelerator."""
        one = self.served
        return {
            "how": one.how,
            "fits": one.fits,
            **figures(one, self.asked),
            "prompt": _number(self.asked.prompt),
            "output": _number(self.asked.output),
            "batch": _number(self.asked.batch),
            "traversals": _number(self.asked.traversals),
            "hosts": [_host(host) for host in one.hosts],
            "ledger": _ledger(one.terms),
            "bottleneck": _bottleneck(one),
            "intervals": intervals(one, self.asked),
            "compared": self._compared(),
            "crossover": None if self.crossover is None else list(self.crossover),
            "assumptions": [*_assumed(self), *one.notes],
            "warnings": _warnings(self),
        }

    def _compared(self) -> list[dict[str, Any]] | None:
        if not self.others:
            return None
        rows = [
            {"how": one.how, "fits": one.fits, **figures(one, self.asked), "memory_gib": _fullest(one), "why": None}
            for one in self.others
        ]
        empty = dict.fromkeys(rows[0], None)
        return [*rows, *({**empty, "how": how, "why": why} for how, why in self.refused)]


def figures(one: Served, asked: Serving) -> dict[str, Any]:
    """The figures of one way."""
    return {
        "latency_per_token_s": None if one.token_time is None else _number(one.token_time),
        "first_token_s": _number(one.first_time),
        "output_s": _number(one.output_time),
        "tokens_per_s": _number(asked.output / one.output_time),
        "tokens_per_s_in_flight": _number(one.flight_rate),
        "in_flight": _number(one.in_flight),
    }


def intervals(one: Served, asked: Serving) -> dict[str, Any]:
    """[low, high] of the figures, None for one that is none: hosts and lines each at the fast or slow end together."""
    found: dict[str, Any] = {"level": LEVEL}
    for name, terms in (("latency_per_token_s", one.token), ("first_token_s", one.first), ("output_s", one.terms)):
        found[name] = terms and [plain_sum(_number(t.seconds) * _factors(t)[end] for t in terms) for end in (0, 1)]
    found["tokens_per_s"] = [_number(asked.output) / seconds for seconds in reversed(found["output_s"])]
    low, high = HOSTS if not one.busiest.startswith("line") else ACROSS
    rate = _number(one.flight_rate)
    found["tokens_per_s_in_flight"] = [rate / high, rate / low]
    return found


def _factors(term: Term) -> tuple[float, float]:
    return ACROSS if term.label in CROSSING else HOSTS


def infer(
    scenario: Scenario, asked: Serving, *, compare: bool = False, crossover: bool = False, eager: bool = False
) -> Inference:
    """Serve the model of a resolved scenario over its islands. `compare`: in all ways; `crossover`: where one traversal of
    blocks takes as long as a pipeline, and as a whole model on one island; `eager`: every kernel is launched by the host, as in training.

    Raises BadScenario with everything that is wrong, UnknownName for a way that is none."""
    scenario = put_together(scenario)
    asked = checked(scenario, asked)
    servers, links = laid(scenario, eager=eager)
    others, refused = _all_ways(scenario, asked, servers, links) if compare else ((), ())
    rows = None
    if crossover:
        from shardmeter.study.crossover import rows as rows_of

        rows = rows_of(scenario, asked, servers)
    return Inference(
        scenario=scenario, asked=asked, served=serve(servers, links, asked), servers=servers, others=others,
        refused=refused, crossover=rows, eager=eager,
    )  # fmt: skip


def put_together(scenario: Scenario) -> Scenario:
    """With the whole model where islands train one block of it each."""
    return scenario if scenario.assembled is None else changed(scenario, model=scenario.assembled, assembled=None)


def laid(scenario: Scenario, *, eager: bool = False) -> tuple[tuple[Server, ...], Links | None]:
    """Every island as a server, in groups of tensor parallelism, and what joins them. Islands alike but for name, place and price
    share what was priced already."""
    islands, model, stack = scenario.fleet.islands, scenario.model, scenario.stack
    plans = scenario.plans or (scenario.plan,) * len(islands)
    kinds: list[tuple[tuple[Island, Any, str], Server]] = []
    servers: list[Server] = []
    for island, plan in zip(islands, plans, strict=True):
        kind = (changed(island, name="", region="", price=None, price_basis=""), plan.tp, plan.precision)
        one = next((made for known, made in kinds if known == kind), None)
        if one is None:
            tp = degree(model, island, stack, float(plan.tp))
            one = server(model, island, tp, stack, plan.precision, eager=eager)
            kinds.append((kind, one))
        servers.append(replace(one, island=island))
    return tuple(servers), lines(scenario.fleet.wan, islands, [one.plan.tp for one in servers])


def _all_ways(
    scenario: Scenario, asked: Serving, servers: Sequence[Server], links: Links | None
) -> tuple[tuple[Served, ...], tuple[tuple[str, str], ...]]:
    found, refused = [], []
    for how in METHODS:
        try:
            found.append(serve(servers, links, checked(scenario, changed(asked, how=how))))
        except BadScenario as error:
            refused.append((how, "; ".join(one.says for one in error.violations)))
    return tuple(found), tuple(refused)


# ---- what may be asked -----------------------------------------------------------------------------------------------------------


def checked(scenario: Scenario, asked: Serving) -> Serving:
    """The question with what was left out. Raises BadScenario with every violation, UnknownName."""
    if asked.how not in METHODS:
        raise UnknownName("way to serve", str(asked.how), METHODS)
    found = [*_numbers(asked)]
    if not found:
        islands = len(scenario.fleet.islands)
        asked = changed(asked, experts=int(asked.experts) or islands, blocks=int(asked.blocks) or islands)
        asked = changed(asked, top_k=int(asked.top_k) or min(USUAL_TOP_K, asked.experts))
        asked = changed(
            asked, **{name: float(getattr(asked, name)) for name in ("prompt", "output", "batch", "traversals")}
        )
        found = [*_possible(scenario, asked)]
    if not writes(scenario.model):
        says = f"{scenario.model.name}, of family {scenario.model.family}, does not write token by token"
        found.append(Violation(field="model", says=says, way_out="name a decoder or a recurrent model"))
    if found:
        count = len(found)
        raise BadScenario(f"{scenario.name}: {count} problem{'s' if count > 1 else ''}", found)
    return asked


def _numbers(asked: Serving) -> list[Violation]:
    """Numbers that are none."""
    found = []
    for name, most in MOST.items():
        value, least = getattr(asked, name), 0.0 if name in ("experts", "top_k", "blocks") else 1.0
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (value is None and name == "in_flight") or (number and least <= value <= most and float(value).is_integer()):
            continue
        says = f"{shown(value)} is not a whole number from {max(least, 1.0):g} to {most:,.0f}"
        found.append(Violation(field=name, says=says, way_out=f"say --{name.replace('_', '-')} 1 or more"))
    return found


def _possible(scenario: Scenario, asked: Serving) -> list[Violation]:
    """What numbers contradict each other, the model or the fleet."""
    found: list[Violation] = []
    model, islands = scenario.model, len(scenario.fleet.islands)

    def wrong(field: str, says: str, rule: str, way_out: str) -> None:
        found.append(Violation(field=field, says=says, rule=rule, way_out=way_out))

    layers = len(cut.layers(changed(model, mtp=0))) if writes(model) else int(model.layers)
    if asked.in_flight is not None and asked.in_flight < asked.batch:
        wrong("in_flight", f"{asked.in_flight:g} sequences under way are less than one batch of {asked.batch:g}",
              "sequences are under way in whole batches", f"say --in-flight {asked.batch:g} or more")  # fmt: skip
    if asked.top_k > asked.experts and asked.how == "soma":
        wrong("top_k", f"an ensemble of {asked.top_k} is more than the {asked.experts} experts there are",
              "an ensemble is a choice of the experts", f"say --top-k {asked.experts} or less")  # fmt: skip
    if asked.how == "pipeline" and islands > layers:
        wrong("fleet", f"{islands} islands are more than the {layers} layers of {model.name}",
              "every island holds a layer", "name fewer islands in fleet.use, or serve --how local")  # fmt: skip
    if asked.how == "block_train" and asked.blocks > layers:
        wrong("blocks", f"{asked.blocks} blocks are more than the {layers} layers of {model.name}",
              "every block holds a layer", f"say --blocks {layers} or less")  # fmt: skip
    if asked.how == "block_train" and islands > asked.blocks:
        wrong("blocks", f"{asked.blocks} blocks are less than the {islands} islands", "every island holds a block",
              f"say --blocks {islands} or more, or name fewer islands in fleet.use")  # fmt: skip
    longest = float(model.context)
    if model.positions == "learned" and asked.prompt + asked.output > longest > 0.0:
        wrong("output", f"{asked.prompt + asked.output:g} tokens are more than the {longest:g} positions of {model.name}",
              "learned positions end at the context", f"say --prompt and --output of {longest:g} together")  # fmt: skip
    return found


# ---- the answer in words and keys ------------------------------------------------------------------------------------------------


def _host(host: Host) -> dict[str, Any]:
    return {
        "name": host.name,
        "accelerator": host.accelerator,
        "accelerators": _number(host.accelerators),
        "copies": _number(host.copies),
        "layers": host.layers,
        "blocks": host.blocks,
        "experts": host.experts,
        "seconds": _number(host.busy),
        "memory_gib": _number(host.peak) / GIB,
        "limit_gib": _number(host.limit) / GIB,
        "fits": host.fits,
        "memory_terms": [
            {"term": t.label, "gib": _number(t.size) / GIB, "exactness": t.exactness} for t in host.memory
        ],
    }


def _ledger(terms: Sequence[Term]) -> list[dict[str, Any]]:
    total = plain_sum(_number(term.seconds) for term in terms)
    return [
        {"term": t.label, "seconds": _number(t.seconds), "share": _number(t.seconds) / total, "cause": t.cause}
        for t in terms
    ]


def _bottleneck(one: Served) -> dict[str, Any]:
    worst = max(one.terms, key=lambda term: float(term.seconds))
    return {
        "term": worst.label,
        "share": _number(worst.seconds / one.output_time),
        "cause": worst.cause,
        "busiest": one.busiest,
        "busiest_share": _number(one.busiest_share),
    }


def _fullest(one: Served) -> float:
    return max(_number(host.peak) for host in one.hosts) / GIB


OF_TRAINING = (
    "global_batch", "seq_len", "micro_batch", "dp_shard", "dp_replicate", "sharding", "gather_dtype", "reduce_dtype", "optimizer",
    "sync ", "price", "egress", "tokens", "no length", "recompute", "split", "master",
)  # fmt: skip
"""Words in what was assumed of training, its batch and its cost, on which a trained model's answer does not rest."""


def _assumed(one: Inference) -> list[str]:
    asked, scenario = one.asked, one.scenario
    found = [text for text in scenario.assumptions if not any(word in text for word in OF_TRAINING)]
    alike = kinds(one.servers, lambda s: (s.plan.tp, s.island.accelerator.name))
    degrees = "; ".join(f"{own[0].plan.tp:g} on {span([s.island.name for s in own])}" for own in alike)
    found.append(f"accelerators of one copy (the plan's tp, else as many of a node as divide the heads): {degrees}")
    found.append(f"weights and activations in {recipe(one.servers[0].plan.precision).base}, no gradients, no optimizer")
    if not one.eager:
        found.append(
            "decoding is captured as graphs: a kernel costs its start on the device (--eager: the host's launch)"
        )
    if asked.in_flight is None:
        found.append("sequences under way: as many as keep the busiest place at work and fit into memory")
    if asked.how == "soma":
        found.append(
            f"{asked.experts} experts, each as large as {scenario.model.name} ({_number(parameters(scenario.model)):,.0f} "
            f"parameters), {asked.top_k} of them for a sequence"
        )
    if asked.how == "block_train":
        found.append(f"{asked.blocks} blocks, prompt and output together pass them {asked.traversals:g} time"
                     f"{'s' * (asked.traversals != 1)}, every position sees all others")  # fmt: skip
    return found


def _warnings(one: Inference) -> list[str]:
    asked, model = one.asked, one.scenario.model
    found = [
        "no measured inference is among the rows that ship: seconds of hosts are given from half to twice the predicted"
    ]
    longest = asked.prompt + asked.output
    if 0.0 < model.context < longest:
        found.append(
            f"{longest:g} tokens are beyond the context of {model.name}, {float(model.context):g}: what it writes is not predicted"
        )
    words = dict.fromkeys(plan.precision for plan in one.scenario.plans or (one.scenario.plan,))
    found += [
        f"{word} is a recipe of training: served in {recipe(word).base}, weights and products"
        for word in words if word != recipe(word).base
    ]  # fmt: skip
    if "block_train" in (asked.how, *(other.how for other in one.others)):
        found.append(
            "block_train: a model that was trained to be traversed once; the same shape trained to write token by token cannot be, "
            "and what is lost (0.04 nats a byte at 4 blocks of a small model, arXiv 2606.24722) is not in the times"
        )
    return found


def _number(value: Number) -> float:
    """A plain finite float. Raises FloatingPointError where a formula left the numbers."""
    result = float(value)
    if not np.isfinite(result):
        raise FloatingPointError(f"a figure came out as {result}")
    return result
